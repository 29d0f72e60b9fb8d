/*
 * Durable acks: what has been written is acknowledged and shown to readers once a sync has made it durable.
 *
 * One sync of a partition at a time. `syncing` is its token, taken when a write leaves something to sync and given back
 * when nothing is left. So everything that gathers during a sync goes with the next one, and nothing waits for a clock.
 * Written appends wait in `unsynced`; whoever ends the round ends them, in order. A sync that fails fails them all, and
 * the log takes no more: the same bytes are never acknowledged later. A truncation takes the token too, because it
 * needs the log to itself.
 *
 * Without durable acks the promised end is the written one, and nothing waits here.
 */
#include "replica/durable.h"

#include <errno.h>

#include "replica/followers.h"
#include "replica/hot.h"
#include "wire/generated/kafka_errors.h"

#define ROUND_WEIGHT 4 /* of the past in the average */

static bool ends_after(const pb_append *append, int64_t end)
{
    return append->base_offset + append->record_count > end;
}

/* Up to where records are acknowledged and read. */
static int64_t promised_end(const pb_partition *partition)
{
    return partition->rules.durable_acks ? pb_log_durable_end(partition->log) : pb_log_written_end(partition->log);
}

void pb_durable_wake(pb_partition *partition, int64_t visible_bytes)
{
    pb_link *next;
    for (pb_link *link = partition->waiters.next; link != &partition->waiters; link = next) {
        next = link->next;
        pb_partition_waiter *waiter = PB_CONTAINER(link, pb_partition_waiter, link);
        waiter->wake(waiter, visible_bytes);
    }
}

bool pb_durable_must_wait(const pb_partition *partition, const pb_partition_append_op *op)
{
    if (op->unacknowledged)
        return ends_after(&op->append, pb_log_written_end(partition->log));
    bool follows = op->replicated && partition->followers != NULL;
    return ends_after(&op->append, follows ? partition->high_watermark : promised_end(partition));
}

void pb_durable_expose(pb_partition *partition, int64_t now_ns)
{
    pb_exposure *exposure = &partition->exposure;
    if (exposure->next_since_ns == 0)
        exposure->next_since_ns = now_ns;
    if (exposure->since_ns == 0)
        exposure->since_ns = now_ns;
}

void pb_durable_hold_back(pb_partition *partition, pb_link *finished)
{
    PB_ASSERT(partition->sync_due != NULL);
    bool failed = pb_log_failed(partition->log);
    pb_link *next;
    for (pb_link *link = finished->next; link != finished; link = next) {
        next = link->next;
        pb_append *append = PB_CONTAINER(link, pb_append, link);
        if (append->error != 0 || PB_CONTAINER(append, pb_partition_append_op, append)->unacknowledged)
            continue;
        if (failed) { /* by a sync that ended during the write: there will be no other */
            append->error = PB_KAFKA_KAFKA_STORAGE_ERROR;
            continue;
        }
        pb_list_remove(link);
        pb_list_push_back(&partition->unsynced, link);
    }
}

void pb_durable_end_duplicates(pb_partition *partition, pb_link *finished)
{
    int64_t written_end = pb_log_written_end(partition->log);
    bool failed = pb_log_failed(partition->log);
    bool broken = failed || pb_log_needs_repair(partition->log);
    pb_link *next;
    for (pb_link *link = partition->duplicates.next; link != &partition->duplicates; link = next) {
        next = link->next;
        pb_append *append = PB_CONTAINER(link, pb_append, link);
        bool waits = pb_durable_must_wait(partition, PB_CONTAINER(append, pb_partition_append_op, append));
        if (waits && !failed && !(broken && ends_after(append, written_end)))
            continue;
        append->error = waits ? PB_KAFKA_KAFKA_STORAGE_ERROR : 0;
        PB_CONTAINER(append, pb_partition_append_op, append)->waits = false;
        pb_list_remove(link);
        pb_list_push_back(finished, link);
    }
}

