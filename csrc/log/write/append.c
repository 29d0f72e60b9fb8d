/*
 * Appends: the checks and decisions under the lock, and the three steps of a write.
 *
 * pb_log_append decides everything that depends on order: sequence, offsets, whether a new segment begins, which
 * batches get an index entry, the producer snapshot of a roll. The write then only moves bytes; pb_log_write_end makes
 * them and their index entries visible, or fails all that is queued. Nothing under the lock makes I/O.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "log/derived/producer_snapshot.h"
#include "log/segment/offset_index.h"
#include "log/segment/time_index.h"
#include "log/segment/transaction_index.h"
#include "log/state.h"
#include "record/batch.h"

enum { HOT_WRITE_MAX_BYTES = 1 << 20 }; /* copied in one go, while a reactor does nothing else */

/* No write takes more, but for a single larger batch. */
static int64_t write_most_bytes(const pb_log *log)
{
    if (log->hot == NULL)
        return log->engine->write_max_bytes;
    int64_t half = pb_tail_ring_bytes(log->hot->ring) / 2;
    return half < HOT_WRITE_MAX_BYTES ? half : HOT_WRITE_MAX_BYTES;
}

/* Kafka's rules for when a batch begins a new segment. */
static enum pb_roll_reason tail_must_roll(const pb_log *log, const pb_append *append, int64_t timestamp_ms,
                                          int64_t last_offset)
{
    const pb_tail *tail = &log->tail;
    const pb_log_config *config = &log->config;
    if (last_offset - tail->base_offset > INT32_MAX)
        return PB_ROLL_OFFSETS;
    if (tail->size_bytes == 0)
        return PB_NO_ROLL;
    if (tail->size_bytes + append->length > config->segment_bytes)
        return PB_ROLL_SIZE;
    int64_t waited_ms =
        tail->first_timestamp_ms >= 0 ? timestamp_ms - tail->first_timestamp_ms : append->now_ms - tail->created_ms;
    if (waited_ms > config->segment_ms - tail->jitter_ms)
        return PB_ROLL_TIME;
    /* The time index keeps room for the entry that seals it. */
    bool is_full = tail->offset_entries >= config->segment_index_bytes / PB_OFFSET_INDEX_ENTRY_BYTES ||
                   tail->time_entries >= config->segment_index_bytes / PB_TIME_INDEX_ENTRY_BYTES - 1;
    return is_full ? PB_ROLL_INDEX : PB_NO_ROLL;
}

static int64_t roll_jitter_ms(const pb_log *log)
{
    int64_t most =
        log->config.segment_jitter_ms < log->config.segment_ms ? log->config.segment_jitter_ms : log->config.segment_ms;
    uint64_t random = 0;
    if (most <= 0 || log->io->ops->random(log->io, &random, sizeof(random)) < 0)
        return 0;
    return (int64_t)(random % (uint64_t)most);
}

void pb_roll_free(pb_roll *roll)
{
    free(roll->snapshot);
    free(roll);
}

int pb_log_plan_roll(pb_log *log, int64_t base_offset)
{
    PB_ASSERT(base_offset >= log->appended_end);
    if (pb_log_reserve_segment(log) != 0)
        return -ENOMEM;
    pb_roll *roll = calloc(1, sizeof(*roll));
    if (roll == NULL)
        return -ENOMEM;
    pb_list_init(&roll->link);
    roll->base_offset = base_offset;
    if (log->snapshot_offset < base_offset) {
        roll->snapshot = pb_producer_snapshot_format(&log->producers, &roll->snapshot_length);
        if (roll->snapshot == NULL) {
            pb_roll_free(roll);
            return -ENOMEM;
        }
        log->snapshot_offset = base_offset;
    }
    pb_list_push_back(&log->rolls, &roll->link);
    log->queued_roll_count++;
    log->tail = (pb_tail){
        .base_offset = base_offset,
        .first_timestamp_ms = -1,
        .created_ms = log->io->ops->wall_ms(log->io),
        .largest_timestamp_ms = -1,
        .largest_timestamp_offset = base_offset,
        .last_time_entry_ms = -1,
        .jitter_ms = roll_jitter_ms(log),
    };
    return 0;
}

