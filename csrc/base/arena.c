/* The bump allocator of base/arena.h. Runs on the owner's thread; only malloc can fail. */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/assert.h"

#define FIRST_CHUNK_BYTES 4096u
#define ALIGNMENT alignof(max_align_t)

typedef struct pb_arena_chunk {
    struct pb_arena_chunk *next;
    size_t capacity_bytes; /* of data[] */
    size_t used_bytes;
    alignas(max_align_t) unsigned char data[];
} pb_arena_chunk;

void pb_arena_init(pb_arena *arena, size_t limit_bytes)
{
    *arena = (pb_arena){.limit_bytes = limit_bytes};
}

/* The next kept chunk with room for `size_bytes` after the current one; it becomes current. NULL when there is none. */
static pb_arena_chunk *reuse_chunk(pb_arena *arena, size_t size_bytes)
{
    pb_arena_chunk *chunk = arena->current == NULL ? arena->first : arena->current->next;
    for (; chunk != NULL; chunk = chunk->next) {
        PB_ASSERT(chunk->used_bytes == 0);
        if (chunk->capacity_bytes >= size_bytes) {
            arena->current = chunk;
            return chunk;
        }
    }
    return NULL;
}

/* A new chunk behind the current one, twice as large as what is held, or as large as the limit and the need allow. */
static pb_arena_chunk *add_chunk(pb_arena *arena, size_t size_bytes)
{
    PB_ASSERT(arena->held_bytes <= arena->limit_bytes);
    const size_t left = arena->limit_bytes - arena->held_bytes;
    if (left < sizeof(pb_arena_chunk) || size_bytes > left - sizeof(pb_arena_chunk))
        return NULL;
    size_t total = arena->held_bytes > FIRST_CHUNK_BYTES ? arena->held_bytes : FIRST_CHUNK_BYTES;
    if (total < size_bytes + sizeof(pb_arena_chunk))
        total = size_bytes + sizeof(pb_arena_chunk);
    if (total > left)
        total = left;
    pb_arena_chunk *chunk = malloc(total);
    if (chunk == NULL)
        return NULL;
    chunk->capacity_bytes = total - sizeof(pb_arena_chunk);
    chunk->used_bytes = 0;
    pb_arena_chunk **place = arena->current == NULL ? &arena->first : &arena->current->next;
    chunk->next = *place;
    *place = chunk;
    arena->current = chunk;
    arena->held_bytes += total;
    return chunk;
}

void *pb_arena_alloc(pb_arena *arena, size_t size_bytes)
{
    if (size_bytes > SIZE_MAX - ALIGNMENT)
        return NULL;
    size_bytes = (size_bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    pb_arena_chunk *chunk = arena->current;
    if (chunk == NULL || chunk->capacity_bytes - chunk->used_bytes < size_bytes) {
        chunk = reuse_chunk(arena, size_bytes);
        if (chunk == NULL)
            chunk = add_chunk(arena, size_bytes);
        if (chunk == NULL)
            return NULL;
    }
    void *memory = chunk->data + chunk->used_bytes;
    chunk->used_bytes += size_bytes;
    PB_ASSERT(chunk->used_bytes <= chunk->capacity_bytes);
    return memory;
}

void *pb_arena_alloc_array(pb_arena *arena, size_t count, size_t element_bytes)
{
    size_t size_bytes;
    if (__builtin_mul_overflow(count, element_bytes, &size_bytes))
        return NULL;
    return pb_arena_alloc(arena, size_bytes);
}

void pb_arena_reset(pb_arena *arena)
{
    for (pb_arena_chunk *chunk = arena->first; chunk != NULL; chunk = chunk->next)
        chunk->used_bytes = 0;
    arena->current = NULL;
}

void pb_arena_trim(pb_arena *arena, size_t keep_bytes)
{
    pb_arena_reset(arena);
    while (arena->held_bytes > keep_bytes) {
        pb_arena_chunk *chunk = arena->first;
        PB_ASSERT(chunk != NULL);
        arena->first = chunk->next;
        arena->held_bytes -= chunk->capacity_bytes + sizeof(pb_arena_chunk);
        free(chunk);
    }
}

void pb_arena_free(pb_arena *arena)
{
    pb_arena_trim(arena, 0);
    PB_ASSERT(arena->first == NULL && arena->held_bytes == 0);
}
