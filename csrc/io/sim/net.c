/* The simulated network: byte queues in memory. A broker's fd is its client's number plus PB_SIM_HANDLES. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/sim/machine.h"

#define LISTENER_FD (3 * PB_SIM_HANDLES)
#define FIRST_PORT 10000
#define PIPE_LIMIT_BYTES (256 * 1024) /* like a socket buffer: then the sender waits */

static void push(sim_pipe *pipe, const void *bytes, size_t length)
{
    if (pipe->start + pipe->length + length > pipe->capacity && pipe->start > 0 && pipe->start >= pipe->length) {
        memmove(pipe->data, pipe->data + pipe->start, pipe->length);
        pipe->start = 0;
    }
    if (pipe->start + pipe->length + length > pipe->capacity) {
        pipe->capacity = 2 * (pipe->start + pipe->length + length);
        uint8_t *data = realloc(pipe->data, pipe->capacity);
        PB_ASSERT(data != NULL);
        pipe->data = data;
    }
    if (length > 0)
        memcpy(pipe->data + pipe->start + pipe->length, bytes, length);
    pipe->length += length;
}

static size_t pull(sim_pipe *pipe, void *buffer, size_t length)
{
    if (length > pipe->length)
        length = pipe->length;
    if (length > 0)
        memcpy(buffer, pipe->data + pipe->start, length);
    pipe->length -= length;
    pipe->start = pipe->length > 0 ? pipe->start + length : 0;
    return length;
}

static sim_connection *connection_of(sim_machine *machine, int fd)
{
    PB_ASSERT(fd >= PB_SIM_HANDLES && fd - PB_SIM_HANDLES < machine->network.connection_count);
    return machine->network.connections[fd - PB_SIM_HANDLES];
}

int sim_listen(pb_io *io, const char *host, int port, int *bound_port, pb_failure *failure)
{
    sim_network *network = &sim_of(io)->network;
    if (network->listener_port != 0)
        return pb_fail(failure, -EADDRINUSE, "cannot listen on %s:%d", host, port);
    network->listener_port = port != 0 ? port : FIRST_PORT;
    *bound_port = network->listener_port;
    return LISTENER_FD;
}

int sim_peer(pb_io *io, int fd, char *text, size_t size)
{
    (void)connection_of(sim_of(io), fd);
    snprintf(text, size, "127.0.0.1");
    return 0;
}

int sim_address_find(pb_io *io, const char *host, int port, pb_address *out, int capacity, pb_failure *failure)
{
    (void)io;
    PB_ASSERT(capacity > 0);
    if (host[0] == '\0')
        return pb_fail(failure, -EHOSTUNREACH, "a host without a name");
    out[0] = (pb_address){.words = {(uint64_t)port}, .length = sizeof out->words[0]};
    return 1;
}

static int add_connection(sim_network *network)
{
    PB_ASSERT(network->connection_count < PB_SIM_HANDLES);
    sim_connection *connection = calloc(1, sizeof *connection);
    PB_ASSERT(connection != NULL);
    connection->client_open = true;
    network->connections[network->connection_count] = connection;
    return network->connection_count++;
}

int sim_connect_start(sim_machine *machine, const pb_address *address)
{
    int index = add_connection(&machine->network);
    sim_connection *connection = machine->network.connections[index];
    connection->outgoing_port = (int)address->words[0];
    connection->accepted = true;
    connection->broker_open = true;
    return index + PB_SIM_HANDLES;
}

int64_t sim_connect_try(sim_machine *machine, int fd)
{
    const sim_connection *connection = connection_of(machine, fd);
    if (connection->shut)
        return -ECANCELED;
    if (!connection->answered)
        return -EAGAIN;
    return connection->refused ? -ECONNREFUSED : 0;
}

int pb_sim_next_outgoing(pb_io *io, int *port)
{
    const sim_network *network = &sim_of(io)->network;
    for (int i = 0; i < network->connection_count; i++) {
        const sim_connection *connection = network->connections[i];
        if (connection->outgoing_port == 0 || connection->answered || connection->shut)
            continue;
        *port = connection->outgoing_port;
        return i;
    }
    return -1;
}

