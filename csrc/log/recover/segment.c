/*
 * One segment's files, as recovery needs them: its .log opened and closed, its indexes loaded, written and forgotten;
 * see state.h. One thread that has the log to itself.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "log/recover/state.h"
#include "log/segment/offset_index.h"
#include "log/segment/time_index.h"
#include "log/segment/transaction_index.h"

int pb_recovery_fail_segment(pb_recovery *r, const pb_segment *segment, int code, const char *what)
{
    return pb_fail(r->failure, code, "%s %s/%020lld.log", what, r->log->directory, (long long)segment->base_offset);
}

void pb_recovery_close_file(pb_segment *segment)
{
    if (segment->file >= 0)
        segment->io->ops->file_close(segment->io, segment->file);
    segment->file = -1;
}

int pb_recovery_open_file(pb_recovery *r, pb_segment *segment)
{
    pb_recovery_close_file(segment);
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, segment->directory, segment->base_offset, PB_FILE_LOG, "");
    int file = rc == 0 ? segment->io->ops->file_open(segment->io, path, PB_OPEN_WRITE) : rc;
    if (file < 0)
        return pb_recovery_fail_segment(r, segment, file, "cannot open");
    segment->file = file;
    return 0;
}

/* -ENOENT when there is no such file. */
static int open_index(pb_segment *segment, pb_file_kind kind, int64_t *file_bytes)
{
    char path[PB_LOG_PATH_BYTES];
    *file_bytes = 0;
    int rc = pb_segment_path(path, segment->directory, segment->base_offset, kind, "");
    if (rc != 0)
        return rc;
    int file = segment->io->ops->file_open(segment->io, path, PB_OPEN_READ);
    if (file < 0)
        return file;
    *file_bytes = segment->io->ops->file_size(segment->io, file);
    if (*file_bytes >= 0)
        return file;
    segment->io->ops->file_close(segment->io, file);
    return (int)*file_bytes;
}

/* Does the transaction index that lies in `file_bytes` speak of this segment, which ends before `end_offset`? */
static bool transactions_sane(pb_segment *segment, int64_t file_bytes, int64_t end_offset)
{
    uint32_t count = (uint32_t)(file_bytes / PB_TRANSACTION_INDEX_ENTRY_BYTES);
    pb_transaction_entry *entries;
    if (file_bytes % PB_TRANSACTION_INDEX_ENTRY_BYTES != 0 || pb_transaction_index_load(segment, count, &entries) != 0)
        return false;
    bool good = count == 0 || entries[count - 1].last_offset < end_offset;
    free(entries);
    segment->transaction_index.flushed_count = good ? count : 0;
    return good;
}

/* True for files that were made with their segment and never written. Files that were written have at least the entry
 * that sealing gives to the newest record, unless no record has a timestamp. A segment without timestamps is read again
 * at each start. It is short, because no entry of its offset index was due. */
static bool never_written(const pb_segment *segment, int64_t log_bytes)
{
    return log_bytes > 0 && segment->offset_index.flushed_count == 0 && segment->time_index.flushed_count == 0;
}

/* Loads what the files of the offset and the time index tell. */
static bool load_entries(pb_segment *segment, int64_t log_bytes, int64_t end_offset)
{
    pb_io *io = segment->io;
    int64_t file_bytes;
    int file = open_index(segment, PB_FILE_OFFSET_INDEX, &file_bytes);
    bool good = file >= 0 && pb_offset_index_sane(segment, file, file_bytes, log_bytes);
    if (file >= 0)
        io->ops->file_close(io, file);
    if (!good)
        return false;
    segment->offset_index.flushed_count = (uint32_t)(file_bytes / PB_OFFSET_INDEX_ENTRY_BYTES);
    pb_time_entry last;
    file = open_index(segment, PB_FILE_TIME_INDEX, &file_bytes);
    good = file >= 0 && pb_time_index_sane(segment, file, file_bytes, &last) && last.offset < end_offset;
    if (file >= 0)
        io->ops->file_close(io, file);
    if (!good)
        return false;
    segment->time_index.flushed_count = (uint32_t)(file_bytes / PB_TIME_INDEX_ENTRY_BYTES);
    segment->largest_timestamp_ms = last.timestamp_ms;
    segment->largest_timestamp_offset = last.offset;
    segment->last_time_entry_ms = last.timestamp_ms;
    return true;
}

