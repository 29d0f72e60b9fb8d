/* The follower's side of a partition. See follow.h. */
#include "replica/follow.h"

#include <errno.h>
#include <stdatomic.h>

#include "replica/durable.h"
#include "wire/generated/kafka_errors.h"

/* The last ticket that was given out. Unique in the process: to a log that is opened in the place of another one, an
 * answer to that one must be nothing. */
static _Atomic uint64_t last_ticket;

uint64_t pb_partition_start_following(pb_partition *partition, int32_t leader_epoch)
{
    pb_partition_stop_leading(partition, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->log != NULL && !partition->serving && !partition->following.active);
    PB_ASSERT(!pb_log_has_queued(partition->log));
    pb_log_end_epoch(partition->log);
    partition->leader_epoch = leader_epoch;
    partition->following.active = true;
    partition->following.leader_high_watermark = -1;
    uint64_t ticket = atomic_fetch_add(&last_ticket, 1) + 1;
    partition->following.ticket = ticket;
    pthread_mutex_unlock(&partition->lock);
    return ticket;
}

void pb_partition_stop_following(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    bool active = partition->following.active;
    pthread_mutex_unlock(&partition->lock);
    if (active)
        pb_partition_stop_leading(partition, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
}

/* The lock is held. */
static bool is_current(const pb_partition *partition, uint64_t ticket)
{
    return partition->following.active && partition->following.ticket == ticket;
}

/* The lock is held. */
static void fill_ends(const pb_partition *partition, pb_follow_ends *ends)
{
    const pb_log *log = partition->log;
    int64_t end = pb_log_appended_end(log);
    int64_t kept = partition->rules.durable_acks ? pb_log_durable_end(log) : pb_log_written_end(log);
    int64_t leader_watermark = partition->following.leader_high_watermark;
    *ends = (pb_follow_ends){
        .log_end_offset = end,
        .log_start_offset = pb_log_start_offset(log),
        .high_watermark = partition->high_watermark,
        .last_epoch = pb_log_latest_epoch(log),
        .is_throttled = partition->rules.follower_throttled,
        .lags = leader_watermark < 0 || leader_watermark > end,
        .is_settled = kept >= end,
    };
}

bool pb_partition_follow_ends(pb_partition *partition, uint64_t ticket, pb_follow_ends *ends)
{
    pthread_mutex_lock(&partition->lock);
    bool current = is_current(partition, ticket);
    if (current)
        fill_ends(partition, ends);
    pthread_mutex_unlock(&partition->lock);
    return current;
}

/* Queue all that can be. The lock is held. */
static int queue_appends(pb_partition *partition, pb_link *appends, bool *queued)
{
    while (!pb_list_empty(appends)) {
        pb_append *append = PB_CONTAINER(appends->next, pb_append, link);
        pb_list_remove(&append->link);
        int result = pb_log_append(partition->log, append);
        if (result != 0) {
            pb_list_push_front(appends, &append->link);
            return result;
        }
        *queued = true;
    }
    return 0;
}

/* Believe what the leader says of itself. The lock is held. */
static void learn(pb_partition *partition, const pb_fetched *fetched, pb_link *finished)
{
    if (fetched->high_watermark > partition->following.leader_high_watermark)
        partition->following.leader_high_watermark = fetched->high_watermark;
    pb_durable_advance(partition, INT64_MAX, finished);
    int64_t start = fetched->log_start_offset;
    if (start > partition->high_watermark)
        start = partition->high_watermark;
    if (start > pb_log_start_offset(partition->log))
        (void)pb_log_set_start_offset(partition->log, start); /* below the written end, so it can be */
}

int pb_partition_take_fetched(pb_partition *partition, uint64_t ticket, pb_fetched *fetched)
{
    bool queued = false;
    pb_link finished;
    pb_list_init(&finished);
    fetched->must_pump = false;
    pthread_mutex_lock(&partition->lock);
    int result = is_current(partition, ticket) ? 0 : -ESTALE;
    if (result == 0 && (partition->broken || pb_log_failed(partition->log)))
        result = PB_KAFKA_KAFKA_STORAGE_ERROR;
    if (result == 0) {
        result = queue_appends(partition, &fetched->appends, &queued);
        learn(partition, fetched, &finished);
        fill_ends(partition, &fetched->ends);
        fetched->must_pump = queued && !partition->writing && !partition->queued;
        partition->queued = partition->queued || fetched->must_pump;
    }
    pthread_mutex_unlock(&partition->lock);
    pb_durable_settle(&finished, NULL);
    return result;
}

int64_t pb_follow_divergence(const pb_log *log, int32_t epoch, int64_t leader_end)
{
    int64_t end = pb_log_appended_end(log), own_end;
    int32_t own_epoch;
    pb_log_end_offset_for_epoch(log, epoch, &own_epoch, &own_end);
    /* Where the leader's epoch is none of ours, our next smaller one is what it may share with us: the next fetch
     * tells. Where we have no such epoch at all, its end is all there is to go by. */
    int64_t cut = own_end < 0 ? leader_end : own_epoch != epoch ? own_end : own_end < leader_end ? own_end : leader_end;
    return cut < end ? cut : end;
}

/* Does the first segment begin below the log? */
static bool begins_below(const pb_follow_cut *cut)
{
    PB_ASSERT(cut->kind != PB_CUT_RESTART || cut->base_offset <= cut->offset);
    return cut->kind == PB_CUT_RESTART && cut->base_offset < cut->offset;
}

static bool is_empty_at(const pb_log *log, int64_t offset)
{
    return pb_log_start_offset(log) == offset && pb_log_appended_end(log) == offset;
}

/* Take the token of syncs, without waiting for the one under way: the offset to cut at, or -errno. */
static int64_t begin_cut(pb_partition *partition, uint64_t ticket, const pb_follow_cut *cut, int64_t *told_end)
{
    pthread_mutex_lock(&partition->lock);
    int64_t result = -ESTALE;
    if (is_current(partition, ticket))
        result = partition->syncing || partition->writing || partition->queued ? -EBUSY : 0;
    if (result == 0) {
        result =
            cut->kind == PB_CUT_DIVERGED ? pb_follow_divergence(partition->log, cut->epoch, cut->offset) : cut->offset;
        *told_end = pb_log_checkpointed_end(partition->log);
        PB_ASSERT(!begins_below(cut) || is_empty_at(partition->log, cut->offset));
        partition->syncing = true;
        partition->readers++;
    }
    pthread_mutex_unlock(&partition->lock);
    return result;
}

/* The lock is held. */
static void lower_watermark(pb_partition *partition, pb_follow_cut *cut)
{
    cut->end_offset = pb_log_written_end(partition->log);
    cut->below_watermark = cut->end_offset < partition->high_watermark;
    if (cut->below_watermark || cut->kind == PB_CUT_RESTART)
        partition->high_watermark = cut->end_offset;
}

int pb_partition_cut_follower(pb_partition *partition, uint64_t ticket, pb_follow_cut *cut, pb_failure *failure)
{
    int64_t told_end = 0;
    int64_t offset = begin_cut(partition, ticket, cut, &told_end);
    if (offset < 0)
        return (int)offset;
    pb_log_guard guard = pb_partition_guard(partition);
    int result = cut->kind == PB_CUT_RESTART ? pb_log_restart(partition->log, &guard, cut->base_offset, offset, failure)
                                             : pb_log_truncate(partition->log, &guard, offset, failure);
    pthread_mutex_lock(&partition->lock);
    if (result == 0) {
        lower_watermark(partition, cut);
        cut->below_checkpoints =
            cut->below_watermark || (begins_below(cut) ? cut->base_offset : cut->end_offset) < told_end;
    }
    pthread_mutex_unlock(&partition->lock);
    if (result != 0) /* before a sync is refused for it, as if the disk had failed */
        pb_durable_tell(partition, result);
    pb_durable_allow_syncs(partition);
    return result;
}