void pb_sim_answer_outgoing(pb_io *io, int client, bool accept)
{
    sim_connection *connection = sim_of(io)->network.connections[client];
    PB_ASSERT(connection->outgoing_port != 0 && !connection->answered);
    connection->answered = true;
    connection->refused = !accept;
    connection->client_open = accept;
    sim_stir(sim_of(io));
}

int64_t sim_accept_try(sim_machine *machine)
{
    sim_network *network = &machine->network;
    if (network->listener_shut)
        return -ECANCELED;
    for (int i = 0; i < network->connection_count; i++)
        if (!network->connections[i]->accepted) {
            network->connections[i]->accepted = true;
            network->connections[i]->broker_open = true;
            return i + PB_SIM_HANDLES;
        }
    return -EAGAIN;
}

int64_t sim_recv_try(sim_machine *machine, int fd, void *buffer, size_t length)
{
    sim_connection *connection = connection_of(machine, fd);
    sim_pipe *pipe = &connection->to_broker;
    if (connection->shut)
        return 0; /* shut down by the broker itself */
    if (pipe->length == 0)
        return pipe->closed ? 0 : -EAGAIN;
    if (buffer == NULL)
        return 1;
    if (sim_chance(machine, machine->faults.short_io))
        length = 1 + sim_random(machine) % length;
    return (int64_t)pull(pipe, buffer, length);
}

int64_t sim_send_try(sim_machine *machine, int fd, const struct iovec *iov, int count)
{
    sim_connection *connection = connection_of(machine, fd);
    if (!connection->client_open || connection->to_client.closed)
        return -EPIPE;
    if (connection->to_client.length >= PIPE_LIMIT_BYTES)
        return -EAGAIN;
    size_t total = 0, done = 0;
    for (int i = 0; i < count; i++)
        total += iov[i].iov_len;
    if (total > 1 && sim_chance(machine, machine->faults.short_io))
        total = 1 + sim_random(machine) % total;
    for (int i = 0; i < count && done < total; i++) {
        size_t part = iov[i].iov_len < total - done ? iov[i].iov_len : total - done;
        push(&connection->to_client, iov[i].iov_base, part);
        done += part;
    }
    return (int64_t)done;
}

void sim_socket_shut(sim_machine *machine, int fd)
{
    if (fd == LISTENER_FD) {
        machine->network.listener_shut = true;
        return;
    }
    connection_of(machine, fd)->shut = true;
    sim_socket_finish(machine, fd);
}

void sim_socket_finish(sim_machine *machine, int fd)
{
    connection_of(machine, fd)->to_client.closed = true;
}

int pb_sim_connect(pb_io *io, int port)
{
    sim_network *network = &sim_of(io)->network;
    if (network->listener_port != port || network->listener_shut)
        return -ECONNREFUSED;
    sim_stir(sim_of(io));
    return add_connection(network);
}

void pb_sim_client_send(pb_io *io, int client, const void *bytes, size_t length)
{
    sim_stir(sim_of(io));
    push(&sim_of(io)->network.connections[client]->to_broker, bytes, length);
}

int64_t pb_sim_client_receive(pb_io *io, int client, void *buffer, size_t capacity)
{
    sim_connection *connection = sim_of(io)->network.connections[client];
    size_t got = pull(&connection->to_client, buffer, capacity);
    if (got > 0)
        sim_stir(sim_of(io)); /* there is room again */
    return got == 0 && connection->to_client.closed ? -ECONNRESET : (int64_t)got;
}

int64_t pb_sim_client_unread(pb_io *io, int client)
{
    return (int64_t)sim_of(io)->network.connections[client]->to_broker.length;
}

void pb_sim_client_end(pb_io *io, int client)
{
    sim_stir(sim_of(io));
    sim_of(io)->network.connections[client]->to_broker.closed = true;
}

void pb_sim_client_close(pb_io *io, int client)
{
    pb_sim_client_end(io, client);
    sim_of(io)->network.connections[client]->client_open = false;
}

void sim_network_free(sim_network *network)
{
    for (int i = 0; i < network->connection_count; i++) {
        free(network->connections[i]->to_broker.data);
        free(network->connections[i]->to_client.data);
        free(network->connections[i]);
    }
}
