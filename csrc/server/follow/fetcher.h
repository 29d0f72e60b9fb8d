/*
 * Followers: a fetcher copies the partitions that this broker follows from one leader's broker.
 *
 * A fetcher lives on one reactor and does all of its work there. It has one connection of its own, with one request
 * under way. It fetches records, validates them and appends them (pb_partition_take_fetched). When they are written, or
 * with durable acks when they are durable, it fetches the next ones. The fetcher has one fetch session at the leader
 * (KIP-227), so a request names only the partitions with changes. Partitions that are not ready (being written, being
 * cut, or waiting after an error) are left out meanwhile.
 *
 * Background threads resolve names and cut logs. Other threads send a fetcher tasks, and never touch its state.
 *
 * "A followed partition", or follower, is pb_followed: a partition that one fetcher fetches.
 *
 *   fetcher.c  making and ending fetchers, the steps of their followers, and when to send requests
 *   link.c     the connection: resolving, connecting, backing off, sending
 *   request.c  Fetch and ListOffsets requests
 *   answer.c   answers to Fetch
 *   cut.c      cutting logs, ListOffsets answers, and logs that lie outside of the leader's log
 *   topics.c   finding a follower by topic id
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
/* A follower may learn of an election some milliseconds before its leader does. So it asks the leader again up to
 * SOON_COUNT times, each time after SOON_NS, and then after backoff_ms. */
#define PB_FETCHER_SOON_COUNT 50
#define PB_FETCHER_SOON_NS INT64_C(20000000)
#define PB_FETCH_WATERMARK_VERSION 18 /* from it on, a Fetch has the follower's high watermark (KIP-1166) */

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
    int64_t timeout_ns; /* for connecting; an answer may take max_wait_ms and this */
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
    PB_FOLLOW_READY,   /* the next Fetch asks for it */
    PB_FOLLOW_WRITING, /* fetched records are being written to its log */
    PB_FOLLOW_CUTTING, /* its log is being cut, or will be soon */
    PB_FOLLOW_ASKING,  /* the leader is asked where its log begins or ends */
    PB_FOLLOW_DELAYED, /* it waits, after an error or for a sync */
    PB_FOLLOW_STOPPED, /* its log cannot be written: it waits until Python makes it follow again */
    PB_FOLLOW_GONE,    /* the fetcher does not fetch it any more */
};

/* The fields of a Fetch request for one partition. */
typedef struct pb_fetch_position {
    int64_t offset;
    int64_t log_start_offset;
    int64_t high_watermark;
    int32_t leader_epoch;
    int32_t last_epoch;
} pb_fetch_position;

/* A followed partition. Owner: its pb_followed_topic. It is freed when it is GONE, has no references, and has left the
 * leader's session. */
typedef struct pb_followed {
    struct pb_followed_topic *topic;
    int32_t index;
    enum pb_followed_step step;
    pb_partition *partition; /* retained; NULL: gone */
    uint64_t ticket;         /* see follow.h */
    int32_t leader_epoch;    /* the epoch that it follows */
    int references;          /* of writes and cuts under way */
    pb_timer timer;          /* DELAYED: the end of the delay; CUTTING: the next attempt */
    pb_link link;            /* the fetcher's `changed` or `absent` */
    pb_link asking_link;     /* the fetcher's `asking` */
    pb_link told_link;       /* the fetcher's `told` */
    int64_t told_watermark;  /* on the list `told`: the leader's high watermark in that answer */
    pb_fetch_position now;
    pb_fetch_position sent; /* while in_session: the position that the session has */
    uint64_t sent_ticket;
    bool in_session;
    bool asks_start; /* ASKING: asks where the leader's log begins; false: where it ends, which is asked first */
    int soon_count;  /* attempts at a leader that does not know of its election yet, since the last fetched records */
    pb_follow_cut cut;
} pb_followed;

typedef struct pb_followed_topic {
    struct pb_followed_topic *next; /* of the same hash */
    struct pb_fetcher *fetcher;
    uint8_t id[PB_UUID_BYTES];
    char name[PB_TOPIC_NAME_BYTES];
    pb_followed **followers; /* by partition index; NULL: not followed */
    int32_t capacity;
    int32_t held; /* how many entries are not NULL */
    /* While a request is made: */
    pb_link link;   /* in the list of topics that it names */
    int32_t place;  /* this topic's index among them */
    int32_t listed; /* how many of its partitions the request names */
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
    pb_timer retry;    /* set: do not connect before it */
    pb_timer deadline; /* of connecting, or of the answer */
    /* The request under way. */
    enum pb_fetcher_expects expects;
    bool sending;
    int32_t correlation_id;
    bool asks_start; /* EXPECTS_OFFSETS: the request asks for log starts; false: for log ends */
    pb_response request;
    pb_output output;
    pb_writer writer;
    pb_arena arena; /* memory for the request that is being made, and for a ListOffsets answer */
    /* The session. */
    int32_t session_id;
    int32_t session_epoch; /* 0: the next request begins one */
    /* The partitions that follow. */
    pb_followed_topics topics;
    pb_link changed; /* followers that are READY, and whose position differs from the session's */
    pb_link absent;  /* followers that are in the session, and not READY */
    pb_link asking;  /* followers that are ASKING */
    pb_link told;    /* followers with told_watermark: they take it over if the answer does not make them cut */
    int ready_count;
    int busy_count;    /* how many are WRITING or CUTTING */
    bool handling;     /* an answer is being handled: nothing is sent before its end */
    pb_timer patience; /* set: the next request waits for busy followers until then */
    bool impatient;    /* that wait is over */
    pb_link answers;   /* of pb_fetch_answer: to be used again */
    int answer_count;
} pb_fetcher;

