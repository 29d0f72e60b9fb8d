/*
 * A partition as its leader sees it: the log, who may append, what readers may see, who waits.
 *
 * One short mutex guards the log, the watermarks and the waiters; it is never held across I/O. Appends are queued under
 * it and written by whichever reactor reaches the end of its turn first: one write at a time, taking all that has
 * gathered. The high watermark is the smallest written end over the in-sync replicas; alone, it is the leader's own.
 * With durable acks the leader's is its durable end instead, and appends end when they lie below it: see durable.c.
 * Followers and what waits for them: see followers.c.
 *
 * Its life is in partition.c; what is appended, in append.c; who reads or waits, in access.c.
 *
 * Life: made closed -> lead -> (appends, reads) -> resign -> close. A failed write stops appends until repaired; reads
 * of the finished prefix go on.
 */
#ifndef PB_REPLICA_PARTITION_H
#define PB_REPLICA_PARTITION_H

#include <pthread.h>
#include <stdatomic.h>

#include "log/derived/verifications.h"
#include "log/log.h"
#include "net/reactor.h"
#include "record/validate.h"

#define PB_TOPIC_NAME_BYTES 250 /* 249 characters at most, as Kafka */

/* A large write is made in slices of this size, one a turn, so that nobody waits long behind a huge producer. */
#define PB_WRITE_SLICE_BYTES (128 * 1024)
#define PB_WRITE_SLICE_IOVECS 64

typedef struct pb_partition pb_partition;
struct pb_followers;
struct pb_flush_group;

/* May clients produce transactional batches? The values are pybroker.h's pb_transactional. */
typedef enum pb_transactions {
    PB_TRANSACTIONS_REFUSED = 0,  /* no: nobody is here to ask */
    PB_TRANSACTIONS_TRUSTED = 1,  /* yes, and nobody is asked */
    PB_TRANSACTIONS_VERIFIED = 2, /* when the transaction coordinator has said that the partition is part of it */
} pb_transactions;

/* The rules for appends. */
typedef struct pb_partition_rules {
    pb_validation_rules validation; /* now_ms is set per request */
    int compression_level;          /* of the target codec, resolved */
    int32_t min_insync_replicas;
    bool internal; /* clients may not produce to it */
    pb_transactions transactions;
    bool leader_throttled;   /* followers that are not in sync are sent no more than the broker's quota */
    bool follower_throttled; /* while it lags it fetches no more than the broker's quota */
    bool durable_acks;       /* nothing is acknowledged or read that a power cut could take back */
    bool below_reserve;      /* the partition's, filled in by pb_partition_admit */
} pb_partition_rules;

/*
 * An append on its way. Owner: the caller until pb_partition_append_batch queues it, then the partition until `done`.
 * That runs without the lock, on the reactor that finished the write, or on another thread (`here` is NULL) that made
 * it durable.
 */
typedef struct pb_partition_append_op {
    pb_append append;
    bool unacknowledged; /* nobody is told: it ends when it is written, even with durable acks */
    bool replicated;     /* acks=all: with followers, it ends when the high watermark has passed it */
    bool waits;          /* under the partition's lock, as is the next: for the high watermark */
    bool overdue;        /* nobody waits for the followers any more */
    void (*done)(struct pb_partition_append_op *op, pb_reactor *here);
} pb_partition_append_op;

/* A reader that waits for more: for the high watermark to move, or as a follower for appends. `link` and the list are
 * under the partition's lock; `missing_bytes` is shared by all waiters of one fetch. `wake` runs under the lock, on any
 * reactor: it may only post a task. */
typedef struct pb_partition_waiter {
    pb_link link;
    pb_partition *partition; /* NULL: not waiting */
    bool from_follower;      /* a consumer that reads from a follower too (KIP-392) */
    bool is_follower;
    int64_t known_high_watermark; /* a follower's, which waits for a higher one as well; INT64_MAX: it does not */
    void (*wake)(struct pb_partition_waiter *waiter, int64_t appended_bytes);
    void *owner;
} pb_partition_waiter;

