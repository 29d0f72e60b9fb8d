/*
 * A fetcher's connection. Its home reactor, but for looking names up, which a background thread does.
 *
 * One attempt after the other over the addresses of the host's name, then the name is looked up anew; `backoff_ms`
 * after each that failed. Whatever cannot be understood ends the connection, and with it the session.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/follow/fetcher.h"
#include "wire/generated/response_header.h"

enum { ANSWER_HEAD_BYTES = 64 * 1024 }; /* what an answer may have beside records, to get a chunk of its size at once */

/* A name that is looked up. Owner: the job, then the task. */
typedef struct lookup {
    pb_job job;
    pb_task task;
    pb_fetcher *fetcher; /* retained */
    pb_address addresses[PB_FETCHER_ADDRESSES];
    int count;
    pb_failure failure;
} lookup;

static void dial(pb_fetcher *fetcher);

bool pb_fetcher_is_over(const pb_fetcher *fetcher)
{
    return fetcher->closed || fetcher->home->reactor.left || atomic_load(&fetcher->broker->halted) ||
           atomic_load(&fetcher->home->reactor.stopping);
}

/* Once, until the leader has answered again. */
__attribute__((format(printf, 2, 3))) static void complain(pb_fetcher *fetcher, const char *format, ...)
{
    pb_counter_add(&fetcher->counters.failures, 1);
    if (fetcher->complained || pb_fetcher_is_over(fetcher))
        return;
    fetcher->complained = true;
    char why[256];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    pb_events_notice(&fetcher->broker->events,
                     "cannot fetch from broker %d at %s:%d: %s; it is tried again every %lld ms",
                     fetcher->settings.leader_id, fetcher->settings.host, fetcher->settings.port, why,
                     (long long)(fetcher->settings.backoff_ns / 1000000));
}

static void try_again(pb_timer *timer)
{
    pb_fetcher *fetcher = PB_CONTAINER(timer, pb_fetcher, retry);
    if (pb_fetcher_is_over(fetcher) || fetcher->connection != NULL)
        return;
    if (fetcher->next_address < fetcher->address_count)
        dial(fetcher);
    else
        pb_fetcher_connect(fetcher);
}

static void back_off(pb_fetcher *fetcher)
{
    pb_reactor *reactor = &fetcher->home->reactor;
    fetcher->retry.fire = try_again;
    if (!pb_fetcher_is_over(fetcher) &&
        pb_timer_set(&reactor->timers, &fetcher->retry, reactor->now_ns + fetcher->settings.backoff_ns) < 0)
        complain(fetcher, "no memory for a timer"); /* the next partition that follows tries again */
}

/* ---- the request under way ---- */

static void no_answer(pb_timer *timer)
{
    pb_fetcher *fetcher = PB_CONTAINER(timer, pb_fetcher, deadline);
    pb_fetcher_fail(fetcher, fetcher->connected ? "it does not answer" : "connecting takes too long");
}

static void expect_until(pb_fetcher *fetcher, int64_t wait_ns)
{
    pb_reactor *reactor = &fetcher->home->reactor;
    fetcher->deadline.fire = no_answer;
    if (pb_timer_set(&reactor->timers, &fetcher->deadline, reactor->now_ns + wait_ns) < 0)
        pb_fetcher_fail(fetcher, "no memory for a timer");
}

static void request_released(pb_response *response, bool sent)
{
    pb_fetcher *fetcher = PB_CONTAINER(response, pb_fetcher, request);
    fetcher->sending = false;
    if (sent)
        pb_fetcher_go_on(fetcher); /* the answer may have come before */
}

