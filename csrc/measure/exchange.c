/* The client of a measurement; see exchange.h. Everything on the caller's thread. */
#include "measure/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "measure/frame.h"

#define RECEIVE_BYTES (1u << 20)
#define TURN_NS 100000000LL
#define ANSWER_OVERDUE_NS 30000000000LL

typedef struct exchange exchange;

typedef struct exchange_connection {
    exchange *exchange;
    pb_socket socket;
    pb_frame_reader reader;
    uint8_t *frame;
    int64_t requests;
    int in_flight;                             /* begun and not answered */
    int64_t sent;                              /* bytes of the frame under way; 0: none is */
    int64_t started_ns[PB_EXCHANGE_IN_FLIGHT]; /* of request n at n modulo the size */
    struct iovec iov;
    bool is_open;
    uint8_t *buffer;
} exchange_connection;

/* One run. The first error wins and ends it. */
struct exchange {
    pb_io *io;
    pb_loop *loop;
    const pb_exchange_options *options;
    pb_meter meter;
    int64_t now_ns;
    int64_t answered_ns; /* the last time */
    bool is_over;
    int error;
    int16_t kafka_error;
    exchange_connection connections[PB_EXCHANGE_CONNECTIONS];
};

static void fail(exchange *it, int error)
{
    if (it->error == 0)
        it->error = error;
    it->is_over = true;
}

static void send_rest(exchange_connection *connection)
{
    exchange *it = connection->exchange;
    connection->iov =
        (struct iovec){connection->frame + connection->sent, (size_t)(it->options->frame_bytes - connection->sent)};
    it->io->ops->socket_send(it->loop, &connection->socket, &connection->iov, 1);
}

/* Begin the next request, if one may begin. */
static void send_next(exchange_connection *connection)
{
    exchange *it = connection->exchange;
    const pb_exchange_options *options = it->options;
    if (it->is_over || connection->socket.transmit.active || connection->in_flight >= options->in_flight)
        return;
    if (options->counter_position >= 0) {
        int64_t value = connection->requests % options->counter_count * options->counter_step;
        const uint64_t big_endian = __builtin_bswap64((uint64_t)value);
        memcpy(connection->frame + options->counter_position, &big_endian, sizeof big_endian);
    }
    connection->started_ns[connection->requests++ % PB_EXCHANGE_IN_FLIGHT] = it->io->ops->monotonic_ns(it->io);
    connection->in_flight++;
    connection->sent = 0;
    send_rest(connection);
}

static void sent(pb_op *op, int64_t result)
{
    exchange_connection *connection = PB_CONTAINER(op, exchange_connection, socket.transmit);
    exchange *it = connection->exchange;
    if (result <= 0 && result != -EAGAIN) {
        fail(it, result == 0 ? -EPIPE : (int)result);
        return;
    }
    connection->sent += result > 0 ? result : 0;
    if (connection->sent < it->options->frame_bytes && !it->is_over)
        send_rest(connection);
    else
        send_next(connection);
}

/* An answer is whole. */
static void answered(pb_frame_reader *reader)
{
    exchange_connection *connection = PB_CONTAINER(reader, exchange_connection, reader);
    exchange *it = connection->exchange;
    const pb_exchange_options *options = it->options;
    int64_t answer_bytes = PB_FRAME_PREFIX_BYTES + reader->length;
    if (it->error != 0)
        return; /* several answers may be in one receive; the first that is wrong is told of */
    if (connection->in_flight == 0) {
        fail(it, -EPROTO);
        return;
    }
    if (options->error_position >= 0 && reader->length >= options->error_position + 2) {
        const uint8_t *p = reader->head + options->error_position;
        it->kafka_error = (int16_t)(p[0] << 8 | p[1]);
        if (it->kafka_error != 0)
            fail(it, -EREMOTEIO);
    }
    if (answer_bytes < options->answer_min_bytes)
        fail(it, -EMSGSIZE);
    if (it->error != 0)
        return;
    int64_t first = connection->requests - connection->in_flight;
    connection->in_flight--;
    pb_meter_add(&it->meter, 1, options->frame_bytes + answer_bytes,
                 it->now_ns - connection->started_ns[first % PB_EXCHANGE_IN_FLIGHT]);
}

static void received(pb_op *op, int64_t result)
{
    exchange_connection *connection = PB_CONTAINER(op, exchange_connection, socket.receive);
    exchange *it = connection->exchange;
    if (result <= 0 && result != -EAGAIN) {
        fail(it, result == 0 ? -ECONNRESET : (int)result);
        return;
    }
    if (result > 0) {
        it->now_ns = it->answered_ns = it->io->ops->monotonic_ns(it->io);
        (void)pb_frame_read(&connection->reader, connection->buffer, result);
        if (pb_meter_is_over(&it->meter, it->now_ns))
            it->is_over = true;
    }
    if (it->is_over)
        return;
    send_next(connection);
    it->io->ops->socket_recv(it->loop, &connection->socket, connection->buffer, RECEIVE_BYTES);
}

