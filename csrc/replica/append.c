/*
 * Appends: from a validated batch to the end of the write that takes it. On reactors, but for the pacing of writeback,
 * which a background thread does.
 *
 * `writing` is the write token: who pumps takes it with all that has gathered, and gives it back when that is written
 * or has failed. A write that does not end at once keeps the token, a reference and its reactor, and goes on there in
 * callbacks. Follow-up work (sync, flush, pacing) is handed over after the lock is released.
 */
#include "replica/append.h"

#include <errno.h>

#include "replica/access.h"
#include "replica/durable.h"
#include "replica/followers.h"
#include "replica/hot.h"
#include "wire/generated/kafka_errors.h"

#define PACE_INTERVAL_NS 50000000 /* not more often than this */

int pb_partition_admit(pb_partition *partition, pb_partition_rules *rules, int32_t *leader_epoch)
{
    pthread_mutex_lock(&partition->lock);
    int result = pb_partition_refusal(partition, false);
    if (result == 0 && partition->broken)
        result = PB_KAFKA_KAFKA_STORAGE_ERROR;
    *rules = partition->rules;
    rules->below_reserve = partition->below_reserve;
    *leader_epoch = partition->leader_epoch;
    pthread_mutex_unlock(&partition->lock);
    return result;
}

int pb_partition_begin_verification(pb_partition *partition, const pb_verified_batch *batch, int64_t now_ms,
                                    int64_t *guard)
{
    *guard = 0;
    pthread_mutex_lock(&partition->lock);
    int result = pb_partition_refusal(partition, false);
    if (result == 0 && partition->rules.transactions == PB_TRANSACTIONS_VERIFIED && !partition->rules.internal)
        result = pb_log_begin_verification(partition->log, batch, now_ms, guard);
    pthread_mutex_unlock(&partition->lock);
    return result;
}

int pb_partition_append_batch(pb_partition *partition, pb_partition_append_op *op, bool *must_pump)
{
    *must_pump = false;
    pthread_mutex_lock(&partition->lock);
    int result = pb_partition_refusal(partition, false);
    if (result == 0 && partition->broken)
        result = PB_KAFKA_KAFKA_STORAGE_ERROR;
    op->waits = false;
    op->overdue = false;
    op->replicated = op->replicated && partition->followers != NULL;
    if (result == 0 && op->replicated && !pb_followers_suffice(partition))
        result = PB_KAFKA_NOT_ENOUGH_REPLICAS;
    if (result == 0) {
        op->append.leader_epoch = partition->leader_epoch;
        result = pb_log_append(partition->log, &op->append);
    }
    if (result == PB_LOG_DUPLICATE && pb_durable_must_wait(partition, op)) {
        /* Its first copy may still fail, so it is no more acknowledged than that one, which is on its way. */
        pb_list_push_back(&partition->duplicates, &op->append.link);
        op->waits = op->replicated;
        result = 0;
    } else if (result == 0 && !partition->writing && !partition->queued) {
        partition->queued = true;
        *must_pump = true;
    }
    pthread_mutex_unlock(&partition->lock);
    return result;
}

/* ---- writing ---- */

/* Is it time for a background thread to look after the log? Then it counts as a reader from now on. The lock is held.
 */
static bool begin_pacing(pb_partition *partition, int64_t now_ns)
{
    if (partition->pacing_due == NULL || partition->pacing || !pb_partition_is_busy(partition) ||
        now_ns < partition->pace_after_ns || !pb_log_needs_pacing(partition->log))
        return false;
    partition->pacing = true;
    partition->pace_after_ns = now_ns + PACE_INTERVAL_NS;
    partition->readers++;
    return true;
}

void pb_partition_end_pacing(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->pacing);
    partition->pacing = false;
    pthread_mutex_unlock(&partition->lock);
    pb_partition_leave(partition);
}

void pb_partition_pace(pb_partition *partition)
{
    pb_log_guard guard = pb_partition_guard(partition);
    /* Advice to the kernel: a disk that fails says so at the next write or sync. */
    (void)pb_log_pace(partition->log, &guard);
    pb_partition_end_pacing(partition);
}

/* The effects of a write besides its appends. */
typedef struct write_outcome {
    bool broke;
    bool pace;   /* pacing is due */
    bool sync;   /* a sync is, */
    bool writes; /* and is a write that has begun */
    bool flush;
} write_outcome;