enum pb_partition_failure {
    PB_WRITE_FAILED = 1, /* pb_partition_mend may help */
    PB_READ_FAILED = 2,
    PB_SYNC_FAILED = 3, /* only opening the log again helps */
};

/* Told about a log that failed, once per failed write, and of failed reads once until pb_partition_watch_reads; any
 * thread, without the lock. */
typedef void (*pb_partition_failed)(pb_partition *partition, enum pb_partition_failure what, int error);

/* A follower that is not in sync has all below the high watermark. Any thread, without the lock. */
typedef void (*pb_partition_caught_up)(pb_partition *partition, int32_t replica_id);

/* A reactor shall call pb_partition_pump. Any thread, without the lock; the partition is marked as queued. */
typedef void (*pb_partition_pump_due)(pb_partition *partition);

/* Writeback is due: a background thread shall call pb_partition_pace, once. On a reactor, without the lock.
 */
typedef void (*pb_partition_pacing_due)(pb_partition *partition);

/* A background thread shall run rounds of pb_partition_sync_begin, run and end until none is due. Any thread, without
 * the lock. */
typedef void (*pb_partition_sync_due)(pb_partition *partition);

/* A background thread shall call pb_partition_flush, as often as it asks for. Any thread, without the lock. */
typedef void (*pb_partition_flush_due)(pb_partition *partition);

/* How busy a cold log is: enough makes it hot. */
typedef struct pb_heat {
    int64_t since_ns; /* it is counted from here on */
    int64_t bytes;
    int32_t writes;
    int64_t not_before_ns; /* it is not made hot sooner */
} pb_heat;

/* The possible loss by a power cut: bytes that are written and not known to be durable, counted as appended_bytes is.
 * */
typedef struct pb_exposure {
    int64_t durable_bytes;
    int64_t since_ns;      /* the oldest of the rest was written; 0: there is none */
    int64_t next_since_ns; /* the oldest behind the sync under way; 0: none */
    int64_t sync_bytes;    /* what the sync under way will have made durable */
} pb_exposure;

/* The values are pybroker.h's pb_follower_state. */
enum pb_following_state { PB_FOLLOWING_FETCHES = 1, PB_FOLLOWING_WAITS = 2, PB_FOLLOWING_STANDS = 3 };

/* As a follower, see follow.h. */
typedef struct pb_following {
    bool active;
    uint64_t ticket;               /* the last one that it was given */
    int64_t leader_high_watermark; /* the largest it has told; -1: none yet */
    void *fetcher;                 /* of whoever follows: who fetches for it; NULL: nobody */
    _Atomic int state;             /* of who fetches: pb_following_state */
} pb_following;

