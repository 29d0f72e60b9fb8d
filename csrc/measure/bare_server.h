/*
 * A server that does nothing but receive and answer: what the network costs any broker on this machine.
 *
 * A frame is Kafka's: four bytes of length, big-endian, then so many bytes. Each is received whole and answered with a
 * frame of `answer_bytes`, from memory or, by sendfile, out of a scratch. One thread of its own with one loop, which
 * spins before it sleeps as a reactor does. It listens on 127.0.0.1 only. Owner: the caller, from start to stop.
 */
#ifndef PB_MEASURE_BARE_SERVER_H
#define PB_MEASURE_BARE_SERVER_H

#include "measure/scratch.h"

#define PB_BARE_SERVER_CONNECTIONS 64

typedef struct pb_bare_server pb_bare_server;

typedef struct pb_bare_server_options {
    int64_t answer_bytes; /* the frame's length with its prefix, more than 4 */
    int64_t spin_ns;
    const pb_scratch *scratch; /* NULL: answers are zeros from memory */
    int64_t scratch_bytes;     /* that are there to send; one answer after the other, around */
} pb_bare_server_options;

/* The CPU time used. */
typedef struct pb_bare_server_usage {
    int64_t cpu_ns; /* of its thread */
    int64_t frames;
} pb_bare_server_usage;

int pb_bare_server_start(pb_io *io, const pb_bare_server_options *options, pb_bare_server **out, int *port,
                         pb_failure *failure);
/* Close all connections, end the thread, free. */
void pb_bare_server_stop(pb_bare_server *server, pb_bare_server_usage *out);

#endif
