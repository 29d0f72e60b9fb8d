/*
 * Tail rings: where the bytes of a hot partition wait for their way into the segment's file.
 *
 * A ring is a file on tmpfs (io.h: a store). Published bytes survive the end of the process, and the replay at the next
 * start writes them into the segment (ring_replay.h): published is *written*. It does not survive the machine. A ring
 * speaks of one segment at a time. The byte at a position of the segment's file lies at that position modulo the ring's
 * size, so memory is aligned where the position is. The ring lies in memory twice in a row: any range up to its size is
 * contiguous.
 *
 *     position ->   ...  start ............ end
 *     file          yes   maybe, in part    no
 *     ring          until overwritten  yes  being filled
 *
 * Threads: one writer at a time moves `end` (the log's write token), one flusher at a time moves `start`. Each may read
 * the other's. begin and give are called when nobody uses the ring.
 *
 * A kill finds the ring as it was after some store of the process, so the order of stores is the whole protocol. Only a
 * sealed ring is replayed. begin breaks the seal first and sets it last. Before that, nothing is in the ring that is
 * not in its file. So a header that is changed half way says nothing, and loses nothing. Between two begins only
 * `start` and `end` change, each by one atomic store after what it speaks of was done.
 */
#ifndef PB_LOG_ENGINE_TAIL_RING_H
#define PB_LOG_ENGINE_TAIL_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "io/io.h"

enum {
    PB_RING_UUID_BYTES = 16,
    PB_RING_TOPIC_BYTES = 256, /* with its NUL */
    PB_RING_VERSION = 2,       /* 1 had the header before the ring */
};

/* The log whose bytes a ring holds. */
typedef struct pb_ring_identity {
    uint8_t directory_id[PB_RING_UUID_BYTES]; /* directory.id of the log dir's meta.properties */
    uint8_t topic_id[PB_RING_UUID_BYTES];
    char topic[PB_RING_TOPIC_BYTES]; /* bytes behind the NUL are 0 */
    int32_t partition;
} pb_ring_identity;

/*
 * The head of a ring's store, in the machine's byte order: it never leaves the machine. The checksum is the
 * CRC32C of what is named in it from ring_bytes to topic; it is made by begin and good while the ring is sealed.
 */
typedef struct pb_ring_header {
    uint8_t magic[8];
    uint32_t version;
    uint32_t checksum;
    int64_t ring_bytes;
    int64_t segment_base;
    int64_t begin_position; /* where `start` and `end` began */
    uint8_t boot_id[PB_BOOT_ID_BYTES];
    uint8_t session_id[PB_RING_UUID_BYTES]; /* of the broker's run */
    pb_ring_identity identity;
    _Alignas(512) _Atomic uint32_t sealed;       /* 1: the above is true, and [start, end) is to be replayed */
    _Alignas(64) _Atomic int64_t start_position; /* in the segment's file below it */
    _Alignas(64) _Atomic int64_t end_position;   /* in the ring below it */
} pb_ring_header;

_Static_assert(sizeof(pb_ring_header) <= PB_STORE_HEAD_BYTES, "a ring's header fits into the head of its store");

/* One ring. Owner: the pool, or who took it from there. */
typedef struct pb_tail_ring {
    pb_store store;
    pb_ring_header *header; /* = store.head */
    char *path;
    pb_link link; /* the pool's list */
} pb_tail_ring;

/* Speak of this segment from now on, of which everything up to `position` is in its file. The ring is empty then; what
 * was in it must be in its file, or wanted no more. */
void pb_tail_ring_begin(pb_tail_ring *ring, const pb_ring_identity *identity, int64_t segment_base, int64_t position);

static inline int64_t pb_tail_ring_bytes(const pb_tail_ring *ring)
{
    return (int64_t)ring->store.ring_bytes;
}

/* Where the byte at that position of the segment's file lies, if it does; a ring's size of bytes follow. */
static inline uint8_t *pb_tail_ring_at(const pb_tail_ring *ring, int64_t position)
{
    PB_ASSERT(position >= 0);
    return ring->store.ring + (size_t)position % ring->store.ring_bytes;
}

/* Below it everything is in the segment's file. */
static inline int64_t pb_tail_ring_start(const pb_tail_ring *ring)
{
    return atomic_load_explicit(&ring->header->start_position, memory_order_acquire);
}

