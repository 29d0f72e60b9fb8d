/*
 * libFuzzer target for a whole connection: the bytes go into the simulated machine's socket of a broker with one
 * partition, which has followers or not. Every request is answered or the connection is closed, memory stays within the
 * budget, and nothing is left when it stops. The first byte is the seed of the schedule; a record 0xff 0xfe in the
 * bytes cuts them into separate arrivals.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "io/sim/sim.h"
#include "server/broker.h"
#include "server/produce/verify.h"
#include "server/slow_path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BUDGET_BYTES = 1 << 20, STEPS_PER_ARRIVAL = 200, STEP_LIMIT = 200000 };

typedef struct world {
    pb_io *io;
    pb_broker *broker;
    pb_partition *partition;
    int client;
    bool closed;
} world;

static void on_failure(pb_partition *partition, enum pb_partition_failure what, int error)
{
    (void)partition;
    (void)what;
    (void)error;
}

static void on_caught_up(pb_partition *partition, int32_t replica_id)
{
    (void)partition;
    (void)replica_id;
}

/* With followers 2, in sync, and 3, which is not. */
static void lead_replicas(pb_partition *partition)
{
    static const int32_t replicas[] = {1, 2, 3};
    pb_leadership leadership = {
        .leader_epoch = 0, .replicas = replicas, .isr = replicas, .replica_count = 3, .isr_count = 2};
    int result = pb_partition_start_leading_replicas(partition, 1, &leadership);
    PB_ASSERT(result == 0);
}

static void open_partition(world *it, bool has_followers)
{
    static const uint8_t id[16] = {9};
    pb_log_options options = {.io = it->io,
                              .directory = "/t-0",
                              .topic_id = id,
                              .clean = true,
                              .log_start_offset = -1,
                              .config = {.segment_bytes = 8192,
                                         .segment_ms = INT64_MAX,
                                         .segment_index_bytes = 1 << 16,
                                         .index_interval_bytes = 512,
                                         .producer_expiration_ms = 86400000,
                                         .flush_messages = INT64_MAX,
                                         .flush_ms = INT64_MAX}};
    pb_log *log = NULL;
    pb_log_recovery recovery;
    pb_failure failure = {0};
    int result = pb_log_open(&options, &log, &recovery, &failure);
    PB_ASSERT(result == 0);
    pb_partition_rules rules = {.validation = {.max_message_bytes = 1 << 16,
                                               .timestamp_before_max_ms = INT64_MAX,
                                               .timestamp_after_max_ms = INT64_MAX,
                                               .target_compression = PB_TARGET_COMPRESSION_PRODUCER},
                                .transactions = has_followers ? PB_TRANSACTIONS_TRUSTED : PB_TRANSACTIONS_VERIFIED};
    it->partition = pb_partition_create(it->io, "t", id, 0, log, &rules);
    PB_ASSERT(it->partition != NULL);
    it->partition->failed = on_failure;
    it->partition->caught_up = on_caught_up;
    if (has_followers)
        lead_replicas(it->partition);
    else
        pb_partition_start_leading(it->partition, 0);
    result = pb_registry_add(&it->broker->registry, it->partition);
    PB_ASSERT(result == 0);
}

static void start(world *it, uint8_t seed)
{
    pb_broker_settings settings = {.node_id = 1,
                                   .reactor_count = 1,
                                   .buffer_budget_bytes = BUDGET_BYTES,
                                   .max_request_bytes = 1 << 20,
                                   .max_connections = 10,
                                   .idle_close_ns = 5000000000,
                                   .fetch_session_slots = 4,
                                   .fetch_max_bytes = 1 << 20};
    pb_failure failure = {0};
    memset(it, 0, sizeof *it);
    int result = pb_io_sim_open(seed, &it->io);
    PB_ASSERT(result == 0);
    result = pb_broker_create(it->io, &settings, &it->broker, &failure);
    PB_ASSERT(result == 0);
    for (int16_t key = 0; key < PB_API_KEYS; key++) {
        const pb_api_info *api = pb_api_find(key);
        if (api != NULL && api->max_version >= api->min_version)
            (void)pb_broker_set_apis(it->broker, key, api->min_version, api->max_version);
    }
    open_partition(it, seed % 16 >= 8);
    int port = 0;
    result = pb_broker_add_listener(it->broker, "SIM", "", 0, &port, &failure);
    PB_ASSERT(result == 0);
    result = pb_broker_run(it->broker, &failure);
    PB_ASSERT(result == 0);
    it->client = pb_sim_connect(it->io, port);
    if (seed % 4 == 1)
        pb_sim_set_faults(it->io, &(pb_sim_faults){.short_io = 300000, .delayed_write = 300000});
}

