/*
 * The parts of a fetch that would wait for a disk. The look-up of a position and the bytes to send are tried on the
 * reactor without waiting. The threads for cold reads do it when that is refused. Bytes that were in memory when the
 * answer was made may be gone when their turn to be sent comes: the connection asks again. It also asks where to send
 * from, as part of a segment may lie in the page cache and part of it in the history.
 */
#include <errno.h>

#include "log/engine/tail.h"
#include "log/segment/segment.h"
#include "server/fetch/fetch.h"
#include "wire/generated/kafka_errors.h"

enum {
    SMALL_BYTES = 256 * 1024, /* of so little, asking whether it is in memory is a good part of the work */
    AHEAD_BYTES = 1 << 20,    /* so it is asked of as much at once */
    AHEAD_NS = 5000000,       /* and taken to be there for so long, as a connection takes what it is about to send */
};

static pb_cold_reads *reads_of(fetch_state *fetch)
{
    return &fetch->request->home->broker->cold_reads;
}

static void submit(fetch_state *fetch, bool (*piece)(pb_cold_read *read),
                   void (*brought)(pb_task *task, pb_reactor *reactor))
{
    fetch->cold.piece = piece;
    fetch->brought.run = brought;
    pb_cold_reads_submit(reads_of(fetch), &fetch->cold);
}

/* ---- pieces ---- */

/* How much of an item has to come from its file: the rest is in a tail ring, and then no more of both is copied than a
 * ring's share. While probing, what an answer may take from there on. */
static int64_t file_bytes(const fetch_state *fetch, const fetch_item *item)
{
    const pb_log_slice *slice = &item->slice;
    if (slice->segment == NULL)
        return 0;
    int64_t length = slice->length;
    if (fetch->probing) {
        length = item->max_bytes < fetch->cold_left_bytes ? item->max_bytes : fetch->cold_left_bytes;
        if (length > slice->ahead_position - slice->position)
            length = slice->ahead_position - slice->position;
    }
    if (length <= 0)
        return 0;
    int64_t in_file = pb_tail_file_bytes(slice->segment, slice->position, length);
    return in_file < length && in_file > PB_FETCH_RING_BYTES ? PB_FETCH_RING_BYTES : in_file;
}

/* Go to the first item from `index` on that has something to bring in. */
static bool go_to_item(fetch_state *fetch, int32_t index)
{
    int64_t length = 0;
    while (index < fetch->item_count && (length = file_bytes(fetch, &fetch->items[index])) == 0)
        index++;
    if (index == fetch->item_count)
        return false;
    fetch->cold_item = index;
    fetch->cold_position = fetch->items[index].slice.position;
    fetch->cold_end_position = fetch->cold_position + length;
    fetch->cold_left_bytes -= length;
    return true;
}

/* The next piece of the current item. An error ends it. True: there is more of it. */
static bool bring_in(fetch_state *fetch)
{
    fetch_item *item = &fetch->items[fetch->cold_item];
    int64_t length = pb_piece_part(fetch->cold_position, fetch->cold_end_position - fetch->cold_position);
    fetch->cold_result = pb_cold_reads_bring_in(reads_of(fetch), &item->slice, fetch->cold_position, length);
    fetch->cold_position += length;
    if (fetch->cold_result != 0)
        fetch->cold_result = pb_partition_report_slice(item->partition, &item->slice, fetch->cold_result);
    return fetch->cold_result == 0 && fetch->cold_position < fetch->cold_end_position;
}

/* ---- looking up ---- */

bool pb_fetch_read_resident(fetch_state *fetch)
{
    pb_io *io = fetch->request->home->broker->io;
    fetch->must_wait = false;
    fetch->never_wait = true;
    io->ops->thread_read_mode(io, PB_READ_RESIDENT);
    pb_fetch_read(fetch);
    io->ops->thread_read_mode(io, PB_READ_USUAL);
    fetch->never_wait = false;
    if (fetch->must_wait)
        pb_fetch_unpin(fetch);
    return !fetch->must_wait;
}

/* Where the items begin; then what follows there, in large reads; then the look-up itself, which takes batch headers
 * from all over it and so would make many small ones. */
static bool look_up_piece(pb_cold_read *read)
{
    fetch_state *fetch = PB_CONTAINER(read, fetch_state, cold);
    if (!fetch->probing) {
        fetch->must_wait = false;
        fetch->probing = true;
        fetch->cold_left_bytes = fetch->limit_bytes;
        pb_fetch_read(fetch);
        if (go_to_item(fetch, 0))
            return true;
    } else if (bring_in(fetch) || go_to_item(fetch, fetch->cold_item + 1)) {
        return true;
    }
    fetch->probing = false;
    pb_fetch_unpin(fetch);
    pb_fetch_read(fetch);
    pb_reactor_post(&fetch->request->home->reactor, &fetch->brought);
    return false;
}

static void looked_up(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    fetch_state *fetch = PB_CONTAINER(task, fetch_state, brought);
    fetch->looked_up = true;
    pb_fetch_looked_up(fetch);
}

