/*
 * Replaying a tail ring. See ring_replay.h.
 *
 * Ids have settled whose file it is; its bytes show that nobody has gone on with it since. The flusher writes whole
 * sectors of the ring's own bytes, with zeros behind the last. So each sector from the ring's start on has the ring's
 * bytes and then zeros. A sector that was never written has none of the former, or lies behind the file's end.
 */
#include "log/engine/ring_replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/segment/segment.h"

enum { SLICE_BYTES = 1 << 20, SECTOR_BYTES = 512 };

typedef struct replay {
    pb_io *io;
    const pb_ring_content *content;
    int ring;
    int file;
    int64_t file_bytes;
    uint8_t *from_ring; /* SLICE_BYTES */
    uint8_t *from_file; /* SLICE_BYTES */
    int64_t missing_bytes;
} replay;

int pb_ring_inspect(pb_io *io, const char *path, pb_ring_content *out, pb_failure *failure)
{
    uint8_t head[PB_STORE_HEAD_BYTES] = {0};
    int file = io->ops->file_open(io, path, PB_OPEN_READ);
    if (file < 0)
        return pb_fail(failure, file, "cannot open the tail ring %s", path);
    int64_t size = io->ops->file_size(io, file);
    bool whole = size >= PB_STORE_HEAD_BYTES;
    int rc = size < 0 ? (int)size
             : whole  ? pb_io_read_all(io, file, head, sizeof(head), size - PB_STORE_HEAD_BYTES)
                      : 0;
    if (rc == 0)
        rc = pb_ring_header_parse(head, size, out);
    /* Not one that was never finished, if there is a header where version 1 had it. */
    if (rc == -ENODATA && whole && pb_io_read_all(io, file, head, sizeof(head), 0) == 0 &&
        pb_ring_header_parse(head, size, out) != -ENODATA)
        rc = -EPROTONOSUPPORT;
    io->ops->file_close(io, file);
    return rc == 0 ? 0 : pb_fail(failure, rc, "cannot read the tail ring %s", path);
}

/* The ring's bytes from `position` on: at most a slice, and no further than the ring's end in its file. */
static int64_t read_ring(replay *r, int64_t position)
{
    int64_t place = position % r->content->ring_bytes;
    int64_t length = r->content->end_position - position;
    if (length > r->content->ring_bytes - place)
        length = r->content->ring_bytes - place;
    /* The next slice begins with a sector. */
    if (length > SLICE_BYTES - position % SECTOR_BYTES)
        length = SLICE_BYTES - position % SECTOR_BYTES;
    int rc = pb_io_read_all(r->io, r->ring, r->from_ring, (size_t)length, place);
    return rc != 0 ? rc : length;
}

static bool all_zero(const uint8_t *bytes, int64_t length)
{
    return length == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, (size_t)length - 1) == 0);
}

/* How many of the first bytes of both are equal. */
static int64_t equal_bytes(const uint8_t *one, const uint8_t *other, int64_t length)
{
    int64_t count = 0;
    if (memcmp(one, other, (size_t)length) == 0)
        return length;
    while (one[count] == other[count])
        count++;
    return count;
}

/* One slice of both is in memory: is each sector of the file the ring's up to some byte, and zero from there on? */
static bool slice_fits(replay *r, int64_t position, int64_t length, int64_t in_file)
{
    for (int64_t at = 0; at < length;) {
        int64_t count = SECTOR_BYTES - (position + at) % SECTOR_BYTES;
        count = count < length - at ? count : length - at;
        int64_t have = in_file - at < count ? in_file - at : count;
        if (have <= 0) {
            r->missing_bytes += length - at;
            return true;
        }
        int64_t equal = equal_bytes(r->from_ring + at, r->from_file + at, have);
        if (!all_zero(r->from_file + at + equal, have - equal))
            return false;
        r->missing_bytes += count - equal;
        at += count;
    }
    return true;
}

static int compare_range(replay *r)
{
    for (int64_t position = r->content->start_position; position < r->content->end_position;) {
        int64_t length = read_ring(r, position);
        if (length < 0)
            return (int)length;
        int64_t in_file = r->file_bytes - position;
        in_file = in_file < 0 ? 0 : in_file < length ? in_file : length;
        int rc = pb_io_read_all(r->io, r->file, r->from_file, (size_t)in_file, position);
        if (rc != 0)
            return rc;
        if (!slice_fits(r, position, length, in_file))
            return -ESTALE;
        position += length;
    }
    return 0;
}

