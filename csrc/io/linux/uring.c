/*
 * The io_uring backend. Operations are queued as they start and reach the kernel in one io_uring_enter per loop turn. A
 * direct write or a flush, and everything queued before it, goes at once.
 *
 * One ring per loop, single issuer, with deferred task work; it is created disabled and enabled by the thread that
 * turns it first. Sockets block (the ring polls for them). No ring operation is cheaper than the sendfile call, so that
 * is called inline, and the ring only waits until the socket is writable. Buffered appends on ext4 are handed to a
 * kernel worker, which nearly doubles what they cost: they are written inline unless the caller says that others wait.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/linux/posix.h"

#define SUBMISSION_ENTRIES 1024
#define COMPLETION_ENTRIES 8192
/* The kernel completes so many of the operations that are ready per call. To see what is urgent among a thousand, ask
 * on. */
#define COMPLETIONS_PER_GATHER 20
#define GATHERS_PER_TURN 64

enum kind { KIND_RING, KIND_SENDFILE, KIND_CONNECT };

/* Owner: the reactor that opened it. */
struct pb_loop {
    pb_io *io;
    struct io_uring ring;
    pb_wakeup wakeup;
    pb_finished finished;
    uint64_t wake_counter; /* where the ring reads the wake-up's eventfd into */
    bool enabled;
    bool wake_armed;
    pb_op cancelled; /* stands for cancellations, whose own results say nothing */
};

static struct io_uring_sqe *next_sqe(pb_loop *loop)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&loop->ring);
    while (sqe == NULL) {
        io_uring_submit(&loop->ring);
        sqe = io_uring_get_sqe(&loop->ring);
    }
    return sqe;
}

static pb_op *begin(pb_loop *loop, pb_socket *socket, pb_op *op, enum kind kind)
{
    PB_ASSERT(!op->active);
    PB_ASSERT(socket == NULL || !socket->closed);
    op->kind = (uint8_t)kind;
    op->socket = socket;
    op->loop = loop;
    op->active = true;
    pb_list_init(&op->link);
    return op;
}

static int setup_ring(struct io_uring *ring)
{
    struct io_uring_params params = {
        .flags =
            IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE,
        .cq_entries = COMPLETION_ENTRIES,
    };
    return io_uring_queue_init_params(SUBMISSION_ENTRIES, ring, &params);
}

/* By the thread that is going to use it. The shared liburing of Debian 12 does not export its io_uring_enable_rings. */
static int enable_ring(struct io_uring *ring)
{
    return syscall(SYS_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) < 0 ? -errno : 0;
}

static int uring_loop_open(pb_io *io, pb_loop **out, pb_failure *failure)
{
    pb_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL)
        return pb_fail(failure, -ENOMEM, "cannot allocate an io_uring loop");
    loop->io = io;
    pb_finished_init(&loop->finished);
    int result = setup_ring(&loop->ring);
    if (result < 0) {
        free(loop);
        return pb_fail(failure, result, "cannot set up io_uring; set pybroker.io.backend=epoll, or allow io_uring");
    }
    result = pb_wakeup_open(&loop->wakeup);
    if (result < 0) {
        io_uring_queue_exit(&loop->ring);
        free(loop);
        return pb_fail(failure, result, "cannot make an eventfd");
    }
    *out = loop;
    return 0;
}

static void uring_loop_close(pb_loop *loop)
{
    PB_ASSERT(pb_finished_empty(&loop->finished));
    io_uring_queue_exit(&loop->ring);
    pb_wakeup_close(&loop->wakeup);
    free(loop);
}

static void arm_wakeup(pb_loop *loop)
{
    if (loop->wake_armed)
        return;
    struct io_uring_sqe *sqe = next_sqe(loop);
    io_uring_prep_read(sqe, loop->wakeup.event_fd, &loop->wake_counter, sizeof loop->wake_counter, 0);
    io_uring_sqe_set_data(sqe, NULL);
    loop->wake_armed = true;
}

