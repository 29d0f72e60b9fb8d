/*
 * The time index. Locks as said in time_index.h.
 */
#include "log/segment/time_index.h"

#include <errno.h>

#include "base/assert.h"
#include "record/bytes.h"

static pb_time_entry entry_decode(const pb_segment *segment, const uint8_t *entry)
{
    return (pb_time_entry){(int64_t)pb_be64_load(entry), segment->base_offset + pb_be32_load(entry + 8)};
}

int pb_time_index_maybe_push(pb_segment *segment, int64_t timestamp_ms, int64_t offset)
{
    if (timestamp_ms <= segment->last_time_entry_ms)
        return 0;
    PB_ASSERT(offset >= segment->base_offset && offset - segment->base_offset <= INT32_MAX);
    uint8_t entry[PB_TIME_INDEX_ENTRY_BYTES];
    pb_be64_store(entry, (uint64_t)timestamp_ms);
    pb_be32_store(entry + 8, (uint32_t)(offset - segment->base_offset));
    int rc = pb_index_push(&segment->time_index, entry, sizeof(entry));
    segment->indexes = PB_UNSAVED;
    if (rc == 0)
        segment->last_time_entry_ms = timestamp_ms;
    return rc;
}

bool pb_time_index_find_pending(const pb_segment *segment, int64_t timestamp_ms, pb_time_entry *out)
{
    const pb_index_buffer *index = &segment->time_index;
    uint32_t found = pb_index_search(index->pending, index->pending_count, PB_TIME_INDEX_ENTRY_BYTES, 8, timestamp_ms);
    if (found == 0)
        return false;
    *out = entry_decode(segment, index->pending + (size_t)(found - 1) * PB_TIME_INDEX_ENTRY_BYTES);
    return true;
}

int pb_time_index_find_flushed(pb_segment *segment, uint32_t flushed_count, int64_t timestamp_ms, pb_time_entry *out)
{
    *out = (pb_time_entry){-1, segment->base_offset};
    if (flushed_count == 0)
        return 0;
    int file = pb_segment_open(segment, PB_FILE_TIME_INDEX);
    if (file < 0)
        return file;
    uint8_t entry[PB_TIME_INDEX_ENTRY_BYTES];
    int64_t found = pb_index_search_file(segment->io, file, flushed_count, sizeof(entry), 8, timestamp_ms, entry);
    if (found > 0)
        *out = entry_decode(segment, entry);
    segment->io->ops->file_close(segment->io, file);
    /* The file may have been built again since, with fewer entries. */
    if (found == -ENODATA)
        return 0;
    return found < 0 ? (int)found : 0;
}

bool pb_time_index_sane(pb_segment *segment, int file, int64_t file_bytes, pb_time_entry *last)
{
    *last = (pb_time_entry){-1, segment->base_offset};
    if (file_bytes % PB_TIME_INDEX_ENTRY_BYTES != 0 || file_bytes / PB_TIME_INDEX_ENTRY_BYTES > INT32_MAX)
        return false;
    if (file_bytes == 0)
        return true;
    uint8_t entry[PB_TIME_INDEX_ENTRY_BYTES];
    if (pb_io_read_all(segment->io, file, entry, sizeof(entry), 0) != 0)
        return false;
    pb_time_entry first = entry_decode(segment, entry);
    if (pb_io_read_all(segment->io, file, entry, sizeof(entry), file_bytes - (int64_t)sizeof(entry)) != 0)
        return false;
    *last = entry_decode(segment, entry);
    return last->timestamp_ms >= first.timestamp_ms && first.timestamp_ms >= 0 && last->offset >= first.offset &&
           pb_be32_load(entry + 8) <= INT32_MAX;
}
