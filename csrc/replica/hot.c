/*
 * Hot logs, the partition's side: which become hot, who flushes them, and the writer that waits for room.
 *
 * `flushing` is the token of the background thread that looks after the log: taken when a write leaves something to do,
 * given back when nothing is left. A writer that finds no room in the ring keeps the write token of its log and waits
 * (`waits`); the holder of `flushing` makes room and sends it on. With durable acks syncs flush, see durable.c: then a
 * writer that waits for room goes on at the end of the round under way. While that is a reactor's (`rounding`), nobody
 * flushes but him.
 *
 * A writer that finds little room pauses (`pauses`) until the next flush has ended or its timer fires, whichever comes
 * first. So a disk that takes nothing for some time still leaves room to wait in.
 */
#include "replica/hot.h"

#include <errno.h>

#include "replica/durable.h"

#define SECOND_NS INT64_C(1000000000)
#define PAUSE_MIN_NS INT64_C(50000)

enum {
    FLUSH_BYTES = 2 << 20, /* a hot log is flushed when these have gathered: one write */
    HEAT_WRITES = 16,      /* where every write waits for the disk, so many a second make a log hot as well */
};

/* The next step of the holder of `flushing`. */
enum work { WORK_NONE, WORK_UNBLOCK, WORK_FLUSH, WORK_SWITCH, WORK_ZEROS };

/* ---- the writer's side; the lock is held, unless said otherwise ---- */

static bool take_token(pb_partition *partition)
{
    if (partition->flush_due == NULL || partition->flushing || partition->log == NULL)
        return false;
    partition->flushing = true;
    partition->readers++;
    return true;
}

/* Has a cold log been busy enough? Counts by periods of a second at most. */
static bool is_warm(pb_partition *partition, int64_t bytes, int64_t now_ns)
{
    pb_heat *heat = &partition->heat;
    if (now_ns - heat->since_ns > SECOND_NS)
        *heat = (pb_heat){.since_ns = now_ns, .not_before_ns = heat->not_before_ns};
    heat->bytes += bytes;
    heat->writes++;
    return heat->bytes >= partition->hot_bytes_per_second ||
           (partition->rules.durable_acks && heat->writes >= HEAT_WRITES);
}

bool pb_hot_after_write(pb_partition *partition, int64_t bytes, int64_t now_ns)
{
    partition->last_write_ns = now_ns;
    if (partition->flush_due == NULL || partition->flushing || !pb_partition_is_busy(partition) || partition->broken)
        return false;
    if (pb_log_is_hot(partition->log) && partition->lost_ring) {
        partition->switching = take_token(partition);
        return partition->switching;
    }
    if (pb_log_is_hot(partition->log) && partition->rules.durable_acks) {
        partition->filling = pb_log_wants_zeros(partition->log) && take_token(partition);
        return partition->filling; /* a round that is due goes on beside */
    }
    if (pb_log_is_hot(partition->log))
        return pb_log_gathered_bytes(partition->log) >= FLUSH_BYTES && take_token(partition);
    if (!is_warm(partition, bytes, now_ns) || now_ns < partition->heat.not_before_ns || partition->held)
        return false;
    partition->switching = take_token(partition);
    return partition->switching;
}

void pb_hot_hurry(pb_partition *partition)
{
    if (partition->log != NULL && partition->flushing && partition->filling)
        pb_log_hurry_zeros(partition->log);
}

void pb_hot_wait(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->writing && !partition->waits);
    partition->waits = true;
    pb_hot_hurry(partition);
    pb_reactor_awaits_disk(partition->writer, false);
    bool round =
        partition->rounding || (partition->rules.durable_acks && partition->syncing && !partition->write.rolls);
    bool due = !round && take_token(partition);
    pthread_mutex_unlock(&partition->lock);
    if (due)
        partition->flush_due(partition);
}

