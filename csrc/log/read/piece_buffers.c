/* Memory for pieces of history; see piece_buffers.h. */
#include "log/read/piece_buffers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "io/io.h"

/* Addresses alone: memory comes with the first touch. */
static int map(pb_piece_buffers *buffers, size_t bytes)
{
    uint8_t *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return -errno;
    (void)madvise(mapping, bytes, MADV_HUGEPAGE);
    (void)madvise(mapping, bytes, MADV_DONTDUMP);
    buffers->mapping = mapping;
    buffers->mapped_bytes = bytes;
    buffers->first = mapping + (PB_LARGE_PAGE_BYTES - (uintptr_t)mapping % PB_LARGE_PAGE_BYTES) % PB_LARGE_PAGE_BYTES;
    return 0;
}

void pb_piece_buffers_init(pb_piece_buffers *buffers, int64_t bytes)
{
    memset(buffers, 0, sizeof *buffers);
    PB_ASSERT(bytes >= PB_PIECE_BYTES && bytes / PB_PIECE_BYTES <= UINT32_MAX);
    uint32_t count = (uint32_t)(bytes / PB_PIECE_BYTES);
    buffers->spare = calloc(count, sizeof *buffers->spare);
    buffers->clean = calloc(count, sizeof *buffers->clean);
    if (buffers->spare != NULL && buffers->clean != NULL &&
        map(buffers, (size_t)count * PB_PIECE_BYTES + PB_LARGE_PAGE_BYTES) == 0)
        buffers->count = count;
}

void pb_piece_buffers_destroy(pb_piece_buffers *buffers)
{
    if (buffers->mapping != NULL)
        munmap(buffers->mapping, buffers->mapped_bytes);
    free(buffers->spare);
    free(buffers->clean);
    memset(buffers, 0, sizeof *buffers);
}

uint8_t *pb_piece_buffers_take(pb_piece_buffers *buffers)
{
    if (buffers->spare_count > 0)
        return buffers->spare[--buffers->spare_count];
    if (buffers->clean_count > 0)
        return buffers->clean[--buffers->clean_count];
    if (buffers->used_count == buffers->count)
        return NULL;
    return buffers->first + (size_t)buffers->used_count++ * PB_PIECE_BYTES;
}

void pb_piece_buffers_give(pb_piece_buffers *buffers, uint8_t *buffer)
{
    PB_ASSERT(buffers->spare_count < buffers->count);
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
