/*
 * Following: fetchers, each with the partitions that this broker follows from one leader.
 *
 * A fetcher lives on one reactor and does all of its work there, on one connection of its own with one request under
 * way. It fetches, validates and appends (pb_partition_take_fetched). When that is written, or with durable acks
 * durable, it fetches on. It holds one fetch session at the leader (KIP-227), so that a request names what has changed
 * and no more. Partitions that are not ready (they write, are cut, or wait after an error) are left out meanwhile.
 *
 * Names are resolved and logs are cut by background threads. Other threads reach a fetcher by tasks alone.
 *
 *   fetcher.c          life, what follows, when what is sent
 *   link.c     the connection: resolving, connecting, backing off, sending
 *   request.c  Fetch and ListOffsets requests
 *   answer.c   what Fetch brings
 *   cut.c      cutting logs, and logs that lie outside of the leader's
 *   topics.c   finding a partition by topic id
 */
#ifndef PB_SERVER_FOLLOW_FETCHER_H
#define PB_SERVER_FOLLOW_FETCHER_H

#include "base/arena.h"
#include "replica/follow.h"
#include "server/broker.h"
#include "wire/generated/fetch_response.h"
#include "wire/writer.h"

#define PB_FETCHER_HOST_BYTES 256
#define PB_FETCHER_CLIENT_BYTES 128
#define PB_FETCHER_ADDRESSES 8
#define PB_FETCHER_REQUEST_BYTES (64u << 20)
#define PB_FETCHER_ARENA_KEPT_BYTES (64u << 10)
#define PB_LIST_OFFSETS_VERSION 7
/* A leader hears of its election when it does, as a rule milliseconds before or after its followers. So often, and
 * after so long each time, it is asked again; then after backoff_ms. */
#define PB_FETCHER_SOON_COUNT 50
#define PB_FETCHER_SOON_NS INT64_C(20000000)
#define PB_FETCH_WATERMARK_VERSION 18 /* from then on a request tells the follower's high watermark (KIP-1166) */

typedef struct pb_fetcher_settings {
    int32_t leader_id;
    char host[PB_FETCHER_HOST_BYTES];
    char client_id[PB_FETCHER_CLIENT_BYTES];
    int32_t port;
    int32_t replica_id;
    int16_t fetch_version;
    int32_t max_wait_ms;
    int32_t min_bytes;
    int32_t max_bytes;
    int32_t partition_max_bytes;
    int64_t backoff_ns;
    int64_t timeout_ns; /* of connecting, and of an answer beside max_wait_ms */
} pb_fetcher_settings;

/* The values are pybroker.h's pb_follower_news. */
enum pb_followed_tell {
    PB_TELL_RESTARTED = 1,
    PB_TELL_CUT = 2,
    PB_TELL_CORRUPT = 3,
    PB_TELL_STOPPED = 4,
    PB_TELL_CHECKPOINT = 5,
};

enum pb_followed_step {
    PB_FOLLOW_READY,   /* to be fetched */
    PB_FOLLOW_WRITING, /* what was fetched is on its way into the log */
    PB_FOLLOW_CUTTING, /* the log is cut, or will be soon */
    PB_FOLLOW_ASKING,  /* the leader is asked where its log begins or ends */
    PB_FOLLOW_DELAYED, /* after an error, or for a sync */
    PB_FOLLOW_STOPPED, /* the log takes no more: until it is told to follow again */
    PB_FOLLOW_GONE,    /* it follows no more */
};

/* The part of a fetch that concerns one partition. */
typedef struct pb_fetch_position {
    int64_t offset;
    int64_t log_start_offset;
    int64_t high_watermark;
    int32_t leader_epoch;
    int32_t last_epoch;
} pb_fetch_position;

/* A partition of a fetcher. Owner: its topic, until it is gone, nothing refers to it and the leader has forgotten it.
 */
