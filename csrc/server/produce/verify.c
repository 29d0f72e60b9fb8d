/*
 * Where somebody has to vouch for transactional batches (KIP-890), a request with the first ones of a transaction goes
 * to Python before anything of it is appended, see verify.h. The verdict is told to the log with a guard that
 * was asked for before. So a verdict about a transaction that has ended meanwhile counts for nothing. Reactor thread,
 * but for pb_produce_verified.
 */
#include <errno.h>
#include <string.h>

#include "record/batch.h"
#include "server/produce/produce.h"
#include "wire/generated/kafka_errors.h"

#define PRODUCE_ADDS_PARTITIONS 12 /* from this version on partitions join transactions by being produced to */

/* The batch of a slot, if a transaction coordinator may have to be asked about it. */
static bool is_transactional(const produce_slot *slot, pb_batch_header *header)
{
    pb_slice records = slot->data->records;
    return slot->partition != NULL && records.length > 0 &&
           pb_batch_parse(records.data, (size_t)records.length, header) == 0 && header->size_bytes > 0 &&
           header->magic == PB_BATCH_MAGIC && pb_batch_is_transactional(header) && header->producer_id >= 0;
}

/* Do all transactional batches come from one producer, as Kafka demands? `first` is the first of them; its magic stays
 * 0 if there is none. */
static bool has_one_producer(const produce_state *state, pb_batch_header *first)
{
    pb_batch_header header;
    memset(first, 0, sizeof *first);
    for (int32_t i = 0; i < state->slot_count; i++) {
        if (!is_transactional(&state->slots[i], &header))
            continue;
        if (first->magic == 0)
            *first = header;
        if (header.producer_id != first->producer_id || header.producer_epoch != first->producer_epoch)
            return false;
    }
    return true;
}

static void refuse_all(produce_state *state, int16_t error)
{
    for (int32_t i = 0; i < state->slot_count; i++)
        state->slots[i].refusal = error;
}

/* Take note of the partitions that have to be asked about. 0 or -ENOMEM. */
static int begin_verifications(produce_state *state, const pb_batch_header *first)
{
    pb_arena *arena = &state->request->arena;
    size_t count = (size_t)state->slot_count;
    pb_produce_verification *verification = pb_arena_alloc(arena, sizeof *verification);
    pb_produce_unverified *partitions = pb_arena_alloc_array(arena, count, sizeof *partitions);
    int16_t *errors = pb_arena_alloc_array(arena, count, sizeof *errors);
    if (verification == NULL || partitions == NULL || errors == NULL)
        return -ENOMEM;
    *verification = (pb_produce_verification){.transactional_id = state->in.transactional_id,
                                              .producer_id = first->producer_id,
                                              .producer_epoch = first->producer_epoch,
                                              .partitions = partitions,
                                              .errors = errors};
    for (int32_t i = 0; i < state->slot_count; i++) {
        produce_slot *slot = &state->slots[i];
        pb_batch_header header;
        if (!is_transactional(slot, &header))
            continue;
        pb_verified_batch batch = {
            .producer_id = header.producer_id,
            .producer_epoch = header.producer_epoch,
            .base_sequence = header.base_sequence,
            .adds = state->request->header.request_api_version >= PRODUCE_ADDS_PARTITIONS,
        };
        int64_t now_ms = state->request->home->reactor.wall_ms;
        int result = pb_partition_begin_verification(slot->partition, &batch, now_ms, &slot->guard);
        if (result != 0)
            slot->refusal = result > 0 ? (int16_t)result : PB_KAFKA_UNKNOWN_SERVER_ERROR;
        else if (slot->guard != 0)
            partitions[verification->count++] = (pb_produce_unverified){slot->partition->topic, slot->data->index, 0};
    }
    if (verification->count > 0)
        state->verification = verification;
    return 0;
}

const pb_produce_verification *pb_produce_verification_of(const pb_request *request)
{
    const produce_state *state = request->state;
    PB_ASSERT(state->verification != NULL && state->verification->count > 0);
    return state->verification;
}

static void verified(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    pb_request *request = PB_CONTAINER(task, pb_request, task);
    produce_state *state = request->state;
    atomic_fetch_sub(&request->home->broker->python_requests, 1);
    int32_t next = 0;
    for (int32_t i = 0; i < state->slot_count; i++)
        if (state->slots[i].guard != 0)
            state->slots[i].refusal = state->verification->errors[next++];
    PB_ASSERT(next == state->verification->count);
    request->is_exclusive = false;
    pb_connection_resume(request->connection);
    pb_produce_append(request);
}

void pb_produce_verified(pb_request *request, const int16_t *errors, int32_t count)
{
    produce_state *state = request->state;
    pb_produce_verification *verification = state->verification;
    PB_ASSERT(verification != NULL && count >= 0);
    for (int32_t i = 0; i < verification->count; i++)
        verification->errors[i] = i < count ? errors[i] : PB_KAFKA_NOT_ENOUGH_REPLICAS;
    pb_reactor_post(&request->home->reactor, &request->task);
}

bool pb_produce_ask(pb_request *request)
{
    produce_state *state = request->state;
    pb_batch_header first;
    if (pb_slice_is_null(state->in.transactional_id) || !pb_produce_has_valid_acks(state))
        return false;
    if (!has_one_producer(state, &first))
        refuse_all(state, PB_KAFKA_INVALID_PRODUCER_ID_MAPPING);
    else if (first.magic != 0 && begin_verifications(state, &first) != 0)
        refuse_all(state, PB_KAFKA_UNKNOWN_SERVER_ERROR);
    if (state->verification == NULL)
        return false;
    request->is_exclusive = true;
    request->task.run = verified;
    request->event.kind = PB_NODE_VERIFY;
    atomic_fetch_add(&request->home->broker->python_requests, 1);
    pb_events_put(&request->home->broker->events, &request->event);
    return true;
}
