/* Reading batches in large blocks. One thread. */
#include "log/clean_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "record/bytes.h"

enum { LENGTH_POSITION = 8 };

int pb_clean_reader_init(pb_clean_reader *reader, pb_io *io, size_t block_bytes)
{
    *reader = (pb_clean_reader){.io = io, .file = -1, .block_bytes = block_bytes, .capacity = block_bytes};
    reader->buffer = malloc(block_bytes);
    return reader->buffer == NULL ? -ENOMEM : 0;
}

void pb_clean_reader_clear(pb_clean_reader *reader)
{
    free(reader->buffer);
    reader->buffer = NULL;
}

void pb_clean_reader_begin(pb_clean_reader *reader, int file, int64_t position, int64_t limit, bool drops)
{
    PB_ASSERT(position <= limit);
    reader->file = file;
    reader->position = position;
    reader->limit = limit;
    reader->drops = drops;
    reader->start = 0;
    reader->length = 0;
}

static int read_in_steps(pb_clean_reader *reader, uint8_t *to, size_t length, int64_t position)
{
    pb_io *io = reader->io;
    for (size_t done = 0; done < length;) {
        size_t step = length - done < PB_POLITE_BYTES ? length - done : PB_POLITE_BYTES;
        int rc = pb_io_read_all(io, reader->file, to + done, step, position + (int64_t)done);
        if (rc != 0)
            return rc;
        done += step;
    }
    if (reader->drops)
        (void)io->ops->file_drop(io, reader->file, position, (int64_t)length);
    return 0;
}

/* Have at least `wanted` bytes of what comes next in the buffer; the file has them. */
static int fill(pb_clean_reader *reader, size_t wanted, pb_failure *failure)
{
    size_t buffered = reader->length - reader->start;
    if (buffered >= wanted)
        return 0;
    if (wanted > reader->capacity) {
        uint8_t *grown = realloc(reader->buffer, wanted);
        if (grown == NULL)
            return pb_fail(failure, -ENOMEM, "cannot get %zu bytes to read a batch", wanted);
        reader->buffer = grown;
        reader->capacity = wanted;
    }
    memmove(reader->buffer, reader->buffer + reader->start, buffered);
    int64_t at = reader->position + (int64_t)buffered;
    size_t room = reader->capacity - buffered;
    if ((int64_t)room > reader->limit - at)
        room = (size_t)(reader->limit - at);
    reader->start = 0;
    reader->length = buffered;
    int rc = read_in_steps(reader, reader->buffer + buffered, room, at);
    if (rc != 0)
        return pb_fail(failure, rc, "cannot read %zu bytes", room);
    reader->length += room;
    reader->read_bytes += (int64_t)room;
    return 0;
}

int pb_clean_reader_next(pb_clean_reader *reader, const uint8_t **batch, pb_batch_header *header, pb_failure *failure)
{
    *batch = NULL;
    int64_t left = reader->limit - reader->position;
    if (left == 0)
        return 0;
    if (left < PB_BATCH_HEADER_BYTES)
        return pb_fail(failure, PB_CORRUPT_MESSAGE, "the last %lld bytes are no batch", (long long)left);
    int rc = fill(reader, PB_BATCH_HEADER_BYTES, failure);
    if (rc != 0)
        return rc;
    const uint8_t *at = reader->buffer + reader->start;
    int64_t size_bytes = (int64_t)(int32_t)pb_be32_load(at + LENGTH_POSITION) + PB_BATCH_LOG_OVERHEAD_BYTES;
    int8_t magic = (int8_t)at[PB_BATCH_MAGIC_POSITION];
    if (magic == 0 || magic == 1)
        return pb_fail(failure, PB_UNSUPPORTED_FOR_MESSAGE_FORMAT, "a batch has magic %d, older than 2", magic);
    if (magic != PB_BATCH_MAGIC || size_bytes < PB_BATCH_HEADER_BYTES || size_bytes > left)
        return pb_fail(failure, PB_CORRUPT_MESSAGE, "there is no whole batch");
    rc = fill(reader, (size_t)size_bytes, failure);
    if (rc != 0)
        return rc;
    at = reader->buffer + reader->start;
    rc = pb_batch_parse(at, (size_t)size_bytes, header);
    if (rc != 0 || header->size_bytes != size_bytes || header->base_offset < 0 || header->last_offset_delta < 0 ||
        header->base_offset > INT64_MAX - INT32_MAX || header->record_count < 0)
        return pb_fail(failure, PB_CORRUPT_MESSAGE, "a batch's header makes no sense");
    if (!pb_batch_crc_matches(at, header->size_bytes))
        return pb_fail(failure, PB_CORRUPT_MESSAGE, "a batch's CRC does not match");
    *batch = at;
    reader->start += header->size_bytes;
    reader->position += header->size_bytes;
    return 0;
}