static int open_connection(exchange *it, int index, pb_failure *failure)
{
    const pb_exchange_options *options = it->options;
    exchange_connection *connection = &it->connections[index];
    connection->exchange = it;
    connection->reader.done = answered;
    connection->socket.receive.done = received;
    connection->socket.transmit.done = sent;
    connection->frame = malloc((size_t)options->frame_bytes);
    connection->buffer = malloc(RECEIVE_BYTES);
    if (connection->frame == NULL || connection->buffer == NULL)
        return pb_fail(failure, -ENOMEM, "a connection to %s:%d", options->host, options->port);
    memcpy(connection->frame, options->frames + index % options->frame_count * options->frame_bytes,
           (size_t)options->frame_bytes);
    int fd = pb_io_connect(options->host, options->port, failure);
    if (fd < 0)
        return fd;
    connection->socket.fd = fd;
    connection->is_open = true;
    int result = it->io->ops->socket_attach(it->loop, &connection->socket);
    return result < 0 ? pb_fail(failure, result, "a connection to %s:%d", options->host, options->port) : 0;
}

static void close_connection(exchange *it, exchange_connection *connection)
{
    if (connection->is_open) {
        it->io->ops->socket_shutdown(it->loop, &connection->socket);
        while (connection->socket.receive.active || connection->socket.transmit.active)
            (void)it->io->ops->loop_turn(it->loop, TURN_NS);
        it->io->ops->socket_close(it->loop, &connection->socket);
    }
    free(connection->frame);
    free(connection->buffer);
}

/* Wait for work; spinning first, where asked. */
static void turn(exchange *it)
{
    pb_io *io = it->io;
    int64_t now_ns = io->ops->monotonic_ns(io), until_ns = now_ns + it->options->spin_ns;
    while (now_ns < until_ns) {
        if (io->ops->loop_turn(it->loop, 0) > 0)
            return;
        now_ns = io->ops->monotonic_ns(io);
    }
    if (io->ops->loop_turn(it->loop, TURN_NS) > 0)
        return;
    now_ns = io->ops->monotonic_ns(io);
    if (pb_meter_is_over(&it->meter, now_ns))
        it->is_over = true;
    if (now_ns - it->answered_ns >= ANSWER_OVERDUE_NS)
        fail(it, -ETIMEDOUT);
}

static int say(const exchange *it, pb_failure *failure)
{
    const pb_exchange_options *options = it->options;
    if (it->error == -EREMOTEIO)
        return pb_fail(failure, it->kafka_error, "%s:%d answers with error code %d", options->host, options->port,
                       it->kafka_error);
    if (it->error == -EMSGSIZE)
        return pb_fail(failure, -EPROTO, "%s:%d answers with less than %lld bytes", options->host, options->port,
                       (long long)options->answer_min_bytes);
    return pb_fail(failure, it->error, "the connection to %s:%d", options->host, options->port);
}

static int exchange_until_over(exchange *it, pb_meter_result *out, pb_failure *failure)
{
    int result = 0;
    for (int i = 0; i < it->options->connection_count && result == 0; i++)
        result = open_connection(it, i, failure);
    if (result == 0) {
        pb_meter_start(&it->meter, it->io, &it->options->limits);
        it->answered_ns = it->meter.started_ns;
        for (int i = 0; i < it->options->connection_count; i++) {
            exchange_connection *connection = &it->connections[i];
            it->io->ops->socket_recv(it->loop, &connection->socket, connection->buffer, RECEIVE_BYTES);
            send_next(connection);
        }
        while (!it->is_over)
            turn(it);
        pb_meter_finish(&it->meter, out);
        result = it->error != 0 ? say(it, failure) : 0;
    }
    it->is_over = true;
    for (int i = 0; i < it->options->connection_count; i++)
        close_connection(it, &it->connections[i]);
    return result;
}

static bool is_valid(const pb_exchange_options *options)
{
    return options->connection_count > 0 && options->connection_count <= PB_EXCHANGE_CONNECTIONS &&
           options->in_flight > 0 && options->in_flight <= PB_EXCHANGE_IN_FLIGHT && options->frame_count > 0 &&
           options->frame_bytes > PB_FRAME_PREFIX_BYTES && options->error_position <= PB_FRAME_HEAD_BYTES - 2 &&
           options->counter_position <= options->frame_bytes - (int64_t)sizeof(int64_t) &&
           (options->counter_position < 0 || options->counter_count > 0);
}

int pb_exchange_measure(pb_io *io, const pb_exchange_options *options, pb_meter_result *out, pb_failure *failure)
{
    if (!is_valid(options))
        return pb_fail(failure, -EINVAL, "%d connections with %d frames of %lld bytes in flight cannot be measured",
                       options->connection_count, options->in_flight, (long long)options->frame_bytes);
    exchange *it = calloc(1, sizeof *it);
    if (it == NULL)
        return pb_fail(failure, -ENOMEM, "measuring the network");
    it->io = io;
    it->options = options;
    int result = io->ops->loop_open(io, &it->loop, failure);
    if (result == 0) {
        result = exchange_until_over(it, out, failure);
        io->ops->loop_close(it->loop);
    }
    free(it);
    return result;
}
