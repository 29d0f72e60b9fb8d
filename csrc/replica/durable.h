/* Between the files of a partition: what durable.c does for the others. The lock is held, unless said otherwise. */
#ifndef PB_REPLICA_DURABLE_H
#define PB_REPLICA_DURABLE_H

#include "replica/partition.h"

/* Wake those who wait for more records. */
void pb_durable_wake(pb_partition *partition, int64_t visible_bytes);
/* Does an append that repeats an earlier one have to wait for that one's end? */
bool pb_durable_must_wait(const pb_partition *partition, const pb_partition_append_op *op);
/* Appends have been written: a power cut may cost them from now on. */
void pb_durable_expose(pb_partition *partition, int64_t now_ns);
/* With durable acks: of what was written, leave in `finished` only what waits for no sync. */
void pb_durable_hold_back(pb_partition *partition, pb_link *finished);
/* Move duplicates to `finished` whose first copy has ended, or has failed. */
void pb_durable_end_duplicates(pb_partition *partition, pb_link *finished);
/* Move the high watermark as far as it may go; `visible_bytes` become readable by that. Appends that waited for it go
 * to `finished`. */
void pb_durable_advance(pb_partition *partition, int64_t visible_bytes, pb_link *finished);
/* true: the caller shall call sync_due, without the lock. */
bool pb_durable_begin(pb_partition *partition);

/* After begin: let `reactor` make the sync, if it can be a write that it starts. true: the caller, on that reactor,
 * shall call pb_durable_write without the lock; false: sync_due. */
bool pb_durable_begin_write(pb_partition *partition, pb_reactor *reactor);
/* Without the lock, on its reactor: this write, and those that gathered meanwhile. */
void pb_durable_write(pb_partition *partition);
#define PB_ROUND_APPEND 256 /* of one append, in pb_partition.round_appends */
/* A round has begun, with all that is written. */
void pb_durable_note_begin(pb_partition *partition);
/* Without the lock: it has ended with `result`. Appends that waited for it go to `finished`, which is to be settled. */
pb_sync_outcome pb_durable_end_round(pb_partition *partition, pb_log_sync_round *round, int result, pb_link *finished);

/* Without the lock: the log has failed outside of a sync. Appends that wait for a sync end, now or with the round under
 * way. */
void pb_durable_fail(pb_partition *partition, int result);
/* Without the lock: a change of the log has failed with `result`. If it has failed by that, others are told, as after a
 * sync: where the reason passes by itself, as -EAGAIN. */
void pb_durable_tell(pb_partition *partition, int result);
/* Without the lock: call `done` of all that has ended. */
void pb_durable_settle(pb_link *finished, pb_reactor *here);
/* Without the lock: let no sync begin, and wait for the one under way; and the end of it. Blocking. */
void pb_durable_stop_syncs(pb_partition *partition);
void pb_durable_allow_syncs(pb_partition *partition);

#endif
