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
/* The same: more of the answer's body, which is copied. 0, -ENOMEM or -EMSGSIZE: then it can only be closed. */
int pb_slow_path_append(pb_request *request, const uint8_t *bytes, size_t length);
/* Any thread, once per request: `body` (malloc'd, taken over) is the answer, or NULL when it came in parts; with
 * `close` the connection is closed. */
void pb_slow_path_answer(pb_request *request, uint8_t *body, size_t length, bool close);

#endif