typedef struct pb_followed {
    struct pb_followed_topic *topic;
    int32_t index;
    enum pb_followed_step step;
    pb_partition *partition; /* retained; NULL: gone */
    uint64_t ticket;         /* see follow.h */
    int32_t leader_epoch;    /* that it follows */
    int references;          /* of writes and cuts under way */
    pb_timer timer;          /* of DELAYED, and of CUTTING until it is tried again */
    pb_link link;            /* the fetcher's `changed` or `absent` */
    pb_link asking_link;     /* the fetcher's `asking` */
    pb_link told_link;       /* the fetcher's `told` */
    int64_t told_watermark;  /* the leader's, of the answer that sent it back; on that list */
    pb_fetch_position now;
    pb_fetch_position sent; /* what the session has, while in_session */
    uint64_t sent_ticket;
    bool in_session;
    bool asks_start; /* ASKING: where the leader's log begins, after where it ends */
    int soon_count;  /* looks at a leader that does not know of its election yet, since it began or fetched last */
    pb_follow_cut cut;
} pb_followed;

typedef struct pb_followed_topic {
    struct pb_followed_topic *next; /* of the same hash */
    struct pb_fetcher *fetcher;
    uint8_t id[PB_UUID_BYTES];
    char name[PB_TOPIC_NAME_BYTES];
    pb_followed **followers; /* by index; NULL: not here */
    int32_t capacity;
    int32_t held;
    /* While a request is put together: */
    pb_link link;   /* the topics it names, */
    int32_t place;  /* this one's among them, */
    int32_t listed; /* and how many of its partitions */
} pb_followed_topic;

typedef struct pb_followed_topics {
    pb_followed_topic **buckets;
    uint32_t bucket_count; /* a power of two, or 0 */
    uint32_t count;
} pb_followed_topics;

/* Counters: written by the home reactor, read by others. */
typedef struct pb_fetcher_counters {
    _Atomic int64_t requests;
    _Atomic int64_t bytes;
    _Atomic int64_t record_bytes;
    _Atomic int64_t batches;
    _Atomic int64_t records;
    _Atomic int64_t connections;
    _Atomic int64_t failures;
    _Atomic int64_t partitions;
    _Atomic int64_t connected;
} pb_fetcher_counters;

enum pb_fetcher_expects { PB_EXPECTS_NOTHING, PB_EXPECTS_FETCH, PB_EXPECTS_OFFSETS };

typedef struct pb_fetcher {
    pb_broker *broker;
    pb_server_reactor *home;
    atomic_int references; /* the handle, followed partitions, tasks and jobs */
    pb_fetcher_settings settings;
    pb_fetcher_counters counters;
    pb_connection_handler handler;
    pb_task close;
    /* From here on only the home reactor. */
    int64_t replica_epoch;
    bool closed;
    /* The connection. */
    pb_connection *connection; /* NULL: there is none */
    bool connected;
    bool resolving;
    bool complained; /* about not reaching the leader, since it was reached last */
    pb_address addresses[PB_FETCHER_ADDRESSES];
    int address_count;
    int next_address;
    pb_timer retry;    /* set: not before that */
    pb_timer deadline; /* of connecting, or of the answer */
    /* The request under way. */
    enum pb_fetcher_expects expects;
    bool sending;
    int32_t correlation_id;
    bool asks_start; /* EXPECTS_OFFSETS: what was asked, as the followers' */
    pb_response request;
    pb_output output;
    pb_writer writer;
    pb_arena arena; /* what a request is put together in, and a ListOffsets answer */
    /* The session. */
    int32_t session_id;
    int32_t session_epoch; /* 0: the next request begins one */
    /* The partitions that follow. */
    pb_followed_topics topics;
    pb_link changed; /* READY, and the session has something else of it */
    pb_link absent;  /* in the session, and not READY */
    pb_link asking;  /* ASKING */
    pb_link told;    /* sent back by the leader, whose high watermark they take when it lets their logs be */
    int ready_count;
    int busy_count;    /* WRITING or CUTTING */
    bool handling;     /* an answer: nothing is sent before its end */
    pb_timer patience; /* set: those that are busy are waited for */
    bool impatient;    /* they have been */
    pb_link answers;   /* pb_fetch_answer: to be used again */
    int answer_count;
} pb_fetcher;

/* ---- fetcher.c ---- */

