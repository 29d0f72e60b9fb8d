/*
 * A crew: a few background threads that share the work of one owner. The owner has the queue of work and its lock, and
 * decides when the threads end. Each thread runs the owner's `step` again and again, with its own pb_crew_thread.
 */
#ifndef PB_SERVER_THREADS_CREW_H
#define PB_SERVER_THREADS_CREW_H

#include <stdbool.h>

#include "base/error.h"
#include "io/io.h"

#define PB_CREW_THREADS_MAX 4

/* One thread. Owner: its crew. */
typedef struct pb_crew_thread {
    void *owner;
    pb_thread *thread;
    bool idle; /* the thread sleeps, or is about to; under the owner's lock */
} pb_crew_thread;

typedef struct pb_crew {
    pb_io *io;
    pb_crew_thread threads[PB_CREW_THREADS_MAX];
    int thread_count;
} pb_crew;

typedef struct pb_crew_options {
    const char *name; /* of each thread */
    const char *work; /* for the error text "cannot start a thread for <work>" */
    int thread_count;
    enum pb_thread_rank rank;
    pb_step_fn step; /* its context is a pb_crew_thread */
    void *owner;
} pb_crew_options;

/* Start the threads. After a failure, call pb_crew_stop to end those that have started. */
int pb_crew_start(pb_crew *crew, pb_io *io, const pb_crew_options *options, pb_failure *failure);
/* Choose an idle thread, which the caller wakes for new work; NULL: no thread is idle. The owner's lock is held. */
pb_thread *pb_crew_pick_sleeper(pb_crew *crew);
/* Wake and join the threads. Before, the owner makes its step return PB_STEP_END. */
void pb_crew_stop(pb_crew *crew);

#endif