struct pb_partition {
    char topic[PB_TOPIC_NAME_BYTES];
    uint8_t topic_id[16];
    int32_t index;
    uint64_t tag;
    pb_io *io;
    void *owner; /* the broker */
    pb_partition_failed failed;
    pb_partition_caught_up caught_up;   /* may be NULL, where nobody follows */
    pb_partition_pacing_due pacing_due; /* may be NULL: left to the kernel */
    pb_partition_pump_due pump_due;     /* may be NULL, where nobody but its writers holds, rolls or heats the log */
    pb_task pump;                       /* of pump_due */
    pb_partition_sync_due sync_due;     /* may be NULL without durable acks */
    pb_link sync_link;                  /* sync_due's, while `syncing` */
    pb_partition_flush_due flush_due;   /* may be NULL, where no log becomes hot */
    pb_link flush_link;                 /* flush_due's, while `flushing` */
    pb_link hot_link;                   /* of those that flush: in their list of hot ones */
    atomic_int references;
    pthread_mutex_t lock;
    pthread_cond_t quiet; /* a write or a reader has gone */
    /* Under the lock. */
    pb_log *log;     /* NULL: closed, or never open and only here to refuse */
    pb_log *settled; /* of its owner: about to be closed, and served no more */
    pb_partition_rules rules;
    int32_t leader_epoch;
    bool serving;
    bool below_reserve;     /* what is left of the disk is not for producers */
    pb_following following; /* active only while not serving */
    int refusal;            /* while not serving: what clients are told; 0 = unknown topic or partition */
    bool writing;
    bool held;             /* no write begins */
    bool moving;           /* of who has it held: it has been relocated, and syncs are stopped */
    int readers;           /* between enter and leave */
    bool pacing;           /* pacing_due was told, and counts as a reader */
    int64_t pace_after_ns; /* not sooner */
    bool broken;           /* a write failed; appends are refused until repaired */
    bool flushing;         /* flush_due was told, and counts as a reader */
    bool waits;            /* the write under way waits for pb_partition_flush, */
    bool pauses;           /* or for its next flush, and no longer than `pause` */
    bool switching;        /* the log is about to become hot or cold: no write begins */
    bool filling;          /* it writes zeros ahead, and a sync may go on beside */
    int flush_weight;      /* the flusher's, while it is in its queue */
    bool lost_ring;        /* its ring's file is gone: it becomes cold as soon as nothing is being written */
    bool flush_asked;      /* little has gathered, but some time ago */
    int64_t last_write_ns;
    pb_heat heat;
    int64_t hot_bytes_per_second; /* so busy it becomes hot */
    bool syncing;                 /* a sync is due or under way, or the log is being cut: one at a time */
    bool rounding;                /* and is a write of the hot log's ring: who flushes keeps off it */
    int64_t high_watermark;
    pb_link unsynced;               /* with durable acks: appends that are written and wait for a sync, oldest first */
    pb_link duplicates;             /* appends that repeat one which has not ended yet: they end with it */
    struct pb_followers *followers; /* NULL: there are none */
    pb_link unreplicated;           /* appends that are written and wait for followers, oldest first */
    pb_exposure exposure;
    pb_link waiters;
    pb_link follower_waiters;
    int64_t appended_bytes;
    int64_t appended_records;
    _Atomic int64_t fetched_bytes;
    _Atomic int64_t damage_told; /* the offset behind the damaged one that a client asked for last; 0: none yet */
    atomic_bool read_failed;     /* has been told */
    /* The write in flight: used by the reactor that holds the write token. */
    pb_log_write write;
    int write_next;     /* the first iovec that is not written whole */
    int64_t write_done; /* bytes of it that are */
    bool write_begun;   /* prepared, and on its way into the file */
    bool write_paused;  /* it has paused, which it does once */
    pb_timer pause;
    struct iovec slice[PB_WRITE_SLICE_IOVECS];
    int64_t slice_bytes;
    pb_op write_op;
    pb_task go_on; /* the next slice, in the writer's next turn */
    pb_reactor *writer;
    int64_t unsynced_appends; /* with durable acks: written since the last round began */
    int64_t round_appends;    /* that go with a round, on average; in parts of one: PB_ROUND_APPEND */
    /* While a reactor has `syncing`, by that one. */
    pb_log_sync_round round;
    pb_log_sync_write round_write;
    pb_op round_op;
    pb_reactor *round_reactor;
    struct pb_flush_group *round_group; /* of logs whose flush it may share; NULL: of none */
    pb_link round_link;                 /* there: due, or under way */
    int64_t round_result;               /* of the write, until it is flushed */
    int64_t round_began_ns;
    bool round_fills; /* zeros were being written to the file when the round began */
    bool queued;      /* under the lock: a reactor will pump it at the end of its turn */
};

/* It may be appended to, so background threads look after it. The lock is held. */
static inline bool pb_partition_is_busy(const pb_partition *partition)
{
    return partition->serving || partition->following.active;
}

