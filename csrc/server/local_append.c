/* Appends by Python run as tasks on reactor 0: the order of the calls is the order in the log. */
#include "server/local_append.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "record/batch.h"
#include "wire/generated/kafka_errors.h"

/* One append. Owner: itself, until its event has been put. */
typedef struct local_append {
    pb_partition_append_op op;
    pb_task task;
    pb_broker *broker;
    pb_partition *partition;
    pb_event_node *event;
    uint8_t bytes[];
} local_append;

static void report(local_append *append, int error)
{
    append->event->kind = PB_NODE_APPENDED;
    append->event->error = error;
    append->event->offset = error == 0 ? append->op.append.base_offset : -1;
    pb_partition_release(append->partition);
    pb_events_put(&append->broker->events, append->event);
    free(append);
}

static void appended(pb_partition_append_op *op, pb_reactor *here)
{
    (void)here;
    report(PB_CONTAINER(op, local_append, op), op->append.error);
}

static void run(pb_task *task, pb_reactor *reactor)
{
    local_append *append = PB_CONTAINER(task, local_append, task);
    if (atomic_load(&append->broker->halted)) {
        report(append, -ESHUTDOWN);
        return;
    }
    bool must_pump = false;
    pb_partition *partition = append->partition;
    pb_partition_rules rules;
    int32_t leader_epoch;
    int result = pb_partition_admit(partition, &rules, &leader_epoch);
    if (result == 0) {
        append->op.append.now_ms = reactor->wall_ms;
        append->op.append.log_append_time = rules.validation.timestamp_type == PB_LOG_APPEND_TIME;
        result = pb_partition_append_batch(partition, &append->op, &must_pump);
    }
    if (must_pump)
        pb_server_reactor_queue(pb_server_reactor_of(reactor), partition);
    if (result != 0)
        report(append, result == PB_LOG_DUPLICATE ? 0 : result);
}

int pb_local_append(pb_broker *broker, pb_partition *partition, const uint8_t *bytes, size_t length,
                    int16_t transaction_version, uint64_t ticket)
{
    if (atomic_load(&broker->halted))
        return -ESHUTDOWN;
    pb_batch_header header;
    if (length > INT32_MAX || pb_batch_parse(bytes, length, &header) != 0 || header.size_bytes != length ||
        header.magic != PB_BATCH_MAGIC || header.record_count <= 0 || !pb_batch_crc_matches(bytes, length))
        return PB_KAFKA_INVALID_RECORD;
    local_append *append = calloc(1, sizeof *append + length);
    pb_event_node *event = calloc(1, sizeof *event);
    if (append == NULL || event == NULL) {
        free(append);
        free(event);
        return -ENOMEM;
    }
    event->ticket = ticket;
    memcpy(append->bytes, bytes, length);
    pb_partition_retain(partition);
    append->broker = broker;
    append->partition = partition;
    append->event = event;
    append->task.run = run;
    append->op.done = appended;
    append->op.replicated = true;
    append->op.append = (pb_append){
        .bytes = append->bytes,
        .length = (uint32_t)length,
        .record_count = header.last_offset_delta + 1,
        .max_timestamp_ms = header.max_timestamp,
        .max_timestamp_offset_delta = -1,
        .producer_id = header.producer_id,
        .producer_epoch = header.producer_epoch,
        .base_sequence = header.base_sequence,
        .is_transactional = pb_batch_is_transactional(&header),
        .is_control = pb_batch_is_control(&header),
        .transaction_version = transaction_version,
    };
    pb_reactor_post(&broker->reactors[0].reactor, &append->task);
    return 0;
}
