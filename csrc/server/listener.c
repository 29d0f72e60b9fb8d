/*
 * Accepting connections: on reactor 0, handed to the reactors in turn. Limits are checked here, before anything is
 * allocated.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/descriptors.h"
#include "server/broker.h"

#define ACCEPT_RETRY_NS 100000000LL

/* A connected socket on its way to its reactor. Owner: the task until it runs. */
typedef struct handover {
    pb_task task;
    pb_listener *listener;
    int fd;
} handover;

static void count_out(pb_broker *broker)
{
    atomic_fetch_sub(&broker->connections, 1);
    atomic_fetch_add(&broker->connections_refused, 1);
    pb_descriptors_give_connection();
}

static void take_over(pb_task *task, pb_reactor *reactor)
{
    handover *given = PB_CONTAINER(task, handover, task);
    pb_listener *listener = given->listener;
    pb_broker *broker = listener->broker;
    int64_t id = atomic_fetch_add(&broker->next_connection_id, 1);
    pb_connection *connection = pb_connection_open(reactor, given->fd, &broker->handler, broker, id, listener->index);
    if (connection == NULL)
        count_out(broker);
    free(given);
}

static bool over_limit(pb_broker *broker)
{
    return atomic_load(&broker->connections) >=
           atomic_load_explicit(&broker->settings.max_connections, memory_order_relaxed);
}

/* Close a connection that was accepted and finds no place. `why` is told once, until another one finds a place. */
static void refuse(pb_listener *listener, int fd, const char *why)
{
    pb_broker *broker = listener->broker;
    pb_socket refused = {.fd = fd};
    broker->io->ops->socket_close(broker->reactors[0].reactor.loop, &refused);
    atomic_fetch_add(&broker->connections_refused, 1);
    if (!listener->refuses)
        pb_events_notice(&broker->events, "refusing connections: %s", why);
    listener->refuses = true;
}

static void refuse_over_limit(pb_listener *listener, int fd)
{
    char why[64];
    snprintf(why, sizeof why, "max.connections=%d are open",
             atomic_load_explicit(&listener->broker->settings.max_connections, memory_order_relaxed));
    refuse(listener, fd, why);
}

static void refuse_without_descriptor(pb_listener *listener, int fd)
{
    char why[192];
    snprintf(why, sizeof why,
             "%lld are open, and the rest of the %d file descriptors is for logs; raise the limit (LimitNOFILE in the "
             "unit, ulimit -n) and restart the broker",
             (long long)atomic_load(&listener->broker->connections), pb_descriptors_limit_told());
    refuse(listener, fd, why);
}

static void hand_over(pb_listener *listener, int fd)
{
    pb_broker *broker = listener->broker;
    if (over_limit(broker)) {
        refuse_over_limit(listener, fd);
        return;
    }
    if (!pb_descriptors_take_connection()) {
        refuse_without_descriptor(listener, fd);
        return;
    }
    handover *given = calloc(1, sizeof *given);
    if (given == NULL) {
        pb_descriptors_give_connection();
        refuse(listener, fd, "there is no memory for another one");
        return;
    }
    listener->refuses = false;
    int64_t turn = atomic_fetch_add(&broker->connections_accepted, 1);
    atomic_fetch_add(&broker->connections, 1);
    given->task.run = take_over;
    given->listener = listener;
    given->fd = fd;
    pb_reactor_post(&broker->reactors[turn % broker->settings.reactor_count].reactor, &given->task);
}

static void accept_next(pb_listener *listener)
{
    listener->broker->io->ops->socket_accept(listener->broker->reactors[0].reactor.loop, &listener->socket);
}

static void try_again(pb_timer *timer)
{
    accept_next(PB_CONTAINER(timer, pb_listener, retry));
}

/* Out of file descriptors or memory: at once it would fail again, and the reactor would do nothing else. It is told
 * once, until an accept succeeds. */
static void accept_later(pb_listener *listener, int error)
{
    pb_reactor *first = &listener->broker->reactors[0].reactor;
    if (!listener->fails)
        pb_events_notice(
            &listener->broker->events, "cannot accept connections on listener %s (%s); it is tried again every %d ms%s",
            listener->name, strerror(error), (int)(ACCEPT_RETRY_NS / 1000000),
            error == EMFILE ? ": raise the limit of file descriptors (LimitNOFILE in the unit, ulimit -n)" : "");
    listener->fails = true;
    listener->retry.fire = try_again;
    if (pb_timer_set(&first->timers, &listener->retry, first->now_ns + ACCEPT_RETRY_NS) < 0)
        accept_next(listener);
}

static void accepted(pb_op *op, int64_t result)
{
    pb_socket *socket = PB_CONTAINER(op, pb_socket, receive);
    pb_listener *listener = PB_CONTAINER(socket, pb_listener, socket);
    pb_broker *broker = listener->broker;
    pb_reactor *first = &broker->reactors[0].reactor;
    if (atomic_load(&broker->closing)) {
        if (result >= 0) {
            pb_socket late = {.fd = (int)result};
            broker->io->ops->socket_close(first->loop, &late);
        }
        broker->io->ops->socket_close(first->loop, socket);
        first->holds--;
        return;
    }
    if (result >= 0) {
        if (listener->fails)
            pb_events_notice(&broker->events, "listener %s accepts connections again", listener->name);
        listener->fails = false;
        hand_over(listener, (int)result);
    } else if (result != -EAGAIN && result != -ECONNABORTED) {
        accept_later(listener, (int)-result);
        return;
    }
    accept_next(listener);
}

void pb_listener_start(pb_listener *listener)
{
    listener->broker->reactors[0].reactor.holds++;
    listener->socket.receive.done = accepted;
    listener->socket.patient = true;
    listener->broker->io->ops->socket_accept(listener->broker->reactors[0].reactor.loop, &listener->socket);
}

void pb_listener_stop(pb_listener *listener)
{
    if (pb_timer_is_set(&listener->retry)) { /* no accept under way would close it */
        pb_timer_cancel(&listener->broker->reactors[0].reactor.timers, &listener->retry);
        accept_next(listener);
    }
    if (!listener->socket.closed) /* an accept that finished before has closed it */
        listener->broker->io->ops->socket_shutdown(listener->broker->reactors[0].reactor.loop, &listener->socket);
}

int pb_broker_add_listener(pb_broker *broker, const char *name, const char *host, int port, int *bound_port,
                           pb_failure *failure)
{
    if (broker->started)
        return pb_fail(failure, -EBUSY, "listener %s: listeners are opened before the broker starts", name);
    if (broker->listener_count == PB_MAX_LISTENERS)
        return pb_fail(failure, -ENOSPC, "more than %d listeners", PB_MAX_LISTENERS);
    pb_listener *listener = &broker->listeners[broker->listener_count];
    int fd = broker->io->ops->socket_listen(broker->io, host, port, &listener->bound_port, failure);
    if (fd < 0)
        return fd;
    listener->broker = broker;
    listener->socket.fd = fd;
    listener->index = (uint32_t)broker->listener_count++;
    strncpy(listener->name, name, sizeof listener->name - 1);
    *bound_port = listener->bound_port;
    return 0;
}
