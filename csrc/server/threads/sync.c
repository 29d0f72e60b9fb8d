/* The threads that sync. A partition that has more after its round goes back to the end of the queue. */
#include "server/threads/sync.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/broker.h"

enum {
    RETRY_NS = 10000000, /* after an error that passes */
    MANY = 16,           /* partitions that wait before their file system is considered */
    MOST = 1024,         /* of them that one sync takes */
    WEIGHT = 8,          /* of the past in an average */
};

/* A partition's round on its way. */
typedef struct sync_job {
    pb_partition *partition;
    pb_sync_filesystem *filesystem; /* NULL: it has to be synced by itself */
    pb_log_sync_round round;
} sync_job;

static int64_t average(int64_t before, int64_t now)
{
    return before == 0 ? now : before + (now - before) / WEIGHT;
}

static int64_t now_ns(const pb_syncer *syncer)
{
    return syncer->io->ops->monotonic_ns(syncer->io);
}

/* ---- one by one ---- */

/* The end of a round: back into the queue, or out of our hands. */
static void finish(pb_syncer *syncer, pb_partition *partition, pb_log_sync_round *round, int result)
{
    PB_ASSERT(partition != NULL);
    pb_sync_outcome outcome = pb_partition_sync_end(partition, round, result);
    pthread_mutex_lock(&syncer->lock);
    pb_histogram_add(&syncer->commit_appends, outcome.ended_count);
    if (outcome.again) {
        pb_list_push_back(&syncer->due, &partition->sync_link);
        syncer->due_count++;
    }
    pthread_mutex_unlock(&syncer->lock);
    if (!outcome.again)
        pb_partition_release(partition);
}

void pb_syncer_count(pb_syncer *syncer, int64_t taken_ns)
{
    pthread_mutex_lock(&syncer->lock);
    pb_histogram_add(&syncer->file_us, taken_ns / 1000);
    pthread_mutex_unlock(&syncer->lock);
}

static int sync_alone(pb_syncer *syncer, sync_job *job)
{
    int64_t started_ns = now_ns(syncer);
    int result = pb_partition_sync_run(job->partition, &job->round, NULL);
    int64_t taken_ns = now_ns(syncer) - started_ns;
    pthread_mutex_lock(&syncer->lock);
    syncer->file_ns = average(syncer->file_ns, taken_ns);
    pb_histogram_add(&syncer->file_us, taken_ns / 1000);
    pthread_mutex_unlock(&syncer->lock);
    finish(syncer, job->partition, &job->round, result);
    return result;
}

/* ---- many at once ---- */

static pb_sync_filesystem *find_filesystem(pb_syncer *syncer, const char *directory, size_t length)
{
    for (int i = 0; i < syncer->filesystem_count; i++) {
        pb_sync_filesystem *filesystem = &syncer->filesystems[i];
        if (strncmp(filesystem->path, directory, length) == 0 && filesystem->path[length] == '\0')
            return filesystem;
    }
    return NULL;
}

static size_t parent_length(const char *directory)
{
    const char *slash = strrchr(directory, '/');
    return slash != NULL ? (size_t)(slash - directory) : 0;
}

/* NULL without memory: then each partition is synced by itself. */
static pb_sync_filesystem *add_filesystem(pb_syncer *syncer, const char *directory, size_t length)
{
    pb_sync_filesystem *filesystem = &syncer->filesystems[syncer->filesystem_count];
    filesystem->path = strndup(directory, length);
    if (filesystem->path == NULL)
        return NULL;
    filesystem->handle = syncer->io->ops->filesystem_open(syncer->io, filesystem->path);
    filesystem->unfit = filesystem->handle < 0;
    pthread_mutex_init(&filesystem->turn, NULL);
    syncer->filesystem_count++;
    return filesystem;
}

void pb_syncer_watch(pb_syncer *syncer, const char *directory)
{
    size_t length = parent_length(directory);
    pthread_mutex_lock(&syncer->lock);
    pb_sync_filesystem *filesystem = find_filesystem(syncer, directory, length);
    if (filesystem == NULL && length > 0 && syncer->filesystem_count < PB_SYNC_FILESYSTEMS)
        filesystem = add_filesystem(syncer, directory, length);
    /* A mount, or a link to another disk: its sync would say nothing of this log. */
    if (filesystem != NULL && !filesystem->unfit)
        filesystem->unfit = syncer->io->ops->filesystem_holds(syncer->io, filesystem->handle, directory) != 1;
    pthread_mutex_unlock(&syncer->lock);
}

