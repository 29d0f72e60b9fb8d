/* pybroker.h: partitions that are refused, checked, held and moved. Python's threads. */
#include <errno.h>
#include <string.h>

#include "abi/convert.h"

int32_t pb_partition_refuse(pb_broker *broker, const char *topic, const uint8_t *topic_id, int32_t partition,
                            int32_t error, pb_partition **out)
{
    if (partition < 0 || error <= 0 || strlen(topic) == 0 || strlen(topic) >= PB_TOPIC_NAME_BYTES)
        return -EINVAL;
    pb_partition_rules rules = {0};
    pb_partition *refusing = pb_partition_create(broker->io, topic, topic_id, partition, NULL, &rules);
    if (refusing == NULL)
        return -ENOMEM;
    refusing->owner = broker;
    refusing->refusal = error;
    int result = pb_registry_add(&broker->registry, refusing);
    if (result == 0)
        *out = refusing;
    else
        pb_partition_release(refusing);
    return result;
}

int32_t pb_partition_check_files(pb_partition *partition, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_partition_watch_reads(partition);
    int result = pb_partition_look_at_files(partition, &inner);
    pb_abi_tell(partition, &inner, result);
    return pb_abi_fail(failure, &inner, result);
}

int32_t pb_partition_hold(pb_partition *partition, pb_native_failure *failure)
{
    pb_failure inner = {0};
    return pb_abi_fail(failure, &inner, pb_partition_stop_writes(partition, &inner));
}

int32_t pb_partition_relocate(pb_partition *partition, const char *directory, int64_t cut_count, int32_t for_good,
                              pb_native_failure *failure)
{
    pb_failure inner = {0};
    return pb_abi_fail(failure, &inner,
                       pb_partition_move(partition, directory, (uint32_t)cut_count, for_good != 0, &inner));
}

void pb_partition_go_back(pb_partition *partition)
{
    pb_partition_move_back(partition);
}

void pb_partition_unhold(pb_partition *partition)
{
    pb_partition_resume_writes(partition);
}
