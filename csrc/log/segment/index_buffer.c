/*
 * Index entries in memory and in a file; see index_buffer.h for who may call what.
 */
#include "log/segment/index_buffer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "record/bytes.h"

enum { INDEX_FIRST_CAPACITY = 8, INDEX_SEARCH_BLOCK_BYTES = 4096 };

int pb_index_push(pb_index_buffer *index, const uint8_t *entry, uint32_t entry_bytes)
{
    if (index->pending_count == index->capacity) {
        uint32_t capacity = index->capacity == 0 ? INDEX_FIRST_CAPACITY : index->capacity * 2;
        uint8_t *grown = realloc(index->pending, (size_t)capacity * entry_bytes);
        if (grown == NULL)
            return -ENOMEM;
        index->pending = grown;
        index->capacity = capacity;
    }
    memcpy(index->pending + (size_t)index->pending_count * entry_bytes, entry, entry_bytes);
    index->pending_count++;
    return 0;
}

void pb_index_flushed(pb_index_buffer *index, uint32_t count, uint32_t entry_bytes)
{
    PB_ASSERT(count <= index->pending_count);
    index->flushed_count += count;
    index->pending_count -= count;
    if (index->pending_count > 0) {
        memmove(index->pending, index->pending + (size_t)count * entry_bytes,
                (size_t)index->pending_count * entry_bytes);
        return;
    }
    free(index->pending);
    index->pending = NULL;
    index->capacity = 0;
}

void pb_index_clear(pb_index_buffer *index)
{
    free(index->pending);
    memset(index, 0, sizeof(*index));
}

static int64_t entry_key(const uint8_t *entry, uint32_t key_bytes)
{
    return key_bytes == 4 ? (int64_t)pb_be32_load(entry) : (int64_t)pb_be64_load(entry);
}

uint32_t pb_index_search(const uint8_t *entries, uint32_t count, uint32_t entry_bytes, uint32_t key_bytes, int64_t key)
{
    uint32_t low = 0;
    uint32_t high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (entry_key(entries + (size_t)middle * entry_bytes, key_bytes) <= key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t pb_index_search_file(pb_io *io, int file, uint32_t count, uint32_t entry_bytes, uint32_t key_bytes, int64_t key,
                             uint8_t *entry)
{
    uint8_t block[INDEX_SEARCH_BLOCK_BYTES];
    const uint32_t block_count = INDEX_SEARCH_BLOCK_BYTES / entry_bytes;
    uint32_t low = 0; /* entries below `low` are <= key, entries from `high` on are > key */
    uint32_t high = count;
    while (high - low >= block_count) {
        uint32_t middle = low + (high - low) / 2;
        int rc = pb_io_read_all(io, file, block, entry_bytes, (int64_t)middle * entry_bytes);
        if (rc != 0)
            return rc;
        if (entry_key(block, key_bytes) <= key)
            low = middle + 1;
        else
            high = middle;
    }
    /* One entry before `low` comes along: it is the answer when nothing in the block is. */
    uint32_t first = low > 0 ? low - 1 : 0;
    PB_ASSERT(high - first <= block_count);
    if (high > first) {
        int rc = pb_io_read_all(io, file, block, (size_t)(high - first) * entry_bytes, (int64_t)first * entry_bytes);
        if (rc != 0)
            return rc;
    }
    uint32_t found = pb_index_search(block, high - first, entry_bytes, key_bytes, key);
    if (found > 0)
        memcpy(entry, block + (size_t)(found - 1) * entry_bytes, entry_bytes);
    return (int64_t)first + found;
}
