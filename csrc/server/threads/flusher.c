/* The threads that flush hot logs. See flusher.h; a partition's lock is taken inside the flusher's, never around it. */
#include "server/threads/flusher.h"

#include <string.h>

#include "base/error.h"
#include "server/broker.h"

#define LOOK_INTERVAL_NS INT64_C(500000000) /* what has gathered waits no longer than this, */
#define TELL_INTERVAL_NS INT64_C(60000000000)
#define URGENT_WEIGHT 100           /* of who waits for more than zeros: as many as are a crowd */
#define IDLE_NS INT64_C(3000000000) /* and a ring is anybody's that was not written to for so long */

static int64_t now_ns(const pb_flusher *flusher)
{
    return flusher->io->ops->monotonic_ns(flusher->io);
}

/* The lock is held. */
static void put_retained(pb_flusher *flusher, pb_partition *partition)
{
    partition->flush_weight = pb_partition_flush_is_urgent(partition) ? URGENT_WEIGHT : 1;
    pb_list_push_back(&flusher->due, &partition->flush_link);
    atomic_fetch_add(&flusher->due_weight, partition->flush_weight);
}

/* The lock is held. */
static void put(pb_flusher *flusher, pb_partition *partition)
{
    pb_partition_retain(partition);
    put_retained(flusher, partition);
}

/* One that has gone cold, or has been closed, is forgotten. The lock is held. */
static void forget_cold(pb_flusher *flusher)
{
    pb_link *next;
    for (pb_link *link = flusher->hot.next; link != &flusher->hot; link = next) {
        next = link->next;
        pb_partition *partition = PB_CONTAINER(link, pb_partition, hot_link);
        int64_t last_write_ns;
        if (pb_partition_is_hot(partition, &last_write_ns))
            continue;
        pb_list_remove(link);
        pb_partition_release(partition);
    }
}

/* Flush what has gathered without becoming much. The lock is held. */
static void look(pb_flusher *flusher)
{
    forget_cold(flusher);
    for (pb_link *link = flusher->hot.next; link != &flusher->hot; link = link->next) {
        pb_partition *partition = PB_CONTAINER(link, pb_partition, hot_link);
        if (pb_partition_ask_flush(partition))
            put(flusher, partition);
    }
    flusher->next_look_ns = now_ns(flusher) + LOOK_INTERVAL_NS;
}

/* Have the one cooled that was not written to for longest. The lock is held. */
static void free_ring(pb_flusher *flusher)
{
    int64_t oldest_ns = now_ns(flusher) - IDLE_NS;
    pb_partition *oldest = NULL;
    for (pb_link *link = flusher->hot.next; link != &flusher->hot; link = link->next) {
        pb_partition *partition = PB_CONTAINER(link, pb_partition, hot_link);
        int64_t last_write_ns;
        if (pb_partition_is_hot(partition, &last_write_ns) && last_write_ns < oldest_ns) {
            oldest_ns = last_write_ns;
            oldest = partition;
        }
    }
    if (oldest != NULL && pb_partition_ask_cool(oldest))
        put(flusher, oldest);
}

/* A log that could be hot is not. Not once for each: all have the same reason. The lock is held. */
static void tell_refusal(pb_flusher *flusher, const pb_partition *partition, int refused)
{
    int64_t now = now_ns(flusher);
    if (flusher->events == NULL || now < flusher->next_tell_ns)
        return;
    flusher->next_tell_ns = now + TELL_INTERVAL_NS;
    pb_failure why;
    (void)pb_fail(
        &why, refused,
        "%s-%d is written to steadily and stays paced. A tail ring needs room in the broker's directory below "
        "pybroker.tail.ring.directory, and its log 64 MiB on the disk ahead of it",
        partition->topic, partition->index);
    pb_events_notice(flusher->events, "%s", why.text);
}

/* Something else has taken files of rings away. The lock is held. */
static void tell_losses(pb_flusher *flusher)
{
    if (flusher->events == NULL || flusher->rings == NULL)
        return;
    int32_t lost_count = pb_ring_pool_lost_count(flusher->rings);
    if (lost_count == flusher->told_lost_count)
        return;
    pb_events_notice(flusher->events,
                     "%d tail rings in %s were removed or replaced behind the broker's back. Their logs were written "
                     "to the disk at once, and what they take until they get new rings goes through the page cache; "
                     "what had been acknowledged before that would have been lost with the broker. Let nothing clean "
                     "up there (systemd-logind does with RemoveIPC=yes when the broker's user logs out)",
                     lost_count - flusher->told_lost_count, pb_ring_pool_directory(flusher->rings));
    flusher->told_lost_count = lost_count;
}