void pb_fetcher_send(pb_fetcher *fetcher, enum pb_fetcher_expects expects, int64_t wait_ms)
{
    PB_ASSERT(fetcher->connected && !fetcher->sending && fetcher->expects == PB_EXPECTS_NOTHING);
    pb_writer *writer = &fetcher->writer;
    if (writer->error != 0 || writer->length - sizeof(int32_t) > INT32_MAX) {
        pb_fetcher_fail(fetcher, "no memory for a request");
        return;
    }
    pb_writer_patch_int32(writer, 0, (int32_t)(writer->length - sizeof(int32_t)));
    fetcher->output = (pb_output){.data = writer->data, .length = (int64_t)writer->length};
    fetcher->request.released = request_released;
    fetcher->expects = expects;
    fetcher->sending = true;
    pb_connection_expect(fetcher->connection, &fetcher->request);
    fetcher->request.outputs = &fetcher->output;
    fetcher->request.output_count = 1;
    pb_counter_add(&fetcher->counters.requests, 1);
    pb_connection_respond(fetcher->connection, &fetcher->request);
    expect_until(fetcher, wait_ms * 1000000 + fetcher->settings.timeout_ns);
}

/* ---- the connection ---- */

/* 0, or -errno: this is no answer to what was asked. */
static int take_answer(pb_fetcher *fetcher, pb_chunk *chunk, const uint8_t *frame, uint32_t length)
{
    pb_reader reader = pb_reader_of(frame, length);
    pb_response_header header;
    enum pb_fetcher_expects expects = fetcher->expects;
    int result = pb_response_header_read(&reader, 1, &fetcher->arena, &header); /* both requests are flexible */
    if (result != 0 || expects == PB_EXPECTS_NOTHING || header.correlation_id != fetcher->correlation_id)
        return -EBADMSG;
    fetcher->expects = PB_EXPECTS_NOTHING;
    pb_timer_cancel(&fetcher->home->reactor.timers, &fetcher->deadline);
    const uint8_t *body = frame + reader.position;
    return expects == PB_EXPECTS_FETCH ? pb_fetcher_take_fetch(fetcher, chunk, body, length - reader.position)
                                       : pb_fetcher_take_offsets(fetcher, body, length - reader.position);
}

static enum pb_frame_verdict take_frame(pb_connection *connection, pb_chunk *chunk, const uint8_t *frame,
                                        uint32_t length)
{
    pb_fetcher *fetcher = connection->owner;
    if (fetcher->connection != connection || fetcher->closed)
        return PB_FRAME_REFUSE;
    pb_counter_add(&fetcher->counters.bytes, length);
    fetcher->handling = true;
    int result = take_answer(fetcher, chunk, frame, length);
    fetcher->handling = false;
    if (result < 0) {
        pb_fetcher_fail(fetcher, result == -EBADMSG ? "it sends what is no answer" : strerror(-result));
        return PB_FRAME_REFUSE;
    }
    fetcher->complained = false;
    pb_fetcher_go_on(fetcher);
    return PB_FRAME_TAKEN;
}

static void opened(pb_connection *connection)
{
    pb_fetcher *fetcher = connection->owner;
    if (fetcher->connection != connection) {
        pb_connection_kill(connection);
        return;
    }
    pb_timer_cancel(&fetcher->home->reactor.timers, &fetcher->deadline);
    connection->socket.patient = false;
    fetcher->connected = true;
    fetcher->next_address = 0;
    pb_counter_add(&fetcher->counters.connections, 1);
    pb_counter_add(&fetcher->counters.connected, 1);
    pb_fetcher_go_on(fetcher);
}

/* It is gone, or about to go: nothing of it matters any more. */
static void lose(pb_fetcher *fetcher)
{
    pb_timer_cancel(&fetcher->home->reactor.timers, &fetcher->deadline);
    if (fetcher->connected)
        pb_counter_add(&fetcher->counters.connected, -1);
    fetcher->connection = NULL;
    fetcher->connected = false;
    fetcher->expects = PB_EXPECTS_NOTHING;
    pb_fetcher_reset_session(fetcher);
}

