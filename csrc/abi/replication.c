/* pybroker.h: partitions with several replicas. Python's threads, but for what is told to it. */
#include <errno.h>
#include <stdlib.h>

#include "abi/convert.h"
#include "abi/following.h"

void pb_abi_report_caught_up(pb_partition *partition, int32_t replica_id)
{
    pb_broker *broker = partition->owner;
    pb_event_node *event = calloc(1, sizeof *event);
    if (event == NULL)
        return; /* it is told of again */
    event->kind = PB_NODE_CAUGHT_UP;
    event->ticket = partition->tag;
    event->offset = replica_id;
    pb_events_put(&broker->events, event);
}

int32_t pb_partition_lead_replicated(pb_partition *partition, const pb_partition_leadership *leadership)
{
    pb_broker *broker = partition->owner;
    pb_leadership told = {
        .leader_epoch = leadership->leader_epoch,
        .partition_epoch = leadership->partition_epoch,
        .replicas = leadership->replicas,
        .isr = leadership->isr,
        .joining = leadership->joining,
        .replica_count = leadership->replica_count,
        .isr_count = leadership->isr_count,
        .joining_count = leadership->joining_count,
    };
    pb_abi_end_following(partition);
    int result = pb_partition_start_leading_replicas(partition, broker->settings.node_id, &told);
    return result == 0 ? pb_registry_add(&broker->registry, partition) : result;
}

int32_t pb_partition_followers(pb_partition *partition, pb_partition_follower *out, int32_t capacity)
{
    if (capacity < 0)
        return -EINVAL;
    pb_follower_view *states = calloc((size_t)capacity + 1, sizeof *states);
    if (states == NULL)
        return -ENOMEM;
    int32_t count = pb_partition_read_followers(partition, states, capacity);
    for (int32_t i = 0; i < count && i < capacity; i++)
        out[i] = (pb_partition_follower){
            .replica_id = states[i].replica_id,
            .in_isr = states[i].in_isr,
            .log_end_offset = states[i].log_end_offset,
            .log_start_offset = states[i].log_start_offset,
            .caught_up_ms = states[i].caught_up_ms,
            .broker_epoch = states[i].broker_epoch,
        };
    free(states);
    return count;
}

int32_t pb_broker_set_racks(pb_broker *broker, const pb_broker_rack *racks, int32_t count)
{
    if (count < 0)
        return -EINVAL;
    pb_rack *places = calloc((size_t)count + 1, sizeof *places);
    if (places == NULL)
        return -ENOMEM;
    for (int32_t i = 0; i < count; i++)
        places[i] = (pb_rack){.node_id = racks[i].node_id, .name = racks[i].rack};
    int result = pb_racks_set(&broker->racks, places, count);
    free(places);
    return result;
}

static pb_client_limits limits_of(const pb_client_quota *quota)
{
    return (pb_client_limits){
        .client_id = {quota->client_id, quota->client_id_length},
        .of = {[PB_QUOTA_PRODUCE] = {quota->produce_bytes_per_second, quota->produce_shared != 0},
               [PB_QUOTA_FETCH] = {quota->fetch_bytes_per_second, quota->fetch_shared != 0}},
    };
}

int32_t pb_broker_set_client_quotas(pb_broker *broker, const pb_client_quota *quotas, int32_t count,
                                    const pb_client_quota *others, int32_t window_count, int64_t sample_ms)
{
    _Static_assert(PB_QUOTA_SAMPLES == PB_QUOTA_SAMPLES_MAX, "pybroker.h says what the server takes");
    if (count < 0)
        return -EINVAL;
    pb_client_limits *named = calloc((size_t)count + 1, sizeof *named);
    if (named == NULL)
        return -ENOMEM;
    for (int32_t i = 0; i < count; i++)
        named[i] = limits_of(&quotas[i]);
    pb_client_limits rest = limits_of(others);
    pb_rate_window window = {.count = window_count, .sample_ms = sample_ms};
    int result = pb_client_quotas_set(&broker->client_quotas, named, count, &rest, &window);
    free(named);
    return result;
}

void pb_broker_limit_follower_replication(pb_broker *broker, int64_t bytes_per_second)
{
    pb_quota_limit(&broker->follower_quota, bytes_per_second > 0 ? bytes_per_second : 0,
                   broker->io->ops->monotonic_ns(broker->io));
}

void pb_broker_limit_leader_replication(pb_broker *broker, int64_t bytes_per_second)
{
    pb_quota_limit(&broker->leader_quota, bytes_per_second > 0 ? bytes_per_second : 0,
                   broker->io->ops->monotonic_ns(broker->io));
}