/* ---- fetcher.c ---- */

int pb_fetcher_create(pb_broker *broker, const pb_fetcher_settings *settings, int64_t replica_epoch, pb_fetcher **out);
void pb_fetcher_retain(pb_fetcher *fetcher);
void pb_fetcher_release(pb_fetcher *fetcher); /* any thread */
/* End the handle. Its followers stand still. Any thread. */
void pb_fetcher_end(pb_fetcher *fetcher);
/* Use another epoch of this broker. The fetcher connects again at once to do so. -ENOMEM. Any thread. */
int pb_fetcher_change_epoch(pb_fetcher *fetcher, int64_t replica_epoch);
/* Begin to fetch for this ticket of the partition, at `leader_epoch`; drop ends that. Any thread. */
int pb_fetcher_add(pb_fetcher *fetcher, pb_partition *partition, uint64_t ticket, int32_t leader_epoch);
void pb_fetcher_drop(pb_fetcher *fetcher, pb_partition *partition, uint64_t ticket);

/* Only the home reactor calls the functions below. */

/* Send the next request, unless one is under way. */
void pb_fetcher_go_on(pb_fetcher *fetcher);
/* There is no session at the leader: the next request names all partitions. */
void pb_fetcher_reset_session(pb_fetcher *fetcher);
/* Set the follower's step, and put it on the lists for the next request. */
void pb_followed_move(pb_followed *follower, enum pb_followed_step step);
/* Decide the follower's next step from the ends of its log. It becomes READY, if earlier appends are settled, and its
 * log does not have to be cut. It becomes GONE if its ticket is not valid any more. */
void pb_followed_settle(pb_followed *follower);
/* Make the follower READY, at these ends of its log. If it is throttled, delay it instead. */
void pb_followed_take_ends(pb_followed *follower, const pb_follow_ends *ends);
void pb_followed_delay(pb_followed *follower, int64_t delay_ns);
/* Set the follower's timer. */
void pb_followed_time(pb_followed *follower, int64_t delay_ns);
void pb_followed_tell(pb_followed *follower, enum pb_followed_tell what, int64_t offset);
/* Make the follower STOPPED, and tell Python. */
void pb_followed_stop(pb_followed *follower);
/* Make the follower GONE. */
void pb_followed_quit(pb_followed *follower);
/* Free the follower if it is GONE, has no references, and has left the session. */
void pb_followed_collect(pb_followed *follower);
/* A write or cut of the follower has ended: drop its reference, and free the follower if it can be. Returns true when
 * the follower still has this ticket. */
bool pb_followed_unref(pb_followed *follower, uint64_t ticket);

static inline pb_fetcher *pb_fetcher_of(const pb_followed *follower)
{
    return follower->topic->fetcher;
}

/* ---- link.c ---- */

void pb_fetcher_init_link(pb_fetcher *fetcher);
/* Connect, unless the fetcher is connected or has to wait for `retry`. */
void pb_fetcher_connect(pb_fetcher *fetcher);
/* The leader's answer is invalid, or does not come: disconnect, and connect again after the backoff. */
void pb_fetcher_fail(pb_fetcher *fetcher, const char *why);
void pb_fetcher_disconnect(pb_fetcher *fetcher);
/* Send the request in `writer`, which has the current correlation id. */
void pb_fetcher_send(pb_fetcher *fetcher, enum pb_fetcher_expects expects, int64_t wait_ms);
/* The broker stops: no more requests may be sent. */
bool pb_fetcher_is_over(const pb_fetcher *fetcher);

/* ---- request.c ---- */

/* Send a Fetch. false: there is nothing to ask for. */
bool pb_fetcher_send_fetch(pb_fetcher *fetcher);
void pb_fetcher_send_offsets(pb_fetcher *fetcher);

/* ---- answer.c ---- */

/* Handle the body of a Fetch answer. 0, or -errno: the answer is invalid. */
int pb_fetcher_take_fetch(pb_fetcher *fetcher, pb_chunk *chunk, const uint8_t *body, size_t length);
void pb_fetcher_free_answers(pb_fetcher *fetcher);

/* ---- cut.c ---- */

/* Cut the follower's log as `cut` says. */
void pb_followed_cut(pb_followed *follower, const pb_follow_cut *cut);
/* The follower's offset is not in the leader's log: ask the leader where its log begins and ends. */
void pb_followed_ask(pb_followed *follower);
/* Handle the body of a ListOffsets answer. 0, or -errno: the answer is invalid. */
int pb_fetcher_take_offsets(pb_fetcher *fetcher, const uint8_t *body, size_t length);

/* ---- topics.c ---- */

pb_followed *pb_followed_find(const pb_followed_topics *topics, const uint8_t id[PB_UUID_BYTES], int32_t index);
/* Find the follower of this partition, or make one that is GONE. NULL: no memory. */
pb_followed *pb_followed_make(pb_fetcher *fetcher, const pb_partition *partition);
/* Remove the follower from its topic and free it. The topic is freed with its last follower. */
void pb_followed_free(pb_followed *follower);
/* Call `visit` for each follower. `visit` may free its follower. */
void pb_followed_each(pb_followed_topics *topics, void (*visit)(pb_followed *follower));
/* Free the hash table, which must have no topics any more. */
void pb_followed_clear(pb_followed_topics *topics);

#endif
