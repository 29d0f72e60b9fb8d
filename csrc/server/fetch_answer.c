/*
 * The answer to a Fetch. Record bytes leave by sendfile from the page cache; small ones are copied beside the header,
 * because one send is cheaper than two calls. What a hot log has in its ring is copied too: nobody waits there for
 * a consumer that does not read. Reactor thread.
 */
#include <errno.h>
#include <string.h>

#include "log/segment.h"
#include "log/tail.h"
#include "record/batch.h"
#include "record/bytes.h"
#include "server/fetch.h"
#include "wire/generated/kafka_errors.h"

/* Up to this a copy beats a sendfile of its own. A client that does not read must not make us hold copies without end,
 * so they are counted against the buffer budget; beyond it records leave by sendfile, however small. */
#define COPY_BYTES (32 * 1024)
/* Of a ring no more than this at once, unless a batch is larger. */
#define RING_COPY_BYTES (4 * 1024 * 1024)

/* Twice: once as read, once in the answer. */
static bool reserve_copy(fetch_state *fetch, int64_t length)
{
    if (!pb_pool_reserve(&fetch->request->home->broker->pool, 2 * length))
        return false;
    fetch->reserved_bytes += 2 * length;
    return true;
}

/* Let go of the item's slice, of which `length` bytes were copied, or not; a failure is the item's error, unless the
 * log was cut there. false: nothing was copied. */
static bool end_copy(fetch_item *item, int result, int64_t length)
{
    pb_log_slice *slice = &item->slice;
    if (result != 0 && pb_partition_report_slice(item->partition, slice, result) != -ENOENT)
        item->error = PB_KAFKA_KAFKA_STORAGE_ERROR;
    pb_segment_release(slice->segment);
    *slice = (pb_log_slice){.length = result == 0 ? length : 0};
    return result == 0;
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
    return result;
}

/* A copy that goes beside the header. */
static pb_slice beside_header(fetch_item *item, int result, void *copy, int64_t length)
{
    bool copied = end_copy(item, result, length);
    item->slice.length = 0;
    return copied ? (pb_slice){copy, (int32_t)length} : PB_EMPTY_SLICE;
}

/* How much of a slice is copied at most: `most_bytes`, but its first batch whole. */
static int64_t copy_length(const pb_log_slice *slice, int64_t most_bytes)
{
    uint8_t head[PB_BATCH_LOG_OVERHEAD_BYTES];
    if (slice->length <= most_bytes)
        return slice->length;
    if (pb_tail_read(slice->segment, slice->file, head, sizeof head, slice->position) != 0)
        return most_bytes;
    int64_t first_bytes = PB_BATCH_LOG_OVERHEAD_BYTES + (int64_t)pb_be32_load(head + 8);
    most_bytes = first_bytes > most_bytes ? first_bytes : most_bytes;
    return slice->length < most_bytes ? slice->length : most_bytes;
}

/* The item is answered without records: its reader asks again. */
static pb_slice leave_out(fetch_item *item)
{
    pb_segment_release(item->slice.segment);
    item->slice = (pb_log_slice){0};
    return PB_EMPTY_SLICE;
}

/* Into a chunk of the pool; without one, a single batch beside its budget, so that the reader gets on. */
static pb_slice copy_ring(fetch_state *fetch, fetch_item *item)
{
    int64_t length = copy_length(&item->slice, RING_COPY_BYTES);
    item->copy = pb_pool_take_spare(&fetch->request->home->broker->pool, (uint32_t)length);
    if (item->copy != NULL) {
        int result = copy_resident(fetch, &item->slice, item->copy->data, length);
        if (result == -EAGAIN)
            return leave_out(item);
        bool copied = end_copy(item, result, length);
        fetch->has_records = true;
        return copied ? (pb_slice){NULL, (int32_t)length} : PB_EMPTY_SLICE;
    }
    if (fetch->has_records)
        return leave_out(item);
    fetch->has_records = true;
    length = copy_length(&item->slice, 1);
    void *copy = pb_arena_alloc(&fetch->request->arena, (size_t)length);
    int result = copy_resident(fetch, &item->slice, copy, length);
    return result == -EAGAIN ? leave_out(item) : beside_header(item, result, copy, length);
}

