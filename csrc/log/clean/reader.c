/* Reading batches in large blocks. One thread. */
#include "log/clean/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "record/bytes.h"

enum { LENGTH_POSITION = 8 };

int pb_clean_reader_init(pb_clean_reader *reader, pb_io *io, size_t block_bytes)
{
    const size_t part = PB_DIRECT_BLOCK_BYTES - 1;
    *reader = (pb_clean_reader){.block_bytes = (block_bytes + part) & ~part};
    reader->file = (pb_clean_file){.io = io, .file = -1, .direct = -1};
    bool enough = true;
    for (uint32_t i = 0; i < PB_CLEAN_BLOCKS; i++) {
        uint8_t *buffer = aligned_alloc(PB_DIRECT_BLOCK_BYTES, reader->block_bytes);
        reader->blocks[i] = (pb_clean_ahead){.file = &reader->file, .buffer = buffer};
        enough = enough && buffer != NULL;
    }
    return enough ? 0 : -ENOMEM;
}

/* The bytes being read from the file are not wanted any more. */
static void leave_file(pb_clean_reader *reader)
{
    for (uint32_t i = 0; i < PB_CLEAN_BLOCKS; i++)
        (void)pb_clean_ahead_finish(&reader->blocks[i]);
    if (reader->file.direct >= 0)
        reader->file.io->ops->file_close(reader->file.io, reader->file.direct);
    reader->file.direct = -1;
}

void pb_clean_reader_clear(pb_clean_reader *reader)
{
    if (reader->file.io == NULL)
        return;
    leave_file(reader);
    for (uint32_t i = 0; i < PB_CLEAN_BLOCKS; i++)
        free(reader->blocks[i].buffer);
    free(reader->gathered);
    *reader = (pb_clean_reader){.read_bytes = 0};
}

static pb_clean_ahead *block_at(pb_clean_reader *reader, uint32_t number)
{
    return &reader->blocks[number % PB_CLEAN_BLOCKS];
}

/* Have a block that has been worked on filled with what nobody has asked for yet. */
static void read_on(pb_clean_reader *reader, pb_clean_ahead *block)
{
    int64_t left = reader->limit - reader->asked_position;
    if (left <= 0)
        return;
    size_t length = left < (int64_t)reader->block_bytes ? (size_t)left : reader->block_bytes;
    pb_clean_ahead_start(block, reader->asked_position, length);
    reader->asked_position += (int64_t)length;
}

void pb_clean_reader_begin(pb_clean_reader *reader, int file, int direct, int64_t position, int64_t limit, bool drops)
{
    PB_ASSERT(position <= limit);
    leave_file(reader);
    reader->file.file = file;
    reader->file.direct = direct;
    reader->file.drops = drops;
    reader->position = position;
    reader->asked_position = position - position % PB_DIRECT_BLOCK_BYTES;
    reader->limit = limit;
    reader->gathered_bytes = 0;
    /* The one before the first block has nothing left. */
    reader->current = PB_CLEAN_BLOCKS - 1;
    block_at(reader, reader->current)->position = position;
    block_at(reader, reader->current)->length = 0;
    for (uint32_t ahead = 1; ahead < PB_CLEAN_BLOCKS; ahead++)
        read_on(reader, block_at(reader, reader->current + ahead));
}

/* How many bytes of the current block have not been taken from it, and the first of them. */
static size_t rest_of_block(pb_clean_reader *reader, const uint8_t **at)
{
    const pb_clean_ahead *block = block_at(reader, reader->current);
    int64_t taken = reader->position + (int64_t)reader->gathered_bytes - block->position;
    PB_ASSERT(taken >= 0 && taken <= (int64_t)block->length);
    *at = block->buffer + taken;
    return block->length - (size_t)taken;
}

/* The current block has been worked on; the file goes on behind it. */
static int next_block(pb_clean_reader *reader)
{
    pb_clean_ahead *next = block_at(reader, reader->current + 1);
    int rc = pb_clean_ahead_finish(next);
    if (rc != 0)
        return rc;
    read_on(reader, block_at(reader, reader->current));
    reader->current++;
    const uint8_t *at;
    reader->read_bytes += (int64_t)rest_of_block(reader, &at);
    return 0;
}

static int make_room(pb_clean_reader *reader, size_t wanted)
{
    if (wanted <= reader->gathered_room)
        return 0;
    uint8_t *gathered = realloc(reader->gathered, wanted);
    if (gathered == NULL)
        return -ENOMEM;
    reader->gathered = gathered;
    reader->gathered_room = wanted;
    return 0;
}

/* The first `wanted` bytes of what comes next, together; the file has them. */
static int look_at(pb_clean_reader *reader, size_t wanted, const uint8_t **out, pb_failure *failure)
{
    size_t rest = rest_of_block(reader, out);
    if (reader->gathered_bytes == 0 && rest >= wanted)
        return 0;
    if (make_room(reader, wanted) != 0)
        return pb_fail(failure, -ENOMEM, "cannot get %zu bytes to read a batch", wanted);
    while (reader->gathered_bytes < wanted) {
        const uint8_t *at;
        size_t lacking = wanted - reader->gathered_bytes;
        rest = rest_of_block(reader, &at);
        size_t step = rest < lacking ? rest : lacking;
        memcpy(reader->gathered + reader->gathered_bytes, at, step);
        reader->gathered_bytes += step;
        int rc = step < lacking ? next_block(reader) : 0;
        if (rc != 0)
            return pb_fail(failure, rc, "cannot read a batch of %zu bytes or more", wanted);
    }
    *out = reader->gathered;
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
    const uint8_t *at;
    int rc = look_at(reader, PB_BATCH_HEADER_BYTES, &at, failure);
    if (rc != 0)
        return rc;
    int64_t size_bytes = (int64_t)(int32_t)pb_be32_load(at + LENGTH_POSITION) + PB_BATCH_LOG_OVERHEAD_BYTES;
    int8_t magic = (int8_t)at[PB_BATCH_MAGIC_POSITION];
    if (magic == 0 || magic == 1)
        return pb_fail(failure, PB_UNSUPPORTED_FOR_MESSAGE_FORMAT, "a batch has magic %d, older than 2", magic);
    if (magic != PB_BATCH_MAGIC || size_bytes < PB_BATCH_HEADER_BYTES || size_bytes > left)
        return pb_fail(failure, PB_CORRUPT_MESSAGE, "there is no whole batch");
    rc = look_at(reader, (size_t)size_bytes, &at, failure);
    if (rc != 0)
        return rc;
    rc = pb_batch_parse(at, (size_t)size_bytes, header);
    if (rc != 0 || header->size_bytes != size_bytes || header->base_offset < 0 || header->last_offset_delta < 0 ||
        header->base_offset > INT64_MAX - INT32_MAX || header->record_count < 0)
        return pb_fail(failure, PB_CORRUPT_MESSAGE, "a batch's header makes no sense");
    if (!pb_batch_crc_matches(at, header->size_bytes))
        return pb_fail(failure, PB_CORRUPT_MESSAGE, "a batch's CRC does not match");
    *batch = at;
    reader->position += header->size_bytes;
    reader->gathered_bytes = 0;
    return 0;
}
