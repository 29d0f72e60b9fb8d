/* What simulations of the whole data plane share: a broker, its logs, and what its partitions take. Header only. */
#ifndef PB_TESTS_SIM_BROKER_H
#define PB_TESTS_SIM_BROKER_H

#include <stdio.h>

#include "io/sim/sim.h"
#include "server/broker.h"
#include "tests/check.h"

#define SIM_BROKER_UNUSED __attribute__((unused))

static const uint8_t sim_topic_id[16] = {9};

static SIM_BROKER_UNUSED pb_log_options sim_log_options(pb_io *io, const char *directory, int64_t segment_bytes,
                                                        bool clean)
{
    return (pb_log_options){
        .io = io,
        .directory = directory,
        .topic_id = sim_topic_id,
        .clean = clean,
        .log_start_offset = -1,
        .gap_offset = -1,
        .config = {.segment_bytes = segment_bytes,
                   .segment_ms = INT64_MAX,
                   .segment_index_bytes = 1 << 20,
                   .index_interval_bytes = 512,
                   .producer_expiration_ms = 86400000,
                   .flush_messages = INT64_MAX,
                   .flush_ms = INT64_MAX},
    };
}

static SIM_BROKER_UNUSED pb_log *sim_open(const pb_log_options *options)
{
    pb_log *log = NULL;
    pb_log_recovery recovery;
    pb_failure failure = {0};
    int result = pb_log_open(options, &log, &recovery, &failure);
    if (result != 0)
        fprintf(stderr, "cannot open: %s\n", failure.text);
    CHECK_INT(result, 0);
    return log;
}

/* With `rings` the log may become hot. */
static SIM_BROKER_UNUSED pb_log *sim_open_log_with(pb_io *io, const char *directory, int64_t segment_bytes, bool clean,
                                                   pb_ring_pool *rings, int partition)
{
    pb_ring_identity identity = {.topic = "t", .partition = partition};
    pb_log_options options = sim_log_options(io, directory, segment_bytes, clean);
    options.rings = rings;
    options.ring_identity = &identity;
    return sim_open(&options);
}

static SIM_BROKER_UNUSED pb_log *sim_open_log(pb_io *io, const char *directory, int64_t segment_bytes, bool clean)
{
    return sim_open_log_with(io, directory, segment_bytes, clean, NULL, 0);
}

/* Two reactors, not yet running; it serves Produce. */
static SIM_BROKER_UNUSED pb_broker *sim_make_broker(pb_io *io)
{
    pb_broker_settings settings = {.node_id = 1,
                                   .reactor_count = 2,
                                   .buffer_budget_bytes = 8 << 20,
                                   .max_request_bytes = 1 << 20,
                                   .max_connections = 100,
                                   .fetch_session_slots = 10,
                                   .fetch_max_bytes = 1 << 20};
    pb_broker *broker = NULL;
    CHECK_INT(pb_broker_create(io, &settings, &broker, NULL), 0);
    CHECK_INT(pb_broker_set_apis(broker, PB_API_PRODUCE, 3, 13), 0);
    return broker;
}

static SIM_BROKER_UNUSED pb_partition_rules sim_rules(bool durable_acks)
{
    return (pb_partition_rules){.validation = {.max_message_bytes = 1 << 20,
                                               .timestamp_before_max_ms = INT64_MAX,
                                               .timestamp_after_max_ms = INT64_MAX,
                                               .target_compression = PB_TARGET_COMPRESSION_PRODUCER},
                                .min_insync_replicas = 1,
                                .durable_acks = durable_acks};
}

#endif
