/*
 * Fetch: parse -> session -> read -> answer. Instead of answering it may wait for min.bytes (on the partitions and a
 * timer) and read again. It may leave reads that would wait for a disk to a background thread (cold.c). Reactor thread,
 * but for `wake` (any thread, under a partition's lock).
 */
#include "server/fetch/fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/quota/throttle.h"
#include "wire/generated/kafka_errors.h"

/* A read that keeps missing appends by a hair is answered with what it found. */
#define REGISTER_ATTEMPTS 3
/* From here on consumers know that they may be sent to the nearest replica (KIP-392). */
#define NEAREST_VERSION 11

static void proceed(fetch_state *fetch);

static void cleanup(pb_request *request)
{
    fetch_state *fetch = request->state;
    PB_ASSERT(!fetch->waiting && !pb_timer_is_set(&fetch->timer));
    pb_fetch_let_go(fetch);
    pb_fetch_unpin(fetch);
    pb_pool_unreserve(&request->home->broker->pool, fetch->reserved_bytes);
    for (int32_t i = 0; i < fetch->item_count; i++)
        if (fetch->items[i].partition != NULL)
            pb_partition_release(fetch->items[i].partition);
    if (fetch->session != NULL)
        pb_fetch_session_end(&request->home->broker->sessions, fetch->session);
}

/* From the first time on it is others that the request waits for. */
static void end_local(fetch_state *fetch)
{
    int64_t *at_ns = fetch->request->at_ns;
    if (at_ns[PB_AT_LOCAL_DONE] < at_ns[PB_AT_STARTED])
        at_ns[PB_AT_LOCAL_DONE] = fetch->request->home->reactor.now_ns;
}

/* Has the consumer a quota, maybe? Followers have none. */
static bool is_limited(const fetch_state *fetch)
{
    return pb_throttle_is_on(fetch->request) && fetch->replica_id < 0;
}

static void finish(fetch_state *fetch)
{
    int32_t throttle_time_ms;
    end_local(fetch);
    bool is_counted = fetch->rereads > 0; /* by the quota */
    if (is_limited(fetch) && !fetch->hurried && !is_counted &&
        (throttle_time_ms = pb_throttle_fetch(fetch->request, fetch->bytes)) > 0) {
        pb_fetch_unpin(fetch);
        pb_fetch_answer_throttled(fetch, throttle_time_ms);
        return;
    }
    if (fetch->hurried)
        pb_fetch_unpin(fetch); /* nobody gets it */
    if (fetch->hurried || pb_fetch_is_resident(fetch))
        pb_fetch_answer(fetch);
    else
        pb_fetch_bring_in(fetch);
}

/* ---- waiting ---- */

static void stop_waiting(fetch_state *fetch)
{
    pb_server_reactor *home = fetch->request->home;
    for (int32_t i = 0; i < fetch->item_count; i++)
        pb_partition_forget(&fetch->items[i].waiter);
    pb_timer_cancel(&home->reactor.timers, &fetch->timer);
    fetch->waiting = false;
    pb_counter_add(&home->counters.delayed_fetches, -1);
}

static void wake(pb_partition_waiter *waiter, int64_t appended_bytes)
{
    fetch_state *fetch = waiter->owner;
    /* Bounded, so that neither many wakes nor a wake for all there is take the sum out of range; min.bytes is no
     * larger. */
    int64_t amount = appended_bytes < INT32_MAX ? appended_bytes : INT32_MAX;
    if (atomic_fetch_sub(&fetch->missing_bytes, amount) - amount > 0 || atomic_exchange(&fetch->woken, true))
        return;
    pb_reactor_post(&fetch->request->home->reactor, &fetch->wake);
}

static void awake(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    fetch_state *fetch = PB_CONTAINER(task, fetch_state, wake);
    if (fetch->waiting)
        stop_waiting(fetch);
    atomic_store(&fetch->woken, false);
    proceed(fetch);
}

/* The wait is over: by the clock, or because the connection leaves or closes. With a wake under way, that one goes on
 * instead. */
static void give_up(fetch_state *fetch)
{
    fetch->deadline_ns = 0;
    stop_waiting(fetch);
    if (!atomic_load(&fetch->woken))
        proceed(fetch);
}

