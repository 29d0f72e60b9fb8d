/* See ping.h. Any thread but a reactor asks; the tasks run on the reactors. */
#include "server/ping.h"

#include <errno.h>
#include <time.h>

#include "base/assert.h"

#define NS_PER_S 1000000000LL

void pb_ping_init(pb_ping *ping)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&ping->asking, NULL);
    pthread_mutex_init(&ping->lock, NULL);
    pthread_cond_init(&ping->back, &attributes);
    pthread_condattr_destroy(&attributes);
}

void pb_ping_destroy(pb_ping *ping)
{
    pthread_cond_destroy(&ping->back);
    pthread_mutex_destroy(&ping->lock);
    pthread_mutex_destroy(&ping->asking);
}

static void came_back(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    pb_ping_task *own = PB_CONTAINER(task, pb_ping_task, task);
    pthread_mutex_lock(&own->ping->lock);
    PB_ASSERT(own->out);
    own->out = false;
    pthread_cond_signal(&own->ping->back);
    pthread_mutex_unlock(&own->ping->lock);
}

static void send_out(pb_ping *ping, pb_reactor *const *reactors, int count)
{
    for (int i = 0; i < count; i++) {
        pb_ping_task *own = &ping->tasks[i];
        pthread_mutex_lock(&ping->lock);
        bool was_out = own->out;
        own->out = true;
        pthread_mutex_unlock(&ping->lock);
        if (was_out)
            continue;
        own->ping = ping;
        own->task.run = came_back;
        pb_reactor_post(reactors[i], &own->task);
    }
}

/* The first that is still out; -1: none. The lock is held. */
static int first_out(const pb_ping *ping, int count)
{
    for (int i = 0; i < count; i++)
        if (ping->tasks[i].out)
            return i;
    return -1;
}

int pb_ping_run(pb_ping *ping, pb_reactor *const *reactors, int count, int64_t timeout_ns, int *stuck)
{
    PB_ASSERT(count >= 0 && count <= PB_PING_REACTORS && timeout_ns >= 0);
    pthread_mutex_lock(&ping->asking);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t end_ns = until.tv_nsec + timeout_ns;
    until.tv_sec += end_ns / NS_PER_S;
    until.tv_nsec = end_ns % NS_PER_S;
    send_out(ping, reactors, count);
    int result = 0;
    pthread_mutex_lock(&ping->lock);
    while ((*stuck = first_out(ping, count)) >= 0 && result == 0)
        result = pthread_cond_timedwait(&ping->back, &ping->lock, &until);
    pthread_mutex_unlock(&ping->lock);
    pthread_mutex_unlock(&ping->asking);
    return *stuck >= 0 ? -ETIMEDOUT : 0;
}
