/* Cases of base/, io/, net/, wire/ and replica/: what a request costs beside its records. Owns static memory; see
 * cases.h. */
#include <string.h>

#include "base/mailbox.h"
#include "net/pool.h"
#include "net/timers.h"
#include "perf/cases.h"
#include "perf/perf_fixture.h"
#include "replica/fetch_session.h"
#include "replica/registry.h"
#include "wire/generated/fetch_request.h"
#include "wire/generated/fetch_response.h"
#include "wire/generated/produce_request.h"

enum {
    PARTITIONS = 10, /* of a request */
    TOPICS = 100,    /* of the registry */
    TIMERS = 1000,
    NODES = 16,
    PRODUCE_VERSION = 13,
    FETCH_VERSION = 17,
    ARENA_BYTES = 1 << 20,
    RECORDS_BYTES = 1024,
};

static pb_arena arena;
static pb_writer frame;
static pb_writer answer;

static void open_wire(void)
{
    pb_arena_init(&arena, ARENA_BYTES);
    pb_writer_init(&frame, ARENA_BYTES);
    pb_writer_init(&answer, ARENA_BYTES);
}

static void close_wire(void)
{
    pb_writer_free(&frame);
    pb_writer_free(&answer);
    pb_arena_free(&arena);
}

/* ---- requests and responses ---- */

static void open_produce_request(void)
{
    static const uint8_t records[RECORDS_BYTES];
    pb_produce_request_partition_produce_data partitions[PARTITIONS];
    pb_produce_request_topic_produce_data topic;
    pb_produce_request request;
    open_wire();
    for (int i = 0; i < PARTITIONS; i++) {
        pb_produce_request_partition_produce_data_init(&partitions[i]);
        partitions[i].index = i;
        partitions[i].records = (pb_slice){records, RECORDS_BYTES};
    }
    pb_produce_request_topic_produce_data_init(&topic);
    topic.topic_id.bytes[0] = 1;
    topic.partition_data = partitions;
    topic.partition_data_count = PARTITIONS;
    pb_produce_request_init(&request);
    request.acks = -1;
    request.topic_data = &topic;
    request.topic_data_count = 1;
    PERF_MUST(pb_produce_request_write(&frame, PRODUCE_VERSION, &request) == 0);
}

static void run_produce_request_read(uint64_t calls)
{
    pb_produce_request request;
    for (uint64_t i = 0; i < calls; i++) {
        pb_reader reader = pb_reader_of(frame.data, frame.length);
        PERF_MUST(pb_produce_request_read(&reader, PRODUCE_VERSION, &arena, &request) == 0);
        pb_arena_reset(&arena);
    }
}

static void open_fetch_request(void)
{
    pb_fetch_request_fetch_partition partitions[PARTITIONS];
    pb_fetch_request_fetch_topic topic;
    pb_fetch_request request;
    open_wire();
    for (int i = 0; i < PARTITIONS; i++) {
        pb_fetch_request_fetch_partition_init(&partitions[i]);
        partitions[i].partition = i;
        partitions[i].fetch_offset = 1000 * i;
        partitions[i].partition_max_bytes = 1 << 20;
    }
    pb_fetch_request_fetch_topic_init(&topic);
    topic.topic_id.bytes[0] = 1;
    topic.partitions = partitions;
    topic.partitions_count = PARTITIONS;
    pb_fetch_request_init(&request);
    request.topics = &topic;
    request.topics_count = 1;
    request.session_epoch = PB_FETCH_INITIAL_EPOCH;
    PERF_MUST(pb_fetch_request_write(&frame, FETCH_VERSION, &request) == 0);
}

static void read_fetch_request(pb_fetch_request *request)
{
    pb_reader reader = pb_reader_of(frame.data, frame.length);
    PERF_MUST(pb_fetch_request_read(&reader, FETCH_VERSION, &arena, request) == 0);
}

