/*
 * Segments: names, files, references. Any thread that follows segment.h.
 */
#include "log/segment/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/segment/time_index.h"
#include "record/bytes.h"

static const char *const KIND_SUFFIX[PB_FILE_KIND_COUNT] = {
    [PB_FILE_LOG] = ".log",
    [PB_FILE_OFFSET_INDEX] = ".index",
    [PB_FILE_TIME_INDEX] = ".timeindex",
    [PB_FILE_TRANSACTION_INDEX] = ".txnindex",
    [PB_FILE_SNAPSHOT] = ".snapshot",
};

enum { OFFSET_DIGITS = 20 };

pb_segment *pb_segment_new(pb_io *io, const char *directory, int64_t base_offset)
{
    PB_ASSERT(base_offset >= 0);
    pb_segment *segment = calloc(1, sizeof(*segment));
    if (segment == NULL)
        return NULL;
    segment->io = io;
    segment->directory = directory;
    atomic_init(&segment->references, 1);
    segment->file = -1;
    segment->base_offset = base_offset;
    segment->largest_timestamp_ms = -1;
    segment->largest_timestamp_offset = base_offset;
    segment->last_time_entry_ms = -1;
    segment->indexes = PB_UNSAVED;
    return segment;
}

void pb_segment_retain(pb_segment *segment)
{
    int before = atomic_fetch_add_explicit(&segment->references, 1, memory_order_relaxed);
    PB_ASSERT(before > 0);
}

void pb_segment_release(pb_segment *segment)
{
    int before = atomic_fetch_sub_explicit(&segment->references, 1, memory_order_acq_rel);
    PB_ASSERT(before > 0);
    if (before > 1)
        return;
    pb_history_forget(segment);
    if (segment->file >= 0)
        segment->io->ops->file_close(segment->io, segment->file);
    pb_index_clear(&segment->offset_index);
    pb_index_clear(&segment->time_index);
    pb_index_clear(&segment->transaction_index);
    free(segment->damages);
    free(segment);
}

/* Pending index entries go with the new segment; the old one keeps what it needs to be searched. */
static void take_index(pb_index_buffer *to, pb_index_buffer *from)
{
    *to = *from;
    *from = (pb_index_buffer){.flushed_count = to->flushed_count};
}

void pb_segment_take_over(pb_segment *to, pb_segment *from)
{
    to->size_bytes = from->size_bytes;
    to->largest_timestamp_ms = from->largest_timestamp_ms;
    to->largest_timestamp_offset = from->largest_timestamp_offset;
    to->last_time_entry_ms = from->last_time_entry_ms;
    to->modified_ms = from->modified_ms;
    to->generation = from->generation;
    to->used = from->used;
    to->indexes = from->indexes;
    to->old_magic = from->old_magic;
    to->unchecked_bytes = from->unchecked_bytes;
    to->unchecked_end = from->unchecked_end;
    to->damages = from->damages;
    to->damage_count = from->damage_count;
    from->damages = NULL;
    from->damage_count = 0;
    take_index(&to->offset_index, &from->offset_index);
    take_index(&to->time_index, &from->time_index);
    take_index(&to->transaction_index, &from->transaction_index);
}

/* Append `length` bytes of text at `*used`, if they and an end fit. */
static bool add_text(char *path, size_t *used, const char *text, size_t length)
{
    PB_ASSERT(*used < PB_LOG_PATH_BYTES);
    if (length >= PB_LOG_PATH_BYTES - *used)
        return false;
    memcpy(path + *used, text, length);
    *used += length;
    return true;
}