static void wait_for_poll(pb_loop *loop, pb_op *op)
{
    struct io_uring_sqe *sqe = next_sqe(loop);
    io_uring_prep_poll_add(sqe, op->socket->fd, POLLOUT);
    io_uring_sqe_set_data(sqe, op);
}

/* One try of a sendfile: finished, or waiting for room in the socket. */
static void try_sendfile(pb_loop *loop, pb_op *op)
{
    int64_t sent = pb_posix_sendfile(op, true);
    if (sent == -EAGAIN)
        wait_for_poll(loop, op);
    else
        pb_finished_put(&loop->finished, op, sent);
}

static void completed(pb_loop *loop, pb_op *op, int result)
{
    if (result == -EINTR || result == -EAGAIN)
        result = -EAGAIN; /* callers start it again */
    if (op->kind == KIND_SENDFILE && result >= 0)
        try_sendfile(loop, op);
    else
        pb_finished_put(&loop->finished, op, result);
}

static void enter(pb_loop *loop, int64_t wait_ns)
{
    arm_wakeup(loop);
    bool may_sleep = wait_ns > 0 && pb_finished_empty(&loop->finished) && io_uring_cq_ready(&loop->ring) == 0 &&
                     pb_wakeup_prepare(&loop->wakeup);
    if (!may_sleep) {
        io_uring_submit_and_get_events(&loop->ring);
    } else if (wait_ns == PB_IO_FOREVER) {
        io_uring_submit_and_wait(&loop->ring, 1);
    } else {
        struct __kernel_timespec timeout = {wait_ns / 1000000000, wait_ns % 1000000000};
        struct io_uring_cqe *ignored;
        io_uring_submit_and_wait_timeout(&loop->ring, &ignored, 1, &timeout, NULL);
    }
    pb_wakeup_finish(&loop->wakeup);
}

/* How many completions there were. */
static unsigned reap(pb_loop *loop)
{
    struct io_uring_cqe *cqe;
    unsigned head, count = 0;
    io_uring_for_each_cqe(&loop->ring, head, cqe)
    {
        count++;
        pb_op *op = io_uring_cqe_get_data(cqe);
        if (op == NULL)
            loop->wake_armed = false;
        else if (op != &loop->cancelled)
            completed(loop, op, cqe->res);
    }
    io_uring_cq_advance(&loop->ring, count);
    return count;
}

static int uring_loop_turn(pb_loop *loop, int64_t wait_ns)
{
    if (!loop->enabled) {
        int result = enable_ring(&loop->ring);
        PB_ASSERT(result == 0);
        (void)io_uring_register_ring_fd(&loop->ring); /* saves a look-up per enter; older kernels do without */
        loop->enabled = true;
    }
    enter(loop, wait_ns);
    for (int more = GATHERS_PER_TURN; reap(loop) >= COMPLETIONS_PER_GATHER && more > 0; more--)
        io_uring_get_events(&loop->ring);
    return pb_finished_deliver(&loop->finished);
}

static void uring_loop_wake(pb_loop *loop)
{
    pb_wakeup_signal(&loop->wakeup);
}

static int uring_socket_attach(pb_loop *loop, pb_socket *socket)
{
    (void)loop;
    pb_posix_tune_socket(socket->fd);
    return 0;
}

/* The listening socket is non-blocking for the epoll backend; the ring polls only for blocking ones. */
static void uring_socket_accept(pb_loop *loop, pb_socket *listener)
{
    begin(loop, listener, &listener->receive, KIND_RING);
    if (!listener->watched) {
        int flags = fcntl(listener->fd, F_GETFL);
        PB_ASSERT(flags >= 0 && fcntl(listener->fd, F_SETFL, flags & ~O_NONBLOCK) == 0);
        listener->watched = true;
    }
    struct io_uring_sqe *sqe = next_sqe(loop);
    io_uring_prep_accept(sqe, listener->fd, NULL, NULL, SOCK_CLOEXEC);
    io_uring_sqe_set_data(sqe, &listener->receive);
}

