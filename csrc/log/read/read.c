/*
 * Reading: which bytes of which file a reader at an offset gets.
 *
 * Any thread, the lock only through the guard. A reader at the tail finds both ends of its slice among the remembered
 * batch boundaries and makes no system call here. A reader of history continues where its last slice ended. Everybody
 * else costs a look into the index and a short walk over headers. Nothing is allocated.
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/kafka_error.h"
#include "log/segment/offset_index.h"
#include "log/segment/scan.h"
#include "log/state.h"

enum { READ_TRIM_HEADERS = 8, READ_TRIM_REST = 8, READ_RETRIES = 3, READ_SEARCH_BYTES = 16 << 20 };

/* A place to find in a segment: what was known under the lock. */
typedef struct read_mark {
    int64_t offset;
    int64_t position; /* a batch begins here, at or below the mark */
    bool exact;       /* it is the mark itself */
    bool flushed;     /* the index file may know a nearer one */
} read_mark;

typedef struct read_plan {
    pb_segment *segment; /* NULL: nothing to read. Holds a reference */
    int file;            /* -1: to be opened */
    int64_t segment_end; /* offset */
    int64_t size_bytes;
    uint32_t flushed_count;
    uint32_t cut_count;
    bool sealed;
    bool goes_on; /* what may be read, behind segment_end */
    read_mark start;
    read_mark limit;
} read_plan;

static void hint_set(pb_hint *hint, int64_t segment_base, int64_t offset, int64_t position)
{
    *hint = (pb_hint){segment_base, offset, position};
}

void pb_log_add_write_hint(pb_log *log, int64_t segment_base, int64_t offset, int64_t position)
{
    hint_set(&log->hints[log->next_write_hint++ % PB_WRITE_HINTS], segment_base, offset, position);
}

void pb_log_add_read_hint(pb_log *log, int64_t segment_base, int64_t offset, int64_t position)
{
    const pb_hint *known = pb_log_find_hint(log, segment_base, offset);
    if (known == NULL || known->offset != offset)
        hint_set(&log->hints[PB_WRITE_HINTS + log->next_read_hint++ % PB_READ_HINTS], segment_base, offset, position);
}

void pb_log_clear_hints(pb_log *log)
{
    for (int i = 0; i < PB_HINTS; i++)
        log->hints[i].segment_base = -1;
}

const pb_hint *pb_log_find_hint(const pb_log *log, int64_t segment_base, int64_t offset)
{
    const pb_hint *best = NULL;
    for (int i = 0; i < PB_HINTS; i++) {
        const pb_hint *hint = &log->hints[i];
        if (hint->segment_base == segment_base && hint->offset <= offset &&
            (best == NULL || hint->offset > best->offset))
            best = hint;
    }
    return best;
}

static read_mark mark_at(const pb_log *log, const pb_segment *segment, int64_t offset)
{
    read_mark mark = {.offset = offset};
    const pb_hint *hint = pb_log_find_hint(log, segment->base_offset, offset);
    if (hint != NULL) {
        mark.position = hint->position;
        mark.exact = hint->offset == offset;
    }
    if (mark.exact)
        return mark;
    int64_t indexed = 0;
    mark.flushed = !pb_offset_index_find_pending(segment, offset, &indexed) && segment->offset_index.flushed_count > 0;
    if (indexed > mark.position)
        mark.position = indexed;
    int64_t behind_damage = pb_segment_behind_damage(segment, offset);
    if (behind_damage > mark.position)
        mark.position = behind_damage;
    return mark;
}

/* 0 with plan->segment NULL: nothing to read. [lock] */
static int plan_read(pb_log *log, int64_t offset, int64_t from, int64_t upper_offset, read_plan *plan)
{
    plan->segment = NULL;
    if (offset < log->start_offset || offset > log->written_end)
        return PB_OFFSET_OUT_OF_RANGE;
    if (upper_offset > log->written_end)
        upper_offset = log->written_end;
    if (from >= upper_offset)
        return 0;
    int index = pb_log_segment_floor(log, from);
    if (index < 0)
        return PB_OFFSET_OUT_OF_RANGE;
    pb_segment *segment = log->segments[index];
    if (segment->old_magic)
        return PB_UNSUPPORTED_FOR_MESSAGE_FORMAT;
    plan->segment_end = pb_log_segment_end(log, (uint32_t)index);
    plan->sealed = (uint32_t)index + 1 < log->segment_count;
    plan->goes_on = upper_offset > plan->segment_end;
    plan->size_bytes = segment->size_bytes;
    plan->flushed_count = segment->offset_index.flushed_count;
    plan->cut_count = log->cut_count;
    const pb_damage *damage = pb_segment_next_damage(segment, from);
    if (damage != NULL && from >= damage->offset)
        return PB_CORRUPT_MESSAGE;
    if (damage != NULL) { /* as if the segment ended there */
        plan->segment_end = damage->offset;
        plan->size_bytes = damage->position;
    }
    plan->start = mark_at(log, segment, from);
    if (upper_offset >= plan->segment_end) {
        plan->limit = (read_mark){.offset = plan->segment_end, .position = plan->size_bytes, .exact = true};
    } else {
        plan->limit = mark_at(log, segment, upper_offset);
    }
    pb_segment_retain(segment);
    segment->used = ++log->use_count;
    plan->file = segment->file;
    plan->segment = segment;
    return 0;
}

