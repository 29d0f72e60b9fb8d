/* See heartbeat.h. One reactor, but for what says any thread. */
#include "server/heartbeat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A heartbeat on its way to the reactor. Owner: the task. */
typedef struct meal {
    pb_task task;
    pb_heartbeat *heartbeat; /* retained */
    uint8_t *frame;
    size_t length;
} meal;

static void retain(pb_heartbeat *heartbeat)
{
    int before = atomic_fetch_add_explicit(&heartbeat->references, 1, memory_order_relaxed);
    PB_ASSERT(before > 0);
}

static void release(pb_heartbeat *heartbeat)
{
    int before = atomic_fetch_sub_explicit(&heartbeat->references, 1, memory_order_acq_rel);
    PB_ASSERT(before > 0);
    if (before > 1)
        return;
    free(heartbeat->frame);
    free(heartbeat);
}

static bool is_over(const pb_heartbeat *heartbeat)
{
    return heartbeat->closed || heartbeat->reactor->left || atomic_load(&heartbeat->broker->halted) ||
           atomic_load(&heartbeat->reactor->stopping);
}

/* ---- the connection ---- */

static void opened(pb_connection *connection)
{
    pb_heartbeat *heartbeat = connection->owner;
    heartbeat->connected = heartbeat->connection == connection;
}

static enum pb_frame_verdict answered(pb_connection *connection, pb_chunk *chunk, const uint8_t *frame, uint32_t length)
{
    (void)connection;
    (void)chunk;
    (void)frame;
    (void)length;
    return PB_FRAME_TAKEN;
}

static void malformed(pb_connection *connection, const char *what)
{
    pb_heartbeat *heartbeat = connection->owner;
    pb_events_notice(&heartbeat->broker->events, "the controller that heartbeats go to sends %s", what);
}

static void forget(pb_heartbeat *heartbeat)
{
    heartbeat->connection = NULL;
    heartbeat->connected = false;
}

static void closed(pb_connection *connection)
{
    pb_heartbeat *heartbeat = connection->owner;
    if (heartbeat->connection == connection)
        forget(heartbeat);
    release(heartbeat);
}

static void hang_up(pb_heartbeat *heartbeat)
{
    pb_connection *connection = heartbeat->connection;
    if (connection == NULL)
        return;
    forget(heartbeat);
    pb_connection_kill(connection);
}

static void dial(pb_heartbeat *heartbeat)
{
    retain(heartbeat);
    heartbeat->dialed_ns = heartbeat->reactor->now_ns;
    heartbeat->connection =
        pb_connection_connect(heartbeat->reactor, &heartbeat->address, &heartbeat->handler, heartbeat, -1);
    if (heartbeat->connection == NULL)
        release(heartbeat); /* the next tick tries again */
}

/* ---- what is sent ---- */

static void released(pb_response *response, bool sent)
{
    pb_heartbeat *heartbeat = PB_CONTAINER(response, pb_heartbeat, request);
    heartbeat->sending = false;
    if (sent)
        pb_counter_add(&heartbeat->sent_count, 1);
}

static void send_again(pb_heartbeat *heartbeat)
{
    heartbeat->output = (pb_output){.data = heartbeat->frame, .length = (int64_t)heartbeat->length};
    heartbeat->request.released = released;
    heartbeat->sending = true;
    pb_connection_expect(heartbeat->connection, &heartbeat->request);
    heartbeat->request.outputs = &heartbeat->output;
    heartbeat->request.output_count = 1;
    pb_connection_respond(heartbeat->connection, &heartbeat->request);
}

/* A heartbeat comes every interval from Python; a quarter of one is how late it may be. */
static bool is_due(const pb_heartbeat *heartbeat)
{
    int64_t silent_ns = heartbeat->reactor->now_ns - heartbeat->fed_ns;
    return heartbeat->frame != NULL && silent_ns > heartbeat->interval_ns + heartbeat->interval_ns / 4 &&
           silent_ns <= heartbeat->limit_ns;
}

