/* pybroker.h: partitions. Python's threads; what is marked blocking in the header belongs on a worker thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/convert.h"
#include "abi/following.h"
#include "log/engine/tail.h"
#include "log/recover/mark.h"
#include "server/local_append.h"
#include "server/threads/pacing.h"
#include "wire/generated/kafka_errors.h"

#define READ_ATTEMPTS 4 /* the log may be truncated between look-up and read */
#define KAFKA_CODE_BASE 100000

_Static_assert(PB_CLOSE_UNFINISHED == PB_LOG_UNFINISHED, "the boundary's value is the log's");

static pb_broker *broker_of(pb_partition *partition)
{
    return partition->owner;
}

void pb_abi_tell(pb_partition *partition, const pb_failure *said, int code)
{
    if (code == 0 && said->text[0] != '\0')
        pb_events_notice(&broker_of(partition)->events, "%s-%d: %s", partition->topic, partition->index, said->text);
}

static void report_failure(pb_partition *partition, enum pb_partition_failure what, int error)
{
    pb_event_node *event = calloc(1, sizeof *event);
    if (event == NULL) {
        pb_events_notice(&broker_of(partition)->events, "the log of %s-%d failed (error %d)", partition->topic,
                         partition->index, error);
        return;
    }
    event->kind = PB_NODE_OFFLINE;
    event->ticket = partition->tag;
    event->error = error;
    event->offset = what;
    pb_events_put(&broker_of(partition)->events, event);
}

static pb_log_config log_config(const pb_partition_config *config)
{
    return (pb_log_config){
        .segment_bytes = config->segment_bytes,
        .segment_ms = config->segment_ms,
        .segment_jitter_ms = config->segment_jitter_ms,
        .segment_index_bytes = config->segment_index_bytes,
        .index_interval_bytes = config->index_interval_bytes,
        .producer_expiration_ms = config->producer_expiration_ms,
        .flush_messages = config->flush_messages,
        .flush_ms = config->flush_ms,
        .reserve_bytes = config->reserve_bytes,
        .preallocate = config->preallocate != 0,
        .compact = config->compact != 0,
        .max_record_bytes = config->max_decompressed_message_bytes,
    };
}

_Static_assert((int)PB_TRANSACTIONAL_TRUSTED == (int)PB_TRANSACTIONS_TRUSTED &&
                   (int)PB_TRANSACTIONAL_VERIFIED == (int)PB_TRANSACTIONS_VERIFIED,
               "the boundary's values are the partition's");

/* Unknown values are refused. */
static pb_transactions transactions_of(int32_t transactional)
{
    bool is_known = transactional == PB_TRANSACTIONAL_TRUSTED || transactional == PB_TRANSACTIONAL_VERIFIED;
    return is_known ? (pb_transactions)transactional : PB_TRANSACTIONS_REFUSED;
}

static pb_partition_rules rules_of(const pb_partition_config *config)
{
    pb_partition_rules rules = {
        .validation = {.max_message_bytes = config->max_message_bytes,
                       .timestamp_type = config->timestamp_type == 1 ? PB_LOG_APPEND_TIME : PB_CREATE_TIME,
                       .timestamp_before_max_ms = config->timestamp_before_max_ms,
                       .timestamp_after_max_ms = config->timestamp_after_max_ms,
                       .compacted = config->compact != 0,
                       .max_record_bytes = config->max_decompressed_message_bytes,
                       .target_compression =
                           config->compression < 0 ? PB_TARGET_COMPRESSION_PRODUCER : config->compression},
        .compression_level = config->compression_level,
        .min_insync_replicas = config->min_insync_replicas,
        .internal = config->internal != 0,
        .transactions = transactions_of(config->transactional),
        .leader_throttled = config->leader_throttled != 0,
        .follower_throttled = config->follower_throttled != 0,
        .durable_acks = config->durability == PB_DURABILITY_ACKS,
    };
    if (config->compression_level == INT32_MIN && config->compression > 0)
        rules.compression_level = pb_compression_default_level(config->compression);
    return rules;
}