static void after_flush(pb_flusher *flusher, pb_partition *partition, pb_flush_outcome outcome)
{
    pthread_mutex_lock(&flusher->lock);
    if (outcome.became_hot && pb_list_empty(&partition->hot_link)) {
        pb_partition_retain(partition);
        pb_list_push_back(&flusher->hot, &partition->hot_link);
    }
    if (outcome.wants_ring)
        free_ring(flusher);
    if (outcome.refused != 0)
        tell_refusal(flusher, partition, outcome.refused);
    tell_losses(flusher);
    /* A log that is written as fast as the disk takes it is never done: others would wait until their rings are full.
     */
    if (outcome.again)
        put_retained(flusher, partition);
    pthread_mutex_unlock(&flusher->lock);
    if (!outcome.again)
        pb_partition_release(partition);
}

static enum pb_step flush_step(void *argument)
{
    pb_crew_thread *self = argument;
    pb_flusher *flusher = self->owner;
    pthread_mutex_lock(&flusher->lock);
    if (!pb_list_empty(&flusher->hot) && now_ns(flusher) >= flusher->next_look_ns)
        look(flusher);
    pb_link *link = pb_list_pop_front(&flusher->due);
    if (link != NULL)
        atomic_fetch_sub(&flusher->due_weight, PB_CONTAINER(link, pb_partition, flush_link)->flush_weight);
    self->idle = link == NULL;
    bool stopping = flusher->stopping;
    bool looks = !pb_list_empty(&flusher->hot);
    int64_t next_look_ns = flusher->next_look_ns;
    pthread_mutex_unlock(&flusher->lock);
    if (link != NULL) {
        pb_partition *partition = PB_CONTAINER(link, pb_partition, flush_link);
        after_flush(flusher, partition, pb_partition_flush(partition, &flusher->due_weight));
        return PB_STEP_AGAIN;
    }
    if (stopping)
        return PB_STEP_END;
    if (looks)
        flusher->io->ops->thread_sleep_until(self->thread, next_look_ns);
    return PB_STEP_IDLE;
}

void pb_flusher_init(pb_flusher *flusher, pb_io *io)
{
    memset(flusher, 0, sizeof *flusher);
    flusher->io = io;
    pthread_mutex_init(&flusher->lock, NULL);
    pb_list_init(&flusher->due);
    pb_list_init(&flusher->hot);
}

void pb_flusher_destroy(pb_flusher *flusher)
{
    PB_ASSERT(pb_list_empty(&flusher->due) && !flusher->running);
    pthread_mutex_destroy(&flusher->lock);
}

int pb_flusher_start(pb_flusher *flusher, pb_failure *failure)
{
    pb_crew_options options = {
        .name = "pb-flush",
        .work = "flushing",
        .thread_count = PB_FLUSH_THREADS,
        .rank = PB_RANK_FIRST, /* writers wait for it, and it does little but wait itself */
        .step = flush_step,
        .owner = flusher,
    };
    int result = pb_crew_start(&flusher->crew, flusher->io, &options, failure);
    if (result < 0)
        return result;
    pthread_mutex_lock(&flusher->lock);
    flusher->running = true;
    pthread_mutex_unlock(&flusher->lock);
    return 0;
}

void pb_flusher_stop(pb_flusher *flusher)
{
    pthread_mutex_lock(&flusher->lock);
    flusher->stopping = true;
    flusher->running = false;
    pthread_mutex_unlock(&flusher->lock);
    pb_crew_stop(&flusher->crew);
    pb_link *link;
    while ((link = pb_list_pop_front(&flusher->hot)) != NULL)
        pb_partition_release(PB_CONTAINER(link, pb_partition, hot_link));
}

void pb_flusher_submit(pb_flusher *flusher, pb_partition *partition)
{
    pthread_mutex_lock(&flusher->lock);
    bool running = flusher->running;
    if (running)
        put(flusher, partition);
    pb_thread *sleeper = running ? pb_crew_pick_sleeper(&flusher->crew) : NULL;
    pthread_mutex_unlock(&flusher->lock);
    if (sleeper != NULL)
        flusher->io->ops->thread_wake(sleeper);
    while (!running && pb_partition_flush(partition, &flusher->due_weight).again)
        continue;
}

void pb_flush_submit(pb_partition *partition)
{
    pb_broker *broker = partition->owner;
    pb_flusher_submit(&broker->flusher, partition);
}
