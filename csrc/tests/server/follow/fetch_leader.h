/*
 * A rig for tests of a follower. A broker with a fetcher, the real code, runs on the simulated machine. The test plays
 * the leader: it receives and decodes the follower's requests, and answers them as it likes. Header only.
 */
#ifndef PB_TESTS_SERVER_FOLLOW_FETCH_LEADER_H
#define PB_TESTS_SERVER_FOLLOW_FETCH_LEADER_H

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "record/batch.h"
#include "server/follow/fetcher.h"
#include "tests/sim/sim_broker.h"
#include "tests/support/mini_client.h"
#include "wire/generated/fetch_request.h"
#include "wire/generated/kafka_errors.h"
#include "wire/generated/list_offsets_request.h"
#include "wire/generated/request_header.h"
#include "wire/generated/response_header.h"

#define LEADER_UNUSED __attribute__((unused))

enum {
    LEADER_STEPS = 2000000,
    LEADER_FRAME_BYTES = 8 << 20,
    LEADER_PARTITIONS = 3,
    LEADER_SESSION = 77,
    LEADER_EVENTS = 64,
    LEADER_BACKOFF_MS = 50,
    LEADER_TIMEOUT_MS = 20000, /* on the simulated clock, which jumps when nothing happens */
};

typedef struct leader_event {
    int32_t what;
    int64_t offset;
    uint64_t tag;
} leader_event;

typedef struct leader_rig {
    pb_io *io;
    pb_broker *broker;
    pb_fetcher *fetcher;
    pb_partition *partitions[LEADER_PARTITIONS];
    uint64_t tickets[LEADER_PARTITIONS];
    int peer; /* the leader's end of the connection; -1: there is none */
    uint8_t *frame;
    size_t have; /* bytes received in `frame` */
    /* The last request. */
    pb_arena arena;
    pb_request_header header;
    pb_fetch_request fetch;
    pb_list_offsets_request offsets;
    leader_event events[LEADER_EVENTS];
    int event_count;
} leader_rig;

static void leader_log_failed(pb_partition *partition, enum pb_partition_failure what, int error)
{
    (void)partition;
    CHECK(what != PB_READ_FAILED && error < 0);
}

static LEADER_UNUSED pb_partition *leader_open_partition(leader_rig *it, int index, const char *directory,
                                                         bool durable_acks)
{
    pb_partition_rules rules = sim_rules(durable_acks);
    pb_partition *partition =
        pb_partition_create(it->io, "t", sim_topic_id, index, sim_open_log(it->io, directory, 1 << 20, false), &rules);
    partition->owner = it->broker;
    partition->tag = 40 + (uint64_t)index;
    partition->failed = leader_log_failed;
    partition->sync_due = pb_sync_submit;
    partition->pump_due = pb_server_pump;
    return partition;
}

static LEADER_UNUSED void leader_close_partition(pb_partition *partition)
{
    pb_failure failure = {0};
    (void)pb_log_close(pb_partition_take_log(partition), false, &failure);
    pb_partition_release(partition);
}

/* Close a partition, and open another one with the log in `directory` in its place. */
static LEADER_UNUSED void leader_replace_log(leader_rig *it, int index, const char *directory)
{
    leader_close_partition(it->partitions[index]);
    it->partitions[index] = leader_open_partition(it, index, directory, false);
}

static LEADER_UNUSED void leader_open_fetcher(leader_rig *it, int16_t version)
{
    pb_fetcher_settings settings = {
        .leader_id = 3,
        .host = "leader",
        .client_id = "broker-1-fetcher-0",
        .port = 9093,
        .replica_id = 1,
        .fetch_version = version,
        .max_wait_ms = 500,
        .min_bytes = 1,
        .max_bytes = 1 << 20,
        .partition_max_bytes = 1 << 19,
        .backoff_ns = LEADER_BACKOFF_MS * 1000000LL,
        .timeout_ns = LEADER_TIMEOUT_MS * 1000000LL,
    };
    CHECK_INT(pb_fetcher_create(it->broker, &settings, 17, &it->fetcher), 0);
}

