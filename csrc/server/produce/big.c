/*
 * A batch that takes too long for a reactor, on its way to the threads of big_batches.h and back.
 *
 * Until it is back nothing else of its request is looked at, and no other request of its connection begins. So batches
 * are appended in the order in which the client sent them. Reactor thread, but for `validated`.
 */
#include <errno.h>
#include <string.h>

#include "server/produce/produce.h"
#include "wire/generated/kafka_errors.h"

/* In the request's arena: one, for each of its large batches in turn. */
typedef struct produce_big {
    pb_big_batch batch;
    pb_partition_rules rules;
    produce_slot *slot;
} produce_big;

/* The connection closes: nobody is left to tell what comes of the batch. */
static void hurry(pb_response *response)
{
    pb_request *request = PB_CONTAINER(response, pb_request, response);
    const produce_state *state = request->state;
    if (request->connection->closing)
        atomic_store_explicit(&state->big->batch.cancelled, true, memory_order_relaxed);
    else
        response->hurried = false; /* it only leaves: it is answered yet, unless it is closed first */
}

static void came_home(pb_task *task, pb_reactor *reactor)
{
    produce_slot *slot = PB_CONTAINER(task, produce_slot, task);
    pb_request *request = slot->request;
    produce_state *state = request->state;
    produce_big *big = state->big;
    PB_ASSERT(big != NULL && big->slot == slot && reactor == &request->home->reactor);
    pb_big_batch *batch = &big->batch;
    bool is_rewritten = batch->verdict.result == 0 && batch->verdict.validation.needs_recompression;
    state->big = NULL;
    request->response.hurry = NULL;
    pb_produce_append_validated(slot, &big->rules, &batch->verdict, is_rewritten ? &batch->recompressed : NULL);
    pb_recompressed_trim(&batch->recompressed, 0);
    pb_produce_go_on(request);
}

static void validated(pb_big_batch *batch)
{
    produce_slot *slot = PB_CONTAINER(batch, produce_big, batch)->slot;
    slot->task.run = came_home;
    pb_reactor_post(&slot->request->home->reactor, &slot->task);
}

int pb_produce_hand_over(produce_slot *slot, const pb_partition_rules *rules, pb_failure *failure)
{
    pb_request *request = slot->request;
    produce_state *state = request->state;
    PB_ASSERT(state->big == NULL);
    if (request->connection->closing)
        return -ECANCELED;
    produce_big *big = state->last_big;
    if (big == NULL)
        big = state->last_big = pb_arena_alloc(&request->arena, sizeof *big);
    if (big == NULL)
        return pb_fail(failure, -ENOMEM, "no memory to hand over a large batch");
    memset(big, 0, sizeof *big);
    big->rules = *rules;
    big->slot = slot;
    big->batch.done = validated;
    big->batch.rules = &big->rules;
    big->batch.bytes = (uint8_t *)(uintptr_t)slot->data->records.data;
    big->batch.length = (size_t)slot->data->records.length;
    big->batch.now_ms = request->home->reactor.wall_ms;
    big->batch.produce_version = request->header.request_api_version;
    int result = pb_big_batches_submit(&request->home->broker->big_batches, &big->batch, failure);
    if (result != 0)
        return result;
    state->big = big;
    request->is_exclusive = true;
    request->response.hurry = hurry;
    return 0;
}