static pb_partition_recovery recovery_of(const pb_log_recovery *done)
{
    return (pb_partition_recovery){
        .scanned_bytes = done->scanned_bytes,
        .truncated_bytes = done->truncated_bytes,
        .segment_count = done->segment_count,
        .unsound_index_count = done->unsound_index_count,
        .unsound_index_segment = done->unsound_index_segment,
        .old_magic_offset = done->old_magic_found ? done->old_magic_offset : -1,
        .gap_offset = done->gap_offset,
        .largest_producer_id = done->largest_producer_id,
        .hole_segment = done->hole_segment,
        .hole_position = done->hole_position,
        .hole_offset = done->hole_offset,
        .hole_end_offset = done->hole_end_offset,
        .cut_segment = done->cut_segment,
        .cut_position = done->cut_position,
        .cut_offset = done->cut_offset,
        .cut_end_offset = done->cut_end_offset,
        .kept_bytes = done->kept_bytes,
        .kept_batch_count = done->kept_batch_count,
        .kept_file_count = done->kept_file_count,
        .hole_count = done->hole_count,
    };
}

int32_t pb_partition_open(pb_broker *broker, const pb_partition_options *options, pb_partition **out,
                          pb_partition_recovery *recovery, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_log_options log_options = {
        .io = broker->io,
        .directory = options->directory,
        .topic_id = options->topic_id,
        .config = log_config(&options->config),
        .clean = options->clean != 0,
        .recovery_point = options->recovery_point,
        .log_start_offset = options->log_start_offset,
        .leader_epoch = options->leader_epoch,
        .gap_offset = options->gap_offset,
    };
    pb_ring_identity identity = {.partition = options->partition};
    if (broker->rings != NULL) {
        log_options.rings = broker->rings;
        log_options.ring_identity = &identity;
        memcpy(identity.topic_id, options->topic_id, sizeof identity.topic_id);
        snprintf(identity.topic, sizeof identity.topic, "%s", options->topic);
    }
    if (options->partition < 0 || strlen(options->topic) == 0 || strlen(options->topic) >= PB_TOPIC_NAME_BYTES)
        return pb_abi_fail(failure, &inner, pb_fail(&inner, -EINVAL, "'%s' is no topic name", options->topic));
    pb_log *log = NULL;
    pb_log_recovery done = {0};
    int result = broker->rings != NULL ? pb_ring_pool_replay(broker->rings, options->directory, options->topic_id,
                                                             options->partition, &inner)
                                       : 0;
    if (result == 0)
        result = pb_log_open(&log_options, &log, &done, &inner);
    if (result != 0)
        return pb_abi_fail(failure, &inner, result);
    pb_partition_rules rules = rules_of(&options->config);
    pb_syncer_watch(&broker->syncer, options->directory);
    /* Bytes that a killed process had written are read from the page cache, and would be lost with it. */
    if (rules.durable_acks && (result = pb_log_sync(log, NULL, &inner)) != 0) {
        (void)pb_log_close(log, false, NULL);
        return pb_abi_fail(failure, &inner, result);
    }
    pb_partition *partition =
        pb_partition_create(broker->io, options->topic, options->topic_id, options->partition, log, &rules);
    if (partition == NULL) {
        (void)pb_log_close(log, false, &inner);
        return pb_abi_fail(
            failure, &inner,
            pb_fail(&inner, -ENOMEM, "cannot allocate partition %s-%d", options->topic, options->partition));
    }
    partition->owner = broker;
    partition->tag = options->tag;
    if (options->high_watermark >= 0 && options->high_watermark < partition->high_watermark)
        partition->high_watermark = options->high_watermark;
    partition->failed = report_failure;
    partition->caught_up = pb_abi_report_caught_up;
    partition->pacing_due = pb_pacing_submit;
    partition->sync_due = pb_sync_submit;
    partition->flush_due = broker->rings != NULL ? pb_flush_submit : NULL;
    partition->hot_bytes_per_second = broker->hot_bytes_per_second;
    partition->pump_due = pb_server_pump;
    *recovery = recovery_of(&done);
    *out = partition;
    return 0;
}

int32_t pb_partition_lead(pb_partition *partition, int32_t leader_epoch)
{
    pb_abi_end_following(partition);
    pb_partition_start_leading(partition, leader_epoch);
    return pb_registry_add(&broker_of(partition)->registry, partition);
}

int32_t pb_partition_resign(pb_partition *partition, int32_t error)
{
    if (error == 0)
        pb_registry_remove(&broker_of(partition)->registry, partition);
    pb_abi_end_following(partition);
    pb_partition_stop_leading(partition, error);
    return 0;
}

int32_t pb_partition_close(pb_partition *partition, int32_t clean, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_registry_remove(&broker_of(partition)->registry, partition);
    pb_abi_end_following(partition);
    pb_log *log = partition->settled != NULL ? partition->settled : pb_partition_take_log(partition);
    partition->settled = NULL;
    int result = log != NULL ? pb_log_close(log, clean != 0, &inner) : 0;
    pb_partition_release(partition);
    return pb_abi_fail(failure, &inner, result);
}