static int uring_socket_connect(pb_loop *loop, pb_socket *socket, const pb_address *address)
{
    int fd = pb_posix_socket_make(address, 0);
    if (fd < 0)
        return fd;
    socket->fd = fd;
    pb_op *op = begin(loop, socket, &socket->transmit, KIND_CONNECT);
    struct io_uring_sqe *sqe = next_sqe(loop);
    io_uring_prep_connect(sqe, fd, pb_posix_sockaddr(address), address->length);
    io_uring_sqe_set_data(sqe, op);
    return 0;
}

static void uring_socket_recv(pb_loop *loop, pb_socket *socket, void *buffer, size_t length)
{
    PB_ASSERT((length > 0) == (buffer != NULL));
    pb_op *op = begin(loop, socket, &socket->receive, KIND_RING);
    struct io_uring_sqe *sqe = next_sqe(loop);
    if (buffer != NULL)
        io_uring_prep_recv(sqe, socket->fd, buffer, length, 0);
    else
        io_uring_prep_poll_add(sqe, socket->fd, POLLIN | POLLRDHUP);
    io_uring_sqe_set_data(sqe, op);
}

static void uring_socket_cancel(pb_loop *loop, pb_socket *socket)
{
    if (!socket->receive.active)
        return;
    struct io_uring_sqe *sqe = next_sqe(loop);
    io_uring_prep_cancel(sqe, &socket->receive, 0);
    io_uring_sqe_set_data(sqe, &loop->cancelled);
}

static void uring_socket_send(pb_loop *loop, pb_socket *socket, struct iovec *iov, int count)
{
    PB_ASSERT(count > 0 && count <= PB_IO_MAX_IOVECS);
    pb_op *op = begin(loop, socket, &socket->transmit, KIND_RING);
    struct io_uring_sqe *sqe = next_sqe(loop);
    if (count == 1) {
        io_uring_prep_send(sqe, socket->fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL);
    } else {
        memset(&socket->message, 0, sizeof socket->message);
        socket->message.msg_iov = iov;
        socket->message.msg_iovlen = (size_t)count;
        io_uring_prep_sendmsg(sqe, socket->fd, &socket->message, MSG_NOSIGNAL);
    }
    io_uring_sqe_set_data(sqe, op);
}

static void uring_socket_sendfile(pb_loop *loop, pb_socket *socket, struct iovec *iov, int count, int tail_count,
                                  int file, int64_t position, size_t length)
{
    PB_ASSERT(length > 0 && tail_count >= 0 && tail_count <= count && count <= PB_IO_MAX_IOVECS);
    pb_op *op = begin(loop, socket, &socket->transmit, KIND_SENDFILE);
    op->iov = iov;
    op->iov_count = count;
    op->tail_count = tail_count;
    op->file = file;
    op->position = position;
    op->length = length;
    try_sendfile(loop, op);
}

/* A hang-up finishes receives and sends; accepting and connecting must be cancelled. */
static void uring_socket_shutdown(pb_loop *loop, pb_socket *socket)
{
    if (socket->transmit.active && socket->transmit.kind == KIND_CONNECT) {
        struct io_uring_sqe *sqe = next_sqe(loop);
        io_uring_prep_cancel(sqe, &socket->transmit, 0);
        io_uring_sqe_set_data(sqe, &loop->cancelled);
        return; /* cut off, it would be connected anew */
    }
    (void)shutdown(socket->fd, SHUT_RDWR);
    uring_socket_cancel(loop, socket);
}

static void uring_socket_end(pb_loop *loop, pb_socket *socket)
{
    (void)loop;
    (void)shutdown(socket->fd, SHUT_WR);
}