/* What goes into the records field: a copy, or a gap that a file range or a chunk fills. */
static pb_slice records_of(fetch_state *fetch, fetch_item *item)
{
    pb_log_slice *slice = &item->slice;
    if (slice->segment == NULL)
        return PB_EMPTY_SLICE;
    PB_ASSERT(slice->length > 0 && slice->length <= INT32_MAX);
    if (slice->length <= COPY_BYTES && reserve_copy(fetch, slice->length)) {
        void *copy = pb_arena_alloc(&fetch->request->arena, (size_t)slice->length);
        bool was_asked = fetch->request->response.resident_ns > 0 && !pb_history_may_hold(slice->segment);
        int result =
            was_asked ? copy_slice(slice, copy, slice->length) : copy_resident(fetch, slice, copy, slice->length);
        if (result != -EAGAIN)
            return beside_header(item, result, copy, slice->length);
        fetch->request->response.resident_ns = 0; /* it is a range of the file, and asked for when its turn comes */
    }
    /* Also what the file has got by now, if the ring still has some of it: that has not been in the page cache yet. */
    if (pb_tail_file_bytes(slice->segment, slice->position, slice->length) < slice->length ||
        pb_tail_holds(slice->segment, slice->position + slice->length))
        return copy_ring(fetch, item);
    return (pb_slice){NULL, (int32_t)slice->length};
}

/* What fills the gap of an item's records. */
static pb_gap_filling filling_of(const fetch_item *item)
{
    if (item->copy != NULL)
        return (pb_gap_filling){.data = item->copy->data, .length = item->slice.length};
    return (pb_gap_filling){.file = item->slice.file, .position = item->slice.position, .length = item->slice.length};
}

static int fill_aborted(fetch_state *fetch, const fetch_item *item, pb_fetch_response_partition_data *data)
{
    data->aborted_transactions_count = fetch->read_committed && item->error == 0 ? item->aborted_count : -1;
    if (item->aborted_count == 0 || data->aborted_transactions_count < 0)
        return 0;
    data->aborted_transactions =
        pb_arena_alloc_array(&fetch->request->arena, (size_t)item->aborted_count, sizeof *data->aborted_transactions);
    if (data->aborted_transactions == NULL)
        return -ENOMEM;
    for (int i = 0; i < item->aborted_count; i++) {
        data->aborted_transactions[i].producer_id = item->aborted[i].producer_id;
        data->aborted_transactions[i].first_offset = item->aborted[i].first_offset;
    }
    return 0;
}

static void count_sent(fetch_state *fetch, fetch_item *item, int64_t bytes)
{
    atomic_fetch_add_explicit(&item->partition->fetched_bytes, bytes, memory_order_relaxed);
    if (item->ends.is_throttled)
        pb_quota_take(&fetch->request->home->broker->leader_quota, bytes, fetch->request->home->reactor.now_ns);
}

static int fill_partition(fetch_state *fetch, fetch_item *item, pb_fetch_response_partition_data *data)
{
    pb_fetch_response_partition_data_init(data);
    fetch->request->response.is_behind = fetch->request->response.is_behind || item->slice.more;
    data->partition_index = item->index;
    data->records = records_of(fetch, item);
    data->error_code = (int16_t)item->error;
    data->high_watermark = item->ends.high_watermark;
    data->last_stable_offset = item->ends.last_stable_offset;
    data->log_start_offset = item->ends.log_start_offset;
    data->diverging_epoch = item->diverging;
    data->preferred_read_replica = item->preferred_replica;
    if (item->error == PB_KAFKA_FENCED_LEADER_EPOCH && fetch->request->header.request_api_version >= 16) /* KIP-951 */
        data->current_leader = (pb_fetch_response_leader_id_and_epoch){
            .leader_id = fetch->request->home->broker->settings.node_id, .leader_epoch = item->ends.leader_epoch};
    if (item->partition != NULL && data->records.length > 0)
        count_sent(fetch, item, data->records.length);
    return fill_aborted(fetch, item, data);
}

static bool is_answered(fetch_state *fetch, fetch_item *item)
{
    if (item->cached == NULL)
        return true;
    bool changed = pb_session_partition_changed(fetch->session, item->cached, item->slice.segment != NULL, item->error,
                                                item->ends.high_watermark, item->ends.log_start_offset);
    if (item->diverging.epoch >= 0) /* who has to cut its log takes nothing else of the answer, and needs it again */
        pb_session_partition_tell_again(item->cached);
    return fetch->full || changed || item->diverging.epoch >= 0 || item->preferred_replica >= 0;
}

