/*
 * A few background threads that share the work of one owner. The owner keeps the queue, its lock, and whether they
 * shall end; its step runs on each of them with the thread's own pb_crew_thread.
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
    bool idle; /* under the owner's lock: it sleeps, or is about to */
} pb_crew_thread;

typedef struct pb_crew {
    pb_io *io;
    pb_crew_thread threads[PB_CREW_THREADS_MAX];
    int thread_count;
} pb_crew;

typedef struct pb_crew_options {
    const char *name; /* of each thread */
    const char *work; /* what they are for, in the words of an error */
    int thread_count;
    enum pb_thread_rank rank;
    pb_step_fn step; /* its context is a pb_crew_thread */
    void *owner;
} pb_crew_options;

/* After a failure pb_crew_stop ends those that have started. */
int pb_crew_start(pb_crew *crew, pb_io *io, const pb_crew_options *options, pb_failure *failure);
/* A thread to wake for new work, or NULL. The owner's lock is held. */
pb_thread *pb_crew_pick_sleeper(pb_crew *crew);
/* Wake and join them; the owner has told their steps to end. */
void pb_crew_stop(pb_crew *crew);

#endif
