/*
 * The knowledge that the leader of a replicated partition has of its followers, and the appends that wait for them.
 * Between the files of a partition: what each file does for the others. The lock is held, unless said otherwise, and
 * the partition has followers.
 */
#ifndef PB_REPLICA_FOLLOWERS_H
#define PB_REPLICA_FOLLOWERS_H

#include "replica/partition.h"

/* One follower. Under the partition's lock. */
typedef struct pb_follower {
    int32_t replica_id;
    bool in_isr;               /* as the controller has it */
    bool joins;                /* in sync as well: proposed, and not answered yet */
    bool is_waited_for;        /* told of at waited_ns, and the leadership has not been told since */
    int64_t log_end_offset;    /* it has all below; -1: not known */
    int64_t log_start_offset;  /* -1: not known */
    int64_t broker_epoch;      /* of its last fetch; -1: not known */
    int64_t fetched_ns;        /* its last fetch, */
    int64_t leader_end_offset; /* and where the log ended here at that time; INT64_MAX: there was none */
    int64_t caught_up_ns;      /* at that time it had all there was; -1: never */
    int64_t told_ns;           /* that it has caught up, but is not in sync; -1: it was not, or its join was refused */
    int64_t waited_ns;         /* the same, refused or not: from then on the high watermark waits for it */
} pb_follower;

/* Made by pb_partition_start_leading_replicas, replaced whole. */
typedef struct pb_followers {
    int32_t partition_epoch;
    int32_t isr_count; /* as the controller has it, the leader included */
    int64_t epoch_start_offset;
    int32_t count;
    pb_follower each[];
} pb_followers;

/* ---- partition.c ---- */

/* Serve as leader of that epoch. */
void pb_partition_begin_epoch(pb_partition *partition, int32_t leader_epoch);

/* ---- followers.c ---- */

/* NULL: it is none; also when there are none at all. */
pb_follower *pb_followers_find(pb_followers *followers, int32_t replica_id);
/* Appends have been written: wake followers that wait for records, and of `finished` keep back what waits for them. */
void pb_followers_note_write(pb_partition *partition, int64_t appended_bytes, pb_link *finished);
/* How far the high watermark may go, below `end`. */
int64_t pb_followers_limit(const pb_partition *partition, int64_t end);
/* The ISR has as many replicas as min.insync.replicas asks for, or all there are. */
bool pb_followers_suffice(const pb_partition *partition);
/* Move appends that lie below the high watermark to `finished`. */
void pb_followers_end_appends(pb_partition *partition, pb_link *finished);
/* All of them, with an error; also those that repeat one. */
void pb_followers_fail_appends(pb_partition *partition, int error, pb_link *finished);
/* Also without followers: wake those that wait, all or for a high watermark that they have not heard of. */
void pb_followers_wake(pb_partition *partition, int64_t appended_bytes);
void pb_followers_wake_for_watermark(pb_partition *partition);
/* Also without followers, or with NULL: these are the partition's from now on. The old ones, for free(). */
pb_followers *pb_followers_replace(pb_partition *partition, pb_followers *followers);

#endif