static LEADER_UNUSED void leader_start(leader_rig *it, uint64_t seed, bool durable_acks)
{
    memset(it, 0, sizeof *it);
    it->peer = -1;
    it->frame = malloc(LEADER_FRAME_BYTES);
    CHECK(it->frame != NULL);
    pb_arena_init(&it->arena, 1 << 24);
    CHECK_INT(pb_io_sim_open(seed, &it->io), 0);
    CHECK_INT(it->io->ops->directory_make(it->io, "/data"), 0);
    it->broker = sim_make_broker(it->io);
    for (int i = 0; i < LEADER_PARTITIONS; i++) {
        char directory[64];
        snprintf(directory, sizeof directory, "/data/t-%d", i);
        it->partitions[i] = leader_open_partition(it, i, directory, durable_acks);
    }
    pb_failure failure = {0};
    CHECK_INT(pb_broker_run(it->broker, &failure), 0);
    leader_open_fetcher(it, 17);
}

static LEADER_UNUSED void leader_settle(leader_rig *it)
{
    for (int i = 0; i < 4; i++)
        pb_sim_settle(it->io);
}

/* Let `ns` of simulated time pass. */
static LEADER_UNUSED void leader_run(leader_rig *it, int64_t ns)
{
    int64_t until = it->io->ops->monotonic_ns(it->io) + ns;
    for (int step = 0; it->io->ops->monotonic_ns(it->io) < until; step++) {
        CHECK(step < LEADER_STEPS);
        (void)pb_sim_step(it->io);
    }
}

/* Run until the partition has no write, cut or sync under way. A blocking call would otherwise wait for ever, as the
 * test has only one thread. */
static LEADER_UNUSED void leader_quiesce(leader_rig *it, const pb_partition *partition)
{
    for (int step = 0; partition->writing || partition->queued || partition->syncing || partition->readers > 0;
         step++) {
        CHECK(step < LEADER_STEPS);
        (void)pb_sim_step(it->io);
    }
}

/* Run until the fetcher follows with the partition's ticket, or (`follows` false) follows it no more. */
static LEADER_UNUSED void leader_await(leader_rig *it, int index, bool follows)
{
    for (int step = 0;; step++) {
        const pb_followed *followed = pb_followed_find(&it->fetcher->topics, sim_topic_id, index);
        bool has = followed != NULL && followed->step != PB_FOLLOW_GONE;
        if (has == follows && (!has || followed->ticket == it->tickets[index]))
            return;
        CHECK(step < LEADER_STEPS);
        (void)pb_sim_step(it->io);
    }
}

static LEADER_UNUSED void leader_unfollow(leader_rig *it, int index)
{
    leader_quiesce(it, it->partitions[index]);
    pb_partition_stop_following(it->partitions[index]);
    pb_fetcher_drop(it->fetcher, it->partitions[index], it->tickets[index]);
    leader_await(it, index, false);
}

static LEADER_UNUSED void leader_follow(leader_rig *it, int index, int32_t epoch)
{
    leader_quiesce(it, it->partitions[index]);
    it->tickets[index] = pb_partition_start_following(it->partitions[index], epoch);
    CHECK_INT(pb_fetcher_add(it->fetcher, it->partitions[index], it->tickets[index], epoch), 0);
    leader_await(it, index, true);
}

static LEADER_UNUSED void leader_stop(leader_rig *it)
{
    pb_sim_faults none = {0};
    pb_sim_set_faults(it->io, &none);
    pb_fetcher_end(it->fetcher);
    leader_settle(it);
    pb_broker_halt(it->broker);
    for (int i = 0; i < LEADER_PARTITIONS; i++)
        leader_close_partition(it->partitions[i]);
    CHECK_INT(pb_pool_used_bytes(&it->broker->fetched), 0);
    pb_broker_destroy(it->broker);
    pb_arena_free(&it->arena);
    free(it->frame);
}

