/*
 * Hot logs: the ring's way into the file, and the ways into and out of being hot. See hot.h for the states. Blocking
 * calls of background threads, but for those that a writer makes on its reactor.
 */
#include "log/engine/hot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cpu/copy.h"
#include "log/state.h"

enum {
    FLUSH_BYTES = 2 << 20,     /* one write takes no more: writers wait for its end */
    ROLL_PART = 2,             /* of what is left of a segment no more than this part is in the ring, */
    ROLL_BYTES = 12 << 20,     /* or this much, which is what comes while the disk takes nothing for a moment; */
    FULL_PART = 4,             /* with this part of what is left in it the ring counts as full, */
    FULL_BYTES = 2 << 20,      /* or with this much; */
    EASE_PART = 4,             /* with more than this part of that in it writers begin to pause, */
    PAUSE_MAX_NS = 2000000,    /* up to so long when it is full */
    ALLOCATE_BYTES = 64 << 20, /* blocks are taken in pieces of this size, */
    AHEAD_BYTES = 24 << 20,    /* when fewer than these are left ahead: more than a ring */
    WEIGHT = 8,                /* of the past in an average */
};

/* ---- the writer's side ---- */

/* A part of what is left of the segment behind `end`, or `least`. */
static int64_t part_left(const pb_hot *hot, int64_t end, int64_t part, int64_t least)
{
    int64_t most = (atomic_load(&hot->bound) - end) / part;
    return most > least ? most : least;
}

/* A roll empties the ring while the writer waits. So less and less is taken before the segment ends: little by little,
 * as all writers meanwhile wait for the disk to catch up. */
static bool is_early(const pb_hot *hot, int64_t end)
{
    int64_t gathered = pb_tail_ring_end(hot->ring) - pb_tail_ring_start(hot->ring);
    return gathered == 0 || end - pb_tail_ring_start(hot->ring) <= part_left(hot, end, ROLL_PART, ROLL_BYTES);
}

bool pb_hot_has_room(const pb_hot *hot, const pb_log_write *write)
{
    int64_t end = write->position + write->length;
    return write->length <= pb_tail_ring_free_bytes(hot->ring) && end <= atomic_load(&hot->allocated_end) &&
           is_early(hot, end);
}

int64_t pb_log_write_ring(pb_log *log, const pb_log_write *write)
{
    pb_tail_ring *ring = log->hot->ring;
    int64_t position = write->position;
    PB_ASSERT(log->writing && position == pb_tail_ring_end(ring) && pb_hot_has_room(log->hot, write));
    int64_t end = position + write->length;
    pb_tail_forget(log->hot->segment, end - pb_tail_ring_bytes(ring));
    for (int i = 0; i < write->iov_count; i++) {
        pb_copy_past_caches(pb_tail_ring_at(ring, position), write->iov[i].iov_base, write->iov[i].iov_len);
        position += (int64_t)write->iov[i].iov_len;
    }
    PB_ASSERT(position == end);
    pb_tail_ring_publish(ring, end);
    return write->length;
}

/* Producers without a bound of their own fill any ring. While there is room they wait a little, the longer the fuller
 * the ring is. The rest of the ring is for moments in which the disk takes nothing. Before a segment ends they do so
 * with less in it: pauses bring the ring down, and what it may hold stays for such a moment. */
int64_t pb_log_pause_ns(const pb_log *log)
{
    const pb_hot *hot = log->hot;
    int64_t full = part_left(hot, pb_tail_ring_end(hot->ring), FULL_PART, FULL_BYTES);
    int64_t ring_bytes = pb_tail_ring_bytes(hot->ring);
    if (full > ring_bytes)
        full = ring_bytes;
    int64_t over = pb_log_gathered_bytes(log) - full / EASE_PART;
    int64_t pause_ns = over > 0 ? PAUSE_MAX_NS * over / (full - full / EASE_PART) : 0;
    return pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS;
}

bool pb_log_is_hot(const pb_log *log)
{
    return log->hot != NULL;
}

int64_t pb_log_gathered_bytes(const pb_log *log)
{
    return log->hot != NULL ? pb_tail_ring_end(log->hot->ring) - pb_tail_ring_start(log->hot->ring) : 0;
}

/* ---- flushing ---- */

