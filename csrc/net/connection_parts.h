/*
 * Shared by the files of a connection: connection.c has its life and the calls of others, receive.c and send.c have the
 * two directions. Those change the state of theirs, and leave to its life what follows from that: they mark the
 * connection, or kill it.
 */
#ifndef PB_NET_CONNECTION_PARTS_H
#define PB_NET_CONNECTION_PARTS_H

#include "net/connection.h"

static inline pb_io *pb_connection_io(pb_connection *connection)
{
    return connection->reactor->io;
}

/* Have pb_connection_flush look at it when the turn ends. */
void pb_connection_mark(pb_connection *connection);

/* ---- receive.c ---- */

/* Wait for what comes next, if a frame can be taken. After the client's end: kill it when all is answered. */
void pb_receive(pb_connection *connection);
/* Hand over the frames that are here, then as pb_receive. */
void pb_receive_frames(pb_connection *connection);
/* Read what comes, and throw it away. */
void pb_receive_and_discard(pb_connection *connection);
/* It does not wait for memory any more. */
void pb_receive_unstarve(pb_connection *connection);
/* No operation is active and none follows: give back what was received. */
void pb_receive_end(pb_connection *connection);
void pb_received(pb_op *op, int64_t result);
/* Bytes of the frame whose beginning is buffered, with its size field; 0 while the size field itself is not there. */
uint32_t pb_receive_frame_bytes(const pb_connection *connection);
/* While nothing is being received: keep what is buffered in memory of its size. False: memory is short. */
bool pb_receive_fit(pb_connection *connection);
/* Keep nothing, as nothing is buffered and nothing is being received. */
void pb_receive_drop(pb_connection *connection);

/* ---- send.c ---- */

/* Send what is ready and next in turn, unless something is being sent. */
void pb_send(pb_connection *connection);
/* Nobody waits for the responses any more: those that can become ready soon. */
void pb_send_hurry(pb_connection *connection);
/* Drop responses up to the first that is not ready. True: none is left. */
bool pb_send_drop(pb_connection *connection);
void pb_sent(pb_op *op, int64_t result);

#endif
