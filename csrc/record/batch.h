/*
 * The header of a magic-2 record batch (KIP-98), as bytes in a buffer: parse it, walk from batch to batch, and set in
 * place what a broker sets. All numbers are big-endian. Stateless; any thread; the caller owns the bytes.
 *
 *   0 base offset int64 | 8 length int32, of what follows it | 12 partition leader epoch int32 | 16 magic int8
 *   17 CRC32C uint32, of all from byte 21 | 21 attributes int16 | 23 last offset delta int32 | 27 base timestamp int64
 *   35 max timestamp int64 | 43 producer id int64 | 51 producer epoch int16 | 53 base sequence int32 | 57 record count
 * int32 61 records, compressed as attributes say
 *
 * Base offset and leader epoch lie outside of the CRC, so giving a batch its place in a log costs nothing.
 */
#ifndef PB_RECORD_BATCH_H
#define PB_RECORD_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    PB_BATCH_HEADER_BYTES = 61,
    PB_BATCH_LOG_OVERHEAD_BYTES = 12, /* base offset and length: what the length does not count */
    PB_BATCH_MAGIC_POSITION = 16,
    PB_BATCH_CRC_POSITION = 17,
    PB_BATCH_ATTRIBUTES_POSITION = 21, /* the CRC covers the batch from here on */
    PB_BATCH_MAGIC = 2,
};

/* Bits of the attributes. */
enum {
    PB_BATCH_COMPRESSION_MASK = 0x07,
    PB_BATCH_LOG_APPEND_TIME = 0x08,
    PB_BATCH_TRANSACTIONAL = 0x10,
    PB_BATCH_CONTROL = 0x20,
    PB_BATCH_DELETE_HORIZON = 0x40, /* the base timestamp is the cleaner's delete horizon (KIP-534) */
    PB_BATCH_KNOWN_ATTRIBUTES = 0x7f,
};

#define PB_NO_TIMESTAMP (-1LL)
#define PB_NO_PRODUCER_ID (-1LL)

typedef enum pb_timestamp_type { PB_CREATE_TIME = 0, PB_LOG_APPEND_TIME = 1 } pb_timestamp_type;

/* A header as numbers. `size_bytes` is that of the whole batch, header included. */
typedef struct pb_batch_header {
    int64_t base_offset;
    uint32_t size_bytes;
    int32_t partition_leader_epoch;
    uint32_t crc;
    uint16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t record_count;
    int8_t magic;
} pb_batch_header;

static inline int pb_batch_compression(const pb_batch_header *header)
{
    return header->attributes & PB_BATCH_COMPRESSION_MASK;
}

static inline bool pb_batch_is_control(const pb_batch_header *header)
{
    return (header->attributes & PB_BATCH_CONTROL) != 0;
}

static inline bool pb_batch_is_transactional(const pb_batch_header *header)
{
    return (header->attributes & PB_BATCH_TRANSACTIONAL) != 0;
}

static inline pb_timestamp_type pb_batch_timestamp_type(const pb_batch_header *header)
{
    return (header->attributes & PB_BATCH_LOG_APPEND_TIME) != 0 ? PB_LOG_APPEND_TIME : PB_CREATE_TIME;
}

static inline int64_t pb_batch_last_offset(const pb_batch_header *header)
{
    return (int64_t)((uint64_t)header->base_offset + (uint64_t)(int64_t)header->last_offset_delta);
}

/*
 * The size and magic of the batch at the front of `length` bytes. 0 with `*size_bytes` = 0 when the bytes end before
 * the batch does (a fetch's tail, a torn write). `*size_bytes` > 0 when all of it is there. CORRUPT_MESSAGE when its
 * length or magic is impossible, as Kafka decides: a length below the oldest format's overhead, a magic that is not 0,
 * 1 or 2.
 */
int pb_batch_frame(const uint8_t *data, size_t length, size_t *size_bytes, int8_t *magic);

/*
 * Parse the magic-2 batch at the front of `length` bytes. 0 with `header->size_bytes` = 0 when it is not all there;
 * CORRUPT_MESSAGE as pb_batch_frame, and for a magic-2 batch shorter than its header. For an older batch only
 * `size_bytes`, `magic` and `base_offset` are filled. The CRC is not checked.
 */
int pb_batch_parse(const uint8_t *data, size_t length, pb_batch_header *header);

/*
 * The next batch of a buffer: parses the one at `*position` and moves `*position` behind it. `*position` stays where
 * the whole batches end. Returns as pb_batch_parse.
 */
int pb_batch_next(const uint8_t *data, size_t length, size_t *position, pb_batch_header *header);

/* True when the CRC in a magic-2 batch is that of its bytes. `size_bytes` is the whole batch. */
bool pb_batch_crc_matches(const uint8_t *batch, size_t size_bytes);

/* Write a header (CRC and all) in front of the records that already lie behind it: `size_bytes` - 61 bytes of them. */
void pb_batch_write(uint8_t *batch, const pb_batch_header *header);

/* Outside of the CRC. */
void pb_batch_set_base_offset(uint8_t *batch, int64_t base_offset);
void pb_batch_set_partition_leader_epoch(uint8_t *batch, int32_t partition_leader_epoch);

/*
 * Set timestamp type and max timestamp. Where one of them changes, attribute bits that Kafka does not know are cleared,
 * as Kafka does. The CRC is corrected from the difference alone. So there is no pass over the records, and a CRC that
 * did not match before does not match after.
 */
void pb_batch_set_max_timestamp(uint8_t *batch, pb_timestamp_type type, int64_t max_timestamp);

#endif
