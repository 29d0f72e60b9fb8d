/*
 * Appending what a Produce brings: each batch is validated in place, given the topic's codec if it has another, and
 * queued with its partition, to be written at the end of the turn. Reactor thread.
 */
#include "server/produce.h"

#include <string.h>

#include "record/recompress.h"
#include "wire/generated/kafka_errors.h"

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
        pb_produce_refuse(slot, result, failure.text);
        return;
    }
    bool must_pump = false;
    slot->op.done = pb_produce_appended;
    slot->op.unacknowledged = state->in.acks == 0;
    slot->op.replicated = state->in.acks == -1;
    slot->op.append.verification_guard = slot->guard;
    result = pb_partition_append_batch(slot->partition, &slot->op, &must_pump);
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

static void produce_partition(produce_slot *slot)
{
    pb_request *request = slot->request;
    const produce_state *state = request->state;
    pb_partition_rules rules;
    int32_t leader_epoch;
    if (slot->refusal != 0) {
        pb_produce_refuse(slot, slot->refusal, refusal_text(slot));
        return;
    }
    if (!pb_produce_has_valid_acks(state)) {
        pb_produce_refuse(slot, PB_KAFKA_INVALID_REQUIRED_ACKS, "acks must be 0, 1 or -1 (all)");
        return;
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
        append_batch(slot, &rules, slot->data->records);
}

void pb_produce_append(pb_request *request)
{
    produce_state *state = request->state;
    state->pending = 1; /* so that nothing completes before all partitions have been looked at */
    for (int32_t i = 0; i < state->slot_count; i++)
        produce_partition(&state->slots[i]);
    request->at_ns[PB_AT_LOCAL_DONE] = request->home->reactor.now_ns;
    state->pending--;
    pb_produce_await(request);
}
