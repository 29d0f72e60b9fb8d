/*
 * Hot logs: background threads that bring what has gathered in their rings to the disk, and make logs hot and cold.
 *
 * A partition is in the queue, or with one of the threads, while something of it is due. Hot logs are remembered. A log
 * that is written little is flushed by the clock, and one that is not written at all gives its ring to another that is.
 */
#ifndef PB_SERVER_THREADS_FLUSHER_H
#define PB_SERVER_THREADS_FLUSHER_H

#include "replica/partition.h"
#include "server/events.h"
#include "server/threads/crew.h"

#define PB_FLUSH_THREADS 2

typedef struct pb_flusher {
    pb_io *io;
    pb_events *events;   /* for what a person should know; NULL: nobody is told */
    pb_ring_pool *rings; /* NULL: no log becomes hot */
    pb_crew crew;
    pthread_mutex_t lock;
    /* Under the lock. */
    pb_link due; /* partitions, retained */
    pb_link hot; /* partitions that are hot, or have been until lately; retained */
    int64_t next_look_ns;
    int64_t next_tell_ns;
    int32_t told_lost_count;
    bool running;
    bool stopping;
    atomic_int due_weight; /* how many are due; who is in a hurry counts for many. Read anywhere */
} pb_flusher;

void pb_flusher_init(pb_flusher *flusher, pb_io *io);
void pb_flusher_destroy(pb_flusher *flusher);
int pb_flusher_start(pb_flusher *flusher, pb_failure *failure);
/* Ends the threads when nothing is due any more. */
void pb_flusher_stop(pb_flusher *flusher);

/* Any thread. Before start and after stop it does the work at once. */
void pb_flusher_submit(pb_flusher *flusher, pb_partition *partition);

/* A partition's `flush_due`; its owner is the broker. */
void pb_flush_submit(pb_partition *partition);

#endif
