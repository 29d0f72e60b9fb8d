/* Between the files of a partition: what hot.c does for the others. The lock is held, unless said otherwise. */
#ifndef PB_REPLICA_HOT_H
#define PB_REPLICA_HOT_H

#include "replica/partition.h"

/* `bytes` have been written. true: the caller shall call flush_due, without the lock. */
bool pb_hot_after_write(pb_partition *partition, int64_t bytes, int64_t now_ns);
/* A sync round has ended: a writer that waits for room looks again. */
void pb_hot_after_round(pb_partition *partition);
/* Somebody waits for the thread that works on the partition: it shall not pause, if it fills its log with zeros. */
void pb_hot_hurry(pb_partition *partition);
/* Without the lock: the writer waits until go_on is posted to it. */
void pb_hot_wait(pb_partition *partition);
/* Called without the lock when there is room. Returns true when the writer waits all the same, until pb_hot_end_pause
 * returns true to the thread that sends it on. That is the flusher after its next write, or the timer `pause`. */
bool pb_hot_pause(pb_partition *partition);
/* Without the lock. */
bool pb_hot_end_pause(pb_partition *partition);

#endif
