/* The clock: keeps every connection's pipeline full (closed loop) or on schedule (open loop) and times each answer.
 *
 * One thread, one epoll set. The engine owns sockets and buffers; a workload says what to send and judges answers.
 * A closed connection or an answer out of order ends the program: a figure with lost requests would be no figure.
 */
#ifndef PBL_ENGINE_H
#define PBL_ENGINE_H

#include "client/client.h"
#include "stats/stats.h"

/* One request as a workload hands it over. `body` stays valid and unchanged until the answer came. */
struct pbl_request {
    enum pbl_api api;
    int16_t version;
    bool unanswered; /* acks=0: done when the last byte was sent */
    const uint8_t *body;
    size_t body_bytes;
    uint64_t payload_bytes; /* counted when answered */
    uint32_t record_count;  /* counted when answered; 0 where it is not known */
    uint32_t tag;           /* the workload's own */
};

struct pbl_in_flight {
    struct pbl_request request;
    uint8_t head[PBL_FRAME_HEAD_BYTES];
    size_t sent_bytes;
    int32_t correlation_id;
    uint64_t start_ns;
};

struct pbl_connection {
    uint32_t index;
    int fd;
    uint64_t due_ns;              /* open loop: when the next request is due */
    uint64_t free_ns;             /* a probe: when the last answer had come */
    struct pbl_in_flight *ring;   /* in_flight_count entries, used as a ring */
    uint64_t queued, sent, ended; /* running counts: ended <= sent <= queued <= ended + in_flight_count */
    bool wants_writable;
    struct pbl_buffer input;
    size_t input_position; /* of the first byte not parsed yet */
};

struct pbl_workload {
    void *context;
    bool times_itself;    /* records latencies with pbl_stats_record_latency; the engine does not */
    bool polls;           /* `next` may turn true by time alone: ask again every few milliseconds */
    uint32_t paced_count; /* open loop: so many connections keep the schedule, the others are closed loop; 0: all do */
    /* Fill in the next request of this connection; false when it has none now. */
    bool (*next)(void *context, struct pbl_connection *connection, struct pbl_request *request);
    /* Judge an answer; `body` starts after the correlation id. Gives a Kafka error code, 0 when good. May add to
     * `in_flight->request.payload_bytes`. A reader left failed counts as malformed. */
    int16_t (*answer)(void *context, struct pbl_connection *connection, struct pbl_in_flight *in_flight,
                      struct pbl_reader *body);
    bool (*finished)(void *context); /* NULL: only the bounds end the run */
};

struct pbl_engine {
    const struct pbl_options *options;
    int epoll_fd;
    struct pbl_connection *connections;
    int32_t correlation_id;
    struct pbl_stats *stats;
};

uint64_t pbl_now_ns(void);

/* Open options->connection_count connections. */
void pbl_engine_open(struct pbl_engine *engine, const struct pbl_options *options);
void pbl_engine_close(struct pbl_engine *engine);

/* Run until a bound of the options, the workload, SIGINT or SIGTERM ends it, then collect what is still in flight. */
void pbl_engine_run(struct pbl_engine *engine, const struct pbl_workload *workload, struct pbl_stats *stats);

#endif
