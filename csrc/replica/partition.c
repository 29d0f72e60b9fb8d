/* The leader's side of a partition. See partition.h for threads and locks. */
#include "replica/durable.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replica/followers.h"
#include "replica/hot.h"
#include "wire/generated/kafka_errors.h"

#define PACE_INTERVAL_NS 50000000 /* not more often than this */
#define DISK_WAIT_NS 10000000     /* most syncs are shorter */

enum { MEND_TRIES = 100, MEND_WAIT_NS = 10 * 1000 * 1000 };

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

static void written(pb_op *op, int64_t result);
static void go_on(pb_task *task, pb_reactor *reactor);
static void pause_over(pb_timer *timer);

pb_partition *pb_partition_create(pb_io *io, const char *topic, const uint8_t topic_id[16], int32_t index, pb_log *log,
                                  const pb_partition_rules *rules)
{
    pb_partition *partition = calloc(1, sizeof *partition);
    if (partition == NULL)
        return NULL;
    snprintf(partition->topic, sizeof partition->topic, "%s", topic);
    memcpy(partition->topic_id, topic_id, sizeof partition->topic_id);
    partition->index = index;
    partition->io = io;
    partition->log = log;
    partition->rules = *rules;
    partition->high_watermark = log != NULL ? pb_log_written_end(log) : 0;
    partition->leader_epoch = -1;
    partition->write_op.done = written;
    partition->go_on.run = go_on;
    partition->pause.fire = pause_over;
    atomic_init(&partition->references, 1);
    pthread_mutex_init(&partition->lock, NULL);
    pthread_cond_init(&partition->quiet, NULL);
    pb_list_init(&partition->sync_link);
    pb_list_init(&partition->flush_link);
    pb_list_init(&partition->hot_link);
    pb_list_init(&partition->unsynced);
    pb_list_init(&partition->duplicates);
    pb_list_init(&partition->unreplicated);
    pb_list_init(&partition->waiters);
    pb_list_init(&partition->follower_waiters);
    return partition;
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

void pb_partition_begin_epoch(pb_partition *partition, int32_t leader_epoch)
{
    PB_ASSERT(!partition->following.active);
    if (leader_epoch > partition->leader_epoch)
        pb_log_start_epoch(partition->log, leader_epoch);
    partition->leader_epoch = leader_epoch;
    partition->serving = true;
    partition->refusal = 0;
}

void pb_partition_start_leading(pb_partition *partition, int32_t leader_epoch)
{
    pb_link finished;
    pb_list_init(&finished);
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->log != NULL);
    pb_partition_begin_epoch(partition, leader_epoch);
    pb_followers *followers = pb_followers_replace(partition, NULL);
    pb_durable_advance(partition, INT64_MAX, &finished);
    pthread_mutex_unlock(&partition->lock);
    free(followers);
    pb_durable_settle(&finished, NULL);
}

/* Is the log read or written to, or about to be? What is queued there waits without `queued` while writes are held or
 * somebody else has the log's write token, and for a moment between two writes. The lock is held. */
static bool is_in_use(const pb_partition *partition)
{
    bool gathered = partition->log != NULL && pb_log_has_queued(partition->log);
    return partition->writing || partition->queued || gathered || partition->readers > 0;
}

/* Refuse clients from now on, and wait until nobody uses the log and all that is queued is written: once the followers
 * are gone nothing tells that an append waits for them. Those that do fail: another leader may have them or not. The
 * lock is held. */
static pb_followers *end_service(pb_partition *partition, pb_link *finished)
{
    partition->serving = false;
    partition->following.active = false;
    pb_durable_wake(partition, INT64_MAX);
    pb_followers_wake(partition, INT64_MAX);
    while (is_in_use(partition)) {
        pb_hot_hurry(partition);
        pthread_cond_wait(&partition->quiet, &partition->lock);
    }
    pb_followers_fail_appends(partition, partition->refusal != 0 ? partition->refusal : PB_KAFKA_NOT_LEADER_OR_FOLLOWER,
                              finished);
    return pb_followers_replace(partition, NULL);
}

void pb_partition_stop_leading(pb_partition *partition, int refusal)
{
    pb_link finished;
    pb_list_init(&finished);
    pthread_mutex_lock(&partition->lock);
    partition->refusal = refusal;
    pb_followers *followers = end_service(partition, &finished);
    pthread_mutex_unlock(&partition->lock);
    free(followers);
    pb_durable_settle(&finished, NULL);
}

pb_log *pb_partition_take_log(pb_partition *partition)
{
    pb_link finished;
    pb_list_init(&finished);
    pthread_mutex_lock(&partition->lock);
    pb_followers *followers = end_service(partition, &finished);
    pb_log *log = partition->log;
    partition->log = NULL;
    pthread_mutex_unlock(&partition->lock);
    free(followers);
    pb_durable_settle(&finished, NULL);
    return log;
}

