/*
 * The followers of a partition that is led here. Their fetches tell how far each has got, and so how far the high
 * watermark may go (KIP-497 for the maximal ISR, KIP-966 for an ISR below the minimum).
 *
 * A follower's fetch says that it has all below its offset. The high watermark is the smallest of these over the
 * replicas in sync, those included that are about to be, and of the leader's own end. A replica must not join the ISR
 * while it lacks something below the high watermark, or it could be elected and lose that. So proposals are checked
 * under the lock that the high watermark moves under.
 */
#include "replica/followers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replica/access.h"
#include "replica/durable.h"
#include "wire/generated/kafka_errors.h"

/* A follower that has caught up is told of no more often, unless its join was refused, and the high watermark waits no
 * longer for what becomes of it. */
#define TOLD_NS 1000000000LL

static int64_t monotonic_ns(const pb_partition *partition)
{
    return partition->io->ops->monotonic_ns(partition->io);
}

/* ---- the high watermark ---- */

static int32_t minimum_isr(const pb_partition *partition)
{
    int32_t replica_count = partition->followers->count + 1;
    int32_t asked = partition->rules.min_insync_replicas;
    return asked < replica_count ? asked : replica_count;
}

bool pb_followers_suffice(const pb_partition *partition)
{
    return partition->followers->isr_count >= minimum_isr(partition);
}

static bool holds_watermark(const pb_partition *partition, const pb_follower *follower)
{
    return follower->in_isr || follower->joins ||
           (follower->is_waited_for && monotonic_ns(partition) - follower->waited_ns < TOLD_NS);
}

int64_t pb_followers_limit(const pb_partition *partition, int64_t end)
{
    const pb_followers *followers = partition->followers;
    if (!pb_followers_suffice(partition))
        return partition->high_watermark;
    for (int32_t i = 0; i < followers->count; i++) {
        const pb_follower *follower = &followers->each[i];
        if (follower->log_end_offset < end && holds_watermark(partition, follower))
            end = follower->log_end_offset;
    }
    return end;
}

/* ---- appends with acks=all ---- */

static pb_partition_append_op *op_of(pb_link *link)
{
    return PB_CONTAINER(PB_CONTAINER(link, pb_append, link), pb_partition_append_op, append);
}

void pb_followers_note_write(pb_partition *partition, int64_t appended_bytes, pb_link *finished)
{
    pb_link *next;
    for (pb_link *link = finished->next; link != finished; link = next) {
        next = link->next;
        pb_partition_append_op *op = op_of(link);
        if (op->append.error != 0 || !op->replicated)
            continue;
        if (pb_log_failed(partition->log)) {
            op->append.error = PB_KAFKA_KAFKA_STORAGE_ERROR;
            continue;
        }
        if (op->overdue) {
            op->append.error = PB_KAFKA_REQUEST_TIMED_OUT;
            continue;
        }
        pb_list_remove(link);
        pb_list_push_back(&partition->unreplicated, link);
        op->waits = true;
    }
    pb_followers_wake(partition, appended_bytes);
}

void pb_followers_end_appends(pb_partition *partition, pb_link *finished)
{
    while (!pb_list_empty(&partition->unreplicated)) {
        pb_partition_append_op *op = op_of(partition->unreplicated.next);
        if (op->append.base_offset + op->append.record_count > partition->high_watermark)
            break;
        op->waits = false;
        pb_list_remove(&op->append.link);
        pb_list_push_back(finished, &op->append.link);
    }
}

static void fail_list(pb_link *list, int error, pb_link *finished)
{
    pb_link *next;
    for (pb_link *link = list->next; link != list; link = next) {
        next = link->next;
        pb_partition_append_op *op = op_of(link);
        if (!op->waits)
            continue;
        op->waits = false;
        op->append.error = error;
        pb_list_remove(link);
        pb_list_push_back(finished, link);
    }
}

void pb_followers_fail_appends(pb_partition *partition, int error, pb_link *finished)
{
    fail_list(&partition->unreplicated, error, finished);
    fail_list(&partition->duplicates, error, finished);
}

