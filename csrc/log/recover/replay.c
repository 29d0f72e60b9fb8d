/*
 * Replaying batches: what a log derives from them (indexes, epochs, producer state) is built again from the file.
 * One thread that has the log to itself.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/derived/producer_snapshot.h"
#include "log/recover/recovery.h"
#include "log/segment/offset_index.h"
#include "log/segment/scan.h"
#include "log/segment/time_index.h"
#include "log/segment/transaction_index.h"

enum { MARKER_BYTES = 1024 };

static int replay_producer(pb_replay *replay, pb_scan *scan, const pb_batch_header *header)
{
    if (header->producer_id < 0)
        return 0;
    pb_producer_append append = {
        .producer_id = header->producer_id,
        .base_offset = header->base_offset,
        .last_offset = pb_batch_last_offset(header),
        .max_timestamp_ms = header->max_timestamp,
        .base_sequence = header->base_sequence,
        .record_count = header->last_offset_delta + 1,
        .epoch = header->producer_epoch,
        .is_transactional = pb_batch_is_transactional(header),
    };
    if (pb_batch_is_control(header)) {
        const uint8_t *bytes;
        size_t length;
        size_t wanted = header->size_bytes < MARKER_BYTES ? header->size_bytes : MARKER_BYTES;
        int rc = pb_scan_bytes(scan, replay->position, wanted, &bytes, &length);
        if (rc != 0)
            return rc;
        append.is_marker = pb_marker_parse(bytes + PB_BATCH_HEADER_BYTES, length - PB_BATCH_HEADER_BYTES,
                                           &append.aborts, &append.coordinator_epoch);
        if (!append.is_marker)
            return 0;
    }
    pb_completed_transaction completed;
    int rc = pb_producers_apply(&replay->log->producers, &append, &completed);
    if (rc != 0 || !completed.completed || !append.aborts || (replay->flags & PB_REPLAY_INDEXES) == 0)
        return rc;
    pb_transaction_entry entry = {append.producer_id, completed.first_offset, append.last_offset,
                                  completed.last_stable_offset};
    return pb_transaction_index_push(replay->segment, &entry);
}

static int replay_batch(pb_replay *replay, pb_scan *scan, const pb_batch_header *header)
{
    pb_segment *segment = replay->segment;
    int64_t last_offset = pb_batch_last_offset(header);
    int rc = 0;
    if (replay->position == 0) /* a roll by time counts from this batch, or from the clock if it has no timestamp */
        replay->first_timestamp_ms = header->max_timestamp;
    if (header->magic != PB_BATCH_MAGIC && replay->old_magic_offset < 0)
        replay->old_magic_offset = header->base_offset;
    if ((replay->flags & PB_REPLAY_INDEXES) != 0) {
        if (header->max_timestamp > segment->largest_timestamp_ms) {
            segment->largest_timestamp_ms = header->max_timestamp;
            segment->largest_timestamp_offset = last_offset;
        }
        if (replay->position - replay->indexed_position > replay->log->config.index_interval_bytes) {
            replay->indexed_position = replay->position;
            rc = pb_offset_index_push(segment, last_offset, replay->position);
            if (rc == 0)
                rc =
                    pb_time_index_maybe_push(segment, segment->largest_timestamp_ms, segment->largest_timestamp_offset);
        }
    }
    if (rc == 0 && (replay->flags & PB_REPLAY_EPOCHS) != 0 && header->magic == PB_BATCH_MAGIC)
        rc = pb_leader_epochs_replay(&replay->log->epochs, header->partition_leader_epoch, header->base_offset);
    if (rc == 0 && (replay->flags & PB_REPLAY_PRODUCERS) != 0)
        rc = replay_producer(replay, scan, header);
    return rc;
}

/* Only compaction takes records out of a batch, or batches out of a segment. */
static bool has_gap(const pb_replay *replay, const pb_batch_header *header)
{
    return header->base_offset > replay->next_offset ||
           (header->magic == PB_BATCH_MAGIC && header->record_count <= header->last_offset_delta);
}