/* Count what has been written; its bytes. The lock is held. */
static int64_t count_written(pb_partition *partition, const pb_link *finished)
{
    int64_t appended_bytes = 0;
    for (const pb_link *link = finished->next; link != finished; link = link->next) {
        const pb_append *append = PB_CONTAINER(link, const pb_append, link);
        if (append->error == 0) {
            appended_bytes += append->length;
            partition->appended_records += append->record_count;
            partition->unsynced_appends += partition->rules.durable_acks;
        }
    }
    partition->appended_bytes += appended_bytes;
    return appended_bytes;
}

/* Is what has been written one append, as mostly, and no other log's round under way on its reactor? */
static bool is_alone(const pb_partition *partition)
{
    return partition->unsynced_appends <= 1 && partition->round_appends < 2 * PB_ROUND_APPEND &&
           partition->writer->rounds == 0;
}

/* Take back the write token after a write; what has ended goes to `finished`. */
static write_outcome finish_write(pb_partition *partition, int64_t result, pb_link *finished)
{
    write_outcome outcome;
    pthread_mutex_lock(&partition->lock);
    int64_t now_ns = partition->writer->now_ns;
    pb_log_write_end(partition->log, &partition->write, result, finished);
    partition->writing = false;
    outcome.broke = pb_log_needs_repair(partition->log) && !partition->broken;
    partition->broken = partition->broken || outcome.broke;
    int64_t appended_bytes = count_written(partition, finished);
    pb_durable_expose(partition, now_ns);
    if (partition->followers != NULL)
        pb_followers_note_write(partition, appended_bytes, finished);
    if (partition->rules.durable_acks) {
        pb_durable_hold_back(partition, finished);
        pb_reactor_awaits_disk(partition->writer, is_alone(partition));
    }
    pb_durable_end_duplicates(partition, finished);
    pb_durable_advance(partition, appended_bytes, finished);
    outcome.sync = pb_durable_begin(partition);
    outcome.writes = outcome.sync && pb_durable_begin_write(partition, partition->writer);
    outcome.pace = begin_pacing(partition, now_ns);
    outcome.flush = pb_hot_after_write(partition, appended_bytes, now_ns);
    pthread_cond_broadcast(&partition->quiet);
    pthread_mutex_unlock(&partition->lock);
    return outcome;
}

static void settle_write(pb_partition *partition, pb_reactor *reactor, int64_t result)
{
    pb_link finished;
    pb_list_init(&finished);
    write_outcome outcome = finish_write(partition, result, &finished);
    pb_counter_add(&reactor->counters.writes, 1);
    pb_counter_add(&reactor->counters.written_bytes, result > 0 ? result : 0);
    if (outcome.writes)
        pb_durable_write(partition);
    else if (outcome.sync)
        partition->sync_due(partition);
    if (outcome.pace)
        partition->pacing_due(partition);
    if (outcome.flush)
        partition->flush_due(partition);
    if (outcome.broke)
        partition->failed(partition, PB_WRITE_FAILED,
                          result < 0 ? (int)result : -ENOSPC); /* why files take only a part */
    pb_durable_settle(&finished, reactor);
}

static bool begin_write(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    partition->queued = false;
    /* The callbacks of the last write may have closed the log since. */
    bool begun = !partition->writing && !partition->held && !partition->switching && partition->log != NULL &&
                 pb_log_write_begin(partition->log, &partition->write);
    partition->writing = partition->writing || begun;
    if (!begun)
        pthread_cond_broadcast(&partition->quiet);
    pthread_mutex_unlock(&partition->lock);
    return begun;
}

/* Fill `slice` with the next bytes of the write; how many iovecs. */
static int cut_slice(pb_partition *partition)
{
    int count = 0;
    partition->slice_bytes = 0;
    for (int i = partition->write_next; i < partition->write.iov_count; i++) {
        struct iovec part = partition->write.iov[i];
        int64_t left = PB_WRITE_SLICE_BYTES - partition->slice_bytes;
        if (left == 0)
            break;
        if ((int64_t)part.iov_len > left)
            part.iov_len = (size_t)left;
        partition->slice[count++] = part;
        partition->slice_bytes += (int64_t)part.iov_len;
    }
    PB_ASSERT(count > 0);
    return count;
}

/* Count `bytes` as written. */
static void advance_write(pb_partition *partition, int64_t bytes)
{
    partition->write_done += bytes;
    while (bytes > 0) {
        struct iovec *part = &partition->write.iov[partition->write_next];
        size_t used = (size_t)bytes < part->iov_len ? (size_t)bytes : part->iov_len;
        part->iov_base = (uint8_t *)part->iov_base + used;
        part->iov_len -= used;
        bytes -= (int64_t)used;
        if (part->iov_len == 0)
            partition->write_next++;
    }
}