static void expired(pb_timer *timer)
{
    give_up(PB_CONTAINER(timer, fetch_state, timer));
}

static void hurry(pb_response *response)
{
    pb_request *request = PB_CONTAINER(response, pb_request, response);
    fetch_state *fetch = request->state;
    fetch->hurried = request->connection->closing; /* else it is answered with what there is */
    if (fetch->waiting)
        give_up(fetch);
}

/* Register on every partition; false when one has moved since it was read. */
static bool wait_for_more(fetch_state *fetch)
{
    pb_server_reactor *home = fetch->request->home;
    if (pb_timer_set(&home->reactor.timers, &fetch->timer, fetch->deadline_ns) < 0)
        return false;
    fetch->waiting = true;
    end_local(fetch);
    pb_counter_add(&home->counters.delayed_fetches, 1);
    atomic_store(&fetch->missing_bytes, fetch->min_bytes - fetch->bytes);
    for (int32_t i = 0; i < fetch->item_count; i++) {
        fetch_item *item = &fetch->items[i];
        int64_t seen = fetch->replica_id >= 0 ? item->ends.written_offset : item->ends.high_watermark;
        if (item->partition != NULL && !pb_partition_wait(item->partition, &item->waiter, seen)) {
            stop_waiting(fetch);
            return false;
        }
    }
    return true;
}

/* Memory that is lent to one at a time is not waited with. */
static bool holds_overdraft(const pb_request *request)
{
    return request->chunk != NULL && request->chunk->overdraft;
}

static bool is_enough(const fetch_state *fetch)
{
    return fetch->bytes >= fetch->min_bytes || fetch->has_news || fetch->item_count == 0 || fetch->hurried ||
           fetch->request->connection->leaving || fetch->request->home->reactor.now_ns >= fetch->deadline_ns ||
           holds_overdraft(fetch->request);
}

/* Enough has been found, or it is not waited for: true. */
static bool settles(fetch_state *fetch)
{
    if (is_enough(fetch))
        return true;
    if (wait_for_more(fetch))
        pb_fetch_unpin(fetch); /* a segment is not kept open by a fetch that waits */
    return false;
}

static void proceed(fetch_state *fetch)
{
    for (int attempt = 0; attempt < REGISTER_ATTEMPTS; attempt++) {
        pb_fetch_unpin(fetch);
        if (!pb_fetch_read_resident(fetch)) {
            pb_fetch_look_up(fetch);
            return;
        }
        if (settles(fetch))
            break;
        if (fetch->waiting || atomic_load(&fetch->woken))
            return; /* woken while registering: the wake task goes on */
    }
    finish(fetch);
}

void pb_fetch_looked_up(fetch_state *fetch)
{
    if (!settles(fetch) && (fetch->waiting || atomic_load(&fetch->woken)))
        return;
    finish(fetch);
}

/* ---- setting up ---- */

static void prepare_item(fetch_state *fetch, fetch_item *item)
{
    pb_registry *registry = &fetch->request->home->broker->registry;
    bool by_id = fetch->request->header.request_api_version >= 13;
    bool known = false;
    item->waiter.owner = fetch;
    item->waiter.wake = wake;
    item->waiter.is_follower = fetch->replica_id >= 0;
    item->waiter.from_follower = fetch->from_follower;
    if (fetch->replica_id < 0)
        item->known_high_watermark = INT64_MAX;
    item->waiter.known_high_watermark = item->known_high_watermark;
    item->partition = by_id ? pb_registry_by_id(registry, item->topic_id.bytes, item->index, &known)
                            : pb_registry_by_name(registry, item->topic.data, (size_t)item->topic.length, item->index);
    if (item->partition == NULL)
        item->error = by_id && !known ? PB_KAFKA_UNKNOWN_TOPIC_ID : PB_KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
}

