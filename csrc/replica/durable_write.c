/*
 * Syncs that are one write of a hot log: the reactor that wrote the last appends starts them on its loop, and ends them
 * there. No thread is woken for them, and answers begin to go out in the turn in which the disk is ready. Only one
 * reactor has the partition's `syncing`; `rounding` keeps whoever flushes hot logs away meanwhile.
 */
#include "replica/durable.h"

#include <errno.h>

static void wrote(pb_op *op, int64_t result);

bool pb_durable_begin_write(pb_partition *partition, pb_reactor *reactor)
{
    PB_ASSERT(partition->syncing && !partition->rounding);
    /* Without its thread, what is left of a reactor runs where nobody turns its loop. */
    if (reactor->thread == NULL || !partition->io->ops->starts_durable_writes ||
        (partition->flushing && !partition->filling) ||
        !pb_log_sync_begin_write(partition->log, &partition->round, &partition->round_write))
        return false;
    pb_durable_note_begin(partition);
    partition->rounding = true;
    partition->round_reactor = reactor;
    return true;
}

static int64_t start(pb_partition *partition)
{
    pb_reactor *reactor = partition->round_reactor;
    partition->round_began_ns = partition->io->ops->monotonic_ns(partition->io);
    pb_log_sync_write *write = &partition->round_write;
    partition->round_op.done = wrote;
    partition->round_op.durable = true;
    int64_t result = reactor->io->ops->write_start(reactor->loop, &partition->round_op, write->file, write->iov,
                                                   write->iov_count, write->position);
    if (result == PB_IO_PENDING) {
        reactor->holds++;
        pb_partition_retain(partition);
    }
    return result;
}

/* End the round, and count what it took and how many appends it let end. true: another one is due. */
static bool end_round(pb_partition *partition, int result, pb_link *finished)
{
    pb_reactor *reactor = partition->round_reactor;
    int64_t taken_ns = partition->io->ops->monotonic_ns(partition->io) - partition->round_began_ns;
    pb_histogram_add(&reactor->counters.sync_us, taken_ns / 1000);
    pb_log_sync_round round = partition->round; /* once this one has ended, that is the next one's */
    pb_sync_outcome outcome = pb_durable_end_round(partition, &round, result, finished);
    pb_histogram_add(&reactor->counters.commit_appends, outcome.ended_count);
    return outcome.again;
}

/* The write has come to `result`. true: the next one is to be started. */
static bool finish(pb_partition *partition, int64_t result, pb_link *finished)
{
    if (result == -EAGAIN)
        return true;
    pb_reactor *reactor = partition->round_reactor;
    result = pb_log_sync_end_write(partition->log, &partition->round_write, result);
    if (!end_round(partition, (int)result, finished))
        return false;
    pthread_mutex_lock(&partition->lock);
    /* What is short for the moment a thread waits for. */
    bool begun = result == 0 && pb_durable_begin_write(partition, reactor);
    pthread_mutex_unlock(&partition->lock);
    if (!begun)
        partition->sync_due(partition);
    return begun;
}

/* From one write to the next. Answers come last: the disk writes while they are sent. */
static void go_on(pb_partition *partition, int64_t result)
{
    pb_reactor *reactor = partition->round_reactor;
    pb_link finished;
    pb_list_init(&finished);
    while (result != PB_IO_PENDING && finish(partition, result, &finished))
        result = start(partition);
    pb_durable_settle(&finished, reactor);
}

void pb_durable_write(pb_partition *partition)
{
    go_on(partition, start(partition));
}

static void wrote(pb_op *op, int64_t result)
{
    pb_partition *partition = PB_CONTAINER(op, pb_partition, round_op);
    PB_ASSERT(partition->round_reactor->holds > 0);
    partition->round_reactor->holds--;
    go_on(partition, result);
    pb_partition_release(partition);
}