/* Below it everything is in the ring or in the segment's file. */
static inline int64_t pb_tail_ring_end(const pb_tail_ring *ring)
{
    return atomic_load_explicit(&ring->header->end_position, memory_order_acquire);
}

/* Where the block of the segment's file begins that `position` lies in. */
static inline int64_t pb_block_floor(int64_t position)
{
    return position - position % PB_DIRECT_BLOCK_BYTES;
}

/* How much may be put behind the end: the block that `start` lies in stays, it is written again with what follows. */
static inline int64_t pb_tail_ring_free_bytes(const pb_tail_ring *ring)
{
    return pb_tail_ring_bytes(ring) - (pb_tail_ring_end(ring) - pb_block_floor(pb_tail_ring_start(ring)));
}

/* The bytes up to `end` are in the ring: from here on they survive the process. The writer. */
void pb_tail_ring_publish(pb_tail_ring *ring, int64_t end);
/* The bytes up to `start` are in the segment's file, and the kernel has them. The flusher. */
void pb_tail_ring_advance(pb_tail_ring *ring, int64_t start);

/*
 * The rings of one broker, within a budget. Any thread; take may wait for memory and belongs on a background thread. A
 * ring that was given back is kept for the next.
 */
typedef struct pb_ring_pool pb_ring_pool;

typedef struct pb_ring_pool_options {
    pb_io *io;
    const char *directory; /* on tmpfs; made when it is missing */
    int64_t budget_bytes;  /* of rings, without the heads of their files */
    int64_t ring_bytes;    /* of each; a multiple of PB_DIRECT_BLOCK_BYTES */
    uint8_t session_id[PB_RING_UUID_BYTES];
} pb_ring_pool_options;

typedef struct pb_ring_pool_stats {
    int64_t budget_bytes;
    int64_t used_bytes; /* of the files there are */
    int32_t ring_count; /* files there are */
    int32_t taken_count;
} pb_ring_pool_stats;

/* -EINVAL: the directory is not on tmpfs. Blocking. */
int pb_ring_pool_open(const pb_ring_pool_options *options, pb_ring_pool **out, pb_failure *failure);
/* No ring is taken any more. Their files go, but for those that were left, and the directory when nothing lies in it.
 * Blocking. */
void pb_ring_pool_close(pb_ring_pool *pool);
/* The log dir at `path` has this directory.id. -EEXIST: it is known by another one. */
int pb_ring_pool_add_log_dir(pb_ring_pool *pool, const char *path, const uint8_t *directory_id);
/* A ring for the log in `log_directory`, which says what directory id belongs into the identity: a log may move.
 * -EXDEV: that log dir is not known. -EAGAIN: the budget is used up, or no ring of this size fits in. -ENOSPC: tmpfs
 * has no more room. */
int pb_ring_pool_take(pb_ring_pool *pool, const char *log_directory, pb_ring_identity *identity, pb_tail_ring **out);
/* Is its file where the next start looks for it? Else what is in it survives nothing, and is to be promised to nobody.
 */
bool pb_ring_pool_has(const pb_ring_pool *pool, const pb_tail_ring *ring);
/* How many have been found without one. */
int32_t pb_ring_pool_lost_count(const pb_ring_pool *pool);
const char *pb_ring_pool_directory(const pb_ring_pool *pool);
/* Its bytes are not wanted any more. One whose file is gone is not used again, and its memory stays until the pool
 * closes. */
void pb_ring_pool_give(pb_ring_pool *pool, pb_tail_ring *ring);
/* Its bytes are wanted, and could not be brought into its file. The ring stays, and counts in the budget, until a log
 * is opened there again or the next start. */
void pb_ring_pool_leave(pb_ring_pool *pool, pb_tail_ring *ring);
/* Before a log is opened: what rings that were left hold of it is brought into its segments. See pb_ring_replay, also
 * for -ESTALE, after which the ring stays. Blocking. */
int pb_ring_pool_replay(pb_ring_pool *pool, const char *log_directory, const uint8_t *topic_id, int32_t partition,
                        pb_failure *failure);
void pb_ring_pool_stats_read(pb_ring_pool *pool, pb_ring_pool_stats *out);

#endif