void pb_log_reset_tail(pb_log *log, int64_t first_timestamp_ms)
{
    const pb_segment *active = pb_log_active(log);
    log->tail = (pb_tail){
        .base_offset = active->base_offset,
        .size_bytes = active->size_bytes,
        .first_timestamp_ms = first_timestamp_ms,
        .created_ms = log->io->ops->wall_ms(log->io),
        .largest_timestamp_ms = active->largest_timestamp_ms,
        .largest_timestamp_offset = active->largest_timestamp_offset,
        .last_time_entry_ms = active->last_time_entry_ms,
        .jitter_ms = roll_jitter_ms(log),
        .offset_entries = pb_index_count(&active->offset_index),
        .time_entries = pb_index_count(&active->time_index),
    };
}

/* Give the batch its place in the tail and decide on its index entries. */
static void tail_place(pb_log *log, pb_append *append, int64_t timestamp_ms)
{
    pb_tail *tail = &log->tail;
    pb_append_place *place = &append->place;
    place->position = tail->size_bytes;
    if (tail->size_bytes == 0)
        tail->first_timestamp_ms = timestamp_ms;
    if (timestamp_ms > tail->largest_timestamp_ms) {
        tail->largest_timestamp_ms = timestamp_ms;
        tail->largest_timestamp_offset = place->last_offset;
    }
    place->index_entry = tail->bytes_since_index > log->config.index_interval_bytes;
    if (place->index_entry) {
        place->time_entry_ms = tail->largest_timestamp_ms;
        place->time_entry_offset = tail->largest_timestamp_offset;
        tail->offset_entries++;
        if (tail->largest_timestamp_ms > tail->last_time_entry_ms) {
            tail->time_entries++;
            tail->last_time_entry_ms = tail->largest_timestamp_ms;
        }
        tail->bytes_since_index = 0;
    }
    tail->size_bytes += append->length;
    tail->bytes_since_index += append->length;
}

static pb_producer_append producer_append(const pb_append *append, int64_t base_offset, int64_t timestamp_ms)
{
    pb_producer_append out = {
        .producer_id = append->producer_id,
        .base_offset = base_offset,
        .last_offset = base_offset + append->record_count - 1,
        .max_timestamp_ms = timestamp_ms,
        .base_sequence = append->base_sequence,
        .record_count = append->record_count,
        .epoch = append->producer_epoch,
        .transaction_version = append->transaction_version,
        .is_transactional = append->is_transactional,
    };
    if (append->is_control) {
        out.is_marker = pb_marker_parse(append->bytes + PB_BATCH_HEADER_BYTES, append->length - PB_BATCH_HEADER_BYTES,
                                        &out.aborts, &out.coordinator_epoch);
    }
    return out;
}

/* Is a transaction of this producer open, and is it still its own? */
static bool is_in_transaction(const pb_producer *producer, int16_t epoch)
{
    return producer != NULL && producer->transaction_start_offset >= 0 && producer->epoch == epoch;
}

int pb_log_begin_verification(pb_log *log, const pb_verified_batch *batch, int64_t now_ms, int64_t *guard)
{
    *guard = 0;
    const pb_producer *producer = pb_producers_find(&log->producers, batch->producer_id);
    if (producer != NULL && batch->producer_epoch < producer->epoch)
        return PB_INVALID_PRODUCER_EPOCH;
    if (is_in_transaction(producer, batch->producer_epoch))
        return 0;
    const pb_verification *verification = pb_verifications_begin(&log->verifications, batch, now_ms);
    if (verification == NULL)
        return -ENOMEM;
    *guard = verification->guard;
    return 0;
}

/* `result` is what the producer's state says of a client's batch. The rules, and which of them comes first, are
 * Kafka's. */
static int check_verification(const pb_log *log, const pb_append *append, int result)
{
    const pb_verification *found = pb_verifications_find(&log->verifications, append->producer_id);
    bool concerns_it = append->is_transactional || found != NULL; /* seldom: an idempotent producer alone does not */
    if (!concerns_it || append->is_control || result == PB_INVALID_PRODUCER_EPOCH)
        return result;
    const pb_producer *producer = pb_producers_find(&log->producers, append->producer_id);
    if (append->is_transactional && !is_in_transaction(producer, append->producer_epoch) && append->must_be_verified &&
        (found == NULL || found->guard != append->verification_guard))
        return PB_INVALID_TXN_STATE;
    if (found == NULL)
        return result;
    bool is_late = append->base_sequence > found->lowest_sequence;
    bool has_predecessor = found->adds && producer == NULL && append->base_sequence != 0;
    return is_late || has_predecessor ? PB_OUT_OF_ORDER_SEQUENCE_NUMBER : result;
}

