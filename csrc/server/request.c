/* Requests: parsing headers, building answers, recycling. Reactor thread only. */
#include "server/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/generated/response_header.h"

#define ARENA_LIMIT_BYTES (256u * 1024 * 1024)
#define ARENA_KEEP_BYTES (16u * 1024)
#define ANSWER_LIMIT_BYTES (256u * 1024 * 1024)
#define ANSWER_KEEP_BYTES (64u * 1024)
#define FREE_REQUESTS_MAX 256
#define SLOW_TOLD_EVERY_NS 100000000LL /* by a reactor: when all are slow, some are enough */
#define CLIENT_ID_TOLD_BYTES 64

static void released(pb_response *response, bool sent);

pb_request *pb_request_take(pb_server_reactor *home)
{
    pb_link *link = pb_list_pop_front(&home->free_requests);
    pb_request *request = link != NULL ? PB_CONTAINER(link, pb_request, link) : NULL;
    if (request != NULL) {
        home->free_count--;
    } else {
        request = calloc(1, sizeof *request);
        if (request == NULL)
            return NULL;
        pb_arena_init(&request->arena, ARENA_LIMIT_BYTES);
        pb_writer_init(&request->writer, ANSWER_LIMIT_BYTES);
        request->home = home;
    }
    pb_list_init(&request->link);
    pb_list_init(&request->response.link);
    request->response.released = released;
    request->at_ns[PB_AT_RECEIVED] = home->reactor.now_ns;
    return request;
}

static void destroy(pb_request *request)
{
    pb_arena_free(&request->arena);
    pb_writer_free(&request->writer);
    free(request);
}

static void recycle(pb_request *request)
{
    pb_server_reactor *home = request->home;
    if (request->cleanup != NULL)
        request->cleanup(request);
    if (request->chunk != NULL)
        pb_chunk_release(request->chunk);
    free(request->reply);
    if (home->free_count >= FREE_REQUESTS_MAX) {
        destroy(request);
        return;
    }
    pb_arena_trim(&request->arena, ARENA_KEEP_BYTES);
    if (request->writer.capacity > ANSWER_KEEP_BYTES)
        pb_writer_free(&request->writer);
    pb_writer_reset(&request->writer);
    request->cleanup = NULL;
    request->chunk = NULL;
    request->reply = NULL;
    request->reply_length = 0;
    request->reply_capacity = 0;
    request->mute_ms = 0;
    request->close_instead = false;
    request->is_exclusive = false;
    request->state = NULL;
    request->connection = NULL;
    pb_list_push_back(&home->free_requests, &request->link);
    home->free_count++;
}

void pb_request_recycle_all(pb_server_reactor *home)
{
    pb_link *link;
    while ((link = pb_list_pop_front(&home->free_requests)) != NULL)
        destroy(PB_CONTAINER(link, pb_request, link));
    home->free_count = 0;
}

int pb_request_parse(pb_request *request, const uint8_t *frame, uint32_t length)
{
    request->header = (pb_request_header){.request_api_key = -1, .request_api_version = -1};
    if (length < 8)
        return -EBADMSG;
    pb_broker *broker = request->home->broker;
    int16_t api_key, version;
    memcpy(&api_key, frame, sizeof api_key);
    memcpy(&version, frame + 2, sizeof version);
    api_key = (int16_t)be16toh((uint16_t)api_key);
    version = (int16_t)be16toh((uint16_t)version);
    request->header = (pb_request_header){.request_api_key = api_key, .request_api_version = version};
    request->api = pb_api_find(api_key);
    if (request->api == NULL || api_key < 0 || api_key >= PB_API_KEYS)
        return -EBADMSG;
    request->served = version >= broker->apis[api_key].min_version && version <= broker->apis[api_key].max_version;
    /* An ApiVersions of the future is answered with what we know, so its header must still be read: its client id is
     * where it has always been. */
    int16_t header_version = request->served ? pb_request_header_version(request->api, version) : 1;
    pb_reader reader = pb_reader_of(frame, length);
    int result = pb_request_header_read(&reader, header_version, &request->arena, &request->header);
    if (result != 0)
        return result;
    request->body = frame + reader.position;
    request->body_length = (uint32_t)(length - reader.position);
    return 0;
}