/* Take the events for Python: those of followers go to `events`, in order. */
static LEADER_UNUSED void leader_take_events(leader_rig *it)
{
    pb_event_node *node;
    while ((node = pb_events_next(&it->broker->events)) != NULL) {
        if (node->kind == PB_NODE_FOLLOWER) {
            CHECK(it->event_count < LEADER_EVENTS);
            it->events[it->event_count++] = (leader_event){node->error, node->offset, node->ticket};
        } else if (node->kind == PB_NODE_NOTICE) {
            pb_events_claim_notice(&it->broker->events, PB_CONTAINER(node, pb_notice, event));
        }
        free(node);
    }
}

/* ---- the leader's end ---- */

/* Accept the follower's connection. */
static LEADER_UNUSED void leader_accept(leader_rig *it)
{
    int port = 0;
    for (int step = 0; (it->peer = pb_sim_next_outgoing(it->io, &port)) < 0; step++) {
        CHECK(step < LEADER_STEPS);
        (void)pb_sim_step(it->io);
    }
    CHECK_INT(port, 9093);
    pb_sim_answer_outgoing(it->io, it->peer, true);
    it->have = 0;
}

/* Receive one whole frame. Returns its size without the size field. -1: the follower has closed the connection. */
static LEADER_UNUSED int64_t leader_frame(leader_rig *it)
{
    for (int step = 0; step < LEADER_STEPS; step++) {
        uint32_t size = 0;
        if (it->have >= sizeof size) {
            memcpy(&size, it->frame, sizeof size);
            size = be32toh(size);
            CHECK(size < LEADER_FRAME_BYTES - sizeof size);
        }
        if (it->have >= sizeof size && it->have == size + sizeof size)
            return size;
        int64_t got = pb_sim_client_receive(it->io, it->peer, it->frame + it->have, LEADER_FRAME_BYTES - it->have);
        if (got < 0)
            return -1;
        it->have += (size_t)got;
        if (got == 0)
            (void)pb_sim_step(it->io);
    }
    CHECK(!"the follower asks for nothing");
    return -1;
}

/* Receive and decode the next request. Accepts a connection if there is none. Returns the request's API key. */
static LEADER_UNUSED int leader_request(leader_rig *it)
{
    if (it->peer < 0)
        leader_accept(it);
    int64_t size = leader_frame(it);
    CHECK(size >= 0);
    pb_arena_reset(&it->arena);
    uint8_t *copy = pb_arena_alloc(&it->arena, (size_t)size);
    CHECK(copy != NULL);
    memcpy(copy, it->frame + sizeof(uint32_t), (size_t)size);
    it->have = 0;
    pb_reader reader = pb_reader_of(copy, (size_t)size);
    CHECK_INT(pb_request_header_read(&reader, 2, &it->arena, &it->header), 0);
    CHECK(pb_slice_equal(it->header.client_id, pb_slice_of_text("broker-1-fetcher-0")));
    if (it->header.request_api_key == PB_API_FETCH)
        CHECK_INT(pb_fetch_request_read(&reader, it->header.request_api_version, &it->arena, &it->fetch), 0);
    else
        CHECK_INT(pb_list_offsets_request_read(&reader, it->header.request_api_version, &it->arena, &it->offsets), 0);
    CHECK_INT(pb_reader_left(&reader), 0);
    return it->header.request_api_key;
}

/* Check that the next request is a Fetch of this follower. */
static LEADER_UNUSED void leader_expect_fetch(leader_rig *it)
{
    CHECK_INT(leader_request(it), PB_API_FETCH);
    CHECK_INT(it->fetch.replica_state.replica_id, 1);
    CHECK_INT(it->fetch.replica_state.replica_epoch, 17);
}

/* The entry of a partition in the last Fetch; NULL: the Fetch does not name it. */
static LEADER_UNUSED const pb_fetch_request_fetch_partition *leader_named(const leader_rig *it, int index)
{
    for (int32_t i = 0; i < it->fetch.topics_count; i++) {
        CHECK_MEM(it->fetch.topics[i].topic_id.bytes, sim_topic_id, sizeof sim_topic_id);
        for (int32_t j = 0; j < it->fetch.topics[i].partitions_count; j++)
            if (it->fetch.topics[i].partitions[j].partition == index)
                return &it->fetch.topics[i].partitions[j];
    }
    return NULL;
}

