/*
 * The treatment of a frame: order, versions, and its handler. Reactor thread only.
 *
 * A connection's requests are executed as if one at a time. There is one overlap: a Produce is appended while earlier
 * Produces of the same connection wait for their writes. It is not while one of these waits for a transaction
 * coordinator, as nobody knows yet how that ends. Everything else waits for its turn, which also is the back-pressure
 * on a client that pipelines without reading.
 */
#include <errno.h>
#include <string.h>

#include "io/descriptors.h"
#include "server/fetch/fetch.h"

#define PIPELINED_PRODUCES_MAX 128
#define UNSENT_ANSWERS_BYTES (256 * 1024) /* memory for answers to a client that pipelines without reading */
/* Requests up to this that may wait long (all but Produce) are copied, so that they do not hold a whole receive buffer.
 */
#define COPIED_REQUEST_BYTES 4096
#define THROTTLE_TOLD_EVERY_NS 10000000000LL

static pb_broker *broker_of(pb_connection *connection)
{
    return connection->owner;
}

static void complain(pb_connection *connection, const char *what)
{
    pb_server_reactor *home = pb_server_reactor_of(connection->reactor);
    pb_counter_add(&home->counters.bad_requests, 1);
    pb_events_notice_peer(&home->broker->events, connection->host, "closing the connection from %s: %s",
                          connection->host, what);
}

/* May a request of this API start now, given what is still in flight on the connection? */
static bool may_start(const pb_connection *connection, bool produce)
{
    if (connection->response_count == 0)
        return true;
    if (!produce || connection->response_count >= PIPELINED_PRODUCES_MAX)
        return false;
    size_t unsent_bytes = 0;
    for (const pb_link *link = connection->responses.next; link != &connection->responses; link = link->next) {
        const pb_response *response = PB_CONTAINER(link, pb_response, link);
        const pb_request *request = PB_CONTAINER(response, pb_request, response);
        if (!response->ready && (request->header.request_api_key != PB_API_PRODUCE || request->is_exclusive))
            return false;
        unsent_bytes += response->ready ? request->writer.capacity + request->arena.held_bytes : 0;
    }
    return unsent_bytes < UNSENT_ANSWERS_BYTES;
}

static bool is_produce(const uint8_t *frame, uint32_t length)
{
    return length >= 2 && frame[0] == 0 && frame[1] == PB_API_PRODUCE;
}

/* Producers and consumers go before the control plane. */
static void notice_kind(pb_request *request)
{
    pb_reactor *reactor = &request->home->reactor;
    int16_t key = request->header.request_api_key;
    bool is_data = key == PB_API_PRODUCE || key == PB_API_FETCH;
    request->connection->socket.patient = !is_data;
    if (is_data)
        reactor->data_until_ns = reactor->now_ns + PB_REACTOR_HURRY_NS;
    else
        pb_reactor_notice_control(reactor);
}

static void route(pb_request *request)
{
    pb_server_reactor *home = request->home;
    pb_counter_add(&home->counters.requests, 1);
    notice_kind(request);
    switch (request->header.request_api_key) {
    case PB_API_PRODUCE:
        pb_counter_add(&home->counters.produce_requests, 1);
        pb_produce_handle(request);
        break;
    case PB_API_FETCH:
        pb_counter_add(&home->counters.fetch_requests, 1);
        pb_fetch_handle(request);
        break;
    default:
        pb_slow_path_handle(request);
    }
}

static void put_back(pb_request *request)
{
    pb_list_push_back(&request->home->free_requests, &request->link);
    pb_arena_reset(&request->arena);
    request->home->free_count++;
}

static enum pb_frame_verdict refuse(pb_connection *connection, pb_request *request, int error)
{
    if (connection->response_count > 0) { /* what came before is answered first */
        put_back(request);
        return PB_FRAME_HOLD;
    }
    pb_server_reactor *home = request->home;
    const pb_request_header *header = &request->header;
    pb_counter_add(&home->counters.bad_requests, 1);
    if (error != 0)
        pb_events_notice_peer(
            &home->broker->events, connection->host,
            "closing the connection from %s: the request header of API key %d version %d cannot be read",
            connection->host, header->request_api_key, header->request_api_version);
    else
        pb_events_notice_peer(&home->broker->events, connection->host,
                              "closing the connection from %s: %s version %d is not served", connection->host,
                              request->api->name, header->request_api_version);
    put_back(request);
    return PB_FRAME_REFUSE;
}

static bool may_begin(pb_connection *connection, const uint8_t *frame, uint32_t length)
{
    return may_start(connection, is_produce(frame, length));
}

/* Move a small request out of the chunk: true when `*frame` is a copy in the request's arena. */
static bool copy_small(pb_request *request, const uint8_t **frame, uint32_t length)
{
    if (length > COPIED_REQUEST_BYTES || is_produce(*frame, length))
        return false;
    uint8_t *copy = pb_arena_alloc(&request->arena, length);
    if (copy == NULL)
        return false;
    memcpy(copy, *frame, length);
    *frame = copy;
    return true;
}

static enum pb_frame_verdict take_frame(pb_connection *connection, pb_chunk *chunk, const uint8_t *frame,
                                        uint32_t length)
{
    pb_server_reactor *home = pb_server_reactor_of(connection->reactor);
    if (!may_start(connection, is_produce(frame, length)))
        return PB_FRAME_HOLD;
    pb_request *request = pb_request_take(home);
    if (request == NULL) {
        complain(connection, "no memory for another request");
        return PB_FRAME_REFUSE;
    }
    if (copy_small(request, &frame, length))
        chunk = NULL;
    int result = pb_request_parse(request, frame, length);
    if (result != 0)
        return refuse(connection, request, result);
    if (!request->served && request->header.request_api_key != PB_API_API_VERSIONS)
        return refuse(connection, request, 0);
    pb_request_enter(request, connection, chunk);
    route(request);
    return PB_FRAME_TAKEN;
}

static void starved(pb_connection *connection)
{
    pb_server_reactor *home = pb_server_reactor_of(connection->reactor);
    pb_broker *broker = home->broker;
    pb_counter_add(&home->counters.throttled, 1);
    for (int i = 0; i < broker->settings.reactor_count; i++)
        pb_reactor_press(&broker->reactors[i].reactor);
    int64_t told_ns = atomic_load_explicit(&broker->throttle_told_ns, memory_order_relaxed);
    if (told_ns != 0 && home->reactor.now_ns - told_ns < THROTTLE_TOLD_EVERY_NS)
        return;
    atomic_store_explicit(&broker->throttle_told_ns, home->reactor.now_ns, memory_order_relaxed);
    pb_events_tell_peer(&broker->events, PB_ABOUT_THROTTLE, connection->host,
                        "%s has to wait: connections hold %lld of the %lld bytes of pybroker.buffer.budget.bytes",
                        connection->host, (long long)pb_pool_used_bytes(&broker->pool),
                        (long long)broker->pool.budget_bytes);
}

static void closed(pb_connection *connection)
{
    atomic_fetch_sub(&broker_of(connection)->connections, 1);
    pb_descriptors_give_connection();
}

void pb_dispatch_init(pb_connection_handler *handler, uint32_t max_frame_bytes)
{
    handler->frame = take_frame;
    handler->may_begin = may_begin;
    handler->malformed = complain;
    handler->starved = starved;
    handler->closed = closed;
    handler->place = pb_fetch_place_to_send;
    handler->max_frame_bytes = max_frame_bytes;
}
