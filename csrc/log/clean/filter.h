/*
 * The treatment of one batch when its log is cleaned: kept as it is, rewritten with the records that stay, kept without
 * records, or dropped. Apache Kafka's rules, with KIP-534's delete horizons:
 *
 *   record below end_offset     stays when it is the last of its key, and has a value or no horizon that has passed
 *   record without key          goes, and is counted
 *   record of an aborted transaction goes
 *   tombstone or marker that stays for the first time: its batch gets a delete horizon
 *   marker                      stays while its transaction has batches in the log, then until its horizon
 *   batch left without records  stays, empty, when it is its producer's last one or ends the range that may be cleaned
 *
 * Offsets, the last offset delta, producer fields, epoch and timestamps of what stays do not change; the max timestamp
 * is that of the records that stay. Batches from end_offset on stay as they are. Working memory is the filter's and
 * reused; one thread. Fails on damage (CORRUPT_MESSAGE, INVALID_RECORD), an older magic, memory, and batches whose
 * records take more than PB_CLEAN_RECORDS_MAX_BYTES (-EFBIG).
 */
#ifndef PB_LOG_CLEAN_FILTER_H
#define PB_LOG_CLEAN_FILTER_H

#include "log/clean/map.h"
#include "log/clean/transactions.h"
#include "record/codec.h"

enum { PB_CLEAN_RECORDS_MAX_BYTES = 512 << 20 };

/* The last batch of a producer that is still known. */
typedef struct pb_clean_producer {
    int64_t producer_id;
    int64_t last_data_offset; /* -1: its last batch is a marker */
    int16_t epoch;
} pb_clean_producer;

/* Bytes that grow and are never given back while the filter lives. */
typedef struct pb_clean_bytes {
    uint8_t *data;
    size_t capacity;
} pb_clean_bytes;

/* The fields of a record that cleaning looks at, beyond those that a walk needs. Pointers are into the batch. */
typedef struct pb_clean_record {
    const uint8_t *bytes; /* with the length in front */
    size_t size_bytes;
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t key_length; /* -1: no key */
    const uint8_t *key;
    bool has_value;
    const uint8_t *behind_timestamp; /* the offset delta and what follows */
} pb_clean_record;

typedef struct pb_clean_filter {
    /* Set by the owner. */
    const pb_clean_map *map;
    const pb_live_offsets *live;
    pb_clean_transactions *transactions;
    const pb_clean_producer *producers; /* by id */
    size_t producer_count;
    int64_t first_dirty_offset;
    int64_t end_offset;   /* behind the last offset that the map knows of */
    int64_t upper_offset; /* nothing at or above may be cleaned */
    int64_t now_ms;
    int64_t delete_retention_ms;
    int32_t max_record_bytes; /* a longer record of a compressed batch is INVALID_RECORD; 0: no limit */
    pb_codec *codec;
    /* Counted. */
    int64_t read_records;
    int64_t kept_records;
    int64_t invalid_records;
    /* Working memory. */
    pb_clean_bytes records; /* of the batch, decompressed */
    pb_clean_bytes kept;    /* those that stay */
    uint8_t empty[PB_BATCH_HEADER_BYTES];
} pb_clean_filter;

/* The bytes to write instead of a batch. */
typedef struct pb_clean_outcome {
    const uint8_t *bytes;   /* a batch or, with `packs`, its records, not compressed; valid until the next batch */
    size_t length;          /* 0: nothing */
    pb_batch_header header; /* of that batch; with `packs` its size and compression are those of the one shown */
    bool packs;             /* pb_clean_pack has to make the batch */
    bool changed;           /* it is not the batch that was shown */
    pb_transaction_entry aborted; /* last_offset >= 0: goes into the transaction index */
} pb_clean_outcome;

/* Decide on one whole magic-2 batch, in the order of the log. */
int pb_clean_filter_batch(pb_clean_filter *filter, const uint8_t *batch, const pb_batch_header *header,
                          pb_clean_outcome *outcome, pb_failure *failure);
/* Free the working memory. */
void pb_clean_filter_clear(pb_clean_filter *filter);
/* Room for `wanted` bytes; what was there stays. 0 or -ENOMEM. */
int pb_clean_reserve(pb_clean_bytes *bytes, size_t wanted);

/* The record at `at`; NULL when its lengths do not fit, else the place behind it. */
const uint8_t *pb_clean_record_parse(const uint8_t *at, const uint8_t *end, pb_clean_record *record);
/* The batch's records, decompressed into the filter's memory where they have to be. */
int pb_clean_records(pb_clean_filter *filter, const uint8_t *batch, const pb_batch_header *header,
                     const uint8_t **records, size_t *length, pb_failure *failure);

#endif
