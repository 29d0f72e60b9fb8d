/* Plain TCP: straight to the I/O table. */
#include "net/transport.h"

static void plain_receive(pb_io *io, pb_loop *loop, pb_socket *socket, void *buffer, size_t length)
{
    io->ops->socket_recv(loop, socket, buffer, length);
}

static void plain_send(pb_io *io, pb_loop *loop, pb_socket *socket, struct iovec *iov, int count)
{
    io->ops->socket_send(loop, socket, iov, count);
}

static void plain_send_file(pb_io *io, pb_loop *loop, pb_socket *socket, struct iovec *iov, int count, int tail_count,
                            int file, int64_t position, size_t length)
{
    io->ops->socket_sendfile(loop, socket, iov, count, tail_count, file, position, length);
}

const pb_transport pb_transport_plain = {
    .receive = plain_receive,
    .send = plain_send,
    .send_file = plain_send_file,
};