bool pb_partition_awaits_followers(pb_partition *partition, const pb_partition_append_op *op)
{
    pthread_mutex_lock(&partition->lock);
    bool waits = op->waits;
    pthread_mutex_unlock(&partition->lock);
    return waits;
}

bool pb_partition_give_up(pb_partition *partition, pb_partition_append_op *op)
{
    pthread_mutex_lock(&partition->lock);
    bool waits = op->waits;
    if (waits)
        pb_list_remove(&op->append.link);
    op->waits = false;
    op->overdue = true;
    pthread_mutex_unlock(&partition->lock);
    return waits;
}

void pb_partition_look_again(pb_partition *partition)
{
    pb_link finished;
    pb_list_init(&finished);
    pthread_mutex_lock(&partition->lock);
    /* A leader that has just resigned knows no followers, and its own log does not tell what is committed. */
    if (partition->followers != NULL)
        pb_durable_advance(partition, INT64_MAX, &finished);
    pthread_mutex_unlock(&partition->lock);
    pb_durable_settle(&finished, NULL);
}

/* ---- fetches ---- */

void pb_followers_wake(pb_partition *partition, int64_t appended_bytes)
{
    pb_link *next;
    for (pb_link *link = partition->follower_waiters.next; link != &partition->follower_waiters; link = next) {
        next = link->next;
        pb_partition_waiter *waiter = PB_CONTAINER(link, pb_partition_waiter, link);
        waiter->wake(waiter, appended_bytes);
    }
}

void pb_followers_wake_for_watermark(pb_partition *partition)
{
    pb_link *next;
    for (pb_link *link = partition->follower_waiters.next; link != &partition->follower_waiters; link = next) {
        next = link->next;
        pb_partition_waiter *waiter = PB_CONTAINER(link, pb_partition_waiter, link);
        if (waiter->known_high_watermark < partition->high_watermark)
            waiter->wake(waiter, INT64_MAX);
    }
}

pb_followers *pb_followers_replace(pb_partition *partition, pb_followers *followers)
{
    pb_followers *old = partition->followers;
    partition->followers = followers;
    pb_followers_wake(partition, INT64_MAX); /* what they wait for may have become another answer */
    return old;
}

pb_follower *pb_followers_find(pb_followers *followers, int32_t replica_id)
{
    for (int32_t i = 0; followers != NULL && i < followers->count; i++)
        if (followers->each[i].replica_id == replica_id)
            return &followers->each[i];
    return NULL;
}

/* Kafka's rule: a follower had caught up when it asked for the end of the log. It also had if, at each fetch, it asks
 * for the end as it was at the fetch before. Returns true for such a follower, if the high watermark may wait for its
 * next fetch. */
static bool note_progress(pb_follower *follower, const pb_replica_fetch *fetch, int64_t leader_end_offset)
{
    int64_t caught_up_ns = -1;
    if (fetch->offset >= leader_end_offset)
        caught_up_ns = fetch->now_ns;
    else if (fetch->offset >= follower->leader_end_offset)
        caught_up_ns = follower->fetched_ns;
    if (caught_up_ns > follower->caught_up_ns)
        follower->caught_up_ns = caught_up_ns;
    follower->fetched_ns = fetch->now_ns;
    follower->leader_end_offset = leader_end_offset;
    follower->log_end_offset = fetch->offset;
    follower->log_start_offset = fetch->log_start_offset;
    follower->broker_epoch = fetch->broker_epoch;
    return caught_up_ns >= 0 && fetch->now_ns - caught_up_ns < TOLD_NS;
}

/* Is it to be told of? Where the high watermark is the leader's own end, a follower that keeps up stays behind it as
 * long as anything is written. It has everything below by its next fetch, if the high watermark waits for that (Kafka's
 * shouldWaitForReplicaToJoinIsr). */
static bool catches_up(const pb_partition *partition, pb_follower *follower, bool keeps_up, int64_t now_ns)
{
    int64_t end = follower->log_end_offset;
    if (follower->in_isr || follower->joins || end < partition->followers->epoch_start_offset ||
        (end < partition->high_watermark && !keeps_up))
        return false;
    if (follower->told_ns >= 0 && now_ns - follower->told_ns < TOLD_NS)
        return false;
    follower->told_ns = now_ns;
    follower->waited_ns = now_ns;
    follower->is_waited_for = true;
    return true;
}

