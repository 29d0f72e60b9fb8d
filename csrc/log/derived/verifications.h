/*
 * Which producers are about to write to a log in a transaction that somebody else has to vouch for (KIP-890). [lock]
 * throughout; nothing here makes I/O, and nothing is kept over a restart.
 *
 * The first batch of a transaction is appended only with the guard that was given out before the transaction
 * coordinator was asked. Any write for the producer in a transaction meanwhile, above all a marker, takes the guard
 * back. A verdict that comes late lets nothing into a transaction that has ended. The entry of a producer stays here
 * until it has written or expires, so that a later batch does not go before an earlier one that was refused.
 */
#ifndef PB_LOG_DERIVED_VERIFICATIONS_H
#define PB_LOG_DERIVED_VERIFICATIONS_H

#include <stdbool.h>
#include <stdint.h>

/* A batch that is to be vouched for. */
typedef struct pb_verified_batch {
    int64_t producer_id;
    int32_t base_sequence;
    int16_t producer_epoch;
    bool adds; /* the coordinator is asked to add the partition, not whether it has been added (Produce 12, KIP-890) */
} pb_verified_batch;

typedef struct pb_verification {
    struct pb_verification *next; /* in its bucket */
    int64_t producer_id;
    int64_t guard;    /* unique in this log; > 0 */
    int64_t begun_ms; /* of the wall clock */
    int32_t lowest_sequence;
    int16_t producer_epoch;
    bool adds;
} pb_verification;

typedef struct pb_verifications {
    pb_verification **buckets;
    uint32_t bucket_count;
    uint32_t count;
    int64_t last_guard;
} pb_verifications;

/* Begin one, or go on with the producer's. NULL: no memory. */
const pb_verification *pb_verifications_begin(pb_verifications *verifications, const pb_verified_batch *batch,
                                              int64_t now_ms);
/* NULL: there is none. */
const pb_verification *pb_verifications_find(const pb_verifications *verifications, int64_t producer_id);
/* Something was written for the producer in a transaction: a batch, or a marker. */
void pb_verifications_end(pb_verifications *verifications, int64_t producer_id, int16_t producer_epoch, bool is_marker);
/* Drop those that were begun expiration_ms ago or earlier. */
void pb_verifications_expire(pb_verifications *verifications, int64_t now_ms, int64_t expiration_ms);
void pb_verifications_clear(pb_verifications *verifications);

#endif
