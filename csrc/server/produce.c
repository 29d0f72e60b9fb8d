/*
 * Produce: validate in place, give out offsets, write at the end of the turn, answer when written.
 *
 * The batches stay in the connection's chunk, which the request retains until the last of them is written. A slot is
 * one partition of a request; slots finish on whichever reactor wrote them and come home by a task.
 *
 * Where somebody has to vouch for transactional batches (KIP-890), a request with the first ones of a transaction goes
 * to Python before anything of it is appended, see produce.h. What comes of it is said to the log with a guard that
 * was asked for before, so that a verdict about a transaction that has ended meanwhile counts for nothing.
 */
#include <errno.h>
#include <string.h>

#include "record/batch.h"
#include "record/recompress.h"
#include "server/produce.h"
#include "server/throttle.h"
#include "wire/generated/kafka_errors.h"
#include "wire/generated/produce_request.h"
#include "wire/generated/produce_response.h"

#define ERROR_TEXT_BYTES 256
#define FIRST_LOOK_NS 5000000LL
#define LOOK_AGAIN_NS 1000000000LL
#define PRODUCE_ADDS_PARTITIONS 12 /* from this version on partitions join transactions by being produced to */

typedef pb_produce_response_partition_produce_response partition_answer;

/* One partition of one request. Owner: the request's arena. */
typedef struct produce_slot {
    pb_partition_append_op op;
    pb_task task; /* home from another reactor */
    pb_request *request;
    pb_partition *partition; /* retained; NULL: unknown */
    pb_chunk *rewritten;     /* the batch with the topic's codec, if it is large; else NULL */
    const pb_produce_request_partition_produce_data *data;
    partition_answer *answer;
    int64_t guard;   /* of a verification; 0: none was begun */
    int16_t refusal; /* what came of looking for the partition, and of the verification */
    bool pending;
} produce_slot;

typedef struct produce_state {
    pb_produce_request in;
    pb_produce_response out;
    produce_slot *slots;
    int32_t slot_count;
    int32_t pending;                       /* slots being written, or waiting for followers */
    bool failed;                           /* some partition was refused */
    bool replicated;                       /* some of them wait for followers: no longer than until deadline_ns */
    pb_produce_verification *verification; /* NULL: there is nothing to ask */
    int64_t deadline_ns;
    int64_t look_again_ns; /* until the next look at those that wait for followers */
    pb_timer timer;
    pb_request *request;
} produce_state;

static void cleanup(pb_request *request)
{
    produce_state *state = request->state;
    PB_ASSERT(!pb_timer_is_set(&state->timer));
    for (int32_t i = 0; i < state->slot_count; i++) {
        if (state->slots[i].partition != NULL)
            pb_partition_release(state->slots[i].partition);
        if (state->slots[i].rewritten != NULL)
            pb_chunk_release(state->slots[i].rewritten);
    }
}

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

static void refuse(produce_slot *slot, int error, const char *text)
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

static void accept_results(produce_slot *slot)
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
        refuse(slot, slot->op.append.error, failure_text(slot->op.append.error));
    else
        accept_results(slot);
    PB_ASSERT(state->pending > 0);
    if (--state->pending == 0)
        complete(request);
}

static void came_home(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    settle(PB_CONTAINER(task, produce_slot, task));
}

static void appended(pb_partition_append_op *op, pb_reactor *here)
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

/* Followers that are waited for have to be heard: what is written needs its receive memory no more. false: something is
 * not written yet, or the request holds so much that its memory counts for it. */
static bool leave_chunk(produce_state *state)
{
    for (int32_t i = 0; i < state->slot_count; i++) {
        produce_slot *slot = &state->slots[i];
        if (slot->pending && !(slot->op.replicated && pb_partition_awaits_followers(slot->partition, &slot->op)))
            return false;
    }
    return pb_request_is_light(state->request) && keep_names(state) && pb_request_leave_chunk(state->request);
}

