/*
 * Produce: parse -> look partitions up -> have transactions verified -> append -> wait until all is written, or
 * followers have it -> answer. Reactor thread.
 *
 * The batches stay in the connection's chunk, which the request retains until the last of them is written.
 */
#include "server/produce/produce.h"

#include <errno.h>
#include <string.h>

#include "server/quota/throttle.h"
#include "wire/generated/kafka_errors.h"

static void cleanup(pb_request *request)
{
    produce_state *state = request->state;
    PB_ASSERT(!pb_timer_is_set(&state->timer));
    for (int32_t i = 0; i < state->slot_count; i++) {
        if (state->slots[i].partition != NULL)
            pb_partition_release(state->slots[i].partition);
        pb_produce_release_rewritten(&state->slots[i]);
    }
}

static void find_partitions(pb_request *request, const pb_produce_request_topic_produce_data *topic,
                            pb_produce_response_topic_produce_response *answer)
{
    produce_state *state = request->state;
    pb_registry *registry = &request->home->broker->registry;
    bool by_id = request->header.request_api_version >= 13;
    answer->name = topic->name;
    answer->topic_id = topic->topic_id;
    answer->partition_responses_count = topic->partition_data_count;
    for (int32_t i = 0; i < topic->partition_data_count; i++) {
        const pb_produce_request_partition_produce_data *data = &topic->partition_data[i];
        produce_slot *slot = &state->slots[state->slot_count++];
        memset(slot, 0, sizeof *slot);
        slot->request = request;
        slot->data = data;
        slot->answer = &answer->partition_responses[i];
        pb_produce_response_partition_produce_response_init(slot->answer);
        slot->answer->index = data->index;
        bool known = false;
        slot->partition =
            by_id ? pb_registry_by_id(registry, topic->topic_id.bytes, data->index, &known)
                  : pb_registry_by_name(registry, topic->name.data, (size_t)topic->name.length, data->index);
        if (slot->partition == NULL)
            slot->refusal = by_id && !known ? PB_KAFKA_UNKNOWN_TOPIC_ID : PB_KAFKA_UNKNOWN_TOPIC_OR_PARTITION;
    }
}

/* Arrays for the answer and the slots. 0 or -ENOMEM. */
static int allocate(pb_request *request, produce_state *state)
{
    pb_arena *arena = &request->arena;
    int64_t partitions = 0;
    pb_produce_response_init(&state->out);
    state->out.responses_count = state->in.topic_data_count;
    state->out.responses =
        pb_arena_alloc_array(arena, (size_t)state->in.topic_data_count, sizeof *state->out.responses);
    if (state->out.responses == NULL)
        return -ENOMEM;
    for (int32_t i = 0; i < state->in.topic_data_count; i++) {
        pb_produce_response_topic_produce_response *answer = &state->out.responses[i];
        int32_t count = state->in.topic_data[i].partition_data_count;
        pb_produce_response_topic_produce_response_init(answer);
        answer->partition_responses = pb_arena_alloc_array(arena, (size_t)count, sizeof *answer->partition_responses);
        if (answer->partition_responses == NULL)
            return -ENOMEM;
        partitions += count;
    }
    state->slots = pb_arena_alloc_array(arena, (size_t)partitions, sizeof *state->slots);
    return state->slots == NULL ? -ENOMEM : 0;
}

void pb_produce_handle(pb_request *request)
{
    pb_reader reader = pb_reader_of(request->body, request->body_length);
    produce_state *state = pb_arena_alloc(&request->arena, sizeof *state);
    int result = -ENOMEM;
    if (state != NULL) {
        memset(state, 0, sizeof *state);
        result = pb_produce_request_read(&reader, request->header.request_api_version, &request->arena, &state->in);
    }
    if (result == 0)
        result = allocate(request, state);
    if (result != 0) {
        pb_events_notice_peer(&request->home->broker->events, request->connection->host,
                              "closing the connection from %s: a Produce request that %s", request->connection->host,
                              result == -ENOMEM ? "asks for too much memory" : "cannot be read");
        pb_request_abandon(request);
        return;
    }
    request->state = state;
    request->cleanup = cleanup;
    state->request = request;
    if (pb_throttle_is_on(request))
        state->out.throttle_time_ms = pb_throttle_produce(request);
    for (int32_t i = 0; i < state->in.topic_data_count; i++)
        find_partitions(request, &state->in.topic_data[i], &state->out.responses[i]);
    if (!pb_produce_ask(request))
        pb_produce_append(request);
}
