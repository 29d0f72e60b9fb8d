/*
 * Durable acks and the high watermark: the functions of durable.c for the other files of replica/.
 *
 * With durable acks a written record is acknowledged and readable only after a sync. One sync ("round") of a partition
 * runs at a time, and takes all records that have gathered. The caller holds the partition's lock unless a comment says
 * otherwise. `finished` is a list of ended appends, which the caller gives to pb_durable_settle.
 */
#ifndef PB_REPLICA_DURABLE_H
#define PB_REPLICA_DURABLE_H

#include "replica/partition.h"

/* Wake the fetches that wait for more records: `visible_bytes` have become readable. */
void pb_durable_wake(pb_partition *partition, int64_t visible_bytes);
/* `op` repeats an earlier append (a duplicate): does it have to wait for the end of the earlier one? */
bool pb_durable_must_wait(const pb_partition *partition, const pb_partition_append_op *op);
/* Note that appends were written and are not durable: a power cut may cost them from now on. */
void pb_durable_expose(pb_partition *partition, int64_t now_ns);
/* With durable acks: move written appends that have to wait for a sync from `finished` to the list `unsynced`. */
void pb_durable_hold_back(pb_partition *partition, pb_link *finished);
/* Move duplicates to `finished` if the append that they repeat has ended or failed. */
void pb_durable_end_duplicates(pb_partition *partition, pb_link *finished);
/* Move the high watermark as far as possible, which makes `visible_bytes` readable. Appends that waited for it go to
 * `finished`. */
void pb_durable_advance(pb_partition *partition, int64_t visible_bytes, pb_link *finished);
/* Take the token of syncs (`syncing`) if a sync is needed and none is under way. true: taken, and the caller must call
 * sync_due without the lock. */
bool pb_durable_begin(pb_partition *partition);

/* After pb_durable_begin: let `reactor` sync by a write of its own, if that is possible. true: the caller must call
 * pb_durable_write, on that reactor and without the lock. Otherwise the caller must call sync_due. */
bool pb_durable_begin_write(pb_partition *partition, pb_reactor *reactor);
/* Make this write, and then writes of records that have gathered meanwhile. On that reactor, without the lock. */
void pb_durable_write(pb_partition *partition);
#define PB_ROUND_APPEND 256 /* how much one append counts in pb_partition.round_appends */
/* Note that a round begins, with all records written so far. */
void pb_durable_note_begin(pb_partition *partition);
/* End the round, which had this `result`. Appends that waited for it go to `finished`. Without the lock. */
pb_sync_outcome pb_durable_end_round(pb_partition *partition, pb_log_sync_round *round, int result, pb_link *finished);

/* The log has failed outside of a sync: fail the appends that wait for a sync, now or at the end of the round under
 * way. Without the lock. */
void pb_durable_fail(pb_partition *partition, int result);
/* A change of the log has returned the error `result`. If the log has failed, do as pb_durable_fail does; an error that
 * passes by itself is reported as -EAGAIN. Without the lock. */
void pb_durable_tell(pb_partition *partition, int result);
/* Call `done` of each ended append. Without the lock. */
void pb_durable_settle(pb_link *finished, pb_reactor *here);
/* Wait for the sync under way, and let none begin until pb_durable_allow_syncs. Blocking, without the lock. */
void pb_durable_stop_syncs(pb_partition *partition);
void pb_durable_allow_syncs(pb_partition *partition);

#endif