/* The batch at the mark is damaged, which nobody has noticed before: go on at the next intact one, unless what is asked
 * for may lie in between. */
static int walk_over(pb_scan *scan, const pb_segment *segment, read_mark *mark, pb_batch_header *header)
{
    const pb_scan_range range = {
        .least_offset = segment->base_offset,
        .most_offset = segment->base_offset + INT32_MAX,
        .most_bytes = READ_SEARCH_BYTES,
    };
    int rc = pb_scan_skip(scan, mark->position, &range, &mark->position, header);
    if (rc == 0 && (header->size_bytes == 0 || header->base_offset > mark->offset))
        rc = PB_CORRUPT_MESSAGE;
    return rc;
}

/* Walk from the mark to the first batch whose last offset is at or above its offset; size_bytes when there is none. */
static int locate(read_plan *plan, read_mark *mark, int64_t *base_offset)
{
    if (mark->exact)
        return 0;
    uint8_t buffer[PB_SCAN_SMALL_BYTES];
    pb_scan scan;
    pb_scan_init_segment(&scan, plan->segment, plan->file, plan->size_bytes, buffer, sizeof(buffer));
    if (mark->flushed) {
        int64_t indexed;
        int rc = pb_offset_index_find_flushed(plan->segment, plan->flushed_count, mark->offset, &indexed);
        if (rc == -ENOENT || rc == -EISDIR) /* something has taken it away: without it the walk is longer */
            rc = 0;
        if (rc == 0 && indexed > mark->position) /* else it may lie in damage */
            rc = pb_scan_trust(&scan, plan->segment->base_offset, mark->offset, &indexed);
        if (rc != 0)
            return rc;
        if (indexed > mark->position)
            mark->position = indexed;
    }
    while (mark->position < plan->size_bytes) {
        pb_batch_header header;
        int rc = pb_scan_header(&scan, mark->position, &header);
        if (rc > 0 || (rc == 0 && header.size_bytes == 0))
            rc = walk_over(&scan, plan->segment, mark, &header);
        if (rc != 0)
            return rc;
        if (header.magic != PB_BATCH_MAGIC)
            return PB_UNSUPPORTED_FOR_MESSAGE_FORMAT;
        if (pb_batch_last_offset(&header) >= mark->offset) {
            *base_offset = header.base_offset;
            break;
        }
        mark->position += header.size_bytes;
    }
    mark->exact = true;
    return 0;
}

/*
 * The part of the bytes between start and limit that fits max_bytes. When it holds few batches, whole ones are taken,
 * so that the next read is known to begin at *next_offset (-1: not known). Otherwise the last batch is cut, and readers
 * drop it, as they must. For the last eighth nobody looks whether another batch fits.
 */
static int trim(const read_plan *plan, int64_t max_bytes, bool at_least_one, int64_t *length, int64_t *next_offset)
{
    int64_t available = plan->limit.position - plan->start.position;
    *length = available;
    *next_offset = plan->limit.offset;
    if (available <= max_bytes)
        return 0;
    uint8_t buffer[PB_SCAN_SMALL_BYTES];
    pb_scan scan;
    pb_scan_init_segment(&scan, plan->segment, plan->file, plan->limit.position, buffer, sizeof(buffer));
    int64_t taken = 0;
    *next_offset = -1;
    for (int i = 0; i < READ_TRIM_HEADERS; i++) {
        pb_batch_header header;
        int rc = pb_scan_header(&scan, plan->start.position + taken, &header);
        if (rc == 0 && header.size_bytes == 0)
            rc = PB_CORRUPT_MESSAGE;
        if (rc > 0 && taken > 0) { /* the reader gets to know of it when it comes there */
            *length = taken;
            return 0;
        }
        if (rc != 0)
            return rc;
        if (taken + header.size_bytes > max_bytes && (taken > 0 || !at_least_one)) {
            *length = taken;
            return 0;
        }
        taken += header.size_bytes;
        *next_offset = pb_batch_last_offset(&header) + 1;
        if (max_bytes - taken < taken / READ_TRIM_REST) {
            *length = taken;
            return 0;
        }
        if (max_bytes / READ_TRIM_HEADERS > taken && i == 0) /* they will not be few */
            break;
    }
    *next_offset = -1;
    *length = max_bytes;
    return 0;
}

