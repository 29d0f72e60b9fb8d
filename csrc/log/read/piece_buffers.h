/*
 * Memory for whole pieces of history: one mapping, in large pages where the kernel has them. A disk writes into one of
 * these as into one address, and nobody has to touch it page by page. It is used again and again, as the kernel gives
 * out fresh memory only after it has cleared it.
 *
 * Guarded by the history's lock, but for what is said to need none.
 */
#ifndef PB_LOG_READ_PIECE_BUFFERS_H
#define PB_LOG_READ_PIECE_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

/* No piece reaches over a multiple of this in its file. */
#define PB_PIECE_BYTES (1 << 20)

typedef struct pb_piece_buffers {
    size_t mapped_bytes;
    uint8_t *mapping;
    uint8_t *first;      /* buffer in it, at a multiple of a large page */
    uint32_t count;      /* 0: there is no memory for any */
    uint32_t used_count; /* so many have been used; the others are untouched */
    uint8_t **spare;     /* to be used again, the one that was used last first */
    uint32_t spare_count;
    uint8_t **clean; /* given back to the kernel */
    uint32_t clean_count;
} pb_piece_buffers;

/* Takes `bytes` of address space in all; only addresses are taken before the first piece comes. */
void pb_piece_buffers_init(pb_piece_buffers *buffers, int64_t bytes);
void pb_piece_buffers_destroy(pb_piece_buffers *buffers);

/* PB_PIECE_BYTES; NULL: all are in use. */
uint8_t *pb_piece_buffers_take(pb_piece_buffers *buffers);
void pb_piece_buffers_give(pb_piece_buffers *buffers, uint8_t *buffer);

/* One that is spare, and may be given back to the kernel; NULL: there is none. */
uint8_t *pb_piece_buffers_take_spare(pb_piece_buffers *buffers);
/* Give its memory back. Needs no lock. */
void pb_piece_buffers_clean(uint8_t *buffer);
/* It has none now. */
void pb_piece_buffers_give_clean(pb_piece_buffers *buffers, uint8_t *buffer);

#endif
