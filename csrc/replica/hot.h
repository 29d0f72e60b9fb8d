/*
 * Hot logs (log/engine/hot.h): the functions of hot.c for the other files of replica/. They decide which logs are hot,
 * and when the background thread, the flusher, has to flush. The caller holds the partition's lock unless a comment
 * says otherwise.
 */
#ifndef PB_REPLICA_HOT_H
#define PB_REPLICA_HOT_H

#include "replica/partition.h"

/* `bytes` have been written. true: the flusher has work to do, and the caller must call flush_due without the lock. */
bool pb_hot_after_write(pb_partition *partition, int64_t bytes, int64_t now_ns);
/* A sync round has ended: let a writer that waits for room in the ring look again. */
void pb_hot_after_round(pb_partition *partition);
/* A thread waits for the flusher. If the flusher writes zeros ahead, it must not pause between its writes. */
void pb_hot_hurry(pb_partition *partition);
/* The ring has no room: the writer waits until `go_on` is posted to its reactor. Without the lock. */
void pb_hot_wait(pb_partition *partition);
/* The ring has little room: true if the writer pauses, so that later writes find room too. The pause ends with the
 * flusher's next write or with the timer `pause`, whichever comes first. Without the lock. */
bool pb_hot_pause(pb_partition *partition);
/* End the writer's pause. true: there was one, and the caller must make the writer go on. Without the lock. */
bool pb_hot_end_pause(pb_partition *partition);

#endif
