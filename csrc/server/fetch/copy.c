/*
 * The records of an answer to a Fetch: where each item's come from. Small ones are copied beside the header, because
 * one send is cheaper than two calls. Bytes in a tail ring are copied too, as a ring does not wait for a consumer that
 * does not read. The rest leaves by sendfile.
 *
 * A reactor copies what is in memory. A background thread copies the rest, from the disk if need be. So whatever was
 * found gets into the answer, however fast memory forgets.
 */
#include <errno.h>

#include "log/engine/tail.h"
#include "log/segment/segment.h"
#include "record/batch.h"
#include "record/bytes.h"
#include "server/fetch/fetch.h"
#include "wire/generated/kafka_errors.h"

/* Up to this a copy beats a sendfile of its own. A client that does not read must not make us hold copies without end,
 * so they are counted against the buffer budget; beyond it records leave by sendfile, however small. */
#define COPY_BYTES (32 * 1024)

/* Twice: once as read, once in the answer. */
static bool reserve_copy(fetch_state *fetch, int64_t length)
{
    if (!pb_pool_reserve(&fetch->request->home->broker->pool, 2 * length))
        return false;
    fetch->reserved_bytes += 2 * length;
    return true;
}

static void unreserve_copy(fetch_state *fetch, int64_t length)
{
    pb_pool_unreserve(&fetch->request->home->broker->pool, 2 * length);
    fetch->reserved_bytes -= 2 * length;
}

/* Does some of the slice lie in a ring only, or has it been flushed from there so lately that the page cache cannot
 * have it? */
static bool is_in_ring(const pb_log_slice *slice)
{
    return pb_tail_file_bytes(slice->segment, slice->position, slice->length) < slice->length ||
           pb_tail_holds(slice->segment, slice->position + slice->length);
}

static int copy_slice(const pb_log_slice *slice, void *copy, int64_t length)
{
    return copy == NULL ? -ENOMEM : pb_tail_read(slice->segment, slice->file, copy, (size_t)length, slice->position);
}

/* The same, or -EAGAIN if that would wait for a disk: what was found in memory may have made room since. */
static int copy_resident(fetch_state *fetch, const pb_log_slice *slice, void *copy, int64_t length)
{
    pb_io *io = fetch->request->home->broker->io;
    io->ops->thread_read_mode(io, PB_READ_RESIDENT);
    int result = copy_slice(slice, copy, length);
    io->ops->thread_read_mode(io, PB_READ_USUAL);
    return result == -EIO ? -EAGAIN : result; /* what to do about it takes reading, too */
}

/* `waits`: on a background thread, which may wait for the disk. */
static int copy_as(fetch_state *fetch, const pb_log_slice *slice, void *copy, int64_t length, bool waits)
{
    return waits ? copy_slice(slice, copy, length) : copy_resident(fetch, slice, copy, length);
}

/* Where a batch is known to begin, nobody has looked at its header yet. The check costs little on a copy, and a client
 * that gets bytes which are no batch cannot go on behind them. Its CRC is the client's to check, as what leaves by
 * sendfile is. */
static bool begins_with_batch(const uint8_t *copy, int64_t length)
{
    if (length < PB_BATCH_HEADER_BYTES || copy[PB_BATCH_MAGIC_POSITION] != PB_BATCH_MAGIC)
        return false;
    int64_t size_bytes = PB_BATCH_LOG_OVERHEAD_BYTES + (int64_t)(int32_t)pb_be32_load(copy + 8);
    return size_bytes >= PB_BATCH_HEADER_BYTES && size_bytes <= length;
}

/* The item has got its records, of which `copy` has `length` bytes, or none because of `result`: let go of its slice. A
 * failure is the item's error, unless the log was truncated there. */
static void end_copy(fetch_state *fetch, fetch_item *item, int result, const uint8_t *copy, pb_slice records)
{
    pb_log_slice *slice = &item->slice;
    if (result != 0 && pb_partition_report_slice(item->partition, slice, result) != -ENOENT)
        item->error = PB_KAFKA_KAFKA_STORAGE_ERROR;
    if (result == 0 && copy != NULL && !begins_with_batch(copy, records.length)) {
        item->error = PB_KAFKA_CORRUPT_MESSAGE;
        pb_fetch_tell_damage(fetch, item);
        result = -EBADMSG;
    }
    pb_segment_release(slice->segment);
    *slice = (pb_log_slice){0};
    item->records = result == 0 ? records : PB_EMPTY_SLICE;
}

