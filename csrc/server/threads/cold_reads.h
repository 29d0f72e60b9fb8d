/*
 * Cold reads: a few background threads read old records ("history") from the disk for the reactors, which never wait
 * for a disk.
 *
 * A reactor submits a pb_cold_read. The threads serve all cold reads in turn, a piece each, so that a large read does
 * not hold up a small one. When no cold read waits, the threads read ahead, within bounds, of readers that go through
 * old records in order. The records go into the cache `history` (log/read/history.h), which drops old pieces to make
 * room for new ones. The cache displaces neither appended records nor the records that readers at the tail need: these
 * are in the page cache or in a tail ring.
 */
#ifndef PB_SERVER_THREADS_COLD_READS_H
#define PB_SERVER_THREADS_COLD_READS_H

#include "log/read/history.h"
#include "replica/partition.h"
#include "server/threads/crew.h"

#define PB_COLD_THREADS 4
#define PB_COLD_STREAMS 64

typedef struct pb_cold_reads pb_cold_reads;

/* A request to read. Owner: the sender until it is submitted, and again once `piece` has returned false. */
typedef struct pb_cold_read {
    pb_link link;
    /* Reads the next piece, on a background thread. true: there is more to read. */
    bool (*piece)(struct pb_cold_read *read);
} pb_cold_read;

/* A reader that goes through a segment in order. */
typedef struct pb_cold_stream {
    const pb_partition *partition; /* only compared; NULL: unused */
    int64_t segment_base;
    int64_t next_position;  /* where the reader goes on */
    int64_t ahead_position; /* up to here the file was read ahead, or is being read */
    int64_t found_bytes;    /* how many bytes in a row reading ahead has found in memory already */
    uint64_t used;          /* pb_cold_reads.use_count at the last use */
} pb_cold_stream;

/* A range of a file that was in the page cache a moment ago. Owner: a reactor, which keeps a few of them. */
typedef struct pb_resident_range {
    const pb_segment *segment; /* only compared; NULL: unused */
    int64_t position;
    int64_t end_position;
    int64_t until_ns; /* until then the reactor takes it to be there still */
} pb_resident_range;

struct pb_cold_reads {
    pb_io *io;
    pb_history history;
    pb_crew crew;
    pthread_mutex_t lock;
    /* Under the lock. */
    pb_link due;   /* submitted reads */
    pb_link ahead; /* reads ahead, which begin when no submitted read waits */
    int ahead_count;
    int ahead_running;
    bool running;
    bool stopping;
    pb_cold_stream streams[PB_COLD_STREAMS];
    uint64_t use_count;
    /* Any thread may read it. */
    atomic_bool used; /* a cold read has happened since the start */
};

/* The history has at most `cache_bytes`, but at least PB_HISTORY_LEAST_BYTES. */
void pb_cold_reads_init(pb_cold_reads *reads, pb_io *io, int64_t cache_bytes);
int pb_cold_reads_start(pb_cold_reads *reads, pb_failure *failure);
/* End the threads when all submitted reads are done. */
void pb_cold_reads_stop(pb_cold_reads *reads);
void pb_cold_reads_destroy(pb_cold_reads *reads);

/* Queue a cold read. Any thread; between start and stop. */
void pb_cold_reads_submit(pb_cold_reads *reads, pb_cold_read *read);
/* Read a part of a slice's file into memory, unless it is there; the part lies between two multiples of PB_PIECE_BYTES.
 * Called by `piece` functions, on a background thread. 0 or -errno. */
int pb_cold_reads_bring_in(pb_cold_reads *reads, const pb_log_slice *slice, int64_t position, int64_t length);
/* Is this part of a slice's file in the page cache, so that it can be sent without a wait for the disk? Any thread. */
bool pb_cold_reads_in_page_cache(pb_cold_reads *reads, const pb_log_slice *slice, int64_t position, int64_t length);
/* A reader has come to this slice, and `was_cold` says that the slice was not in memory. If the reader goes through the
 * segment in order, read ahead of it. Returns true if the slice continues what a reader read before. Any thread. */
bool pb_cold_reads_follow(pb_cold_reads *reads, pb_partition *partition, const pb_log_slice *slice, bool was_cold);

#endif
