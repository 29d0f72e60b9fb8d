/* A loop of a real backend and one socket of it, which counts what is done to it. Header only. */
#ifndef PB_TESTS_IO_LOOP_RIG_H
#define PB_TESTS_IO_LOOP_RIG_H

#include <string.h>

#include "io/linux/posix.h"
#include "tests/check.h"

enum { TURN_LIMIT = 2000, TURN_NS = 10000000, BACKENDS = 2 };

static const char *const backends[BACKENDS] = {"epoll", "io_uring"};

typedef struct rig {
    pb_io *io;
    pb_loop *loop;
    pb_socket socket;
    int peer;     /* the test's end of the connection, a plain blocking file descriptor */
    int received; /* how many times done was called */
    int sent;     /* as well: it tells of connecting too */
    int64_t receive_result;
    int64_t send_result;
} rig;

static inline void rig_receive_done(pb_op *op, int64_t result)
{
    rig *it = PB_CONTAINER(op, rig, socket.receive);
    it->received++;
    it->receive_result = result;
}

static inline void rig_send_done(pb_op *op, int64_t result)
{
    rig *it = PB_CONTAINER(op, rig, socket.transmit);
    it->sent++;
    it->send_result = result;
}

/* The loop; which file descriptor the socket has is the caller's. */
static inline void rig_open_loop(rig *it, const char *backend)
{
    memset(it, 0, sizeof *it);
    pb_failure failure = {0};
    CHECK_INT(pb_io_open(backend, &it->io, &failure), 0);
    CHECK_INT(it->io->ops->loop_open(it->io, &it->loop, &failure), 0);
    it->socket.receive.done = rig_receive_done;
    it->socket.transmit.done = rig_send_done;
}

/* Nothing of the socket is active any more. */
static inline void rig_close_loop(rig *it)
{
    it->io->ops->socket_close(it->loop, &it->socket);
    it->io->ops->loop_close(it->loop);
    it->io->ops->close(it->io);
}

static inline void turn_until(rig *it, const int *count, int wanted)
{
    for (int turn = 0; *count < wanted; turn++) {
        CHECK(turn < TURN_LIMIT);
        (void)it->io->ops->loop_turn(it->loop, TURN_NS);
    }
}

#endif
