/*
 * Any bytes as a segment with its indexes: the walk gets to the end, tells of every byte once, and stays inside of what
 * it was given. The first two bytes say where the input is split into .log, .index and .timeindex.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/walk/walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t *log_bytes;
static size_t log_length;

static int memory_open(pb_io *io, const char *path, int flags)
{
    (void)io;
    PB_ASSERT(flags == PB_OPEN_READ && path != NULL);
    return 1;
}

static int memory_close(pb_io *io, int file)
{
    (void)io;
    PB_ASSERT(file == 1);
    return 0;
}

static int64_t memory_size(pb_io *io, int file)
{
    (void)io;
    PB_ASSERT(file == 1);
    return (int64_t)log_length;
}

static int64_t memory_read(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    (void)io;
    PB_ASSERT(file == 1 && position >= 0 && (size_t)position <= log_length);
    size_t left = log_length - (size_t)position;
    length = length < left ? length : left;
    memcpy(buffer, log_bytes + position, length);
    return (int64_t)length;
}

static const pb_io_ops MEMORY_OPS = {.name = "memory",
                                     .file_open = memory_open,
                                     .file_close = memory_close,
                                     .file_size = memory_size,
                                     .file_read = memory_read};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { INDEX_ENTRY_BYTES = 8, TIME_ENTRY_BYTES = 12 };
    if (size < 2)
        return 0;
    pb_io io = {.ops = &MEMORY_OPS};
    size_t left = size - 2;
    size_t index_length = left * data[0] / 1024 / INDEX_ENTRY_BYTES * INDEX_ENTRY_BYTES;
    size_t time_length = left * data[1] / 1024 / TIME_ENTRY_BYTES * TIME_ENTRY_BYTES;
    log_length = left - index_length - time_length;
    log_bytes = data + 2;
    pb_log_walk *walk;
    if (pb_log_walk_create(&io, &walk) != 0)
        return 0;
    pb_log_walk_file file = {
        .path = "log",
        .index = log_bytes + log_length,
        .index_length = index_length,
        .time_index = log_bytes + log_length + index_length,
        .time_index_length = time_length,
        .wanted = PB_LOG_WALK_EVERY,
        .deep_every = 1,
    };
    PB_ASSERT(pb_log_walk_begin(walk, &file) == 0);
    pb_log_walk_row rows[7];
    int64_t position = 0;
    int count;
    do {
        count = pb_log_walk_next(walk, rows, 7);
        PB_ASSERT(count >= 0);
        for (int i = 0; i < count; i++) {
            if ((rows[i].flags & (PB_LOG_WALK_INDEX | PB_LOG_WALK_TIME)) != 0)
                continue;
            PB_ASSERT(rows[i].position == position && rows[i].size_bytes > 0);
            position += rows[i].size_bytes;
        }
    } while (count == 7);
    PB_ASSERT(position == (int64_t)log_length);
    pb_log_walk_destroy(walk);
    return 0;
}