/* The blocks that are taken at once from `position` on: no more than the segment may grow to. */
static int64_t allocation_bytes(pb_hot *hot, int64_t position)
{
    int64_t left = atomic_load(&hot->bound) - position;
    return left > ALLOCATE_BYTES ? ALLOCATE_BYTES : left > 0 ? left : PB_DIRECT_BLOCK_BYTES;
}

int pb_hot_allocate_to(const pb_log *log, pb_hot *hot, int64_t end)
{
    int64_t allocated = atomic_load(&hot->allocated_end);
    int64_t length = pb_block_floor(end + PB_DIRECT_BLOCK_BYTES - 1) - allocated;
    if (length <= 0)
        return 0;
    int rc = log->io->ops->file_allocate(log->io, hot->file, allocated, length);
    if (rc == 0)
        atomic_store(&hot->allocated_end, allocated + length);
    return rc;
}

/* Blocks ahead of what may be taken into the ring, where the file was not made with them (upkeep.c). A disk that is
 * full keeps the writer waiting, and then cools; near its reserve each write takes what it needs. */
static int allocate_ahead(const pb_log *log, pb_hot *hot)
{
    int64_t allocated = atomic_load(&hot->allocated_end);
    if (allocated >= atomic_load(&hot->bound) || allocated - pb_tail_ring_end(hot->ring) >= AHEAD_BYTES)
        return 0;
    int64_t length = pb_log_room_ahead(log, atomic_load(&hot->reserve_bytes), allocation_bytes(hot, allocated));
    return length > 0 ? pb_hot_allocate_to(log, hot, allocated + length) : 0;
}

void pb_hot_flushed(pb_hot *hot, int64_t end, bool durable)
{
    hot->unsynced = hot->unsynced || !durable;
    hot->flushed_end = end;
    pb_tail_seal(hot->segment, pb_block_floor(end));
    pb_tail_ring_advance(hot->ring, end);
}

int pb_hot_gather(const pb_hot *hot, int64_t start, int64_t end, uint8_t *last_block, struct iovec *iov,
                  int64_t *length)
{
    int64_t whole = pb_block_floor(end) - start;
    int count = 0;
    if (whole > 0)
        iov[count++] = (struct iovec){pb_tail_ring_at(hot->ring, start), (size_t)whole};
    *length = whole;
    if (start + whole < end) { /* what follows in the ring is being written, or old */
        size_t last_bytes = (size_t)(end - start - whole);
        memcpy(last_block, pb_tail_ring_at(hot->ring, start + whole), last_bytes);
        memset(last_block + last_bytes, 0, PB_DIRECT_BLOCK_BYTES - last_bytes);
        iov[count++] = (struct iovec){last_block, PB_DIRECT_BLOCK_BYTES};
        *length += PB_DIRECT_BLOCK_BYTES;
    }
    PB_ASSERT(count > 0);
    return count;
}

/* One write of what lies below `end`. */
static int flush_some(const pb_log *log, pb_hot *hot, int64_t end, bool durable)
{
    _Alignas(PB_DIRECT_BLOCK_BYTES) uint8_t last_block[PB_DIRECT_BLOCK_BYTES];
    int64_t start = pb_block_floor(hot->flushed_end);
    if (end - start > FLUSH_BYTES)
        end = start + FLUSH_BYTES;
    struct iovec iov[2];
    int64_t wanted;
    int count = pb_hot_gather(hot, start, end, last_block, iov, &wanted);
    const pb_io_ops *ops = log->io->ops;
    int64_t wrote = durable ? ops->file_write_durable(log->io, hot->file, iov, count, start)
                            : ops->file_write(log->io, hot->file, iov, count, start);
    if (wrote != wanted)
        return wrote < 0 ? (int)wrote : -EIO;
    pb_hot_flushed(hot, end, durable);
    return 0;
}

void pb_hot_count_round(pb_hot *hot, int64_t end)
{
    int64_t round_bytes = atomic_load(&hot->round_bytes);
    atomic_store(&hot->round_bytes, round_bytes + (end - hot->flushed_end - round_bytes) / WEIGHT);
}

/* Under flush_lock. */
static int flush_held(pb_log *log, pb_hot *hot, int64_t end, bool durable)
{
    bool each = durable && !hot->unsynced && end - pb_block_floor(hot->flushed_end) <= FLUSH_BYTES;
    int rc = 0;
    if (durable)
        pb_hot_count_round(hot, end);
    while (rc == 0 && hot->flushed_end < end)
        rc = flush_some(log, hot, end, each);
    if (rc == 0 && durable && hot->unsynced && (rc = pb_log_sync_data(log, hot->file)) == 0)
        hot->unsynced = false;
    return rc;
}

