/*
 * Building the indexes of a sealed segment anew while the log is in use; see scrub.h. Blocking, off the reactors. A
 * failure leaves each of the files as it was, or new and whole.
 */
#include <errno.h>
#include <stdlib.h>

#include "log/change/scrub.h"
#include "log/recover/mark.h"
#include "log/recover/recovery.h"
#include "log/segment/scan.h"
#include "log/state.h"

static const pb_file_kind REBUILT[] = {PB_FILE_OFFSET_INDEX, PB_FILE_TIME_INDEX};
enum { REBUILT_COUNT = 2 };
static const char UNFINISHED[] = ".tmp";

/* Fill `scratch`, which stands for the segment, with index entries of every intact batch. */
static int fill_indexes(pb_log *log, pb_segment *scratch, int file)
{
    uint8_t *buffer = malloc(PB_SCAN_LARGE_BYTES);
    if (buffer == NULL)
        return -ENOMEM;
    pb_replay replay = {
        .log = log,
        .segment = scratch,
        .file = file,
        .direct = -1,
        .file_bytes = scratch->size_bytes,
        .next_offset = scratch->base_offset,
        .first_timestamp_ms = -1,
        .old_magic_offset = -1,
        .flags = PB_REPLAY_CRC | PB_REPLAY_INDEXES,
        .buffer = buffer,
        .buffer_bytes = PB_SCAN_LARGE_BYTES,
    };
    int moved = 1;
    int rc = 0;
    while (rc == 0 && moved > 0) {
        rc = pb_replay_run(&replay);
        pb_damage damage;
        moved = rc == 0 && replay.position < replay.file_bytes ? pb_replay_skip(&replay, INT64_MAX, &damage) : 0;
    }
    free(buffer);
    if (rc == 0)
        rc = moved < 0 ? moved : pb_segment_seal_time_index(scratch);
    return rc;
}

static int write_file(pb_io *io, const char *path, const pb_index_buffer *index, uint32_t entry_bytes)
{
    int file = io->ops->file_open(io, path, PB_OPEN_WRITE | PB_OPEN_CREATE | PB_OPEN_TRUNCATE);
    if (file < 0)
        return file;
    struct iovec iov = {index->pending, (size_t)index->pending_count * entry_bytes};
    int rc = index->pending_count > 0 ? pb_io_write_all(io, file, &iov, 1, 0) : 0;
    if (rc == 0)
        rc = io->ops->file_sync(io, file);
    int close_rc = io->ops->file_close(io, file);
    return rc != 0 ? rc : close_rc;
}

/* Write the new files beside the old ones. `unfinished` are their names then. */
static int write_files(pb_log *log, pb_segment *scratch, char unfinished[REBUILT_COUNT][PB_LOG_PATH_BYTES])
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < REBUILT_COUNT; i++) {
        uint32_t entry_bytes;
        const pb_index_buffer *index = pb_segment_index(scratch, REBUILT[i], &entry_bytes);
        rc = pb_segment_path(unfinished[i], log->directory, scratch->base_offset, REBUILT[i], UNFINISHED);
        if (rc == 0)
            rc = write_file(log->io, unfinished[i], index, entry_bytes);
    }
    return rc;
}

/* New files take the places of the old ones; counts[i] follows each that has. */
static int replace_files(pb_log *log, pb_segment *scratch, uint32_t counts[REBUILT_COUNT])
{
    char unfinished[REBUILT_COUNT][PB_LOG_PATH_BYTES] = {0};
    int rc = write_files(log, scratch, unfinished);
    for (int i = 0; rc == 0 && i < REBUILT_COUNT; i++) {
        char path[PB_LOG_PATH_BYTES];
        uint32_t entry_bytes;
        rc = pb_segment_path(path, log->directory, scratch->base_offset, REBUILT[i], "");
        if (rc == 0)
            rc = log->io->ops->rename(log->io, unfinished[i], path);
        if (rc == 0)
            counts[i] = pb_segment_index(scratch, REBUILT[i], &entry_bytes)->pending_count;
    }
    if (rc == 0)
        return log->io->ops->directory_sync(log->io, log->directory);
    for (int i = 0; i < REBUILT_COUNT; i++) /* those that are there still */
        (void)log->io->ops->unlink(log->io, unfinished[i]);
    return rc;
}

/* Readers go by how many entries the files have: none while they are replaced. false: not this log's any more. */
static bool withdraw(pb_log *log, const pb_log_guard *guard, pb_segment *segment, int64_t size_bytes,
                     uint32_t counts[REBUILT_COUNT])
{
    pb_log_lock(guard);
    int index = pb_log_segment_floor(log, segment->base_offset);
    bool current = index >= 0 && (uint32_t)index + 1 < log->segment_count && log->segments[index] == segment &&
                   segment->indexes == PB_SYNCED && segment->size_bytes == size_bytes;
    for (int i = 0; current && i < REBUILT_COUNT; i++) {
        uint32_t entry_bytes;
        pb_index_buffer *buffer = pb_segment_index(segment, REBUILT[i], &entry_bytes);
        counts[i] = buffer->flushed_count;
        buffer->flushed_count = 0;
    }
    pb_log_unlock(guard);
    return current;
}

/* `rebuilt` has what the time index ends with now; NULL: it was not replaced. */
static void publish(const pb_log_guard *guard, pb_segment *segment, const pb_segment *rebuilt,
                    const uint32_t counts[REBUILT_COUNT])
{
    pb_log_lock(guard);
    if (rebuilt != NULL) {
        segment->largest_timestamp_ms = rebuilt->largest_timestamp_ms;
        segment->largest_timestamp_offset = rebuilt->largest_timestamp_offset;
        segment->last_time_entry_ms = rebuilt->last_time_entry_ms;
    }
    for (int i = 0; i < REBUILT_COUNT; i++) {
        uint32_t entry_bytes;
        pb_segment_index(segment, REBUILT[i], &entry_bytes)->flushed_count = counts[i];
    }
    pb_log_unlock(guard);
}

int pb_log_rebuild_indexes(pb_log *log, const pb_log_guard *guard, pb_segment *segment)
{
    pb_segment *scratch = pb_segment_new(log->io, log->directory, segment->base_offset);
    uint32_t counts[REBUILT_COUNT];
    int file = -1;
    int rc = scratch == NULL ? -ENOMEM : pb_log_open_segment(log, guard, segment, &file);
    if (rc == 0) {
        pb_log_lock(guard);
        scratch->size_bytes = segment->size_bytes;
        pb_log_unlock(guard);
        rc = fill_indexes(log, scratch, file);
    }
    if (rc == 0)
        rc = pb_log_begin_maintenance(log, guard);
    bool holds_token = rc == 0;
    /* The mark counts entries of files that are replaced. */
    if (rc == 0 && log->marked_offset >= 0 && log->marked_base == segment->base_offset)
        rc = pb_log_drop_mark(log);
    if (rc == 0)
        rc = withdraw(log, guard, segment, scratch->size_bytes, counts) ? 0 : -ESTALE;
    if (rc == 0) {
        rc = replace_files(log, scratch, counts);
        publish(guard, segment, rc == 0 ? scratch : NULL, counts);
    }
    if (scratch != NULL)
        pb_segment_release(scratch);
    if (holds_token)
        pb_log_end_maintenance(log, guard);
    return rc;
}