/* A cut takes the segment that it cuts off the log, with all behind, before it touches a file. */
static bool has_bytes(const pb_log *log, const pb_segment *segment, int64_t size_bytes)
{
    int floor = pb_log_segment_floor(log, segment->base_offset);
    return floor >= 0 && log->segments[floor] == segment && segment->size_bytes >= size_bytes;
}

bool pb_log_has_slice(const pb_log *log, const pb_log_slice *slice)
{
    int64_t end_position = slice->position + slice->length;
    return has_bytes(log, slice->segment, end_position > slice->ahead_position ? end_position : slice->ahead_position);
}

int pb_log_judge_read(pb_log *log, const pb_log_guard *guard, pb_segment *segment, int64_t size_bytes, int result)
{
    if (result <= 0 && result != -ENODATA && result != -EBADMSG && result != -EIO)
        return result;
    pb_log_lock(guard);
    bool has = has_bytes(log, segment, size_bytes);
    pb_log_unlock(guard);
    if (!has)
        return -ENOENT;
    int noted = result;
    if (result == -ENODATA)
        noted = pb_log_note_short_file(log, guard, segment);
    else if (result == -EIO)
        noted = pb_log_note_unreadable(log, guard, segment);
    else
        return result;
    return noted == 0 ? -ENOENT : noted > 0 ? PB_CORRUPT_MESSAGE : noted;
}

/* Fill `out` from a plan. *exhausted: the segment has no batch at or above the offset. */
static int execute(pb_log *log, const pb_log_guard *guard, read_plan *plan, int64_t max_bytes, bool at_least_one,
                   pb_log_slice *out, bool *exhausted)
{
    *exhausted = false;
    int rc = plan->file >= 0 ? 0 : pb_log_open_segment(log, guard, plan->segment, &plan->file);
    int64_t base_offset = plan->start.offset;
    if (rc == 0)
        rc = locate(plan, &plan->start, &base_offset);
    if (rc != 0)
        return rc;
    if (plan->start.position >= plan->size_bytes) {
        *exhausted = true;
        return 0;
    }
    int64_t ignored;
    if (!plan->limit.exact && plan->limit.position < plan->start.position)
        plan->limit.position = plan->start.position;
    /* A limit that lies beyond what is asked for anyway need not be found exactly. One at the start would let nothing
     * be found, also where less than nothing is asked for. */
    if (!plan->limit.exact &&
        (plan->limit.position == plan->start.position || plan->limit.position - plan->start.position <= max_bytes))
        rc = locate(plan, &plan->limit, &ignored);
    int64_t length = 0;
    int64_t next_offset = -1;
    if (rc == 0 && plan->limit.position > plan->start.position)
        rc = trim(plan, max_bytes, at_least_one, &length, &next_offset);
    if (rc != 0 || length == 0)
        return rc;
    int64_t end_offset = next_offset >= 0 ? next_offset : plan->segment_end;
    int64_t ahead_position = pb_tail_settled_bytes(plan->segment, plan->size_bytes);
    *out = (pb_log_slice){
        .segment = plan->segment,
        .file = plan->file,
        .position = plan->start.position,
        .length = length,
        .base_offset = base_offset,
        .end_offset = end_offset,
        .ahead_position = ahead_position,
        .sealed = plan->sealed,
        .more = plan->goes_on || plan->start.position + length < plan->limit.position,
    };
    if (next_offset >= 0) {
        pb_log_lock(guard);
        /* The segment that took its place has the batches elsewhere, and so has a log that was cut. */
        if (atomic_load(&plan->segment->names) != PB_NAMES_GONE && log->cut_count == plan->cut_count)
            pb_log_add_read_hint(log, plan->segment->base_offset, next_offset, plan->start.position + length);
        pb_log_unlock(guard);
    }
    return 0;
}

int pb_log_read(pb_log *log, const pb_log_guard *guard, int64_t offset, int64_t max_bytes, int64_t upper_offset,
                bool at_least_one, pb_log_slice *out)
{
    memset(out, 0, sizeof(*out));
    out->file = -1;
    int64_t from = offset;
    for (int retries = 0;;) {
        read_plan plan;
        pb_log_lock(guard);
        int rc = plan_read(log, offset, from, upper_offset, &plan);
        pb_log_unlock(guard);
        if (rc != 0 || plan.segment == NULL)
            return rc;
        bool exhausted;
        rc = execute(log, guard, &plan, max_bytes, at_least_one, out, &exhausted);
        if (rc == 0 && out->segment != NULL)
            return 0;
        rc = pb_log_judge_read(log, guard, plan.segment, plan.size_bytes, rc);
        pb_segment_release(plan.segment);
        if (rc == 0 && !exhausted)
            return 0;
        if (rc == 0) {
            from = plan.segment_end;
        } else if (rc != -ENOENT || ++retries > READ_RETRIES) {
            /* ENOENT: retention renamed the file between the plan and its opening, or the log was cut; the next plan
             * sees that. */
            return rc;
        }
    }
}