static void uring_socket_close(pb_loop *loop, pb_socket *socket)
{
    (void)loop;
    PB_ASSERT(!socket->receive.active && !socket->transmit.active && !socket->closed);
    socket->closed = true;
    close(socket->fd);
}

/* Among operations submitted together the kernel begins writes last: sends that follow would keep this one from the
 * disk. The end of the turn submits what is refused now. */
static void submit_now(pb_loop *loop)
{
    (void)io_uring_submit(&loop->ring);
}

static int64_t uring_write_start(pb_loop *loop, pb_op *op, int file, struct iovec *iov, int count, int64_t position)
{
    PB_ASSERT(count > 0 && count <= PB_IO_MAX_IOVECS);
    if (!op->beside && !op->direct)
        return pb_posix_file_write(loop->io, file, iov, count, position);
    begin(loop, NULL, op, KIND_RING);
    struct io_uring_sqe *sqe = next_sqe(loop);
    io_uring_prep_writev2(sqe, file, iov, (unsigned)count, (uint64_t)position, op->durable ? RWF_DSYNC : 0);
    io_uring_sqe_set_data(sqe, op);
    if (op->direct)
        submit_now(loop);
    return PB_IO_PENDING;
}

static void uring_flush_start(pb_loop *loop, pb_op *op, int file)
{
    begin(loop, NULL, op, KIND_RING);
    struct io_uring_sqe *sqe = next_sqe(loop);
    io_uring_prep_fsync(sqe, file, IORING_FSYNC_DATASYNC);
    io_uring_sqe_set_data(sqe, op);
    submit_now(loop);
}

static void uring_close(pb_io *io)
{
    free(io);
}

static const pb_io_ops uring_ops = {
    .name = "io_uring",
    .starts_durable_writes = true,
    .close = uring_close,
    PB_POSIX_OPS,
    .loop_open = uring_loop_open,
    .loop_close = uring_loop_close,
    .loop_turn = uring_loop_turn,
    .loop_wake = uring_loop_wake,
    .socket_accept = uring_socket_accept,
    .socket_connect = uring_socket_connect,
    .socket_attach = uring_socket_attach,
    .socket_recv = uring_socket_recv,
    .socket_cancel = uring_socket_cancel,
    .socket_send = uring_socket_send,
    .socket_sendfile = uring_socket_sendfile,
    .socket_shutdown = uring_socket_shutdown,
    .socket_end = uring_socket_end,
    .socket_close = uring_socket_close,
    .write_start = uring_write_start,
    .flush_start = uring_flush_start,
};

/* The three system calls of io_uring, tried one by one: a filter may refuse any of them. */
static int try_ring(void)
{
    struct io_uring probe;
    int result = setup_ring(&probe);
    if (result < 0)
        return result;
    result = enable_ring(&probe);
    if (result == 0 && syscall(SYS_io_uring_enter, probe.ring_fd, 0, 0, 0, NULL, 0) < 0)
        result = -errno;
    io_uring_queue_exit(&probe);
    return result;
}

static const char *refusal(int result)
{
    switch (result) {
    case -ENOSYS:
        return "this kernel has no io_uring, or a seccomp filter hides it";
    case -EPERM:
    case -EACCES:
        return "io_uring is forbidden, by kernel.io_uring_disabled or by a seccomp filter";
    case -EINVAL:
        return "the io_uring of this kernel lacks what Linux 6.1 brought";
    case -ENOMEM:
        return "there is no memory for io_uring, or the limit of locked memory (ulimit -l) is too low";
    default:
        return "this kernel or container refuses io_uring";
    }
}

int pb_io_uring_open(pb_io **out, pb_failure *failure)
{
    int result = try_ring();
    if (result < 0)
        return pb_fail(failure, result, "%s", refusal(result));
    pb_io *io = calloc(1, sizeof *io);
    if (io == NULL)
        return pb_fail(failure, -ENOMEM, "cannot allocate the io_uring backend");
    io->ops = &uring_ops;
    *out = io;
    return 0;
}