void pb_request_enter(pb_request *request, pb_connection *connection, pb_chunk *chunk)
{
    request->connection = connection;
    if (chunk != NULL)
        pb_chunk_retain(chunk);
    request->chunk = chunk;
    request->at_ns[PB_AT_STARTED] = request->home->reactor.now_ns;
    pb_connection_expect(connection, &request->response);
}

/* The client's name, out of the chunk, up to `most` bytes of it. false: no memory. */
static bool keep_client(pb_request *request, int32_t most)
{
    pb_slice *client = &request->header.client_id;
    if (client->length <= 0)
        return true;
    int32_t length = client->length < most ? client->length : most;
    void *copy = pb_arena_alloc(&request->arena, (size_t)length);
    if (copy == NULL)
        return false;
    memcpy(copy, client->data, (size_t)length);
    *client = (pb_slice){copy, length};
    return true;
}

bool pb_request_leave_chunk(pb_request *request)
{
    if (request->chunk == NULL)
        return true;
    if (!pb_request_is_light(request) || !keep_client(request, INT32_MAX))
        return false;
    request->body = NULL;
    request->body_length = 0;
    pb_chunk_release(request->chunk);
    request->chunk = NULL;
    return true;
}

void pb_request_let_go(pb_request *request)
{
    uint8_t name[CLIENT_ID_TOLD_BYTES]; /* all that is told of it */
    pb_slice *client = &request->header.client_id;
    int32_t length = client->length < CLIENT_ID_TOLD_BYTES ? client->length : CLIENT_ID_TOLD_BYTES;
    if (length > 0)
        memcpy(name, client->data, (size_t)length);
    if (request->cleanup != NULL)
        request->cleanup(request);
    request->cleanup = NULL;
    request->state = NULL;
    pb_arena_trim(&request->arena, ARENA_KEEP_BYTES);
    *client = length > 0 ? (pb_slice){name, length} : PB_EMPTY_SLICE;
    if (!keep_client(request, CLIENT_ID_TOLD_BYTES))
        *client = PB_EMPTY_SLICE;
    if (request->chunk != NULL)
        pb_chunk_release(request->chunk);
    request->chunk = NULL;
}

void pb_request_begin_answer(pb_request *request)
{
    pb_writer_reset(&request->writer);
    pb_write_int32(&request->writer, 0); /* the size, patched when it is known */
    pb_response_header header = {.correlation_id = request->header.correlation_id};
    int16_t version = request->served ? request->header.request_api_version : 0;
    pb_response_header_write(&request->writer, pb_response_header_version(request->api, version), &header);
}

/* Outputs: runs of memory between the gaps, and what fills them. */
static bool lay_out(pb_request *request, const pb_gap_filling *fillings, int filling_count)
{
    pb_writer *writer = &request->writer;
    pb_output *outputs = pb_arena_alloc_array(&request->arena, 2 * writer->gap_count + 1, sizeof *outputs);
    if (outputs == NULL)
        return false;
    size_t position = 0;
    int count = 0, next = 0;
    for (size_t i = 0; i < writer->gap_count; i++) {
        const pb_gap *gap = &writer->gaps[i];
        outputs[count++] = (pb_output){.data = writer->data + position, .length = (int64_t)(gap->position - position)};
        while (next < filling_count && fillings[next].length == 0)
            next++;
        PB_ASSERT(next < filling_count && fillings[next].length == gap->length);
        const pb_gap_filling *filling = &fillings[next++];
        outputs[count++] = (pb_output){
            .data = filling->data, .file = filling->file, .position = filling->position, .length = gap->length};
        position = gap->position;
    }
    outputs[count++] = (pb_output){.data = writer->data + position, .length = (int64_t)(writer->length - position)};
    request->response.outputs = outputs;
    request->response.output_count = count;
    return true;
}

void pb_request_finish_answer(pb_request *request, const pb_gap_filling *fillings, int count)
{
    pb_writer *writer = &request->writer;
    size_t frame_bytes = writer->length + writer->gap_bytes - sizeof(int32_t);
    if (writer->error != 0 || frame_bytes > INT32_MAX || !lay_out(request, fillings, count)) {
        pb_events_notice_peer(&request->home->broker->events, request->connection->host,
                              "no memory for the answer to a %s request from %s; closing its connection",
                              request->api->name, request->connection->host);
        pb_request_abandon(request);
        return;
    }
    pb_writer_patch_int32(writer, 0, (int32_t)frame_bytes);
    request->at_ns[PB_AT_READY] = request->home->reactor.now_ns;
    pb_connection_respond(request->connection, &request->response);
    pb_connection_resume(request->connection);
}

