/* The background thread. Its step runs all that has come and then sleeps. */
#include "server/threads/worker.h"

#include <string.h>

static enum pb_step worker_step(void *argument)
{
    pb_worker *worker = argument;
    bool stopping = atomic_load(&worker->stopping);
    pb_node *node = pb_mailbox_take(&worker->inbox);
    if (node == NULL)
        return stopping ? PB_STEP_END : PB_STEP_IDLE;
    while (node != NULL) {
        pb_job *job = PB_CONTAINER(node, pb_job, node);
        node = node->next;
        job->run(job);
    }
    return PB_STEP_AGAIN;
}

void pb_worker_init(pb_worker *worker, pb_io *io, const char *name)
{
    memset(worker, 0, sizeof *worker);
    worker->io = io;
    worker->name = name;
    pb_mailbox_init(&worker->inbox);
    atomic_init(&worker->stopping, false);
}

int pb_worker_start(pb_worker *worker, pb_failure *failure)
{
    int result =
        worker->io->ops->thread_start(worker->io, worker->name, PB_RANK_USUAL, worker_step, worker, &worker->thread);
    return result < 0 ? pb_fail(failure, result, "cannot start the thread %s", worker->name) : 0;
}

void pb_worker_stop(pb_worker *worker)
{
    if (worker->thread == NULL)
        return;
    atomic_store(&worker->stopping, true);
    worker->io->ops->thread_wake(worker->thread);
    worker->io->ops->thread_join(worker->thread);
    worker->thread = NULL;
}

void pb_worker_submit(pb_worker *worker, pb_job *job)
{
    if (pb_mailbox_put(&worker->inbox, &job->node))
        worker->io->ops->thread_wake(worker->thread);
}
