/*
 * Syncs that are one write of a hot log: the reactor that wrote the last appends starts them on its loop, and ends them
 * there. No thread is woken for them, and answers begin to go out in the turn in which the disk is ready. Only one
 * reactor has the partition's `syncing`; `rounding` keeps whoever flushes hot logs away meanwhile.
 *
 * A flush makes all durable that a disk has taken, whoever wrote it, and costs the CPU more than a small write does. So
 * logs on one disk share it when many appends wait, where their file system lets them (file_flush_device). Due logs are
 * written together and flushed together; those that become due meanwhile go with the next such round. While few wait,
 * the CPU has time for a durable write of each log, and none waits for another's end.
 *
 * A durable write takes along whatever else there is to write of its file. Beside zeros that is the file's metadata,
 * again and again: two more writes, one after the other. So a round beside zeros is written and flushed like a shared
 * one, and what is flushed is a file that nobody writes to, and that nobody else knows.
 *
 * Answers bring the next requests. A round that begins before they are sent would carry only the few requests that came
 * early, yet cost the CPU as much as a full one. All others would wait for its end. So rounds begin at the end of a
 * turn, and after the last round's answers.
 *
 *     due -> member of a shared round -> written -> flushed -> ended, or due again
 *     due -> alone: written durably -> ended, or due again
 */
#include "replica/durable.h"

#include <errno.h>

#include "replica/flush_group.h"

enum {
    CROWD = 16,         /* appends that go with the usual rounds of what is due or under way: with so many, */
    CROWD_NS = 5000000, /* and for so long after, flushes are shared */
};

/* ext4 compares a file's last transaction with the newest one in 32 bits. One that was made 2^31 transactions ago would
 * pass for one that is going to be committed, and to flush the disk, anyway. */
#define FILE_NS 3600000000000LL

static void wrote(pb_op *op, int64_t result);
static void wrote_some(pb_op *op, int64_t result);
static void flushed(pb_op *op, int64_t result);

static void close_file(pb_flush_group *group)
{
    if (group->file >= 0)
        group->reactor->io->ops->file_close(group->reactor->io, group->file);
    group->file = -1;
}

static void make_file(pb_flush_group *group, const pb_log *log)
{
    close_file(group);
    group->file = pb_log_make_flush_file(log);
    group->file_made_ns = group->reactor->now_ns;
}

/* NULL: its flushes are its own. */
static pb_flush_group *find_group(pb_reactor *reactor, const pb_log *log)
{
    uint64_t device = pb_log_flush_device(log);
    for (int i = 0; device != 0 && reactor->flush_groups != NULL && i < PB_FLUSH_GROUPS; i++) {
        pb_flush_group *group = &reactor->flush_groups[i];
        if (group->device == 0) {
            group->device = device;
            group->reactor = reactor;
            group->flush.done = flushed;
            group->file = -1;
            pb_list_init(&group->due);
            pb_list_init(&group->members);
            pb_list_init(&group->alone);
            make_file(group, log);
        }
        if (group->device != device)
            continue;
        if (reactor->now_ns - group->file_made_ns > FILE_NS && pb_list_empty(&group->members))
            make_file(group, log);
        return group;
    }
    return NULL;
}

/* Collect what the round writes, if it can be one write now. [lock] */
static bool begin_round(pb_partition *partition)
{
    if ((partition->flushing && !partition->filling) ||
        !pb_log_sync_begin_write(partition->log, &partition->round, &partition->round_write))
        return false;
    pb_durable_note_begin(partition);
    partition->rounding = true;
    partition->round_fills = partition->filling;
    partition->round_began_ns = partition->io->ops->monotonic_ns(partition->io);
    return true;
}

bool pb_durable_begin_write(pb_partition *partition, pb_reactor *reactor)
{
    PB_ASSERT(partition->syncing && !partition->rounding);
    /* Without its thread, what is left of a reactor runs where nobody turns its loop. */
    if (reactor->thread == NULL || !partition->io->ops->starts_durable_writes)
        return false;
    partition->round_reactor = reactor;
    partition->round_group = find_group(reactor, partition->log);
    return partition->round_group != NULL || begin_round(partition);
}

static void start(pb_partition *partition, bool durable)
{
    pb_reactor *reactor = partition->round_reactor;
    pb_log_sync_write *write = &partition->round_write;
    partition->round_op.done = durable ? wrote : wrote_some;
    partition->round_op.direct = true;
    partition->round_op.durable = durable;
    int64_t result = reactor->io->ops->write_start(reactor->loop, &partition->round_op, write->file, write->iov,
                                                   write->iov_count, write->position);
    PB_ASSERT(result == PB_IO_PENDING);
}

