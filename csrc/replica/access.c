/*
 * Those who use a partition: its references and its lock, what readers may see, and who waits for more. Any thread; see
 * partition.h for locks. The files of a partition stand on this one, which calls none of them.
 */
#include "replica/access.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/generated/kafka_errors.h"

static void lock_partition(void *partition)
{
    pthread_mutex_lock(&((pb_partition *)partition)->lock);
}

static void unlock_partition(void *partition)
{
    pthread_mutex_unlock(&((pb_partition *)partition)->lock);
}

pb_log_guard pb_partition_guard(pb_partition *partition)
{
    return (pb_log_guard){.lock = lock_partition, .unlock = unlock_partition, .context = partition};
}

void pb_partition_retain(pb_partition *partition)
{
    int before = atomic_fetch_add_explicit(&partition->references, 1, memory_order_relaxed);
    PB_ASSERT(before > 0);
}

void pb_partition_release(pb_partition *partition)
{
    int before = atomic_fetch_sub_explicit(&partition->references, 1, memory_order_acq_rel);
    PB_ASSERT(before > 0);
    if (before > 1)
        return;
    PB_ASSERT(partition->log == NULL && pb_list_empty(&partition->waiters) && !partition->writing);
    PB_ASSERT(pb_list_empty(&partition->follower_waiters) && pb_list_empty(&partition->unreplicated));
    PB_ASSERT(partition->followers == NULL);
    PB_ASSERT(!partition->syncing && pb_list_empty(&partition->unsynced));
    pthread_cond_destroy(&partition->quiet);
    pthread_mutex_destroy(&partition->lock);
    free(partition);
}

void pb_partition_catch_up(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    bool due = !partition->writing && !partition->queued && !partition->held && pb_log_has_queued(partition->log);
    partition->queued = partition->queued || due;
    pthread_mutex_unlock(&partition->lock);
    if (due)
        partition->pump_due(partition);
}

int pb_partition_refusal(const pb_partition *partition, bool from_follower)
{
    bool serves = partition->serving || (from_follower && partition->following.active);
    if (serves) /* a log that has failed is not served again: from now on clients hear the same */
        return pb_log_failed(partition->log) ? PB_KAFKA_KAFKA_STORAGE_ERROR : 0;
    return partition->refusal != 0 ? partition->refusal : PB_KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
}

/* ---- readers ---- */

/* The lock is held. */
static void fill_ends(pb_partition *partition, pb_partition_ends *ends)
{
    ends->log_start_offset = pb_log_start_offset(partition->log);
    ends->high_watermark = partition->high_watermark;
    ends->last_stable_offset = pb_log_last_stable_offset(partition->log, partition->high_watermark);
    ends->log_end_offset = pb_log_appended_end(partition->log);
    ends->durable_offset = pb_log_durable_end(partition->log);
    ends->recovery_point = pb_log_recovery_point(partition->log);
    ends->size_bytes = pb_log_size_bytes(partition->log);
    ends->leader_epoch = partition->leader_epoch;
}

void pb_partition_read_ends(pb_partition *partition, pb_partition_ends *ends)
{
    pthread_mutex_lock(&partition->lock);
    fill_ends(partition, ends);
    ends->cut_count = pb_log_cut_count(partition->log);
    pthread_mutex_unlock(&partition->lock);
}

int64_t pb_partition_written_end(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    int64_t end = pb_log_written_end(partition->log);
    pthread_mutex_unlock(&partition->lock);
    return end;
}

int pb_partition_look(pb_partition *partition, int32_t expected_epoch, bool from_follower, pb_partition_ends *ends)
{
    int result = pb_partition_refusal(partition, from_follower);
    if (result != 0)
        return result;
    fill_ends(partition, ends);
    if (expected_epoch >= 0 && expected_epoch < partition->leader_epoch)
        return PB_KAFKA_FENCED_LEADER_EPOCH;
    return expected_epoch > partition->leader_epoch ? PB_KAFKA_UNKNOWN_LEADER_EPOCH : 0;
}

