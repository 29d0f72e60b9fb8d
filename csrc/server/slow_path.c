/* Requests that Python serves. The reactor never waits: the connection's later requests wait instead. */
#include "server/slow_path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MS_NS 1000000LL
#define SEPARATE_BYTES (64u * 1024) /* a longer answer is sent from where it is: to copy it takes a while */
#define REPLY_MAX_BYTES ((size_t)INT32_MAX - 1024) /* with its headers it must be a frame */

static void answered(pb_task *task, pb_reactor *reactor)
{
    pb_request *request = PB_CONTAINER(task, pb_request, task);
    pb_reactor_notice_control(reactor);
    atomic_fetch_sub(&request->home->broker->python_requests, 1);
    request->at_ns[PB_AT_LOCAL_DONE] = request->home->reactor.now_ns;
    if (request->close_instead) {
        if (request->connection->leaving)
            pb_request_finish_silent(request); /* it ends where an answer would have been, and loses none before */
        else
            pb_request_abandon(request);
        return;
    }
    if (request->mute_ms > 0) {
        pb_connection_mute(request->connection, request->home->reactor.now_ns + request->mute_ms * MS_NS);
        pb_counter_add(&request->home->counters.quota_throttled, 1);
    }
    pb_request_begin_answer(request);
    if (request->reply_length > SEPARATE_BYTES) {
        const pb_gap_filling body = {.data = request->reply, .length = (int64_t)request->reply_length};
        pb_writer_leave_gap(&request->writer, (int32_t)request->reply_length);
        pb_request_finish_answer(request, &body, 1);
        return;
    }
    pb_write_raw(&request->writer, request->reply, request->reply_length);
    free(request->reply); /* a client that does not read keeps one copy of it, not two */
    request->reply = NULL;
    pb_request_finish_answer(request, NULL, 0);
}

void pb_slow_path_handle(pb_request *request)
{
    pb_broker *broker = request->home->broker;
    request->task.run = answered;
    request->event.kind = PB_NODE_REQUEST;
    atomic_fetch_add(&broker->python_requests, 1);
    pb_events_put(&broker->events, &request->event);
}

void pb_slow_path_taken(pb_request *request)
{
    (void)pb_request_leave_chunk(request);
}

void pb_slow_path_mute(pb_request *request, int32_t ms)
{
    request->mute_ms = ms;
}

int pb_slow_path_append(pb_request *request, const uint8_t *bytes, size_t length)
{
    PB_ASSERT(request->reply_length <= request->reply_capacity);
    if (length > REPLY_MAX_BYTES - request->reply_length)
        return -EMSGSIZE;
    const size_t needed = request->reply_length + length;
    if (needed > request->reply_capacity) {
        const size_t doubled = 2 * request->reply_capacity;
        const size_t capacity = needed > doubled ? needed : doubled;
        uint8_t *larger = realloc(request->reply, capacity);
        if (larger == NULL)
            return -ENOMEM;
        request->reply = larger;
        request->reply_capacity = capacity;
    }
    if (length > 0)
        memcpy(request->reply + request->reply_length, bytes, length);
    request->reply_length = needed;
    return 0;
}

void pb_slow_path_answer(pb_request *request, uint8_t *body, size_t length, bool close)
{
    PB_ASSERT(body != NULL || close || length == 0);
    PB_ASSERT(request->reply == NULL || body == NULL);
    if (length > REPLY_MAX_BYTES)
        close = true;
    if (body != NULL) {
        request->reply = body;
        request->reply_length = length;
    }
    request->close_instead = close;
    pb_reactor_post(&request->home->reactor, &request->task);
}
