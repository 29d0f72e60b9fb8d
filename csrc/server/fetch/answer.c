/*
 * The answer to a Fetch. Record bytes leave by sendfile from the page cache, or as copies (copy.c). Reactor
 * thread.
 */
#include <errno.h>
#include <string.h>

#include "server/fetch/fetch.h"
#include "wire/generated/kafka_errors.h"

#define REREADS_MAX 3
#define EMPTY_TOLD_EVERY_NS 10000000000LL /* by a reactor */

/* The bytes that fill the gap of an item's records. */
static pb_gap_filling filling_of(const fetch_item *item)
{
    int64_t length = item->records.data == NULL ? item->records.length : 0;
    if (item->copy != NULL)
        return (pb_gap_filling){.data = item->copy->data, .length = length};
    return (pb_gap_filling){.file = item->slice.file, .position = item->slice.position, .length = length};
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
    data->partition_index = item->index;
    data->records = item->records;
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
    bool changed = pb_session_partition_changed(fetch->session, item->cached, item->records.length > 0, item->error,
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

static void write_answer(fetch_state *fetch)
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

/*
 * Invariant: where records were found, the answer has some, or an error. A client that is told nothing below the high
 * watermark asks again at once, and if nothing has changed until then, so it goes on for ever.
 */
static bool says_something(const fetch_state *fetch)
{
    bool says = fetch->bytes == 0 || fetch->hurried;
    for (int32_t i = 0; i < fetch->item_count && !says; i++)
        says = fetch->items[i].records.length > 0 || fetch->items[i].error != 0;
    return says;
}

static void tell_empty(pb_server_reactor *home, const pb_partition *partition)
{
    if (home->empty_told_ns != 0 && home->reactor.now_ns - home->empty_told_ns < EMPTY_TOLD_EVERY_NS)
        return;
    home->empty_told_ns = home->reactor.now_ns;
    pb_events_notice(&home->broker->events,
                     "%s-%d: a Fetch found records and lost them again, %d times in a row; it is answered "
                     "KAFKA_STORAGE_ERROR. Unless the partition is truncated all the time, please report this",
                     partition->topic, partition->index, REREADS_MAX + 1);
}

/* A log that is truncated takes away what was found in it: to read again finds what there is now. If that does not help
 * either, the fault is ours: the client gets an error, which it reports and backs off from, and the broker goes on. */
static bool read_again(fetch_state *fetch)
{
    pb_server_reactor *home = fetch->request->home;
    pb_counter_add(&home->counters.empty_fetches, 1);
    if (fetch->rereads++ < REREADS_MAX) {
        pb_fetch_unpin(fetch);
        pb_fetch_look_up(fetch);
        return true;
    }
    for (int32_t i = 0; i < fetch->item_count; i++) {
        fetch_item *item = &fetch->items[i];
        if (!item->found)
            continue;
        item->error = PB_KAFKA_KAFKA_STORAGE_ERROR;
        tell_empty(home, item->partition);
    }
    return false;
}

void pb_fetch_answer(fetch_state *fetch)
{
    if (!pb_fetch_copy(fetch))
        return; /* a background thread copies, and then it goes on here */
    if (!says_something(fetch) && read_again(fetch))
        return;
    write_answer(fetch);
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
