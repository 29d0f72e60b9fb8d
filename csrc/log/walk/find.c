/*
 * Finding the next batch behind bytes that are none: a place counts when a whole batch of magic 2 lies there whose CRC
 * is right. See walk.h.
 */
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "log/segment/damage.h"
#include "log/walk/state.h"
#include "record/bytes.h"

static bool plausible(const pb_log_walk *walk, const pb_batch_header *header)
{
    return header->size_bytes != 0 && header->magic == PB_BATCH_MAGIC &&
           header->base_offset >= walk->options.base_offset &&
           header->base_offset - walk->options.base_offset <= INT32_MAX && header->record_count >= 0;
}

int pb_walk_is_batch(pb_log_walk *walk, int64_t position)
{
    pb_batch_header header;
    int rc = pb_scan_header(&walk->scan, position, &header);
    if (rc < 0)
        return rc;
    if (rc > 0 || !plausible(walk, &header))
        return 0;
    bool matches;
    rc = pb_scan_crc(&walk->scan, position, &header, &matches);
    return rc != 0 ? rc : matches;
}

/* The next place from `at` whose byte for the magic is 2, or the limit. */
static int next_candidate(pb_log_walk *walk, int64_t at, int64_t *found)
{
    pb_scan *scan = &walk->scan;
    while (at + PB_BATCH_HEADER_BYTES <= scan->limit) {
        const uint8_t *bytes;
        size_t length;
        int rc = pb_scan_bytes(scan, at + PB_BATCH_MAGIC_POSITION, scan->capacity, &bytes, &length);
        if (rc != 0)
            return rc;
        const uint8_t *magic = memchr(bytes, PB_BATCH_MAGIC, length);
        if (magic != NULL) {
            *found = at + (magic - bytes);
            return 0;
        }
        at += (int64_t)length;
    }
    *found = scan->limit;
    return 0;
}

int pb_walk_find(pb_log_walk *walk, int64_t begin, int64_t from, int64_t *found, bool *zeros)
{
    PB_ASSERT(begin <= from && from <= walk->scan.limit);
    for (int64_t at = from;; at++) {
        int rc = next_candidate(walk, at, &at);
        if (rc != 0)
            return rc;
        int is_batch = at < walk->scan.limit ? pb_walk_is_batch(walk, at) : 1;
        if (is_batch < 0)
            return is_batch;
        if (is_batch != 0) {
            *found = at;
            return pb_damage_only_zeros(&walk->scan, begin, at, zeros);
        }
    }
}
