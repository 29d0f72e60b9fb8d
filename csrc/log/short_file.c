/*
 * Sealed segments whose file ends before they do, as something else has cut it. Nothing is written there any more, so
 * what is missing is remembered as damage (damage.h): its readers are told CORRUPT_MESSAGE, and all else is served. A
 * cut in the active segment is another matter: what is appended would lie behind a hole.
 */
#include <errno.h>

#include "base/assert.h"
#include "log/offset_index.h"
#include "log/scan.h"
#include "log/state.h"

/* What is looked for in a segment: under the lock, as the segment was. */
typedef struct short_view {
    int64_t size_bytes;
    int64_t end_offset;
    uint32_t flushed_count;
    int64_t position; /* behind what is known to be damaged; a batch begins there */
    int64_t offset;   /* it has no lower one */
} short_view;

/* 0, or -ENODATA: it is the active segment, or none of the log's any more. [lock] */
static int look(const pb_log *log, const pb_segment *segment, short_view *view)
{
    int index = pb_log_segment_floor(log, segment->base_offset);
    if (index < 0 || log->segments[index] != segment || (uint32_t)index + 1 == log->segment_count)
        return -ENODATA;
    *view = (short_view){
        .size_bytes = segment->size_bytes,
        .end_offset = pb_log_segment_end(log, (uint32_t)index),
        .flushed_count = segment->offset_index.flushed_count,
        .offset = segment->base_offset,
    };
    const pb_damage *last = segment->damage_count > 0 ? &segment->damages[segment->damage_count - 1] : NULL;
    if (last != NULL) {
        view->position = last->end_position;
        view->offset = last->end_offset;
    }
    return 0;
}

/* Walk over the whole batches of a file of `file_bytes`: where they end, and the offset that follows. 0 or -errno. */
static int walk_whole(pb_segment *segment, int file, int64_t file_bytes, pb_damage *damage)
{
    uint8_t buffer[PB_SCAN_SMALL_BYTES];
    pb_scan scan;
    pb_batch_header header;
    int rc = 0;
    pb_scan_init(&scan, segment->io, file, file_bytes, buffer, sizeof(buffer));
    while (damage->position < file_bytes && (rc = pb_scan_header(&scan, damage->position, &header)) == 0 &&
           header.size_bytes > 0) {
        damage->position += header.size_bytes;
        damage->offset = pb_batch_last_offset(&header) + 1;
    }
    return rc < 0 ? rc : 0;
}

/* Does a whole batch with an offset of [view->offset, offset] begin at `position`? Then *damage begins there or later.
 */
static bool is_whole_at(pb_segment *segment, int file, int64_t file_bytes, const short_view *view, int64_t offset,
                        int64_t position, pb_damage *damage)
{
    uint8_t buffer[PB_BATCH_HEADER_BYTES];
    pb_scan scan;
    pb_batch_header header;
    pb_scan_init(&scan, segment->io, file, file_bytes, buffer, sizeof(buffer));
    if (position >= file_bytes || pb_scan_header(&scan, position, &header) != 0 || header.size_bytes == 0 ||
        header.base_offset < view->offset || header.base_offset > offset)
        return false;
    *damage = (pb_damage){.position = position, .offset = header.base_offset};
    return true;
}

/* A segment may have a million batches. Begin at the last of them that the index knows to be whole. */
static void begin_late(pb_segment *segment, int file, int64_t file_bytes, const short_view *view, pb_damage *damage)
{
    int64_t low = view->offset;
    int64_t high = view->end_offset;
    while (high - low > 1) {
        int64_t offset = low + (high - low) / 2;
        int64_t position;
        if (pb_offset_index_find_flushed(segment, view->flushed_count, offset, &position) != 0)
            return;
        if (position <= view->position || is_whole_at(segment, file, file_bytes, view, offset, position, damage))
            low = offset;
        else
            high = offset;
    }
}

int pb_log_note_short_file(pb_log *log, const pb_log_guard *guard, pb_segment *segment)
{
    short_view view;
    int file;
    pb_log_lock(guard);
    int rc = look(log, segment, &view);
    pb_log_unlock(guard);
    if (rc == 0)
        rc = pb_log_open_segment(log, guard, segment, &file);
    if (rc != 0)
        return rc;
    int64_t file_bytes = log->io->ops->file_size(log->io, file);
    if (file_bytes < 0)
        return (int)file_bytes;
    if (file_bytes >= view.size_bytes)
        return -ENODATA;
    if (view.position >= view.size_bytes)
        return 1; /* what is missing is known to be damaged */
    pb_damage damage = {.position = view.position, .offset = view.offset};
    begin_late(segment, file, file_bytes, &view, &damage);
    rc = walk_whole(segment, file, file_bytes, &damage);
    if (rc != 0)
        return rc;
    damage.end_position = view.size_bytes;
    damage.end_offset = view.end_offset;
    PB_ASSERT(damage.position < damage.end_position);
    if (damage.offset > damage.end_offset)
        damage.offset = damage.end_offset;
    short_view now;
    pb_log_lock(guard);
    rc = look(log, segment, &now);
    if (rc == 0)
        rc = now.size_bytes != view.size_bytes ? -ENODATA : pb_segment_add_damage(segment, &damage);
    pb_log_unlock(guard);
    return rc;
}