static void look(pb_timer *timer)
{
    pb_heartbeat *heartbeat = PB_CONTAINER(timer, pb_heartbeat, tick);
    pb_reactor *reactor = heartbeat->reactor;
    if (is_over(heartbeat))
        return;
    if (heartbeat->connection == NULL && !heartbeat->sending)
        dial(heartbeat);
    else if (heartbeat->connected && !heartbeat->sending && is_due(heartbeat))
        send_again(heartbeat);
    else if (!heartbeat->connected && reactor->now_ns - heartbeat->dialed_ns > heartbeat->interval_ns)
        hang_up(heartbeat);
    if (pb_timer_set(&reactor->timers, timer, reactor->now_ns + heartbeat->interval_ns) < 0)
        pb_events_notice(&heartbeat->broker->events, "no memory for the timer of heartbeats: Python alone gives them");
}

static void begin_here(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    pb_heartbeat *heartbeat = PB_CONTAINER(task, pb_heartbeat, begin);
    heartbeat->tick.fire = look;
    if (!is_over(heartbeat))
        look(&heartbeat->tick);
    release(heartbeat);
}

static void eat(pb_task *task, pb_reactor *reactor)
{
    meal *it = PB_CONTAINER(task, meal, task);
    pb_heartbeat *heartbeat = it->heartbeat;
    heartbeat->fed_ns = reactor->now_ns;
    if (!heartbeat->sending) { /* else the one before goes out: the next meal is near */
        uint8_t *before = heartbeat->frame;
        heartbeat->frame = it->frame;
        heartbeat->length = it->length;
        it->frame = before;
    }
    free(it->frame);
    free(it);
    release(heartbeat);
}

static void end_here(pb_task *task, pb_reactor *reactor)
{
    pb_heartbeat *heartbeat = PB_CONTAINER(task, pb_heartbeat, end);
    heartbeat->closed = true;
    pb_timer_cancel(&reactor->timers, &heartbeat->tick);
    hang_up(heartbeat);
    release(heartbeat);
}

/* ---- any thread ---- */

int pb_heartbeat_create(pb_broker *broker, const pb_address *address, int64_t interval_ns, int64_t limit_ns,
                        pb_heartbeat **out)
{
    PB_ASSERT(interval_ns > 0 && limit_ns > 0);
    pb_heartbeat *heartbeat = calloc(1, sizeof *heartbeat);
    if (heartbeat == NULL)
        return -ENOMEM;
    heartbeat->broker = broker;
    heartbeat->reactor = &broker->reactors[0].reactor;
    heartbeat->address = *address;
    heartbeat->interval_ns = interval_ns;
    heartbeat->limit_ns = limit_ns;
    heartbeat->handler = (pb_connection_handler){
        .opened = opened,
        .frame = answered,
        .malformed = malformed,
        .closed = closed,
        .max_frame_bytes = PB_HEARTBEAT_FRAME_BYTES,
    };
    atomic_init(&heartbeat->references, 2); /* the handle, the task */
    heartbeat->begin.run = begin_here;
    pb_reactor_post(heartbeat->reactor, &heartbeat->begin);
    *out = heartbeat;
    return 0;
}

int pb_heartbeat_take(pb_heartbeat *heartbeat, const uint8_t *frame, size_t length)
{
    PB_ASSERT(length > 0 && length <= PB_HEARTBEAT_FRAME_BYTES);
    meal *it = calloc(1, sizeof *it);
    uint8_t *copy = malloc(length);
    if (it == NULL || copy == NULL) {
        free(it);
        free(copy);
        return -ENOMEM;
    }
    memcpy(copy, frame, length);
    it->task.run = eat;
    it->heartbeat = heartbeat;
    it->frame = copy;
    it->length = length;
    retain(heartbeat);
    pb_reactor_post(heartbeat->reactor, &it->task);
    return 0;
}

void pb_heartbeat_end(pb_heartbeat *heartbeat)
{
    heartbeat->end.run = end_here;
    pb_reactor_post(heartbeat->reactor, &heartbeat->end);
}
