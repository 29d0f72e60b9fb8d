/*
 * The syncs that durable acks wait for: a few background threads beside the reactors, one partition at a time each.
 *
 * A partition is in the queue, or with one of the threads, as long as it has something to sync; what it gathers
 * meanwhile goes with its next round, behind the partitions that wait already.
 */
#ifndef PB_SERVER_SYNC_H
#define PB_SERVER_SYNC_H

#include "replica/partition.h"

#define PB_SYNC_THREADS 4

typedef struct pb_syncer pb_syncer;

/* One thread. Owner: its syncer. */
typedef struct pb_sync_thread {
    pb_syncer *syncer;
    pb_thread *thread;
    bool idle; /* under the lock: it sleeps, or is about to */
} pb_sync_thread;

struct pb_syncer {
    pb_io *io;
    pb_sync_thread threads[PB_SYNC_THREADS];
    pthread_mutex_t lock;
    /* Under the lock. */
    pb_link due; /* partitions, retained */
    bool running;
    bool stopping;
};

void pb_syncer_init(pb_syncer *syncer, pb_io *io);
void pb_syncer_destroy(pb_syncer *syncer);
int pb_syncer_start(pb_syncer *syncer, pb_failure *failure);
/* Ends the threads when nothing is due any more. */
void pb_syncer_stop(pb_syncer *syncer);
/* Any thread. Before start and after stop it syncs at once, and blocks. */
void pb_syncer_submit(pb_syncer *syncer, pb_partition *partition);

/* A partition's `sync_due`; its owner is the broker. */
void pb_sync_submit(pb_partition *partition);

#endif
