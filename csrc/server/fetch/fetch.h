/*
 * A Fetch in progress: shared by the files that parse, read, wait and answer. See fetch.c for the order.
 */
#ifndef PB_SERVER_FETCH_FETCH_H
#define PB_SERVER_FETCH_FETCH_H

#include "server/request.h"
#include "wire/generated/fetch_request.h"
#include "wire/generated/fetch_response.h"

#define FETCH_NEAR_MAX 32
/* No more than this of a ring is copied at once, unless a batch is larger. */
#define PB_FETCH_RING_BYTES (4 * 1024 * 1024)

/* One partition to fetch. Owner: the request's arena. */
typedef struct fetch_item {
    pb_slice topic; /* by name (before version 13) */
    pb_uuid topic_id;
    int32_t index;
    int32_t max_bytes;
    int32_t current_leader_epoch;
    int32_t last_fetched_epoch;
    int64_t offset;
    int64_t log_start_offset;     /* a follower's */
    int64_t known_high_watermark; /* a follower's, which wants to hear of a higher one; INT64_MAX: it does not */
    bool counted;                 /* a follower's progress has been */
    bool repeated;                /* another item stands for it */
    int32_t preferred_replica;    /* a consumer shall read there; -1: here */
    pb_session_partition *cached; /* NULL: sessionless */
    pb_partition *partition;      /* retained; NULL: unknown */
    int error;
    bool found;         /* something to send */
    pb_log_slice slice; /* of it what leaves by sendfile, or is to be copied; pinned */
    pb_chunk *copy;     /* of what the file has not got all of; NULL: none */
    pb_slice records;   /* of the answer: a copy beside the header; NULL: a gap for `copy` or a range of the file */
    pb_partition_ends ends;
    pb_fetch_response_epoch_end_offset diverging;
    pb_aborted_transaction *aborted; /* malloc'd */
    int aborted_count;
    pb_partition_waiter waiter;
} fetch_item;

/*
 * Owner: the request's arena; its reactor's thread, but for `missing_bytes` and `woken`.
 * READING -> (enough, an error, or no wait asked) ANSWERED; -> WAITING: on partitions and a timer -> READING
 *
 * READING -> LOOKING UP: what is asked for, on a background thread, as an index or a header is not in memory -> as
 * after READING
 *
 * READING -> BRINGING IN: what is to be sent into memory, on a background thread -> ANSWERED
 *
 * ANSWERED -> COPYING: what memory has lost again before it was copied, on a background thread -> ANSWERED
 *
 * ANSWERED -> LOOKING UP again: all that was found is gone, as the log was truncated
 *
 * ANSWERED -> BRINGING IN again: what a slow client has not been sent yet, and memory has lost -> sent
 */
typedef struct fetch_state {
    pb_request *request;
    pb_fetch_request in;
    pb_fetch_session *session;
    bool full; /* answer every partition */
    bool read_committed;
    int32_t replica_id;    /* of the follower that fetches; < 0: a consumer */
    bool from_follower;    /* a consumer that may read from us where we do not lead */
    int64_t replica_epoch; /* its broker epoch; -1: not said */
    int64_t began_ns;
    int32_t near[FETCH_NEAR_MAX]; /* brokers in the consumer's rack, unless this one is there too */
    int near_count;
    bool waiting;
    bool hurried;    /* the connection is closing: no more waiting */
    bool must_wait;  /* the read would have had to wait for a disk, and was given up */
    bool never_wait; /* the read under way must not wait for a disk */
    bool probing;    /* the read under way is to find where each item begins, no more */
    bool looked_up;  /* by a background thread, as something was not in memory */
    fetch_item *items;
    int32_t item_count;
    int32_t limit_bytes;    /* of the answer: the request's and the broker's */
    int32_t min_bytes;      /* worth answering before the wait is over */
    int64_t reserved_bytes; /* of the pool, for records copied beside the header */
    int64_t bytes;          /* found by the last read */
    bool has_ring_records;  /* the answer */
    int rereads;            /* as nothing was left of what had been found */
    int32_t copied_count;   /* items that have their records */
    bool has_news;          /* an error, or what a follower wants to hear of: answered at once */
    int64_t deadline_ns;
    pb_timer timer;
    _Atomic int64_t missing_bytes; /* until min.bytes */
    atomic_bool woken;             /* a wake task is under way */
    pb_task wake;
    /* A background thread's, from pb_cold_reads_submit until it posts `brought`. */
    pb_cold_read cold;
    pb_task brought;
    int32_t cold_item;           /* being brought in */
    bool in_history;             /* some of what was found in memory */
    int64_t cold_left_bytes;     /* of the answer, to be brought in beforehand */
    int64_t cold_start_position; /* in its file */
    int64_t cold_position;
    int64_t cold_end_position;
    int cold_result;
    pb_piece *pinned; /* being sent; NULL: none */
} fetch_state;

/* Find what can be sent now, for all items. */
void pb_fetch_read(fetch_state *fetch);
/* The batch that the item asks for is damaged: the broker's log is told of it once. */
void pb_fetch_tell_damage(fetch_state *fetch, const fetch_item *item);
/* Let go of what the last read pinned. */
void pb_fetch_unpin(fetch_state *fetch);
void pb_fetch_unpin_item(fetch_item *item);
/* pb_fetch_read, unless that would wait for a disk: then false, and nothing is found. */
bool pb_fetch_read_resident(fetch_state *fetch);
/* pb_fetch_read on a background thread, then pb_fetch_looked_up on the reactor's. */
void pb_fetch_look_up(fetch_state *fetch);
void pb_fetch_looked_up(fetch_state *fetch);
/* Is all that is to be sent in memory? */
bool pb_fetch_is_resident(fetch_state *fetch);
/* Bring it in, and answer. */
void pb_fetch_bring_in(fetch_state *fetch);
/* The connection handler's `place`. */
enum pb_part_place pb_fetch_place_to_send(pb_response *response, const pb_output *output, bool brought, int64_t *length,
                                          const uint8_t **bytes);
/* Nothing of the answer is being sent any more. */
void pb_fetch_let_go(fetch_state *fetch);
/* Give every item its records. false: a background thread copies some, and pb_fetch_answer follows on the reactor. */
bool pb_fetch_copy(fetch_state *fetch);
/* One item's records, its error, or neither if the log was truncated. -EAGAIN: a disk would have to be waited for,
 * unless the caller `waits`. */
int pb_fetch_copy_item(fetch_state *fetch, fetch_item *item, bool waits);
/* The item that is to be copied next, on a background thread; then pb_fetch_answer. */
void pb_fetch_copy_cold(fetch_state *fetch);
/* Write the answer and let it go. */
void pb_fetch_answer(fetch_state *fetch);
/* Answer with nothing but how long the consumer has to wait. */
void pb_fetch_answer_throttled(fetch_state *fetch, int32_t throttle_time_ms);
/* Answer with an error for the whole request. */
void pb_fetch_answer_error(fetch_state *fetch, int error);

#endif
