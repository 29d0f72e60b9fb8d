/*
 * History into memory: a few background threads beside the reactors, which never wait for a disk.
 *
 * A caller that wants something read hands over a pb_cold_read. It is taken in pieces, in turn with all others, so a
 * reader that asks for much does not hold up one that asks for little. A reader that goes through history in order is
 * read ahead of, in bounds, when nobody waits. Data brought in is kept in the `history`, which makes room for itself
 * when there is too much of it. It takes memory neither from appended data nor from the data that readers at the tail
 * need.
 */
#ifndef PB_SERVER_THREADS_COLD_READS_H
#define PB_SERVER_THREADS_COLD_READS_H

#include "log/read/history.h"
#include "replica/partition.h"
#include "server/threads/crew.h"

#define PB_COLD_THREADS 4
#define PB_COLD_STREAMS 64

typedef struct pb_cold_reads pb_cold_reads;

/* Something to read. Owner: the sender until it is submitted, and again once `piece` has returned false. */
typedef struct pb_cold_read {
    pb_link link;
    /* On a background thread: read the next piece; true when there is more. */
    bool (*piece)(struct pb_cold_read *read);
} pb_cold_read;

/* A reader that goes through a segment in order. */
typedef struct pb_cold_stream {
    const pb_partition *partition; /* only compared; NULL: unused */
    int64_t segment_base;
    int64_t next_position;  /* behind what it has read */
    int64_t ahead_position; /* behind what has been or is being read ahead */
    int64_t found_bytes;    /* of that, what was in memory since something was not */
    uint64_t used;
} pb_cold_stream;

/* A range of a file that was found in memory a moment ago. Owner: a reactor, which keeps a few. */
typedef struct pb_resident_range {
    const pb_segment *segment; /* only compared; NULL: unused */
    int64_t position;
    int64_t end_position;
    int64_t until_ns; /* taken to be there still */
} pb_resident_range;

struct pb_cold_reads {
    pb_io *io;
    pb_history history;
    pb_crew crew;
    pthread_mutex_t lock;
    /* Under the lock. */
    pb_link due;
    pb_link ahead; /* read when nothing is due */
    int ahead_count;
    int ahead_running;
    bool running;
    bool stopping;
    pb_cold_stream streams[PB_COLD_STREAMS];
    uint64_t use_count;
    /* Read by anyone. */
    atomic_bool used; /* somebody reads history, or has */
};

/* `cache_bytes` of history at most; at least 32 MiB, for what is being sent. */
void pb_cold_reads_init(pb_cold_reads *reads, pb_io *io, int64_t cache_bytes);
int pb_cold_reads_start(pb_cold_reads *reads, pb_failure *failure);
/* Ends the threads when all that is due has been read. */
void pb_cold_reads_stop(pb_cold_reads *reads);
void pb_cold_reads_destroy(pb_cold_reads *reads);

/* Any thread; between start and stop. */
void pb_cold_reads_submit(pb_cold_reads *reads, pb_cold_read *read);
/* Bring a part of one piece of a segment's file into memory: for `piece`. 0 or -errno. */
int pb_cold_reads_bring_in(pb_cold_reads *reads, const pb_log_slice *slice, int64_t position, int64_t length);
/* Can this part of a slice's file be sent from the page cache, without waiting for a disk? Any thread. */
bool pb_cold_reads_in_page_cache(pb_cold_reads *reads, const pb_log_slice *slice, int64_t position, int64_t length);
/* A reader has come to this slice, which was or was not in memory: read ahead of it if it goes on like that. True: it
 * goes on where one was before. Any thread. */
bool pb_cold_reads_follow(pb_cold_reads *reads, pb_partition *partition, const pb_log_slice *slice, bool was_cold);

#endif
