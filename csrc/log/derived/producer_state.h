/*
 * Producer state of one log: what is needed to refuse duplicates, gaps and zombies (KIP-98, KIP-360), and which
 * transactions are open. [lock] throughout; nothing here makes I/O.
 *
 * State is derived from batches: the map that has seen all batches below `end_offset` is one value, whatever way it was
 * reached (snapshot, replay, appends). A producer keeps its last five batches; an append is answered as
 *
 *     known producer | epoch          | sequence                     -> answer
 *     no             | below -1       |                              -> INVALID_PRODUCER_EPOCH
 *     no             | other          | any                          -> accept
 *     yes, epoch -1  | -1 or newer    | any other than the last five -> accept
 *     yes            | older          |                              -> INVALID_PRODUCER_EPOCH
 *     yes            | same           | one of the last five batches -> PB_LOG_DUPLICATE
 *     yes            | same           | last + 1 (after 2^31-1: 0)   -> accept
 *     yes            | same           | other                        -> OUT_OF_ORDER_SEQUENCE_NUMBER
 *     yes            | newer          | 0                            -> accept
 *     yes            | newer          | other                        -> OUT_OF_ORDER_SEQUENCE_NUMBER
 *     in a transaction, batch not transactional                      -> INVALID_TXN_STATE
 *
 * and a marker as
 *
 *     epoch older, or a coordinator's that is older                  -> INVALID_PRODUCER_EPOCH, ..._COORDINATOR_FENCED
 *     unknown producer, epoch below -1                               -> INVALID_PRODUCER_EPOCH
 *     epoch the same, below 32767, a transaction open, version >= 2  -> INVALID_PRODUCER_EPOCH
 *     other                                                          -> accept
 *
 * since from version 2 on (KIP-890) the coordinator ends each transaction at an epoch of its own, while there is one.
 */
#ifndef PB_LOG_DERIVED_PRODUCER_STATE_H
#define PB_LOG_DERIVED_PRODUCER_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PB_PRODUCER_BATCHES = 5 };

typedef struct pb_producer_batch {
    int64_t last_offset;
    int64_t timestamp_ms;
    int32_t last_sequence;
    int32_t offset_delta; /* last offset - base offset */
} pb_producer_batch;

typedef struct pb_producer {
    struct pb_producer *next; /* in its bucket */
    int64_t producer_id;
    int64_t last_timestamp_ms;
    int64_t transaction_start_offset; /* -1: none open */
    int32_t coordinator_epoch;
    int16_t epoch;
    uint8_t batch_count;
    uint8_t batch_newest; /* index into batches */
    pb_producer_batch batches[PB_PRODUCER_BATCHES];
} pb_producer;

/* A transaction whose end readers may not yet see: open, or ended by a marker at or above the high watermark. */
typedef struct pb_transaction {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset; /* the marker; -1: open */
} pb_transaction;

typedef struct pb_producers {
    pb_producer **buckets;
    uint32_t bucket_count;
    uint32_t count;
    pb_transaction *transactions; /* by first offset */
    uint32_t transaction_count;
    uint32_t transaction_capacity;
    int64_t end_offset; /* every batch below is in the map */
} pb_producers;

/* A data batch or a transaction marker, as the map sees it. */
typedef struct pb_producer_append {
    int64_t producer_id;
    int64_t base_offset;
    int64_t last_offset;
    int64_t max_timestamp_ms;
    int32_t base_sequence;
    int32_t record_count;
    int32_t coordinator_epoch;   /* markers */
    int16_t transaction_version; /* markers: what the coordinator goes by */
    int16_t epoch;
    bool is_transactional;
    bool is_marker;
    bool aborts;
} pb_producer_append;

/* The transaction that a marker ended; it goes to the transaction index when it was aborted. */
typedef struct pb_completed_transaction {
    bool completed;
    int64_t first_offset;
    int64_t last_stable_offset;
} pb_completed_transaction;

/* May this batch of a client come next? 0, a Kafka code, or PB_LOG_DUPLICATE with *duplicate filled. */
int pb_producers_check(const pb_producers *producers, const pb_producer_append *append, pb_producer_batch *duplicate);
/* Take a batch or marker into the map. *completed may be NULL. 0 or -ENOMEM (then the map is unchanged). */
int pb_producers_apply(pb_producers *producers, const pb_producer_append *append, pb_completed_transaction *completed);
/* Add a producer as a snapshot has it. 0 or -ENOMEM. */
int pb_producers_restore(pb_producers *producers, const pb_producer *from);
/* Drop producers without open transaction that were last seen expiration_ms ago or earlier. */
void pb_producers_expire(pb_producers *producers, int64_t now_ms, int64_t expiration_ms);
/* The largest producer id below `limit`; -1: none. */
int64_t pb_producers_largest_id(const pb_producers *producers, int64_t limit);
const pb_producer *pb_producers_find(const pb_producers *producers, int64_t producer_id);
/* Next producer of a walk: start with *bucket = 0 and NULL; NULL ends it. */
const pb_producer *pb_producers_next(const pb_producers *producers, uint32_t *bucket, const pb_producer *last);
/* Start of the oldest transaction that is open, or ended at or above `high_watermark`; INT64_MAX when none. */
int64_t pb_producers_first_unstable(const pb_producers *producers, int64_t high_watermark);
/* Forget transactions that ended below `high_watermark`. */
void pb_producers_forget_ended(pb_producers *producers, int64_t high_watermark);
void pb_producers_clear(pb_producers *producers);

int32_t pb_sequence_add(int32_t sequence, int32_t increment);   /* wraps from 2^31-1 to 0 */
int32_t pb_producer_last_sequence(const pb_producer *producer); /* -1: none */

/*
 * Takes the first record of a control batch apart; `records` follow the batch header. Returns true for a transaction
 * marker (commit or abort), false for other control records and damage.
 */
bool pb_marker_parse(const uint8_t *records, size_t length, bool *aborts, int32_t *coordinator_epoch);

#endif
