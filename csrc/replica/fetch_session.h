/*
 * Incremental fetch sessions (KIP-227). A session remembers the fetcher's earlier requests, so that it need not repeat
 * them, and the answers, so that only changes are sent.
 *
 * The table is shared by all reactors under one mutex. A session is used by one request at a time (`busy`); that
 * request's reactor may touch it without the mutex. A removed session lives until its user lets go.
 */
#ifndef PB_REPLICA_FETCH_SESSION_H
#define PB_REPLICA_FETCH_SESSION_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "wire/generated/fetch_request.h"

#define PB_SESSION_BUCKETS 1024
#define PB_FETCH_SESSIONLESS 0
#define PB_FETCH_FINAL_EPOCH (-1)
#define PB_FETCH_INITIAL_EPOCH 0
/* The bound on the memory of all sessions together. Over it no session is made, and one that would grow ends: its
 * fetcher asks anew. */
#define PB_SESSION_MEMORY_BYTES (64LL * 1024 * 1024)

/* One partition in a session. Owner: the session. */
typedef struct pb_session_partition {
    pb_link link;                      /* the session's order: who got data goes to the end */
    struct pb_session_partition *next; /* hash chain */
    int32_t topic_length;              /* by name (before version 13); -1: by id */
    pb_uuid topic_id;
    int32_t index;
    int32_t max_bytes;
    int32_t current_leader_epoch;
    int32_t last_fetched_epoch;
    int64_t fetch_offset;
    int64_t log_start_offset;     /* a follower's */
    int64_t known_high_watermark; /* a follower's; INT64_MAX: not said */
    int64_t sent_high_watermark;  /* -1: tell it next time, whatever it is */
    int64_t sent_log_start_offset;
    char topic[]; /* any bytes a client sent, not ended */
} pb_session_partition;

typedef struct pb_fetch_session {
    struct pb_fetch_session *next; /* the table's hash chain */
    pb_link lru;                   /* least recently used first */
    int32_t id;
    int32_t epoch; /* of the next request */
    bool by_id;
    bool busy;
    bool removed;
    int64_t made_ms;
    int64_t used_ms;
    uint64_t seed; /* of the hash: a client must not choose what collides */
    int32_t partition_count;
    pb_link partitions;
    pb_session_partition **slots;
    uint32_t slot_count;
} pb_fetch_session;

typedef struct pb_fetch_sessions {
    pthread_mutex_t lock;
    pb_fetch_session *buckets[PB_SESSION_BUCKETS];
    pb_link lru;
    int32_t count;
    int32_t limit;
    _Atomic int64_t held_bytes; /* partitions of all sessions */
    uint64_t seed;
} pb_fetch_sessions;

/* `seed` is random: session ids and hashes come from it. */
int pb_fetch_sessions_init(pb_fetch_sessions *sessions, int32_t limit, uint64_t seed);
void pb_fetch_sessions_destroy(pb_fetch_sessions *sessions);
int32_t pb_fetch_sessions_count(pb_fetch_sessions *sessions);

/*
 * Begin a request. 0 with *out NULL: sessionless, everything is in the request. 0 with a session: it is busy now and
 * holds the partitions to fetch; *full tells whether all of them are answered (a new session) or only what changed.
 * Else FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR. An incremental request
 * that leaves its session empty ends it and is sessionless itself.
 */
int pb_fetch_session_begin(pb_fetch_sessions *sessions, const pb_fetch_request *request, int16_t version,
                           int64_t now_ms, pb_fetch_session **out, bool *full);
/* The name of a partition's topic; empty when it is known by id. */
static inline pb_slice pb_session_partition_topic(const pb_session_partition *partition)
{
    return partition->topic_length < 0 ? PB_EMPTY_SLICE : (pb_slice){partition->topic, partition->topic_length};
}

/* End it from within the request that uses it, which lets go of it with that. */
void pb_fetch_session_abandon(pb_fetch_sessions *sessions, pb_fetch_session *session);
/* Let go of it. */
void pb_fetch_session_end(pb_fetch_sessions *sessions, pb_fetch_session *session);

/* Should this partition be part of an incremental answer? Remembers what is sent. */
bool pb_session_partition_changed(pb_fetch_session *session, pb_session_partition *partition, bool has_records,
                                  int error, int64_t high_watermark, int64_t log_start_offset);

/* The fetcher that was sent the high watermark has not taken it. */
static inline void pb_session_partition_tell_again(pb_session_partition *partition)
{
    partition->sent_high_watermark = -1;
}

#endif