/* Sync all of it, or have it synced: one that begins while somebody waits for his turn is for him too. 0 or -errno;
 * -ENOSYS: it is unfit. */
static int sync_whole(pb_syncer *syncer, pb_sync_filesystem *filesystem)
{
    pthread_mutex_lock(&syncer->lock);
    int64_t begun_count = filesystem->begun_count;
    pthread_mutex_unlock(&syncer->lock);
    pthread_mutex_lock(&filesystem->turn);
    pthread_mutex_lock(&syncer->lock);
    bool unfit = filesystem->unfit;
    bool done = filesystem->begun_count > begun_count;
    filesystem->begun_count += !unfit && !done;
    pthread_mutex_unlock(&syncer->lock);
    int result = unfit ? -ENOSYS : 0;
    if (!unfit && !done) {
        int64_t started_ns = now_ns(syncer);
        result = syncer->io->ops->filesystem_sync(syncer->io, filesystem->handle);
        pthread_mutex_lock(&syncer->lock);
        pb_histogram_add(&syncer->filesystem_us, (now_ns(syncer) - started_ns) / 1000);
        filesystem->unfit = filesystem->unfit || result != 0;
        pthread_mutex_unlock(&syncer->lock);
    }
    pthread_mutex_unlock(&filesystem->turn);
    return result;
}

int pb_syncer_sync_directory(pb_syncer *syncer, const char *log_dir, bool try_only)
{
    pthread_mutex_lock(&syncer->lock);
    pb_sync_filesystem *filesystem = find_filesystem(syncer, log_dir, strlen(log_dir));
    bool fit = filesystem != NULL && !filesystem->unfit;
    pthread_mutex_unlock(&syncer->lock);
    if (!fit || try_only)
        return fit ? 0 : -ENOSYS;
    return sync_whole(syncer, filesystem);
}

/* Begin what is due, all of it up to MOST; how many. */
static int begin_jobs(pb_syncer *syncer, pb_link *taken, sync_job *jobs)
{
    int count = 0;
    pb_link *link;
    while ((link = pb_list_pop_front(taken)) != NULL) {
        sync_job *job = &jobs[count];
        job->partition = PB_CONTAINER(link, pb_partition, sync_link);
        if (!pb_partition_sync_begin(job->partition, &job->round)) {
            pb_partition_release(job->partition);
            continue;
        }
        /* From here on the log stays in its directory. */
        const char *directory = pb_log_directory(job->partition->log);
        pthread_mutex_lock(&syncer->lock);
        job->filesystem = find_filesystem(syncer, directory, parent_length(directory));
        if (job->filesystem != NULL && (job->filesystem->unfit || job->round.in_ring))
            job->filesystem = NULL;
        pthread_mutex_unlock(&syncer->lock);
        count++;
    }
    return count;
}

/* All jobs of one file system. A failure may be somebody else's: then each finds out by itself. */
static void sync_filesystem(pb_syncer *syncer, sync_job *jobs, int count, pb_sync_filesystem *filesystem)
{
    int64_t started_ns = now_ns(syncer);
    int result = sync_whole(syncer, filesystem);
    int64_t taken_ns = now_ns(syncer) - started_ns;
    pthread_mutex_lock(&syncer->lock);
    if (result == 0)
        syncer->filesystem_ns = average(syncer->filesystem_ns, taken_ns);
    pthread_mutex_unlock(&syncer->lock);
    for (int i = 0; i < count; i++) {
        if (jobs[i].filesystem != filesystem)
            continue;
        jobs[i].filesystem = NULL;
        if (result == 0) {
            finish(syncer, jobs[i].partition, &jobs[i].round, 0);
            jobs[i].partition = NULL;
        }
    }
}

/* Sync what was taken; 0 or the last error. */
static int sync_together(pb_syncer *syncer, pb_link *taken, sync_job *jobs)
{
    int count = begin_jobs(syncer, taken, jobs);
    for (int i = 0; i < count; i++)
        if (jobs[i].partition != NULL && jobs[i].filesystem != NULL)
            sync_filesystem(syncer, jobs, count, jobs[i].filesystem);
    int result = 0;
    for (int i = 0; i < count; i++) {
        int own = jobs[i].partition != NULL ? sync_alone(syncer, &jobs[i]) : 0;
        result = own != 0 ? own : result;
    }
    return result;
}

