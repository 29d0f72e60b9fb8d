/*
 * The checks of a leader before it takes a Produce request's bytes for one partition. They are those of Apache Kafka's
 * produce path for clients, in its order and with its error codes.
 *
 *   exactly one batch, magic 2          INVALID_RECORD (CORRUPT_MESSAGE where its length or magic cannot be)
 *   zstd before Produce version 7       UNSUPPORTED_COMPRESSION_TYPE
 *   base offset 0                       INVALID_RECORD
 *   max.message.bytes                   MESSAGE_TOO_LARGE
 *   CRC                                 CORRUPT_MESSAGE
 *   codec                               UNSUPPORTED_COMPRESSION_TYPE
 *   record count, last offset delta, control flag, sequence: INVALID_RECORD
 *   max.decompressed.message.bytes, of each record of a compressed batch: INVALID_RECORD
 *   each record's structure, offset delta, and key where the topic is compacted: INVALID_RECORD
 *   each record's timestamp: INVALID_TIMESTAMP
 *
 * Bytes behind the batch that are no whole batch are not appended, and no error, as in Kafka. Stricter than Kafka where
 * Kafka would store records that no consumer can read, or answer UNKNOWN_SERVER_ERROR. Offset deltas have to count 0,
 * 1, 2, ... The inside of compressed records has to fit their lengths. Damaged compressed data is INVALID_RECORD. An
 * unknown codec is UNSUPPORTED_COMPRESSION_TYPE.
 *
 * A batch of a few kilobytes may unpack to gigabytes. Validation refuses a batch that unpacks to more than 128 MiB and
 * 64 times its size. It can be done in steps: a caller that must not be held up gives a step as many bytes as it can
 * afford, and has the rest done elsewhere.
 *
 * Runs on the caller's thread with that thread's codec; allocates only within the codec. No other pass over the records
 * is needed later: base offset and leader epoch lie outside of the CRC, and LogAppendTime is
 * pb_batch_set_max_timestamp.
 */
#ifndef PB_RECORD_VALIDATE_H
#define PB_RECORD_VALIDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "record/batch.h"
#include "record/codec.h"
#include "record/record.h"

enum {
    PB_RECORD_ERROR_LIMIT = 64,
    PB_RECORD_ERROR_TEXT_BYTES = 384,
    PB_TARGET_COMPRESSION_PRODUCER = -1, /* keep what the producer chose */
};

/* The settings of a topic that matter here, and the request's version. Immutable while in use; may be shared. */
typedef struct pb_validation_rules {
    int32_t max_message_bytes;
    pb_timestamp_type timestamp_type;
    int64_t timestamp_before_max_ms;
    int64_t timestamp_after_max_ms;
    bool compacted;           /* cleanup.policy has compact: records need keys */
    int target_compression;   /* a pb_compression, or PB_TARGET_COMPRESSION_PRODUCER */
    int32_t max_record_bytes; /* max.decompressed.message.bytes; 0: no limit */
} pb_validation_rules;

typedef enum pb_record_fault {
    PB_RECORD_FAULT_NO_KEY,
    PB_RECORD_FAULT_OFFSET_DELTA,
    PB_RECORD_FAULT_TIMESTAMP_RANGE,
    PB_RECORD_FAULT_TIMESTAMP_TYPE,
} pb_record_fault;

/* One refused record. */
typedef struct pb_record_error {
    int32_t record_index;
    pb_record_fault fault;
    int32_t offset_delta;
    int64_t timestamp;
} pb_record_error;

/* The facts that validation found. All but `record_error*` and `size_bytes` is meaningful only when it returned 0. */
typedef struct pb_validation {
    size_t size_bytes; /* of the batch to append; what follows it in the request is dropped */
    int32_t record_count;
    int64_t max_timestamp; /* of the records; -1 when none has one. With LogAppendTime: now */
    int32_t
        max_timestamp_offset_delta; /* the first record that carries it; the last record with LogAppendTime; or -1 */
    int64_t producer_id;            /* -1: none */
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t last_sequence; /* wraps from INT32_MAX to 0 */
    bool is_transactional;
    int compression;
    bool needs_recompression;   /* compression is not the target: see recompress.h */
    int64_t unpacked_bytes;     /* of its records */
    int32_t record_error_count; /* all of them; the first PB_RECORD_ERROR_LIMIT are listed */
    pb_record_error record_errors[PB_RECORD_ERROR_LIMIT];
} pb_validation;

/* A validation under way. Owner: the caller; it has no memory of its own, and may be forgotten at any time. */
typedef struct pb_validator {
    const pb_validation_rules *rules;
    uint8_t *data;
    pb_validation *validation;
    pb_batch_header header;
    int64_t now_ms;
    int64_t left_bytes; /* may be unpacked in later steps; more is refused */
    pb_record_reader reader;
    bool stops_at_piece; /* what has to be unpacked at once may be too much here, and not too much at all */
    bool timestamp_fault;
} pb_validator;

/*
 * Begin to validate `length` bytes that a client sent for one partition. `now_ms` is the wall clock in ms since 1970;
 * `piece_bytes`: where more than that has to be unpacked at once, a step gives -EAGAIN before it does. All that is
 * passed in stays valid to the end, and the codec is used for nothing else. 0, or why the batch is refused, as below.
 */
int pb_validate_begin(pb_validator *validator, const pb_validation_rules *rules, int produce_version, int64_t now_ms,
                      pb_codec *codec, uint8_t *data, size_t length, size_t piece_bytes, pb_validation *validation,
                      pb_failure *failure);
/* Unpack up to some more than `bytes`. -EAGAIN: there is more to do, in another step. Otherwise it is over: 0, or why
 * the batch is refused. */
int pb_validate_step(pb_validator *validator, int64_t bytes, pb_failure *failure);

/*
 * Validate `length` bytes that a client sent for one partition. `now_ms` is the wall clock in ms since 1970.
 * 0, a Kafka error code or -errno, with the reason in `failure` (may be NULL). On success with CreateTime the header's
 * timestamp type and max timestamp are made true in place (the CRC with them); with LogAppendTime the append sets them.
 */
int pb_validate_produce(const pb_validation_rules *rules, int produce_version, int64_t now_ms, pb_codec *codec,
                        uint8_t *data, size_t length, pb_validation *validation, pb_failure *failure);

/* The text of one record error for a ProduceResponse. `text` holds PB_RECORD_ERROR_TEXT_BYTES. */
void pb_record_error_text(const pb_record_error *error, const pb_validation_rules *rules, int64_t now_ms,
                          const char *topic, int32_t partition, char *text);

#endif
