/*
 * The syncs that durable acks wait for: a few background threads beside the reactors.
 *
 * A partition is in the queue, or with one of the threads, as long as it has something to sync. Writes gathered
 * meanwhile go with its next round, behind the partitions that wait already. A thread takes one partition and syncs its
 * files. When many wait it takes them all and syncs their file system instead, while that has been the faster way. It
 * costs one commit of the journal for all, and has to wait for everybody's dirty pages.
 */
#ifndef PB_SERVER_THREADS_SYNC_H
#define PB_SERVER_THREADS_SYNC_H

#include "replica/partition.h"
#include "server/threads/crew.h"

#define PB_SYNC_THREADS 4
#define PB_SYNC_FILESYSTEMS 32

/*
 * A log dir as something to sync whole. Its handle is opened before anything there is written, so that no failure of an
 * earlier write escapes it. As it tells a failure once, it is not used again after one. Nor is it where a partition's
 * directory lies on another file system.
 */
typedef struct pb_sync_filesystem {
    char *path;
    int handle;
    bool unfit;
    int64_t begun_count;  /* syncs of it */
    pthread_mutex_t turn; /* one syncs it at a time: of two only one would be told. Taken before the syncer's lock */
} pb_sync_filesystem;

typedef struct pb_syncer {
    pb_io *io;
    pb_crew crew;
    pthread_mutex_t lock;
    /* Under the lock. */
    pb_link due; /* partitions, retained */
    int due_count;
    bool running;
    bool stopping;
    pb_sync_filesystem filesystems[PB_SYNC_FILESYSTEMS]; /* only added to */
    int filesystem_count;
    int64_t file_ns;       /* what a partition's own sync has taken lately; 0: unknown */
    int64_t filesystem_ns; /* and what a file system's has, less with every one that was not tried */
    pb_histogram file_us;  /* all of a partition's own syncs */
    pb_histogram filesystem_us;
    pb_histogram commit_appends; /* appends that ended with one round of a partition */
} pb_syncer;

void pb_syncer_init(pb_syncer *syncer, pb_io *io);
void pb_syncer_destroy(pb_syncer *syncer);
int pb_syncer_start(pb_syncer *syncer, pb_failure *failure);
/* Ends the threads when nothing is due any more. */
void pb_syncer_stop(pb_syncer *syncer);
/* A log lies in this directory: remember the file system of the log dir above. Any thread. */
void pb_syncer_watch(pb_syncer *syncer, const char *directory);
/* Sync the file system of a log dir, or only find out whether that can be done. 0 or -errno; -ENOSYS: it is not
 * watched, or unfit. Any thread; blocks. */
int pb_syncer_sync_directory(pb_syncer *syncer, const char *log_dir, bool try_only);
/* Any thread. Before start and after stop it syncs at once, and blocks. */
void pb_syncer_submit(pb_syncer *syncer, pb_partition *partition);

/* Another sync of a partition's files has taken this long. Any thread. */
void pb_syncer_count(pb_syncer *syncer, int64_t taken_ns);

/* A partition's `sync_due`; its owner is the broker. */
void pb_sync_submit(pb_partition *partition);

#endif
