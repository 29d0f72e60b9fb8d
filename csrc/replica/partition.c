/*
 * The life of a partition: made, leads, resigns, gives its log up; and what is done to its log as a whole, mending and
 * moving. By threads that may wait, as most of it does: until who uses the log has gone.
 */
#include "replica/partition.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replica/append.h"
#include "replica/durable.h"
#include "replica/followers.h"
#include "replica/hot.h"
#include "wire/generated/kafka_errors.h"

enum { MEND_TRIES = 100, MEND_WAIT_NS = 10 * 1000 * 1000 };

pb_partition *pb_partition_create(pb_io *io, const char *topic, const uint8_t topic_id[16], int32_t index, pb_log *log,
                                  const pb_partition_rules *rules)
{
    pb_partition *partition = calloc(1, sizeof *partition);
    if (partition == NULL)
        return NULL;
    snprintf(partition->topic, sizeof partition->topic, "%s", topic);
    memcpy(partition->topic_id, topic_id, sizeof partition->topic_id);
    partition->index = index;
    partition->io = io;
    partition->log = log;
    partition->rules = *rules;
    partition->high_watermark = log != NULL ? pb_log_written_end(log) : 0;
    partition->leader_epoch = -1;
    pb_partition_prepare_writes(partition);
    atomic_init(&partition->references, 1);
    pthread_mutex_init(&partition->lock, NULL);
    pthread_cond_init(&partition->quiet, NULL);
    pb_list_init(&partition->sync_link);
    pb_list_init(&partition->flush_link);
    pb_list_init(&partition->hot_link);
    pb_list_init(&partition->unsynced);
    pb_list_init(&partition->duplicates);
    pb_list_init(&partition->unreplicated);
    pb_list_init(&partition->waiters);
    pb_list_init(&partition->follower_waiters);
    return partition;
}

/* ---- leading ---- */

void pb_partition_begin_epoch(pb_partition *partition, int32_t leader_epoch)
{
    PB_ASSERT(!partition->following.active);
    if (leader_epoch > partition->leader_epoch)
        pb_log_start_epoch(partition->log, leader_epoch);
    partition->leader_epoch = leader_epoch;
    partition->serving = true;
    partition->refusal = 0;
}

void pb_partition_start_leading(pb_partition *partition, int32_t leader_epoch)
{
    pb_link finished;
    pb_list_init(&finished);
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->log != NULL);
    pb_partition_begin_epoch(partition, leader_epoch);
    pb_followers *followers = pb_followers_replace(partition, NULL);
    pb_durable_advance(partition, INT64_MAX, &finished);
    pthread_mutex_unlock(&partition->lock);
    free(followers);
    pb_durable_settle(&finished, NULL);
}

/* Is the log read or written to, or about to be? Appends queued there wait without `queued` while writes are held or
 * somebody else has the log's write token, and for a moment between two writes. The lock is held. */
static bool is_in_use(const pb_partition *partition)
{
    bool gathered = partition->log != NULL && pb_log_has_queued(partition->log);
    return partition->writing || partition->queued || gathered || partition->readers > 0;
}

/* Refuses clients from now on, and waits until nobody uses the log and all queued appends are written. Once the
 * followers are gone, nothing else tells that an append waits for them. Those that do fail: another leader may have
 * them or not. The lock is held. */
static pb_followers *end_service(pb_partition *partition, pb_link *finished)
{
    partition->serving = false;
    partition->following.active = false;
    pb_durable_wake(partition, INT64_MAX);
    pb_followers_wake(partition, INT64_MAX);
    while (is_in_use(partition)) {
        pb_hot_hurry(partition);
        pthread_cond_wait(&partition->quiet, &partition->lock);
    }
    pb_followers_fail_appends(partition, partition->refusal != 0 ? partition->refusal : PB_KAFKA_NOT_LEADER_OR_FOLLOWER,
                              finished);
    return pb_followers_replace(partition, NULL);
}

void pb_partition_stop_leading(pb_partition *partition, int refusal)
{
    pb_link finished;
    pb_list_init(&finished);
    pthread_mutex_lock(&partition->lock);
    partition->refusal = refusal;
    pb_followers *followers = end_service(partition, &finished);
    pthread_mutex_unlock(&partition->lock);
    free(followers);
    pb_durable_settle(&finished, NULL);
}

pb_log *pb_partition_take_log(pb_partition *partition)
{
    pb_link finished;
    pb_list_init(&finished);
    pthread_mutex_lock(&partition->lock);
    pb_followers *followers = end_service(partition, &finished);
    pb_log *log = partition->log;
    partition->log = NULL;
    pthread_mutex_unlock(&partition->lock);
    free(followers);
    pb_durable_settle(&finished, NULL);
    return log;
}

/* ---- mending and moving ---- */

int pb_partition_mend(pb_partition *partition, pb_failure *failure)
{
    pb_durable_stop_syncs(partition);
    pthread_mutex_lock(&partition->lock);
    bool held = partition->held;
    pthread_mutex_unlock(&partition->lock);
    pb_log_guard guard = pb_partition_guard(partition);
    int result = held ? pb_fail(failure, -EBUSY, "the log is about to move") : -EBUSY;
    /* Others keep the log from us for moments only. */
    for (int i = 0; !held && result == -EBUSY && i < MEND_TRIES; i++) {
        if (i > 0)
            partition->io->ops->nap(partition->io, MEND_WAIT_NS);
        result = pb_log_repair(partition->log, &guard, failure);
    }
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(!partition->writing);
    partition->broken = partition->broken && result != 0;
    pthread_mutex_unlock(&partition->lock);
    pb_durable_allow_syncs(partition);
    return result;
}

/* Writes may begin again. */
static void let_writes_begin(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(partition->held);
    partition->held = false;
    pthread_mutex_unlock(&partition->lock);
    pb_partition_catch_up(partition);
}

int pb_partition_stop_writes(pb_partition *partition, pb_failure *failure)
{
    pthread_mutex_lock(&partition->lock);
    PB_ASSERT(!partition->held);
    partition->held = true;
    while (partition->writing)
        pthread_cond_wait(&partition->quiet, &partition->lock);
    pthread_mutex_unlock(&partition->lock);
    /* A repair has syncs stopped: either it has ended by now, or it finds the partition held. */
    pb_durable_stop_syncs(partition);
    pb_log_guard guard = pb_partition_guard(partition);
    int result = pb_log_hold(partition->log, &guard, failure);
    pb_durable_allow_syncs(partition);
    if (result != 0)
        let_writes_begin(partition);
    return result;
}

int pb_partition_move(pb_partition *partition, const char *directory, uint32_t cut_count, bool for_good,
                      pb_failure *failure)
{
    /* A sync of files that the log may leave again proves nothing, and no append may be acknowledged by it. */
    if (!partition->moving)
        pb_durable_stop_syncs(partition);
    partition->moving = true;
    pb_log_guard guard = pb_partition_guard(partition);
    return pb_log_relocate(partition->log, &guard, directory, cut_count, for_good, failure);
}

void pb_partition_move_back(pb_partition *partition)
{
    PB_ASSERT(partition->moving);
    pb_log_guard guard = pb_partition_guard(partition);
    pb_log_go_back(partition->log, &guard);
}

void pb_partition_resume_writes(pb_partition *partition)
{
    pb_log_guard guard = pb_partition_guard(partition);
    pb_log_release(partition->log, &guard);
    if (partition->moving) {
        partition->moving = false;
        pb_durable_allow_syncs(partition);
    }
    let_writes_begin(partition);
}
