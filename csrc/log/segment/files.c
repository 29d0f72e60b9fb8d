/*
 * The files of a log's directory: making, opening, renaming and removing those of segments; small text files.
 * Blocking calls without the lock, unless a function says otherwise. Failures are -errno with the file named.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "io/descriptors.h"
#include "log/engine/tail_ring.h"
#include "log/state.h"

enum {
    SMALL_FILE_MAX_BYTES = 64 << 20,
    ALLOCATE_BYTES = 64 << 20,
    ROOM_PART = 4, /* of what is left above the reserve, no more than this part goes to one log at a time */
};

int pb_log_fail(pb_log *log, pb_failure *failure, int code, const char *what)
{
    return pb_fail(failure, code, "%s in %s", what, log->directory);
}

int64_t pb_log_room_ahead(const pb_log *log, int64_t reserve_bytes, int64_t wanted_bytes)
{
    PB_ASSERT(reserve_bytes >= 0 && wanted_bytes >= 0);
    int64_t free_bytes = log->io->ops->path_free_bytes(log->io, log->directory);
    if (free_bytes < 0) /* whoever takes them finds out */
        return wanted_bytes;
    int64_t room = free_bytes > reserve_bytes ? pb_block_floor((free_bytes - reserve_bytes) / ROOM_PART) : 0;
    return room < wanted_bytes ? room : wanted_bytes;
}

void pb_log_make_spare(pb_log *log, int64_t active_base, int64_t allocate_bytes)
{
    const pb_io_ops *ops = log->io->ops;
    if (atomic_exchange(&log->spare_base, active_base) == active_base || atomic_load(&log->spare_file) >= 0)
        return;
    int file = ops->file_make_unnamed(log->io, log->directory);
    if (file < 0)
        return;
    /* In pieces, so that a disk that is nearly full gives what it has. It says so to the roll. */
    int64_t allocated = 0;
    while (allocated < allocate_bytes) {
        int64_t length = allocate_bytes - allocated < ALLOCATE_BYTES ? allocate_bytes - allocated : ALLOCATE_BYTES;
        if (ops->file_allocate(log->io, file, allocated, length) != 0)
            break;
        allocated += length;
    }
    int none = -1;
    log->spare_bytes = allocated;
    if (!atomic_compare_exchange_strong(&log->spare_file, &none, file))
        ops->file_close(log->io, file);
}

void pb_log_drop_spare(pb_log *log)
{
    int file = atomic_exchange(&log->spare_file, -1);
    if (file >= 0)
        log->io->ops->file_close(log->io, file);
}

/* An empty file of that name, which nobody has. */
static int open_new(pb_log *log, const char *path)
{
    const pb_io_ops *ops = log->io->ops;
    int file = atomic_exchange(&log->spare_file, -1);
    log->made_bytes = file >= 0 ? log->spare_bytes : 0;
    if (file >= 0 && ops->file_name(log->io, file, path) == 0)
        return file;
    if (file >= 0)
        ops->file_close(log->io, file);
    log->made_bytes = 0;
    return ops->file_open(log->io, path, PB_OPEN_WRITE | PB_OPEN_CREATE | PB_OPEN_TRUNCATE);
}

int pb_log_make_segment(pb_log *log, int64_t base_offset, int64_t preallocate_bytes, pb_segment **out)
{
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, log->directory, base_offset, PB_FILE_LOG, "");
    if (rc != 0)
        return rc;
    /* Leftovers of a roll that failed half way have the same names and hold nothing that counts. */
    rc = pb_log_unlink_segment_files(log, base_offset, "");
    if (rc != 0)
        return rc;
    pb_segment *segment = pb_segment_new(log->io, log->directory, base_offset);
    if (segment == NULL)
        return -ENOMEM;
    segment->modified_ms = log->io->ops->wall_ms(log->io);
    segment->file = open_new(log, path);
    rc = segment->file < 0 ? segment->file : 0;
    if (rc == 0 && preallocate_bytes > 0)
        rc = log->io->ops->file_allocate(log->io, segment->file, 0, preallocate_bytes);
    if (rc != 0) {
        pb_segment_release(segment);
        return rc;
    }
    pb_segment_make_indexes(segment);
    *out = segment;
    return 0;
}