void pb_durable_advance(pb_partition *partition, int64_t visible_bytes, pb_link *finished)
{
    int64_t end = promised_end(partition);
    if (partition->followers != NULL)
        end = pb_followers_limit(partition, end);
    if (partition->following.active && end > partition->following.leader_high_watermark)
        end = partition->following.leader_high_watermark;
    /* It may be behind: what was shown before acks had to be durable is not taken back. */
    if (end <= partition->high_watermark)
        return;
    partition->high_watermark = end;
    pb_durable_wake(partition, visible_bytes);
    if (!pb_list_empty(&partition->follower_waiters))
        pb_followers_wake_for_watermark(partition);
    if (!pb_list_empty(&partition->unreplicated))
        pb_followers_end_appends(partition, finished);
    if (!pb_list_empty(&partition->duplicates))
        pb_durable_end_duplicates(partition, finished);
}

static bool needs_sync(const pb_partition *partition)
{
    return partition->rules.durable_acks && !pb_log_failed(partition->log) &&
           pb_log_durable_end(partition->log) < pb_log_written_end(partition->log);
}

bool pb_durable_begin(pb_partition *partition)
{
    if (partition->syncing || !needs_sync(partition))
        return false;
    partition->syncing = true;
    partition->readers++; /* the log stays open */
    return true;
}

void pb_durable_settle(pb_link *finished, pb_reactor *here)
{
    pb_link *link;
    while ((link = pb_list_pop_front(finished)) != NULL) {
        pb_append *append = PB_CONTAINER(link, pb_append, link);
        pb_partition_append_op *op = PB_CONTAINER(append, pb_partition_append_op, append);
        op->done(op, here);
    }
}

/* Those of `unsynced` that have ended: what is below the promised end, or all with an error. How many. */
static int end_unsynced(pb_partition *partition, pb_link *finished)
{
    int count = 0;
    bool failed = pb_log_failed(partition->log);
    int64_t end = promised_end(partition);
    while (!pb_list_empty(&partition->unsynced)) {
        pb_append *append = PB_CONTAINER(partition->unsynced.next, pb_append, link);
        if (failed)
            append->error = PB_KAFKA_KAFKA_STORAGE_ERROR;
        else if (ends_after(append, end))
            break;
        pb_list_remove(&append->link);
        pb_list_push_back(finished, &append->link);
        count++;
    }
    return count;
}

/* The end of a round, or of there being any. Appends that have ended go to `finished`, which is to be settled. Takes
 * the lock over and releases it. */
static pb_sync_outcome conclude(pb_partition *partition, int64_t durable_bytes, int result, pb_link *finished)
{
    bool failed = pb_log_failed(partition->log);
    bool broke = failed && !partition->broken;
    partition->broken = partition->broken || failed;
    if (!failed) {
        pb_durable_advance(partition, durable_bytes, finished);
    } else {
        pb_durable_wake(partition, INT64_MAX);
        pb_followers_wake(partition, INT64_MAX);
        pb_followers_fail_appends(partition, PB_KAFKA_KAFKA_STORAGE_ERROR, finished);
    }
    int ended_count = end_unsynced(partition, finished);
    pb_durable_end_duplicates(partition, finished);
    pb_hot_after_round(partition);
    bool again = needs_sync(partition);
    partition->syncing = again;
    partition->readers -= !again;
    pthread_cond_broadcast(&partition->quiet);
    pthread_mutex_unlock(&partition->lock);
    if (broke)
        partition->failed(partition, PB_SYNC_FAILED, result);
    return (pb_sync_outcome){.again = again, .ended_count = ended_count};
}

/* The same, settled. */
static pb_sync_outcome conclude_here(pb_partition *partition, int64_t durable_bytes, int result)
{
    pb_link finished;
    pb_list_init(&finished);
    pb_sync_outcome outcome = conclude(partition, durable_bytes, result, &finished);
    pb_durable_settle(&finished, NULL);
    return outcome;
}

void pb_durable_fail(pb_partition *partition, int result)
{
    pthread_mutex_lock(&partition->lock);
    if (!partition->syncing) {
        partition->syncing = true;
        partition->readers++;
        (void)conclude_here(partition, 0, result);
        return;
    }
    bool broke = !partition->broken;
    partition->broken = true;
    pb_durable_wake(partition, INT64_MAX);
    pb_followers_wake(partition, INT64_MAX);
    pthread_mutex_unlock(&partition->lock);
    if (broke)
        partition->failed(partition, PB_SYNC_FAILED, result);
}

