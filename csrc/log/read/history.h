/*
 * History in memory: ranges of segments' files that were read for somebody, kept for those who follow, oldest first
 * out. It keeps as much as pays. A dropped piece is remembered, without its bytes. If it has to be read again, more is
 * kept from then on where the disk is slow. Where the disk is fast, pieces that are read again and again are left to
 * the page cache.
 *
 * They are read past the page cache, straight into large pages. The kernel finds, fills, maps and forgets one small
 * page after the other, which takes ten times the CPU. A kernel that does not preempt itself keeps that CPU from
 * consumers at the tail meanwhile.
 *
 * A piece belongs to the segment object, not to a name. The bytes of a file below its settled end do not change under
 * an object. A log that is cut or compacted goes on with another object, so nothing here ever has to be corrected.
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
/* Kept in any case, for what is read ahead and what is being sent: an answer of the usual largest size finds room. */
#define PB_HISTORY_LEAST_BYTES (64 << 20)
/* So many of the last pieces that were dropped are remembered, more or less. */
#define PB_HISTORY_GHOSTS 8192
/* Nobody has come to it for so long: its memory is given back. */
#define PB_HISTORY_IDLE_NS 30000000000LL

/* Owner: the history, under its lock; `buffer` is read without it by who has pinned the piece, and written by who reads
 * it in, alone. */
typedef struct pb_piece {
    pb_link link;         /* by use, oldest first, or with others that are to be freed; not while it is being read in */
    pb_link segment_link; /* with the others of its segment */
    struct pb_piece *next; /* in its bucket */
    pb_history *history;
    pb_segment *segment;
    int64_t position; /* what it holds of the file */
    int64_t end_position;
    int64_t used_ns;
    size_t buffer_bytes;
    uint8_t *buffer; /* NULL: it is being read into the page cache. Holds the file from the block on that `position`
                        lies in */
    int pins;
    int times;  /* that it was read, as far as is known */
    bool large; /* all of the large page that it lies in is being read */
    bool reading;
} pb_piece;

/* A segment's part in it. */
typedef struct pb_history_view {
    _Atomic(pb_history *) history; /* NULL: nothing was ever read in. Before it is set come: */
    pb_link link;                  /* with the history's other views */
    pb_link pieces;
    atomic_int piece_count; /* written under the history's lock */
} pb_history_view;

/* The memory of a dropped piece, at the place that its key tells. */
typedef struct pb_ghost {
    uint64_t key;
    int64_t position;
    int64_t end_position;
    int64_t dropped_bytes; /* so much had been dropped by then; 0: nothing is remembered here */
    int times;
} pb_ghost;

struct pb_history {
    pb_io *io;
    int64_t capacity_bytes;
    pthread_mutex_t lock;
    pthread_cond_t read; /* a piece has been read in, or not */
    /* Under the lock. */
    pb_link views;
    pb_link pieces;
    pb_piece *buckets[PB_HISTORY_BUCKETS];
    int64_t target_bytes; /* to be kept, beside what is being sent */
    int64_t piece_ns;     /* that a whole piece takes the disk, about */
    pb_ghost ghosts[PB_HISTORY_GHOSTS];
    int64_t held_bytes;   /* in buffers of pieces */
    int64_t pinned_bytes; /* of these, what cannot make room */
    pb_piece_buffers buffers;
    /* Read by anyone. */
    _Atomic int64_t read_bytes;
    _Atomic int64_t dropped_bytes;
};

void pb_history_init(pb_history *history, pb_io *io, int64_t capacity_bytes);
/* Nobody reads any more, and nothing is pinned; segments may live on. */
void pb_history_destroy(pb_history *history);

/* How a segment's file may be read. */
typedef struct pb_history_file {
    int file;             /* the segment's */
    bool direct;          /* past the page cache */
    int64_t large_before; /* in large pages up to here */
} pb_history_file;

/* Brings a part of one piece of a segment's file, whose bytes there are final, into memory. It comes here if it may be
 * read direct; otherwise, and where it shall not be kept here, into the page cache. Blocking. 0 or -errno. */
int pb_history_bring_in(pb_history *history, pb_segment *segment, const pb_history_file *file, int64_t position,
                        int64_t length);
/* Give back the memory of one piece that nobody has come to for long. When to do it again: 0 at once, PB_IO_FOREVER
 * when nothing is left. */
int64_t pb_history_trim(pb_history *history);

/* Is any of this here, or being read? [any] */
bool pb_history_meets(pb_segment *segment, int64_t position, int64_t length);
/* Is any of this being read, here or into the page cache, where pages are found before they are filled? [any] */
bool pb_history_is_reading(pb_segment *segment, int64_t position, int64_t length);
/* Where what is here from `position` on ends, up to `end_position`; `position`: it is not here. [any] */
int64_t pb_history_held_end(pb_segment *segment, int64_t position, int64_t end_position);
/* Is all of this here? [any] */
bool pb_history_holds(pb_segment *segment, int64_t position, int64_t length);
/* Copy what is here from `position` on: how many bytes, up to `length`. [any] */
size_t pb_history_copy(pb_segment *segment, void *buffer, size_t length, int64_t position);
/* The piece here that holds `position`, to stay until it is unpinned. NULL: there is none, or the bound on pinned
 * pieces is reached. The caller holds a reference on the segment until then. [any] */
pb_piece *pb_history_pin(pb_segment *segment, int64_t position);
void pb_history_unpin(pb_piece *piece);
/* A segment's last reference has gone. */
void pb_history_forget(pb_segment *segment);

/* The bytes of a segment from `position` on that a pinned piece (NULL: none) has, *length bytes at most; NULL: nothing.
 * */
static inline const uint8_t *pb_piece_bytes(const pb_piece *piece, const pb_segment *segment, int64_t position,
                                            int64_t *length)
{
    if (piece == NULL || piece->segment != segment || position < piece->position || position >= piece->end_position)
        return NULL;
    if (*length > piece->end_position - position)
        *length = piece->end_position - position;
    return piece->buffer + (position - piece->position / PB_DIRECT_BLOCK_BYTES * PB_DIRECT_BLOCK_BYTES);
}

/* Up to the next multiple of a piece: one request to the disk. */
static inline int64_t pb_piece_part(int64_t position, int64_t length)
{
    int64_t part = PB_PIECE_BYTES - position % PB_PIECE_BYTES;
    return length < part ? length : part;
}

#endif