static int items_from_session(fetch_state *fetch)
{
    pb_fetch_session *session = fetch->session;
    fetch->items = pb_arena_alloc_array(&fetch->request->arena, (size_t)session->partition_count, sizeof *fetch->items);
    if (fetch->items == NULL)
        return -ENOMEM;
    for (pb_link *link = session->partitions.next; link != &session->partitions; link = link->next) {
        pb_session_partition *cached = PB_CONTAINER(link, pb_session_partition, link);
        fetch_item *item = &fetch->items[fetch->item_count++];
        memset(item, 0, sizeof *item);
        item->topic = pb_session_partition_topic(cached);
        item->topic_id = cached->topic_id;
        item->index = cached->index;
        item->max_bytes = cached->max_bytes;
        item->current_leader_epoch = cached->current_leader_epoch;
        item->last_fetched_epoch = cached->last_fetched_epoch;
        item->offset = cached->fetch_offset;
        item->log_start_offset = cached->log_start_offset;
        item->known_high_watermark = cached->known_high_watermark;
        item->cached = cached;
        prepare_item(fetch, item);
    }
    return 0;
}

/* The name outlives the chunk that it came in. */
static int keep_topic(fetch_state *fetch, pb_slice *topic)
{
    if (fetch->request->chunk == NULL || topic->length <= 0)
        return 0;
    void *copy = pb_arena_alloc(&fetch->request->arena, (size_t)topic->length);
    if (copy == NULL)
        return -ENOMEM;
    memcpy(copy, topic->data, (size_t)topic->length);
    topic->data = copy;
    return 0;
}

static void fill_item(fetch_item *item, const pb_fetch_request_fetch_partition *asked)
{
    item->index = asked->partition;
    item->max_bytes = asked->partition_max_bytes;
    item->current_leader_epoch = asked->current_leader_epoch;
    item->last_fetched_epoch = asked->last_fetched_epoch;
    item->offset = asked->fetch_offset;
    item->log_start_offset = asked->log_start_offset;
    item->known_high_watermark = asked->high_watermark;
}