/* A round that may be shared waits for its group, any other one has begun. */
static void go_on(pb_partition *partition)
{
    if (partition->round_group != NULL)
        pb_list_push_back(&partition->round_group->due, &partition->round_link);
    else
        start(partition, true);
}

void pb_durable_write(pb_partition *partition)
{
    partition->round_reactor->holds++;
    partition->round_reactor->rounds++;
    pb_partition_retain(partition);
    go_on(partition);
}

/* The reactor has no more to do with it. From here on another reactor may own the partition's rounds, so its round
 * fields must not be read. */
static void leave(pb_partition *partition, pb_reactor *reactor)
{
    PB_ASSERT(reactor->holds > 0 && reactor->rounds > 0);
    reactor->holds--;
    reactor->rounds--;
    pb_partition_release(partition);
}

static void count_time(pb_reactor *reactor, pb_histogram *histogram, int64_t began_ns)
{
    pb_histogram_add(histogram, (reactor->io->ops->monotonic_ns(reactor->io) - began_ns) / 1000);
}

/* Ends the round, whose write has come to `result`, and counts the appends that it let end. Returns true when another
 * one has begun, or is to wait for its group. After false somebody else may have begun one. */
static bool end_round(pb_partition *partition, int64_t result, pb_link *finished)
{
    pb_reactor *reactor = partition->round_reactor;
    pb_flush_group *group = partition->round_group;
    int error = pb_log_sync_end_write(partition->log, &partition->round_write, result);
    pb_log_sync_round round = partition->round; /* once this one has ended, that is the next one's */
    pb_sync_outcome outcome = pb_durable_end_round(partition, &round, error, finished);
    pb_histogram_add(&reactor->counters.commit_appends, outcome.ended_count);
    if (group != NULL)
        group->answers += outcome.ended_count;
    if (!outcome.again)
        return false;
    pthread_mutex_lock(&partition->lock);
    /* A thread waits for resources that are short for the moment. */
    bool begun = error == 0 && pb_durable_begin_write(partition, reactor);
    pthread_mutex_unlock(&partition->lock);
    if (!begun)
        partition->sync_due(partition);
    return begun;
}

/* ---- groups ---- */

static int64_t sum_appends(const pb_link *partitions)
{
    int64_t sum = 0;
    for (const pb_link *link = partitions->next; link != partitions; link = link->next)
        sum += PB_CONTAINER(link, const pb_partition, round_link)->round_appends;
    return sum;
}

static bool is_crowded(pb_flush_group *group)
{
    int64_t sum = sum_appends(&group->due) + sum_appends(&group->members) + sum_appends(&group->alone);
    if (sum >= CROWD * PB_ROUND_APPEND)
        group->crowded_until_ns = group->reactor->now_ns + CROWD_NS;
    return group->reactor->now_ns < group->crowded_until_ns;
}

/* Begin what is due, into `begun`; threads sync those whose rounds are not one write. How many have begun. */
static int begin_rounds(pb_flush_group *group, pb_link *begun)
{
    pb_link due, *link;
    pb_list_take(&due, &group->due);
    int count = 0;
    while ((link = pb_list_pop_front(&due)) != NULL) {
        pb_partition *partition = PB_CONTAINER(link, pb_partition, round_link);
        pthread_mutex_lock(&partition->lock);
        bool begins = begin_round(partition);
        pthread_mutex_unlock(&partition->lock);
        if (begins) {
            pb_list_push_back(begun, link);
            count++;
        } else {
            partition->sync_due(partition);
            leave(partition, group->reactor);
        }
    }
    return count;
}

/* Is the only round that has begun one beside zeros, and nothing in the way of a flush for it? */
static bool avoids_zeros(const pb_flush_group *group, const pb_link *begun, int count)
{
    return count == 1 && group->file >= 0 && pb_list_empty(&group->members) &&
           PB_CONTAINER(begun->next, const pb_partition, round_link)->round_fills;
}

static void start_due(pb_flush_group *group)
{
    if (pb_list_empty(&group->due))
        return;
    bool crowded = is_crowded(group);
    if (crowded && !(pb_list_empty(&group->members) && pb_list_empty(&group->alone)))
        return;
    pb_link begun, *link;
    pb_list_init(&begun);
    int count = begin_rounds(group, &begun);
    bool shared = (crowded && count > 1) || avoids_zeros(group, &begun, count);
    if (shared) {
        group->writing_count = group->member_count = count;
        group->began_ns = group->reactor->io->ops->monotonic_ns(group->reactor->io);
    }
    while ((link = pb_list_pop_front(&begun)) != NULL) {
        pb_partition *partition = PB_CONTAINER(link, pb_partition, round_link);
        pb_list_push_back(shared ? &group->members : &group->alone, link);
        start(partition, !shared);
    }
}

