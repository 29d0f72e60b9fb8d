/*
 * One step of the scrub; see scrub.h. Background thread, no lock but through the guard. The segment is held by a
 * reference, but its file may be replaced by the cleaner or cut by a truncation. So a finding only counts when the
 * segment is unchanged.
 */
#include "log/change/scrub.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/segment/scan.h"
#include "log/segment/transaction_index.h"
#include "log/state.h"
#include "record/bytes.h"

enum { INDEX_KINDS = 3, ENTRY_BLOCK_BYTES = 4096, LEAST_STRIDE_BYTES = 4096 };

static const pb_file_kind KINDS[INDEX_KINDS] = {PB_FILE_OFFSET_INDEX, PB_FILE_TIME_INDEX, PB_FILE_TRANSACTION_INDEX};
static const pb_scrub_finding FINDINGS[INDEX_KINDS] = {PB_SCRUB_OFFSET_INDEX, PB_SCRUB_TIME_INDEX,
                                                       PB_SCRUB_TRANSACTION_INDEX};

/* Walks over the entries of an index file. */
typedef struct index_walk {
    int file; /* -1: it has no entries */
    uint32_t count;
    uint32_t entry_bytes;
    uint32_t block_first;
    uint32_t block_count;
    uint8_t block[ENTRY_BLOCK_BYTES];
} index_walk;

typedef struct scrub {
    pb_log *log;
    const pb_log_guard *guard;
    pb_scrub_cursor *cursor;
    pb_scrub_result *result;
    pb_segment *segment;
    int64_t size_bytes;
    int64_t end_offset;
    index_walk walks[INDEX_KINDS];
} scrub;

/* The sealed segment that the cursor is in, or the next one; NULL when only the active one is left. [lock] */
static pb_segment *choose_sealed(scrub *s)
{
    const pb_log *log = s->log;
    for (uint32_t i = 0; i + 1 < log->segment_count; i++) {
        if (log->segments[i]->base_offset >= s->cursor->segment_base) {
            s->size_bytes = log->segments[i]->size_bytes;
            s->end_offset = pb_log_segment_end(log, i);
            return log->segments[i];
        }
    }
    return NULL;
}

/* The segment that was active at open and has not been checked since; it may be sealed by now. [lock] */
static pb_segment *choose_opened(scrub *s)
{
    const pb_log *log = s->log;
    for (uint32_t i = log->segment_count; i > 0; i--) {
        pb_segment *segment = log->segments[i - 1];
        if (segment->unchecked_bytes > 0) {
            PB_ASSERT(segment->unchecked_bytes <= segment->size_bytes);
            s->size_bytes = segment->unchecked_bytes;
            s->end_offset = segment->unchecked_end;
            return segment;
        }
    }
    return NULL;
}

/* The segment that is to be read, with a reference; NULL when the pass is done. */
static pb_segment *choose_segment(scrub *s)
{
    const bool opened = s->cursor->opened;
    pb_log_lock(s->guard);
    pb_segment *chosen = opened ? choose_opened(s) : choose_sealed(s);
    if (chosen != NULL) {
        pb_segment_retain(chosen);
        bool begins =
            !s->cursor->begun || chosen->base_offset != s->cursor->segment_base || s->cursor->position > s->size_bytes;
        if (begins)
            *s->cursor = (pb_scrub_cursor){.segment_base = chosen->base_offset,
                                           .next_offset = chosen->base_offset,
                                           .last_index_offset = -1,
                                           .begun = true,
                                           .opened = opened,
                                           .with_indexes = !opened && chosen->indexes == PB_SYNCED};
        for (int i = 0; i < INDEX_KINDS; i++)
            s->walks[i].count = pb_segment_index(chosen, KINDS[i], &s->walks[i].entry_bytes)->flushed_count;
    }
    pb_log_unlock(s->guard);
    return chosen;
}

/* Is the segment still what the step has read? [lock] */
static bool is_current(const scrub *s)
{
    int index = pb_log_segment_floor(s->log, s->segment->base_offset);
    int64_t size_bytes = s->cursor->opened ? s->segment->unchecked_bytes : s->segment->size_bytes;
    return index >= 0 && s->log->segments[index] == s->segment && size_bytes == s->size_bytes;
}

/* All of the segment was read. */
static void end_segment(scrub *s)
{
    pb_log_lock(s->guard);
    if (s->cursor->opened && is_current(s))
        s->segment->unchecked_bytes = 0;
    pb_log_unlock(s->guard);
    *s->cursor = (pb_scrub_cursor){.segment_base = s->segment->base_offset + 1, .opened = s->cursor->opened};
}

