/* Memory for pieces of history; see piece_buffers.h. */
#include "log/piece_buffers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "io/io.h"

enum {
    LARGE_PAGE_BYTES = 2 << 20,
    HEAP_BYTES = 256 << 10, /* up to here: of the heap */
};

void pb_piece_buffers_init(pb_piece_buffers *buffers, int64_t bytes)
{
    memset(buffers, 0, sizeof *buffers);
    PB_ASSERT(bytes >= PB_PIECE_BYTES && bytes / PB_PIECE_BYTES <= UINT32_MAX);
    buffers->count = (uint32_t)(bytes / PB_PIECE_BYTES);
}

void pb_piece_buffers_destroy(pb_piece_buffers *buffers)
{
    if (buffers->mapping != NULL)
        munmap(buffers->mapping, buffers->mapped_bytes);
    free(buffers->spare);
    free(buffers->clean);
    memset(buffers, 0, sizeof *buffers);
}

/* Addresses alone: memory comes with the first touch. */
static uint8_t *map(pb_piece_buffers *buffers)
{
    size_t bytes = (size_t)buffers->count * PB_PIECE_BYTES + LARGE_PAGE_BYTES;
    uint8_t *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return NULL;
    (void)madvise(mapping, bytes, MADV_HUGEPAGE);
    (void)madvise(mapping, bytes, MADV_DONTDUMP);
    buffers->mapping = mapping;
    buffers->mapped_bytes = bytes;
    buffers->first = mapping + (LARGE_PAGE_BYTES - (uintptr_t)mapping % LARGE_PAGE_BYTES) % LARGE_PAGE_BYTES;
    return mapping;
}

static bool prepare(pb_piece_buffers *buffers)
{
    if (buffers->spare == NULL)
        buffers->spare = calloc(buffers->count, sizeof *buffers->spare);
    if (buffers->clean == NULL)
        buffers->clean = calloc(buffers->count, sizeof *buffers->clean);
    return buffers->spare != NULL && buffers->clean != NULL && (buffers->mapping != NULL || map(buffers) != NULL);
}

uint8_t *pb_piece_buffers_take(pb_piece_buffers *buffers, size_t bytes, size_t *got)
{
    PB_ASSERT(bytes > 0 && bytes <= PB_PIECE_BYTES);
    if (bytes <= HEAP_BYTES) {
        *got = (bytes + PB_DIRECT_BLOCK_BYTES - 1) / PB_DIRECT_BLOCK_BYTES * PB_DIRECT_BLOCK_BYTES;
        return aligned_alloc(PB_DIRECT_BLOCK_BYTES, *got);
    }
    *got = PB_PIECE_BYTES;
    if (!prepare(buffers))
        return NULL;
    if (buffers->spare_count > 0)
        return buffers->spare[--buffers->spare_count];
    if (buffers->clean_count > 0)
        return buffers->clean[--buffers->clean_count];
    if (buffers->used_count == buffers->count)
        return NULL;
    return buffers->first + (size_t)buffers->used_count++ * PB_PIECE_BYTES;
}

void pb_piece_buffers_give(pb_piece_buffers *buffers, uint8_t *buffer, size_t got)
{
    if (got <= HEAP_BYTES) {
        free(buffer);
        return;
    }
    PB_ASSERT(got == PB_PIECE_BYTES && buffers->spare_count < buffers->count);
    buffers->spare[buffers->spare_count++] = buffer;
}

uint8_t *pb_piece_buffers_take_spare(pb_piece_buffers *buffers)
{
    return buffers->spare_count > 0 ? buffers->spare[--buffers->spare_count] : NULL;
}

void pb_piece_buffers_clean(uint8_t *buffer)
{
    (void)madvise(buffer, PB_PIECE_BYTES, MADV_DONTNEED);
}

void pb_piece_buffers_give_clean(pb_piece_buffers *buffers, uint8_t *buffer)
{
    PB_ASSERT(buffers->clean_count < buffers->count);
    buffers->clean[buffers->clean_count++] = buffer;
}
