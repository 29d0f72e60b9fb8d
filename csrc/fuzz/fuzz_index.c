/*
 * Any bytes as the index files of a segment: the sanity rules refuse them or look-ups in them stay inside of what they
 * were given. The first byte says where the input is split into .index, .timeindex and .txnindex.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/segment/offset_index.h"
#include "log/segment/time_index.h"
#include "log/segment/transaction_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LOG_BYTES = 1 << 20 };

/* Files in memory: handle i is parts[i]. */
static struct {
    const uint8_t *bytes;
    size_t length;
} parts[3];

static int memory_open(pb_io *io, const char *path, int flags)
{
    (void)io;
    PB_ASSERT(!(flags & PB_OPEN_WRITE));
    return strstr(path, ".timeindex") != NULL ? 1 : strstr(path, ".txnindex") != NULL ? 2 : 0;
}

static int memory_close(pb_io *io, int file)
{
    (void)io;
    (void)file;
    return 0;
}

static int64_t memory_read(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    (void)io;
    PB_ASSERT(position >= 0);
    if ((size_t)position >= parts[file].length)
        return 0;
    size_t left = parts[file].length - (size_t)position;
    length = length < left ? length : left;
    memcpy(buffer, parts[file].bytes + position, length);
    return (int64_t)length;
}

static const pb_io_ops MEMORY_OPS = {
    .name = "memory", .file_open = memory_open, .file_close = memory_close, .file_read = memory_read};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    pb_io io = {.ops = &MEMORY_OPS};
    const uint8_t *at = data + 2;
    size_t left = size - 2;
    for (int i = 0; i < 3; i++) {
        size_t take = i == 2 ? left : left * data[i] / 256;
        parts[i].bytes = at;
        parts[i].length = take;
        at += take;
        left -= take;
    }
    pb_segment *segment = pb_segment_new(&io, "/memory", 1000);
    if (segment == NULL)
        return 0;
    int64_t position;
    if (pb_offset_index_sane(segment, 0, (int64_t)parts[0].length, LOG_BYTES)) {
        for (int64_t offset = 0; offset < 4000; offset += 333)
            PB_ASSERT(pb_offset_index_find_flushed(segment, (uint32_t)(parts[0].length / 8), offset, &position) == 0);
    }
    pb_time_entry entry;
    if (pb_time_index_sane(segment, 1, (int64_t)parts[1].length, &entry)) {
        for (int64_t time = -1; time < 1 << 20; time += 77777)
            PB_ASSERT(pb_time_index_find_flushed(segment, (uint32_t)(parts[1].length / 12), time, &entry) == 0);
    }
    pb_transaction_entry *entries;
    int rc = pb_transaction_index_load(segment, (uint32_t)(parts[2].length / 34), &entries);
    PB_ASSERT(rc == 0 || rc == -EBADMSG);
    free(entries);
    pb_segment_release(segment);
    return 0;
}
