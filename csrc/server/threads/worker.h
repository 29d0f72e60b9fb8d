/*
 * A background thread for what a reactor must not do, such as waiting for a disk. Jobs run in the order they came.
 */
#ifndef PB_SERVER_THREADS_WORKER_H
#define PB_SERVER_THREADS_WORKER_H

#include "base/mailbox.h"
#include "io/io.h"

/* Owner: the sender until it runs; `run` may free it or post it on. */
typedef struct pb_job {
    pb_node node;
    void (*run)(struct pb_job *job);
} pb_job;

typedef struct pb_worker {
    pb_io *io;
    const char *name; /* a constant */
    pb_mailbox inbox;
    pb_thread *thread;
    atomic_bool stopping;
} pb_worker;

void pb_worker_init(pb_worker *worker, pb_io *io, const char *name);
int pb_worker_start(pb_worker *worker, pb_failure *failure);
/* Finishes what is queued, then ends the thread. */
void pb_worker_stop(pb_worker *worker);
void pb_worker_submit(pb_worker *worker, pb_job *job);

#endif
