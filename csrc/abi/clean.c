/* pybroker.h: cleaning. On the threads that Python keeps for it, but for progress, cancel and limit, which never wait.
 */
#include <errno.h>

#include "abi/convert.h"

void pb_broker_limit_cleaning(pb_broker *broker, int64_t bytes_per_second)
{
    atomic_store_explicit(&broker->clean_throttle.bytes_per_second, bytes_per_second, memory_order_relaxed);
}

int32_t pb_partition_clean(pb_partition *partition, const pb_clean_options *options, pb_clean_result *result,
                           pb_native_failure *failure)
{
    pb_failure inner = {0};
    *result = (pb_clean_result){.end_offset = options->first_dirty_offset};
    return pb_abi_fail(failure, &inner,
                       pb_fail(&inner, -ENOTSUP, "cannot clean %s-%d", partition->topic, partition->index));
}

void pb_partition_clean_cancel(pb_partition *partition)
{
    (void)partition;
}

void pb_partition_clean_progress(pb_partition *partition, pb_clean_progress *out)
{
    (void)partition;
    *out = (pb_clean_progress){0};
}

int32_t pb_partition_first_timestamp(pb_partition *partition, int64_t from_offset, int64_t upper_offset,
                                     int64_t *timestamp_ms, pb_native_failure *failure)
{
    (void)from_offset;
    (void)upper_offset;
    pb_failure inner = {0};
    *timestamp_ms = -1;
    return pb_abi_fail(failure, &inner,
                       pb_fail(&inner, -ENOTSUP, "cannot read %s-%d", partition->topic, partition->index));
}