int pb_partition_enter(pb_partition *partition, int32_t expected_epoch, bool from_follower, pb_partition_ends *ends)
{
    pthread_mutex_lock(&partition->lock);
    int result = pb_partition_look(partition, expected_epoch, from_follower, ends);
    partition->readers += result == 0;
    pthread_mutex_unlock(&partition->lock);
    return result;
}

void pb_partition_leave(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->readers > 0);
    if (--partition->readers == 0 && !partition->serving)
        pthread_cond_broadcast(&partition->quiet);
    pthread_mutex_unlock(&partition->lock);
}

int pb_partition_find(pb_partition *partition, const pb_partition_ends *ends, int64_t offset, int64_t max_bytes,
                      int64_t upper_offset, bool at_least_one, pb_log_slice *slice)
{
    memset(slice, 0, sizeof *slice);
    if (offset < ends->log_start_offset || offset > ends->log_end_offset)
        return PB_KAFKA_OFFSET_OUT_OF_RANGE;
    if (offset >= upper_offset || (max_bytes <= 0 && !at_least_one))
        return 0;
    pb_log_guard guard = pb_partition_guard(partition);
    int result = pb_log_read(partition->log, &guard, offset, max_bytes, upper_offset, at_least_one, slice);
    pb_partition_report_read(partition, result);
    return result;
}

void pb_partition_report_read(pb_partition *partition, int error)
{
    if (!pb_error_passes(error) && !atomic_exchange(&partition->read_failed, true))
        partition->failed(partition, PB_READ_FAILED, error);
}

/* A slice's file ends too soon (-ENODATA), or some of it cannot be read (-EIO). For its meaning see
 * pb_partition_report_slice. */
static int judge_slice(pb_partition *partition, const pb_log_slice *slice, int error)
{
    pb_partition_ends ends;
    pthread_mutex_lock(&partition->lock);
    bool has = partition->log != NULL && pb_log_has_slice(partition->log, slice);
    pthread_mutex_unlock(&partition->lock);
    if (!has || pb_partition_enter(partition, -1, true, &ends) != 0)
        return has ? error : -ENOENT;
    pb_log_guard guard = pb_partition_guard(partition);
    int noted = error == -EIO ? pb_log_note_unreadable(partition->log, &guard, slice->segment)
                              : pb_log_note_short_file(partition->log, &guard, slice->segment);
    pb_partition_leave(partition);
    return noted >= 0 ? -ENOENT : noted;
}

int pb_partition_report_slice(pb_partition *partition, const pb_log_slice *slice, int error)
{
    if (error == -ENODATA || error == -EIO)
        error = judge_slice(partition, slice, error);
    if (error != -ENOENT)
        pb_partition_report_read(partition, error);
    return error;
}

void pb_partition_watch_reads(pb_partition *partition)
{
    atomic_store(&partition->read_failed, false);
}

/* ---- those who wait for more ---- */

bool pb_partition_wait(pb_partition *partition, pb_partition_waiter *waiter, int64_t seen)
{
    PB_ASSERT(waiter->partition == NULL);
    pthread_mutex_lock(&partition->lock);
    bool waits = partition->serving || (waiter->from_follower && partition->following.active);
    if (waiter->is_follower)
        waits = waits && pb_log_written_end(partition->log) <= seen &&
                partition->high_watermark <= waiter->known_high_watermark;
    else
        waits = waits && partition->high_watermark <= seen;
    if (waits) {
        waiter->partition = partition;
        pb_list_push_back(waiter->is_follower ? &partition->follower_waiters : &partition->waiters, &waiter->link);
    }
    pthread_mutex_unlock(&partition->lock);
    if (waits)
        pb_partition_retain(partition);
    return waits;
}

void pb_partition_forget(pb_partition_waiter *waiter)
{
    pb_partition *partition = waiter->partition;
    if (partition == NULL)
        return;
    pthread_mutex_lock(&partition->lock);
    pb_list_remove(&waiter->link);
    pthread_mutex_unlock(&partition->lock);
    waiter->partition = NULL;
    pb_partition_release(partition);
}