void pb_fetch_look_up(fetch_state *fetch)
{
    pb_counter_add(&fetch->request->home->counters.cold_reads, 1);
    submit(fetch, look_up_piece, looked_up);
}

/* ---- bringing in ---- */

/* In the history and the page cache together: what is read again and again lies partly here, partly there. */
static bool is_in_memory(fetch_state *fetch, const pb_log_slice *slice, int64_t length)
{
    int64_t position = slice->position, end_position = position + length;
    while (position < end_position) {
        int64_t held_end = pb_history_held_end(slice->segment, position, end_position);
        fetch->in_history = fetch->in_history || held_end > position;
        int64_t left = end_position - held_end;
        int64_t part = pb_history_may_hold(slice->segment) ? pb_piece_part(held_end, left) : left;
        if (part > 0 && !pb_cold_reads_in_page_cache(reads_of(fetch), slice, held_end, part))
            return false;
        position = held_end + part;
    }
    return true;
}

/* Is [position, end_position) in a range that this reactor has asked of just now? A segment that took the place in
 * memory of another one may be mistaken for it: then a read waits for the disk once. */
static bool was_in_memory(const pb_server_reactor *home, const pb_log_slice *slice, int64_t end_position)
{
    bool found = false;
    for (int i = 0; i < PB_RESIDENT_RANGES && !found; i++) {
        const pb_resident_range *range = &home->resident[i];
        found = range->segment == slice->segment && range->position <= slice->position &&
                end_position <= range->end_position && home->reactor.now_ns < range->until_ns;
    }
    return found;
}

/* Are the first `length` bytes of the slice in memory? A reader of small pieces is told from what was asked once. */
static bool is_slice_resident(fetch_state *fetch, const pb_log_slice *slice, int64_t length)
{
    pb_server_reactor *home = fetch->request->home;
    int64_t end_position = slice->position + length;
    int64_t ahead_position = slice->position + AHEAD_BYTES;
    if (ahead_position > slice->ahead_position)
        ahead_position = slice->ahead_position;
    if (length > SMALL_BYTES || ahead_position <= end_position)
        return is_in_memory(fetch, slice, length);
    if (was_in_memory(home, slice, end_position))
        return true;
    /* Asks the page cache alone: the history may not have it for so long. */
    if (!pb_cold_reads_in_page_cache(reads_of(fetch), slice, slice->position, ahead_position - slice->position))
        return is_in_memory(fetch, slice, length);
    home->resident[home->next_resident++ % PB_RESIDENT_RANGES] = (pb_resident_range){
        .segment = slice->segment,
        .position = slice->position,
        .end_position = ahead_position,
        .until_ns = home->reactor.now_ns + AHEAD_NS,
    };
    return true;
}

bool pb_fetch_is_resident(fetch_state *fetch)
{
    pb_cold_reads *reads = reads_of(fetch);
    bool resident = true;
    fetch->in_history = false;
    for (int32_t i = 0; i < fetch->item_count && resident; i++) {
        const fetch_item *item = &fetch->items[i];
        int64_t length = file_bytes(fetch, item);
        resident = length == 0 || is_slice_resident(fetch, &item->slice, length);
    }
    bool was_cold = fetch->looked_up || !resident;
    bool goes_on = false;
    for (int32_t i = 0; i < fetch->item_count; i++)
        if (fetch->items[i].slice.segment != NULL &&
            pb_cold_reads_follow(reads, fetch->items[i].partition, &fetch->items[i].slice, was_cold))
            goes_on = true;
    fetch->request->response.yields = was_cold || goes_on;
    fetch->request->response.resident_ns = fetch->in_history ? 0 : fetch->request->home->reactor.now_ns;
    return resident;
}

static bool bring_in_piece(pb_cold_read *read)
{
    fetch_state *fetch = PB_CONTAINER(read, fetch_state, cold);
    if (bring_in(fetch))
        return true;
    fetch_item *item = &fetch->items[fetch->cold_item];
    if (fetch->cold_result == -ENOENT) /* the log was cut there: its reader asks again */
        pb_fetch_unpin_item(item);
    else if (fetch->cold_result != 0) /* a sendfile would meet the same error with half of the answer sent */
        item->error = PB_KAFKA_KAFKA_STORAGE_ERROR;
    if (go_to_item(fetch, fetch->cold_item + 1))
        return true;
    pb_reactor_post(&fetch->request->home->reactor, &fetch->brought);
    return false;
}

static void brought_in(pb_task *task, pb_reactor *reactor)
{
    fetch_state *fetch = PB_CONTAINER(task, fetch_state, brought);
    bool in_history = false;
    for (int32_t i = 0; i < fetch->item_count; i++) {
        fetch_item *item = &fetch->items[i];
        if (item->error != 0)
            pb_fetch_unpin_item(item);
        int64_t length = file_bytes(fetch, item);
        in_history = in_history || (length > 0 && pb_history_meets(item->slice.segment, item->slice.position, length));
    }
    fetch->request->response.resident_ns = in_history ? 0 : reactor->now_ns;
    pb_fetch_answer(fetch);
}

