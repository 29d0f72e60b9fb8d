/*
 * A partition as a follower: what its leader sends is appended, cut off, and believed.
 *
 * The fetcher has a ticket, which ends when the partition stops following, follows another epoch or leads. From then on
 * nothing with that ticket has any effect. No two tickets of the process are the same, whatever partition they are of,
 * and a later one is larger. The high watermark is the smaller one of the leader's and the own end, the durable one
 * with durable acks.
 *
 * All under the partition's lock, taken here; none is held by the caller.
 */
#ifndef PB_REPLICA_FOLLOW_H
#define PB_REPLICA_FOLLOW_H

#include "replica/partition.h"

/* Where a follower stands: what its next fetch says. */
typedef struct pb_follow_ends {
    int64_t log_end_offset;
    int64_t log_start_offset;
    int64_t high_watermark;
    int32_t last_epoch; /* of the last batch; -1: there is none */
    bool is_throttled;  /* what it fetches counts, */
    bool lags;          /* and it lacks some of what the leader has committed, or does not know of */
    bool is_settled;    /* all of it is written and, with durable acks, durable: a fetch may say so to the leader */
} pb_follow_ends;

/* Stop whatever it does, which waits for the write or cut under way, and follow at that epoch: the ticket. Clients are
 * told NOT_LEADER_OR_FOLLOWER. Blocking. */
uint64_t pb_partition_start_following(pb_partition *partition, int32_t leader_epoch);
/* No ticket is good any more. Blocking: as above. */
void pb_partition_stop_following(pb_partition *partition);

/* false: the ticket has ended. */
bool pb_partition_follow_ends(pb_partition *partition, uint64_t ticket, pb_follow_ends *ends);

/* The result of a fetch. */
typedef struct pb_fetched {
    int64_t high_watermark;   /* the leader's; -1: unknown */
    int64_t log_start_offset; /* the leader's; -1: unknown */
    pb_link appends;          /* pb_append, is_replica, one batch each and in order; they leave it as they are queued */
    pb_follow_ends ends;      /* result: after that */
    bool must_pump;           /* result: this reactor shall call pb_partition_pump at the end of its turn */
} pb_fetched;

/* On a reactor: 0; -ESTALE: the ticket has ended; KAFKA_STORAGE_ERROR: the log takes no more; OFFSET_OUT_OF_RANGE: the
 * first of those left does not follow; or -ENOMEM. `done` comes of those that have left the list. */
int pb_partition_take_fetched(pb_partition *partition, uint64_t ticket, pb_fetched *fetched);

enum pb_cut_kind {
    PB_CUT_DIVERGED, /* the leader says where its epoch ends that is the largest up to our last one (KIP-320, KIP-595)
                      */
    PB_CUT_TO,       /* `offset` is the end */
    PB_CUT_RESTART,  /* nothing is left: it begins at `offset`, its first segment at `base_offset` */
};

typedef struct pb_follow_cut {
    enum pb_cut_kind kind;
    int32_t epoch;  /* DIVERGED */
    int64_t offset; /* DIVERGED: where the epoch ends at the leader */
    /* RESTART: `offset`; or below it, where an empty log begins at `offset` and its leader's inside of the batch that
     * begins here. That comes whole, and no batch lies below the base offset of its segment. */
    int64_t base_offset;
    /* Results. */
    int64_t end_offset;     /* of the log after it */
    bool below_watermark;   /* records below the high watermark are gone */
    bool below_checkpoints; /* what comes next may lie below what checkpoints speak of */
} pb_follow_cut;

/* Cut the log. A background thread: it waits for the disk. 0; -ESTALE: the ticket has ended; -EBUSY: later; or why it
 * failed, and the log with it. */
int pb_partition_cut_follower(pb_partition *partition, uint64_t ticket, pb_follow_cut *cut, pb_failure *failure);

/* Where to cut a log whose epoch `epoch`, or the next smaller one, ends at `leader_end` in the leader's. The lock is
 * held. */
int64_t pb_follow_divergence(const pb_log *log, int32_t epoch, int64_t leader_end);

#endif