/* Vouch for every second producer. */
static void verify(pb_request *request)
{
    const pb_produce_verification *asked = pb_produce_verification_of(request);
    int16_t errors[4] = {0};
    for (int32_t i = 0; i < asked->count; i++) /* all of it can be read */
        errors[i % 4] = asked->producer_id % 2 == 0 ? 0 : (int16_t)strlen(asked->partitions[i].topic);
    pb_produce_verified(request, errors, asked->count < 4 ? asked->count : 4);
}

/* Python's part: answer every request, close for every fifth. */
static void serve_slow_path(world *it)
{
    pb_event_node *node;
    while ((node = pb_events_next(&it->broker->events)) != NULL) {
        if (node->kind == PB_NODE_REQUEST) {
            pb_request *request = PB_CONTAINER(node, pb_request, event);
            uint8_t *body = request->body_length % 5 == 4 ? NULL : calloc(1, 8);
            for (uint32_t i = 0; i < request->body_length; i++) /* all of it can be read */
                if (body != NULL)
                    body[0] ^= request->body[i];
            pb_slow_path_answer(request, body, body != NULL ? 8 : 0, body == NULL);
        } else if (node->kind == PB_NODE_VERIFY) {
            verify(PB_CONTAINER(node, pb_request, event));
        } else if (node->kind == PB_NODE_NOTICE) {
            pb_notice *notice = PB_CONTAINER(node, pb_notice, event);
            pb_events_claim_notice(&it->broker->events, notice);
            pb_notice_free(notice);
        } else {
            free(node);
        }
    }
}

static void run(world *it, int steps)
{
    uint8_t answers[4096];
    for (int i = 0; i < steps && !it->closed; i++) {
        (void)pb_sim_step(it->io);
        serve_slow_path(it);
        int64_t got;
        while ((got = pb_sim_client_receive(it->io, it->client, answers, sizeof answers)) > 0)
            ;
        it->closed = got < 0;
        PB_ASSERT(pb_pool_used_bytes(&it->broker->pool) <= 3 * BUDGET_BYTES); /* the budget, and one overdraft */
    }
}

static void stop(world *it)
{
    pb_failure failure = {0};
    pb_sim_client_close(it->io, it->client);
    for (int i = 0; atomic_load(&it->broker->connections) > 0; i++) {
        PB_ASSERT(i < STEP_LIMIT);
        (void)pb_sim_step(it->io);
        serve_slow_path(it);
    }
    pb_broker_halt(it->broker);
    serve_slow_path(it);
    pb_registry_remove(&it->broker->registry, it->partition);
    pb_partition_stop_leading(it->partition, 0);
    int result = pb_log_close(it->partition->log, true, &failure);
    PB_ASSERT(result == 0);
    it->partition->log = NULL;
    pb_partition_release(it->partition);
    pb_broker_destroy(it->broker);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static world it;
    if (size < 1)
        return 0;
    start(&it, data[0]);
    size_t from = 1;
    for (size_t at = 1; at < size; at++)
        if (at + 1 < size && data[at] == 0xff && data[at + 1] == 0xfe) {
            pb_sim_client_send(it.io, it.client, data + from, at - from);
            run(&it, STEPS_PER_ARRIVAL);
            from = at + 2;
        }
    if (from < size)
        pb_sim_client_send(it.io, it.client, data + from, size - from);
    run(&it, STEPS_PER_ARRIVAL);
    stop(&it);
    return 0;
}
