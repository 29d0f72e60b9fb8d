/* Record batch headers: stateless functions over the caller's bytes; they fail only where a length or a magic lies. */
#include "record/batch.h"

#include "base/assert.h"
#include "base/kafka_error.h"
#include "cpu/crc32c.h"
#include "record/bytes.h"

enum {
    LENGTH_POSITION = 8,
    LEADER_EPOCH_POSITION = 12,
    LAST_OFFSET_DELTA_POSITION = 23,
    BASE_TIMESTAMP_POSITION = 27,
    MAX_TIMESTAMP_POSITION = 35,
    PRODUCER_ID_POSITION = 43,
    PRODUCER_EPOCH_POSITION = 51,
    BASE_SEQUENCE_POSITION = 53,
    RECORD_COUNT_POSITION = 57,
    LEAST_LENGTH = 14, /* the overhead of a magic-0 message, which has the least */
};

int pb_batch_frame(const uint8_t *data, size_t length, size_t *size_bytes, int8_t *magic)
{
    *size_bytes = 0;
    *magic = -1;
    if (length < PB_BATCH_LOG_OVERHEAD_BYTES)
        return 0;
    int32_t claimed = (int32_t)pb_be32_load(data + LENGTH_POSITION);
    if (claimed < LEAST_LENGTH)
        return PB_CORRUPT_MESSAGE;
    if (length <= PB_BATCH_MAGIC_POSITION)
        return 0;
    *magic = (int8_t)data[PB_BATCH_MAGIC_POSITION];
    if (*magic < 0 || *magic > PB_BATCH_MAGIC)
        return PB_CORRUPT_MESSAGE;
    if (length - PB_BATCH_LOG_OVERHEAD_BYTES >= (size_t)claimed)
        *size_bytes = (size_t)claimed + PB_BATCH_LOG_OVERHEAD_BYTES;
    return 0;
}

int pb_batch_parse(const uint8_t *data, size_t length, pb_batch_header *header)
{
    size_t size_bytes = 0;
    memset(header, 0, sizeof(*header));
    int error = pb_batch_frame(data, length, &size_bytes, &header->magic);
    if (error != 0 || size_bytes == 0)
        return error;
    if (header->magic == PB_BATCH_MAGIC && size_bytes < PB_BATCH_HEADER_BYTES)
        return PB_CORRUPT_MESSAGE;
    PB_ASSERT(size_bytes <= length);
    header->size_bytes = (uint32_t)size_bytes;
    header->base_offset = (int64_t)pb_be64_load(data);
    if (header->magic != PB_BATCH_MAGIC)
        return 0;
    header->partition_leader_epoch = (int32_t)pb_be32_load(data + LEADER_EPOCH_POSITION);
    header->crc = pb_be32_load(data + PB_BATCH_CRC_POSITION);
    header->attributes = pb_be16_load(data + PB_BATCH_ATTRIBUTES_POSITION);
    header->last_offset_delta = (int32_t)pb_be32_load(data + LAST_OFFSET_DELTA_POSITION);
    header->base_timestamp = (int64_t)pb_be64_load(data + BASE_TIMESTAMP_POSITION);
    header->max_timestamp = (int64_t)pb_be64_load(data + MAX_TIMESTAMP_POSITION);
    header->producer_id = (int64_t)pb_be64_load(data + PRODUCER_ID_POSITION);
    header->producer_epoch = (int16_t)pb_be16_load(data + PRODUCER_EPOCH_POSITION);
    header->base_sequence = (int32_t)pb_be32_load(data + BASE_SEQUENCE_POSITION);
    header->record_count = (int32_t)pb_be32_load(data + RECORD_COUNT_POSITION);
    return 0;
}

int pb_batch_next(const uint8_t *data, size_t length, size_t *position, pb_batch_header *header)
{
    PB_ASSERT(*position <= length);
    int error = pb_batch_parse(data + *position, length - *position, header);
    if (error == 0)
        *position += header->size_bytes;
    return error;
}

static uint32_t batch_crc(const uint8_t *batch, size_t size_bytes)
{
    PB_ASSERT(size_bytes >= PB_BATCH_HEADER_BYTES);
    return pb_crc32c(0, batch + PB_BATCH_ATTRIBUTES_POSITION, size_bytes - PB_BATCH_ATTRIBUTES_POSITION);
}