/* The ends of a partition, read together. */
typedef struct pb_partition_ends {
    int64_t log_start_offset;
    int64_t high_watermark;
    int64_t last_stable_offset;
    int64_t log_end_offset;
    int64_t written_offset; /* this and the next of pb_partition_enter_replica only */
    bool is_throttled;      /* for this follower, while it is not in sync */
    int64_t durable_offset;
    int64_t recovery_point;
    int64_t size_bytes;
    int32_t leader_epoch;
    uint32_t cut_count; /* pb_partition_read_ends only */
} pb_partition_ends;

/* Where an epoch ends. */
typedef struct pb_epoch_end {
    int32_t epoch; /* -1: none */
    int64_t end_offset;
} pb_epoch_end;

/* ---- partition.c ---- */

/* Make one around an open log (or none: then it only refuses clients), with one reference. NULL: no memory. */
pb_partition *pb_partition_create(pb_io *io, const char *topic, const uint8_t topic_id[16], int32_t index, pb_log *log,
                                  const pb_partition_rules *rules);

/* As its only replica. */
void pb_partition_start_leading(pb_partition *partition, int32_t leader_epoch);
/* Refuse clients, wake waiters, wait until what is queued is written; while writes are stopped, until they are resumed.
 * Blocking. */
void pb_partition_stop_leading(pb_partition *partition, int refusal);
/* The end: its log, if it has one, is the caller's. Clients that ask meanwhile get the error they get since
 * stop_leading, so that a request that found the partition earlier hears the same reason as those after it. Blocking.
 */
pb_log *pb_partition_take_log(pb_partition *partition);
/* After a failure: cut the log to what is finished and accept appends again. Blocking, off the reactors. */
int pb_partition_mend(pb_partition *partition, pb_failure *failure);

/* Let no write begin, wait for the one in flight, take the log's tokens: see log/change/move.c. Blocking. */
int pb_partition_stop_writes(pb_partition *partition, pb_failure *failure);
/* With writes stopped: the log goes on in another directory, see log/change/move.c. Syncs are stopped from then on as
 * well; once it is `for_good`, what waited to be durable is. Blocking. */
int pb_partition_move(pb_partition *partition, const char *directory, uint32_t cut_count, bool for_good,
                      pb_failure *failure);
/* Undo a move that was not for good: the log goes on where it was. */
void pb_partition_move_back(pb_partition *partition);
/* The end of a successful pb_partition_stop_writes. Appends that came meanwhile are written. */
void pb_partition_resume_writes(pb_partition *partition);

/* ---- access.c ---- */

void pb_partition_retain(pb_partition *partition);
void pb_partition_release(pb_partition *partition); /* the last one frees it; its log must be closed */
pb_log_guard pb_partition_guard(pb_partition *partition);
/* Write what has gathered while somebody else had the log's write token. */
void pb_partition_catch_up(pb_partition *partition);

void pb_partition_read_ends(pb_partition *partition, pb_partition_ends *ends);
int64_t pb_partition_written_end(pb_partition *partition); /* of an open log */
/* Begins to read: 0 and the ends, or the error for the client. The log stays open until pb_partition_leave. With
 * expected_epoch -1 the epoch is not checked. With from_follower a replica that does not lead answers as well
 * (KIP-392). */
int pb_partition_enter(pb_partition *partition, int32_t expected_epoch, bool from_follower, pb_partition_ends *ends);
void pb_partition_leave(pb_partition *partition);
/* Between the two: what a reader at `offset` may be sent that may read up to `upper_offset`. 0 or a Kafka code or
 * -errno. */
int pb_partition_find(pb_partition *partition, const pb_partition_ends *ends, int64_t offset, int64_t max_bytes,
                      int64_t upper_offset, bool at_least_one, pb_log_slice *slice);
/* Tell about a read that failed with -errno; one that will pass is not worth it. Any thread. */
void pb_partition_report_read(pb_partition *partition, int error);
/* The same of a read of a slice that was found before. `error`; or -ENOENT, which is reported to nobody. In that case
 * the file ends too soon because the log was truncated meanwhile. Or a part of a sealed segment is gone or unreadable,
 * which its readers learn from now on. To look again finds what there is. Blocking where `error` is -EIO. */
