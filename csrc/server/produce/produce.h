/*
 * A Produce in progress: shared by the files that parse, verify, append and answer. Calls go down only: from produce.c
 * to verify.c, append.c, big.c, and answer.c. The request's reactor's thread, unless
 * said otherwise.
 *
 * A slot is one partition of a request; slots finish on whichever reactor wrote them and come home by a task.
 */
#ifndef PB_SERVER_PRODUCE_PRODUCE_H
#define PB_SERVER_PRODUCE_PRODUCE_H

#include "server/produce/verify.h"
#include "server/request.h"
#include "server/threads/big_batches.h"
#include "wire/generated/produce_request.h"
#include "wire/generated/produce_response.h"

/* One partition of one request. Owner: the request's arena. */
typedef struct produce_slot {
    pb_partition_append_op op;
    pb_task task; /* home from another reactor */
    pb_request *request;
    pb_partition *partition; /* retained; NULL: unknown */
    pb_chunk *rewritten;     /* the batch with the topic's codec, if it is large; else NULL */
    const pb_produce_request_partition_produce_data *data;
    pb_produce_response_partition_produce_response *answer;
    int64_t guard;   /* of a verification; 0: none was begun */
    int16_t refusal; /* what came of looking for the partition, and of the verification */
    bool pending;
} produce_slot;

/* Owner: the request's arena. */
typedef struct produce_state {
    pb_produce_request in;
    pb_produce_response out;
    produce_slot *slots;
    int32_t slot_count;
    int32_t next_slot;                     /* of those that have not been looked at */
    struct produce_big *big;               /* the batch that is being validated elsewhere; NULL: none */
    struct produce_big *last_big;          /* its memory, for the next such batch; NULL: there was none */
    int32_t pending;                       /* slots being written, or waiting for followers */
    bool failed;                           /* some partition was refused */
    bool replicated;                       /* some of them wait for followers: no longer than until deadline_ns */
    pb_produce_verification *verification; /* NULL: there is nothing to ask */
    int64_t deadline_ns;
    int64_t look_again_ns; /* until the next look at those that wait for followers */
    pb_timer timer;
    pb_request *request;
} produce_state;

static inline bool pb_produce_has_valid_acks(const produce_state *state)
{
    return state->in.acks >= -1 && state->in.acks <= 1;
}

/* ---- verify.c ---- */

/* With all partitions looked up: is Python to be asked? Then the request goes on with pb_produce_append when it has
 * answered. */
bool pb_produce_ask(pb_request *request);

/* ---- append.c ---- */

/* With all partitions looked up, and none refused by a coordinator but those that say so. */
void pb_produce_append(pb_request *request);
/* Look at the partitions that are left; a batch that had been handed over is back. */
void pb_produce_go_on(pb_request *request);
/* Append a batch or refuse it. `rewritten`: it got the topic's codec, and is copied from there; NULL: it stays as it
 * came. */
void pb_produce_append_validated(produce_slot *slot, const pb_partition_rules *rules, pb_batch_verdict *verdict,
                                 const pb_recompressed *rewritten);
/* The batch with the topic's codec is in the log, or will not be: its memory is needed no more. */
void pb_produce_release_rewritten(produce_slot *slot);

/* ---- big.c ---- */

/* Have the slot's batch validated, and given the topic's codec, by other threads. 0: pb_produce_go_on follows when that
 * is done. Otherwise why not. */
int pb_produce_hand_over(produce_slot *slot, const pb_partition_rules *rules, pb_failure *failure);

/* ---- answer.c ---- */

/* A partition is answered with an error, a Kafka code or -errno, and `text` unless that is NULL or empty. */
void pb_produce_refuse(produce_slot *slot, int error, const char *text);
/* A partition is answered with what its append has got. */
void pb_produce_accept(produce_slot *slot);
/* The `done` of a slot's append. Any thread. */
void pb_produce_appended(pb_partition_append_op *op, pb_reactor *here);
/* All partitions are refused, accepted or pending: answer once none is pending any more, or there was no time left to
 * wait for followers. */
void pb_produce_await(pb_request *request);

#endif