int32_t pb_partition_settle(pb_partition *partition, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_registry_remove(&broker_of(partition)->registry, partition);
    pb_abi_end_following(partition);
    partition->settled = pb_partition_take_log(partition);
    int result = partition->settled != NULL ? pb_log_settle(partition->settled, &inner) : 0;
    return pb_abi_fail(failure, &inner, result);
}

int32_t pb_broker_sync_log_dir(pb_broker *broker, const char *log_dir, int32_t try_only)
{
    return pb_syncer_sync_directory(&broker->syncer, log_dir, try_only != 0);
}

int32_t pb_broker_drain_file(pb_broker *broker, const char *path)
{
    int64_t taken_bytes;
    return broker->io->ops->path_drain(broker->io, path, broker->io->ops->drain_bytes, &taken_bytes);
}

int32_t pb_partition_configure(pb_partition *partition, const pb_partition_config *config)
{
    pb_log_config for_log = log_config(config);
    pb_partition_rules rules = rules_of(config);
    pb_partition_configure_log(partition, &for_log, &rules);
    return 0;
}

void pb_partitions_set_below_reserve(pb_partition *const *partitions, int32_t count, int32_t below)
{
    for (int32_t i = 0; i < count; i++) {
        pthread_mutex_lock(&partitions[i]->lock);
        partitions[i]->below_reserve = below != 0;
        pthread_mutex_unlock(&partitions[i]->lock);
    }
}

int32_t pb_partition_repair(pb_partition *partition, pb_native_failure *failure)
{
    pb_failure inner = {0};
    return pb_abi_fail(failure, &inner, pb_partition_mend(partition, &inner));
}

void pb_partitions_state(pb_partition *const *partitions, int32_t count, pb_partition_state *out)
{
    for (int32_t i = 0; i < count; i++) {
        pb_partition *partition = partitions[i];
        pb_partition_ends ends;
        pb_partition_read_ends(partition, &ends);
        pthread_mutex_lock(&partition->lock);
        out[i] = (pb_partition_state){
            .log_start_offset = ends.log_start_offset,
            .high_watermark = ends.high_watermark,
            .last_stable_offset = ends.last_stable_offset,
            .log_end_offset = ends.log_end_offset,
            .durable_offset = ends.durable_offset,
            .recovery_point = ends.recovery_point,
            .size_bytes = ends.size_bytes,
            .leader_epoch = ends.leader_epoch,
            .appended_bytes = partition->appended_bytes,
            .appended_records = partition->appended_records,
            .fetched_bytes = atomic_load_explicit(&partition->fetched_bytes, memory_order_relaxed),
            .cut_offset = pb_log_cut_offset(partition->log),
            .cut_count = pb_log_truncation_count(partition->log),
            .cut_generation = pb_log_cut_generation(partition->log),
        };
        int64_t age_ns;
        pb_partition_exposure(partition, &out[i].exposed_bytes, &age_ns);
        out[i].exposed_ms = age_ns / 1000000;
        pthread_mutex_unlock(&partition->lock);
    }
}

int32_t pb_partition_append(pb_partition *partition, const uint8_t *bytes, size_t length, uint64_t ticket)
{
    return pb_local_append(broker_of(partition), partition, bytes, length, 0, ticket);
}

int32_t pb_partition_append_marker(pb_partition *partition, const uint8_t *bytes, size_t length,
                                   int32_t transaction_version, uint64_t ticket)
{
    if (transaction_version < 0 || transaction_version > INT16_MAX)
        return -EINVAL;
    return pb_local_append(broker_of(partition), partition, bytes, length, (int16_t)transaction_version, ticket);
}

/* Only whole batches are handed out: what of the last one is cut off is dropped. */
static int64_t whole_batches(const uint8_t *bytes, int64_t length)
{
    size_t position = 0;
    pb_batch_header header;
    while (pb_batch_next(bytes, (size_t)length, &position, &header) == 0 && header.size_bytes > 0)
        ;
    return (int64_t)position;
}