static void closed(pb_connection *connection)
{
    pb_fetcher *fetcher = connection->owner;
    if (fetcher->connection == connection) {
        lose(fetcher);
        complain(fetcher, "%s", connection->error < 0 ? strerror(-connection->error) : "it closed the connection");
        back_off(fetcher);
    } else if (!pb_timer_is_set(&fetcher->retry)) {
        pb_fetcher_go_on(fetcher); /* the request that was being sent is out of the way */
    }
    pb_fetcher_release(fetcher);
}

static void malformed(pb_connection *connection, const char *what)
{
    pb_fetcher *fetcher = connection->owner;
    complain(fetcher, "it sends %s", what);
}

void pb_fetcher_disconnect(pb_fetcher *fetcher)
{
    pb_connection *connection = fetcher->connection;
    if (connection == NULL)
        return;
    lose(fetcher);
    pb_connection_kill(connection);
}

void pb_fetcher_fail(pb_fetcher *fetcher, const char *why)
{
    complain(fetcher, "%s", why);
    pb_fetcher_disconnect(fetcher);
    back_off(fetcher);
}

static void dial(pb_fetcher *fetcher)
{
    PB_ASSERT(fetcher->connection == NULL && fetcher->next_address < fetcher->address_count);
    const pb_address *address = &fetcher->addresses[fetcher->next_address++];
    pb_fetcher_retain(fetcher);
    fetcher->connection = pb_connection_connect(&fetcher->home->reactor, address, &fetcher->handler, fetcher, -1);
    if (fetcher->connection == NULL) {
        pb_fetcher_release(fetcher);
        complain(fetcher, "no memory or no file handle for a connection");
        back_off(fetcher);
        return;
    }
    expect_until(fetcher, fetcher->settings.timeout_ns);
}

static void found(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    lookup *it = PB_CONTAINER(task, lookup, task);
    pb_fetcher *fetcher = it->fetcher;
    fetcher->resolving = false;
    if (it->count > 0) {
        memcpy(fetcher->addresses, it->addresses, sizeof fetcher->addresses);
        fetcher->address_count = it->count;
        fetcher->next_address = 0;
    }
    if (it->count <= 0) {
        complain(fetcher, "%s", it->failure.text);
        back_off(fetcher);
    } else if (!pb_fetcher_is_over(fetcher) && fetcher->connection == NULL) {
        dial(fetcher);
    }
    free(it);
    pb_fetcher_release(fetcher);
}

static void look_up(pb_job *job)
{
    lookup *it = PB_CONTAINER(job, lookup, job);
    pb_io *io = it->fetcher->broker->io;
    it->count = io->ops->address_find(io, it->fetcher->settings.host, it->fetcher->settings.port, it->addresses,
                                      PB_FETCHER_ADDRESSES, &it->failure);
    pb_reactor_post(&it->fetcher->home->reactor, &it->task);
}

void pb_fetcher_connect(pb_fetcher *fetcher)
{
    if (pb_fetcher_is_over(fetcher) || fetcher->connection != NULL || fetcher->resolving || fetcher->sending ||
        pb_timer_is_set(&fetcher->retry) || pb_counter_read(&fetcher->counters.partitions) == 0)
        return;
    lookup *it = calloc(1, sizeof *it);
    if (it == NULL) {
        complain(fetcher, "no memory to look its name up");
        back_off(fetcher);
        return;
    }
    it->job.run = look_up;
    it->task.run = found;
    it->fetcher = fetcher;
    pb_fetcher_retain(fetcher);
    fetcher->resolving = true;
    pb_worker_submit(&fetcher->broker->lookups, &it->job);
}

void pb_fetcher_init_link(pb_fetcher *fetcher)
{
    fetcher->handler = (pb_connection_handler){
        .opened = opened,
        .frame = take_frame,
        .malformed = malformed,
        .closed = closed,
        .max_frame_bytes = INT32_MAX,
        .exact_frame_bytes = (uint32_t)fetcher->settings.max_bytes + ANSWER_HEAD_BYTES,
        .pool = &fetcher->broker->fetched,
    };
}
