/*
 * The followers of a partition that is led here: how far each has got, by what it fetches, and so how far the high
 * watermark may go (KIP-497 for the maximal ISR, KIP-966 for an ISR below the minimum).
 *
 * A follower's fetch says that it has all below its offset. The high watermark is the smallest of these over the
 * replicas in sync, those included that are about to be, and of the leader's own end. A replica must not come into the
 * ISR while it lacks something below the high watermark, or it could be elected and lose that: so what is proposed is
 * checked under the lock that the high watermark moves under.
 */
#include "replica/followers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replica/durable.h"
#include "wire/generated/kafka_errors.h"

/* A follower that has caught up is told of no more often, and the high watermark waits no longer for what becomes of
 * it. */
#define TOLD_NS 1000000000LL
#define REPLICAS_MAX 1024

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
           (follower->is_waited_for && monotonic_ns(partition) - follower->told_ns < TOLD_NS);
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

static pb_follower *find_follower(pb_followers *followers, int32_t replica_id)
{
    for (int32_t i = 0; followers != NULL && i < followers->count; i++)
        if (followers->each[i].replica_id == replica_id)
            return &followers->each[i];
    return NULL;
}

/* Kafka's rule: a follower had caught up when it asked for the end of the log; also one that, at each fetch, asks for
 * what was the end at the fetch before. */
static void note_progress(pb_follower *follower, const pb_replica_fetch *fetch, int64_t leader_end_offset)
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
}

/* Is it to be told of? */
static bool catches_up(const pb_partition *partition, pb_follower *follower, int64_t now_ns)
{
    if (follower->in_isr || follower->joins || follower->log_end_offset < partition->high_watermark ||
        follower->log_end_offset < partition->followers->epoch_start_offset)
        return false;
    if (follower->told_ns >= 0 && now_ns - follower->told_ns < TOLD_NS)
        return false;
    follower->told_ns = now_ns;
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
    int result = pb_partition_look(partition, fetch->leader_epoch, ends);
    pb_follower *follower = find_follower(partition->followers, fetch->replica_id);
    if (result == 0)
        result = admit(follower, fetch);
    if (result == 0)
        result = pb_partition_find_divergence(partition, fetch->last_fetched_epoch, fetch->offset, diverging);
    if (result == 0 && diverging->epoch < 0) {
        int64_t end = pb_log_written_end(partition->log);
        if (fetch->offset < ends->log_start_offset || fetch->offset > end) {
            result = PB_KAFKA_OFFSET_OUT_OF_RANGE;
        } else if (is_first) {
            note_progress(follower, fetch, end);
            tells = catches_up(partition, follower, fetch->now_ns);
            pb_durable_advance(partition, INT64_MAX, &finished);
            if (partition->high_watermark != ends->high_watermark)
                (void)pb_partition_look(partition, -1, ends);
        }
        ends->written_offset = end;
    }
    partition->readers += result == 0;
    pthread_mutex_unlock(&partition->lock);
    pb_durable_settle(&finished, NULL);
    if (tells)
        partition->caught_up(partition, fetch->replica_id);
    return result;
}

/* ---- leadership ---- */

