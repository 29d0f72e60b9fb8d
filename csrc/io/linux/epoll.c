/*
 * The epoll backend: readiness underneath, completions on top. For containers and kernels that refuse io_uring.
 *
 * Sockets are non-blocking and edge-triggered. An operation is tried when it is started if the socket's last edge has
 * not been drained; otherwise when the next edge comes. Finished operations wait on a list until pb_loop_turn delivers
 * them, so that `done` never runs inside a start call. One thread per loop; only pb_loop_wake comes from others.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/linux/posix.h"

#define EVENTS_PER_TURN 256

enum kind { KIND_RECV, KIND_POLL, KIND_ACCEPT, KIND_SEND, KIND_SENDFILE, KIND_CONNECT };

/* Owner: the reactor that opened it. */
struct pb_loop {
    pb_io *io;
    int epoll_fd;
    pb_wakeup wakeup;
    pb_finished finished;
};

/* Has it been connected? A socket that never was says so only when asked for its peer. */
static int64_t connect_result(int fd)
{
    int error = 0;
    socklen_t length = sizeof error;
    struct sockaddr_storage peer;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
        return -errno;
    length = sizeof peer;
    if (error == 0 && getpeername(fd, (struct sockaddr *)&peer, &length) < 0)
        error = errno == ENOTCONN ? EAGAIN : errno;
    return -error;
}

static int64_t attempt(pb_op *op)
{
    int fd = op->socket->fd;
    int64_t result;
    do {
        switch (op->kind) {
        case KIND_RECV:
            result = recv(fd, op->buffer, op->length, MSG_DONTWAIT);
            break;
        case KIND_POLL:
            return 1; /* tried only when an edge says readable */
        case KIND_ACCEPT:
            result = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            break;
        case KIND_CONNECT:
            return connect_result(fd);
        case KIND_SEND: {
            struct msghdr message = {.msg_iov = op->iov, .msg_iovlen = (size_t)op->iov_count};
            result = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
            break;
        }
        default:
            return pb_posix_sendfile(op, false);
        }
    } while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : result;
}

static bool *readiness(pb_op *op)
{
    return op->kind <= KIND_ACCEPT ? &op->socket->readable : &op->socket->writable;
}

/* Try an active operation if its socket may be ready. */
static void drive(pb_loop *loop, pb_op *op)
{
    bool *ready = readiness(op);
    if (!*ready)
        return;
    int64_t result = attempt(op);
    if (result == -EAGAIN) {
        *ready = false;
        return;
    }
    /* A short read has drained the socket: the next byte makes a new edge. The end may have come with this one. */
    if (op->kind == KIND_RECV && result > 0 && (size_t)result < op->length && !op->socket->ended)
        *ready = false;
    pb_finished_put(&loop->finished, op, result);
}

static void start(pb_loop *loop, pb_socket *socket, pb_op *op, enum kind kind)
{
    PB_ASSERT(!op->active && !socket->closed);
    op->kind = (uint8_t)kind;
    op->socket = socket;
    op->loop = loop;
    op->active = true;
    pb_list_init(&op->link);
    drive(loop, op);
}

static int epoll_loop_open(pb_io *io, pb_loop **out, pb_failure *failure)
{
    pb_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL)
        return pb_fail(failure, -ENOMEM, "cannot allocate an epoll loop");
    loop->io = io;
    pb_finished_init(&loop->finished);
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int result = loop->epoll_fd < 0 ? -errno : pb_wakeup_open(&loop->wakeup);
    if (result == 0) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
        if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wakeup.event_fd, &event) < 0)
            result = -errno;
    }
    if (result < 0) {
        if (loop->epoll_fd >= 0)
            close(loop->epoll_fd);
        free(loop);
        return pb_fail(failure, result, "cannot set up an epoll loop");
    }
    *out = loop;
    return 0;
}

static void epoll_loop_close(pb_loop *loop)
{
    PB_ASSERT(pb_finished_empty(&loop->finished));
    pb_wakeup_close(&loop->wakeup);
    close(loop->epoll_fd);
    free(loop);
}

/* Gather events; the socket pointers are used up before any `done` could free a socket. */
static void gather(pb_loop *loop, int64_t wait_ns)
{
    struct epoll_event events[EVENTS_PER_TURN];
    bool may_sleep = wait_ns > 0 && pb_finished_empty(&loop->finished) && pb_wakeup_prepare(&loop->wakeup);
    int timeout_ms = 0;
    if (may_sleep)
        timeout_ms = wait_ns == PB_IO_FOREVER ? -1 : (int)((wait_ns + 999999) / 1000000);
    int count = epoll_wait(loop->epoll_fd, events, EVENTS_PER_TURN, timeout_ms);
    pb_wakeup_finish(&loop->wakeup);
    for (int i = 0; i < count; i++) {
        pb_socket *socket = events[i].data.ptr;
        if (socket == NULL)
            continue; /* the wake-up: edge-triggered, so its counter need not be read */
        if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
            socket->readable = true;
            socket->ended = socket->ended || (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
            if (socket->receive.active && pb_list_empty(&socket->receive.link))
                drive(loop, &socket->receive);
        }
        if (events[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) {
            socket->writable = true;
            if (socket->transmit.active && pb_list_empty(&socket->transmit.link))
                drive(loop, &socket->transmit);
        }
    }
}

static int epoll_loop_turn(pb_loop *loop, int64_t wait_ns)
{
    gather(loop, wait_ns);
    return pb_finished_deliver(&loop->finished);
}

static void epoll_loop_wake(pb_loop *loop)
{
    pb_wakeup_signal(&loop->wakeup);
}

static int watch(pb_loop *loop, pb_socket *socket, uint32_t interest)
{
    if (socket->watched)
        return 0;
    struct epoll_event event = {.events = interest | EPOLLET, .data.ptr = socket};
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, socket->fd, &event) < 0)
        return -errno;
    socket->watched = true;
    socket->readable = false; /* adding reports what is there already */
    socket->writable = true;
    return 0;
}