/* 0, a Kafka code, or PB_LOG_DUPLICATE with the results filled. */
static int check_producer(const pb_log *log, pb_append *append, const pb_producer_append *producer)
{
    if (append->is_replica || append->producer_id < 0 || (append->is_control && !producer->is_marker))
        return 0;
    pb_producer_batch duplicate;
    int rc = pb_producers_check(&log->producers, producer, &duplicate);
    if (rc == PB_LOG_DUPLICATE) {
        append->base_offset = duplicate.last_offset - duplicate.offset_delta;
        append->place.last_offset = duplicate.last_offset;
        append->log_append_time_ms = append->log_append_time ? duplicate.timestamp_ms : -1;
        return rc;
    }
    return check_verification(log, append, rc);
}

/* The batch enters epoch cache and producer state. After a failure the epoch stays, which a started epoch may. */
static int take_state(pb_log *log, pb_append *append, const pb_producer_append *producer)
{
    append->place.aborted_first_offset = -1;
    int rc = pb_leader_epochs_assign(&log->epochs, append->leader_epoch, producer->base_offset);
    if (rc != 0 || append->producer_id < 0 || (append->is_control && !producer->is_marker))
        return rc;
    pb_completed_transaction completed;
    rc = pb_producers_apply(&log->producers, producer, &completed);
    if (rc == 0 && (producer->is_transactional || producer->is_marker))
        pb_verifications_end(&log->verifications, producer->producer_id, producer->epoch, producer->is_marker);
    if (rc == 0 && completed.completed && producer->aborts) {
        append->place.aborted_first_offset = completed.first_offset;
        append->place.aborted_stable_offset = completed.last_stable_offset;
    }
    return rc;
}

/* Where a segment begins whose first batch is at `base_offset`. A gap that the leader's cleaner has left before it
 * comes to lie inside the segment: recovery takes one between segments for what a power cut took. */
static int64_t segment_base(const pb_log *log, int64_t base_offset, int64_t last_offset)
{
    return last_offset - log->appended_end <= INT32_MAX ? log->appended_end : base_offset;
}

/* May a replica's batch follow? An empty log takes the one whole that the leader's log begins inside of, if its segment
 * begins no later. */
static bool may_follow(const pb_log *log, int64_t base_offset, int64_t last_offset)
{
    const pb_tail *tail = &log->tail;
    if (base_offset >= log->appended_end)
        return true;
    return log->start_offset == log->appended_end && tail->size_bytes == 0 && last_offset >= log->appended_end &&
           base_offset >= tail->base_offset && last_offset - tail->base_offset <= INT32_MAX;
}

int pb_log_append(pb_log *log, pb_append *append)
{
    PB_ASSERT(append->length >= PB_BATCH_HEADER_BYTES && append->record_count > 0);
    if (log->broken || log->failed)
        return PB_KAFKA_STORAGE_ERROR;
    if (append->length > log->config.segment_bytes && !append->is_replica)
        return PB_RECORD_LIST_TOO_LARGE;
    int64_t base_offset = log->appended_end;
    if (append->is_replica) {
        pb_batch_header header;
        if (pb_batch_parse(append->bytes, append->length, &header) != 0 || header.size_bytes != append->length ||
            !may_follow(log, header.base_offset, header.base_offset + append->record_count - 1))
            return PB_OFFSET_OUT_OF_RANGE;
        base_offset = header.base_offset;
        append->leader_epoch = header.partition_leader_epoch;
    }
    int64_t timestamp_ms = append->log_append_time ? append->now_ms : append->max_timestamp_ms;
    pb_producer_append producer = producer_append(append, base_offset, timestamp_ms);
    append->start_offset = log->start_offset;
    int rc = check_producer(log, append, &producer);
    if (rc != 0)
        return rc;
    append->rolls = tail_must_roll(log, append, timestamp_ms, producer.last_offset);
    if (append->rolls != PB_NO_ROLL)
        rc = pb_log_plan_roll(log, segment_base(log, base_offset, producer.last_offset));
    if (rc != 0)
        return rc;
    append->place = (pb_append_place){.last_offset = producer.last_offset};
    rc = take_state(log, append, &producer);
    if (rc != 0)
        return rc;
    tail_place(log, append, timestamp_ms);
    if (!append->is_replica) {
        pb_batch_set_base_offset(append->bytes, base_offset);
        pb_batch_set_partition_leader_epoch(append->bytes, append->leader_epoch);
    }
    if (append->log_append_time)
        pb_batch_set_max_timestamp(append->bytes, PB_LOG_APPEND_TIME, append->now_ms);
    append->base_offset = base_offset;
    append->log_append_time_ms = append->log_append_time ? append->now_ms : -1;
    append->error = 0;
    log->appended_end = producer.last_offset + 1;
    pb_list_push_back(&log->queue, &append->link);
    return 0;
}