/* Behind the ring's end the flusher has written nothing but what filled the last block; extents may be made ahead. */
static int check_behind(replay *r)
{
    int64_t end = r->content->end_position;
    int64_t position = (end + PB_DIRECT_BLOCK_BYTES - 1) / PB_DIRECT_BLOCK_BYTES * PB_DIRECT_BLOCK_BYTES;
    while (position < r->file_bytes) {
        int64_t length = r->file_bytes - position < SLICE_BYTES ? r->file_bytes - position : SLICE_BYTES;
        int rc = pb_io_read_all(r->io, r->file, r->from_file, (size_t)length, position);
        if (rc != 0)
            return rc;
        if (!all_zero(r->from_file, length))
            return -ESTALE;
        position += length;
    }
    return 0;
}

static int write_range(replay *r)
{
    for (int64_t position = r->content->start_position; position < r->content->end_position;) {
        int64_t length = read_ring(r, position);
        if (length < 0)
            return (int)length;
        struct iovec iov = {r->from_ring, (size_t)length};
        int rc = pb_io_write_all(r->io, r->file, &iov, 1, position);
        if (rc != 0)
            return rc;
        position += length;
    }
    int rc = r->io->ops->file_truncate(r->io, r->file, r->content->end_position);
    return rc != 0 ? rc : pb_io_sync(r->io, r->file);
}

static int visit_segment(void *context, const char *name, bool is_directory)
{
    int64_t base_offset;
    pb_file_kind kind;
    const char *extra;
    if (is_directory || !pb_segment_parse_name(name, &base_offset, &kind, &extra))
        return 0;
    return kind == PB_FILE_LOG && extra[0] == 0 && base_offset > *(int64_t *)context ? -ESTALE : 0;
}

static int replay_open(replay *r, const char *log_directory, bool look)
{
    int64_t base_offset = r->content->segment_base;
    r->file_bytes = r->io->ops->file_size(r->io, r->file);
    if (r->file_bytes < 0)
        return (int)r->file_bytes;
    int rc = r->file_bytes < r->content->start_position ? -ESTALE : compare_range(r);
    if (rc != 0 || r->missing_bytes == 0)
        return rc;
    rc = check_behind(r);
    if (rc == 0)
        rc = r->io->ops->directory_list(r->io, log_directory, visit_segment, &base_offset);
    return rc == 0 && !look ? write_range(r) : rc;
}

/* -ENOENT: there is no such segment, which the ring's writer had. */
static int replay_into(replay *r, const char *log_directory, bool look)
{
    char segment_path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(segment_path, log_directory, r->content->segment_base, PB_FILE_LOG, "");
    if (rc != 0)
        return rc;
    r->file = r->io->ops->file_open(r->io, segment_path, look ? PB_OPEN_READ : PB_OPEN_WRITE);
    if (r->file < 0)
        return r->file == -ENOENT ? -ESTALE : r->file;
    rc = replay_open(r, log_directory, look);
    r->io->ops->file_close(r->io, r->file);
    return rc;
}

int pb_ring_replay(pb_io *io, const char *path, const pb_ring_content *content, const char *log_directory, bool look,
                   int64_t *moved_bytes, pb_failure *failure)
{
    PB_ASSERT(content->sealed && content->end_position - content->start_position <= content->ring_bytes);
    replay r = {.io = io, .content = content};
    *moved_bytes = 0;
    if (content->start_position == content->end_position)
        return 0;
    r.ring = io->ops->file_open(io, path, PB_OPEN_READ);
    if (r.ring < 0)
        return pb_fail(failure, r.ring, "cannot open the tail ring %s", path);
    r.from_ring = malloc(SLICE_BYTES);
    r.from_file = malloc(SLICE_BYTES);
    int rc = r.from_ring == NULL || r.from_file == NULL ? -ENOMEM : replay_into(&r, log_directory, look);
    free(r.from_ring);
    free(r.from_file);
    io->ops->file_close(io, r.ring);
    *moved_bytes = rc == 0 ? r.missing_bytes : 0;
    if (rc == -ESTALE)
        return pb_fail(failure, rc, "%s/%020lld.log has changed since the tail ring %s was written", log_directory,
                       (long long)content->segment_base, path);
    return rc == 0 ? 0
                   : pb_fail(failure, rc, "cannot bring the tail ring %s into %s/%020lld.log", path, log_directory,
                             (long long)content->segment_base);
}