/* Under the lock: give up the file of the sealed segment that was not used for longest, when there are too many. Not of
 * one that is to be synced: of an inode that nobody has open the kernel may forget that a write failed. */
static int take_idle_file(pb_log *log, const pb_segment *keep)
{
    pb_segment *oldest = NULL;
    int open_count = 0;
    for (uint32_t i = 0; i + 1 < log->segment_count; i++) {
        pb_segment *segment = log->segments[i];
        if (segment->file < 0)
            continue;
        open_count++;
        /* One reference is the log's own, and new ones are only taken under the lock. */
        if (segment != keep && pb_log_segment_end(log, i) <= log->durable_end &&
            atomic_load_explicit(&segment->references, memory_order_acquire) == 1 &&
            (oldest == NULL || log->use_count - segment->used > log->use_count - oldest->used))
            oldest = segment;
    }
    if (open_count <= PB_OPEN_SEALED_FILES || oldest == NULL)
        return -1;
    int file = oldest->file;
    oldest->file = -1;
    return file;
}

int pb_log_open_segment(pb_log *log, const pb_log_guard *guard, pb_segment *segment, int *file)
{
    pb_log_lock(guard);
    *file = segment->file;
    pb_log_unlock(guard);
    if (*file >= 0)
        return 0;
    if (pb_descriptors_are_scarce())
        return -EMFILE; /* the last ones are for new segments */
    int opened = pb_segment_open(segment, PB_FILE_LOG);
    if (opened < 0)
        return opened;
    pb_log_lock(guard);
    int surplus = opened;
    if (segment->file < 0) {
        segment->file = opened;
        surplus = take_idle_file(log, segment);
    }
    *file = segment->file;
    pb_log_unlock(guard);
    if (surplus >= 0)
        log->io->ops->file_close(log->io, surplus);
    return 0;
}

int pb_log_unlink_segment_files(pb_log *log, int64_t base_offset, const char *extra)
{
    int result = 0;
    for (int kind = 0; kind < PB_FILE_KIND_COUNT; kind++) {
        /* A snapshot belongs to the segment that ends there as much as to the one that begins: only a deletion by
         * retention, which has renamed it, takes it along. */
        if (kind == PB_FILE_SNAPSHOT && extra[0] == '\0')
            continue;
        char path[PB_LOG_PATH_BYTES];
        int rc = pb_segment_path(path, log->directory, base_offset, (pb_file_kind)kind, extra);
        if (rc == 0)
            rc = log->io->ops->unlink(log->io, path);
        if (rc != 0 && rc != -ENOENT && result == 0)
            result = rc;
    }
    return result;
}

int pb_log_rename_segment_files(pb_log *log, int64_t base_offset)
{
    for (int kind = 0; kind < PB_FILE_KIND_COUNT; kind++) {
        char from[PB_LOG_PATH_BYTES];
        char to[PB_LOG_PATH_BYTES];
        int rc = pb_segment_path(from, log->directory, base_offset, (pb_file_kind)kind, "");
        if (rc == 0)
            rc = pb_segment_path(to, log->directory, base_offset, (pb_file_kind)kind, ".deleted");
        if (rc == 0)
            rc = log->io->ops->rename(log->io, from, to);
        if (rc != 0 && rc != -ENOENT)
            return rc;
    }
    return 0;
}

static int small_path(const pb_log *log, char *path, const char *name, const char *extra)
{
    int length = snprintf(path, PB_LOG_PATH_BYTES, "%s/%s%s", log->directory, name, extra);
    return length < PB_LOG_PATH_BYTES ? 0 : -ENAMETOOLONG;
}

int pb_log_write_aside(pb_log *log, const char *name, const char *text, size_t length, bool sync)
{
    char temporary[PB_LOG_PATH_BYTES];
    int rc = small_path(log, temporary, name, ".tmp");
    if (rc != 0)
        return rc;
    const pb_io_ops *ops = log->io->ops;
    int file = ops->file_open(log->io, temporary, PB_OPEN_WRITE | PB_OPEN_CREATE | PB_OPEN_TRUNCATE);
    if (file < 0)
        return file;
    struct iovec iov = {(void *)(uintptr_t)text, length};
    rc = pb_io_write_all(log->io, file, &iov, 1, 0);
    if (rc == 0 && sync)
        rc = ops->file_sync(log->io, file);
    int close_rc = ops->file_close(log->io, file);
    return rc != 0 ? rc : close_rc;
}