/* ---- the threads ---- */

/* How many partitions the next sync shall take. The lock is held. */
static int choose(pb_syncer *syncer)
{
    if (syncer->due_count < MANY || syncer->filesystem_count == 0)
        return syncer->due_count > 0;
    if (syncer->file_ns * syncer->due_count / PB_SYNC_THREADS >= syncer->filesystem_ns)
        return syncer->due_count < MOST ? syncer->due_count : MOST;
    syncer->filesystem_ns -= syncer->filesystem_ns / (16 * WEIGHT); /* so that it is tried again */
    return 1;
}

/* 0 or the last error. Without memory for many they are synced one by one. */
static int sync_taken(pb_syncer *syncer, pb_link *taken, int count)
{
    sync_job one, *jobs = count > 1 ? malloc((size_t)count * sizeof *jobs) : NULL;
    int result = 0;
    if (jobs != NULL)
        result = sync_together(syncer, taken, jobs);
    free(jobs);
    pb_link *link;
    while ((link = pb_list_pop_front(taken)) != NULL) {
        pb_link single;
        pb_list_init(&single);
        pb_list_push_back(&single, link);
        if (begin_jobs(syncer, &single, &one) > 0)
            result = sync_alone(syncer, &one);
    }
    return result;
}

static enum pb_step sync_step(void *argument)
{
    pb_crew_thread *self = argument;
    pb_syncer *syncer = self->owner;
    pb_link taken;
    pthread_mutex_lock(&syncer->lock);
    int count = choose(syncer);
    int taken_count = pb_list_take_some(&taken, &syncer->due, count);
    PB_ASSERT(taken_count == count);
    syncer->due_count -= count;
    self->idle = count == 0;
    bool stopping = syncer->stopping;
    pthread_mutex_unlock(&syncer->lock);
    if (count == 0)
        return stopping ? PB_STEP_END : PB_STEP_IDLE;
    int result = sync_taken(syncer, &taken, count);
    if (result == 0)
        return PB_STEP_AGAIN;
    syncer->io->ops->thread_sleep_until(self->thread, now_ns(syncer) + RETRY_NS);
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
    for (int i = 0; i < syncer->filesystem_count; i++) {
        if (syncer->filesystems[i].handle >= 0)
            (void)syncer->io->ops->file_close(syncer->io, syncer->filesystems[i].handle);
        free(syncer->filesystems[i].path);
        pthread_mutex_destroy(&syncer->filesystems[i].turn);
    }
    pthread_mutex_destroy(&syncer->lock);
}

int pb_syncer_start(pb_syncer *syncer, pb_failure *failure)
{
    pb_crew_options options = {
        .name = "pb-sync",
        .work = "syncs",
        .thread_count = PB_SYNC_THREADS,
        .rank = PB_RANK_URGENT, /* acknowledgements wait for it, and it does little but wait itself */
        .step = sync_step,
        .owner = syncer,
    };
    int result = pb_crew_start(&syncer->crew, syncer->io, &options, failure);
    if (result < 0)
        return result;
    pthread_mutex_lock(&syncer->lock);
    syncer->running = true;
    pthread_mutex_unlock(&syncer->lock);
    return 0;
}

void pb_syncer_stop(pb_syncer *syncer)
{
    pthread_mutex_lock(&syncer->lock);
    syncer->stopping = true;
    syncer->running = false;
    pthread_mutex_unlock(&syncer->lock);
    pb_crew_stop(&syncer->crew);
}

void pb_syncer_submit(pb_syncer *syncer, pb_partition *partition)
{
    pthread_mutex_lock(&syncer->lock);
    bool running = syncer->running;
    if (running) {
        pb_partition_retain(partition);
        pb_list_push_back(&syncer->due, &partition->sync_link);
        syncer->due_count++;
    }
    pb_thread *sleeper = running ? pb_crew_pick_sleeper(&syncer->crew) : NULL;
    pthread_mutex_unlock(&syncer->lock);
    if (sleeper != NULL)
        syncer->io->ops->thread_wake(sleeper);
    pb_log_sync_round round;
    while (!running && pb_partition_sync_begin(partition, &round) &&
           pb_partition_sync_end(partition, &round, pb_partition_sync_run(partition, &round, NULL)).again)
        ;
}

void pb_sync_submit(pb_partition *partition)
{
    pb_broker *broker = partition->owner;
    pb_syncer_submit(&broker->syncer, partition);
}