/* Look-ups open files of indexes by their names, and printf would take more than everything else about them. */
int pb_segment_path(char *path, const char *directory, int64_t base_offset, pb_file_kind kind, const char *extra)
{
    PB_ASSERT(kind < PB_FILE_KIND_COUNT);
    if (base_offset < 0)
        return -EINVAL;
    char digits[OFFSET_DIGITS + 1];
    uint64_t left = (uint64_t)base_offset;
    for (int i = OFFSET_DIGITS; i > 0; i--, left /= 10)
        digits[i] = (char)('0' + left % 10);
    PB_ASSERT(left == 0);
    digits[0] = '/';
    size_t used = 0;
    if (!add_text(path, &used, directory, strlen(directory)) || !add_text(path, &used, digits, sizeof digits) ||
        !add_text(path, &used, KIND_SUFFIX[kind], strlen(KIND_SUFFIX[kind])) ||
        !add_text(path, &used, extra, strlen(extra)))
        return -ENAMETOOLONG;
    path[used] = '\0';
    return 0;
}

bool pb_segment_parse_name(const char *name, int64_t *base_offset, pb_file_kind *kind, const char **extra)
{
    int64_t offset = 0;
    for (int i = 0; i < OFFSET_DIGITS; i++) {
        if (name[i] < '0' || name[i] > '9')
            return false;
        if (__builtin_mul_overflow(offset, 10, &offset) || __builtin_add_overflow(offset, name[i] - '0', &offset))
            return false;
    }
    for (int k = 0; k < PB_FILE_KIND_COUNT; k++) {
        size_t length = strlen(KIND_SUFFIX[k]);
        const char *rest = name + OFFSET_DIGITS;
        if (strncmp(rest, KIND_SUFFIX[k], length) == 0 && (rest[length] == '\0' || rest[length] == '.')) {
            *base_offset = offset;
            *kind = (pb_file_kind)k;
            *extra = rest + length;
            return true;
        }
    }
    return false;
}

static int open_name(const pb_segment *segment, pb_file_kind kind, const char *extra, int flags)
{
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, segment->directory, segment->base_offset, kind, extra);
    return rc != 0 ? rc : segment->io->ops->file_open(segment->io, path, flags);
}

static int open_file(pb_segment *segment, pb_file_kind kind, int flags)
{
    for (;;) {
        int names = atomic_load(&segment->names);
        if (names == PB_NAMES_GONE)
            return -ENOENT;
        int file = names == PB_NAMES_SWAP ? open_name(segment, kind, ".swap", flags) : -ENOENT;
        if (file == -ENOENT)
            file = open_name(segment, kind, names == PB_NAMES_CLEANED ? ".cleaned" : "", flags);
        /* Files are renamed only after `names` was set: as long as it has not changed, the file was ours. */
        if (file < 0 || atomic_load(&segment->names) == names)
            return file;
        segment->io->ops->file_close(segment->io, file);
    }
}

int pb_segment_open(pb_segment *segment, pb_file_kind kind)
{
    /* Readers of a log share the handle, and each asks for as much as it wants. */
    return open_file(segment, kind, kind == PB_FILE_LOG ? PB_OPEN_READ | PB_OPEN_EXACT : PB_OPEN_READ);
}

int pb_segment_open_direct(pb_segment *segment, int mode)
{
    return open_file(segment, PB_FILE_LOG, mode | PB_OPEN_DIRECT);
}

pb_index_buffer *pb_segment_index(pb_segment *segment, pb_file_kind kind, uint32_t *entry_bytes)
{
    switch (kind) {
    case PB_FILE_OFFSET_INDEX:
        *entry_bytes = PB_OFFSET_INDEX_ENTRY_BYTES;
        return &segment->offset_index;
    case PB_FILE_TIME_INDEX:
        *entry_bytes = PB_TIME_INDEX_ENTRY_BYTES;
        return &segment->time_index;
    default:
        PB_ASSERT(kind == PB_FILE_TRANSACTION_INDEX);
        *entry_bytes = PB_TRANSACTION_INDEX_ENTRY_BYTES;
        return &segment->transaction_index;
    }
}

int pb_segment_seal_time_index(pb_segment *segment)
{
    return pb_time_index_maybe_push(segment, segment->largest_timestamp_ms, segment->largest_timestamp_offset);
}

int pb_segment_sync(const pb_segment *segment, int file)
{
    int rc = pb_io_sync(segment->io, file);
    return rc != 0 && pb_error_passes(rc) ? -EIO : rc;
}