static void run_fetch_request_read(uint64_t calls)
{
    pb_fetch_request request;
    for (uint64_t i = 0; i < calls; i++) {
        read_fetch_request(&request);
        pb_arena_reset(&arena);
    }
}

static void run_fetch_response_write(uint64_t calls)
{
    pb_fetch_response_partition_data partitions[PARTITIONS];
    pb_fetch_response_fetchable_topic_response topic;
    pb_fetch_response response;
    for (int i = 0; i < PARTITIONS; i++) {
        pb_fetch_response_partition_data_init(&partitions[i]);
        partitions[i].partition_index = i;
        partitions[i].records = (pb_slice){NULL, RECORDS_BYTES}; /* they leave by sendfile */
    }
    pb_fetch_response_fetchable_topic_response_init(&topic);
    topic.topic_id.bytes[0] = 1;
    topic.partitions = partitions;
    topic.partitions_count = PARTITIONS;
    pb_fetch_response_init(&response);
    response.responses = &topic;
    response.responses_count = 1;
    for (uint64_t i = 0; i < calls; i++) {
        pb_writer_reset(&answer);
        PERF_MUST(pb_fetch_response_write(&answer, FETCH_VERSION, &response) == 0);
    }
}

/* ---- fetch sessions: an incremental fetch of ten partitions of which nothing has changed ---- */

static pb_fetch_sessions sessions;
static int32_t session_id;
static int32_t session_epoch;

static void open_session(void)
{
    pb_fetch_request request;
    pb_fetch_session *session;
    bool full;
    open_fetch_request();
    PERF_MUST(pb_fetch_sessions_init(&sessions, 100, 1) == 0);
    read_fetch_request(&request);
    PERF_MUST(pb_fetch_session_begin(&sessions, &request, FETCH_VERSION, 1, &session, &full) == 0 && session != NULL);
    session_id = session->id;
    session_epoch = 1;
    pb_fetch_session_end(&sessions, session);
}

static void run_fetch_session(uint64_t calls)
{
    pb_fetch_request request;
    pb_fetch_session *session;
    bool full;
    for (uint64_t i = 0; i < calls; i++) {
        pb_fetch_request_init(&request);
        request.session_id = session_id;
        request.session_epoch = session_epoch++;
        PERF_MUST(pb_fetch_session_begin(&sessions, &request, FETCH_VERSION, 1, &session, &full) == 0 && !full);
        for (pb_link *link = session->partitions.next; link != &session->partitions; link = link->next) {
            pb_session_partition *partition = PB_CONTAINER(link, pb_session_partition, link);
            PERF_KEEP(pb_session_partition_changed(session, partition, false, 0, 1000, 0));
        }
        pb_fetch_session_end(&sessions, session);
    }
}

static void close_session(void)
{
    pb_fetch_sessions_destroy(&sessions);
    close_wire();
}

/* ---- the registry ---- */

static pb_registry registry;
static pb_partition *partitions_of_topics[TOPICS];
static pb_io *io;

static void topic_id(uint8_t id[16], int topic)
{
    memset(id, 0, 16);
    memcpy(id, &topic, sizeof(topic));
    id[15] = 1;
}

static void open_registry(void)
{
    static const pb_partition_rules RULES = {.validation = {.max_message_bytes = 1 << 20}};
    io = open_io();
    PERF_MUST(pb_registry_init(&registry) == 0);
    for (int topic = 0; topic < TOPICS; topic++) {
        char name[32];
        uint8_t id[16];
        snprintf(name, sizeof(name), "topic-%d", topic);
        topic_id(id, topic);
        pb_partition *partition = pb_partition_create(io, name, id, 0, NULL, &RULES);
        PERF_MUST(partition != NULL && pb_registry_add(&registry, partition) == 0);
        partitions_of_topics[topic] = partition;
    }
}