/* A slice has come to `result`: PB_IO_PENDING when the next one follows in the writer's next turn, else what the whole
 * write came to. A short slice is a failed write. */
static int64_t finish_slice(pb_partition *partition, int64_t result)
{
    if (result > 0)
        advance_write(partition, result);
    if (result == partition->slice_bytes && partition->write_done < partition->write.length) {
        pb_reactor_post(partition->writer, &partition->go_on);
        return PB_IO_PENDING;
    }
    return result < 0 ? result : partition->write_done;
}

static int64_t write_slice(pb_partition *partition)
{
    pb_reactor *reactor = partition->writer;
    int count = cut_slice(partition);
    /* A worker costs CPU; it is worth that when others wait behind a large write, the last slice of it included. */
    partition->write_op.beside =
        partition->write.length >= PB_WRITE_SLICE_BYTES && reactor->now_ns < reactor->shared_until_ns;
    int64_t result =
        reactor->io->ops->write_start(reactor->loop, &partition->write_op, partition->write.file, partition->slice,
                                      count, partition->write.position + partition->write_done);
    return result == PB_IO_PENDING ? result : finish_slice(partition, result);
}

static void pump_on(pb_partition *partition, pb_reactor *reactor);

/* A slice has ended: with the whole write, the next one begins. */
static void after_slice(pb_partition *partition, int64_t result)
{
    pb_reactor *reactor = partition->writer;
    if (result == PB_IO_PENDING)
        return;
    PB_ASSERT(reactor->holds > 0);
    reactor->holds--;
    settle_write(partition, reactor, result);
    pump_on(partition, reactor);
    pb_partition_release(partition);
}

/* Into the ring whole, or into the file slice by slice. PB_IO_PENDING also while the ring has no room. */
static int64_t start_write(pb_partition *partition)
{
    int result = pb_log_write_prepare(partition->log, &partition->write);
    if (result == PB_LOG_WAITS) {
        pb_hot_wait(partition);
        return PB_IO_PENDING;
    }
    if (result != 0)
        return result;
    if (pb_log_is_hot(partition->log))
        return pb_hot_pause(partition) ? PB_IO_PENDING : pb_log_write_ring(partition->log, &partition->write);
    partition->write_begun = true;
    return write_slice(partition);
}

/* After waiting: unless the log has failed meanwhile. */
static int64_t start_again(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    bool failed = pb_log_failed(partition->log);
    pthread_mutex_unlock(&partition->lock);
    return failed ? -EIO : start_write(partition);
}

static void go_on(pb_task *task, pb_reactor *reactor)
{
    pb_partition *partition = PB_CONTAINER(task, pb_partition, go_on);
    pb_timer_cancel(&reactor->timers, &partition->pause);
    after_slice(partition, partition->write_begun ? write_slice(partition) : start_again(partition));
}

static void pause_over(pb_timer *timer)
{
    pb_partition *partition = PB_CONTAINER(timer, pb_partition, pause);
    if (pb_hot_end_pause(partition))
        go_on(&partition->go_on, partition->writer);
}

static void written(pb_op *op, int64_t result)
{
    pb_partition *partition = PB_CONTAINER(op, pb_partition, write_op);
    after_slice(partition, finish_slice(partition, result));
}

/* Write until nothing is queued, or a write goes on later: then it holds a reference and its reactor. */
static void pump_on(pb_partition *partition, pb_reactor *reactor)
{
    while (begin_write(partition)) {
        partition->write_next = 0;
        partition->write_done = 0;
        partition->write_begun = false;
        partition->write_paused = false;
        partition->writer = reactor;
        int64_t result = start_write(partition);
        if (result == PB_IO_PENDING) {
            reactor->holds++;
            pb_partition_retain(partition);
            return;
        }
        settle_write(partition, reactor, result);
    }
}

void pb_partition_pump(pb_partition *partition, pb_reactor *reactor)
{
    /* `done` may release the last request's reference; ours keeps the partition until the loop ends. */
    pb_partition_retain(partition);
    pump_on(partition, reactor);
    pb_partition_release(partition);
}

void pb_partition_prepare_writes(pb_partition *partition)
{
    partition->write_op.done = written;
    partition->go_on.run = go_on;
    partition->pause.fire = pause_over;
}
