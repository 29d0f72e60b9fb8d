/*
 * Damage that readers find in sealed segments: something else has cut the file, or the disk cannot read a part of it.
 * Nothing is written there any more, so what is lost is remembered as damage (damage.h): its readers are told
 * CORRUPT_MESSAGE, and all else is served. A cut in the active segment is another matter: what is appended would lie
 * behind a hole, so another segment is begun first (pb_partition_look_at_files). So is a disk that reads nothing at
 * all.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "log/segment/offset_index.h"
#include "log/segment/scan.h"
#include "log/state.h"

enum { SECTOR_BYTES = 512 };

/* A sealed segment as it was when the lock was held. */
typedef struct sealed_view {
    int64_t size_bytes;
    int64_t end_offset;
    uint32_t flushed_count;
    int64_t position; /* behind what is known to be damaged; a batch begins there */
    int64_t offset;   /* it has no lower one */
} sealed_view;

/* 0, or -ENODATA: it is the active segment, or none of the log's any more. [lock] */
static int look(const pb_log *log, const pb_segment *segment, sealed_view *view)
{
    int index = pb_log_segment_floor(log, segment->base_offset);
    if (index < 0 || log->segments[index] != segment || (uint32_t)index + 1 == log->segment_count)
        return -ENODATA;
    *view = (sealed_view){
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
static bool is_whole_at(pb_segment *segment, int file, int64_t file_bytes, const sealed_view *view, int64_t offset,
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
static void begin_late(pb_segment *segment, int file, int64_t file_bytes, const sealed_view *view, pb_damage *damage)
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

/* Remember damage of a segment that still is what it was. 0, 1 when it was known, or -errno. */
static int remember(const pb_log *log, const pb_log_guard *guard, pb_segment *segment, const sealed_view *view,
                    pb_damage *damage)
{
    PB_ASSERT(damage->position < damage->end_position);
    if (damage->offset > damage->end_offset)
        damage->offset = damage->end_offset;
    sealed_view now;
    pb_log_lock(guard);
    int rc = look(log, segment, &now);
    if (rc == 0)
        rc = now.size_bytes != view->size_bytes ? -ENODATA : pb_segment_add_damage(segment, damage);
    pb_log_unlock(guard);
    return rc;
}

static int open_view(pb_log *log, const pb_log_guard *guard, pb_segment *segment, sealed_view *view, int *file)
{
    pb_log_lock(guard);
    int rc = look(log, segment, view);
    pb_log_unlock(guard);
    return rc != 0 ? rc : pb_log_open_segment(log, guard, segment, file);
}

int pb_log_note_short_file(pb_log *log, const pb_log_guard *guard, pb_segment *segment)
{
    sealed_view view;
    int file;
    int rc = open_view(log, guard, segment, &view, &file);
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
    return remember(log, guard, segment, &view, &damage);
}

/* ---- what the disk cannot read ---- */

/* Asks whether the disk reads the file's first or last block, past the page cache, which may have anything. 0: it does.
 * -EIO: it does not. Another -errno: it could not be asked, which passes. */
static int ask_disk(pb_io *io, int file, int64_t size_bytes)
{
    uint8_t *block = aligned_alloc(PB_DIRECT_BLOCK_BYTES, PB_DIRECT_BLOCK_BYTES);
    if (block == NULL)
        return -ENOMEM;
    int direct = io->ops->file_reopen_direct(io, file);
    int64_t got = direct;
    if (direct >= 0) {
        got = io->ops->file_read(io, direct, block, PB_DIRECT_BLOCK_BYTES, 0);
        if (got <= 0)
            got = io->ops->file_read(io, direct, block, PB_DIRECT_BLOCK_BYTES, pb_block_floor(size_bytes - 1));
        (void)io->ops->file_close(io, direct);
    }
    free(block);
    if (got > 0)
        return 0;
    return got < 0 && pb_error_passes((int)got) ? (int)got : -EIO;
}

/* Read batch by batch, up to the one that cannot be read: -EIO, and where it begins. 0: all of them can be. */
static int walk_readable(pb_scan *scan, pb_damage *damage)
{
    int rc = 0;
    while (rc == 0 && damage->position < scan->limit) {
        pb_batch_header header;
        bool ignored;
        rc = pb_scan_header(scan, damage->position, &header);
        if (rc != 0 || header.size_bytes == 0)
            break;
        if (header.magic == PB_BATCH_MAGIC)
            rc = pb_scan_crc(scan, damage->position, &header, &ignored);
        if (rc != 0)
            break;
        damage->position += header.size_bytes;
        damage->offset = pb_batch_last_offset(&header) + 1;
    }
    return rc;
}

/* Where intact batches go on, from `ahead` behind the damage on. -EIO: it cannot be read there either. */
static int find_next(pb_scan *scan, const sealed_view *view, int64_t ahead, pb_damage *damage)
{
    const pb_scan_range range = {
        .least_offset = damage->offset, .most_offset = view->end_offset - 1, .most_bytes = INT64_MAX};
    pb_batch_header next;
    int64_t position;
    int rc = pb_scan_skip(scan, damage->position + ahead, &range, &position, &next);
    if (rc == 0 && next.size_bytes > 0) {
        damage->end_position = position;
        damage->end_offset = next.base_offset;
    }
    return rc;
}

/* Where the damage ends: looked for in strides that double, and then between the last two. A disk may take seconds for
 * each place that it cannot read. 0, or another -errno than -EIO. */
static int find_end(pb_scan *scan, const sealed_view *view, pb_damage *damage)
{
    int64_t left = view->size_bytes - damage->position;
    int64_t high = PB_DIRECT_BLOCK_BYTES;
    int rc = -EIO;
    damage->end_position = view->size_bytes;
    damage->end_offset = view->end_offset;
    while (high < left && (rc = find_next(scan, view, high, damage)) == -EIO)
        high *= 2;
    int64_t low = high / 2;
    if (high > left)
        high = left;
    while ((rc == 0 || rc == -EIO) && high - low > SECTOR_BYTES) {
        int64_t middle = low + (high - low) / 2;
        rc = find_next(scan, view, middle, damage);
        if (rc == -EIO)
            low = middle;
        else
            high = middle;
    }
    return rc == -EIO ? 0 : rc;
}

int pb_log_note_unreadable(pb_log *log, const pb_log_guard *guard, pb_segment *segment)
{
    sealed_view view;
    int file;
    int rc = open_view(log, guard, segment, &view, &file);
    if (rc == -ENODATA || (rc == 0 && view.position >= view.size_bytes))
        return -EIO;
    if (rc == 0)
        rc = ask_disk(log->io, file, view.size_bytes);
    if (rc != 0)
        return rc;
    uint8_t buffer[SECTOR_BYTES]; /* so that what lies beside it is not read with an intact batch */
    pb_scan scan;
    pb_damage damage = {.position = view.position, .offset = view.offset};
    pb_scan_init(&scan, log->io, file, view.size_bytes, buffer, sizeof(buffer));
    rc = walk_readable(&scan, &damage);
    if (rc != -EIO)
        return rc < 0 ? rc : -EIO; /* it can be read by now, or what cannot is not here */
    rc = find_end(&scan, &view, &damage);
    if (rc == 0)
        rc = remember(log, guard, segment, &view, &damage);
    return rc <= 0 ? rc : -EIO;
}
