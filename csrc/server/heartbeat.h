/*
 * Heartbeats while Python gives none.
 *
 * Python sends this broker's heartbeats to its controllers, and hands each that was answered here as well. When the
 * next one is late, a reactor sends the last one again, every interval, on a connection of its own that is kept open
 * for it. So the broker is not fenced because the control loop stands still for a moment. But after `limit_ns` it says
 * nothing more, because a broker whose control loop is dead must be fenced. The answers are thrown away: Python hears
 * the same with the next of its own.
 */
#ifndef PB_SERVER_HEARTBEAT_H
#define PB_SERVER_HEARTBEAT_H

#include "server/broker.h"

#define PB_HEARTBEAT_FRAME_BYTES 65536

/* Owner: the handle, tasks under way and the connection together. */
typedef struct pb_heartbeat {
    pb_broker *broker;
    pb_reactor *reactor;
    pb_address address;
    int64_t interval_ns;
    int64_t limit_ns;
    atomic_int references;
    pb_task begin;
    pb_task end;
    _Atomic int64_t sent_count;
    /* The rest: the reactor's. */
    pb_connection_handler handler;
    pb_connection *connection; /* NULL: to be made at the next tick */
    int64_t dialed_ns;
    bool connected;
    bool sending;
    bool closed;
    pb_timer tick;
    uint8_t *frame; /* the last one handed over; NULL: none was */
    size_t length;
    int64_t fed_ns; /* when */
    pb_response request;
    pb_output output;
} pb_heartbeat;

/* Any thread, of a broker that runs. -ENOMEM. */
int pb_heartbeat_create(pb_broker *broker, const pb_address *address, int64_t interval_ns, int64_t limit_ns,
                        pb_heartbeat **out);
/* Any thread: Python is alive, and this is its last heartbeat. Copied. -ENOMEM. */
int pb_heartbeat_take(pb_heartbeat *heartbeat, const uint8_t *frame, size_t length);
/* Any thread: the handle ends, and nothing is sent any more. */
void pb_heartbeat_end(pb_heartbeat *heartbeat);

#endif
