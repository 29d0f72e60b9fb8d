/* See crew.h. */
#include "server/threads/crew.h"

#include "base/assert.h"

int pb_crew_start(pb_crew *crew, pb_io *io, const pb_crew_options *options, pb_failure *failure)
{
    PB_ASSERT(options->thread_count > 0 && options->thread_count <= PB_CREW_THREADS_MAX);
    crew->io = io;
    crew->thread_count = options->thread_count;
    for (int i = 0; i < crew->thread_count; i++) {
        pb_crew_thread *thread = &crew->threads[i];
        thread->owner = options->owner;
        int result = io->ops->thread_start(io, options->name, options->rank, options->step, thread, &thread->thread);
        if (result < 0)
            return pb_fail(failure, result, "cannot start a thread for %s", options->work);
    }
    return 0;
}

pb_thread *pb_crew_pick_sleeper(pb_crew *crew)
{
    for (int i = 0; i < crew->thread_count; i++) {
        if (!crew->threads[i].idle)
            continue;
        crew->threads[i].idle = false; /* the next one wakes another */
        return crew->threads[i].thread;
    }
    return NULL;
}

void pb_crew_stop(pb_crew *crew)
{
    for (int i = 0; i < crew->thread_count; i++) {
        pb_thread *thread = crew->threads[i].thread;
        if (thread == NULL)
            continue;
        crew->io->ops->thread_wake(thread);
        crew->io->ops->thread_join(thread);
        crew->threads[i].thread = NULL;
    }
}