/* One attempt. -ENOENT: to look again finds what there is. */
static int64_t read_once(pb_partition *partition, int64_t offset, int32_t limit, uint8_t *out, size_t capacity)
{
    pb_partition_ends ends;
    pb_log_slice slice = {0};
    int result = pb_partition_enter(partition, -1, false, &ends);
    if (result == 0) {
        int64_t upper_offset = ends.high_watermark;
        if (limit == PB_READ_TO_LOG_END)
            upper_offset = pb_partition_written_end(partition);
        result = pb_partition_find(partition, &ends, offset, (int64_t)capacity, upper_offset, true, &slice);
        pb_partition_leave(partition);
    }
    if (result != 0)
        return result > 0 ? -(int64_t)result - KAFKA_CODE_BASE : result;
    if (slice.segment == NULL)
        return 0;
    if ((uint64_t)slice.length > capacity) { /* one batch larger than the buffer; nothing is wrong with the files */
        pb_segment_release(slice.segment);
        return -E2BIG;
    }
    result = pb_tail_read(slice.segment, slice.file, out, (size_t)slice.length, slice.position);
    result = pb_partition_report_slice(partition, &slice, result);
    pb_segment_release(slice.segment);
    if (result < 0)
        return result;
    /* Where a batch is known to begin nobody has looked at its header yet. Nothing would say that there is nothing. */
    int64_t length = whole_batches(out, slice.length);
    return length > 0 ? length : -(int64_t)PB_KAFKA_CORRUPT_MESSAGE - KAFKA_CODE_BASE;
}

int64_t pb_partition_read(pb_partition *partition, int64_t offset, int32_t limit, uint8_t *out, size_t capacity)
{
    int64_t result = -ENOENT;
    for (int attempt = 0; result == -ENOENT && attempt < READ_ATTEMPTS; attempt++)
        result = read_once(partition, offset, limit, out, capacity);
    return result;
}

int32_t pb_partition_list_offset(pb_partition *partition, int64_t timestamp_ms, int32_t isolation,
                                 pb_partition_position *out)
{
    pb_partition_ends ends;
    int result = pb_partition_enter(partition, -1, false, &ends);
    if (result != 0)
        return result;
    pb_log_guard guard = pb_partition_guard(partition);
    int64_t upper = isolation == PB_READ_COMMITTED ? ends.last_stable_offset : ends.high_watermark;
    pb_log_position found = {.offset = -1, .timestamp_ms = -1, .leader_epoch = -1};
    if (timestamp_ms == -1) {
        found.offset = upper;
        found.leader_epoch = ends.leader_epoch;
    } else if (timestamp_ms == -2) {
        found.offset = ends.log_start_offset;
        pthread_mutex_lock(&partition->lock);
        found.leader_epoch = pb_log_epoch_at(partition->log, ends.log_start_offset);
        pthread_mutex_unlock(&partition->lock);
    } else if (timestamp_ms == -3) {
        result = pb_log_offset_of_max_timestamp(partition->log, &guard, upper, &found);
    } else if (timestamp_ms >= 0) {
        result = pb_log_offset_for_timestamp(partition->log, &guard, timestamp_ms, upper, &found);
    } else {
        result = PB_KAFKA_UNSUPPORTED_VERSION;
    }
    pb_partition_report_read(partition, result);
    pb_partition_leave(partition);
    *out = (pb_partition_position){
        .offset = found.offset, .timestamp_ms = found.timestamp_ms, .leader_epoch = found.leader_epoch};
    return result;
}

int32_t pb_partition_epoch_end(pb_partition *partition, int32_t leader_epoch, int32_t *epoch, int64_t *end_offset)
{
    pthread_mutex_lock(&partition->lock);
    pb_log_end_offset_for_epoch(partition->log, leader_epoch, epoch, end_offset);
    pthread_mutex_unlock(&partition->lock);
    return 0;
}

int32_t pb_partition_sync(pb_partition *partition, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_broker *broker = broker_of(partition);
    int64_t began_ns = broker->io->ops->monotonic_ns(broker->io);
    int result = pb_partition_sync_written(partition, &inner);
    pb_syncer_count(&broker->syncer, broker->io->ops->monotonic_ns(broker->io) - began_ns);
    return pb_abi_fail(failure, &inner, result);
}

enum { SYNC_ROUNDS = 3 };

int32_t pb_partition_mark(pb_partition *partition, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_mark_plan plan;
    pb_log_guard guard = pb_partition_guard(partition);
    pthread_mutex_lock(&partition->lock);
    int result = pb_log_mark_begin(partition->log, &plan);
    pthread_mutex_unlock(&partition->lock);
    if (result == 0 && plan.snapshot == NULL)
        return pb_partition_sync(partition, failure);
    /* A sync covers what was written when it began, and writes may have been under way. */
    for (int round = 0; result == 0 && round < SYNC_ROUNDS; round++) {
        pthread_mutex_lock(&partition->lock);
        bool is_behind = pb_log_durable_end(partition->log) < plan.mark.offset;
        pthread_mutex_unlock(&partition->lock);
        if (is_behind && (result = pb_partition_sync(partition, failure)) != 0) {
            pb_log_mark_release(&plan);
            return result;
        }
    }
    if (result == 0)
        result = pb_log_mark_finish(partition->log, &guard, &plan, &inner);
    pb_log_mark_release(&plan);
    return pb_abi_fail(failure, &inner, result);
}