static void look_again(pb_timer *timer)
{
    produce_state *state = PB_CONTAINER(timer, produce_state, timer);
    const pb_request *request = state->request;
    bool keeps = request->chunk != NULL && !leave_chunk(state);
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

/* ---- appending ---- */

static void report_records(produce_slot *slot, const pb_validation *validation, const pb_partition_rules *rules,
                           int64_t now_ms)
{
    int32_t count =
        validation->record_error_count < PB_RECORD_ERROR_LIMIT ? validation->record_error_count : PB_RECORD_ERROR_LIMIT;
    pb_produce_response_batch_index_and_error_message *errors =
        pb_arena_alloc_array(&slot->request->arena, (size_t)count, sizeof *errors);
    if (errors == NULL)
        return;
    for (int32_t i = 0; i < count; i++) {
        char *text = pb_arena_alloc(&slot->request->arena, PB_RECORD_ERROR_TEXT_BYTES);
        if (text == NULL)
            return;
        pb_record_error_text(&validation->record_errors[i], &rules->validation, now_ms, slot->partition->topic,
                             slot->partition->index, text);
        errors[i].batch_index = validation->record_errors[i].record_index;
        errors[i].batch_index_error_message = pb_slice_of_text(text);
    }
    slot->answer->record_errors = errors;
    slot->answer->record_errors_count = count;
}

/* Where a rewritten batch stays until it is in the log: a small one with the request, others in a chunk. NULL: there is
 * no memory. */
static uint8_t *keep_rewritten(produce_slot *slot, size_t size_bytes)
{
    enum { SMALL_BYTES = PB_CHUNK_UNIT_BYTES / 2 };
    if (size_bytes <= SMALL_BYTES)
        return pb_arena_alloc(&slot->request->arena, size_bytes);
    slot->rewritten = pb_pool_take(&slot->request->home->broker->pool, (uint32_t)size_bytes, true);
    return slot->rewritten != NULL ? slot->rewritten->data : NULL;
}

/* Give the batch the topic's codec. 0, or why not. */
static int recompress(produce_slot *slot, const pb_partition_rules *rules, const uint8_t *bytes, size_t length,
                      pb_failure *failure)
{
    enum { KEEP_BYTES = 4 << 20 };
    pb_server_reactor *home = slot->request->home;
    pb_recompressed *out = &home->recompressed;
    int result = pb_recompress(home->codec, bytes, length, rules->validation.target_compression,
                               rules->compression_level, rules->validation.max_message_bytes, out, failure);
    uint8_t *kept = result == 0 ? keep_rewritten(slot, out->size_bytes) : NULL;
    if (kept != NULL) {
        memcpy(kept, out->data, out->size_bytes);
        slot->op.append.bytes = kept;
        slot->op.append.length = (uint32_t)out->size_bytes;
    } else if (result == 0) {
        result = pb_fail(failure, PB_KAFKA_THROTTLING_QUOTA_EXCEEDED, "no buffer memory to change the compression");
    }
    pb_recompressed_trim(out, KEEP_BYTES);
    return result;
}

static void fill_append(pb_append *append, const pb_validation *validation, const pb_partition_rules *rules,
                        uint8_t *bytes, int64_t now_ms)
{
    append->bytes = bytes;
    append->length = (uint32_t)validation->size_bytes;
    append->record_count = validation->record_count;
    append->max_timestamp_ms = validation->max_timestamp;
    append->max_timestamp_offset_delta = validation->max_timestamp_offset_delta;
    append->producer_id = validation->producer_id;
    append->producer_epoch = validation->producer_epoch;
    append->base_sequence = validation->base_sequence;
    append->is_transactional = validation->is_transactional;
    append->is_control = false;
    append->must_be_verified = rules->transactions == PB_TRANSACTIONS_VERIFIED;
    append->log_append_time = rules->validation.timestamp_type == PB_LOG_APPEND_TIME;
    append->now_ms = now_ms;
    append->start_offset = -1;
    append->error = 0;
}

/* Who may write in a transaction. 0, or why not. */
static int check_transaction(const produce_state *state, const pb_partition_rules *rules, pb_failure *failure)
{
    if (pb_slice_is_null(state->in.transactional_id))
        return pb_fail(failure, PB_KAFKA_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                       "a transactional batch came in a request without transactional id");
    if (rules->transactions == PB_TRANSACTIONS_REFUSED)
        return pb_fail(failure, PB_KAFKA_INVALID_TXN_STATE,
                       "no transaction coordinator is here to verify that the transaction is open");
    return 0;
}

static void tell_roll(const produce_slot *slot)
{
    static const char *const reasons[] = {
        [PB_ROLL_SIZE] = "segment.bytes is reached",
        [PB_ROLL_TIME] = "segment.ms is over",
        [PB_ROLL_INDEX] = "an index of the last one is full",
        [PB_ROLL_OFFSETS] = "its offset is too far from the last one's first",
    };
    pb_server_reactor *home = slot->request->home;
    pb_counter_add(&home->counters.rolls, 1);
    pb_events_tell(&home->broker->events, PB_ABOUT_ROLL, "%s-%d begins a segment at offset %lld: %s",
                   slot->partition->topic, slot->partition->index, (long long)slot->op.append.base_offset,
                   reasons[slot->op.append.rolls]);
}

static void append_batch(produce_slot *slot, const pb_partition_rules *rules, pb_slice records)
{
    pb_request *request = slot->request;
    produce_state *state = request->state;
    pb_server_reactor *home = request->home;
    int64_t now_ms = home->reactor.wall_ms;
    /* The chunk is ours to change: header fields are set in place before the bytes go to the file. */
    uint8_t *bytes = (uint8_t *)(uintptr_t)records.data;
    pb_validation validation;
    pb_failure failure = {0};
    int result = pb_validate_produce(&rules->validation, request->header.request_api_version, now_ms, home->codec,
                                     bytes, (size_t)records.length, &validation, &failure);
    if (result == 0 && validation.is_transactional)
        result = check_transaction(state, rules, &failure);
    if (result == 0) {
        fill_append(&slot->op.append, &validation, rules, bytes, now_ms);
        if (validation.needs_recompression)
            result = recompress(slot, rules, bytes, validation.size_bytes, &failure);
    } else if (validation.record_error_count > 0) {
        report_records(slot, &validation, rules, now_ms);
    }
    if (result != 0) {
        refuse(slot, result, failure.text);
        return;
    }
    bool must_pump = false;
    slot->op.done = appended;
    slot->op.unacknowledged = state->in.acks == 0;
    slot->op.replicated = state->in.acks == -1;
    slot->op.append.verification_guard = slot->guard;
    result = pb_partition_append_batch(slot->partition, &slot->op, &must_pump);
    if (result == PB_LOG_DUPLICATE) {
        accept_results(slot);
    } else if (result != 0) {
        refuse(slot, result,
               result == PB_KAFKA_NOT_ENOUGH_REPLICAS ? "fewer replicas are in sync than min.insync.replicas asks for"
                                                      : NULL);
        slot->answer->log_start_offset = slot->op.append.start_offset;
    } else {
        state->pending++;
        slot->pending = true;
        state->replicated = state->replicated || slot->op.replicated;
        pb_counter_add(&home->counters.appended_batches, 1);
        pb_counter_add(&home->counters.appended_records, validation.record_count);
        pb_counter_add(&home->counters.appended_bytes, slot->op.append.length);
        if (slot->op.append.rolls != PB_NO_ROLL)
            tell_roll(slot);
        if (must_pump)
            pb_server_reactor_queue(home, slot->partition);
    }
}

/* Kafka lets only its own tools write to internal topics. */
static bool is_admin(const pb_request *request)
{
    return pb_slice_equal(request->header.client_id, pb_slice_of_text("__admin_client"));
}

/* What a client is told with that code, where the code alone does not say it. */
static const char *refusal_text(const produce_slot *slot)
{
    if (slot->guard == 0)
        return NULL;
    if (slot->refusal == PB_KAFKA_INVALID_TXN_STATE)
        return "the partition was not added to the transaction";
    if (slot->refusal == PB_KAFKA_NOT_ENOUGH_REPLICAS)
        return "the transaction coordinator could not be asked whether the partition was added to the transaction";
    return NULL;
}

static bool has_valid_acks(const produce_state *state)
{
    return state->in.acks >= -1 && state->in.acks <= 1;
}

static void produce_partition(produce_slot *slot)
{
    pb_request *request = slot->request;
    const produce_state *state = request->state;
    pb_partition_rules rules;
    int32_t leader_epoch;
    if (slot->refusal != 0) {
        refuse(slot, slot->refusal, refusal_text(slot));
        return;
    }
    if (!has_valid_acks(state)) {
        refuse(slot, PB_KAFKA_INVALID_REQUIRED_ACKS, "acks must be 0, 1 or -1 (all)");
        return;
    }
    int result = pb_partition_admit(slot->partition, &rules, &leader_epoch);
    if (result != 0)
        refuse(slot, result, NULL);
    else if (rules.internal && !is_admin(request))
        refuse(slot, PB_KAFKA_INVALID_TOPIC_EXCEPTION, "clients may not write to internal topics");
    else if (slot->data->records.length <= 0)
        refuse(slot, PB_KAFKA_INVALID_RECORD, "the request holds no record batch for this partition");
    else
        append_batch(slot, &rules, slot->data->records);
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

/* With all partitions looked up, and none refused by a coordinator but those that say so. */
static void append_all(pb_request *request)
{
    produce_state *state = request->state;
    state->pending = 1; /* so that nothing completes before all partitions have been looked at */
    for (int32_t i = 0; i < state->slot_count; i++)
        produce_partition(&state->slots[i]);
    int64_t now_ns = request->home->reactor.now_ns;
    request->at_ns[PB_AT_LOCAL_DONE] = now_ns;
    if (--state->pending == 0) {
        complete(request);
    } else if (state->replicated && request->connection->closing) {
        give_up(state); /* it has been hurried while Python had the request */
    } else if (state->replicated) {
        request->response.hurry = hurry;
        state->deadline_ns = now_ns + (state->in.timeout_ms > 0 ? state->in.timeout_ms * 1000000LL : 0);
        state->look_again_ns = FIRST_LOOK_NS;
        await_followers(state);
    }
}

/* ---- verification ---- */

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
    append_all(request);
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

/* Is Python to be asked? Then the request goes on in `verified`. */
static bool ask(pb_request *request)
{
    produce_state *state = request->state;
    pb_batch_header first;
    if (pb_slice_is_null(state->in.transactional_id) || !has_valid_acks(state))
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
        pb_events_notice(&request->home->broker->events, "closing the connection from %s: a Produce request that %s",
                         request->connection->host, result == -ENOMEM ? "asks for too much memory" : "cannot be read");
        pb_request_abandon(request);
        return;
    }
    request->state = state;
    request->cleanup = cleanup;
    state->request = request;
    state->timer.fire = look_again;
    if (pb_throttle_is_on(request))
        state->out.throttle_time_ms = pb_throttle_produce(request);
    for (int32_t i = 0; i < state->in.topic_data_count; i++)
        find_partitions(request, &state->in.topic_data[i], &state->out.responses[i]);
    if (!ask(request))
        append_all(request);
}
