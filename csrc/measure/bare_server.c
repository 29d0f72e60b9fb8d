/* A server that receives and answers; see bare_server.h. All but start and stop runs on its thread. */
#include "measure/bare_server.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "measure/frame.h"

#define RECEIVE_BYTES (256u << 10)
#define ANSWER_MAX_BYTES (64LL << 20)
#define ANSWERS_AT_ONCE 16
#define TURN_NS 100000000LL

/* One connection; its slot is used again when it has ended. */
typedef struct bare_connection {
    pb_bare_server *server;
    pb_socket socket;
    pb_frame_reader reader;
    int64_t owed;      /* answers not begun */
    int64_t remaining; /* bytes of those under way */
    bool is_open;
    bool is_ending;
    struct iovec iov[ANSWERS_AT_ONCE];
    uint8_t buffer[RECEIVE_BYTES];
} bare_connection;

struct pb_bare_server {
    pb_io *io;
    pb_loop *loop;
    pb_thread *thread;
    pb_socket listener;
    pb_bare_server_options options;
    uint8_t *answer;
    int64_t position; /* in the scratch, of the next answer */
    atomic_bool stops;
    bool has_begun;
    bool is_listening;
    bool is_closing;
    pb_bare_server_usage usage;
    bare_connection *connections[PB_BARE_SERVER_CONNECTIONS];
};

static void receive_more(bare_connection *connection)
{
    pb_bare_server *server = connection->server;
    server->io->ops->socket_recv(server->loop, &connection->socket, connection->buffer, RECEIVE_BYTES);
}

static void end(bare_connection *connection)
{
    if (connection->is_ending)
        return;
    connection->is_ending = true;
    connection->server->io->ops->socket_shutdown(connection->server->loop, &connection->socket);
}

/* Closed as soon as the kernel has let go of both operations. */
static void close_if_ended(bare_connection *connection)
{
    if (!connection->is_ending || connection->socket.receive.active || connection->socket.transmit.active)
        return;
    connection->server->io->ops->socket_close(connection->server->loop, &connection->socket);
    connection->is_open = false;
}

/* From memory: as many answers as are owed, in one call. */
static void send_memory(bare_connection *connection)
{
    pb_bare_server *server = connection->server;
    int64_t answer_bytes = server->options.answer_bytes;
    if (connection->remaining == 0) {
        int64_t count = connection->owed < ANSWERS_AT_ONCE ? connection->owed : ANSWERS_AT_ONCE;
        connection->owed -= count;
        connection->remaining = count * answer_bytes;
    }
    int count = 0;
    int64_t first = connection->remaining % answer_bytes, rest = connection->remaining - first;
    if (first > 0)
        connection->iov[count++] = (struct iovec){server->answer + answer_bytes - first, (size_t)first};
    for (; rest > 0; rest -= answer_bytes)
        connection->iov[count++] = (struct iovec){server->answer, (size_t)answer_bytes};
    server->io->ops->socket_send(server->loop, &connection->socket, connection->iov, count);
}

/* How much of an answer's prefix has not been sent. */
static int64_t prefix_left(const bare_connection *connection)
{
    int64_t sent = connection->server->options.answer_bytes - connection->remaining;
    return sent < PB_FRAME_PREFIX_BYTES ? PB_FRAME_PREFIX_BYTES - sent : 0;
}

/* The prefix from memory, then the bytes of the file. */
static void send_scratch(bare_connection *connection)
{
    pb_bare_server *server = connection->server;
    int64_t answer_bytes = server->options.answer_bytes;
    if (connection->remaining == 0) {
        connection->owed--;
        connection->remaining = answer_bytes;
    }
    int64_t prefix_bytes = prefix_left(connection), file_bytes = connection->remaining - prefix_bytes;
    connection->iov[0] = (struct iovec){server->answer + PB_FRAME_PREFIX_BYTES - prefix_bytes, (size_t)prefix_bytes};
    if (server->position + file_bytes > server->options.scratch_bytes)
        server->position = 0;
    server->io->ops->socket_sendfile(server->loop, &connection->socket, connection->iov, prefix_bytes > 0, 0,
                                     pb_scratch_file(server->options.scratch), server->position, (size_t)file_bytes);
}

static void answer(bare_connection *connection)
{
    if (connection->is_ending || connection->socket.transmit.active)
        return;
    if (connection->remaining == 0 && connection->owed == 0)
        return;
    if (connection->server->options.scratch != NULL)
        send_scratch(connection);
    else
        send_memory(connection);
}

static void sent(pb_op *op, int64_t result)
{
    bare_connection *connection = PB_CONTAINER(op, bare_connection, socket.transmit);
    pb_bare_server *server = connection->server;
    if (result <= 0 && result != -EAGAIN) {
        end(connection);
    } else if (result > 0) {
        PB_ASSERT(result <= connection->remaining);
        int64_t prefix_bytes = prefix_left(connection);
        server->position += result > prefix_bytes ? result - prefix_bytes : 0; /* without a scratch nobody looks */
        connection->remaining -= result;
    }
    answer(connection);
    close_if_ended(connection);
}

static void received(pb_op *op, int64_t result)
{
    bare_connection *connection = PB_CONTAINER(op, bare_connection, socket.receive);
    if (result > 0) {
        int64_t frames = pb_frame_read(&connection->reader, connection->buffer, result);
        connection->owed += frames;
        connection->server->usage.frames += frames;
        answer(connection);
    }
    if ((result > 0 || result == -EAGAIN) && !connection->is_ending)
        receive_more(connection);
    else
        end(connection);
    close_if_ended(connection);
}

