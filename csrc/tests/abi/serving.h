/* What tests of the data plane behind pybroker.h share: a broker with one partition. Header only. */
#ifndef PB_TESTS_ABI_SERVING_H
#define PB_TESTS_ABI_SERVING_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pybroker.h"
#include "tests/check.h"
#include "tests/support/mini_client.h"
#include "wire/generated/kafka_errors.h"

#define SERVING_UNUSED __attribute__((unused))

static const char *const backends[] = {"epoll", "io_uring"};

/* A broker with one topic `t` of one partition in a fresh directory. */
typedef struct served {
    char directory[64];
    char rings[64]; /* where tail rings lie; "": there are none */
    pb_partition_config config;
    int64_t slow_request_ms;
    int64_t buffer_budget_bytes; /* 0: enough */
    pb_broker *broker;
    pb_partition *partition;
    int32_t port;
} served;

static SERVING_UNUSED pb_partition_config default_config(void)
{
    return (pb_partition_config){
        .segment_bytes = 1 << 30,
        .segment_ms = 7LL * 24 * 3600 * 1000,
        .segment_index_bytes = 10 << 20,
        .index_interval_bytes = 4096,
        .producer_expiration_ms = 86400000,
        .flush_messages = INT64_MAX,
        .flush_ms = INT64_MAX,
        .timestamp_before_max_ms = INT64_MAX,
        .timestamp_after_max_ms = 3600000,
        .max_message_bytes = 1 << 20,
        .min_insync_replicas = 1,
        .compression = -1,
        .compression_level = INT32_MIN,
    };
}

static SERVING_UNUSED void open_partition(served *it, int clean)
{
    char path[128];
    snprintf(path, sizeof path, "%s/t-0", it->directory);
    uint8_t id[16] = {7};
    pb_partition_options options = {.topic = "t",
                                    .topic_id = id,
                                    .directory = path,
                                    .clean = clean,
                                    .log_start_offset = -1,
                                    .high_watermark = -1,
                                    .tag = 42,
                                    .config = it->config};
    pb_partition_recovery recovery;
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_open(it->broker, &options, &it->partition, &recovery, &failure), 0);
    CHECK_INT(pb_partition_lead(it->partition, 0), 0);
}

/* Log dir and broker; what `it` says otherwise is the caller's. */
static SERVING_UNUSED void open_broker(served *it, const char *backend, int reactors)
{
    strcpy(it->directory, "/tmp/pb-serving-XXXXXX");
    CHECK(mkdtemp(it->directory) != NULL);
    pb_broker_options options = {
        .backend = backend,
        .node_id = 1,
        .reactor_count = reactors,
        .buffer_budget_bytes = it->buffer_budget_bytes > 0 ? it->buffer_budget_bytes : 64 << 20,
        .max_request_bytes = 100 << 20,
        .max_connections = 100,
        .connections_max_idle_ms = 600000,
        .fetch_session_slots = 100,
        .fetch_max_bytes = 55 << 20,
        .slow_request_ms = it->slow_request_ms,
    };
    pb_native_failure failure = {0};
    CHECK_INT(pb_broker_open(&options, &it->broker, &failure), 0);
    CHECK_STR(pb_broker_backend(it->broker), backend);
}

static SERVING_UNUSED void start_serving(served *it)
{
    pb_native_failure failure = {0};
    pb_api_range apis[] = {{0, 3, 13}, {1, 4, 18}, {3, 0, 13}};
    CHECK_INT(pb_broker_serve_apis(it->broker, apis, 3), 0);
    open_partition(it, 1);
    CHECK_INT(pb_broker_listen(it->broker, "PLAINTEXT", "127.0.0.1", 0, &it->port, &failure), 0);
    CHECK_INT(pb_broker_start(it->broker, &failure), 0);
}

static SERVING_UNUSED void serve_with(served *it, const char *backend, int reactors, const pb_partition_config *config)
{
    memset(it, 0, sizeof *it);
    it->config = *config;
    open_broker(it, backend, reactors);
    start_serving(it);
}

/* With tail rings, up to start_serving. */
static SERVING_UNUSED void prepare_hot(served *it, const char *backend, int32_t durability, int64_t ring_bytes,
                                       int64_t segment_bytes)
{
    memset(it, 0, sizeof *it);
    it->config = default_config();
    it->config.durability = durability;
    it->config.segment_bytes = segment_bytes;
    open_broker(it, backend, 1);
    strcpy(it->rings, "/dev/shm/pb-serving-XXXXXX");
    CHECK(mkdtemp(it->rings) != NULL);
    uint8_t id[16] = {3};
    pb_broker_rings rings = {.directory = it->rings,
                             .session_id = id,
                             .budget_bytes = 2 * ring_bytes,
                             .ring_bytes = ring_bytes,
                             .hot_bytes_per_second = 1 << 20};
    pb_native_failure failure = {0};
    CHECK_INT(pb_broker_use_rings(it->broker, &rings, &failure), 0);
    CHECK_INT(pb_broker_add_log_dir(it->broker, it->directory, id), 0);
}

static SERVING_UNUSED void serve_hot(served *it, const char *backend, int32_t durability, int64_t ring_bytes,
                                     int64_t segment_bytes)
{
    prepare_hot(it, backend, durability, ring_bytes, segment_bytes);
    start_serving(it);
}

/* The next event but for those that tell of a roll; false: there is none now. */
static SERVING_UNUSED bool take_event(const served *it, pb_event *event)
{
    while (pb_broker_take_events(it->broker, event, 1) == 1) {
        if (event->kind != PB_EVENT_NOTICE || event->error != PB_NOTICE_ROLL)
            return true;
        pb_notice_release(event->handle);
    }
    return false;
}

static SERVING_UNUSED void serve(served *it, const char *backend, int reactors)
{
    pb_partition_config config = default_config();
    serve_with(it, backend, reactors, &config);
}

/* After pb_broker_stop. */
static SERVING_UNUSED void end(served *it, int clean)
{
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_resign(it->partition, 0), 0);
    CHECK_INT(pb_partition_close(it->partition, clean, &failure), 0);
    pb_broker_close(it->broker);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", it->directory);
    CHECK_INT(system(command), 0);
}

static SERVING_UNUSED void stop(served *it)
{
    pb_broker_end_requests(it->broker);
    pb_broker_stop(it->broker);
    end(it, 1);
}

static SERVING_UNUSED const pb_produce_response_partition_produce_response *answer_of(
    const pb_produce_response *response)
{
    CHECK_INT(response->responses_count, 1);
    CHECK_INT(response->responses[0].partition_responses_count, 1);
    return &response->responses[0].partition_responses[0];
}

#endif