int pb_partition_mend(pb_partition *partition, pb_failure *failure)
{
    pb_durable_stop_syncs(partition);
    pthread_mutex_lock(&partition->lock);
    bool held = partition->held;
    pthread_mutex_unlock(&partition->lock);
    pb_log_guard guard = pb_partition_guard(partition);
    int result = held ? pb_fail(failure, -EBUSY, "the log is about to move") : -EBUSY;
    /* Others keep the log from us for moments only. */
    for (int i = 0; !held && result == -EBUSY && i < MEND_TRIES; i++) {
        if (i > 0)
            partition->io->ops->nap(partition->io, MEND_WAIT_NS);
        result = pb_log_repair(partition->log, &guard, failure);
    }
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(!partition->writing);
    partition->broken = partition->broken && result != 0;
    pthread_mutex_unlock(&partition->lock);
    pb_durable_allow_syncs(partition);
    return result;
}

void pb_partition_report_read(pb_partition *partition, int error)
{
    if (!pb_error_passes(error) && !atomic_exchange(&partition->read_failed, true))
        partition->failed(partition, PB_READ_FAILED, error);
}

int pb_partition_report_slice(pb_partition *partition, const pb_log_slice *slice, int error)
{
    if (error == -ENODATA) {
        pthread_mutex_lock(&partition->lock);
        if (partition->log == NULL || !pb_log_has_slice(partition->log, slice))
            error = -ENOENT;
        pthread_mutex_unlock(&partition->lock);
    }
    if (error != -ENOENT)
        pb_partition_report_read(partition, error);
    return error;
}

void pb_partition_watch_reads(pb_partition *partition)
{
    atomic_store(&partition->read_failed, false);
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

/* Writes may begin again. */
static void let_writes_begin(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->held);
    partition->held = false;
    pthread_mutex_unlock(&partition->lock);
    pb_partition_catch_up(partition);
}

int pb_partition_stop_writes(pb_partition *partition, pb_failure *failure)
{
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(!partition->held);
    partition->held = true;
    while (partition->writing)
        pthread_cond_wait(&partition->quiet, &partition->lock);
    pthread_mutex_unlock(&partition->lock);
    /* A repair has syncs stopped: either it has ended by now, or it finds the partition held. */
    pb_durable_stop_syncs(partition);
    pb_log_guard guard = pb_partition_guard(partition);
    int result = pb_log_hold(partition->log, &guard, failure);
    pb_durable_allow_syncs(partition);
    if (result != 0)
        let_writes_begin(partition);
    return result;
}

int pb_partition_move(pb_partition *partition, const char *directory, bool for_good, pb_failure *failure)
{
    /* A sync of files that the log may leave again proves nothing, and no append may be acknowledged by it. */
    if (!partition->moving)
        pb_durable_stop_syncs(partition);
    partition->moving = true;
    pb_log_guard guard = pb_partition_guard(partition);
    return pb_log_relocate(partition->log, &guard, directory, for_good, failure);
}

void pb_partition_move_back(pb_partition *partition)
{
    PB_ASSERT(partition->moving);
    pb_log_guard guard = pb_partition_guard(partition);
    pb_log_go_back(partition->log, &guard);
}

void pb_partition_resume_writes(pb_partition *partition)
{
    pb_log_guard guard = pb_partition_guard(partition);
    pb_log_release(partition->log, &guard);
    if (partition->moving) {
        partition->moving = false;
        pb_durable_allow_syncs(partition);
    }
    let_writes_begin(partition);
}

/* Why this partition does not serve, for a client. The lock is held. */
static int refusal_of(const pb_partition *partition, bool from_follower)
{
    bool serves = partition->serving || (from_follower && partition->following.active);
    if (serves) /* a log that has failed is not served again: from now on clients hear the same */
        return pb_log_failed(partition->log) ? PB_KAFKA_KAFKA_STORAGE_ERROR : 0;
    return partition->refusal != 0 ? partition->refusal : PB_KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
}

int pb_partition_admit(pb_partition *partition, pb_partition_rules *rules, int32_t *leader_epoch)
{
    pthread_mutex_lock(&partition->lock);
    int result = refusal_of(partition, false);
    if (result == 0 && partition->broken)
        result = PB_KAFKA_KAFKA_STORAGE_ERROR;
    *rules = partition->rules;
    *leader_epoch = partition->leader_epoch;
    pthread_mutex_unlock(&partition->lock);
    return result;
}

int pb_partition_begin_verification(pb_partition *partition, const pb_verified_batch *batch, int64_t now_ms,
                                    int64_t *guard)
{
    *guard = 0;
    pthread_mutex_lock(&partition->lock);
    int result = refusal_of(partition, false);
    if (result == 0 && partition->rules.transactions == PB_TRANSACTIONS_VERIFIED && !partition->rules.internal)
        result = pb_log_begin_verification(partition->log, batch, now_ms, guard);
    pthread_mutex_unlock(&partition->lock);
    return result;
}

int pb_partition_append_batch(pb_partition *partition, pb_partition_append_op *op, bool *must_pump)
{
    *must_pump = false;
    pthread_mutex_lock(&partition->lock);
    int result = refusal_of(partition, false);
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

/* What a write comes to besides its appends. */
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
        }
    }
    partition->appended_bytes += appended_bytes;
    return appended_bytes;
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
        partition->writer->disk_until_ns = now_ns + DISK_WAIT_NS;
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
    /* Whoever was told of the last write may have closed the log since. */
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
    int result = refusal_of(partition, from_follower);
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
