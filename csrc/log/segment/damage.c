/*
 * Damaged ranges and the files that keep what was cut; see damage.h. The files are made by the one thread that opens
 * the log. When the disk has no room for them the log is not opened, because cutting it would lose them.
 */
#include "log/segment/damage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/segment/segment.h"

enum { KEPT_FILES_MAX = 100 };

int pb_segment_add_damage(pb_segment *segment, const pb_damage *damage)
{
    PB_ASSERT(damage->position >= 0 && damage->position < damage->end_position);
    PB_ASSERT(damage->offset <= damage->end_offset);
    uint32_t at = 0;
    while (at < segment->damage_count && segment->damages[at].position < damage->position)
        at++;
    if (at < segment->damage_count && segment->damages[at].position == damage->position)
        return 1;
    pb_damage *grown = realloc(segment->damages, (segment->damage_count + 1) * sizeof(*grown));
    if (grown == NULL)
        return -ENOMEM;
    segment->damages = grown;
    memmove(grown + at + 1, grown + at, (segment->damage_count - at) * sizeof(*grown));
    grown[at] = *damage;
    segment->damage_count++;
    return 0;
}

const pb_damage *pb_segment_next_damage(const pb_segment *segment, int64_t offset)
{
    for (uint32_t i = 0; i < segment->damage_count; i++) {
        if (segment->damages[i].end_offset > offset)
            return &segment->damages[i];
    }
    return NULL;
}

int64_t pb_segment_behind_damage(const pb_segment *segment, int64_t offset)
{
    int64_t position = 0;
    for (uint32_t i = 0; i < segment->damage_count && segment->damages[i].end_offset <= offset; i++)
        position = segment->damages[i].end_position;
    return position;
}

void pb_segment_cut_damage(pb_segment *segment, int64_t size_bytes)
{
    while (segment->damage_count > 0 && segment->damages[segment->damage_count - 1].end_position > size_bytes)
        segment->damage_count--;
}

int pb_damage_survey(pb_scan *scan, int64_t position, int64_t *batch_count, int64_t *end_offset)
{
    const pb_scan_range range = {.least_offset = 0, .most_offset = INT64_MAX, .most_bytes = INT64_MAX};
    while (position < scan->limit) {
        pb_batch_header header;
        int rc = pb_scan_header(scan, position, &header);
        bool good = rc == 0 && header.size_bytes > 0;
        if (good && header.magic == PB_BATCH_MAGIC)
            rc = pb_scan_crc(scan, position, &header, &good);
        if (rc >= 0 && !good)
            rc = pb_scan_skip(scan, position, &range, &position, &header);
        if (rc < 0)
            return rc;
        if (header.size_bytes == 0)
            return 0;
        (*batch_count)++;
        if (pb_batch_last_offset(&header) >= *end_offset)
            *end_offset = pb_batch_last_offset(&header) + 1;
        position += header.size_bytes;
    }
    return 0;
}

int pb_damage_only_zeros(pb_scan *scan, int64_t position, int64_t end, bool *zeros)
{
    PB_ASSERT(end <= scan->limit);
    *zeros = true;
    while (*zeros && position < end) {
        const uint8_t *bytes;
        size_t length;
        size_t wanted = end - position < (int64_t)scan->capacity ? (size_t)(end - position) : scan->capacity;
        int rc = pb_scan_bytes(scan, position, wanted, &bytes, &length);
        if (rc != 0)
            return rc;
        *zeros = bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
        position += (int64_t)length;
    }
    return 0;
}

/* A name that no earlier damage has taken: <base>.log.damaged-<position>, or with .2 and so on behind. */
static int kept_path(const pb_segment *segment, int64_t position, char *path)
{
    const pb_io_ops *ops = segment->io->ops;
    for (int i = 1; i <= KEPT_FILES_MAX; i++) {
        char extra[48];
        int length = snprintf(extra, sizeof(extra), ".damaged-%lld", (long long)position);
        if (i > 1)
            snprintf(extra + length, sizeof(extra) - (size_t)length, ".%d", i);
        int rc = pb_segment_path(path, segment->directory, segment->base_offset, PB_FILE_LOG, extra);
        if (rc != 0)
            return rc;
        int file = ops->file_open(segment->io, path, PB_OPEN_READ);
        if (file == -ENOENT)
            return 0;
        if (file < 0)
            return file;
        ops->file_close(segment->io, file);
    }
    return -EEXIST;
}

static int copy_tail(pb_segment *segment, int64_t position, int to, uint8_t *buffer, size_t capacity)
{
    for (int64_t at = position; at < segment->size_bytes;) {
        int64_t left = segment->size_bytes - at;
        size_t part = left < (int64_t)capacity ? (size_t)left : capacity;
        int rc = pb_io_read_all(segment->io, segment->file, buffer, part, at);
        struct iovec iov = {buffer, part};
        if (rc == 0)
            rc = pb_io_write_all(segment->io, to, &iov, 1, at - position);
        if (rc != 0)
            return rc;
        at += (int64_t)part;
    }
    return segment->io->ops->file_sync(segment->io, to);
}

int pb_damage_keep_tail(pb_segment *segment, int64_t position, uint8_t *buffer, size_t capacity)
{
    PB_ASSERT(segment->file >= 0 && position < segment->size_bytes);
    const pb_io_ops *ops = segment->io->ops;
    char path[PB_LOG_PATH_BYTES];
    char unfinished[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(unfinished, segment->directory, segment->base_offset, PB_FILE_LOG, ".damaged.tmp");
    if (rc == 0)
        rc = kept_path(segment, position, path);
    if (rc != 0)
        return rc;
    int to = ops->file_open(segment->io, unfinished, PB_OPEN_WRITE | PB_OPEN_CREATE | PB_OPEN_TRUNCATE);
    if (to < 0)
        return to;
    rc = copy_tail(segment, position, to, buffer, capacity);
    int close_rc = ops->file_close(segment->io, to);
    if (rc == 0)
        rc = close_rc;
    if (rc == 0)
        rc = ops->rename(segment->io, unfinished, path);
    if (rc != 0)
        (void)ops->unlink(segment->io, unfinished); /* on a full disk it holds what room there was */
    return rc;
}

int pb_damage_keep_segment(const pb_segment *segment)
{
    char from[PB_LOG_PATH_BYTES];
    char to[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(from, segment->directory, segment->base_offset, PB_FILE_LOG, "");
    if (rc == 0)
        rc = kept_path(segment, 0, to);
    return rc != 0 ? rc : segment->io->ops->rename(segment->io, from, to);
}