int pb_segment_write_index(pb_segment *segment, pb_file_kind kind, const uint8_t *bytes, uint32_t count,
                           uint32_t flushed, bool sync)
{
    uint32_t entry_bytes;
    (void)pb_segment_index(segment, kind, &entry_bytes);
    char path[PB_LOG_PATH_BYTES];
    const char *extra = atomic_load(&segment->names) == PB_NAMES_CLEANED ? ".cleaned" : "";
    int rc = pb_segment_path(path, segment->directory, segment->base_offset, kind, extra);
    if (rc != 0)
        return rc;
    const pb_io_ops *ops = segment->io->ops;
    int file = ops->file_open(segment->io, path, PB_OPEN_WRITE | PB_OPEN_CREATE);
    if (file < 0)
        return file;
    struct iovec iov = {(void *)(uintptr_t)bytes, (size_t)count * entry_bytes};
    int64_t position = (int64_t)flushed * entry_bytes;
    int64_t end = position + (int64_t)iov.iov_len;
    if (count > 0)
        rc = pb_io_write_all(segment->io, file, &iov, 1, position);
    /* Last, as recovery mostly writes what is there already: blocks that are given back cost more than the write. */
    if (rc == 0 && ops->file_size(segment->io, file) > end)
        rc = ops->file_truncate(segment->io, file, end);
    if (rc == 0 && sync) /* what a cleaner cannot finish it throws away */
        rc = extra[0] == '\0' ? pb_segment_sync(segment, file) : pb_io_sync(segment->io, file);
    int close_rc = ops->file_close(segment->io, file);
    return rc != 0 ? rc : close_rc;
}

void pb_segment_make_indexes(const pb_segment *segment)
{
    static const pb_file_kind KINDS[] = {PB_FILE_OFFSET_INDEX, PB_FILE_TIME_INDEX};
    PB_ASSERT(atomic_load(&segment->names) == PB_NAMES_PLAIN);
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        int file = open_name(segment, KINDS[i], "", PB_OPEN_WRITE | PB_OPEN_CREATE);
        if (file >= 0)
            (void)segment->io->ops->file_close(segment->io, file);
    }
}

int pb_segment_unlink_index(const pb_segment *segment, pb_file_kind kind)
{
    char path[PB_LOG_PATH_BYTES];
    const char *extra = atomic_load(&segment->names) == PB_NAMES_CLEANED ? ".cleaned" : "";
    int rc = pb_segment_path(path, segment->directory, segment->base_offset, kind, extra);
    if (rc == 0)
        rc = segment->io->ops->unlink(segment->io, path);
    return rc == -ENOENT ? 0 : rc;
}

int64_t pb_segment_entry_offset(const pb_segment *segment, pb_file_kind kind, const uint8_t *entry)
{
    switch (kind) {
    case PB_FILE_OFFSET_INDEX:
        return segment->base_offset + pb_be32_load(entry);
    case PB_FILE_TIME_INDEX:
        return segment->base_offset + pb_be32_load(entry + 8);
    default:
        PB_ASSERT(kind == PB_FILE_TRANSACTION_INDEX);
        return (int64_t)pb_be64_load(entry + 18);
    }
}

int64_t pb_segment_flushed_below(pb_segment *segment, pb_file_kind kind, uint32_t flushed_count, int64_t end_offset)
{
    if (flushed_count == 0)
        return 0;
    uint32_t entry_bytes;
    uint8_t entry[PB_TRANSACTION_INDEX_ENTRY_BYTES];
    (void)pb_segment_index(segment, kind, &entry_bytes);
    int file = pb_segment_open(segment, kind);
    int rc = file < 0 ? file : 0;
    int64_t keep = flushed_count;
    for (; rc == 0 && keep > 0; keep--) {
        rc = pb_io_read_all(segment->io, file, entry, entry_bytes, (keep - 1) * entry_bytes);
        if (rc == 0 && pb_segment_entry_offset(segment, kind, entry) < end_offset)
            break;
    }
    if (file >= 0)
        segment->io->ops->file_close(segment->io, file);
    return rc != 0 ? rc : keep;
}