static int order_of(const fetch_item *a, const fetch_item *b)
{
    int order = memcmp(&a->topic_id, &b->topic_id, sizeof a->topic_id);
    if (order == 0 && a->topic.length != b->topic.length)
        order = a->topic.length < b->topic.length ? -1 : 1;
    if (order == 0 && a->topic.length > 0)
        order = memcmp(a->topic.data, b->topic.data, (size_t)a->topic.length);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

static int compare_items(const void *left, const void *right)
{
    const fetch_item *a = *(fetch_item *const *)left, *b = *(fetch_item *const *)right;
    int order = order_of(a, b);
    return order != 0 ? order : (a > b) - (a < b); /* as they came */
}

/* As Kafka: of a partition that is named again the last naming counts, in the place of the first. Each is one item, or
 * a request could have a partition looked at a hundred thousand times at every append. */
static int drop_repeated(fetch_state *fetch)
{
    int32_t count = fetch->item_count;
    fetch_item **sorted = pb_arena_alloc_array(&fetch->request->arena, (size_t)count, sizeof(fetch_item *));
    if (sorted == NULL)
        return -ENOMEM;
    for (int32_t i = 0; i < count; i++)
        sorted[i] = &fetch->items[i];
    qsort(sorted, (size_t)count, sizeof(fetch_item *), compare_items);
    fetch_item *first = count > 0 ? sorted[0] : NULL;
    for (int32_t i = 1; i < count; i++) {
        if (order_of(first, sorted[i]) != 0) {
            first = sorted[i];
            continue;
        }
        *first = *sorted[i];
        sorted[i]->repeated = true;
    }
    fetch->item_count = 0;
    for (int32_t i = 0; i < count; i++)
        if (!fetch->items[i].repeated)
            fetch->items[fetch->item_count++] = fetch->items[i];
    return 0;
}

static int items_from_request(fetch_state *fetch)
{
    int64_t count = 0;
    for (int32_t i = 0; i < fetch->in.topics_count; i++)
        count += fetch->in.topics[i].partitions_count;
    fetch->items = pb_arena_alloc_array(&fetch->request->arena, (size_t)count, sizeof *fetch->items);
    if (fetch->items == NULL)
        return -ENOMEM;
    for (int32_t i = 0; i < fetch->in.topics_count; i++) {
        pb_fetch_request_fetch_topic *topic = &fetch->in.topics[i];
        if (keep_topic(fetch, &topic->topic) != 0)
            return -ENOMEM;
        for (int32_t k = 0; k < topic->partitions_count; k++) {
            fetch_item *item = &fetch->items[fetch->item_count++];
            memset(item, 0, sizeof *item);
            item->topic = topic->topic;
            item->topic_id = topic->topic_id;
            fill_item(item, &topic->partitions[k]);
        }
    }
    if (count > 1 && drop_repeated(fetch) != 0)
        return -ENOMEM;
    for (int32_t i = 0; i < fetch->item_count; i++)
        prepare_item(fetch, &fetch->items[i]);
    return 0;
}

/* Looks for replicas that are nearer to this consumer. */
static void find_near(fetch_state *fetch)
{
    pb_broker *broker = fetch->request->home->broker;
    if (fetch->replica_id >= 0)
        return;
    fetch->near_count = pb_racks_find(&broker->racks, fetch->in.rack_id, fetch->near, FETCH_NEAR_MAX);
    for (int i = 0; i < fetch->near_count; i++)
        if (fetch->near[i] == broker->settings.node_id)
            fetch->near_count = 0;
}

/* Session and items. 0, a Kafka code, or -ENOMEM. */
static int open_fetch(fetch_state *fetch)
{
    pb_request *request = fetch->request;
    int16_t version = request->header.request_api_version;
    fetch->replica_id = version >= 15 ? fetch->in.replica_state.replica_id : fetch->in.replica_id;
    fetch->replica_epoch = version >= 15 ? fetch->in.replica_state.replica_epoch : -1;
    fetch->read_committed = fetch->in.isolation_level == 1 && fetch->replica_id < 0;
    fetch->from_follower = fetch->replica_id < 0 && version >= NEAREST_VERSION;
    find_near(fetch);
    /* As Kafka: no more is waited for than can be answered. */
    fetch->limit_bytes = request->home->broker->settings.fetch_max_bytes;
    if (fetch->in.max_bytes < fetch->limit_bytes)
        fetch->limit_bytes = fetch->in.max_bytes;
    if (is_limited(fetch)) {
        int64_t most_bytes =
            pb_client_quotas_fetch_bytes(&request->home->broker->client_quotas, request->header.client_id);
        fetch->limit_bytes = most_bytes < fetch->limit_bytes ? (int32_t)most_bytes : fetch->limit_bytes;
    }
    fetch->min_bytes = fetch->in.min_bytes < fetch->limit_bytes ? fetch->in.min_bytes : fetch->limit_bytes;
    int result = pb_fetch_session_begin(&request->home->broker->sessions, &fetch->in, version,
                                        request->home->reactor.wall_ms, &fetch->session, &fetch->full);
    if (result != 0)
        return result;
    return fetch->session != NULL ? items_from_session(fetch) : items_from_request(fetch);
}

void pb_fetch_handle(pb_request *request)
{
    pb_reader reader = pb_reader_of(request->body, request->body_length);
    fetch_state *fetch = pb_arena_alloc(&request->arena, sizeof *fetch);
    int result = -ENOMEM;
    if (fetch != NULL) {
        memset(fetch, 0, sizeof *fetch);
        result = pb_fetch_request_read(&reader, request->header.request_api_version, &request->arena, &fetch->in);
    }
    if (result != 0) {
        pb_events_notice_peer(&request->home->broker->events, request->connection->host,
                              "closing the connection from %s: a Fetch request that %s", request->connection->host,
                              result == -ENOMEM ? "asks for too much memory" : "cannot be read");
        pb_request_abandon(request);
        return;
    }
    fetch->request = request;
    request->state = fetch;
    request->cleanup = cleanup;
    request->response.hurry = hurry;
    fetch->wake.run = awake;
    fetch->timer.fire = expired;
    int64_t wait_ms = fetch->in.max_wait_ms > 0 ? fetch->in.max_wait_ms : 0;
    fetch->began_ns = request->home->reactor.now_ns;
    fetch->deadline_ns = fetch->began_ns + wait_ms * 1000000;
    result = open_fetch(fetch);
    if (result != 0) {
        pb_fetch_answer_error(fetch, result);
        return;
    }
    (void)pb_request_leave_chunk(request);
    proceed(fetch);
}