/* How much of a slice is copied at most: `most_bytes`, but its first batch whole. Or -errno. */
static int64_t copy_length(fetch_state *fetch, const pb_log_slice *slice, int64_t most_bytes, bool waits)
{
    uint8_t head[PB_BATCH_LOG_OVERHEAD_BYTES];
    if (slice->length <= most_bytes)
        return slice->length;
    int result = copy_as(fetch, slice, head, sizeof head, waits);
    if (result != 0)
        return result;
    int64_t first_bytes = PB_BATCH_LOG_OVERHEAD_BYTES + (int64_t)pb_be32_load(head + 8);
    most_bytes = first_bytes > most_bytes ? first_bytes : most_bytes;
    return slice->length < most_bytes ? slice->length : most_bytes;
}

/* By sendfile, from the page cache or from history, which are asked when its turn comes. */
static int send_from_file(fetch_item *item)
{
    item->records = (pb_slice){NULL, (int32_t)item->slice.length};
    return 0;
}

/* No chunk is to be had. Bytes that are final in the file leave by sendfile. Else one partition of the answer gets a
 * single batch beside the budget, so that its reader gets on, and others their turn when they are asked for again. */
static int copy_one_batch(fetch_state *fetch, fetch_item *item, bool waits)
{
    pb_log_slice *slice = &item->slice;
    if (!pb_tail_holds(slice->segment, slice->position + slice->length))
        return send_from_file(item);
    if (fetch->has_ring_records) {
        end_copy(fetch, item, 0, NULL, PB_EMPTY_SLICE);
        return 0;
    }
    int64_t length = copy_length(fetch, slice, 1, waits);
    void *copy = length > 0 ? pb_arena_alloc(&fetch->request->arena, (size_t)length) : NULL;
    int result = length < 0 ? (int)length : copy_as(fetch, slice, copy, length, waits);
    if (result == -EAGAIN && !waits)
        return -EAGAIN;
    end_copy(fetch, item, result, copy, (pb_slice){copy, (int32_t)length});
    fetch->has_ring_records = item->records.length > 0;
    return 0;
}

/* Into a chunk of the pool. */
static int copy_ring(fetch_state *fetch, fetch_item *item, bool waits)
{
    int64_t length = copy_length(fetch, &item->slice, PB_FETCH_RING_BYTES, waits);
    int result = length < 0 ? (int)length : 0;
    if (result == 0) {
        item->copy = pb_pool_take_spare(&fetch->request->home->broker->pool, (uint32_t)length);
        if (item->copy == NULL)
            return copy_one_batch(fetch, item, waits);
        result = copy_as(fetch, &item->slice, item->copy->data, length, waits);
    }
    bool is_cold = result == -EAGAIN && !waits;
    if (!is_cold)
        end_copy(fetch, item, result, item->copy != NULL ? item->copy->data : NULL, (pb_slice){NULL, (int32_t)length});
    if (item->copy != NULL && item->records.length == 0) {
        pb_chunk_release(item->copy);
        item->copy = NULL;
    }
    fetch->has_ring_records = fetch->has_ring_records || item->records.length > 0;
    return is_cold ? -EAGAIN : 0;
}

/* Beside the header. */
static int copy_small(fetch_state *fetch, fetch_item *item, bool waits)
{
    pb_log_slice *slice = &item->slice;
    int64_t length = slice->length;
    void *copy = pb_arena_alloc(&fetch->request->arena, (size_t)length);
    bool was_asked = fetch->request->response.resident_ns > 0 && !pb_history_may_hold(slice->segment);
    int result = copy_as(fetch, slice, copy, length, waits || was_asked);
    if (result == -EIO && !waits)
        result = -EAGAIN;
    if (result != -EAGAIN || waits) {
        end_copy(fetch, item, result, copy, (pb_slice){copy, (int32_t)length});
        return 0;
    }
    unreserve_copy(fetch, length);
    if (is_in_ring(slice))
        return -EAGAIN;
    fetch->request->response.resident_ns = 0;
    return send_from_file(item);
}

int pb_fetch_copy_item(fetch_state *fetch, fetch_item *item, bool waits)
{
    pb_log_slice *slice = &item->slice;
    if (slice->segment == NULL)
        return 0;
    PB_ASSERT(slice->length > 0 && slice->length <= INT32_MAX);
    if (slice->length <= COPY_BYTES && reserve_copy(fetch, slice->length))
        return copy_small(fetch, item, waits);
    return is_in_ring(slice) ? copy_ring(fetch, item, waits) : send_from_file(item);
}

bool pb_fetch_copy(fetch_state *fetch)
{
    pb_response *response = &fetch->request->response;
    for (; fetch->copied_count < fetch->item_count; fetch->copied_count++) {
        fetch_item *item = &fetch->items[fetch->copied_count];
        response->is_behind = response->is_behind || item->slice.more;
        if (pb_fetch_copy_item(fetch, item, false) == -EAGAIN) {
            pb_fetch_copy_cold(fetch);
            return false;
        }
    }
    return true;
}