int pb_replay_skip(pb_replay *replay, int64_t most_offset, pb_damage *damage)
{
    pb_scan scan;
    pb_scan_init(&scan, replay->log->io, replay->file, replay->file_bytes, replay->buffer, replay->buffer_bytes);
    int64_t last_possible = replay->segment->base_offset + INT32_MAX;
    pb_scan_range range = {.least_offset = replay->next_offset,
                           .most_offset = most_offset < last_possible ? most_offset : last_possible,
                           .most_bytes = INT64_MAX};
    pb_batch_header next;
    *damage = (pb_damage){.position = replay->position,
                          .end_position = replay->file_bytes,
                          .offset = replay->next_offset,
                          .end_offset = replay->next_offset};
    int rc = pb_scan_skip(&scan, replay->position, &range, &damage->end_position, &next);
    if (rc != 0)
        return rc;
    if (next.size_bytes == 0) {
        damage->end_position = replay->file_bytes;
        return 0;
    }
    damage->end_offset = next.base_offset;
    replay->position = damage->end_position;
    replay->next_offset = next.base_offset;
    /* Readers of what follows must not have to walk over the damage. */
    replay->indexed_position = INT64_MIN / 2;
    return 1;
}

int pb_replay_run(pb_replay *replay)
{
    pb_scan scan;
    pb_scan_init(&scan, replay->log->io, replay->file, replay->file_bytes, replay->buffer, replay->buffer_bytes);
    if (replay->direct >= 0)
        pb_scan_past_cache(&scan, replay->direct);
    bool newest_seen = replay->newest_seen;
    /* An index has four bytes for a position. */
    while (replay->position < replay->file_bytes && replay->position <= INT32_MAX) {
        pb_batch_header header;
        int rc = pb_scan_header(&scan, replay->position, &header);
        if (rc < 0)
            return rc;
        if (rc > 0 || header.size_bytes == 0)
            return 0;
        int64_t last_offset = pb_batch_last_offset(&header);
        /* A walk that does not begin at the segment's start passes over what it has seen. */
        bool seen = last_offset < replay->next_offset;
        if (seen && (replay->flags & PB_REPLAY_CRC) != 0)
            return 0;
        if (header.base_offset < replay->segment->base_offset || last_offset - replay->segment->base_offset > INT32_MAX)
            return 0;
        /* Nobody goes back to an older magic: a torn header, whose second part was never written, reads as magic 0. */
        if ((replay->flags & PB_REPLAY_CRC) != 0 && header.magic != PB_BATCH_MAGIC && newest_seen)
            return 0;
        newest_seen = newest_seen || header.magic == PB_BATCH_MAGIC;
        bool good = true;
        if ((replay->flags & PB_REPLAY_CRC) != 0 && header.magic == PB_BATCH_MAGIC)
            rc = pb_scan_crc(&scan, replay->position, &header, &good);
        if (rc == 0 && good && !seen)
            rc = replay_batch(replay, &scan, &header);
        if (rc != 0 || !good)
            return rc;
        replay->gaps_seen = replay->gaps_seen || has_gap(replay, &header);
        replay->position += header.size_bytes;
        if (!seen)
            replay->next_offset = last_offset + 1;
    }
    return 0;
}

/* The segment of the log start offset. Some segments below it may be gone already, and others come back after a power
 * cut, so nobody knows how producers went on there. */
static int64_t oldest_known_offset(const pb_log *log)
{
    int index = pb_log_segment_floor(log, log->start_offset);
    return log->segments[index < 0 ? 0 : index]->base_offset;
}