/* Does a batch lie behind that roll? Rolls may be carried out by others until a writer looks, so nothing is kept.
 * [lock] */
static bool lies_behind(const pb_log *log, const pb_link *roll, int64_t base_offset)
{
    return roll != &log->rolls && PB_CONTAINER(roll, const pb_roll, link)->base_offset <= base_offset;
}

/* Adds another batch to the write, joined with the one before it if it follows in memory, as batches that a follower
 * fetched do. So a write of many small batches is one range. false: there is no room. */
static bool add_to_write(pb_log_write *write, const pb_append *append)
{
    const int iov_limit = (int)(sizeof(write->iov) / sizeof(write->iov[0]));
    struct iovec *last = write->iov_count > 0 ? &write->iov[write->iov_count - 1] : NULL;
    if (last != NULL && (uint8_t *)last->iov_base + last->iov_len == append->bytes)
        last->iov_len += append->length;
    else if (write->iov_count < iov_limit)
        write->iov[write->iov_count++] = (struct iovec){append->bytes, append->length};
    else
        return false;
    write->length += append->length;
    return true;
}

bool pb_log_write_begin(pb_log *log, pb_log_write *write)
{
    if (log->writing || log->broken || pb_list_empty(&log->queue))
        return false;
    PB_ASSERT(pb_list_empty(&log->in_flight) && log->rolling == NULL);
    const pb_append *first = PB_CONTAINER(log->queue.next, pb_append, link);
    const pb_segment *active = pb_log_active(log);
    write->iov_count = 0;
    write->length = 0;
    write->position = first->place.position;
    bool rolls = lies_behind(log, log->rolls.next, first->base_offset);
    const pb_link *next_roll = rolls ? log->rolls.next->next : log->rolls.next;
    write->rolls = rolls;
    write->file = rolls ? -1 : active->file;
    write->sealed_file = active->file;
    write->sealed_bytes = active->size_bytes;
    PB_ASSERT(rolls || (active->file >= 0 && write->position == active->size_bytes));
    log->write_preallocate_bytes = log->config.preallocate ? log->config.segment_bytes : 0;
    const int64_t most_bytes = write_most_bytes(log);
    while (!pb_list_empty(&log->queue)) {
        pb_append *append = PB_CONTAINER(log->queue.next, pb_append, link);
        if (append != first &&
            (lies_behind(log, next_roll, append->base_offset) || write->length + append->length > most_bytes))
            break;
        PB_ASSERT(append->place.position == write->position + write->length);
        if (!add_to_write(write, append))
            break;
        pb_list_remove(&append->link);
        pb_list_push_back(&log->in_flight, &append->link);
    }
    PB_ASSERT(write->iov_count > 0 && !pb_list_empty(&log->in_flight));
    log->writing = true;
    return true;
}

int pb_log_write_prepare(pb_log *log, pb_log_write *write)
{
    if (log->hot != NULL && ((write->rolls && log->rolling == NULL) || !pb_hot_has_room(log->hot, write)))
        return PB_LOG_WAITS;
    if (log->rolling != NULL)
        write->file = log->rolling->file;
    if (write->file >= 0)
        return 0;
    PB_ASSERT(write->position == 0 && write->rolls);
    /* The last chance to see that somebody has cut the file behind our back, before it is sealed. */
    if (log->io->ops->file_size(log->io, write->sealed_file) != write->sealed_bytes)
        return -ESTALE;
    const pb_roll *roll = PB_CONTAINER(log->rolls.next, pb_roll, link);
    int rc = pb_log_make_segment(log, roll->base_offset, log->write_preallocate_bytes, &log->rolling);
    if (rc == 0)
        write->file = log->rolling->file;
    return rc;
}

