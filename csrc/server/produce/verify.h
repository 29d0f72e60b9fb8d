/*
 * A Produce whose transaction coordinator has to be asked (KIP-890): what Python is told of it, and how it goes on.
 *
 * The request is Python's from its event until pb_produce_verified, as one on the slow path is; its bytes stay in their
 * chunk meanwhile, and nothing of it is appended before.
 */
#ifndef PB_SERVER_PRODUCE_VERIFY_H
#define PB_SERVER_PRODUCE_VERIFY_H

#include "server/request.h"

/* The layout is that of pybroker.h's pb_verified_partition. */
typedef struct pb_produce_unverified {
    const char *topic; /* lives as long as the request */
    int32_t partition;
    int32_t reserved;
} pb_produce_unverified;

/* In the request's arena. */
typedef struct pb_produce_verification {
    pb_slice transactional_id;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t count;
    pb_produce_unverified *partitions;
    int16_t *errors; /* Python's verdicts, in the same order */
} pb_produce_verification;

/* The verification of a request whose event has come. */
const pb_produce_verification *pb_produce_verification_of(const pb_request *request);
/* Any thread, once: errors[i] of partition i, 0 or what its producer is told. Where there are fewer than partitions,
 * the rest cannot be verified. */
void pb_produce_verified(pb_request *request, const int16_t *errors, int32_t count);

#endif