static bool load_transactions(pb_segment *segment, int64_t end_offset)
{
    int64_t file_bytes;
    int file = open_index(segment, PB_FILE_TRANSACTION_INDEX, &file_bytes);
    if (file >= 0)
        segment->io->ops->file_close(segment->io, file);
    return file == -ENOENT || (file >= 0 && transactions_sane(segment, file_bytes, end_offset));
}

bool pb_recovery_load_indexes(pb_recovery *r, pb_segment *segment, int64_t end_offset)
{
    bool whole = load_entries(segment, segment->size_bytes, end_offset);
    bool written = !(whole && never_written(segment, segment->size_bytes));
    if (whole && written && load_transactions(segment, end_offset)) {
        segment->indexes = PB_SYNCED;
        return true;
    }
    if (written && segment->size_bytes > 0 && r->report->unsound_index_count++ == 0)
        r->report->unsound_index_segment = segment->base_offset;
    return false;
}

static int store_index(pb_segment *segment, pb_file_kind kind, bool sync)
{
    uint32_t entry_bytes;
    pb_index_buffer *index = pb_segment_index(segment, kind, &entry_bytes);
    PB_ASSERT(index->flushed_count == 0);
    bool needs_no_file = kind == PB_FILE_TRANSACTION_INDEX && index->pending_count == 0;
    int rc = needs_no_file ? pb_segment_unlink_index(segment, kind)
                           : pb_segment_write_index(segment, kind, index->pending, index->pending_count, 0, sync);
    if (rc == 0)
        pb_index_flushed(index, index->pending_count, entry_bytes);
    return rc;
}

static int store_indexes(const pb_recovery *r, pb_segment *segment)
{
    bool sync = segment->base_offset < r->trusted_offset;
    int rc = pb_segment_seal_time_index(segment);
    /* First that of which nobody can tell that it is missing. */
    if (rc == 0)
        rc = store_index(segment, PB_FILE_TRANSACTION_INDEX, sync);
    if (rc == 0 && sync && segment->transaction_index.flushed_count > 0)
        rc = segment->io->ops->directory_sync(segment->io, segment->directory);
    if (rc == 0)
        rc = store_index(segment, PB_FILE_TIME_INDEX, sync);
    if (rc == 0)
        rc = store_index(segment, PB_FILE_OFFSET_INDEX, sync);
    segment->indexes = rc != 0 ? PB_UNSAVED : sync ? PB_SYNCED : PB_SAVED;
    return rc;
}

int pb_recovery_store_indexes(const pb_recovery *r, pb_segment *segment)
{
    int rc = store_indexes(r, segment);
    /* A file that was written in part must not pass for a whole one: without its offset index nothing of a segment is
     * trusted by the next opening. */
    return pb_error_is_full(rc) ? pb_segment_unlink_index(segment, PB_FILE_OFFSET_INDEX) : rc;
}

void pb_recovery_write_active(pb_segment *segment)
{
    /* Files that were written have the entry of the newest record: the next opening may trust them without a scan. */
    if (pb_segment_seal_time_index(segment) != 0)
        return;
    /* It may have been a sealed one until what followed was cut off: then a part is in the files. */
    for (int kind = PB_FILE_OFFSET_INDEX; kind <= PB_FILE_TIME_INDEX; kind++) {
        uint32_t entry_bytes;
        pb_index_buffer *index = pb_segment_index(segment, (pb_file_kind)kind, &entry_bytes);
        if (pb_segment_write_index(segment, (pb_file_kind)kind, index->pending, index->pending_count,
                                   index->flushed_count, false) == 0)
            pb_index_flushed(index, index->pending_count, entry_bytes);
    }
}

void pb_recovery_reset_indexes(pb_recovery *r, pb_segment *segment)
{
    pb_index_clear(&segment->offset_index);
    pb_index_clear(&segment->time_index);
    pb_index_clear(&segment->transaction_index);
    segment->largest_timestamp_ms = -1;
    segment->largest_timestamp_offset = segment->base_offset;
    segment->last_time_entry_ms = -1;
    segment->indexes = PB_UNSAVED;
    r->report->rebuilt_index_count++;
}