/* The newest snapshot at or below end_offset that is good; damaged ones are unlinked. *offset -1: none. */
static int load_snapshot(pb_log *log, pb_producers *producers, int64_t end_offset, int64_t *offset, pb_failure *failure)
{
    pb_offsets snapshots = {0};
    int rc = pb_directory_snapshots(log, &snapshots, failure);
    int64_t oldest = oldest_known_offset(log);
    *offset = -1;
    for (uint32_t i = snapshots.count; rc == 0 && i > 0 && *offset < 0; i--) {
        int64_t candidate = snapshots.values[i - 1];
        if (candidate > end_offset || candidate < oldest)
            continue;
        rc = pb_producer_snapshot_load(log->io, log->directory, candidate, producers, log->io->ops->wall_ms(log->io),
                                       log->config.producer_expiration_ms);
        if (rc == 0) {
            *offset = candidate;
        } else if (rc == -EBADMSG) {
            char path[PB_LOG_PATH_BYTES];
            rc = pb_segment_path(path, log->directory, candidate, PB_FILE_SNAPSHOT, "");
            if (rc == 0)
                rc = log->io->ops->unlink(log->io, path);
        }
        if (rc != 0)
            rc = pb_log_fail(log, failure, rc, "cannot load a producer snapshot");
    }
    free(snapshots.values);
    return rc;
}

/* Into `beside`. */
static int replay_segment_producers(pb_log *log, const pb_log_guard *guard, pb_log *beside, uint32_t index,
                                    int64_t from, uint8_t *buffer)
{
    pb_segment *segment = log->segments[index];
    int file;
    pb_segment_retain(segment); /* or another thread, which opens one too many, closes its file */
    int rc = pb_log_open_segment(log, guard, segment, &file);
    if (rc != 0) {
        pb_segment_release(segment);
        return rc;
    }
    pb_replay replay = {
        .log = beside,
        .segment = segment,
        .file = file,
        .direct = -1,
        .file_bytes = segment->size_bytes,
        .next_offset = from,
        .first_timestamp_ms = -1,
        .old_magic_offset = -1,
        .flags = PB_REPLAY_PRODUCERS,
        .buffer = buffer,
        .buffer_bytes = PB_SCAN_LARGE_BYTES,
    };
    pb_scan scan;
    pb_scan_init(&scan, log->io, file, segment->size_bytes, buffer, PB_SCAN_LARGE_BYTES);
    if (from > segment->base_offset)
        rc = pb_offset_index_find_flushed(segment, segment->offset_index.flushed_count, from, &replay.position);
    if (rc == 0)
        rc = pb_scan_trust(&scan, segment->base_offset, from, &replay.position);
    /* Damage is passed over: its readers are told, and the producers behind it count. */
    int moved = 1;
    while (rc == 0 && moved > 0) {
        rc = pb_replay_run(&replay);
        pb_damage damage;
        moved = rc == 0 && replay.position < replay.file_bytes ? pb_replay_skip(&replay, INT64_MAX, &damage) : 0;
    }
    pb_segment_release(segment);
    return moved < 0 ? moved : rc;
}

int pb_replay_producers(pb_log *log, const pb_log_guard *guard, int64_t end_offset, pb_failure *failure)
{
    /* Readers go by the producers that are there until these are whole. */
    pb_log beside = {.io = log->io, .config = log->config};
    int64_t snapshot_offset;
    int rc = load_snapshot(log, &beside.producers, end_offset, &snapshot_offset, failure);
    /* Not from the log start offset: batches of its segment below it have moved their producers on. */
    int64_t from = snapshot_offset >= 0 ? snapshot_offset : oldest_known_offset(log);
    uint8_t *buffer = rc == 0 && from < end_offset ? malloc(PB_SCAN_LARGE_BYTES) : NULL;
    if (rc == 0 && from < end_offset && buffer == NULL)
        rc = pb_log_fail(log, failure, -ENOMEM, "cannot replay producer state");
    int first = pb_log_segment_floor(log, from);
    for (uint32_t i = first < 0 ? 0 : (uint32_t)first; rc == 0 && buffer != NULL && i < log->segment_count; i++) {
        if (log->segments[i]->base_offset >= end_offset)
            break;
        rc = replay_segment_producers(log, guard, &beside, i, from, buffer);
        if (rc != 0)
            rc = pb_log_fail(log, failure, rc, "cannot replay producer state");
    }
    free(buffer);
    if (rc == 0) {
        pb_log_lock(guard);
        pb_producers replaced = log->producers;
        log->producers = beside.producers;
        beside.producers = replaced;
        log->snapshot_offset = snapshot_offset;
        pb_log_unlock(guard);
    }
    pb_producers_clear(&beside.producers);
    return rc;
}
