/* The threads that sync. A thread takes a partition, runs one round of it, and puts it back when it has more. */
#include "server/sync.h"

#include <string.h>

#include "server/broker.h"

#define RETRY_NS 10000000 /* after an error that passes */

/* One round. true: another one is due; *wait: not at once. */
static bool run_round(pb_partition *partition, bool *wait)
{
    pb_log_sync_round round;
    if (!pb_partition_sync_begin(partition, &round))
        return false;
    int result = pb_partition_sync_run(partition, &round, NULL);
    *wait = result != 0;
    return pb_partition_sync_end(partition, &round, result);
}

/* The partition that has waited longest; NULL: none. The lock is held. */
static pb_partition *take(pb_syncer *syncer)
{
    pb_link *link = pb_list_pop_front(&syncer->due);
    return link != NULL ? PB_CONTAINER(link, pb_partition, sync_link) : NULL;
}

static enum pb_step sync_step(void *argument)
{
    pb_sync_thread *self = argument;
    pb_syncer *syncer = self->syncer;
    pthread_mutex_lock(&syncer->lock);
    pb_partition *partition = take(syncer);
    self->idle = partition == NULL;
    bool stopping = syncer->stopping;
    pthread_mutex_unlock(&syncer->lock);
    if (partition == NULL)
        return stopping ? PB_STEP_END : PB_STEP_IDLE;
    bool wait = false;
    if (run_round(partition, &wait)) {
        pthread_mutex_lock(&syncer->lock);
        pb_list_push_back(&syncer->due, &partition->sync_link);
        pthread_mutex_unlock(&syncer->lock);
    } else {
        pb_partition_release(partition);
    }
    if (!wait)
        return PB_STEP_AGAIN;
    syncer->io->ops->thread_sleep_until(self->thread, syncer->io->ops->monotonic_ns(syncer->io) + RETRY_NS);
    return PB_STEP_IDLE;
}

void pb_syncer_init(pb_syncer *syncer, pb_io *io)
{
    memset(syncer, 0, sizeof *syncer);
    syncer->io = io;
    pthread_mutex_init(&syncer->lock, NULL);
    pb_list_init(&syncer->due);
}

void pb_syncer_destroy(pb_syncer *syncer)
{
    PB_ASSERT(pb_list_empty(&syncer->due) && !syncer->running);
    pthread_mutex_destroy(&syncer->lock);
}

int pb_syncer_start(pb_syncer *syncer, pb_failure *failure)
{
    const pb_io_ops *ops = syncer->io->ops;
    for (int i = 0; i < PB_SYNC_THREADS; i++) {
        pb_sync_thread *thread = &syncer->threads[i];
        thread->syncer = syncer;
        /* Acknowledgements wait for it, and it does little but wait itself. */
        int result = ops->thread_start(syncer->io, "pb-sync", true, sync_step, thread, &thread->thread);
        if (result < 0)
            return pb_fail(failure, result, "cannot start a thread for syncs");
    }
    pthread_mutex_lock(&syncer->lock);
    syncer->running = true;
    pthread_mutex_unlock(&syncer->lock);
    return 0;
}

void pb_syncer_stop(pb_syncer *syncer)
{
    const pb_io_ops *ops = syncer->io->ops;
    pthread_mutex_lock(&syncer->lock);
    syncer->stopping = true;
    syncer->running = false;
    pthread_mutex_unlock(&syncer->lock);
    for (int i = 0; i < PB_SYNC_THREADS; i++) {
        pb_thread *thread = syncer->threads[i].thread;
        if (thread == NULL)
            continue;
        ops->thread_wake(thread);
        ops->thread_join(thread);
        syncer->threads[i].thread = NULL;
    }
}

void pb_syncer_submit(pb_syncer *syncer, pb_partition *partition)
{
    pb_thread *sleeper = NULL;
    pthread_mutex_lock(&syncer->lock);
    bool running = syncer->running;
    if (running) {
        pb_partition_retain(partition);
        pb_list_push_back(&syncer->due, &partition->sync_link);
    }
    for (int i = 0; running && i < PB_SYNC_THREADS && sleeper == NULL; i++) {
        if (!syncer->threads[i].idle)
            continue;
        syncer->threads[i].idle = false; /* the next one wakes another */
        sleeper = syncer->threads[i].thread;
    }
    pthread_mutex_unlock(&syncer->lock);
    if (sleeper != NULL)
        syncer->io->ops->thread_wake(sleeper);
    bool wait;
    while (!running && run_round(partition, &wait))
        ;
}

void pb_sync_submit(pb_partition *partition)
{
    pb_broker *broker = partition->owner;
    pb_syncer_submit(&broker->syncer, partition);
}
