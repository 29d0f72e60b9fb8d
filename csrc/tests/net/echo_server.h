/* A reactor on the simulated machine whose handler answers each frame with its length and sum. For tests of
 * connections. */
#ifndef PB_TESTS_NET_ECHO_SERVER_H
#define PB_TESTS_NET_ECHO_SERVER_H

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "io/sim/sim.h"
#include "net/connection.h"
#include "tests/check.h"

enum { ECHO_ANSWER_BYTES = 8, ECHO_STEP_LIMIT = 2000000 };

typedef struct echo_server {
    pb_io *io;
    pb_pool pool;
    pb_reactor reactor;
    pb_connection_handler handler;
    pb_socket listener;
    int port;
    int open; /* connections */
    int complaints;
    int requests; /* not yet released */
    bool slow;    /* answers are kept back until echo_release */
    pb_link kept;
} echo_server;

typedef struct echo_request {
    pb_link link;
    pb_response response;
    pb_connection *connection;
    echo_server *server;
    pb_chunk *chunk;
    pb_output output;
    uint8_t answer[ECHO_ANSWER_BYTES];
} echo_request;

static uint32_t echo_sum(const uint8_t *bytes, uint32_t length)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < length; i++)
        sum = sum * 31 + bytes[i];
    return sum;
}

static void echo_released(pb_response *response, bool sent)
{
    (void)sent;
    echo_request *request = PB_CONTAINER(response, echo_request, response);
    request->server->requests--;
    pb_chunk_release(request->chunk);
    free(request);
}

static void echo_respond(echo_request *request)
{
    request->output = (pb_output){.data = request->answer, .length = ECHO_ANSWER_BYTES};
    request->response.outputs = &request->output;
    request->response.output_count = 1;
    pb_connection_respond(request->connection, &request->response);
    pb_connection_resume(request->connection);
}

static enum pb_frame_verdict echo_frame(pb_connection *connection, pb_chunk *chunk, const uint8_t *frame,
                                        uint32_t length)
{
    echo_server *server = connection->owner;
    if (connection->response_count >= 64)
        return PB_FRAME_HOLD;
    echo_request *request = calloc(1, sizeof *request);
    CHECK(request != NULL);
    uint32_t fields[2] = {htobe32(length), htobe32(echo_sum(frame, length))};
    memcpy(request->answer, fields, sizeof fields);
    request->connection = connection;
    request->server = server;
    request->chunk = chunk;
    request->response.released = echo_released;
    pb_list_init(&request->link);
    pb_chunk_retain(chunk);
    server->requests++;
    pb_connection_expect(connection, &request->response);
    if (server->slow)
        pb_list_push_back(&server->kept, &request->link);
    else
        echo_respond(request);
    return PB_FRAME_TAKEN;
}

static inline void echo_release(echo_server *server)
{
    pb_link *link;
    while ((link = pb_list_pop_front(&server->kept)) != NULL)
        echo_respond(PB_CONTAINER(link, echo_request, link));
}

static void echo_malformed(pb_connection *connection, const char *what)
{
    (void)what;
    ((echo_server *)connection->owner)->complaints++;
}

static void echo_starved(pb_connection *connection)
{
    pb_reactor_press(connection->reactor);
}

static void echo_closed(pb_connection *connection)
{
    ((echo_server *)connection->owner)->open--;
}

static void echo_turn_end(pb_reactor *reactor)
{
    (void)reactor;
}

static void echo_accepted(pb_op *op, int64_t result)
{
    echo_server *server = PB_CONTAINER(PB_CONTAINER(op, pb_socket, receive), echo_server, listener);
    if (result < 0) {
        server->io->ops->socket_close(server->reactor.loop, &server->listener);
        server->reactor.holds--;
        return;
    }
    server->open++;
    CHECK(pb_connection_open(&server->reactor, (int)result, &server->handler, server, result, 0) != NULL);
    server->io->ops->socket_accept(server->reactor.loop, &server->listener);
}