bool pb_batch_crc_matches(const uint8_t *batch, size_t size_bytes)
{
    return pb_be32_load(batch + PB_BATCH_CRC_POSITION) == batch_crc(batch, size_bytes);
}

void pb_batch_write(uint8_t *batch, const pb_batch_header *header)
{
    PB_ASSERT(header->magic == PB_BATCH_MAGIC);
    pb_be64_store(batch, (uint64_t)header->base_offset);
    pb_be32_store(batch + LENGTH_POSITION, header->size_bytes - PB_BATCH_LOG_OVERHEAD_BYTES);
    pb_be32_store(batch + LEADER_EPOCH_POSITION, (uint32_t)header->partition_leader_epoch);
    batch[PB_BATCH_MAGIC_POSITION] = PB_BATCH_MAGIC;
    pb_be16_store(batch + PB_BATCH_ATTRIBUTES_POSITION, header->attributes);
    pb_be32_store(batch + LAST_OFFSET_DELTA_POSITION, (uint32_t)header->last_offset_delta);
    pb_be64_store(batch + BASE_TIMESTAMP_POSITION, (uint64_t)header->base_timestamp);
    pb_be64_store(batch + MAX_TIMESTAMP_POSITION, (uint64_t)header->max_timestamp);
    pb_be64_store(batch + PRODUCER_ID_POSITION, (uint64_t)header->producer_id);
    pb_be16_store(batch + PRODUCER_EPOCH_POSITION, (uint16_t)header->producer_epoch);
    pb_be32_store(batch + BASE_SEQUENCE_POSITION, (uint32_t)header->base_sequence);
    pb_be32_store(batch + RECORD_COUNT_POSITION, (uint32_t)header->record_count);
    pb_be32_store(batch + PB_BATCH_CRC_POSITION, batch_crc(batch, header->size_bytes));
}

void pb_batch_set_base_offset(uint8_t *batch, int64_t base_offset)
{
    pb_be64_store(batch, (uint64_t)base_offset);
}

void pb_batch_set_partition_leader_epoch(uint8_t *batch, int32_t partition_leader_epoch)
{
    pb_be32_store(batch + LEADER_EPOCH_POSITION, (uint32_t)partition_leader_epoch);
}

void pb_batch_set_max_timestamp(uint8_t *batch, pb_timestamp_type type, int64_t max_timestamp)
{
    enum { COVERED_BYTES = PB_BATCH_HEADER_BYTES - PB_BATCH_ATTRIBUTES_POSITION };
    uint16_t attributes = pb_be16_load(batch + PB_BATCH_ATTRIBUTES_POSITION);
    uint16_t type_bit = type == PB_LOG_APPEND_TIME ? PB_BATCH_LOG_APPEND_TIME : 0;
    if ((attributes & PB_BATCH_LOG_APPEND_TIME) == type_bit &&
        (int64_t)pb_be64_load(batch + MAX_TIMESTAMP_POSITION) == max_timestamp)
        return;
    uint32_t size_bytes = pb_be32_load(batch + LENGTH_POSITION) + PB_BATCH_LOG_OVERHEAD_BYTES;
    PB_ASSERT(size_bytes >= PB_BATCH_HEADER_BYTES);
    uint8_t difference[COVERED_BYTES];
    memcpy(difference, batch + PB_BATCH_ATTRIBUTES_POSITION, COVERED_BYTES);
    attributes = (uint16_t)((attributes & PB_BATCH_KNOWN_ATTRIBUTES & ~PB_BATCH_LOG_APPEND_TIME) | type_bit);
    pb_be16_store(batch + PB_BATCH_ATTRIBUTES_POSITION, attributes);
    pb_be64_store(batch + MAX_TIMESTAMP_POSITION, (uint64_t)max_timestamp);
    for (int i = 0; i < COVERED_BYTES; i++)
        difference[i] ^= batch[PB_BATCH_ATTRIBUTES_POSITION + i];
    uint32_t crc = pb_be32_load(batch + PB_BATCH_CRC_POSITION);
    crc ^= pb_crc32c_patch(difference, COVERED_BYTES, size_bytes - PB_BATCH_HEADER_BYTES);
    pb_be32_store(batch + PB_BATCH_CRC_POSITION, crc);
}
