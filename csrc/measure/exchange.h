/*
 * The client of a measurement: sends frames made beforehand over several connections, so many in flight on each, and
 * times the answers.
 *
 * It knows only this of its frames. Connection i sends frame i modulo the number of frames. Eight bytes of each may
 * count on from request to request (a fetch offset). An answer shorter than `answer_min_bytes`, or with anything but
 * zeros in two bytes of it (an error code), ends the run. One loop on the caller's thread. Both real backends.
 */
#ifndef PB_MEASURE_EXCHANGE_H
#define PB_MEASURE_EXCHANGE_H

#include "measure/meter.h"

#define PB_EXCHANGE_CONNECTIONS 64
#define PB_EXCHANGE_IN_FLIGHT 64

typedef struct pb_exchange_options {
    const char *host;
    int port;
    int connection_count;
    int in_flight;
    const uint8_t *frames; /* one after the other, prefixes included */
    int64_t frame_bytes;   /* of each */
    int frame_count;
    int64_t counter_position; /* in a frame, of a big-endian int64; -1: none */
    int64_t counter_step;     /* request n has (n modulo counter_count) * counter_step there */
    int64_t counter_count;
    int64_t error_position; /* in an answer behind its prefix, below PB_FRAME_HEAD_BYTES; -1: not looked at */
    int64_t answer_min_bytes;
    int64_t spin_ns; /* before sleeping */
    pb_meter_limits limits;
} pb_exchange_options;

/* A request is an operation, from before it is sent until its answer is whole; bytes are those of both directions. */
int pb_exchange_measure(pb_io *io, const pb_exchange_options *options, pb_meter_result *out, pb_failure *failure);

#endif
