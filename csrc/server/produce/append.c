/*
 * Appends the batches of a Produce. Each is validated in place, given the topic's codec if it has another, and queued
 * with its partition, to be written at the end of the turn. Reactor thread. A batch that takes long is handed over to
 * others meanwhile, and the partitions behind it in the request wait for it.
 */
#include "server/produce/produce.h"

#include <errno.h>
#include <string.h>

#include "record/recompress.h"
#include "wire/generated/kafka_errors.h"

enum {
    /* A reactor unpacks, and compresses anew, no more than that of one batch. The rest of the work on a larger one is
     * done by other threads, from the beginning. */
    UNPACKED_HERE_BYTES = 1 << 20,
    REPACKED_HERE_BYTES = 64 << 10,
};

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

void pb_produce_release_rewritten(produce_slot *slot)
{
    if (slot->rewritten != NULL)
        pb_chunk_release(slot->rewritten);
    slot->rewritten = NULL;
}

/* The batch that is appended is the rewritten one. 0, or why not. */
static int append_rewritten(produce_slot *slot, const pb_recompressed *rewritten, pb_failure *failure)
{
    uint8_t *kept = keep_rewritten(slot, rewritten->size_bytes);
    if (kept == NULL)
        return pb_fail(failure, PB_KAFKA_THROTTLING_QUOTA_EXCEEDED, "no buffer memory to change the compression");
    memcpy(kept, rewritten->data, rewritten->size_bytes);
    slot->op.append.bytes = kept;
    slot->op.append.length = (uint32_t)rewritten->size_bytes;
    return 0;
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

/* Checks whether the producer may write in a transaction. 0, or the reason against it. */
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

/* Queue the batch with its partition. */
static void append(produce_slot *slot)
{
    produce_state *state = slot->request->state;
    pb_server_reactor *home = slot->request->home;
    bool must_pump = false;
    slot->op.done = pb_produce_appended;
    slot->op.unacknowledged = state->in.acks == 0;
    slot->op.replicated = state->in.acks == -1;
    slot->op.append.verification_guard = slot->guard;
    int result = pb_partition_append_batch(slot->partition, &slot->op, &must_pump);
    if (result == PB_LOG_DUPLICATE) {
        pb_produce_accept(slot);
    } else if (result != 0) {
        pb_produce_refuse(slot, result,
                          result == PB_KAFKA_NOT_ENOUGH_REPLICAS
                              ? "fewer replicas are in sync than min.insync.replicas asks for"
                              : NULL);
        slot->answer->log_start_offset = slot->op.append.start_offset;
    } else {
        state->pending++;
        slot->pending = true;
        state->replicated = state->replicated || slot->op.replicated;
        pb_counter_add(&home->counters.appended_batches, 1);
        pb_counter_add(&home->counters.appended_records, slot->op.append.record_count);
        pb_counter_add(&home->counters.appended_bytes, slot->op.append.length);
        if (slot->op.append.rolls != PB_NO_ROLL)
            tell_roll(slot);
        if (must_pump)
            pb_server_reactor_queue(home, slot->partition);
    }
}

void pb_produce_append_validated(produce_slot *slot, const pb_partition_rules *rules, pb_batch_verdict *verdict,
                                 const pb_recompressed *rewritten)
{
    int64_t now_ms = slot->request->home->reactor.wall_ms;
    pb_validation *validation = &verdict->validation;
    int result = verdict->result;
    if (result == 0 && validation->is_transactional)
        result = check_transaction(slot->request->state, rules, &verdict->failure);
    if (result == 0) {
        /* Others may have appended while this batch was validated; their clock's time lies before this one's. */
        if (rules->validation.timestamp_type == PB_LOG_APPEND_TIME)
            validation->max_timestamp = now_ms;
        /* The chunk is ours to change: header fields are set in place before the bytes go to the file. */
        fill_append(&slot->op.append, validation, rules, (uint8_t *)(uintptr_t)slot->data->records.data, now_ms);
        if (rewritten != NULL)
            result = append_rewritten(slot, rewritten, &verdict->failure);
    } else if (validation->record_error_count > 0) {
        report_records(slot, validation, rules, now_ms);
    }
    if (result == 0)
        append(slot);
    else
        pb_produce_refuse(slot, result, verdict->failure.text);
}

/* Validate the batch, as long as it unpacks to no more than a reactor has time for: otherwise -EAGAIN. */
static int validate_here(produce_slot *slot, const pb_partition_rules *rules, pb_batch_verdict *verdict)
{
    pb_request *request = slot->request;
    pb_slice records = slot->data->records;
    pb_validator validator;
    int result =
        pb_validate_begin(&validator, &rules->validation, request->header.request_api_version,
                          request->home->reactor.wall_ms, request->home->codec, (uint8_t *)(uintptr_t)records.data,
                          (size_t)records.length, UNPACKED_HERE_BYTES, &verdict->validation, &verdict->failure);
    if (result == 0)
        result = pb_validate_step(&validator, UNPACKED_HERE_BYTES, &verdict->failure);
    bool repacks_much = result == 0 && verdict->validation.needs_recompression &&
                        verdict->validation.unpacked_bytes > REPACKED_HERE_BYTES;
    return repacks_much ? -EAGAIN : result;
}

/* false: the batch has been handed over. */
static bool append_batch(produce_slot *slot, const pb_partition_rules *rules)
{
    enum { KEEP_BYTES = 4 << 20 };
    pb_server_reactor *home = slot->request->home;
    pb_batch_verdict verdict;
    verdict.failure = (pb_failure){0};
    verdict.result = validate_here(slot, rules, &verdict);
    if (verdict.result == -EAGAIN) {
        verdict.validation.record_error_count = 0;
        verdict.failure.text[0] = '\0';
        verdict.result = pb_produce_hand_over(slot, rules, &verdict.failure);
        if (verdict.result == 0)
            return false;
    }
    pb_recompressed *rewritten = NULL;
    if (verdict.result == 0 && verdict.validation.needs_recompression) {
        rewritten = &home->recompressed;
        verdict.result = pb_recompress(home->codec, slot->data->records.data, verdict.validation.size_bytes,
                                       rules->validation.target_compression, rules->compression_level,
                                       rules->validation.max_message_bytes, rewritten, &verdict.failure);
    }
    pb_produce_append_validated(slot, rules, &verdict, rewritten);
    if (rewritten != NULL)
        pb_recompressed_trim(rewritten, KEEP_BYTES);
    return true;
}

/* Kafka lets only its own tools write to internal topics. */
static bool is_admin(const pb_request *request)
{
    return pb_slice_equal(request->header.client_id, pb_slice_of_text("__admin_client"));
}

/* The words that a client gets with that code, where the code alone does not tell. */
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

/* false: its batch has been handed over, see big.c. */
static bool produce_partition(produce_slot *slot)
{
    pb_request *request = slot->request;
    const produce_state *state = request->state;
    pb_partition_rules rules;
    int32_t leader_epoch;
    if (slot->refusal != 0) {
        pb_produce_refuse(slot, slot->refusal, refusal_text(slot));
        return true;
    }
    if (!pb_produce_has_valid_acks(state)) {
        pb_produce_refuse(slot, PB_KAFKA_INVALID_REQUIRED_ACKS, "acks must be 0, 1 or -1 (all)");
        return true;
    }
    int result = pb_partition_admit(slot->partition, &rules, &leader_epoch);
    if (result != 0)
        pb_produce_refuse(slot, result, NULL);
    else if (rules.internal && !is_admin(request))
        pb_produce_refuse(slot, PB_KAFKA_INVALID_TOPIC_EXCEPTION, "clients may not write to internal topics");
    else if (rules.below_reserve && !rules.internal)
        pb_produce_refuse(slot, PB_KAFKA_KAFKA_STORAGE_ERROR,
                          "the disk has less room left than pybroker.log.dir.reserve.bytes");
    else if (slot->data->records.length <= 0)
        pb_produce_refuse(slot, PB_KAFKA_INVALID_RECORD, "the request holds no record batch for this partition");
    else
        return append_batch(slot, &rules);
    return true;
}

void pb_produce_go_on(pb_request *request)
{
    produce_state *state = request->state;
    while (state->next_slot < state->slot_count)
        if (!produce_partition(&state->slots[state->next_slot++]))
            return;
    request->at_ns[PB_AT_LOCAL_DONE] = request->home->reactor.now_ns;
    if (request->is_exclusive) {
        request->is_exclusive = false;
        pb_connection_resume(request->connection);
    }
    state->pending--;
    pb_produce_await(request);
}

void pb_produce_append(pb_request *request)
{
    produce_state *state = request->state;
    state->pending = 1; /* so that nothing completes before all partitions have been looked at */
    state->next_slot = 0;
    pb_produce_go_on(request);
}