static bool same_topic(const fetch_item *a, const fetch_item *b)
{
    return pb_slice_equal(a->topic, b->topic) && memcmp(&a->topic_id, &b->topic_id, sizeof a->topic_id) == 0;
}

/* Group neighbours of one topic; `answered` are the items to answer. */
static int fill_topics(fetch_state *fetch, fetch_item **answered, int32_t count, pb_fetch_response *out)
{
    pb_arena *arena = &fetch->request->arena;
    pb_fetch_response_partition_data *data = pb_arena_alloc_array(arena, (size_t)count, sizeof *data);
    out->responses = pb_arena_alloc_array(arena, (size_t)count, sizeof *out->responses);
    if (data == NULL || out->responses == NULL)
        return -ENOMEM;
    for (int32_t i = 0; i < count; i++) {
        if (i == 0 || !same_topic(answered[i - 1], answered[i])) {
            pb_fetch_response_fetchable_topic_response *topic = &out->responses[out->responses_count++];
            pb_fetch_response_fetchable_topic_response_init(topic);
            topic->topic = answered[i]->topic;
            topic->topic_id = answered[i]->topic_id;
            topic->partitions = &data[i];
        }
        if (fill_partition(fetch, answered[i], &data[i]) < 0)
            return -ENOMEM;
        out->responses[out->responses_count - 1].partitions_count++;
    }
    return 0;
}

void pb_fetch_answer(fetch_state *fetch)
{
    pb_request *request = fetch->request;
    pb_fetch_response out;
    pb_fetch_response_init(&out);
    out.session_id = fetch->session != NULL ? fetch->session->id : PB_FETCH_SESSIONLESS;
    size_t room = (size_t)fetch->item_count;
    fetch_item **answered = pb_arena_alloc_array(&request->arena, room, sizeof(fetch_item *));
    pb_gap_filling *fillings = pb_arena_alloc_array(&request->arena, room, sizeof *fillings);
    int32_t count = 0;
    for (int32_t i = 0; answered != NULL && i < fetch->item_count; i++)
        if (is_answered(fetch, &fetch->items[i]))
            answered[count++] = &fetch->items[i];
    if (answered == NULL || fillings == NULL || fill_topics(fetch, answered, count, &out) < 0) {
        pb_events_notice_peer(&request->home->broker->events, request->connection->host,
                              "no memory for the answer to a Fetch request from %s; closing its connection",
                              request->connection->host);
        pb_request_abandon(request);
        return;
    }
    for (int32_t i = 0; i < count; i++)
        fillings[i] = filling_of(answered[i]);
    pb_request_begin_answer(request);
    pb_fetch_response_write(&request->writer, request->header.request_api_version, &out);
    pb_request_finish_answer(request, fillings, count);
}

void pb_fetch_answer_throttled(fetch_state *fetch, int32_t throttle_time_ms)
{
    pb_request *request = fetch->request;
    pb_fetch_response out;
    pb_fetch_response_init(&out);
    out.throttle_time_ms = throttle_time_ms;
    if (fetch->session != NULL && fetch->full) {
        /* A new session is not told of its partitions: as with Kafka, there is none, and the client begins again. */
        pb_fetch_session_abandon(&request->home->broker->sessions, fetch->session);
        fetch->session = NULL;
    }
    out.session_id = fetch->session != NULL ? fetch->session->id : PB_FETCH_SESSIONLESS;
    pb_request_begin_answer(request);
    pb_fetch_response_write(&request->writer, request->header.request_api_version, &out);
    pb_request_finish_answer(request, NULL, 0);
}

void pb_fetch_answer_error(fetch_state *fetch, int error)
{
    pb_request *request = fetch->request;
    pb_fetch_response out;
    pb_fetch_response_init(&out);
    out.error_code = (int16_t)(error > 0 ? error : PB_KAFKA_UNKNOWN_SERVER_ERROR);
    pb_request_begin_answer(request);
    pb_fetch_response_write(&request->writer, request->header.request_api_version, &out);
    pb_request_finish_answer(request, NULL, 0);
}