static int open_indexes(scrub *s)
{
    for (int i = 0; i < INDEX_KINDS; i++)
        s->walks[i].file = -1;
    for (int i = 0; i < INDEX_KINDS && s->cursor->with_indexes; i++) {
        if (s->walks[i].count == 0)
            continue;
        int rc = pb_segment_open(s->segment, KINDS[i]);
        if (rc == -ENOENT) { /* settle_finding sees whether the segment has gone with it */
            s->result->finding = FINDINGS[i];
            return 0;
        }
        if (rc < 0)
            return rc;
        s->walks[i].file = rc;
    }
    return 0;
}

static void close_indexes(scrub *s)
{
    for (int i = 0; i < INDEX_KINDS; i++) {
        if (s->walks[i].file >= 0)
            s->log->io->ops->file_close(s->log->io, s->walks[i].file);
    }
}

/* The entry that is to be checked next; NULL when all are, or the file is shorter than it was (*rc tells). */
static const uint8_t *entry_at(scrub *s, int which, int *rc)
{
    index_walk *walk = &s->walks[which];
    uint32_t entry = s->cursor->entries[which];
    if (walk->file < 0 || entry >= walk->count)
        return NULL;
    if (entry < walk->block_first || entry >= walk->block_first + walk->block_count) {
        uint32_t room = ENTRY_BLOCK_BYTES / walk->entry_bytes;
        walk->block_first = entry;
        walk->block_count = walk->count - entry < room ? walk->count - entry : room;
        *rc = pb_io_read_all(s->log->io, walk->file, walk->block, (size_t)walk->block_count * walk->entry_bytes,
                             (int64_t)entry * walk->entry_bytes);
        if (*rc != 0) {
            walk->block_count = 0;
            return NULL;
        }
    }
    return walk->block + (size_t)(entry - walk->block_first) * walk->entry_bytes;
}

typedef enum entry_verdict { ENTRY_LATER, ENTRY_RIGHT, ENTRY_WRONG } entry_verdict;

/* An offset index entry has a batch's position and an offset that is not below it. */
static entry_verdict judge_offset(const scrub *s, const uint8_t *entry, const pb_batch_header *header)
{
    int64_t offset = s->segment->base_offset + pb_be32_load(entry);
    int64_t position = pb_be32_load(entry + 4);
    if (position > s->cursor->position)
        return ENTRY_LATER;
    bool right = position == s->cursor->position && offset >= header->base_offset && offset < s->end_offset &&
                 offset > s->cursor->last_index_offset;
    s->cursor->last_index_offset = offset;
    return right ? ENTRY_RIGHT : ENTRY_WRONG;
}

/* A time index entry has an offset of a batch and its largest timestamp. */
static entry_verdict judge_time(const scrub *s, const uint8_t *entry, const pb_batch_header *header)
{
    int64_t timestamp_ms = (int64_t)pb_be64_load(entry);
    int64_t offset = s->segment->base_offset + pb_be32_load(entry + 8);
    if (offset > pb_batch_last_offset(header))
        return ENTRY_LATER;
    return offset >= header->base_offset && timestamp_ms == header->max_timestamp ? ENTRY_RIGHT : ENTRY_WRONG;
}

/* A transaction index entry ends with a marker of its producer. */
static entry_verdict judge_transaction(const uint8_t *bytes, const pb_batch_header *header)
{
    pb_transaction_entry entry;
    if (!pb_transaction_entry_decode(bytes, &entry))
        return ENTRY_WRONG;
    if (entry.last_offset > pb_batch_last_offset(header))
        return ENTRY_LATER;
    return entry.last_offset == pb_batch_last_offset(header) && pb_batch_is_control(header) &&
                   entry.producer_id == header->producer_id
               ? ENTRY_RIGHT
               : ENTRY_WRONG;
}

/* The entry that was to be checked next is wrong, or not there. */
static int find_in_index(scrub *s, int which)
{
    s->result->finding = FINDINGS[which];
    s->result->position = (int64_t)s->cursor->entries[which] * s->walks[which].entry_bytes;
    s->result->end_position = s->result->position + s->walks[which].entry_bytes;
    return 0;
}

