/*
 * The broker's data plane as a whole: reactors, listeners, what they serve, and the queue towards Python.
 *
 * Everything in here is made by pb_broker_create and lives until pb_broker_destroy; each struct says which thread may
 * touch what. Layers below know nothing of it but an opaque owner pointer.
 */
#ifndef PB_SERVER_BROKER_H
#define PB_SERVER_BROKER_H

#include "base/histogram.h"
#include "log/clean/throttle.h"
#include "log/engine/tail_ring.h"
#include "net/connection.h"
#include "record/recompress.h"
#include "replica/fetch_session.h"
#include "replica/flush_group.h"
#include "replica/registry.h"
#include "server/events.h"
#include "server/ping.h"
#include "server/quota/client_quotas.h"
#include "server/quota/quota.h"
#include "server/racks.h"
#include "server/threads/big_batches.h"
#include "server/threads/cold_reads.h"
#include "server/threads/flusher.h"
#include "server/threads/sync.h"
#include "server/threads/worker.h"
#include "wire/generated/apis.h"

#define PB_MAX_REACTORS 64
#define PB_MAX_LISTENERS 16
#define PB_API_KEYS 128
#define PB_STAGES 5
#define PB_RESIDENT_RANGES 16
#define PB_FETCHED_BYTES (64LL << 20) /* receive buffers of all fetchers; above it they wait */

typedef struct pb_broker pb_broker;
typedef struct pb_request pb_request;

/* Settings, copied from pybroker.h's pb_broker_options. */
typedef struct pb_broker_settings {
    int32_t node_id;
    int32_t reactor_count;
    int64_t spin_ns;
    int64_t buffer_budget_bytes;
    uint32_t max_request_bytes;
    _Atomic int32_t max_connections; /* changes while it runs: any thread */
    int64_t idle_close_ns;
    int32_t fetch_session_slots;
    int32_t fetch_max_bytes;
    int64_t history_cache_bytes;
    int64_t slow_request_ns; /* who takes longer is told of; 0: nobody */
} pb_broker_settings;

/* Counters of one reactor: written by its thread, read by others. */
typedef struct pb_server_counters {
    _Atomic int64_t requests;
    _Atomic int64_t produce_requests;
    _Atomic int64_t fetch_requests;
    _Atomic int64_t bad_requests;
    _Atomic int64_t appended_batches;
    _Atomic int64_t appended_records;
    _Atomic int64_t appended_bytes;
    _Atomic int64_t failed_produces; /* partitions of requests that were refused */
    _Atomic int64_t throttled;       /* how often a connection had to wait for buffer memory */
    _Atomic int64_t quota_throttled; /* how often a client had to wait because of its quota */
    _Atomic int64_t slow_requests;
    _Atomic int64_t rolls;
    _Atomic int64_t cold_reads;
    _Atomic int64_t empty_fetches; /* answers that had lost all that was found for them, and so were read for again */
    _Atomic int64_t delayed_fetches;
} pb_server_counters;

/* A reactor and what the server keeps for it. Only its thread, but for the counters and histograms. */
typedef struct pb_server_reactor {
    pb_reactor reactor;
    pb_broker *broker;
    pb_codec *codec;
    pb_recompressed recompressed; /* memory for the batch that is rewritten */
    pb_link free_requests;        /* recycled */
    int free_count;
    pb_partition **turn; /* partitions to write at the end of this turn; retained */
    uint32_t turn_count;
    uint32_t turn_capacity;
    pb_flush_group flush_groups[PB_FLUSH_GROUPS];
    pb_server_counters counters;
    pb_resident_range resident[PB_RESIDENT_RANGES]; /* ahead of readers of small pieces */
    uint32_t next_resident;
    int64_t slow_told_ns;                  /* when a slow request was last told of */
    int64_t empty_told_ns;                 /* and a fetch that kept losing what it had found */
    pb_histogram *histograms[PB_API_KEYS]; /* [api][PB_STAGES], made with the APIs */
} pb_server_reactor;

