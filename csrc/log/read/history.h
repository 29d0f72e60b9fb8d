/*
 * The history: a cache of old records. When one consumer has read a part of a segment's file from the disk, the part
 * stays in memory for consumers that come after it. A cached part is called a piece; it is up to PB_PIECE_BYTES long.
 * When there is no room, the piece that was not used for longest is dropped.
 *
 * The cache adapts its size. It remembers a dropped piece, without its bytes, as a "ghost". If such a piece has to be
 * read again soon, and the disk is slow, the cache keeps more from then on. If the disk is fast, a piece that is read
 * again and again is read into the page cache instead.
 *
 * Pieces are read with direct I/O into large pages. To read through the page cache takes ten times the CPU time, as the
 * kernel handles each small page by itself. A kernel without preemption keeps that CPU from consumers at the tail.
 *
 * A piece belongs to a segment object (pb_segment), not to a file name. Below the settled end of its file, the bytes of
 * a segment object never change: a log that is cut or compacted gets a new object. So a piece never has to be updated.
 */
#ifndef PB_LOG_READ_HISTORY_H
#define PB_LOG_READ_HISTORY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/io.h"
#include "log/read/piece_buffers.h"

typedef struct pb_segment pb_segment;
typedef struct pb_history pb_history;

#define PB_HISTORY_BUCKETS 1024
/* The least size of the cache: room for records that are read ahead, and for one answer of the usual largest size. */
#define PB_HISTORY_LEAST_BYTES (64 << 20)
/* How many dropped pieces are remembered. A new ghost may replace one with the same hash before that. */
#define PB_HISTORY_GHOSTS 8192
/* The memory of a piece that was not used for this long is given back. */
#define PB_HISTORY_IDLE_NS 30000000000LL

/* A piece. Owner: the history, whose lock guards it. `buffer` is written without the lock by the thread that reads the
 * piece in, and read without the lock by threads that have pinned it. */
typedef struct pb_piece {
    pb_link link;          /* in the list by last use, the oldest first, or in a list of pieces to free */
    pb_link segment_link;  /* in the list of its segment's pieces */
    struct pb_piece *next; /* in its bucket */
    pb_history *history;
    pb_segment *segment;
    int64_t position; /* the part of the file that it has, up to end_position */
    int64_t end_position;
    int64_t used_ns; /* the last use */
    size_t buffer_bytes;
    uint8_t *buffer; /* begins with the disk block of `position`. NULL: the piece is being read into the page cache */
    int pins;
    int times;    /* how often the piece was read, as far as is known */
    bool large;   /* the whole large page around it is being read */
    bool reading; /* it is being read, and is in no list by use yet */
} pb_piece;

/* The history's data of one segment. */
typedef struct pb_history_view {
    _Atomic(pb_history *) history; /* NULL: no piece was ever read. It is set after the fields below */
    pb_link link;                  /* in the list of the history's views */
    pb_link pieces;
    atomic_int piece_count; /* written under the history's lock */
} pb_history_view;

/* A remembered piece that was dropped. Its key gives its place in the table of ghosts. */
typedef struct pb_ghost {
    uint64_t key;
    int64_t position;
    int64_t end_position;
    int64_t dropped_bytes; /* pb_history.dropped_bytes after the drop; 0: this place is free */
    int times;             /* as of the piece */
} pb_ghost;

struct pb_history {
    pb_io *io;
    int64_t capacity_bytes;
    pthread_mutex_t lock;
    pthread_cond_t read; /* signalled when reading a piece has ended, with or without success */
    /* Under the lock. */
    pb_link views;
    pb_link pieces; /* by last use, the oldest first */
    pb_piece *buckets[PB_HISTORY_BUCKETS];
    int64_t target_bytes; /* how much to keep, besides pinned pieces */
    int64_t piece_ns;     /* the time that the disk takes for a whole piece, on average */
    pb_ghost ghosts[PB_HISTORY_GHOSTS];
    int64_t held_bytes;   /* of the buffers of all pieces */
    int64_t pinned_bytes; /* of the buffers of pinned pieces, which cannot be dropped */
    pb_piece_buffers buffers;
    /* Counters that any thread may read. */
    _Atomic int64_t read_bytes;
    _Atomic int64_t dropped_bytes;
};

void pb_history_init(pb_history *history, pb_io *io, int64_t capacity_bytes);
/* Free all pieces. No thread may read, and no piece may be pinned. Segments may live on. */
void pb_history_destroy(pb_history *history);

/* How a segment's file may be read. */
typedef struct pb_history_file {
    int file;             /* the open file of the segment */
    bool direct;          /* direct I/O is possible */
    int64_t large_before; /* the page cache may be filled in large pages up to this position */
} pb_history_file;

/* Read a part of a segment's file into memory. The part must lie between two multiples of PB_PIECE_BYTES, and its bytes
 * must be final. It becomes a piece of the history if direct I/O is possible and there is room for it; otherwise it is
 * read into the page cache. Blocking. 0 or -errno. */
int pb_history_bring_in(pb_history *history, pb_segment *segment, const pb_history_file *file, int64_t position,
                        int64_t length);
/* Give back the memory of one piece that was not used for PB_HISTORY_IDLE_NS. Returns when to call this again: 0 for at
 * once, or PB_IO_FOREVER when no piece is left. */
int64_t pb_history_trim(pb_history *history);

/* Is any part of this range in a piece, or being read? [any] */
bool pb_history_meets(pb_segment *segment, int64_t position, int64_t length);
/* Is any part of this range being read, into a piece or into the page cache? The kernel may report such pages as
 * resident before they are filled. [any] */
bool pb_history_is_reading(pb_segment *segment, int64_t position, int64_t length);
/* Returns up to where pieces have all bytes from `position` on, at most `end_position`. `position`: no piece has it.
 * [any] */
int64_t pb_history_held_end(pb_segment *segment, int64_t position, int64_t end_position);
/* Do pieces have all bytes of this range? [any] */
bool pb_history_holds(pb_segment *segment, int64_t position, int64_t length);
/* Copy bytes from pieces, from `position` on. Returns how many were copied, at most `length`. [any] */
size_t pb_history_copy(pb_segment *segment, void *buffer, size_t length, int64_t position);
/* Pin the piece that has `position`: it is not dropped until pb_history_unpin. The caller holds a reference on the
 * segment until then. NULL: there is no such piece, or the bound on pinned pieces is reached. [any] */
pb_piece *pb_history_pin(pb_segment *segment, int64_t position);
void pb_history_unpin(pb_piece *piece);
/* Free the pieces of a segment that has no references any more. */
void pb_history_forget(pb_segment *segment);

/* The address of the byte at `position` in a pinned piece, and in *length how many bytes from there on it has, at most
 * *length. NULL: the piece is NULL, or does not have that byte of the segment. */
static inline const uint8_t *pb_piece_bytes(const pb_piece *piece, const pb_segment *segment, int64_t position,
                                            int64_t *length)
{
    if (piece == NULL || piece->segment != segment || position < piece->position || position >= piece->end_position)
        return NULL;
    if (*length > piece->end_position - position)
        *length = piece->end_position - position;
    return piece->buffer + (position - piece->position / PB_DIRECT_BLOCK_BYTES * PB_DIRECT_BLOCK_BYTES);
}

/* The part of a range that one request to the disk reads: up to the next multiple of PB_PIECE_BYTES. */
static inline int64_t pb_piece_part(int64_t position, int64_t length)
{
    int64_t part = PB_PIECE_BYTES - position % PB_PIECE_BYTES;
    return length < part ? length : part;
}

#endif