bool pb_hot_pause(pb_partition *partition)
{
    pb_reactor *reactor = partition->writer;
    int64_t pause_ns = partition->write_paused ? 0 : pb_log_pause_ns(partition->log);
    if (pause_ns < PAUSE_MIN_NS)
        return false;
    int64_t until_ns = partition->io->ops->monotonic_ns(partition->io) + pause_ns;
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->writing && !partition->pauses);
    partition->pauses =
        !partition->rules.durable_acks && pb_timer_set(&reactor->timers, &partition->pause, until_ns) == 0;
    bool pauses = partition->pauses;
    bool due = pauses && take_token(partition);
    pthread_mutex_unlock(&partition->lock);
    partition->write_paused = true;
    if (pauses)
        pb_reactor_awaits_disk(reactor, false);
    if (due)
        partition->flush_due(partition);
    return pauses;
}

bool pb_hot_end_pause(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    bool paused = partition->pauses;
    partition->pauses = false;
    pthread_mutex_unlock(&partition->lock);
    return paused;
}

void pb_hot_after_round(pb_partition *partition)
{
    if (!partition->waits || partition->flushing)
        return;
    partition->waits = false;
    pb_reactor_post(partition->writer, &partition->go_on);
}

/* ---- the background thread ---- */

static bool wants_zeros(const pb_partition *partition)
{
    return partition->rules.durable_acks && !pb_log_failed(partition->log) && pb_log_wants_zeros(partition->log);
}

static enum work next_work(const pb_partition *partition)
{
    if (partition->rounding) /* the end of that round sends on who waits */
        return !partition->switching && wants_zeros(partition) ? WORK_ZEROS : WORK_NONE;
    if (partition->waits)
        return WORK_UNBLOCK;
    if (pb_log_failed(partition->log))
        return WORK_NONE;
    if (partition->switching)
        return partition->writing ? WORK_NONE : WORK_SWITCH;
    if (!pb_log_is_hot(partition->log))
        return WORK_NONE;
    if (partition->rules.durable_acks)
        return wants_zeros(partition) ? WORK_ZEROS : WORK_NONE;
    int64_t gathered_bytes = pb_log_gathered_bytes(partition->log);
    bool asked = partition->flush_asked || partition->pauses;
    return gathered_bytes >= FLUSH_BYTES || (asked && gathered_bytes > 0) ? WORK_FLUSH : WORK_NONE;
}

/* When to try again to make a log hot. */
static int64_t retry_after_ns(int error)
{
    if (error == -EINVAL || error == -EOPNOTSUPP)
        return INT64_MAX / 2; /* the file system does not do it */
    return error == -EBUSY || error == -EAGAIN ? SECOND_NS : 10 * SECOND_NS;
}

static void switch_log(pb_partition *partition, const pb_log_guard *guard, pb_flush_outcome *outcome)
{
    int64_t now_ns = partition->io->ops->monotonic_ns(partition->io);
    pthread_mutex_lock(&partition->lock);
    bool cools = pb_log_is_hot(partition->log);
    pthread_mutex_unlock(&partition->lock);
    int result = cools ? pb_log_cool(partition->log, guard) : pb_log_heat(partition->log, guard);
    pthread_mutex_lock(&partition->lock);
    partition->switching = false;
    partition->lost_ring = partition->lost_ring && result == -EBUSY;
    partition->heat = (pb_heat){.since_ns = now_ns, .not_before_ns = now_ns + (cools ? SECOND_NS : 0)};
    if (!cools && result != 0)
        partition->heat.not_before_ns = now_ns + retry_after_ns(result);
    pthread_mutex_unlock(&partition->lock);
    outcome->became_hot = outcome->became_hot || (!cools && result == 0);
    outcome->wants_ring = outcome->wants_ring || (!cools && result == -EAGAIN);
    if (!cools && result != 0 && result != -EAGAIN && result != -EBUSY)
        outcome->refused = result;
    if (cools && result != 0 && result != -EBUSY)
        pb_durable_fail(partition, result);
    pb_partition_catch_up(partition);
}