/* Check what the indexes say of a batch, which lies at the cursor. With header NULL nothing more may be said. */
static int check_entries(scrub *s, const pb_batch_header *header)
{
    for (int i = 0; i < INDEX_KINDS; i++) {
        int rc = 0;
        const uint8_t *entry;
        while ((entry = entry_at(s, i, &rc)) != NULL) {
            entry_verdict verdict = header == NULL ? ENTRY_WRONG
                                    : i == 0       ? judge_offset(s, entry, header)
                                    : i == 1       ? judge_time(s, entry, header)
                                                   : judge_transaction(entry, header);
            if (verdict == ENTRY_LATER)
                break;
            if (verdict == ENTRY_WRONG)
                return find_in_index(s, i);
            s->cursor->entries[i]++;
        }
        if (rc == -ENODATA)
            return find_in_index(s, i);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* The batch at the cursor lies where the disk cannot be read: go on at the next intact one that can be, looked for in
 * strides that double. */
static int pass_unreadable(scrub *s, pb_scan *scan, int64_t begin)
{
    pb_scrub_cursor *cursor = s->cursor;
    pb_scan_range range = {
        .least_offset = cursor->next_offset, .most_offset = s->end_offset - 1, .most_bytes = INT64_MAX};
    int64_t found = s->size_bytes;
    pb_batch_header next = {0};
    int rc = -EIO;
    for (int64_t stride = LEAST_STRIDE_BYTES; rc == -EIO && stride < s->size_bytes - cursor->position; stride *= 2)
        rc = pb_scan_skip(scan, cursor->position + stride, &range, &found, &next);
    s->result->finding = PB_SCRUB_NOTHING;
    s->result->position = cursor->position;
    s->result->read_bytes = cursor->position - begin;
    cursor->position = next.size_bytes > 0 ? found : s->size_bytes;
    cursor->next_offset = next.size_bytes > 0 ? next.base_offset : s->end_offset;
    return -EIO;
}

/* The bytes at the cursor are no intact batch: find where batches go on. */
static int pass_damage(scrub *s, pb_scan *scan)
{
    pb_scrub_cursor *cursor = s->cursor;
    pb_scrub_result *result = s->result;
    pb_scan_range range = {
        .least_offset = cursor->next_offset, .most_offset = s->end_offset - 1, .most_bytes = INT64_MAX};
    pb_batch_header next;
    result->finding = PB_SCRUB_BATCHES;
    result->position = cursor->position;
    result->offset = cursor->next_offset;
    int rc = pb_scan_skip(scan, cursor->position, &range, &result->end_position, &next);
    if (rc != 0)
        return rc;
    if (next.size_bytes == 0)
        result->end_position = s->size_bytes;
    result->end_offset = next.size_bytes > 0 ? next.base_offset : s->end_offset;
    cursor->position = result->end_position;
    cursor->next_offset = result->end_offset;
    /* Entries that point into the damage may be right: nobody can tell. */
    cursor->with_indexes = false;
    return 0;
}

static int walk_batches(scrub *s, pb_scan *scan, int64_t max_bytes)
{
    pb_scrub_cursor *cursor = s->cursor;
    const int64_t begin = cursor->position;
    int rc = 0;
    while (rc == 0 && s->result->finding == PB_SCRUB_NOTHING && cursor->position < s->size_bytes &&
           cursor->position - begin < max_bytes) {
        pb_batch_header header;
        rc = pb_scan_header(scan, cursor->position, &header);
        bool good = rc == 0 && header.size_bytes > 0 && header.base_offset >= cursor->next_offset &&
                    pb_batch_last_offset(&header) < s->end_offset;
        if (good && header.magic == PB_BATCH_MAGIC)
            rc = pb_scan_crc(scan, cursor->position, &header, &good);
        if (rc >= 0 && !good)
            rc = pass_damage(s, scan);
        if (rc == -EIO && scan->capacity > PB_SCAN_SMALL_BYTES) {
            /* It may lie anywhere in the large buffer's range. */
            scan->capacity = PB_SCAN_SMALL_BYTES;
            s->result->finding = PB_SCRUB_NOTHING;
            rc = 0;
            continue;
        }
        if (rc == -EIO)
            return pass_unreadable(s, scan, begin);
        if (rc != 0 || !good)
            break;
        rc = cursor->with_indexes ? check_entries(s, &header) : 0;
        if (rc != 0 || s->result->finding != PB_SCRUB_NOTHING)
            break;
        cursor->position += header.size_bytes;
        cursor->next_offset = pb_batch_last_offset(&header) + 1;
    }
    if (rc == 0 && s->result->finding == PB_SCRUB_NOTHING && cursor->position == s->size_bytes && cursor->with_indexes)
        rc = check_entries(s, NULL);
    s->result->read_bytes = cursor->position - begin;
    return rc;
}

/* Make a finding known to readers, or mend it; drop it when the segment was changed under the step. */
static int settle_finding(scrub *s)
{
    pb_scrub_result *result = s->result;
    result->segment_base = s->segment->base_offset;
    pb_damage damage = {result->position, result->end_position, result->offset, result->end_offset};
    pb_log_lock(s->guard);
    bool current = is_current(s);
    int rc = 0;
    if (current && result->finding == PB_SCRUB_BATCHES)
        rc = pb_segment_add_damage(s->segment, &damage);
    pb_log_unlock(s->guard);
    if (!current) {
        result->finding = PB_SCRUB_NOTHING;
        s->cursor->begun = false;
        return 0;
    }
    result->known = rc == 1;
    if (result->finding == PB_SCRUB_OFFSET_INDEX || result->finding == PB_SCRUB_TIME_INDEX)
        result->mended = pb_log_rebuild_indexes(s->log, s->guard, s->segment) == 0;
    if (result->finding != PB_SCRUB_BATCHES)
        s->cursor->with_indexes = false;
    return rc < 0 ? rc : 0;
}

static int scrub_segment(scrub *s, int64_t max_bytes)
{
    pb_io *io = s->log->io;
    int file;
    int rc = pb_log_open_segment(s->log, s->guard, s->segment, &file);
    if (rc != 0)
        return rc;
    uint8_t *buffer = malloc(PB_POLITE_BYTES);
    if (buffer == NULL)
        return -ENOMEM;
    const int64_t begin = s->cursor->position;
    bool cold = io->ops->file_resident(io, file, begin, max_bytes) == 0;
    s->result->position = begin;
    rc = open_indexes(s);
    if (rc == 0) {
        pb_scan scan;
        pb_scan_init(&scan, io, file, s->size_bytes, buffer, PB_POLITE_BYTES);
        rc = walk_batches(s, &scan, max_bytes);
    }
    if (rc == -EIO) /* of an index, or of batches that its entries may rightly point at */
        s->cursor->with_indexes = false;
    close_indexes(s);
    /* History that nobody else reads must not push out what they do. */
    if (cold && s->result->read_bytes > 0)
        (void)io->ops->file_drop(io, file, begin, s->result->read_bytes);
    free(buffer);
    if (rc == 0 && s->result->finding != PB_SCRUB_NOTHING)
        rc = settle_finding(s);
    return rc;
}

/* Retention may have renamed the segment's files, or the log was cut there; the next step finds another one. */
static int pass_over(scrub *s, int result)
{
    pb_log_lock(s->guard);
    bool current = is_current(s);
    pb_log_unlock(s->guard);
    if (current)
        return result;
    s->result->finding = PB_SCRUB_NOTHING;
    s->cursor->begun = false;
    return 0;
}

/* The segment's file ends too soon. The missing part is a finding, and the scrub of the segment is done. */
static int find_short(scrub *s)
{
    int rc = pb_log_note_short_file(s->log, s->guard, s->segment);
    if (rc < 0)
        return pass_over(s, -ENODATA);
    pb_damage last = {0};
    pb_log_lock(s->guard);
    bool known = s->segment->damage_count > 0;
    if (known)
        last = s->segment->damages[s->segment->damage_count - 1];
    pb_log_unlock(s->guard);
    if (!known) /* the log was cut there meanwhile */
        return pass_over(s, -ENODATA);
    const pb_scrub_result found = {
        .finding = PB_SCRUB_BATCHES,
        .known = rc == 1,
        .read_bytes = s->result->read_bytes,
        .segment_base = s->segment->base_offset,
        .position = last.position,
        .end_position = last.end_position,
        .offset = last.offset,
        .end_offset = last.end_offset,
    };
    *s->result = found;
    s->cursor->position = s->size_bytes;
    return 0;
}

int pb_log_scrub(pb_log *log, const pb_log_guard *guard, pb_scrub_cursor *cursor, int64_t max_bytes,
                 pb_scrub_result *result, pb_failure *failure)
{
    PB_ASSERT(max_bytes > 0);
    scrub *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return pb_log_fail(log, failure, -ENOMEM, "cannot check a segment");
    memset(result, 0, sizeof(*result));
    *s = (scrub){.log = log, .guard = guard, .cursor = cursor, .result = result};
    s->segment = choose_segment(s);
    result->done = s->segment == NULL;
    int rc = 0;
    if (s->segment != NULL) {
        rc = scrub_segment(s, max_bytes);
        if (rc == -ENODATA)
            rc = find_short(s);
        else if (rc == -ENOENT)
            rc = pass_over(s, rc);
        if (rc != 0)
            rc = pb_fail(failure, rc, "cannot check %s/%020lld.log and its indexes from position %lld on",
                         log->directory, (long long)s->segment->base_offset, (long long)result->position);
        if ((rc == 0 || rc == -EIO) && cursor->position >= s->size_bytes)
            end_segment(s);
        pb_segment_release(s->segment);
    }
    free(s);
    return rc;
}
