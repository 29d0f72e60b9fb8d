/* pybroker.h: following. Python's threads. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi/convert.h"
#include "abi/following.h"

static int copy_text(char *out, size_t capacity, const char *text)
{
    size_t length = text != NULL ? strlen(text) : 0;
    if (length >= capacity)
        return -EINVAL;
    if (length > 0)
        memcpy(out, text, length);
    out[length] = '\0';
    return 0;
}

/* A negative number means nothing, and a size that is none cannot be fetched with. */
static int check_options(const pb_fetcher_options *options, pb_failure *failure)
{
    if (options->fetch_version < 17 || options->fetch_version > 18)
        return pb_fail(failure, -EINVAL, "Fetch version %d is none that a follower speaks (17, 18)",
                       options->fetch_version);
    if (options->port < 1 || options->port > 65535 || options->host == NULL || options->host[0] == '\0')
        return pb_fail(failure, -EINVAL, "broker %d has no address to fetch from", options->leader_id);
    if (options->max_bytes < 1 || options->partition_max_bytes < 1 || options->max_wait_ms < 0 ||
        options->min_bytes < 0 || options->backoff_ms < 1 || options->connect_timeout_ms < 1)
        return pb_fail(failure, -EINVAL, "a size or time to fetch from broker %d with is out of range",
                       options->leader_id);
    return 0;
}

int32_t pb_fetcher_open(pb_broker *broker, const pb_fetcher_options *options, pb_fetcher **out,
                        pb_native_failure *failure)
{
    pb_failure inner = {0};
    int result = check_options(options, &inner);
    if (result != 0)
        return pb_abi_fail(failure, &inner, result);
    pb_fetcher_settings settings = {
        .leader_id = options->leader_id,
        .port = options->port,
        .replica_id = options->replica_id,
        .fetch_version = (int16_t)options->fetch_version,
        .max_wait_ms = options->max_wait_ms,
        .min_bytes = options->min_bytes,
        .max_bytes = options->max_bytes,
        .partition_max_bytes = options->partition_max_bytes,
        .backoff_ns = options->backoff_ms * 1000000LL,
        .timeout_ns = options->connect_timeout_ms * 1000000LL,
    };
    if (copy_text(settings.host, sizeof settings.host, options->host) != 0 ||
        copy_text(settings.client_id, sizeof settings.client_id, options->client_id) != 0)
        return pb_abi_fail(failure, &inner,
                           pb_fail(&inner, -EINVAL, "the host or client id to fetch from broker %d with is too long",
                                   options->leader_id));
    result = pb_fetcher_create(broker, &settings, options->replica_epoch, out);
    if (result != 0)
        (void)pb_fail(&inner, result, "no memory for a fetcher from broker %d", options->leader_id);
    return pb_abi_fail(failure, &inner, result);
}

void pb_fetcher_close(pb_fetcher *fetcher)
{
    pb_fetcher_end(fetcher);
}

int32_t pb_fetcher_set_epoch(pb_fetcher *fetcher, int64_t replica_epoch)
{
    return pb_fetcher_change_epoch(fetcher, replica_epoch);
}

void pb_fetcher_stats_read(pb_fetcher *fetcher, pb_fetcher_stats *out)
{
    const pb_fetcher_counters *counters = &fetcher->counters;
    *out = (pb_fetcher_stats){
        .requests = pb_counter_read(&counters->requests),
        .bytes = pb_counter_read(&counters->bytes),
        .record_bytes = pb_counter_read(&counters->record_bytes),
        .batches = pb_counter_read(&counters->batches),
        .records = pb_counter_read(&counters->records),
        .connections = pb_counter_read(&counters->connections),
        .failures = pb_counter_read(&counters->failures),
        .partitions = pb_counter_read(&counters->partitions),
        .connected = pb_counter_read(&counters->connected),
    };
}

void pb_abi_end_following(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    pb_fetcher *fetcher = partition->following.fetcher;
    uint64_t ticket = partition->following.ticket;
    partition->following.fetcher = NULL;
    pthread_mutex_unlock(&partition->lock);
    pb_partition_stop_following(partition);
    if (fetcher == NULL)
        return;
    pb_fetcher_drop(fetcher, partition, ticket);
    pb_fetcher_release(fetcher);
}

int32_t pb_partition_follow(pb_partition *partition, pb_fetcher *fetcher, int32_t leader_epoch)
{
    pb_broker *broker = partition->owner;
    if (fetcher->broker != broker || leader_epoch < 0)
        return -EINVAL;
    pb_abi_end_following(partition);
    uint64_t ticket = pb_partition_start_following(partition, leader_epoch);
    pb_fetcher_retain(fetcher);
    pthread_mutex_lock(&partition->lock);
    partition->following.fetcher = fetcher;
    atomic_store(&partition->following.state, PB_FOLLOWING_WAITS);
    pthread_mutex_unlock(&partition->lock);
    int result = pb_registry_add(&broker->registry, partition);
    if (result == 0)
        result = pb_fetcher_add(fetcher, partition, ticket, leader_epoch);
    if (result != 0)
        pb_abi_end_following(partition);
    return result;
}

void pb_partition_unfollow(pb_partition *partition)
{
    pb_abi_end_following(partition);
}

void pb_partitions_following(pb_partition *const *partitions, int32_t count, pb_partition_following *out)
{
    for (int32_t i = 0; i < count; i++) {
        pb_partition *partition = partitions[i];
        out[i] = (pb_partition_following){.lag = -1, .leader_epoch = -1, .state = PB_FOLLOWER_IDLE};
        pthread_mutex_lock(&partition->lock);
        const pb_following *following = &partition->following;
        if (following->active) {
            int64_t lag = following->leader_high_watermark - pb_log_written_end(partition->log);
            out[i].state = atomic_load(&following->state);
            out[i].leader_epoch = partition->leader_epoch;
            if (following->leader_high_watermark >= 0)
                out[i].lag = lag > 0 ? lag : 0;
        }
        pthread_mutex_unlock(&partition->lock);
    }
}