void pb_request_finish_silent(pb_request *request)
{
    request->at_ns[PB_AT_READY] = request->home->reactor.now_ns;
    pb_connection_respond(request->connection, &request->response);
    pb_connection_resume(request->connection);
}

void pb_request_abandon(pb_request *request)
{
    pb_connection_kill(request->connection);
    pb_connection_respond(request->connection, &request->response);
}

static int64_t us_between(const pb_request *request, int from, int to)
{
    return (request->at_ns[to] - request->at_ns[from]) / 1000;
}

/* Fetches wait for data, and members of a group for each other, as long as they ask to. */
static bool is_slow(const pb_request *request, int64_t limit_ns)
{
    int64_t taken_ns = request->at_ns[PB_AT_SENDING] - request->at_ns[PB_AT_RECEIVED];
    if (limit_ns == 0 || taken_ns < limit_ns)
        return false;
    switch (request->header.request_api_key) {
    case PB_API_FETCH:
        return taken_ns - (request->at_ns[PB_AT_READY] - request->at_ns[PB_AT_LOCAL_DONE]) >= limit_ns;
    case PB_API_JOIN_GROUP:
    case PB_API_SYNC_GROUP:
        return false;
    default:
        return true;
    }
}

static void tell_slow(pb_request *request)
{
    pb_server_reactor *home = request->home;
    pb_counter_add(&home->counters.slow_requests, 1);
    if (home->slow_told_ns != 0 && home->reactor.now_ns - home->slow_told_ns < SLOW_TOLD_EVERY_NS)
        return;
    home->slow_told_ns = home->reactor.now_ns;
    pb_slice client = request->header.client_id;
    int length = client.length < 0 ? 0 : client.length < CLIENT_ID_TOLD_BYTES ? client.length : CLIENT_ID_TOLD_BYTES;
    pb_events_tell_peer(
        &home->broker->events, PB_ABOUT_SLOW_REQUEST, request->connection->host,
        "%s version %d of client '%.*s' at %s took %lld ms: in the queue %lld, local %lld, waiting %lld, "
        "sending %lld",
        request->api->name, request->header.request_api_version, length, length > 0 ? (const char *)client.data : "",
        request->connection->host, us_between(request, PB_AT_RECEIVED, PB_AT_SENDING) / 1000LL,
        us_between(request, PB_AT_RECEIVED, PB_AT_STARTED) / 1000LL,
        us_between(request, PB_AT_STARTED, PB_AT_LOCAL_DONE) / 1000LL,
        us_between(request, PB_AT_LOCAL_DONE, PB_AT_READY) / 1000LL,
        us_between(request, PB_AT_READY, PB_AT_SENDING) / 1000LL);
}

static void measure(pb_request *request)
{
    pb_histogram *histograms = request->home->histograms[request->header.request_api_key];
    if (histograms == NULL)
        return;
    if (request->at_ns[PB_AT_LOCAL_DONE] < request->at_ns[PB_AT_STARTED])
        request->at_ns[PB_AT_LOCAL_DONE] = request->at_ns[PB_AT_READY];
    request->at_ns[PB_AT_SENDING] = request->home->reactor.now_ns;
    pb_histogram_add(&histograms[0], us_between(request, PB_AT_RECEIVED, PB_AT_STARTED));
    pb_histogram_add(&histograms[1], us_between(request, PB_AT_STARTED, PB_AT_LOCAL_DONE));
    pb_histogram_add(&histograms[2], us_between(request, PB_AT_LOCAL_DONE, PB_AT_READY));
    pb_histogram_add(&histograms[3], us_between(request, PB_AT_READY, PB_AT_SENDING));
    pb_histogram_add(&histograms[4], us_between(request, PB_AT_RECEIVED, PB_AT_SENDING));
    if (is_slow(request, request->home->broker->settings.slow_request_ns))
        tell_slow(request);
}

static void released(pb_response *response, bool sent)
{
    pb_request *request = PB_CONTAINER(response, pb_request, response);
    if (sent)
        measure(request);
    recycle(request);
}