int pb_log_put_in_place(pb_log *log, const char *name)
{
    char path[PB_LOG_PATH_BYTES];
    char temporary[PB_LOG_PATH_BYTES];
    int rc = small_path(log, path, name, "");
    if (rc == 0)
        rc = small_path(log, temporary, name, ".tmp");
    return rc != 0 ? rc : log->io->ops->rename(log->io, temporary, path);
}

int pb_log_replace_file(pb_log *log, const char *name, const char *text, size_t length)
{
    int rc = pb_log_write_aside(log, name, text, length, true);
    if (rc == 0)
        rc = pb_log_put_in_place(log, name);
    return rc != 0 ? rc : log->io->ops->directory_sync(log->io, log->directory);
}

int pb_log_read_file(pb_log *log, const char *name, char **text, size_t *length)
{
    char path[PB_LOG_PATH_BYTES];
    int rc = small_path(log, path, name, "");
    if (rc != 0)
        return rc;
    int file = log->io->ops->file_open(log->io, path, PB_OPEN_READ);
    if (file < 0)
        return file;
    int64_t size = log->io->ops->file_size(log->io, file);
    *text = NULL;
    if (size < 0 || size > SMALL_FILE_MAX_BYTES) {
        rc = size < 0 ? (int)size : -EFBIG;
    } else {
        *text = malloc((size_t)size + 1);
        rc = *text == NULL ? -ENOMEM : pb_io_read_all(log->io, file, *text, (size_t)size, 0);
    }
    log->io->ops->file_close(log->io, file);
    if (rc != 0) {
        free(*text);
        return rc;
    }
    (*text)[size] = '\0';
    *length = (size_t)size;
    return 0;
}

int pb_log_parent(const pb_log *log, char *path)
{
    const char *directory = log->directory; /* once: it may change */
    const char *slash = strrchr(directory, '/');
    if (slash == NULL)
        return -ENOENT;
    size_t length = slash == directory ? 1 : (size_t)(slash - directory);
    if (length >= PB_LOG_PATH_BYTES)
        return -ENAMETOOLONG;
    memcpy(path, directory, length);
    path[length] = '\0';
    return 0;
}

int pb_log_unlink_file(pb_log *log, const char *name)
{
    char path[PB_LOG_PATH_BYTES];
    int rc = small_path(log, path, name, "");
    return rc != 0 ? rc : log->io->ops->unlink(log->io, path);
}

/* Kafka's text form of an id: base64 with - and _, no padding, 22 characters for 16 bytes. */
static void topic_id_format(const uint8_t *id, char *text)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint32_t bits = 0;
    int bit_count = 0;
    for (int i = 0; i < 16; i++) {
        bits = bits << 8 | id[i];
        bit_count += 8;
        while (bit_count >= 6) {
            bit_count -= 6;
            *text++ = DIGITS[bits >> bit_count & 63];
        }
    }
    *text++ = DIGITS[bits << (6 - bit_count) & 63];
    *text = '\0';
}

int pb_log_check_topic_id(pb_log *log, const uint8_t *topic_id, pb_failure *failure)
{
    static const char NAME[] = "partition.metadata";
    static const uint8_t ZERO_ID[16];
    if (topic_id == NULL || memcmp(topic_id, ZERO_ID, sizeof(ZERO_ID)) == 0)
        return 0;
    char id[24];
    char wanted[64];
    topic_id_format(topic_id, id);
    int wanted_length = snprintf(wanted, sizeof(wanted), "version: 0\ntopic_id: %s", id);
    char *text;
    size_t length;
    int rc = pb_log_read_file(log, NAME, &text, &length);
    if (rc == -ENOENT) {
        rc = pb_log_replace_file(log, NAME, wanted, (size_t)wanted_length);
        return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot write partition.metadata");
    }
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "cannot read partition.metadata");
    bool same = strncmp(text, wanted, (size_t)wanted_length) == 0 &&
                strspn(text + wanted_length, "\r\n") == length - (size_t)wanted_length;
    if (!same)
        rc = pb_fail(failure, -EEXIST,
                     "%s belongs to another topic: its partition.metadata says \"%.80s\", wanted is topic id %s",
                     log->directory, text, id);
    free(text);
    return rc;
}
