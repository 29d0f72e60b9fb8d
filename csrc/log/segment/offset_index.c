/*
 * The offset index. Locks as said in offset_index.h; a file that cannot be read is an error, one that lies is rebuilt
 * at open.
 */
#include "log/segment/offset_index.h"

#include <errno.h>

#include "base/assert.h"
#include "record/bytes.h"

int pb_offset_index_push(pb_segment *segment, int64_t last_offset, int64_t position)
{
    PB_ASSERT(last_offset >= segment->base_offset && last_offset - segment->base_offset <= INT32_MAX);
    PB_ASSERT(position >= 0 && position <= INT32_MAX);
    uint8_t entry[PB_OFFSET_INDEX_ENTRY_BYTES];
    pb_be32_store(entry, (uint32_t)(last_offset - segment->base_offset));
    pb_be32_store(entry + 4, (uint32_t)position);
    segment->indexes = PB_UNSAVED;
    return pb_index_push(&segment->offset_index, entry, sizeof(entry));
}

bool pb_offset_index_find_pending(const pb_segment *segment, int64_t offset, int64_t *position)
{
    const pb_index_buffer *index = &segment->offset_index;
    uint32_t found = pb_index_search(index->pending, index->pending_count, PB_OFFSET_INDEX_ENTRY_BYTES, 4,
                                     offset - segment->base_offset);
    if (found == 0)
        return false;
    *position = pb_be32_load(index->pending + (size_t)(found - 1) * PB_OFFSET_INDEX_ENTRY_BYTES + 4);
    return true;
}

int pb_offset_index_find_flushed(pb_segment *segment, uint32_t flushed_count, int64_t offset, int64_t *position)
{
    *position = 0;
    if (flushed_count == 0)
        return 0;
    int file = pb_segment_open(segment, PB_FILE_OFFSET_INDEX);
    if (file < 0)
        return file;
    uint8_t entry[PB_OFFSET_INDEX_ENTRY_BYTES];
    int64_t found =
        pb_index_search_file(segment->io, file, flushed_count, sizeof(entry), 4, offset - segment->base_offset, entry);
    if (found > 0)
        *position = pb_be32_load(entry + 4);
    segment->io->ops->file_close(segment->io, file);
    /* The file may have been built again since, with fewer entries. */
    if (found == -ENODATA)
        return 0;
    return found < 0 ? (int)found : 0;
}

bool pb_offset_index_sane(pb_segment *segment, int file, int64_t file_bytes, int64_t log_bytes)
{
    if (file_bytes % PB_OFFSET_INDEX_ENTRY_BYTES != 0 || file_bytes / PB_OFFSET_INDEX_ENTRY_BYTES > INT32_MAX)
        return false;
    if (file_bytes == 0)
        return true;
    uint8_t last[PB_OFFSET_INDEX_ENTRY_BYTES];
    if (pb_io_read_all(segment->io, file, last, sizeof(last), file_bytes - (int64_t)sizeof(last)) != 0)
        return false;
    /* A file that was preallocated and not cut ends in zeros: its last entry says offset 0, position 0. */
    uint32_t offset = pb_be32_load(last);
    uint32_t position = pb_be32_load(last + 4);
    return offset <= INT32_MAX && (int64_t)position < log_bytes && (position > 0 || file_bytes == sizeof(last));
}
