/*
 * Receive memory under pressure: what connections give back, and which of them are closed. Reactor thread only.
 *
 * A connection is charged for the memory that it holds. While there is enough, it may hold more than it has sent: a
 * buffer for the next bytes, or room for the rest of a large frame. While memory is short, it keeps what it has sent
 * and waits for the rest without a buffer.
 *
 * Connections may starve although all unsent room was given back. Then clients hold memory by frames that do not get
 * on. Every 100 ms each reactor tells the pool of its slow connections (net/pool.h). Those that are no faster than the
 * slowest of all reactors are closed, until memory suffices. A slow connection is left alone while nobody starves. The
 * same holds while slow ones hold so little that closing them would help nobody.
 */
#ifndef PB_NET_PRESSURE_H
#define PB_NET_PRESSURE_H

#include "net/connection.h"

/* After a receive, or while no frame is taken: give back what is not needed soon. */
void pb_pressure_spare(pb_connection *connection);
/* Look at all connections of the reactor: idle buffers, idle connections, slow ones. */
void pb_pressure_sweep(pb_reactor *reactor);

#endif
