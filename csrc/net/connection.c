/* A connection's life, and what others ask of it. Reactor thread only; see connection.h. */
#include <errno.h>
#include <stdlib.h>

#include "net/connection_parts.h"

/* A client that has been quiet for so long has read all that it was sent. (The time recorded for it may be a sweep too
 * early.) */
#define QUIET_NS 2000000000LL

/* ---- what others ask ---- */

void pb_connection_mark(pb_connection *connection)
{
    if (pb_list_empty(&connection->flush_link))
        pb_list_push_back(&connection->reactor->flush, &connection->flush_link);
}

static void settle_debt(pb_connection *connection)
{
    if (connection->owes)
        atomic_fetch_sub_explicit(&connection->reactor->owing, 1, memory_order_relaxed);
    connection->owes = false;
}

void pb_connection_kill(pb_connection *connection)
{
    if (!connection->closing) {
        connection->closing = true;
        settle_debt(connection);
        pb_reactor_notice_control(connection->reactor);
        pb_receive_unstarve(connection);
        pb_connection_io(connection)->ops->socket_shutdown(connection->reactor->loop, &connection->socket);
    }
    pb_connection_mark(connection);
}

void pb_connection_resume(pb_connection *connection)
{
    if (connection->held)
        pb_connection_mark(connection);
}

static void unmute(pb_timer *timer)
{
    pb_connection_resume(PB_CONTAINER(timer, pb_connection, mute));
}

void pb_connection_mute(pb_connection *connection, int64_t until_ns)
{
    bool muted = pb_timer_is_set(&connection->mute);
    if (connection->closing || connection->leaving || (muted && connection->mute.deadline_ns >= until_ns))
        return;
    connection->mute.fire = unmute;
    if (pb_timer_set(&connection->reactor->timers, &connection->mute, until_ns) == 0)
        connection->held = true;
}

void pb_connection_expect(pb_connection *connection, pb_response *response)
{
    response->ready = false;
    response->hurried = false;
    response->hurry = NULL;
    response->yields = false;
    response->is_behind = false;
    response->resident_ns = 0;
    response->outputs = NULL;
    response->output_count = 0;
    response->next_output = 0;
    pb_list_push_back(&connection->responses, &response->link);
    connection->response_count++;
}

void pb_connection_respond(pb_connection *connection, pb_response *response)
{
    PB_ASSERT(!response->ready);
    response->ready = true;
    pb_connection_mark(connection);
}

void pb_connection_brought(pb_connection *connection, int64_t result)
{
    PB_ASSERT(connection->bringing);
    connection->bringing = false;
    connection->brought_bytes = result;
    if (result < 0 && !connection->closing) { /* half of the answer is sent already */
        connection->handler->malformed(connection, "a segment that cannot be read any further");
        pb_connection_kill(connection);
    }
    pb_connection_mark(connection);
}

/* ---- the end ---- */

/* When closing: drop what is ready; end it when nothing holds it any more. */
static void settle(pb_connection *connection)
{
    PB_ASSERT(connection->closing);
    if (connection->socket.receive.active || connection->socket.transmit.active || connection->delivering ||
        connection->bringing)
        return;
    pb_send_hurry(connection);
    if (!pb_send_drop(connection))
        return;
    pb_receive_end(connection);
    pb_timer_cancel(&connection->reactor->timers, &connection->mute);
    pb_list_remove(&connection->link);
    pb_list_remove(&connection->flush_link);
    pb_connection_io(connection)->ops->socket_close(connection->reactor->loop, &connection->socket);
    connection->handler->closed(connection);
    free(connection);
}

/* When all is answered, tell the client so. Bytes that it has sent meanwhile must not lie unread when the socket is
 * closed. Otherwise the kernel would reset the connection, and the answers on their way to the client would be lost. */
static void part(pb_connection *connection)
{
    PB_ASSERT(connection->leaving);
    if (connection->closing || !pb_list_empty(&connection->responses))
        return;
    settle_debt(connection);
    if (connection->ended) {
        pb_connection_kill(connection);
    } else if (!connection->parted) {
        connection->parted = true;
        pb_connection_io(connection)->ops->socket_end(connection->reactor->loop, &connection->socket);
    }
}