/* Are there answers to send before the next round begins? Several may leave by one connection, and other connections
 * have something to send as well; but there are no more turns to wait than those who send now take. */
static bool awaits_answers(pb_flush_group *group)
{
    int count = 0;
    const pb_link *flush = &group->reactor->flush;
    for (const pb_link *link = flush->next; link != flush && count < group->answers; link = link->next)
        count++;
    bool awaits = count >= PB_FLUSHES_BESIDE_DISK;
    group->answers = awaits ? count - PB_FLUSHES_BESIDE_DISK : 0;
    return awaits;
}

bool pb_flush_groups_start(pb_reactor *reactor)
{
    bool awaited = false;
    for (int i = 0; i < PB_FLUSH_GROUPS && reactor->flush_groups[i].device != 0; i++) {
        pb_flush_group *group = &reactor->flush_groups[i];
        if (awaits_answers(group))
            awaited = awaited || !pb_list_empty(&group->due);
        else
            start_due(group);
    }
    return awaited;
}

void pb_flush_groups_close(pb_reactor *reactor)
{
    for (int i = 0; i < PB_FLUSH_GROUPS && reactor->flush_groups[i].device != 0; i++)
        close_file(&reactor->flush_groups[i]);
}

/* ---- a shared round's end ---- */

static void end_shared(pb_flush_group *group, int64_t result)
{
    pb_link members, finished, *link;
    pb_list_init(&finished);
    pb_reactor_counters *counters = &group->reactor->counters;
    count_time(group->reactor, group->member_count > 1 ? &counters->shared_sync_us : &counters->sync_us,
               group->began_ns);
    if (result < 0) /* who gives the disk up may want to unmount it */
        close_file(group);
    pb_list_take(&members, &group->members);
    while ((link = pb_list_pop_front(&members)) != NULL) {
        pb_partition *partition = PB_CONTAINER(link, pb_partition, round_link);
        if (end_round(partition, result < 0 ? result : partition->round_result, &finished))
            go_on(partition);
        else
            leave(partition, group->reactor);
    }
    pb_durable_settle(&finished, group->reactor);
}

/* The file that is flushed. Where nobody but members is there any that has been written will do, but one that zeros are
 * written to has more to sync. < 0: all writes have failed. */
static int choose_file(const pb_flush_group *group)
{
    const pb_partition *chosen = NULL;
    for (const pb_link *link = group->members.next; link != &group->members; link = link->next) {
        const pb_partition *partition = PB_CONTAINER(link, const pb_partition, round_link);
        if (partition->round_result == partition->round_write.length && (chosen == NULL || chosen->round_fills))
            chosen = partition;
    }
    if (chosen == NULL)
        return -1;
    return group->file >= 0 ? group->file : chosen->round_write.file;
}

/* All has been written, or has failed: one flush for what has. */
static void flush(pb_flush_group *group)
{
    pb_reactor *reactor = group->reactor;
    int file = choose_file(group);
    if (file >= 0)
        reactor->io->ops->flush_start(reactor->loop, &group->flush, file);
    else
        end_shared(group, 0); /* the members know */
}

static void flushed(pb_op *op, int64_t result)
{
    pb_flush_group *group = PB_CONTAINER(op, pb_flush_group, flush);
    if (result == -EAGAIN)
        flush(group);
    else
        end_shared(group, result);
}

static void wrote_some(pb_op *op, int64_t result)
{
    pb_partition *partition = PB_CONTAINER(op, pb_partition, round_op);
    pb_flush_group *group = partition->round_group;
    if (result == -EAGAIN) {
        start(partition, false);
        return;
    }
    PB_ASSERT(group->writing_count > 0);
    partition->round_result = result;
    if (--group->writing_count == 0)
        flush(group);
}

/* ---- a lone round's end ---- */

static void wrote(pb_op *op, int64_t result)
{
    pb_partition *partition = PB_CONTAINER(op, pb_partition, round_op);
    if (result == -EAGAIN) {
        start(partition, true);
        return;
    }
    pb_flush_group *group = partition->round_group;
    pb_reactor *reactor = partition->round_reactor;
    pb_link finished;
    pb_list_init(&finished);
    if (group != NULL)
        pb_list_remove(&partition->round_link);
    count_time(reactor, &reactor->counters.sync_us, partition->round_began_ns);
    bool again = end_round(partition, result, &finished);
    if (again)
        go_on(partition);
    pb_durable_settle(&finished, reactor);
    if (!again)
        leave(partition, reactor);
}