/* Without its ring's file the log becomes cold, as soon as nothing is being written. With durable acks nothing that was
 * promised depends on it. */
static void check_ring(pb_partition *partition, const pb_log_guard *guard)
{
    bool has = pb_log_has_ring_file(partition->log, guard);
    pthread_mutex_lock(&partition->lock);
    if (!has && !partition->rules.durable_acks) {
        partition->lost_ring = true;
        partition->switching = true;
    }
    pthread_mutex_unlock(&partition->lock);
}

/* Also after a failure, which the writer then meets. */
static void send_writer_on(pb_partition *partition, const pb_log_guard *guard)
{
    int result = pb_log_write_unblock(partition->log, guard, &partition->write);
    if (result != 0)
        pb_durable_fail(partition, result);
    else
        check_ring(partition, guard);
    int64_t now_ns = partition->io->ops->monotonic_ns(partition->io);
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->waits);
    partition->waits = false;
    /* A log that went cold for this is not made hot at once again. */
    partition->heat.not_before_ns = now_ns + 10 * SECOND_NS;
    pthread_mutex_unlock(&partition->lock);
    pb_reactor_post(partition->writer, &partition->go_on);
}

static void flush(pb_partition *partition, enum work work, const pb_log_guard *guard, const atomic_int *others)
{
    int result = work == WORK_ZEROS ? pb_log_write_zeros(partition->log, guard, others)
                                    : pb_log_flush(partition->log, guard, NULL);
    if (result != 0)
        pb_durable_fail(partition, result);
    else if (work == WORK_FLUSH)
        check_ring(partition, guard);
    if (work == WORK_FLUSH && pb_hot_end_pause(partition))
        pb_reactor_post(partition->writer, &partition->go_on);
}

bool pb_partition_flush_is_urgent(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    bool urgent = partition->waits || partition->switching || !partition->rules.durable_acks;
    pthread_mutex_unlock(&partition->lock);
    return urgent;
}

pb_flush_outcome pb_partition_flush(pb_partition *partition, const atomic_int *others)
{
    pb_log_guard guard = pb_partition_guard(partition);
    pb_flush_outcome outcome = {.again = true};
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->flushing);
    enum work work = next_work(partition);
    partition->flush_asked = false;
    partition->filling = work == WORK_ZEROS;
    bool kept_writers = work == WORK_NONE && partition->switching;
    if (work == WORK_NONE)
        partition->flushing = partition->switching = false;
    pthread_mutex_unlock(&partition->lock);
    if (work == WORK_NONE) {
        if (kept_writers)
            pb_partition_catch_up(partition);
        pb_partition_leave(partition);
        outcome.again = false;
    } else if (work == WORK_UNBLOCK) {
        send_writer_on(partition, &guard);
    } else if (work == WORK_SWITCH) {
        switch_log(partition, &guard, &outcome);
    } else {
        flush(partition, work, &guard, others);
    }
    return outcome;
}

bool pb_partition_ask_flush(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    bool due = partition->log != NULL && pb_log_is_hot(partition->log) && !partition->rules.durable_acks &&
               pb_log_gathered_bytes(partition->log) > 0 && take_token(partition);
    partition->flush_asked = due;
    pthread_mutex_unlock(&partition->lock);
    return due;
}

bool pb_partition_is_hot(pb_partition *partition, int64_t *last_write_ns)
{
    pthread_mutex_lock(&partition->lock);
    bool hot = partition->log != NULL && (pb_log_is_hot(partition->log) || partition->flushing);
    *last_write_ns = partition->last_write_ns;
    pthread_mutex_unlock(&partition->lock);
    return hot;
}

bool pb_partition_ask_cool(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    bool due = partition->log != NULL && pb_log_is_hot(partition->log) && !partition->writing && !partition->held &&
               take_token(partition);
    partition->switching = due;
    pthread_mutex_unlock(&partition->lock);
    return due;
}
