/*
 * The way of a Produce's partitions until it is answered: refused, accepted, or on their way to the disk or to the
 * followers. Those that are written come home from whichever reactor or thread wrote them; for followers nobody waits
 * longer than the client has said. Reactor thread, but for pb_produce_appended.
 */
#include "server/produce/produce.h"

#include <errno.h>
#include <string.h>

#include "wire/generated/kafka_errors.h"

#define ERROR_TEXT_BYTES 256
#define FIRST_LOOK_NS 5000000LL
#define LOOK_AGAIN_NS 1000000000LL

static void complete(pb_request *request)
{
    produce_state *state = request->state;
    PB_ASSERT(state->pending == 0);
    pb_timer_cancel(&request->home->reactor.timers, &state->timer);
    if (state->in.acks == 0) {
        /* There is no answer to carry an error: as Kafka, the closed connection tells the producer. */
        if (state->failed)
            pb_request_abandon(request);
        else
            pb_request_finish_silent(request);
        return;
    }
    pb_request_begin_answer(request);
    pb_produce_response_write(&request->writer, request->header.request_api_version, &state->out);
    pb_request_let_go(request); /* a client that pipelines without reading keeps answers, and no more */
    pb_request_finish_answer(request, NULL, 0);
}

void pb_produce_refuse(produce_slot *slot, int error, const char *text)
{
    produce_state *state = slot->request->state;
    state->failed = true;
    pb_counter_add(&slot->request->home->counters.failed_produces, 1);
    if (error < 0)
        error = error == -ENOMEM ? PB_KAFKA_UNKNOWN_SERVER_ERROR : PB_KAFKA_KAFKA_STORAGE_ERROR;
    slot->answer->error_code = (int16_t)error;
    slot->answer->base_offset = -1;
    slot->answer->log_append_time_ms = -1;
    slot->answer->log_start_offset = -1;
    if (text == NULL || text[0] == '\0')
        return;
    size_t length = strnlen(text, ERROR_TEXT_BYTES);
    char *copy = pb_arena_alloc(&slot->request->arena, length);
    if (copy != NULL) {
        memcpy(copy, text, length);
        slot->answer->error_message = (pb_slice){copy, (int32_t)length};
    }
}

void pb_produce_accept(produce_slot *slot)
{
    const pb_append *append = &slot->op.append;
    slot->answer->base_offset = append->base_offset;
    slot->answer->log_append_time_ms = append->log_append_time_ms;
    slot->answer->log_start_offset = append->start_offset;
}

/* Why an append that was taken has failed; NULL: the code says it. */
static const char *failure_text(int error)
{
    if (error < 0 || error == PB_KAFKA_KAFKA_STORAGE_ERROR)
        return "the write to the log failed";
    if (error == PB_KAFKA_REQUEST_TIMED_OUT)
        return "it is written, but not all in-sync replicas have got it in time";
    return NULL;
}

/* On the request's own reactor. */
static void settle(produce_slot *slot)
{
    pb_request *request = slot->request;
    produce_state *state = request->state;
    slot->pending = false;
    if (slot->op.append.error != 0)
        pb_produce_refuse(slot, slot->op.append.error, failure_text(slot->op.append.error));
    else
        pb_produce_accept(slot);
    PB_ASSERT(state->pending > 0);
    if (--state->pending == 0)
        complete(request);
}

static void came_home(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    settle(PB_CONTAINER(task, produce_slot, task));
}

void pb_produce_appended(pb_partition_append_op *op, pb_reactor *here)
{
    produce_slot *slot = PB_CONTAINER(op, produce_slot, op);
    if (here == &slot->request->home->reactor) {
        settle(slot);
        return;
    }
    slot->task.run = came_home;
    pb_reactor_post(&slot->request->home->reactor, &slot->task);
}

/* ---- waiting for followers ---- */

/* Those that wait for followers wait no more; those that are being written come by themselves. */
static void give_up(produce_state *state)
{
    state->pending++; /* so that the request stays until all have been looked at */
    for (int32_t i = 0; i < state->slot_count; i++) {
        produce_slot *slot = &state->slots[i];
        if (!slot->pending || !slot->op.replicated || !pb_partition_give_up(slot->partition, &slot->op))
            continue;
        slot->op.append.error = PB_KAFKA_REQUEST_TIMED_OUT;
        settle(slot);
    }
    if (--state->pending == 0)
        complete(state->request);
}

static void await_followers(produce_state *state)
{
    pb_reactor *reactor = &state->request->home->reactor;
    int64_t again_ns = reactor->now_ns + state->look_again_ns;
    if (pb_timer_set(&reactor->timers, &state->timer, again_ns < state->deadline_ns ? again_ns : state->deadline_ns) <
        0)
        give_up(state);
}

/* The names in the answer, out of the chunk. false: no memory. */
static bool keep_names(produce_state *state)
{
    for (int32_t i = 0; i < state->out.responses_count; i++) {
        pb_slice *name = &state->out.responses[i].name;
        void *copy = name->length > 0 ? pb_arena_alloc(&state->request->arena, (size_t)name->length) : NULL;
        if (name->length > 0 && copy == NULL)
            return false;
        if (copy != NULL)
            memcpy(copy, name->data, (size_t)name->length);
        name->data = copy;
    }
    return true;
}

/* The followers that it waits for have to be heard, and written batches need their memory of the pool no more. Returns
 * false when something is not written yet, or when the request holds so much that its chunk counts for it. */
static bool leave_memory(produce_state *state)
{
    for (int32_t i = 0; i < state->slot_count; i++) {
        produce_slot *slot = &state->slots[i];
        if (slot->pending && !(slot->op.replicated && pb_partition_awaits_followers(slot->partition, &slot->op)))
            return false;
    }
    for (int32_t i = 0; i < state->slot_count; i++)
        pb_produce_release_rewritten(&state->slots[i]);
    return state->request->chunk == NULL ||
           (pb_request_is_light(state->request) && keep_names(state) && pb_request_leave_chunk(state->request));
}

static void look_again(pb_timer *timer)
{
    produce_state *state = PB_CONTAINER(timer, produce_state, timer);
    const pb_request *request = state->request;
    bool keeps = !leave_memory(state) && request->chunk != NULL;
    int64_t twice_ns = 2 * state->look_again_ns;
    state->look_again_ns = keeps && twice_ns < LOOK_AGAIN_NS ? twice_ns : LOOK_AGAIN_NS;
    for (int32_t i = 0; i < state->slot_count; i++)
        if (state->slots[i].pending && state->slots[i].op.replicated)
            pb_partition_look_again(state->slots[i].partition);
    if (request->home->reactor.now_ns >= state->deadline_ns || (keeps && request->chunk->overdraft))
        give_up(state);
    else
        await_followers(state);
}

static void hurry(pb_response *response)
{
    pb_request *request = PB_CONTAINER(response, pb_request, response);
    if (request->connection->closing)
        give_up(request->state);
    else
        response->hurried = false; /* by a connection that leaves; it is answered yet, unless it is closed first */
}

void pb_produce_await(pb_request *request)
{
    produce_state *state = request->state;
    if (state->pending == 0) {
        complete(request);
    } else if (state->replicated && request->connection->closing) {
        give_up(state); /* it has been hurried while Python had the request */
    } else if (state->replicated) {
        int64_t now_ns = request->home->reactor.now_ns;
        request->response.hurry = hurry;
        state->timer.fire = look_again;
        state->deadline_ns = now_ns + (state->in.timeout_ms > 0 ? state->in.timeout_ms * 1000000LL : 0);
        state->look_again_ns = FIRST_LOOK_NS;
        await_followers(state);
    }
}