/* Until the zeros that are being written are there. Under flush_lock, which is free meanwhile. */
static void wait_for_zeros(pb_log *log, pb_hot *hot)
{
    atomic_store(&hot->zeros_awaited, true);
    pthread_cond_wait(&log->zeroed, &log->flush_lock);
}

pb_hot *pb_hot_begin_flush(pb_log *log, const pb_log_guard *guard, int64_t *end)
{
    pthread_mutex_lock(&log->flush_lock);
    for (;;) {
        pb_log_lock(guard);
        pb_hot *hot = log->hot;
        pb_log_unlock(guard);
        if (hot == NULL)
            break;
        *end = pb_tail_ring_end(hot->ring);
        if (hot->zeroing_position < 0 || *end <= hot->zeroing_position)
            return hot;
        wait_for_zeros(log, hot);
    }
    pthread_mutex_unlock(&log->flush_lock);
    return NULL;
}

int pb_hot_end_flush(pb_log *log, const pb_log_guard *guard, int rc)
{
    pthread_mutex_unlock(&log->flush_lock);
    if (rc != 0) {
        pb_log_lock(guard);
        log->starved = log->failed ? log->starved : pb_error_is_full(rc);
        log->failed = true;
        pb_log_unlock(guard);
    }
    return rc;
}

int pb_log_flush(pb_log *log, const pb_log_guard *guard, pb_failure *failure)
{
    int64_t end;
    pb_hot *hot = pb_hot_begin_flush(log, guard, &end);
    if (hot == NULL)
        return 0;
    /* Before the disk is full nobody has to know. */
    (void)allocate_ahead(log, hot);
    int rc = hot->flushed_end < end ? flush_some(log, hot, end, false) : 0;
    rc = pb_hot_end_flush(log, guard, rc);
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot write the newest batches");
}

int pb_log_flush_durable(pb_log *log, const pb_log_guard *guard, const pb_segment *segment, bool *done)
{
    int64_t end;
    pb_hot *hot = pb_hot_begin_flush(log, guard, &end);
    *done = hot != NULL && hot->segment == segment;
    if (hot == NULL)
        return 0;
    int rc = *done ? flush_held(log, hot, end, true) : 0;
    (void)allocate_ahead(log, hot);
    pthread_mutex_unlock(&log->flush_lock);
    return rc;
}

bool pb_log_has_ring_file(pb_log *log, const pb_log_guard *guard)
{
    int64_t end;
    pb_hot *hot = pb_hot_begin_flush(log, guard, &end);
    if (hot == NULL)
        return true;
    bool has = pb_ring_pool_has(log->rings, hot->ring);
    pthread_mutex_unlock(&log->flush_lock);
    return has;
}

/* ---- cold -> hot ---- */

/* Let the ring speak of a segment. Its seal is broken meanwhile, and a note must name no ring that nobody replays. */
static int begin_ring(pb_log *log, pb_tail_ring *ring, int64_t segment_base, int64_t position)
{
    int rc = pb_log_forget_ring_note(log);
    if (rc != 0)
        return rc;
    pb_tail_ring_begin(ring, &log->ring_identity, segment_base, position);
    return pb_log_note_ring(log, ring);
}

/* Point `hot` to a segment of which `size_bytes` are in its file, which has `made_bytes` of blocks. The last block,
 * when it is not full, comes into the ring. */
static int enter_segment(pb_log *log, const pb_log_guard *guard, pb_hot *hot, pb_segment *segment, int64_t size_bytes,
                         int64_t made_bytes)
{
    int64_t block = pb_block_floor(size_bytes);
    pb_log_lock(guard);
    atomic_store(&hot->bound, pb_block_floor(log->config.segment_bytes + PB_DIRECT_BLOCK_BYTES - 1));
    atomic_store(&hot->reserve_bytes, log->config.reserve_bytes);
    pb_log_unlock(guard);
    int64_t length = pb_log_room_ahead(log, atomic_load(&hot->reserve_bytes), allocation_bytes(hot, block));
    if (length < made_bytes - block)
        length = made_bytes - block;
    if (length <= 0)
        return -ENOSPC;
    int file = pb_segment_open_direct(segment, PB_OPEN_WRITE);
    if (file < 0)
        return file;
    hot->file = file;
    atomic_store(&hot->device, log->io->ops->file_flush_device(log->io, file));
    int rc = log->io->ops->file_allocate(log->io, file, block, length);
    if (rc == 0 && block < size_bytes)
        rc = pb_io_read_all(log->io, segment->file, pb_tail_ring_at(hot->ring, block), (size_t)(size_bytes - block),
                            block);
    if (rc == 0)
        rc = begin_ring(log, hot->ring, segment->base_offset, size_bytes);
    if (rc != 0) {
        log->io->ops->file_close(log->io, file);
        return rc;
    }
    pb_segment_retain(segment);
    hot->segment = segment;
    hot->flushed_end = size_bytes;
    hot->unsynced = true; /* what was written through the page cache */
    hot->zeroing_position = -1;
    atomic_store(&hot->allocated_end, block + length);
    hot->zeroed_position = block;
    atomic_store(&hot->zeroed_end, block);
    return 0;
}