/* May this replica fetch, as far as its leader knows? 0 or a Kafka code. A replica that has just been added may know of
 * it sooner than we. */
static int admit(const pb_follower *follower, const pb_replica_fetch *fetch)
{
    if (follower == NULL)
        return fetch->leader_epoch >= 0 ? PB_KAFKA_UNKNOWN_LEADER_EPOCH : PB_KAFKA_NOT_LEADER_OR_FOLLOWER;
    if (fetch->broker_epoch >= 0 && fetch->broker_epoch < follower->broker_epoch)
        return PB_KAFKA_NOT_LEADER_OR_FOLLOWER; /* of a broker that has restarted since */
    return 0;
}

int pb_partition_find_divergence(const pb_partition *partition, int32_t last_fetched_epoch, int64_t offset,
                                 pb_epoch_end *diverging)
{
    pb_epoch_end found;
    *diverging = (pb_epoch_end){.epoch = -1, .end_offset = -1};
    if (last_fetched_epoch < 0)
        return 0;
    pb_log_end_offset_for_epoch(partition->log, last_fetched_epoch, &found.epoch, &found.end_offset);
    if (found.epoch < 0)
        return PB_KAFKA_OFFSET_OUT_OF_RANGE;
    if (found.epoch < last_fetched_epoch || found.end_offset < offset)
        *diverging = found;
    return 0;
}

int pb_partition_enter_replica(pb_partition *partition, const pb_replica_fetch *fetch, bool is_first,
                               pb_partition_ends *ends, pb_epoch_end *diverging)
{
    pb_link finished;
    bool tells = false;
    pb_list_init(&finished);
    *diverging = (pb_epoch_end){.epoch = -1, .end_offset = -1};
    pthread_mutex_lock(&partition->lock);
    int result = pb_partition_look(partition, fetch->leader_epoch, false, ends);
    pb_follower *follower = pb_followers_find(partition->followers, fetch->replica_id);
    if (result == 0)
        result = admit(follower, fetch);
    if (result == 0)
        result = pb_partition_find_divergence(partition, fetch->last_fetched_epoch, fetch->offset, diverging);
    if (result == 0 && diverging->epoch < 0) {
        int64_t end = pb_log_written_end(partition->log);
        if (fetch->offset < ends->log_start_offset || fetch->offset > end) {
            result = PB_KAFKA_OFFSET_OUT_OF_RANGE;
        } else if (is_first) {
            bool keeps_up = note_progress(follower, fetch, end);
            tells = catches_up(partition, follower, keeps_up, fetch->now_ns);
            pb_durable_advance(partition, INT64_MAX, &finished);
            if (partition->high_watermark != ends->high_watermark)
                (void)pb_partition_look(partition, -1, false, ends);
        }
        ends->written_offset = end;
        ends->is_throttled = partition->rules.leader_throttled && !follower->in_isr;
    }
    partition->readers += result == 0;
    pthread_mutex_unlock(&partition->lock);
    pb_durable_settle(&finished, NULL);
    if (tells)
        partition->caught_up(partition, fetch->replica_id);
    return result;
}

/* ---- consumers ---- */

int32_t pb_partition_nearest_replica(pb_partition *partition, int64_t offset, const int32_t *candidates, int count)
{
    int32_t best = -1;
    int64_t best_end_offset = -1, best_caught_up_ns = 0;
    pthread_mutex_lock(&partition->lock);
    for (int i = 0; i < count; i++) {
        const pb_follower *each = pb_followers_find(partition->followers, candidates[i]);
        if (each == NULL || !each->in_isr || each->log_end_offset < offset || each->log_start_offset > offset)
            continue;
        if (each->log_end_offset < best_end_offset ||
            (each->log_end_offset == best_end_offset && each->caught_up_ns <= best_caught_up_ns))
            continue;
        best = each->replica_id;
        best_end_offset = each->log_end_offset;
        best_caught_up_ns = each->caught_up_ns;
    }
    pthread_mutex_unlock(&partition->lock);
    return best;
}