int pb_fetcher_create(pb_broker *broker, const pb_fetcher_settings *settings, int64_t replica_epoch, pb_fetcher **out);
void pb_fetcher_retain(pb_fetcher *fetcher);
void pb_fetcher_release(pb_fetcher *fetcher); /* any thread */
/* Any thread: the handle ends; what it fetches for stands still. */
void pb_fetcher_end(pb_fetcher *fetcher);
/* Any thread: from the next connection on, which begins at once. -ENOMEM. */
int pb_fetcher_change_epoch(pb_fetcher *fetcher, int64_t replica_epoch);
/* Any thread: fetch for a ticket of the partition, at this epoch; and no more. */
int pb_fetcher_add(pb_fetcher *fetcher, pb_partition *partition, uint64_t ticket, int32_t leader_epoch);
void pb_fetcher_drop(pb_fetcher *fetcher, pb_partition *partition, uint64_t ticket);

/* The rest: the home reactor only. */

/* Send what is to be sent, unless something is under way. */
void pb_fetcher_go_on(pb_fetcher *fetcher);
/* The session has ended, or never was: the next request names everything. */
void pb_fetcher_reset_session(pb_fetcher *fetcher);
/* It has come to another step: what the next request says of it. */
void pb_followed_move(pb_followed *follower, enum pb_followed_step step);
/* READY, if the ticket holds and all is settled. */
void pb_followed_settle(pb_followed *follower);
/* READY, at those ends, unless it is throttled. */
void pb_followed_take_ends(pb_followed *follower, const pb_follow_ends *ends);
void pb_followed_delay(pb_followed *follower, int64_t delay_ns);
/* Look at it again then. */
void pb_followed_time(pb_followed *follower, int64_t delay_ns);
void pb_followed_tell(pb_followed *follower, enum pb_followed_tell what, int64_t offset);
/* It stands still until it is told to follow again, and Python hears of that. */
void pb_followed_stop(pb_followed *follower);
/* It follows no more. */
void pb_followed_quit(pb_followed *follower);
/* Free it if it is gone, and nobody needs it any more. */
void pb_followed_collect(pb_followed *follower);
/* A write or cut of it has ended; frees it when it is gone. true: it is still the one of `ticket`. */
bool pb_followed_unref(pb_followed *follower, uint64_t ticket);

static inline pb_fetcher *pb_fetcher_of(const pb_followed *follower)
{
    return follower->topic->fetcher;
}

/* ---- link.c ---- */

void pb_fetcher_init_link(pb_fetcher *fetcher);
/* Connect, unless it is, or shall wait. */
void pb_fetcher_connect(pb_fetcher *fetcher);
/* The leader cannot be understood, or does not answer: begin anew after backoff. */
void pb_fetcher_fail(pb_fetcher *fetcher, const char *why);
void pb_fetcher_disconnect(pb_fetcher *fetcher);
/* `writer` has a whole request with this correlation id. */
void pb_fetcher_send(pb_fetcher *fetcher, enum pb_fetcher_expects expects, int64_t wait_ms);
/* Ours is to write no more requests: the broker ends. */
bool pb_fetcher_is_over(const pb_fetcher *fetcher);

/* ---- request.c ---- */

/* false: there is nothing to ask for. */
bool pb_fetcher_send_fetch(pb_fetcher *fetcher);
void pb_fetcher_send_offsets(pb_fetcher *fetcher);

/* ---- answer.c ---- */

/* The body of an answer to a Fetch. 0, or -errno: it cannot be used. */
int pb_fetcher_take_fetch(pb_fetcher *fetcher, pb_chunk *chunk, const uint8_t *body, size_t length);
void pb_fetcher_free_answers(pb_fetcher *fetcher);

/* ---- cut.c ---- */

/* Cut its log as `cut` says. */
void pb_followed_cut(pb_followed *follower, const pb_follow_cut *cut);
/* Its offset is not in the leader's log. */
void pb_followed_ask(pb_followed *follower);
int pb_fetcher_take_offsets(pb_fetcher *fetcher, const uint8_t *body, size_t length);

/* ---- topics.c ---- */

pb_followed *pb_followed_find(const pb_followed_topics *topics, const uint8_t id[PB_UUID_BYTES], int32_t index);
/* The one that is there, or a new one that is GONE. NULL: no memory. */
pb_followed *pb_followed_make(pb_fetcher *fetcher, const pb_partition *partition);
/* Take it out and free it; its topic with its last one. */
void pb_followed_free(pb_followed *follower);
/* Each of them; `visit` may free the one it is given. */
void pb_followed_each(pb_followed_topics *topics, void (*visit)(pb_followed *follower));
void pb_followed_clear(pb_followed_topics *topics);

#endif
