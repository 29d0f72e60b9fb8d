/* The threads that sync, on a disk that loses pages: each log that lost some is told, whoever is told first. */
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

#include "replica/durable.h"
#include "server/threads/sync.h"
#include "tests/log/log_fixture.h"

enum { MANY = 16 /* wait, before their file system is synced */, ALL = PB_SYNC_THREADS + MANY };

static pb_syncer syncer;
static fixture logs[ALL];
static pb_partition *partitions[ALL];
static atomic_int whole_count, failed_count;
static atomic_bool lost; /* pages of every file */
static sem_t alone_begun, alone_may_end, beside;

static int sync_one(pb_io *io, int file)
{
    (void)io;
    CHECK(file >= 0);
    if (atomic_load(&lost))
        return -EIO;
    sem_post(&alone_begun);
    sem_wait(&alone_may_end);
    return 0;
}

/* A handle tells it once: to the first, who waits a moment for another one beside it. */
static int sync_whole(pb_io *io, int filesystem)
{
    (void)io;
    CHECK(filesystem >= 0);
    if (atomic_fetch_add(&whole_count, 1) > 0) {
        sem_post(&beside);
        return 0;
    }
    atomic_store(&lost, true);
    sem_post(&alone_may_end); /* of those who sync files: it takes all that are due */
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (sem_timedwait(&beside, &until) != 0 && errno == EINTR)
        ;
    return -EIO;
}

/* Any file will do: what is synced by it is made up here. */
static int open_whole(pb_io *io, const char *path)
{
    return fixture_ops->file_make_unnamed(io, path);
}

static int hold_all(pb_io *io, int filesystem, const char *path)
{
    (void)io;
    CHECK(filesystem >= 0 && path != NULL);
    return 1;
}

static void count_failure(pb_partition *partition, enum pb_partition_failure what, int error)
{
    CHECK(partition->broken && what == PB_SYNC_FAILED && error == -EIO);
    atomic_fetch_add(&failed_count, 1);
}

static void submit_again(pb_partition *partition)
{
    pb_syncer_submit(&syncer, partition);
}

/* A log with a batch that is not durable. */
static void open_partition(const fixture *f, int index)
{
    static char paths[ALL][96];
    snprintf(paths[index], sizeof paths[index], "%s/t-%d", f->directory, index);
    logs[index] = *f;
    logs[index].options.directory = paths[index];
    fixture_open(&logs[index]);
    CHECK_INT(log_append(&logs[index], (batch_spec){.timestamp = 1000, .value_length = 100}), 0);
    const pb_partition_rules rules = {.min_insync_replicas = 1, .durable_acks = true};
    partitions[index] = pb_partition_create(f->io, "t", FIXTURE_TOPIC_ID, index, logs[index].log, &rules);
    partitions[index]->sync_due = submit_again;
    partitions[index]->failed = count_failure;
    pb_syncer_watch(&syncer, paths[index]);
}

static void submit(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    CHECK(pb_durable_begin(partition));
    pthread_mutex_unlock(&partition->lock);
    pb_syncer_submit(&syncer, partition);
}

static void close_partition(int index)
{
    pb_log *log = pb_partition_take_log(partitions[index]);
    pb_partition_release(partitions[index]);
    (void)pb_log_close(log, false, NULL);
    fixture_remove(logs[index].options.directory);
}

TEST(who_syncs_a_file_system_beside_one_that_is_told_of_a_failure_is_told_too)
{
    fixture f;
    fixture_init(&f);
    pb_io_ops ops = *fixture_ops;
    ops.filesystem_sync = sync_whole;
    ops.filesystem_open = open_whole;
    ops.filesystem_holds = hold_all;
    f.io->ops = &ops;
    sem_init(&alone_begun, 0, 0);
    sem_init(&alone_may_end, 0, 0);
    sem_init(&beside, 0, 0);
    pb_syncer_init(&syncer, f.io);
    for (int i = 0; i < ALL; i++)
        open_partition(&f, i);
    ops.file_sync = sync_one;
    CHECK_INT(pb_syncer_start(&syncer, NULL), 0);
    for (int i = 0; i < PB_SYNC_THREADS; i++) {
        submit(partitions[i]);
        sem_wait(&alone_begun);
    }
    for (int i = PB_SYNC_THREADS; i < ALL; i++)
        submit(partitions[i]);
    CHECK_INT(pb_syncer_sync_directory(&syncer, f.directory, false), -EIO);
    for (int i = 1; i < PB_SYNC_THREADS; i++)
        sem_post(&alone_may_end);
    pb_syncer_stop(&syncer);
    for (int i = PB_SYNC_THREADS; i < ALL; i++)
        CHECK_INT(pb_log_durable_end(partitions[i]->log), 0);
    CHECK_INT(atomic_load(&failed_count), MANY);
    CHECK_INT(pb_syncer_sync_directory(&syncer, f.directory, false), -ENOSYS);
    for (int i = 0; i < ALL; i++)
        close_partition(i);
    pb_syncer_destroy(&syncer);
    f.io->ops = fixture_ops;
    fixture_free(&f);
}

CHECK_MAIN()