void pb_connection_leave(pb_connection *connection)
{
    PB_ASSERT(!connection->delivering);
    if (connection->closing || connection->leaving)
        return;
    if (connection->connecting) {
        pb_connection_kill(connection);
        return;
    }
    if (pb_list_empty(&connection->responses) && connection->reactor->now_ns - connection->last_active_ns >= QUIET_NS) {
        pb_connection_kill(connection);
        return;
    }
    connection->leaving = true;
    connection->owes = true;
    atomic_fetch_add_explicit(&connection->reactor->owing, 1, memory_order_relaxed);
    connection->held = false;
    connection->unfinished_since_ns = 0;
    pb_receive_unstarve(connection);
    pb_send_hurry(connection);
    if (!connection->closing && !connection->socket.receive.active && !connection->ended)
        pb_receive_and_discard(connection);
    pb_connection_mark(connection);
}

/* ---- the beginning ---- */

static pb_connection *make(pb_reactor *reactor, const pb_connection_handler *handler, void *owner, int64_t id)
{
    pb_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        return NULL;
    connection->socket.receive.done = pb_received;
    connection->socket.transmit.done = pb_sent;
    connection->reactor = reactor;
    connection->transport = &pb_transport_plain;
    connection->handler = handler;
    connection->owner = owner;
    connection->id = id;
    connection->pool = handler->pool != NULL ? handler->pool : reactor->options.pool;
    connection->last_active_ns = reactor->now_ns;
    pb_list_init(&connection->flush_link);
    pb_list_init(&connection->starved_link);
    pb_list_init(&connection->responses);
    return connection;
}

pb_connection *pb_connection_open(pb_reactor *reactor, int fd, const pb_connection_handler *handler, void *owner,
                                  int64_t id, uint32_t listener)
{
    pb_connection *connection = make(reactor, handler, owner, id);
    pb_socket refused = {.fd = fd};
    if (connection == NULL) {
        reactor->io->ops->socket_close(reactor->loop, &refused);
        return NULL;
    }
    connection->socket.fd = fd;
    connection->socket.patient = true; /* until it shows what it is for */
    connection->listener = listener;
    if (reactor->io->ops->socket_peer(reactor->io, fd, connection->host, sizeof connection->host) < 0 ||
        reactor->io->ops->socket_attach(reactor->loop, &connection->socket) < 0) {
        reactor->io->ops->socket_close(reactor->loop, &connection->socket);
        free(connection);
        return NULL;
    }
    pb_list_push_back(&reactor->connections, &connection->link);
    pb_reactor_notice_opening(reactor);
    pb_receive(connection);
    if (reactor->left)
        pb_connection_leave(connection);
    return connection;
}

static void connected(pb_op *op, int64_t result)
{
    pb_connection *connection = PB_CONTAINER(op, pb_connection, socket.transmit);
    pb_reactor *reactor = connection->reactor;
    connection->connecting = false;
    connection->socket.transmit.done = pb_sent;
    connection->last_active_ns = reactor->now_ns;
    if (result == 0 && !connection->closing)
        result = reactor->io->ops->socket_peer(reactor->io, connection->socket.fd, connection->host,
                                               sizeof connection->host);
    if (result == 0 && !connection->closing)
        result = reactor->io->ops->socket_attach(reactor->loop, &connection->socket);
    connection->error = connection->closing ? -ECANCELED : (int)result;
    if (connection->error < 0) {
        connection->closing = true;
        settle(connection);
        return;
    }
    pb_receive(connection);
    connection->handler->opened(connection);
}

pb_connection *pb_connection_connect(pb_reactor *reactor, const pb_address *address,
                                     const pb_connection_handler *handler, void *owner, int64_t id)
{
    pb_connection *connection = make(reactor, handler, owner, id);
    if (connection == NULL)
        return NULL;
    connection->address = *address;
    connection->connecting = true;
    connection->socket.transmit.done = connected;
    if (reactor->io->ops->socket_connect(reactor->loop, &connection->socket, &connection->address) < 0) {
        free(connection);
        return NULL;
    }
    pb_list_push_back(&reactor->connections, &connection->link);
    return connection;
}

/* ---- the turn ---- */

void pb_connection_flush(pb_connection *connection)
{
    if (connection->closing) {
        settle(connection);
        return;
    }
    pb_send(connection);
    if (connection->leaving) {
        part(connection);
    } else if (connection->held && !connection->closing && !pb_timer_is_set(&connection->mute)) {
        connection->held = false;
        connection->unfinished_since_ns = 0; /* until now the client was kept waiting */
        pb_receive_frames(connection);
    } else if (connection->ended) {
        pb_receive(connection);
    }
}
