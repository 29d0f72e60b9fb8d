/* pybroker.h: cleaning. On the threads that Python keeps for it, but for progress, cancel and limit, which never wait.
 */
#include <errno.h>

#include "abi/convert.h"
#include "log/clean/clean.h"
#include "replica/durable.h"

void pb_broker_limit_cleaning(pb_broker *broker, int64_t bytes_per_second)
{
    atomic_store_explicit(&broker->clean_throttle.bytes_per_second, bytes_per_second, memory_order_relaxed);
    /* Debt from the old rate is forgiven. */
    atomic_store_explicit(&broker->clean_throttle.due_ns, 0, memory_order_relaxed);
}

/* One read past the page cache in the time that the block before it takes: a smaller one does not keep the disk busy.
 */
enum { READ_BLOCK_BYTES = 4 << 20 };

static pb_clean_settings settings_of(const pb_clean_options *options, const pb_partition_ends *ends)
{
    /* A cut lowers the high watermark a moment after the log's end. */
    int64_t stable_offset =
        ends->last_stable_offset < ends->log_end_offset ? ends->last_stable_offset : ends->log_end_offset;
    pb_clean_settings settings = {
        .first_dirty_offset = options->first_dirty_offset,
        .upper_offset = options->upper_offset < stable_offset ? options->upper_offset : stable_offset,
        .cut_count = ends->cut_count,
        .now_ms = options->now_ms,
        .delete_retention_ms = options->delete_retention_ms,
        .map_bytes = options->map_bytes,
        .io_buffer_bytes = options->io_buffer_bytes,
        .read_block_bytes = READ_BLOCK_BYTES,
        .load_factor_percent = options->load_factor_percent,
        .compression = options->compression,
        .level = options->compression_level,
    };
    if (options->compression_level == INT32_MIN && options->compression > 0)
        settings.level = pb_compression_default_level(options->compression);
    return settings;
}

static pb_clean_result result_of(const pb_clean_stats *stats, int64_t elapsed_ns)
{
    return (pb_clean_result){
        .end_offset = stats->end_offset,
        .map_read_bytes = stats->map_read_bytes,
        .map_read_records = stats->map_read_records,
        .map_entries = stats->map_entries,
        .read_bytes = stats->read_bytes,
        .read_records = stats->read_records,
        .written_bytes = stats->written_bytes,
        .kept_records = stats->kept_records,
        .invalid_records = stats->invalid_records,
        .removed_bytes = stats->removed_bytes,
        .source_segments = stats->source_segments,
        .cleaned_segments = stats->cleaned_segments,
        .elapsed_ns = elapsed_ns,
        .map_full = stats->map_full,
    };
}

int32_t pb_partition_clean(pb_partition *partition, const pb_clean_options *options, pb_clean_result *result,
                           pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_broker *broker = partition->owner;
    pb_partition_ends ends;
    pb_partition_read_ends(partition, &ends);
    pb_clean_settings settings = settings_of(options, &ends);
    pb_log_guard guard = pb_partition_guard(partition);
    pb_clean_stats stats = {.end_offset = settings.first_dirty_offset};
    int64_t began_ns = broker->io->ops->monotonic_ns(broker->io);
    /* Not by the pass itself: a file tells one sync only that it could not be written. If that were not the one which
     * durable acks wait for, records that are lost would be acknowledged. */
    int rc = ends.durable_offset < settings.upper_offset ? pb_partition_sync_written(partition, &inner) : 0;
    if (rc == 0) {
        broker->io->ops->thread_yield_disk(broker->io, true);
        rc = pb_log_clean(partition->log, &guard, &settings, &broker->clean_throttle, &stats, &inner);
        broker->io->ops->thread_yield_disk(broker->io, false);
        if (rc != 0)
            pb_durable_tell(partition, rc);
    }
    *result = result_of(&stats, broker->io->ops->monotonic_ns(broker->io) - began_ns);
    return pb_abi_fail(failure, &inner, rc);
}

void pb_partition_clean_cancel(pb_partition *partition)
{
    atomic_store(&pb_log_clean_control(partition->log)->cancelled, true);
}

void pb_partition_clean_progress(pb_partition *partition, pb_clean_progress *out)
{
    const pb_clean_control *control = pb_log_clean_control(partition->log);
    _Static_assert(PB_CLEAN_MAPPING == (int)PB_CLEAN_STAGE_MAPPING &&
                       PB_CLEAN_REWRITING == (int)PB_CLEAN_STAGE_REWRITING,
                   "the stages of the log are those of the boundary");
    *out = (pb_clean_progress){
        .phase = atomic_load_explicit(&control->stage, memory_order_relaxed),
        .done_bytes = atomic_load_explicit(&control->done_bytes, memory_order_relaxed),
        .total_bytes = atomic_load_explicit(&control->total_bytes, memory_order_relaxed),
        .map_entries = atomic_load_explicit(&control->map_entries, memory_order_relaxed),
    };
}

int32_t pb_partition_first_timestamp(pb_partition *partition, int64_t from_offset, int64_t upper_offset,
                                     int64_t *timestamp_ms, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_log_guard guard = pb_partition_guard(partition);
    return pb_abi_fail(failure, &inner,
                       pb_log_first_timestamp(partition->log, &guard, from_offset, upper_offset, timestamp_ms, &inner));
}