static int epoll_socket_attach(pb_loop *loop, pb_socket *socket)
{
    pb_posix_tune_socket(socket->fd);
    return watch(loop, socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
}

static void epoll_socket_accept(pb_loop *loop, pb_socket *listener)
{
    int result = watch(loop, listener, EPOLLIN);
    PB_ASSERT(result == 0);
    start(loop, listener, &listener->receive, KIND_ACCEPT);
}

static int epoll_socket_connect(pb_loop *loop, pb_socket *socket, const pb_address *address)
{
    int fd = pb_posix_socket_make(address, SOCK_NONBLOCK);
    if (fd < 0)
        return fd;
    int result = connect(fd, pb_posix_sockaddr(address), address->length) < 0 ? -errno : 0;
    socket->fd = fd;
    if (result == 0 || result == -EINPROGRESS) {
        int watching = watch(loop, socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
        result = watching < 0 ? watching : result;
    }
    socket->writable = false; /* until an edge says that it is connected */
    start(loop, socket, &socket->transmit, KIND_CONNECT);
    if (result != -EINPROGRESS)
        pb_finished_put(&loop->finished, &socket->transmit, result);
    return 0;
}

static void epoll_socket_recv(pb_loop *loop, pb_socket *socket, void *buffer, size_t length)
{
    PB_ASSERT((length > 0) == (buffer != NULL));
    socket->receive.buffer = buffer;
    socket->receive.length = length;
    start(loop, socket, &socket->receive, buffer != NULL ? KIND_RECV : KIND_POLL);
}

static void epoll_socket_cancel(pb_loop *loop, pb_socket *socket)
{
    if (socket->receive.active && pb_list_empty(&socket->receive.link))
        pb_finished_put(&loop->finished, &socket->receive, -ECANCELED);
}

static void epoll_socket_send(pb_loop *loop, pb_socket *socket, struct iovec *iov, int count)
{
    PB_ASSERT(count > 0 && count <= PB_IO_MAX_IOVECS);
    socket->transmit.iov = iov;
    socket->transmit.iov_count = count;
    start(loop, socket, &socket->transmit, KIND_SEND);
}

static void epoll_socket_sendfile(pb_loop *loop, pb_socket *socket, struct iovec *iov, int count, int tail_count,
                                  int file, int64_t position, size_t length)
{
    PB_ASSERT(length > 0 && tail_count >= 0 && tail_count <= count && count <= PB_IO_MAX_IOVECS);
    socket->transmit.iov = iov;
    socket->transmit.iov_count = count;
    socket->transmit.tail_count = tail_count;
    socket->transmit.file = file;
    socket->transmit.position = position;
    socket->transmit.length = length;
    start(loop, socket, &socket->transmit, KIND_SENDFILE);
}

/* The kernel reports the hang-up as an edge, which finishes what is waiting. */
static void epoll_socket_shutdown(pb_loop *loop, pb_socket *socket)
{
    (void)loop;
    (void)shutdown(socket->fd, SHUT_RDWR);
    if (socket->receive.active && socket->receive.kind == KIND_ACCEPT)
        epoll_socket_cancel(loop, socket);
    if (socket->transmit.active && socket->transmit.kind == KIND_CONNECT && pb_list_empty(&socket->transmit.link))
        pb_finished_put(&loop->finished, &socket->transmit, -ECANCELED);
}

static void epoll_socket_end(pb_loop *loop, pb_socket *socket)
{
    (void)loop;
    (void)shutdown(socket->fd, SHUT_WR);
}

static void epoll_socket_close(pb_loop *loop, pb_socket *socket)
{
    PB_ASSERT(!socket->receive.active && !socket->transmit.active && !socket->closed);
    socket->closed = true;
    /* Closing alone is not enough while a child that is about to run a program has a copy of the descriptor. */
    if (socket->watched)
        (void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, socket->fd, NULL);
    close(socket->fd);
}

/* Inline: a buffered write copies into the page cache and returns. */
static int64_t epoll_write_start(pb_loop *loop, pb_op *op, int file, struct iovec *iov, int count, int64_t position)
{
    PB_ASSERT(!op->direct);
    return pb_posix_file_write(loop->io, file, iov, count, position);
}

static void epoll_close(pb_io *io)
{
    free(io);
}

static const pb_io_ops epoll_ops = {
    .name = "epoll",
    .close = epoll_close,
    PB_POSIX_OPS,
    .loop_open = epoll_loop_open,
    .loop_close = epoll_loop_close,
    .loop_turn = epoll_loop_turn,
    .loop_wake = epoll_loop_wake,
    .socket_accept = epoll_socket_accept,
    .socket_connect = epoll_socket_connect,
    .socket_attach = epoll_socket_attach,
    .socket_recv = epoll_socket_recv,
    .socket_cancel = epoll_socket_cancel,
    .socket_send = epoll_socket_send,
    .socket_sendfile = epoll_socket_sendfile,
    .socket_shutdown = epoll_socket_shutdown,
    .socket_end = epoll_socket_end,
    .socket_close = epoll_socket_close,
    .write_start = epoll_write_start,
};

int pb_io_epoll_open(pb_io **out, pb_failure *failure)
{
    pb_io *io = calloc(1, sizeof *io);
    if (io == NULL)
        return pb_fail(failure, -ENOMEM, "cannot allocate the epoll backend");
    io->ops = &epoll_ops;
    *out = io;
    return 0;
}