/* Does the last Fetch remove the partition from the session? */
static LEADER_UNUSED bool leader_forgets(const leader_rig *it, int index)
{
    for (int32_t i = 0; i < it->fetch.forgotten_topics_data_count; i++)
        for (int32_t j = 0; j < it->fetch.forgotten_topics_data[i].partitions_count; j++)
            if (it->fetch.forgotten_topics_data[i].partitions[j] == index)
                return true;
    return false;
}

static LEADER_UNUSED void leader_send(leader_rig *it, pb_writer *writer)
{
    CHECK_INT(writer->error, 0);
    pb_writer_patch_int32(writer, 0, (int32_t)(writer->length - 4));
    pb_sim_client_send(it->io, it->peer, writer->data, writer->length);
    pb_writer_free(writer);
}

static LEADER_UNUSED void leader_begin(leader_rig *it, pb_writer *writer)
{
    pb_writer_init(writer, LEADER_FRAME_BYTES);
    pb_write_int32(writer, 0);
    pb_response_header header = {.correlation_id = it->header.correlation_id};
    CHECK_INT(pb_response_header_write(writer, 1, &header), 0);
}

/* A Fetch answer's entry of a partition without an error and without records. */
static LEADER_UNUSED pb_fetch_response_partition_data leader_data(int index, int64_t high_watermark)
{
    pb_fetch_response_partition_data data;
    pb_fetch_response_partition_data_init(&data);
    data.partition_index = index;
    data.high_watermark = high_watermark;
    data.log_start_offset = 0;
    data.records = PB_EMPTY_SLICE;
    return data;
}

static LEADER_UNUSED void leader_answer_with(leader_rig *it, int16_t error, int32_t session_id,
                                             pb_fetch_response_partition_data *data, int count)
{
    pb_fetch_response_fetchable_topic_response topic;
    pb_fetch_response_fetchable_topic_response_init(&topic);
    memcpy(topic.topic_id.bytes, sim_topic_id, sizeof sim_topic_id);
    topic.partitions = data;
    topic.partitions_count = count;
    pb_fetch_response response;
    pb_fetch_response_init(&response);
    response.error_code = error;
    response.session_id = session_id;
    response.responses = &topic;
    response.responses_count = count > 0;
    pb_writer writer;
    leader_begin(it, &writer);
    CHECK_INT(pb_fetch_response_write(&writer, it->header.request_api_version, &response), 0);
    leader_send(it, &writer);
}

static LEADER_UNUSED void leader_answer(leader_rig *it, pb_fetch_response_partition_data *data, int count)
{
    leader_answer_with(it, 0, LEADER_SESSION, data, count);
}

static LEADER_UNUSED void leader_answer_offset(leader_rig *it, int16_t error, int64_t offset)
{
    const pb_list_offsets_request_list_offsets_topic *asked = &it->offsets.topics[0];
    pb_writer writer;
    leader_begin(it, &writer);
    mini_write_offset(&writer, it->header.request_api_version, asked->name, asked->partitions[0].partition_index, error,
                      offset);
    leader_send(it, &writer);
}

/* Add `count` batches of `records` records each, from `base_offset` on, behind the first `length` bytes of `out`.
 * Returns the new length. */
static LEADER_UNUSED size_t leader_batches(uint8_t *out, size_t length, size_t capacity, int64_t base_offset,
                                           int32_t epoch, int count, int records)
{
    for (int i = 0; i < count; i++) {
        size_t size = mini_batch(out + length, capacity - length, records, 20 + (size_t)i % 7);
        pb_batch_set_base_offset(out + length, base_offset + (int64_t)i * records);
        pb_batch_set_partition_leader_epoch(out + length, epoch);
        length += size;
    }
    return length;
}

static LEADER_UNUSED pb_partition_ends leader_ends(leader_rig *it, int index)
{
    pb_partition_ends ends;
    pb_partition_read_ends(it->partitions[index], &ends);
    return ends;
}

#endif