static inline void echo_start(echo_server *server, uint64_t seed, int64_t budget_bytes, uint32_t max_frame_bytes)
{
    memset(server, 0, sizeof *server);
    pb_failure failure = {0};
    CHECK_INT(pb_io_sim_open(seed, &server->io), 0);
    pb_pool_init(&server->pool, budget_bytes);
    pb_list_init(&server->kept);
    pb_reactor_options options = {.io = server->io, .pool = &server->pool, .turn_end = echo_turn_end, .owner = server};
    CHECK_INT(pb_reactor_init(&server->reactor, &options, &failure), 0);
    server->handler = (pb_connection_handler){.frame = echo_frame,
                                              .malformed = echo_malformed,
                                              .starved = echo_starved,
                                              .closed = echo_closed,
                                              .max_frame_bytes = max_frame_bytes};
    server->listener.fd = server->io->ops->socket_listen(server->io, "", 0, &server->port, &failure);
    server->listener.receive.done = echo_accepted;
    server->reactor.holds++;
    server->io->ops->socket_accept(server->reactor.loop, &server->listener);
    CHECK_INT(pb_reactor_start(&server->reactor, &failure), 0);
}

static inline void echo_stop(echo_server *server)
{
    echo_release(server);
    server->io->ops->socket_shutdown(server->reactor.loop, &server->listener);
    pb_reactor_stop(&server->reactor);
    CHECK_INT(server->open, 0);
    CHECK_INT(server->requests, 0);
    CHECK_INT(pb_pool_used_bytes(&server->pool), 0);
    CHECK_INT(atomic_load(&server->pool.starved), 0);
    pb_reactor_destroy(&server->reactor);
    pb_pool_destroy(&server->pool);
    server->io->ops->close(server->io);
}

/* Let the machine run for `ns` of its time. */
static inline void echo_run(echo_server *server, int64_t ns)
{
    int64_t until = server->io->ops->monotonic_ns(server->io) + ns;
    for (int step = 0; server->io->ops->monotonic_ns(server->io) < until; step++) {
        CHECK(step < ECHO_STEP_LIMIT);
        (void)pb_sim_step(server->io);
    }
}

static inline void echo_send(echo_server *server, int client, uint32_t length, uint32_t first, uint32_t end)
{
    if (end > length + 4)
        end = length + 4;
    uint8_t *part = malloc(end - first + 1);
    CHECK(part != NULL);
    uint32_t size = htobe32(length);
    for (uint32_t i = first; i < end; i++)
        part[i - first] = i < 4 ? ((const uint8_t *)&size)[i] : (uint8_t)((i - 4) * 7 + length);
    pb_sim_client_send(server->io, client, part, end - first);
    free(part);
}

/* The next answer must be to a frame of `length` from echo_send. */
static inline void echo_expect(echo_server *server, int client, uint32_t length)
{
    uint8_t answer[ECHO_ANSWER_BYTES];
    size_t got = 0;
    for (int step = 0; got < sizeof answer; step++) {
        CHECK(step < ECHO_STEP_LIMIT);
        int64_t part = pb_sim_client_receive(server->io, client, answer + got, sizeof answer - got);
        CHECK(part >= 0);
        got += (size_t)part;
        if (got < sizeof answer)
            (void)pb_sim_step(server->io);
    }
    uint32_t fields[2];
    memcpy(fields, answer, sizeof fields);
    CHECK_INT(be32toh(fields[0]), length);
    uint8_t *frame = malloc(length + 1);
    CHECK(frame != NULL);
    for (uint32_t i = 0; i < length; i++)
        frame[i] = (uint8_t)(i * 7 + length);
    CHECK_INT(be32toh(fields[1]), echo_sum(frame, length));
    free(frame);
}

static inline bool echo_is_closed(echo_server *server, int client)
{
    uint8_t byte;
    return pb_sim_client_receive(server->io, client, &byte, 1) < 0;
}

#endif