void pb_durable_tell(pb_partition *partition, int result)
{
    PB_ASSERT(result != 0);
    pthread_mutex_lock(&partition->lock);
    bool failed = pb_log_failed(partition->log);
    pthread_mutex_unlock(&partition->lock);
    if (failed)
        pb_durable_fail(partition, pb_error_passes(result) ? -EAGAIN : result);
}

void pb_durable_stop_syncs(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    while (partition->syncing)
        pthread_cond_wait(&partition->quiet, &partition->lock);
    partition->syncing = true;
    partition->readers++;
    pthread_mutex_unlock(&partition->lock);
}

void pb_durable_allow_syncs(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->syncing);
    if (conclude_here(partition, INT64_MAX, -EIO).again)
        partition->sync_due(partition);
}

void pb_durable_note_begin(pb_partition *partition)
{
    partition->exposure.sync_bytes = partition->appended_bytes;
    partition->exposure.next_since_ns = 0;
    int64_t appends = partition->unsynced_appends * PB_ROUND_APPEND;
    partition->round_appends += (appends - partition->round_appends) / ROUND_WEIGHT;
    partition->unsynced_appends = 0;
}

bool pb_partition_sync_begin(pb_partition *partition, pb_log_sync_round *round)
{
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->syncing);
    if (!pb_log_sync_begin(partition->log, round)) {
        (void)conclude_here(partition, 0, -EIO);
        return false;
    }
    pb_durable_note_begin(partition);
    pthread_mutex_unlock(&partition->lock);
    return true;
}

int pb_partition_sync_run(pb_partition *partition, pb_log_sync_round *round, pb_failure *failure)
{
    pb_log_guard guard = pb_partition_guard(partition);
    return pb_log_sync_run(partition->log, &guard, round, failure);
}

/* How many bytes have become durable by a round that has ended. */
static int64_t count_durable(pb_partition *partition, const pb_log_sync_round *round, int result)
{
    pb_exposure *exposure = &partition->exposure;
    if (result != 0 || round->more || pb_log_durable_end(partition->log) < round->target) {
        exposure->next_since_ns = exposure->since_ns;
        return INT64_MAX; /* nobody knows */
    }
    int64_t bytes = exposure->sync_bytes - exposure->durable_bytes;
    exposure->durable_bytes = exposure->sync_bytes;
    exposure->since_ns = exposure->next_since_ns;
    return bytes;
}

pb_sync_outcome pb_durable_end_round(pb_partition *partition, pb_log_sync_round *round, int result, pb_link *finished)
{
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->syncing);
    partition->rounding = false;
    pb_log_sync_end(partition->log, round, result);
    pb_sync_outcome outcome = conclude(partition, count_durable(partition, round, result), result, finished);
    pb_log_sync_release(round);
    return outcome;
}

pb_sync_outcome pb_partition_sync_end(pb_partition *partition, pb_log_sync_round *round, int result)
{
    pb_link finished;
    pb_list_init(&finished);
    pb_sync_outcome outcome = pb_durable_end_round(partition, round, result, &finished);
    pb_durable_settle(&finished, NULL);
    return outcome;
}

/* Wait for the token, unless somebody else has made everything below `target` durable meanwhile: then false. */
static bool take_token(pb_partition *partition, int64_t target)
{
    pthread_mutex_lock(&partition->lock);
    bool waited = false;
    while (partition->syncing && !(waited && pb_log_durable_end(partition->log) >= target)) {
        pthread_cond_wait(&partition->quiet, &partition->lock);
        waited = true;
    }
    bool taken = !partition->syncing;
    if (taken) {
        partition->syncing = true;
        partition->readers++;
    }
    pthread_mutex_unlock(&partition->lock);
    return taken;
}

