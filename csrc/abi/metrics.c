/* pybroker.h: what a broker counts. Any thread; counters are read while they are written, each true for itself. */
#include <errno.h>
#include <string.h>

#include "abi/convert.h"

_Static_assert(sizeof(((pb_distribution *)0)->below) / sizeof(int64_t) * PB_HISTOGRAM_STEPS ==
                   PB_HISTOGRAM_BUCKETS + 2 * PB_HISTOGRAM_STEPS,
               "an edge at every power of two");
_Static_assert(PB_PING_REACTORS >= PB_MAX_REACTORS, "every reactor can be asked");
_Static_assert((int)PB_NOTICE_THROTTLE == (int)PB_ABOUT_THROTTLE && (int)PB_NOTICE_ROLL == (int)PB_ABOUT_ROLL &&
                   (int)PB_NOTICE_SLOW_REQUEST == (int)PB_ABOUT_SLOW_REQUEST,
               "one numbering of notices");

static void add_reactor(pb_broker_stats *out, pb_server_reactor *home)
{
    pb_server_counters *counters = &home->counters;
    pb_reactor_counters *turning = &home->reactor.counters;
    out->bytes_in += pb_counter_read(&turning->bytes_in);
    out->bytes_out += pb_counter_read(&turning->bytes_out);
    out->turns += pb_counter_read(&turning->turns);
    out->slow_closed += pb_counter_read(&turning->slow_closed);
    out->writes += pb_counter_read(&turning->writes);
    out->written_bytes += pb_counter_read(&turning->written_bytes);
    out->requests += pb_counter_read(&counters->requests);
    out->produce_requests += pb_counter_read(&counters->produce_requests);
    out->fetch_requests += pb_counter_read(&counters->fetch_requests);
    out->bad_requests += pb_counter_read(&counters->bad_requests);
    out->appended_batches += pb_counter_read(&counters->appended_batches);
    out->appended_records += pb_counter_read(&counters->appended_records);
    out->appended_bytes += pb_counter_read(&counters->appended_bytes);
    out->failed_produces += pb_counter_read(&counters->failed_produces);
    out->rolls += pb_counter_read(&counters->rolls);
    out->slow_requests += pb_counter_read(&counters->slow_requests);
    out->throttled += pb_counter_read(&counters->throttled);
    out->quota_throttled += pb_counter_read(&counters->quota_throttled);
    out->delayed_fetches += pb_counter_read(&counters->delayed_fetches);
    out->cold_reads += pb_counter_read(&counters->cold_reads);
    out->empty_fetches += pb_counter_read(&counters->empty_fetches);
}

void pb_broker_stats_read(pb_broker *broker, pb_broker_stats *out)
{
    memset(out, 0, sizeof *out);
    out->connections = pb_counter_read(&broker->connections);
    out->connections_accepted = pb_counter_read(&broker->connections_accepted);
    out->connections_refused = pb_counter_read(&broker->connections_refused);
    out->buffer_bytes = pb_pool_used_bytes(&broker->pool);
    out->buffer_budget_bytes = broker->pool.budget_bytes;
    out->starved_connections = atomic_load_explicit(&broker->pool.starved, memory_order_relaxed);
    out->python_requests = pb_counter_read(&broker->python_requests);
    out->fetch_sessions = pb_fetch_sessions_count(&broker->sessions);
    out->cold_read_bytes = pb_counter_read(&broker->cold_reads.history.read_bytes);
    out->cold_dropped_bytes = pb_counter_read(&broker->cold_reads.history.dropped_bytes);
    out->large_batches = pb_counter_read(&broker->big_batches.taken);
    out->large_batch_bytes = pb_counter_read(&broker->big_batches.unpacked_bytes);
    out->large_batches_now = pb_counter_read(&broker->big_batches.in_progress);
    for (int i = 0; i < broker->settings.reactor_count; i++)
        add_reactor(out, &broker->reactors[i]);
}

/* Buckets below 2^3 have one value each, and eight make a power of two from there. */
static void add_histogram(pb_distribution *out, pb_histogram *histogram)
{
    int edges = (int)(sizeof out->below / sizeof out->below[0]);
    int64_t counted = 0;
    int bucket = 0;
    for (int edge = 0; edge < edges; edge++) {
        int end = edge <= 3 ? 1 << edge : (edge - 2) * PB_HISTOGRAM_STEPS;
        for (; bucket < end && bucket < PB_HISTOGRAM_BUCKETS; bucket++)
            counted += pb_counter_read(&histogram->counts[bucket]);
        out->below[edge] += counted;
    }
    for (; bucket < PB_HISTOGRAM_BUCKETS; bucket++)
        counted += pb_counter_read(&histogram->counts[bucket]);
    out->count += counted;
    out->sum += pb_counter_read(&histogram->sum);
}

void pb_broker_distributions_read(pb_broker *broker, pb_broker_distributions *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < broker->settings.reactor_count; i++) {
        pb_reactor_counters *counters = &broker->reactors[i].reactor.counters;
        add_histogram(&out->turn_us, &counters->turn_us);
        add_histogram(&out->file_sync_us, &counters->sync_us);
        add_histogram(&out->shared_sync_us, &counters->shared_sync_us);
        add_histogram(&out->commit_appends, &counters->commit_appends);
    }
    add_histogram(&out->doorbell_us, &broker->events.doorbell_us);
    add_histogram(&out->file_sync_us, &broker->syncer.file_us);
    add_histogram(&out->filesystem_sync_us, &broker->syncer.filesystem_us);
    add_histogram(&out->commit_appends, &broker->syncer.commit_appends);
}

int32_t pb_broker_request_times(pb_broker *broker, pb_request_times *out, int32_t capacity)
{
    int32_t count = 0;
    for (int api = 0; api < PB_API_KEYS && count < capacity; api++) {
        pb_request_times *row = &out[count];
        memset(row, 0, sizeof *row);
        row->api_key = api;
        for (int i = 0; i < broker->settings.reactor_count; i++) {
            pb_histogram *histograms = broker->reactors[i].histograms[api];
            for (int stage = 0; histograms != NULL && stage < PB_STAGES; stage++)
                add_histogram(&row->stages[stage], &histograms[stage]);
        }
        count += row->stages[PB_STAGE_TOTAL].count > 0;
    }
    return count;
}

int32_t pb_broker_ping(pb_broker *broker, int32_t timeout_ms, int64_t *latency_us, int32_t *stuck_reactor)
{
    if (!broker->started || atomic_load(&broker->halted))
        return -ESHUTDOWN;
    if (timeout_ms < 0)
        return -EINVAL;
    pb_reactor *reactors[PB_MAX_REACTORS];
    for (int i = 0; i < broker->settings.reactor_count; i++)
        reactors[i] = &broker->reactors[i].reactor;
    int64_t began_ns = broker->io->ops->monotonic_ns(broker->io);
    int stuck = -1;
    int result =
        pb_ping_run(&broker->ping, reactors, broker->settings.reactor_count, (int64_t)timeout_ms * 1000000, &stuck);
    *stuck_reactor = stuck;
    *latency_us = (broker->io->ops->monotonic_ns(broker->io) - began_ns) / 1000;
    return result;
}