int32_t pb_partition_upkeep(pb_partition *partition, int64_t now_ms, int64_t purge_before_ms,
                            pb_native_failure *failure)
{
    pb_failure purging = {0}, upkeep = {0};
    pb_log_guard guard = pb_partition_guard(partition);
    /* Neither waits for the other to succeed: on a full disk the purge makes the room that upkeep needs. */
    int purged = pb_log_purge(partition->log, &guard, purge_before_ms, &purging);
    int result = pb_log_upkeep(partition->log, &guard, now_ms, &upkeep);
    if (result == -ENODATA) { /* goes the way of a read that meets it, which ends in pb_partition_check_files */
        pb_partition_report_read(partition, result);
        result = 0;
        upkeep = (pb_failure){0};
    }
    pb_abi_tell(partition, &upkeep, result);
    return purged != 0 ? pb_abi_fail(failure, &purging, purged) : pb_abi_fail(failure, &upkeep, result);
}

int32_t pb_partition_segments(pb_partition *partition, pb_partition_segment *out, int32_t capacity)
{
    pb_segment_info *segments = NULL;
    int count = 0;
    pthread_mutex_lock(&partition->lock);
    int result = pb_log_segments(partition->log, &segments, &count);
    pthread_mutex_unlock(&partition->lock);
    if (result != 0)
        return result;
    for (int i = 0; i < count && i < capacity; i++)
        out[i] = (pb_partition_segment){
            .base_offset = segments[i].base_offset,
            .end_offset = segments[i].end_offset,
            .size_bytes = segments[i].size_bytes,
            .largest_timestamp_ms = segments[i].largest_timestamp_ms,
            .modified_ms = segments[i].modified_ms,
            .file_bytes = segments[i].file_bytes,
            .generation = segments[i].generation,
        };
    free(segments);
    return count;
}

int32_t pb_partition_delete_before(pb_partition *partition, int64_t offset, int32_t *deleted_segments,
                                   pb_native_failure *failure)
{
    pb_failure inner = {0};
    int deleted = 0;
    pthread_mutex_lock(&partition->lock);
    int result = offset > partition->high_watermark
                     ? pb_fail(&inner, PB_KAFKA_OFFSET_OUT_OF_RANGE, "offset is above the high watermark")
                     : pb_log_set_start_offset(partition->log, offset);
    pthread_mutex_unlock(&partition->lock);
    pb_log_guard guard = pb_partition_guard(partition);
    if (result == 0)
        result = pb_log_delete_segments(partition->log, &guard, &deleted, &inner);
    *deleted_segments = deleted;
    return pb_abi_fail(failure, &inner, result);
}

int32_t pb_partition_roll(pb_partition *partition, pb_native_failure *failure)
{
    pb_failure inner = {0};
    return pb_abi_fail(failure, &inner, pb_partition_begin_segment(partition, &inner));
}

int32_t pb_partition_truncate(pb_partition *partition, int64_t offset, pb_native_failure *failure)
{
    pb_failure inner = {0};
    return pb_abi_fail(failure, &inner, pb_partition_cut(partition, offset, &inner));
}

int32_t pb_partition_producers(pb_partition *partition, pb_partition_producer *out, int32_t capacity)
{
    pb_producer_info *producers = calloc((size_t)capacity, sizeof *producers);
    if (producers == NULL)
        return -ENOMEM;
    pthread_mutex_lock(&partition->lock);
    int count = pb_log_producers(partition->log, producers, capacity);
    pthread_mutex_unlock(&partition->lock);
    for (int i = 0; i < count; i++)
        out[i] = (pb_partition_producer){
            .producer_id = producers[i].producer_id,
            .last_timestamp_ms = producers[i].last_timestamp_ms,
            .transaction_start_offset = producers[i].transaction_start_offset,
            .last_sequence = producers[i].last_sequence,
            .coordinator_epoch = producers[i].coordinator_epoch,
            .producer_epoch = producers[i].producer_epoch,
        };
    free(producers);
    return count;
}