/* An open listening socket. On reactor 0. */
typedef struct pb_listener {
    pb_broker *broker;
    pb_socket socket;
    pb_timer retry; /* set after an accept failed for want of something that others may give back */
    bool fails;     /* the last accept did, and that was told */
    bool refuses;   /* the last connection found no place, and that was told */
    char name[64];
    uint32_t index;
    int bound_port;
} pb_listener;

struct pb_broker {
    pb_io *io;
    pb_broker_settings settings;
    pb_pool pool;
    pb_pool fetched; /* what comes from leaders: producers that wait for other brokers must not be in the way of it */
    pb_registry registry;
    pb_fetch_sessions sessions;
    pb_racks racks;
    pb_client_quotas client_quotas;
    pb_quota leader_quota;   /* of what throttled followers are sent */
    pb_quota follower_quota; /* of what throttled partitions fetch */
    pb_events events;
    pb_cold_reads cold_reads;
    pb_big_batches big_batches; /* batches that take long to validate */
    pb_worker pacing;           /* writeback of growing logs */
    pb_worker lookups;          /* names of leaders */
    pb_worker cuts;             /* logs that differ from their leaders' */
    pb_syncer syncer;           /* durable acks */
    pb_flusher flusher;         /* hot logs */
    pb_clean_throttle clean_throttle;
    pb_ring_pool *rings; /* NULL: every log is paced */
    int64_t hot_bytes_per_second;
    pb_server_reactor reactors[PB_MAX_REACTORS];
    pb_listener listeners[PB_MAX_LISTENERS];
    int listener_count;
    pb_task close_listeners;
    atomic_bool closing; /* no new connections */
    int64_t left_ns;     /* when connections were asked to leave; 0: they were not */
    atomic_bool halted;  /* the reactors have ended */
    pb_connection_handler handler;
    bool started;
    /* Which versions are served; -1 max: not at all. Written before start. */
    struct {
        int16_t min_version;
        int16_t max_version;
    } apis[PB_API_KEYS];
    _Atomic int64_t next_connection_id;
    _Atomic uint32_t next_fetcher;
    _Atomic int64_t connections;
    _Atomic int64_t connections_accepted;
    _Atomic int64_t connections_refused;
    _Atomic int64_t python_requests;  /* waiting for Python */
    _Atomic int64_t throttle_told_ns; /* when a throttled connection was last told of */
    _Atomic int64_t quota_told_ns;    /* when a client over its quota was */
    pb_ping ping;
};

/* On an I/O backend that the broker takes over, also when this fails. */
int pb_broker_create(pb_io *io, const pb_broker_settings *settings, pb_broker **out, pb_failure *failure);
int pb_broker_run(pb_broker *broker, pb_failure *failure);
/* Take no more connections and requests; halt waits a while for what is under way. From the thread that halts. */
void pb_broker_leave(pb_broker *broker);
void pb_broker_halt(pb_broker *broker);
void pb_broker_destroy(pb_broker *broker);
int pb_broker_set_apis(pb_broker *broker, int16_t api_key, int16_t min_version, int16_t max_version);
int pb_broker_add_listener(pb_broker *broker, const char *name, const char *host, int port, int *bound_port,
                           pb_failure *failure);
/* Begin to accept on a listener, before reactor 0's thread starts. */
void pb_listener_start(pb_listener *listener);
/* On reactor 0. */
void pb_listener_stop(pb_listener *listener);

static inline pb_server_reactor *pb_server_reactor_of(pb_reactor *reactor)
{
    return PB_CONTAINER(reactor, pb_server_reactor, reactor);
}

/* Write this partition at the end of the reactor's turn. */
void pb_server_reactor_queue(pb_server_reactor *home, pb_partition *partition);

/* A partition's pump_due: pump it on a reactor. */
void pb_server_pump(pb_partition *partition);

/* The connections' handler for frames. */
void pb_dispatch_init(pb_connection_handler *handler, uint32_t max_frame_bytes);

#endif
