/*
 * How a connection's bytes travel: the socket itself now, TLS later. Same contracts as the socket operations of io.h.
 */
#ifndef PB_NET_TRANSPORT_H
#define PB_NET_TRANSPORT_H

#include "io/io.h"

typedef struct pb_transport {
    void (*receive)(pb_io *io, pb_loop *loop, pb_socket *socket, void *buffer, size_t length);
    void (*send)(pb_io *io, pb_loop *loop, pb_socket *socket, struct iovec *iov, int count);
    void (*send_file)(pb_io *io, pb_loop *loop, pb_socket *socket, struct iovec *iov, int count, int tail_count,
                      int file, int64_t position, size_t length);
} pb_transport;

extern const pb_transport pb_transport_plain;

#endif
