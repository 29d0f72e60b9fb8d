/*
 * A Fetch in progress: shared by the files that parse, read, wait and answer. See fetch.c for the order.
 */
#ifndef PB_SERVER_FETCH_H
#define PB_SERVER_FETCH_H

#include "server/request.h"
#include "wire/generated/fetch_request.h"
#include "wire/generated/fetch_response.h"

/* One partition to fetch. Owner: the request's arena. */
typedef struct fetch_item {
    pb_slice topic; /* by name (before version 13) */
    pb_uuid topic_id;
    int32_t index;
    int32_t max_bytes;
    int32_t current_leader_epoch;
    int32_t last_fetched_epoch;
    int64_t offset;
    pb_session_partition *cached; /* NULL: sessionless */
    pb_partition *partition;      /* retained; NULL: unknown */
    int error;
    pb_log_slice slice; /* what is sent; pinned */
    pb_chunk *copy;     /* of it, where the file has not got all of it; NULL: none */
    pb_partition_ends ends;
    pb_fetch_response_epoch_end_offset diverging;
    pb_aborted_transaction *aborted; /* malloc'd */
    int aborted_count;
    pb_partition_waiter waiter;
} fetch_item;

/*
 * Owner: the request's arena; its reactor's thread, but for `missing_bytes` and `woken`.
 * READING -> (enough, an error, or no wait asked) ANSWERED; -> WAITING: on partitions and a timer -> READING
 * READING -> WARMING: a background thread brings cold pages in -> ANSWERED
 */
typedef struct fetch_state {
    pb_request *request;
    pb_fetch_request in;
    pb_fetch_session *session;
    bool full; /* answer every partition */
    bool read_committed;
    bool waiting;
    bool hurried; /* the connection is closing: no more waiting */
    fetch_item *items;
    int32_t item_count;
    int32_t limit_bytes;    /* of the answer: the request's and the broker's */
    int32_t min_bytes;      /* worth answering before the wait is over */
    int64_t reserved_bytes; /* of the pool, for records copied beside the header */
    int64_t bytes;          /* found by the last read */
    bool has_error;         /* of a partition: answered at once */
    int64_t deadline_ns;
    pb_timer timer;
    _Atomic int64_t missing_bytes; /* until min.bytes */
    atomic_bool woken;             /* a wake task is under way */
    pb_task wake;
    pb_job warm;
    pb_task warmed;
} fetch_state;

/* Find what can be sent now, for all items. */
void pb_fetch_read(fetch_state *fetch);
/* Let go of what the last read pinned. */
void pb_fetch_unpin(fetch_state *fetch);
void pb_fetch_unpin_item(fetch_item *item);
/* Is any of it not in memory? */
bool pb_fetch_is_cold(fetch_state *fetch);
/* Write the answer and let it go. */
void pb_fetch_answer(fetch_state *fetch);
/* Answer with an error for the whole request. */
void pb_fetch_answer_error(fetch_state *fetch, int error);

#endif