static void run_registry_by_id(uint64_t calls)
{
    uint8_t id[16];
    bool known;
    for (uint64_t i = 0; i < calls; i++) {
        topic_id(id, (int)(i % TOPICS));
        pb_partition *partition = pb_registry_by_id(&registry, id, 0, &known);
        PERF_MUST(partition != NULL);
        pb_partition_release(partition);
    }
}

static void close_registry(void)
{
    for (int topic = 0; topic < TOPICS; topic++) {
        pb_registry_remove(&registry, partitions_of_topics[topic]);
        pb_partition_release(partitions_of_topics[topic]);
    }
    pb_registry_destroy(&registry);
    io->ops->close(io);
}

/* ---- threads: the mailbox, the doorbell, buffers, timers ---- */

static void run_mailbox(uint64_t calls)
{
    static pb_node nodes[NODES];
    pb_mailbox mailbox;
    pb_mailbox_init(&mailbox);
    for (uint64_t i = 0; i < calls; i++) {
        for (int node = 0; node < NODES; node++)
            pb_mailbox_put(&mailbox, &nodes[node]);
        PERF_MUST(pb_mailbox_take(&mailbox) == &nodes[0]);
    }
}

static pb_loop *loop;

static void open_doorbell(void)
{
    pb_failure failure;
    io = open_io();
    must(io->ops->loop_open(io, &loop, &failure), &failure);
}

/* Wake a loop, and have it find out. */
static void run_doorbell(uint64_t calls)
{
    for (uint64_t i = 0; i < calls; i++) {
        io->ops->loop_wake(loop);
        PERF_KEEP(io->ops->loop_turn(loop, PB_IO_FOREVER));
    }
}

static void close_doorbell(void)
{
    io->ops->loop_close(loop);
    io->ops->close(io);
}

static pb_pool pool;

static void open_pool(void)
{
    pb_pool_init(&pool, 64 << 20);
}

static void run_pool(uint64_t calls)
{
    for (uint64_t i = 0; i < calls; i++) {
        pb_chunk *chunk = pb_pool_take(&pool, PB_CHUNK_UNIT_BYTES, false);
        PERF_MUST(chunk != NULL);
        pb_chunk_release(chunk);
    }
}

static void close_pool(void)
{
    pb_pool_destroy(&pool);
}

static pb_timers timers;
static pb_timer timer[TIMERS];

static void never(pb_timer *fired)
{
    (void)fired;
}

static void open_timers(void)
{
    pb_timers_init(&timers);
    memset(timer, 0, sizeof(timer));
    for (int i = 0; i < TIMERS; i++) {
        timer[i].fire = never;
        PERF_MUST(pb_timer_set(&timers, &timer[i], (i * 7919) % TIMERS) == 0);
    }
}

/* A deadline moves behind all others, as a connection's does with each request. */
static void run_timer_set(uint64_t calls)
{
    static int64_t deadline = TIMERS;
    for (uint64_t i = 0; i < calls; i++)
        PERF_MUST(pb_timer_set(&timers, &timer[i * 31 % TIMERS], deadline++) == 0);
}

static void close_timers(void)
{
    for (int i = 0; i < TIMERS; i++)
        pb_timer_cancel(&timers, &timer[i]);
    pb_timers_destroy(&timers);
}

const perf_case PERF_SERVER_CASES[] = {
    {"produce_request_read", open_produce_request, run_produce_request_read, close_wire, 0, false},
    {"fetch_request_read", open_fetch_request, run_fetch_request_read, close_wire, 0, false},
    {"fetch_response_write", open_wire, run_fetch_response_write, close_wire, 0, false},
    {"fetch_session", open_session, run_fetch_session, close_session, 0, false},
    {"registry_by_id", open_registry, run_registry_by_id, close_registry, 0, false},
    {"mailbox", NULL, run_mailbox, NULL, 0, false},
    {"doorbell", open_doorbell, run_doorbell, close_doorbell, 0, false},
    {"pool", open_pool, run_pool, close_pool, 0, false},
    {"timer_set", open_timers, run_timer_set, close_timers, 0, false},
    {0},
};