/* With the write token. */
static int heat_held(pb_log *log, const pb_log_guard *guard)
{
    pb_hot *hot = aligned_alloc(PB_DIRECT_BLOCK_BYTES, sizeof(*hot));
    if (hot == NULL)
        return -ENOMEM;
    memset(hot, 0, sizeof(*hot));
    pb_segment *active = pb_log_active(log);
    int rc = pb_ring_pool_take(log->rings, log->directory, &log->ring_identity, &hot->ring);
    if (rc != 0) {
        free(hot);
        return rc;
    }
    rc = enter_segment(log, guard, hot, active, active->size_bytes, 0);
    if (rc != 0) {
        pb_ring_pool_give(log->rings, hot->ring);
        free(hot);
        return rc;
    }
    pb_log_lock(guard);
    pb_tail_attach(active, pb_tail_ring_at(hot->ring, 0), (size_t)pb_tail_ring_bytes(hot->ring),
                   pb_block_floor(active->size_bytes));
    log->hot = hot;
    pb_log_unlock(guard);
    return 0;
}

/* Take the write token, or -EBUSY. [lock] */
static int begin_switch(pb_log *log)
{
    if (log->writing || log->broken || log->failed)
        return -EBUSY;
    log->writing = true;
    return 0;
}

static int end_switch(pb_log *log, const pb_log_guard *guard, int rc)
{
    pb_log_lock(guard);
    log->writing = false;
    pb_log_unlock(guard);
    return rc;
}

int pb_log_heat(pb_log *log, const pb_log_guard *guard)
{
    if (log->rings == NULL)
        return -EOPNOTSUPP;
    pb_log_lock(guard);
    int rc = log->hot != NULL ? -EBUSY : begin_switch(log);
    pb_log_unlock(guard);
    return rc != 0 ? rc : end_switch(log, guard, heat_held(log, guard));
}

/* ---- hot -> cold ---- */

/* Under flush_lock, all flushed: let go of the segment, whose file is cut to its length. The caller holds the write
 * token, so that nobody changes `hot` while this waits. */
static int leave_segment(pb_log *log, const pb_log_guard *guard, pb_hot *hot)
{
    int64_t size_bytes = pb_tail_ring_end(hot->ring);
    const pb_io_ops *ops = log->io->ops;
    while (hot->zeroing_position >= 0)
        wait_for_zeros(log, hot);
    int64_t file_bytes = ops->file_size(log->io, hot->file);
    /* The last chance to see that somebody has cut the file behind our back. */
    int rc = file_bytes < 0 ? (int)file_bytes : file_bytes < size_bytes ? -ESTALE : 0;
    if (rc == 0)
        rc = ops->file_truncate(log->io, hot->file, size_bytes);
    /* A later sync passes over a file of which all is durable, and after a loss of power it would end in zeros again.
     */
    if (rc == 0 && !hot->unsynced)
        rc = pb_log_sync_data(log, hot->file);
    if (rc != 0)
        return rc;
    pb_log_lock(guard);
    pb_tail_detach(hot->segment);
    pb_log_unlock(guard);
    ops->file_close(log->io, hot->file);
    pb_segment_release(hot->segment);
    hot->segment = NULL;
    return 0;
}

/* Under flush_lock: the log is cold. */
static void end_hot(pb_log *log, const pb_log_guard *guard)
{
    pb_hot *hot = log->hot;
    pb_log_lock(guard);
    log->hot = NULL;
    pb_log_unlock(guard);
    PB_ASSERT(hot->segment == NULL);
    /* Before another log gets the ring. A note that stays is removed by the next opening. */
    (void)pb_log_forget_ring_note(log);
    pb_ring_pool_give(log->rings, hot->ring);
    free(hot);
    pb_log_drop_spare(log); /* a cold log has no use for its blocks */
}