int pb_partition_report_slice(pb_partition *partition, const pb_log_slice *slice, int error);
/* Tell about the next one again. */
void pb_partition_watch_reads(pb_partition *partition);

/* Wait for what is written above `seen`, or for a consumer becomes readable; false: it is there already. */
bool pb_partition_wait(pb_partition *partition, pb_partition_waiter *waiter, int64_t seen);
void pb_partition_forget(pb_partition_waiter *waiter);

/* ---- append.c ---- */

/* Rules as of now, copied. 0 or what a client is told. */
int pb_partition_admit(pb_partition *partition, pb_partition_rules *rules, int32_t *leader_epoch);
/* A client wants to append this transactional batch. 0 with the guard that it needs once the transaction coordinator
 * has vouched for it (log/derived/verifications.h), or with 0: there is nothing to ask; else what the client is told.
 */
int pb_partition_begin_verification(pb_partition *partition, const pb_verified_batch *batch, int64_t now_ms,
                                    int64_t *guard);
/* Queue a validated batch. 0: queued, `done` will come; PB_LOG_DUPLICATE or a code: it will not. `must_pump`: this
 * reactor shall call pb_partition_pump at the end of its turn. */
int pb_partition_append_batch(pb_partition *partition, pb_partition_append_op *op, bool *must_pump);
/* Write what has gathered. On a reactor. */
void pb_partition_pump(pb_partition *partition, pb_reactor *reactor);

/* Background thread, after pacing_due: start writeback. */
void pb_partition_pace(pb_partition *partition);
/* Instead of it, when that cannot be. */
void pb_partition_end_pacing(pb_partition *partition);

/* ---- hot.c ---- */

typedef struct pb_flush_outcome {
    bool again; /* more may be due: call again, when others have had their turn */
    bool became_hot;
    bool wants_ring; /* it would have, but there was none */
    int refused;     /* it would have, but for this -errno; 0: nothing was refused */
} pb_flush_outcome;
/* Called after flush_due, on a background thread. Does one of these: flushes a hot log, writes zeros ahead of it, sends
 * on the writer that waits for that, or makes a log hot or cold. It makes no more than one large write. `others`: how
 * many wait for this thread; NULL: nobody. */
pb_flush_outcome pb_partition_flush(pb_partition *partition, const atomic_int *others);
/* Is more due than zeros ahead, which can wait for a while? */
bool pb_partition_flush_is_urgent(pb_partition *partition);
/* Little has gathered, and nothing else will have it flushed. true: the caller shall have pb_partition_flush called. */
bool pb_partition_ask_flush(pb_partition *partition);
/* The same to make it cold, because its ring is wanted elsewhere. */
bool pb_partition_ask_cool(pb_partition *partition);
/* Is it hot, or may it be soon? And when was it written to last? */
bool pb_partition_is_hot(pb_partition *partition, int64_t *last_write_ns);

/* ---- durable.c ---- */

/* Replace the settings. Without durable acks any longer, those who wait for a sync are answered. */
void pb_partition_configure_log(pb_partition *partition, const pb_log_config *config, const pb_partition_rules *rules);
/* After sync_due: collect what is written. false: the log has failed; no round begins, and none is due. */
bool pb_partition_sync_begin(pb_partition *partition, pb_log_sync_round *round);
/* Blocking. */
int pb_partition_sync_run(pb_partition *partition, pb_log_sync_round *round, pb_failure *failure);
/* The result of a round. */
typedef struct pb_sync_outcome {
    bool again;      /* another round is due */
    int ended_count; /* appends that ended with this one */
} pb_sync_outcome;
/* With the result of run: move the durable end and the high watermark, end appends. Off the reactors. */
pb_sync_outcome pb_partition_sync_end(pb_partition *partition, pb_log_sync_round *round, int result);
/* Sync what is written by now. Blocking, off the reactors. */
int pb_partition_sync_written(pb_partition *partition, pb_failure *failure);
/* Cut the log so that `offset` is its end, while it is not served. Blocking. */
int pb_partition_cut(pb_partition *partition, int64_t offset, pb_failure *failure);
/* Begin another segment, if the active one is not empty. Blocking, off the reactors. */
int pb_partition_begin_segment(pb_partition *partition, pb_failure *failure);
/* pb_log_check_files. Where something else has cut the active segment's file, another segment is begun, and all before
 * it synced. So the log goes on, readers are told of what is missing, and `failure` has a text, with 0. -ENODATA: the
 * log is in no state to begin a segment. Blocking, off the reactors. */