void pb_fetch_bring_in(fetch_state *fetch)
{
    pb_counter_add(&fetch->request->home->counters.cold_reads, 1);
    if (go_to_item(fetch, 0))
        submit(fetch, bring_in_piece, brought_in);
    else
        pb_fetch_answer(fetch); /* the log has become hot: its ring has it */
}

/* ---- copying ---- */

static bool copy_piece(pb_cold_read *read)
{
    fetch_state *fetch = PB_CONTAINER(read, fetch_state, cold);
    fetch_item *item = &fetch->items[fetch->copied_count++];
    int result = pb_fetch_copy_item(fetch, item, true);
    PB_ASSERT(result == 0 && (item->records.length > 0 || item->slice.segment == NULL));
    pb_reactor_post(&fetch->request->home->reactor, &fetch->brought);
    return false;
}

static void copied(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    pb_fetch_answer(PB_CONTAINER(task, fetch_state, brought));
}

void pb_fetch_copy_cold(fetch_state *fetch)
{
    pb_counter_add(&fetch->request->home->counters.cold_reads, 1);
    submit(fetch, copy_piece, copied);
}

/* ---- what is being sent ---- */

/* The bytes that the connection waits for stay where they are until they have been sent. Where nothing more may stay,
 * the page cache has it, and the kernel may forget it. */
static bool bring_again(pb_cold_read *read)
{
    fetch_state *fetch = PB_CONTAINER(read, fetch_state, cold);
    const pb_log_slice *slice = &fetch->items[fetch->cold_item].slice;
    int64_t position = fetch->cold_position, length = fetch->cold_end_position - position;
    (void)bring_in(fetch);
    if (fetch->cold_result == 0)
        fetch->pinned = pb_history_pin(slice->segment, position);
    pb_io *io = fetch->request->home->broker->io;
    if (fetch->cold_result == 0 && fetch->pinned == NULL) {
        int result = io->ops->file_bring_in(io, slice->file, position, length);
        if (result != 0)
            fetch->cold_result = pb_partition_report_slice(fetch->items[fetch->cold_item].partition, slice, result);
    }
    pb_reactor_post(&fetch->request->home->reactor, &fetch->brought);
    return false;
}

static void brought_again(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    fetch_state *fetch = PB_CONTAINER(task, fetch_state, brought);
    int64_t length = fetch->cold_end_position - fetch->cold_start_position;
    pb_connection_brought(fetch->request->connection, fetch->cold_result != 0 ? fetch->cold_result : length);
}

void pb_fetch_let_go(fetch_state *fetch)
{
    if (fetch->pinned != NULL)
        pb_history_unpin(fetch->pinned);
    fetch->pinned = NULL;
}

/* Which item this output belongs to: files are the items' own. */
static int32_t item_of(const fetch_state *fetch, const pb_output *output)
{
    int32_t index = 0;
    while (index < fetch->item_count) {
        const pb_log_slice *slice = &fetch->items[index].slice;
        if (slice->segment != NULL && slice->file == output->file && output->position >= slice->position &&
            output->position < slice->position + slice->length)
            break;
        index++;
    }
    PB_ASSERT(index < fetch->item_count);
    return index;
}

/* From the history, if it is there. The pieces pinned before have been sent. */
static const uint8_t *find_in_history(fetch_state *fetch, pb_segment *segment, int64_t position, int64_t *length)
{
    const uint8_t *bytes = pb_piece_bytes(fetch->pinned, segment, position, length);
    if (bytes != NULL)
        return bytes;
    pb_fetch_let_go(fetch);
    fetch->pinned = pb_history_pin(segment, position);
    return pb_piece_bytes(fetch->pinned, segment, position, length);
}

enum pb_part_place pb_fetch_place_to_send(pb_response *response, const pb_output *output, bool brought, int64_t *length,
                                          const uint8_t **bytes)
{
    fetch_state *fetch = PB_CONTAINER(response, pb_request, response)->state;
    int32_t index = item_of(fetch, output);
    const pb_log_slice *slice = &fetch->items[index].slice;
    *bytes = find_in_history(fetch, slice->segment, output->position, length);
    if (*bytes != NULL)
        return PB_PART_IN_MEMORY;
    /* Else it is what the history does not hold, or holds and may not keep for us. */
    if (brought || pb_cold_reads_in_page_cache(reads_of(fetch), slice, output->position, *length))
        return PB_PART_IN_FILE;
    int64_t part = pb_piece_part(output->position, *length);
    if (part < *length && pb_history_may_hold(slice->segment) &&
        pb_cold_reads_in_page_cache(reads_of(fetch), slice, output->position, part)) {
        *length = part; /* what follows is the history's, maybe */
        return PB_PART_IN_FILE;
    }
    pb_counter_add(&fetch->request->home->counters.cold_reads, 1);
    fetch->cold_item = index;
    fetch->cold_start_position = output->position;
    fetch->cold_position = output->position;
    /* However little is sent at a time. */
    fetch->cold_end_position = output->position + pb_piece_part(output->position, output->length);
    submit(fetch, bring_again, brought_again);
    return PB_PART_AWAITED;
}
