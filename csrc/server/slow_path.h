/*
 * Requests that Python serves: out through the event queue, back as a task for the connection's reactor.
 */
#ifndef PB_SERVER_SLOW_PATH_H
#define PB_SERVER_SLOW_PATH_H

#include "server/request.h"

/* The thread that has the request: body and client's name have been copied, so their memory may go. */
void pb_slow_path_taken(pb_request *request);
/* The same, before it answers: the connection is not heard for so long after that. */
void pb_slow_path_mute(pb_request *request, int32_t ms);
/* Any thread, once per request: `body` (malloc'd, taken over) is the answer; NULL with `close` closes the connection.
 */
void pb_slow_path_answer(pb_request *request, uint8_t *body, size_t length, bool close);

#endif