static bare_connection *free_slot(pb_bare_server *server)
{
    for (int i = 0; i < PB_BARE_SERVER_CONNECTIONS; i++) {
        if (server->connections[i] == NULL)
            server->connections[i] = calloc(1, sizeof *server->connections[i]);
        if (server->connections[i] != NULL && !server->connections[i]->is_open)
            return server->connections[i];
    }
    return NULL;
}

static void open_connection(pb_bare_server *server, int fd)
{
    bare_connection *connection = free_slot(server);
    pb_socket unwanted = {.fd = fd};
    if (connection == NULL) {
        server->io->ops->socket_close(server->loop, &unwanted);
        return;
    }
    memset(connection, 0, offsetof(bare_connection, buffer));
    connection->server = server;
    connection->socket.fd = fd;
    connection->socket.receive.done = received;
    connection->socket.transmit.done = sent;
    if (server->io->ops->socket_attach(server->loop, &connection->socket) < 0) {
        server->io->ops->socket_close(server->loop, &connection->socket);
        return;
    }
    connection->is_open = true;
    receive_more(connection);
}

static void accepted(pb_op *op, int64_t result)
{
    pb_bare_server *server = PB_CONTAINER(op, pb_bare_server, listener.receive);
    server->is_listening = false;
    if (result >= 0)
        open_connection(server, (int)result);
    if (server->is_closing)
        return;
    server->is_listening = true;
    server->io->ops->socket_accept(server->loop, &server->listener);
}

/* Whether nothing is active any more. */
static bool has_closed(pb_bare_server *server)
{
    if (!server->is_closing) {
        server->is_closing = true;
        server->io->ops->socket_shutdown(server->loop, &server->listener);
    }
    bool has_closed_all = !server->is_listening;
    for (int i = 0; i < PB_BARE_SERVER_CONNECTIONS; i++) {
        bare_connection *connection = server->connections[i];
        if (connection == NULL || !connection->is_open)
            continue;
        end(connection);
        close_if_ended(connection);
        has_closed_all = has_closed_all && !connection->is_open;
    }
    return has_closed_all;
}

/* Wait for work, spinning first as a reactor does. */
static void turn(pb_bare_server *server)
{
    pb_io *io = server->io;
    int64_t until_ns = io->ops->monotonic_ns(io) + server->options.spin_ns;
    if (server->options.spin_ns > 0) {
        do {
            if (io->ops->loop_turn(server->loop, 0) > 0)
                return;
        } while (io->ops->monotonic_ns(io) < until_ns);
    }
    (void)io->ops->loop_turn(server->loop, TURN_NS);
}

static enum pb_step step(void *context)
{
    pb_bare_server *server = context;
    if (!server->has_begun) {
        server->has_begun = true;
        server->is_listening = true;
        server->io->ops->socket_accept(server->loop, &server->listener);
    }
    turn(server);
    if (!atomic_load(&server->stops))
        return PB_STEP_AGAIN;
    if (!has_closed(server))
        return PB_STEP_AGAIN;
    server->io->ops->socket_close(server->loop, &server->listener);
    server->usage.cpu_ns = pb_meter_cpu_ns();
    return PB_STEP_END;
}

static void destroy(pb_bare_server *server)
{
    if (server->loop != NULL)
        server->io->ops->loop_close(server->loop);
    for (int i = 0; i < PB_BARE_SERVER_CONNECTIONS; i++)
        free(server->connections[i]);
    free(server->answer);
    free(server);
}

static void write_prefix(uint8_t *to, uint32_t length)
{
    const uint32_t big_endian = __builtin_bswap32(length);
    memcpy(to, &big_endian, sizeof big_endian);
}

int pb_bare_server_start(pb_io *io, const pb_bare_server_options *options, pb_bare_server **out, int *port,
                         pb_failure *failure)
{
    int64_t answer_bytes = options->answer_bytes;
    if (answer_bytes <= PB_FRAME_PREFIX_BYTES || answer_bytes > ANSWER_MAX_BYTES ||
        (options->scratch != NULL && options->scratch_bytes < answer_bytes))
        return pb_fail(failure, -EINVAL, "answers of %lld bytes cannot be measured", (long long)answer_bytes);
    pb_bare_server *server = calloc(1, sizeof *server);
    if (server == NULL)
        return pb_fail(failure, -ENOMEM, "measuring the network");
    server->io = io;
    server->options = *options;
    server->listener.receive.done = accepted;
    server->answer = calloc(1, (size_t)answer_bytes);
    server->listener.fd = -1;
    int result = -ENOMEM;
    if (server->answer == NULL) {
        pb_fail(failure, result, "measuring the network");
    } else {
        write_prefix(server->answer, (uint32_t)(answer_bytes - PB_FRAME_PREFIX_BYTES));
        result = io->ops->loop_open(io, &server->loop, failure);
    }
    if (result == 0)
        result = server->listener.fd = io->ops->socket_listen(io, "127.0.0.1", 0, port, failure);
    if (result >= 0) {
        result = io->ops->thread_start(io, "pb-bare-server", PB_RANK_URGENT, step, server, &server->thread);
        if (result < 0)
            pb_fail(failure, result, "cannot start a thread");
    }
    if (result < 0) {
        if (server->listener.fd >= 0)
            io->ops->socket_close(server->loop, &server->listener);
        destroy(server);
        return result;
    }
    *out = server;
    return 0;
}

void pb_bare_server_stop(pb_bare_server *server, pb_bare_server_usage *out)
{
    atomic_store(&server->stops, true);
    server->io->ops->loop_wake(server->loop);
    server->io->ops->thread_join(server->thread);
    *out = server->usage;
    destroy(server);
}
