/*
 * A bump allocator with a hard limit: what a request needs while it is decoded and answered, given back in one step.
 *
 * Not thread safe; an arena belongs to the thread or connection that owns it. Pointers stay valid until the next
 * pb_arena_reset or pb_arena_free. Running out (limit or malloc) gives NULL and changes nothing.
 */
#ifndef PB_BASE_ARENA_H
#define PB_BASE_ARENA_H

#include <stddef.h>

struct pb_arena_chunk;

/*
 * `limit_bytes` bounds the sum of all chunks, headers included. Chunks are kept over a reset and reused, so a steady
 * load stops calling malloc. All zero but the limit is a valid empty arena.
 */
typedef struct pb_arena {
    struct pb_arena_chunk *first;   /* owned; chunks in order of use */
    struct pb_arena_chunk *current; /* the chunk allocations come from; NULL before the first one after a reset */
    size_t held_bytes;              /* size of all chunks */
    size_t limit_bytes;
} pb_arena;

void pb_arena_init(pb_arena *arena, size_t limit_bytes);

/* Memory for `size_bytes` (0 gives a valid pointer to nothing), aligned for any type, not cleared. NULL at the limit.
 */
void *pb_arena_alloc(pb_arena *arena, size_t size_bytes);

/* Memory for `count` elements; NULL at the limit or when the product overflows. */
void *pb_arena_alloc_array(pb_arena *arena, size_t count, size_t element_bytes);

/* Make everything allocated so far invalid; keep the chunks. */
void pb_arena_reset(pb_arena *arena);

/* Like pb_arena_reset, and give chunks back to the system until at most `keep_bytes` are held. */
void pb_arena_trim(pb_arena *arena, size_t keep_bytes);

void pb_arena_free(pb_arena *arena);

#endif