int pb_partition_sync_written(pb_partition *partition, pb_failure *failure)
{
    pthread_mutex_lock(&partition->lock);
    int64_t target = pb_log_written_end(partition->log);
    pthread_mutex_unlock(&partition->lock);
    pb_log_sync_round round;
    int result;
    do {
        if (!take_token(partition, target))
            return 0;
        if (!pb_partition_sync_begin(partition, &round))
            return pb_fail(failure, -EIO, "an earlier sync of %s-%d failed, and its log has to be opened again",
                           partition->topic, partition->index);
        result = pb_partition_sync_run(partition, &round, failure);
        if (pb_partition_sync_end(partition, &round, result).again)
            partition->sync_due(partition);
    } while (result == 0 && round.more);
    return result;
}

int pb_partition_cut(pb_partition *partition, int64_t offset, pb_failure *failure)
{
    pb_durable_stop_syncs(partition);
    pb_log_guard guard = pb_partition_guard(partition);
    int result = pb_log_truncate(partition->log, &guard, offset, failure);
    pthread_mutex_lock(&partition->lock);
    int64_t end = pb_log_written_end(partition->log);
    if (partition->high_watermark > end)
        partition->high_watermark = end;
    pthread_mutex_unlock(&partition->lock);
    if (result != 0) /* before a sync is refused for it, as if the disk had failed */
        pb_durable_tell(partition, result);
    pb_durable_allow_syncs(partition);
    return result;
}

int pb_partition_begin_segment(pb_partition *partition, pb_failure *failure)
{
    /* A reactor may be writing from the ring that a hot log gives back when it rolls. */
    pb_durable_stop_syncs(partition);
    pb_log_guard guard = pb_partition_guard(partition);
    int result = pb_log_roll(partition->log, &guard, failure);
    pb_durable_allow_syncs(partition);
    pb_partition_catch_up(partition);
    return result;
}

/* A log that waits for its repair, or has failed, begins no segment. */
static bool takes_segments(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    bool takes = !pb_log_needs_repair(partition->log) && !pb_log_failed(partition->log);
    pthread_mutex_unlock(&partition->lock);
    return takes;
}

int pb_partition_look_at_files(pb_partition *partition, pb_failure *failure)
{
    pb_log_guard guard = pb_partition_guard(partition);
    *failure = (pb_failure){0};
    int result = pb_log_check_files(partition->log, &guard, failure);
    if (result != -ENODATA || !takes_segments(partition))
        return result;
    pb_failure found = *failure;
    result = pb_partition_begin_segment(partition, failure);
    /* A start after a kill reads from the recovery point on, and would end the log at the hole. */
    if (result == 0)
        result = pb_partition_sync_written(partition, failure);
    if (result != 0)
        return result;
    *failure = (pb_failure){0};
    result = pb_log_check_files(partition->log, &guard, failure);
    if (result == 0 && failure->text[0] == '\0') {
        /* The bytes of a ring have made the file long enough again, with zeros in between. */
        *failure = found;
        failure->code = 0;
    }
    return result;
}

void pb_partition_configure_log(pb_partition *partition, const pb_log_config *config, const pb_partition_rules *rules)
{
    pb_link finished;
    pb_list_init(&finished);
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(!rules->durable_acks || partition->sync_due != NULL);
    pb_log_configure(partition->log, config);
    partition->rules = *rules;
    (void)end_unsynced(partition, &finished);
    pb_durable_end_duplicates(partition, &finished);
    pb_durable_advance(partition, INT64_MAX, &finished);
    bool sync = pb_durable_begin(partition);
    pthread_mutex_unlock(&partition->lock);
    if (sync)
        partition->sync_due(partition);
    pb_durable_settle(&finished, NULL);
}

void pb_partition_exposure(const pb_partition *partition, int64_t *bytes, int64_t *age_ns)
{
    const pb_exposure *exposure = &partition->exposure;
    bool exposed = partition->log != NULL && pb_log_durable_end(partition->log) < pb_log_written_end(partition->log);
    *bytes = exposed ? partition->appended_bytes - exposure->durable_bytes : 0;
    *age_ns = *bytes > 0 ? partition->io->ops->monotonic_ns(partition->io) - exposure->since_ns : 0;
}