void pb_log_publish_segment(pb_log *log, pb_segment *segment)
{
    pb_segment *sealed = pb_log_active(log);
    PB_ASSERT(!pb_list_empty(&log->rolls) && log->segment_count < log->segment_capacity);
    PB_ASSERT(segment->base_offset > sealed->base_offset);
    pb_roll *roll = PB_CONTAINER(pb_list_pop_front(&log->rolls), pb_roll, link);
    PB_ASSERT(roll->base_offset == segment->base_offset);
    log->queued_roll_count--;
    if (roll->snapshot != NULL)
        pb_list_push_back(&log->snapshots_due, &roll->link);
    else
        pb_roll_free(roll);
    /* Without memory the entry is missing: look-ups then scan more, and the next open mends it. */
    (void)pb_segment_seal_time_index(sealed);
    sealed->used = log->use_count;
    log->segments[log->segment_count++] = segment;
    log->sealed_bytes += sealed->size_bytes;
    log->directory_dirty = true;
}

/* The batch lies in its segment: it and its index entries become visible. */
static void finish_append(pb_log *log, pb_segment *segment, const pb_append *append)
{
    const pb_append_place *place = &append->place;
    int64_t timestamp_ms = append->log_append_time ? append->now_ms : append->max_timestamp_ms;
    PB_ASSERT(place->position == segment->size_bytes);
    if (timestamp_ms > segment->largest_timestamp_ms) {
        segment->largest_timestamp_ms = timestamp_ms;
        segment->largest_timestamp_offset = place->last_offset;
    }
    /* An index entry that finds no memory is left out: indexes may be sparse. */
    if (place->index_entry && pb_offset_index_push(segment, place->last_offset, place->position) == 0)
        (void)pb_time_index_maybe_push(segment, place->time_entry_ms, place->time_entry_offset);
    if (place->aborted_first_offset >= 0) {
        pb_transaction_entry entry = {append->producer_id, place->aborted_first_offset, place->last_offset,
                                      place->aborted_stable_offset};
        /* Unlike the others this one is needed for what readers see; recovery rebuilds it after the stop. */
        int rc = pb_transaction_index_push(segment, &entry);
        PB_ASSERT(rc == 0);
    }
    segment->size_bytes += append->length;
    log->written_end = place->last_offset + 1;
}

static void fail_all(pb_link *appends, int error, pb_link *finished)
{
    pb_link *link;
    while ((link = pb_list_pop_front(appends)) != NULL) {
        PB_CONTAINER(link, pb_append, link)->error = error;
        pb_list_push_back(finished, link);
    }
}

void pb_log_write_end(pb_log *log, pb_log_write *write, int64_t result, pb_link *finished)
{
    PB_ASSERT(log->writing && result <= write->length);
    log->writing = false;
    int64_t done = 0;
    const pb_append *first = PB_CONTAINER(log->in_flight.next, pb_append, link);
    if (log->rolling != NULL && result >= first->length) {
        pb_log_publish_segment(log, log->rolling);
        log->rolling = NULL;
    }
    pb_segment *segment = pb_log_active(log);
    while (!pb_list_empty(&log->in_flight)) {
        pb_append *append = PB_CONTAINER(log->in_flight.next, pb_append, link);
        if (done + append->length > result)
            break;
        done += append->length;
        finish_append(log, segment, append);
        pb_list_remove(&append->link);
        pb_list_push_back(finished, &append->link);
    }
    if (done > 0) {
        segment->modified_ms = log->io->ops->wall_ms(log->io);
        pb_log_add_write_hint(log, segment->base_offset, log->written_end, segment->size_bytes);
    }
    if (done == write->length)
        return;
    log->broken = true;
    /* A file takes only a part when there is no room for the rest. */
    int error = result < 0 ? (int)result : -ENOSPC;
    fail_all(&log->in_flight, error, finished);
    fail_all(&log->queue, error, finished);
}

bool pb_log_has_queued(const pb_log *log)
{
    return !pb_list_empty(&log->queue);
}

bool pb_log_needs_repair(const pb_log *log)
{
    return log->broken;
}