/* Under flush_lock, all flushed. */
static int go_cold(pb_log *log, const pb_log_guard *guard, pb_hot *hot)
{
    int rc = leave_segment(log, guard, hot);
    if (rc == 0)
        end_hot(log, guard);
    return rc;
}

int pb_log_cool_held(pb_log *log, const pb_log_guard *guard, pb_failure *failure)
{
    int64_t end;
    pb_hot *hot = pb_hot_begin_flush(log, guard, &end);
    if (hot == NULL)
        return 0;
    int rc = flush_held(log, hot, end, false);
    if (rc == 0)
        rc = go_cold(log, guard, hot);
    rc = pb_hot_end_flush(log, guard, rc);
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot write the newest batches");
}

int pb_log_cool(pb_log *log, const pb_log_guard *guard)
{
    pb_log_lock(guard);
    int rc = begin_switch(log);
    pb_log_unlock(guard);
    return rc != 0 ? rc : end_switch(log, guard, pb_log_cool_held(log, guard, NULL));
}

void pb_log_abandon_ring(pb_log *log)
{
    pb_hot *hot = log->hot;
    if (hot == NULL)
        return;
    log->hot = NULL;
    pb_tail_detach(hot->segment);
    log->io->ops->file_close(log->io, hot->file);
    pb_segment_release(hot->segment);
    pb_ring_pool_leave(log->rings, hot->ring);
    free(hot);
}

/* ---- for a writer that waits ---- */

/* Go over to a new segment. A failure leaves the log cold, so that the writer meets it; one of the old segment is the
 * log's. */
static int roll_held(pb_log *log, const pb_log_guard *guard, pb_hot *hot, int64_t end)
{
    int rc = flush_held(log, hot, end, false);
    if (rc == 0)
        rc = leave_segment(log, guard, hot);
    if (rc != 0)
        return rc;
    const pb_roll *roll = PB_CONTAINER(log->rolls.next, pb_roll, link);
    pb_segment *segment;
    bool begun = pb_log_make_segment(log, roll->base_offset, log->write_preallocate_bytes, &segment) == 0;
    if (begun) {
        log->rolling = segment;
        begun =
            pb_ring_pool_has(log->rings, hot->ring) && enter_segment(log, guard, hot, segment, 0, log->made_bytes) == 0;
    }
    if (!begun) {
        end_hot(log, guard);
        return 0;
    }
    hot->unsynced = false;
    pb_log_lock(guard);
    pb_tail_attach(segment, pb_tail_ring_at(hot->ring, 0), (size_t)pb_tail_ring_bytes(hot->ring), 0);
    pb_log_unlock(guard);
    return 0;
}

/* Write until the ring takes what waits, and not all there is: the disk goes on while it is copied. */
static int make_room(pb_log *log, const pb_log_guard *guard, pb_hot *hot, const pb_log_write *write, int64_t end)
{
    bool fits = write->length <= pb_tail_ring_bytes(hot->ring) - PB_DIRECT_BLOCK_BYTES;
    /* Settings may let the segment grow beyond what was reckoned with. */
    bool allocated = pb_hot_allocate_to(log, hot, write->position + write->length) == 0;
    int rc = 0;
    if (fits && allocated) {
        while (rc == 0 && hot->flushed_end < end && !pb_hot_has_room(hot, write))
            rc = flush_some(log, hot, end, false);
        return rc;
    }
    rc = flush_held(log, hot, end, false);
    return rc == 0 ? go_cold(log, guard, hot) : rc;
}

int pb_log_write_unblock(pb_log *log, const pb_log_guard *guard, const pb_log_write *write)
{
    pb_log_lock(guard);
    bool failed = log->failed;
    pb_log_unlock(guard);
    int64_t end;
    pb_hot *hot = failed ? NULL : pb_hot_begin_flush(log, guard, &end);
    if (hot == NULL)
        return failed ? -EIO : 0;
    int rc;
    if (write->rolls && log->rolling == NULL) {
        rc = roll_held(log, guard, hot, end);
    } else {
        rc = make_room(log, guard, hot, write, end);
    }
    return pb_hot_end_flush(log, guard, rc);
}
