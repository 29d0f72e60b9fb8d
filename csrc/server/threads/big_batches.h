/*
 * Batches that take long to validate: a few background threads beside the reactors, which start with the first one.
 *
 * A batch of some kilobytes may unpack to more than a hundred megabytes, and to compress one anew takes longer still.
 * A reactor that did it would keep all its other connections waiting. So it hands such a batch over, and has it back
 * when it has been validated and, where the topic has a codec of its own, been given that.
 *
 * The threads take the batches in turn, a slice each, so that a client's large batches do not hold up another client's
 * one. A connection has one batch here at a time, see produce/big.c: batches in turn are connections in turn.
 *
 * Memory: each batch that has been begun holds a codec until it is done. While they hold more than `memory_bytes`, none
 * is begun, and those that were begun longest ago go on alone, until they are done. So all of it stays below
 * `memory_bytes`, and what one batch may take at most (see codec.h) for each thread.
 */
#ifndef PB_SERVER_THREADS_BIG_BATCHES_H
#define PB_SERVER_THREADS_BIG_BATCHES_H

#include "record/recompress.h"
#include "record/validate.h"
#include "replica/partition.h"
#include "server/threads/crew.h"

#define PB_BIG_SLICE_BYTES (1 << 20)          /* unpacked in one turn */
#define PB_BIG_REPACKED_SLICE_BYTES (1 << 18) /* compressed in one turn */
#define PB_BIG_MEMORY_BYTES (64LL << 20)

typedef enum pb_big_stage { PB_BIG_NEW, PB_BIG_VALIDATED, PB_BIG_RECOMPRESSED } pb_big_stage;

/* The outcome of a batch: 0 and the facts that validation learned, or a Kafka error code or -errno and the reason. */
typedef struct pb_batch_verdict {
    int result;
    pb_failure failure;
    pb_validation validation;
} pb_batch_verdict;

/* One batch. Owner: the sender until it is submitted, and again when `done` is called. */
typedef struct pb_big_batch {
    pb_link link;
    /* Set by the sender. */
    void (*done)(struct pb_big_batch *batch); /* on a background thread */
    const pb_partition_rules *rules;
    uint8_t *bytes; /* the validation changes header fields in place, as pb_validate_produce does */
    size_t length;
    int64_t now_ms;
    int produce_version;
    atomic_bool cancelled;    /* may be set by the sender at any time: nobody needs the batch any more */
    pb_batch_verdict verdict; /* what came of it; -ECANCELED: it was cancelled */
    pb_recompressed
        recompressed; /* the batch with the topic's codec, if the validation demands it; the sender frees it */
    /* The threads' own. */
    pb_big_stage stage; /* what it is at */
    pb_codec *codec;
    pb_validator validator;
    pb_recompression recompression;
    int64_t held_bytes;
    uint64_t number; /* in the order in which they were begun */
} pb_big_batch;

typedef struct pb_big_batches {
    pb_io *io;
    pb_crew crew;
    int thread_count;
    int64_t memory_bytes;
    pthread_mutex_t lock;
    /* Under the lock. */
    pb_link due;     /* begun, each waiting for its next turn */
    pb_link waiting; /* not yet begun */
    int64_t held_bytes;
    uint64_t begun_count;
    bool stopping;
    /* Read by anyone. */
    _Atomic int64_t taken;          /* batches that have been handed over */
    _Atomic int64_t unpacked_bytes; /* of those that have been found good */
    _Atomic int64_t in_progress;
} pb_big_batches;

void pb_big_batches_init(pb_big_batches *batches, pb_io *io, int thread_count);
/* Ends the threads when all that was submitted is done. */
void pb_big_batches_stop(pb_big_batches *batches);
void pb_big_batches_destroy(pb_big_batches *batches);

/* Any thread; before stop. 0, or why no thread can be started: then `done` is not called. */
int pb_big_batches_submit(pb_big_batches *batches, pb_big_batch *batch, pb_failure *failure);

#endif
