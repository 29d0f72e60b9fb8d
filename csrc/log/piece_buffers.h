/*
 * Memory for pieces of history. What holds a whole piece comes out of one mapping, in large pages where the kernel has
 * them: a disk writes into one of these as into one address, and nobody has to touch it page by page. It is used again
 * and again, as the kernel gives out fresh memory only after it has cleared it. Smaller buffers come from the heap.
 *
 * Guarded by the history's lock, but for what is said to need none.
 */
#ifndef PB_LOG_PIECE_BUFFERS_H
#define PB_LOG_PIECE_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

/* No piece reaches over a multiple of this in its file. */
#define PB_PIECE_BYTES (1 << 20)

typedef struct pb_piece_buffers {
    size_t mapped_bytes;
    uint8_t *mapping; /* NULL: not made yet */
    uint8_t *first;   /* buffer in it, at a multiple of a large page */
    uint32_t count;
    uint32_t used_count; /* so many have been used; the others are untouched */
    uint8_t **spare;     /* to be used again, the one that was used last first */
    uint32_t spare_count;
    uint8_t **clean; /* given back to the kernel */
    uint32_t clean_count;
} pb_piece_buffers;

/* Of `bytes` in all, which nothing is taken of before the first piece comes. */
void pb_piece_buffers_init(pb_piece_buffers *buffers, int64_t bytes);
void pb_piece_buffers_destroy(pb_piece_buffers *buffers);

/* `bytes` at a multiple of PB_DIRECT_BLOCK_BYTES, *got of them, which is what `give` wants to know; NULL: there is no
 * memory. */
uint8_t *pb_piece_buffers_take(pb_piece_buffers *buffers, size_t bytes, size_t *got);
void pb_piece_buffers_give(pb_piece_buffers *buffers, uint8_t *buffer, size_t got);

/* One that is spare, and may be given back to the kernel; NULL: there is none. */
uint8_t *pb_piece_buffers_take_spare(pb_piece_buffers *buffers);
/* Give its memory back. Needs no lock. */
void pb_piece_buffers_clean(uint8_t *buffer);
/* It has none now. */
void pb_piece_buffers_give_clean(pb_piece_buffers *buffers, uint8_t *buffer);

#endif