int pb_partition_look_at_files(pb_partition *partition, pb_failure *failure);
/* Bytes that a power cut may cost now, and for how long the oldest has been written. The lock is held. */
void pb_partition_exposure(const pb_partition *partition, int64_t *bytes, int64_t *age_ns);

/* ---- leadership.c, followers.c ---- */

/* The leader's instructions for a partition with several replicas; the fields are pybroker.h's. */
typedef struct pb_leadership {
    int32_t leader_epoch;
    int32_t partition_epoch;
    const int32_t *replicas;
    const int32_t *isr;
    const int32_t *joining;
    int32_t replica_count;
    int32_t isr_count;
    int32_t joining_count;
} pb_leadership;

/* Lead with followers, as broker `node_id`, or hear of another ISR. 0, a Kafka code or -errno: see pybroker.h. */
int pb_partition_start_leading_replicas(pb_partition *partition, int32_t node_id, const pb_leadership *leadership);

/* A follower as it is told of; see pybroker.h. */
typedef struct pb_follower_view {
    int32_t replica_id;
    bool in_isr;
    int64_t log_end_offset;
    int64_t log_start_offset;
    int64_t caught_up_ms;
    int64_t broker_epoch;
} pb_follower_view;
int32_t pb_partition_read_followers(pb_partition *partition, pb_follower_view *out, int32_t capacity);

/* A follower's fetch from one partition. */
typedef struct pb_replica_fetch {
    int32_t replica_id;
    int32_t leader_epoch;       /* -1: not said */
    int32_t last_fetched_epoch; /* -1: not said */
    int64_t broker_epoch;       /* -1: not said */
    int64_t offset;             /* the follower has all below it */
    int64_t log_start_offset;
    int64_t now_ns;
} pb_replica_fetch;
/* pb_partition_enter for a follower, which may read up to written_offset. The first time in a request its progress
 * counts. With a diverging epoch it is sent nothing else. */
int pb_partition_enter_replica(pb_partition *partition, const pb_replica_fetch *fetch, bool is_first,
                               pb_partition_ends *ends, pb_epoch_end *diverging);
/* KIP-595: a reader whose last epoch ends earlier here than where it wants to go on has diverged. The lock is held.
 * 0, or OFFSET_OUT_OF_RANGE: nobody here knows that epoch. */
int pb_partition_find_divergence(const pb_partition *partition, int32_t last_fetched_epoch, int64_t offset,
                                 pb_epoch_end *diverging);
/* Which of the replicas that are candidates a consumer at `offset` is best sent to: one that has it and lags least; -1:
 * none (KIP-392). */
int32_t pb_partition_nearest_replica(pb_partition *partition, int64_t offset, const int32_t *candidates, int count);
/* Is the append written, and waits for the followers? */
bool pb_partition_awaits_followers(pb_partition *partition, const pb_partition_append_op *op);
/* Nobody waits for the followers any more. After true the append is the caller's again, and `done` will not come. After
 * false `done` comes soon, with an error if it would have had to wait. */
bool pb_partition_give_up(pb_partition *partition, pb_partition_append_op *op);
/* Somebody waits for the high watermark, and time has passed. */
void pb_partition_look_again(pb_partition *partition);

#endif
