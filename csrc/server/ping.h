/*
 * Do the reactors turn? A task is sent to each, and whoever asks waits until all have run, or for so long. A task that
 * has not come back from an earlier ping is waited for instead of sent again.
 */
#ifndef PB_SERVER_PING_H
#define PB_SERVER_PING_H

#include <pthread.h>

#include "net/reactor.h"

#define PB_PING_REACTORS 64

typedef struct pb_ping pb_ping;

/* One reactor's. Owner: the pb_ping; the reactor while `out`. */
typedef struct pb_ping_task {
    pb_task task;
    pb_ping *ping;
    bool out; /* under the lock */
} pb_ping_task;

struct pb_ping {
    pthread_mutex_t asking; /* one at a time */
    pthread_mutex_t lock;
    pthread_cond_t back; /* one has run */
    pb_ping_task tasks[PB_PING_REACTORS];
};

void pb_ping_init(pb_ping *ping);
void pb_ping_destroy(pb_ping *ping);
/* 0, or -ETIMEDOUT and *stuck. Blocking. `reactors` has `count` pointers. */
int pb_ping_run(pb_ping *ping, pb_reactor *const *reactors, int count, int64_t timeout_ns, int *stuck);

#endif