static bool contains(const int32_t *ids, int32_t count, int32_t id)
{
    for (int32_t i = 0; i < count; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Are all of these replicas, each named once? */
static bool are_replicas(const pb_leadership *leadership, const int32_t *ids, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        if (contains(ids, i, ids[i]) || !contains(leadership->replicas, leadership->replica_count, ids[i]))
            return false;
    return true;
}

static bool is_sound(const pb_leadership *leadership, int32_t node_id)
{
    if (leadership->replica_count < 1 || leadership->replica_count > REPLICAS_MAX || leadership->isr_count < 1 ||
        leadership->joining_count < 0)
        return false;
    return contains(leadership->isr, leadership->isr_count, node_id) &&
           are_replicas(leadership, leadership->replicas, leadership->replica_count) &&
           are_replicas(leadership, leadership->isr, leadership->isr_count) &&
           are_replicas(leadership, leadership->joining, leadership->joining_count);
}

static pb_followers *make_followers(const pb_leadership *leadership, int32_t node_id)
{
    int32_t count = leadership->replica_count - 1;
    pb_followers *followers = calloc(1, sizeof *followers + (size_t)count * sizeof followers->each[0]);
    if (followers == NULL)
        return NULL;
    followers->partition_epoch = leadership->partition_epoch;
    followers->isr_count = leadership->isr_count;
    for (int32_t i = 0; i < leadership->replica_count; i++) {
        int32_t id = leadership->replicas[i];
        if (id == node_id)
            continue;
        followers->each[followers->count++] = (pb_follower){
            .replica_id = id,
            .in_isr = contains(leadership->isr, leadership->isr_count, id),
            .joins = contains(leadership->joining, leadership->joining_count, id),
            .log_end_offset = -1,
            .log_start_offset = -1,
            .broker_epoch = -1,
            .leader_end_offset = INT64_MAX,
            .caught_up_ns = -1,
            .told_ns = -1,
        };
    }
    PB_ASSERT(followers->count == count);
    return followers;
}

/* 0, or why the leadership cannot be taken over as it is told. The lock is held. */
static int check_leadership(pb_partition *partition, const pb_leadership *leadership, const pb_followers *followers)
{
    pb_followers *old = partition->followers;
    if (leadership->leader_epoch < partition->leader_epoch)
        return PB_KAFKA_FENCED_LEADER_EPOCH;
    bool goes_on = old != NULL && leadership->leader_epoch == partition->leader_epoch;
    if (goes_on && leadership->partition_epoch < old->partition_epoch)
        return PB_KAFKA_INVALID_UPDATE_VERSION;
    int result = 0;
    for (int32_t i = 0; i < followers->count; i++) {
        const pb_follower *each = &followers->each[i];
        pb_follower *known = find_follower(old, each->replica_id);
        if (!each->joins || each->in_isr || (goes_on && known != NULL && (known->in_isr || known->joins)))
            continue;
        if (known != NULL && known->log_end_offset >= partition->high_watermark && goes_on &&
            known->log_end_offset >= old->epoch_start_offset)
            continue;
        if (known != NULL)
            known->told_ns = -1;
        result = PB_KAFKA_INELIGIBLE_REPLICA;
    }
    return result;
}

/* What a follower has got is known as long as we lead; a new epoch judges anew who lags. The lock is held. */
static void take_over(const pb_partition *partition, pb_followers *followers, bool is_new_epoch)
{
    int64_t now_ns = monotonic_ns(partition);
    int64_t end = pb_log_written_end(partition->log);
    for (int32_t i = 0; i < followers->count; i++) {
        pb_follower *each = &followers->each[i];
        const pb_follower *known = find_follower(partition->followers, each->replica_id);
        if (known != NULL) {
            bool in_isr = each->in_isr, joins = each->joins;
            *each = *known;
            each->in_isr = in_isr;
            each->joins = joins;
            each->is_waited_for = false;
            if (in_isr)
                each->told_ns = -1;
        }
        if (known == NULL || is_new_epoch) {
            each->caught_up_ns = each->in_isr ? now_ns : -1;
            each->fetched_ns = each->in_isr ? now_ns : -1;
            each->leader_end_offset = known != NULL ? end : INT64_MAX;
        }
    }
    followers->epoch_start_offset = partition->followers != NULL && !is_new_epoch
                                        ? partition->followers->epoch_start_offset
                                        : pb_log_appended_end(partition->log);
}

pb_followers *pb_followers_replace(pb_partition *partition, pb_followers *followers)
{
    pb_followers *old = partition->followers;
    partition->followers = followers;
    pb_followers_wake(partition, INT64_MAX); /* what they wait for may have become another answer */
    return old;
}

int pb_partition_start_leading_replicas(pb_partition *partition, int32_t node_id, const pb_leadership *leadership)
{
    if (!is_sound(leadership, node_id))
        return -EINVAL;
    pb_followers *followers = make_followers(leadership, node_id);
    if (followers == NULL)
        return -ENOMEM;
    pb_link finished;
    pb_list_init(&finished);
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->log != NULL && partition->caught_up != NULL);
    int result = check_leadership(partition, leadership, followers);
    if (result == 0) {
        take_over(partition, followers, leadership->leader_epoch > partition->leader_epoch);
        pb_partition_begin_epoch(partition, leadership->leader_epoch);
        followers = pb_followers_replace(partition, followers);
        pb_durable_advance(partition, INT64_MAX, &finished);
    }
    pthread_mutex_unlock(&partition->lock);
    free(followers);
    pb_durable_settle(&finished, NULL);
    return result;
}

int32_t pb_partition_read_followers(pb_partition *partition, pb_follower_state *out, int32_t capacity)
{
    int64_t now_ns = monotonic_ns(partition);
    pthread_mutex_lock(&partition->lock);
    const pb_followers *followers = partition->followers;
    int32_t count = followers != NULL ? followers->count : 0;
    int64_t end = count > 0 ? pb_log_written_end(partition->log) : 0;
    for (int32_t i = 0; i < count && i < capacity; i++) {
        const pb_follower *each = &followers->each[i];
        int64_t age_ms = each->caught_up_ns < now_ns ? (now_ns - each->caught_up_ns) / 1000000 : 0;
        if (each->log_end_offset == end)
            age_ms = 0;
        else if (each->caught_up_ns < 0)
            age_ms = INT64_MAX;
        out[i] = (pb_follower_state){
            .replica_id = each->replica_id,
            .in_isr = each->in_isr,
            .log_end_offset = each->log_end_offset,
            .log_start_offset = each->log_start_offset,
            .caught_up_ms = age_ms,
            .broker_epoch = each->broker_epoch,
        };
    }
    pthread_mutex_unlock(&partition->lock);
    return count;
}
