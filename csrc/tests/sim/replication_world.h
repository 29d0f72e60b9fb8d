/*
 * Three brokers of the real code, each on a simulated machine of its own, with one partition that all of them have; a
 * network between them that delays and cuts; a controller of a few lines that elects from the ISR; and a producer with
 * acks=all. Everything from a seed. Header only.
 *
 * What holds (KIP-101, KIP-279, KIP-966): a new leader has all that was acknowledged; nothing below a high watermark is
 * cut; in the end all logs are the same, and have what was acknowledged where it was acknowledged. In half of the
 * worlds two replicas have to be in sync: then whoever leaves fewer behind may lead yet, when nobody in sync can.
 *
 * With world_deletes leaders are asked to delete records, up to any offset, inside of batches too; and a broker that
 * comes back, and is not needed, may have lost its disk, so that it begins where its leader's log does.
 */
#ifndef PB_TESTS_REPLICATION_WORLD_H
#define PB_TESTS_REPLICATION_WORLD_H

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "record/batch.h"
#include "server/follow/fetcher.h"
#include "server/slow_path.h"
#include "tests/sim/sim_broker.h"
#include "tests/support/mini_client.h"
#include "wire/generated/kafka_errors.h"
#include "wire/generated/list_offsets_request.h"

#define WORLD_UNUSED __attribute__((unused))

enum {
    NODES = 3,
    WIRES = 512,
    BATCHES = 400,
    OFFSETS = 4 * BATCHES,
    QUIET_STEPS = 400000,
    HEAL_STEPS = 1200000,
    LAST_ROUNDS = 10,
    PORT_BASE = 9000,
    BYTES = 1 << 16,
};

/* One broker. `told_…`: what it was told last, which may be behind what the controller has decided. */
typedef struct node {
    int id;
    pb_io *io;
    pb_broker *broker; /* NULL: it is down */
    pb_partition *partition;
    pb_fetcher *fetcher;
    uint64_t ticket;
    int port;
    int lives;
    int told_leader;
    int32_t told_epoch;
    int32_t told_partition_epoch;
    int64_t saved_watermark;
    int64_t saved_start;
    int disks;
    bool restarted; /* its log has begun anew, and it has not been told anything since */
} node;

/* A connection between two brokers, or of the producer. Ends by closing both. */
typedef struct wire {
    node *from; /* NULL: unused */
    node *to;
    int from_client;
    int to_client;
    int from_life;
    int to_life;
} wire;

typedef struct sent {
    int64_t offset; /* < 0: not acknowledged */
    uint32_t crc;
} sent;

typedef struct world {
    uint64_t random;
    node nodes[NODES];
    wire wires[WIRES];
    /* The controller. */
    int leader; /* index; -1: none */
    int32_t epoch;
    int32_t partition_epoch;
    uint32_t isr; /* bits of indexes */
    uint32_t elr; /* out of the ISR, with all below the high watermark, for it stands still */
    int minimum;  /* of replicas in sync */
    /* The producer. */
    sent batches[BATCHES];
    int sent_count;
    int acked_count;
    bool waits;
    node *producer_node;
    int producer_client;
    int producer_life;
    uint8_t answer[BYTES];
    size_t answer_bytes;
    bool durable;
    bool calm;              /* no more faults */
    int64_t deleted_offset; /* what lies below was deleted by somebody */
    int elections;
    int crashes;
    int inside; /* logs that began inside of a batch */
} world;

static uint8_t world_bytes[BYTES];

/* A minimum that leaders take for the one that the controller has; 0: they know it. */
static int world_mistaken_minimum;

static bool world_deletes;

static uint64_t chance(world *it, uint64_t range)
{
    uint64_t z = (it->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % range;
}

/* ---- brokers ---- */

static void world_log_failed(pb_partition *partition, enum pb_partition_failure what, int error)
{
    (void)partition;
    CHECK(what == PB_SYNC_FAILED && error == 0); /* no disk fails here */
}

/* Who has caught up is looked up among the followers. */
static void world_caught_up(pb_partition *partition, int32_t replica_id)
{
    (void)partition;
    (void)replica_id;
}

static pb_log *open_log(node *one)
{
    char directory[32];
    snprintf(directory, sizeof directory, "/data/t-%d", one->disks);
    pb_log_options options = sim_log_options(one->io, directory, 8192, false);
    options.log_start_offset = one->saved_start;
    return sim_open(&options);
}

static void boot(world *it, node *one)
{
    pb_failure failure = {0};
    pb_broker_settings settings = {.node_id = one->id,
                                   .reactor_count = 1,
                                   .buffer_budget_bytes = 8 << 20,
                                   .max_request_bytes = 1 << 20,
                                   .max_connections = 1000,
                                   .fetch_session_slots = 10,
                                   .fetch_max_bytes = 1 << 20};
    CHECK_INT(pb_broker_create(one->io, &settings, &one->broker, &failure), 0);
    CHECK_INT(pb_broker_set_apis(one->broker, PB_API_PRODUCE, 3, 13), 0);
    CHECK_INT(pb_broker_set_apis(one->broker, PB_API_FETCH, 4, 18), 0);
    CHECK_INT(pb_broker_set_apis(one->broker, PB_API_LIST_OFFSETS, 1, 11), 0);
    pb_partition_rules rules = sim_rules(it->durable);
    rules.min_insync_replicas = world_mistaken_minimum != 0 ? world_mistaken_minimum : it->minimum;
    pb_log *log = open_log(one);
    if (it->durable)
        CHECK_INT(pb_log_sync(log, NULL, &failure), 0); /* as opening does: what recovery has found may be lost yet */
    one->partition = pb_partition_create(one->io, "t", sim_topic_id, 0, log, &rules);
    one->partition->owner = one->broker;
    one->partition->failed = world_log_failed;
    one->partition->caught_up = world_caught_up;
    one->partition->sync_due = pb_sync_submit;
    one->partition->pump_due = pb_server_pump;
    if (one->partition->high_watermark > one->saved_watermark)
        one->partition->high_watermark = one->saved_watermark;
    CHECK_INT(pb_broker_add_listener(one->broker, "SIM", "", 0, &one->port, &failure), 0);
    CHECK_INT(pb_broker_run(one->broker, &failure), 0);
    one->fetcher = NULL;
    one->told_leader = -1;
    one->told_epoch = -1;
    one->told_partition_epoch = -1;
    one->lives++;
}

static void unplug(world *it, const node *one)
{
    for (int i = 0; i < WIRES; i++) {
        wire *each = &it->wires[i];
        if (each->from == NULL || (each->from != one && each->to != one))
            continue;
        if (each->from != one && each->from->lives == each->from_life && each->from->broker != NULL)
            pb_sim_client_close(each->from->io, each->from_client);
        if (each->to != one && each->to->lives == each->to_life && each->to->broker != NULL)
            pb_sim_client_close(each->to->io, each->to_client);
        each->from = NULL;
    }
}

/* ListOffsets of a follower, for Python. */
static void answer_offsets(const node *one, pb_request *request)
{
    pb_arena arena;
    pb_arena_init(&arena, 1 << 16);
    pb_reader reader = pb_reader_of(request->body, request->body_length);
    pb_list_offsets_request asked;
    CHECK_INT(pb_list_offsets_request_read(&reader, request->header.request_api_version, &arena, &asked), 0);
    const pb_list_offsets_request_list_offsets_partition *which = &asked.topics[0].partitions[0];
    pb_partition_ends ends;
    pb_partition_read_ends(one->partition, &ends);
    bool leads = one->partition->serving && which->current_leader_epoch == ends.leader_epoch;
    int16_t error = leads ? 0 : PB_KAFKA_NOT_LEADER_OR_FOLLOWER;
    int64_t offset = which->timestamp == -2 ? ends.log_start_offset : ends.log_end_offset;
    pb_writer writer;
    pb_writer_init(&writer, 1 << 16);
    mini_write_offset(&writer, request->header.request_api_version, asked.topics[0].name, which->partition_index, error,
                      offset);
    pb_slow_path_answer(request, writer.data, writer.length, false); /* takes the bytes over */
    pb_arena_free(&arena);
}

/* A connection ends when what it has asked is answered; what has come here may yet be looked at. */
static void answer_last(const node *one)
{
    for (int round = 0; round < LAST_ROUNDS; round++) {
        pb_event_node *event;
        pb_sim_settle(one->io);
        while ((event = pb_events_next(&one->broker->events)) != NULL)
            if (event->kind == PB_NODE_REQUEST)
                answer_offsets(one, PB_CONTAINER(event, pb_request, event));
            else
                free(event);
    }
}

/* Take the instance down; what it still does reaches no disk that anybody looks at. */
static void take_down(node *one)
{
    if (one->fetcher != NULL)
        pb_fetcher_end(one->fetcher);
    one->fetcher = NULL;
    answer_last(one);
    pb_broker_halt(one->broker);
    pb_registry_remove(&one->broker->registry, one->partition);
    one->partition->queued = false; /* its reactors have ended */
    one->partition->refusal = PB_KAFKA_NOT_LEADER_OR_FOLLOWER;
    pb_failure failure = {0};
    pb_log *log = pb_partition_take_log(one->partition);
    (void)pb_log_close(log, false, &failure);
    pb_event_node *event;
    while ((event = pb_events_next(&one->broker->events)) != NULL)
        if (event->kind != PB_NODE_REQUEST)
            free(event);
    pb_partition_release(one->partition);
    one->partition = NULL;
}

static bool is_idle(const node *one)
{
    const pb_partition *partition = one->partition;
    return !partition->writing && !partition->queued && !partition->syncing && partition->readers == 0;
}

/* Until nothing is under way that a blocking call would wait for. */
static void quiesce(const node *one)
{
    for (int step = 0; !is_idle(one); step++) {
        CHECK(step < QUIET_STEPS);
        (void)pb_sim_step(one->io);
    }
}

/* ---- the controller ---- */

static void stop_following(node *one)
{
    quiesce(one);
    pb_partition_stop_following(one->partition);
    if (one->fetcher != NULL) {
        pb_fetcher_drop(one->fetcher, one->partition, one->ticket);
        pb_fetcher_end(one->fetcher);
    }
    one->fetcher = NULL;
}

static void tell_leader(world *it, node *one)
{
    int32_t replicas[NODES], isr[NODES], isr_count = 0;
    for (int i = 0; i < NODES; i++) {
        replicas[i] = it->nodes[i].id;
        if ((it->isr >> i & 1) != 0)
            isr[isr_count++] = it->nodes[i].id;
    }
    pb_leadership leadership = {.leader_epoch = it->epoch,
                                .partition_epoch = it->partition_epoch,
                                .replicas = replicas,
                                .isr = isr,
                                .replica_count = NODES,
                                .isr_count = isr_count};
    if (one->told_epoch != it->epoch) {
        stop_following(one);
        /* What was acknowledged is here, or it should not have been elected. */
        pb_partition_ends ends;
        pb_partition_read_ends(one->partition, &ends);
        for (int i = 0; i < it->sent_count; i++)
            CHECK(it->batches[i].offset < ends.log_end_offset);
    }
    CHECK_INT(pb_partition_start_leading_replicas(one->partition, one->id, &leadership), 0);
    CHECK_INT(pb_registry_add(&one->broker->registry, one->partition), 0);
}

/* Where disks are lost, what a follower had in a life before says nothing (KIP-903). */
static int64_t broker_epoch(const node *one)
{
    return world_deletes ? one->lives : -1;
}

static void tell_follower(world *it, node *one)
{
    if (one->told_epoch == it->epoch)
        return;
    stop_following(one);
    pb_fetcher_settings settings = {
        .leader_id = it->nodes[it->leader].id,
        .host = "node",
        .port = PORT_BASE + it->leader,
        .replica_id = one->id,
        .fetch_version = (int16_t)(17 + chance(it, 2)),
        .max_wait_ms = 20,
        .min_bytes = 1,
        .max_bytes = (int32_t)(2000 + chance(it, 8000)),
        .partition_max_bytes = (int32_t)(500 + chance(it, 8000)),
        .backoff_ns = 20000000,
        .timeout_ns = 100000000000, /* clocks jump while machines wait for the network */
    };
    CHECK_INT(pb_fetcher_create(one->broker, &settings, broker_epoch(one), &one->fetcher), 0);
    one->ticket = pb_partition_start_following(one->partition, it->epoch);
    CHECK_INT(pb_registry_add(&one->broker->registry, one->partition), 0);
    CHECK_INT(pb_fetcher_add(one->fetcher, one->partition, one->ticket, it->epoch), 0);
}

/* Have a broker hear of what the controller has decided. */
static void tell(world *it, node *one)
{
    if (one->broker == NULL || it->leader < 0 || one->told_partition_epoch == it->partition_epoch)
        return;
    if (&it->nodes[it->leader] == one)
        tell_leader(it, one);
    else
        tell_follower(it, one);
    one->told_leader = it->leader;
    one->told_epoch = it->epoch;
    one->told_partition_epoch = it->partition_epoch;
}

static bool is_below_minimum(const world *it)
{
    return __builtin_popcount(it->isr) < it->minimum;
}

/* It may still lead, if the high watermark stands still without it. */
static void leave_isr(world *it, int index)
{
    it->isr &= ~(1u << index);
    if (is_below_minimum(it))
        it->elr |= 1u << index;
    it->partition_epoch++;
}

static void join_isr(world *it, int index)
{
    it->isr |= 1u << index;
    it->elr = is_below_minimum(it) ? it->elr & ~(1u << index) : 0;
    it->partition_epoch++;
}

static void elect(world *it, int leader)
{
    if (leader >= 0 && (it->isr >> leader & 1) == 0)
        join_isr(it, leader); /* from those that may yet */
    it->leader = leader;
    it->epoch++;
    it->partition_epoch++;
    it->elections++;
}

/* Somebody who may lead and is up, from a chosen place on; -1: nobody. */
static int find_eligible(world *it)
{
    int first = (int)chance(it, NODES), found = -1;
    for (int i = 0; i < NODES; i++) {
        int index = (first + i) % NODES;
        if (it->nodes[index].broker == NULL)
            continue;
        if ((it->isr >> index & 1) != 0)
            return index;
        if ((it->elr >> index & 1) != 0)
            found = index;
    }
    return found;
}

/* Who comes back from a crash may lack what it had, and may lead only if nobody else may. */
static void come_back(world *it, node *one)
{
    uint32_t others = ~(1u << (one->id - 1));
    if ((it->isr | (it->elr & others)) != 0)
        it->elr &= others;
    if (world_deletes && ((it->isr | it->elr) & ~others) == 0 && chance(it, 2) == 0) {
        one->disks++;
        one->saved_watermark = 0;
        one->saved_start = -1;
    }
    boot(it, one);
}

/* The leader proposes whom it knows to have caught up; the controller takes it, and the leader hears of that later. */
static void expand_isr(world *it)
{
    node *leader = it->leader >= 0 ? &it->nodes[it->leader] : NULL;
    if (leader == NULL || leader->broker == NULL || leader->told_partition_epoch != it->partition_epoch)
        return;
    pb_follower_view seen[NODES];
    int32_t count = pb_partition_read_followers(leader->partition, seen, NODES);
    for (int32_t i = 0; i < count; i++) {
        int index = seen[i].replica_id - 1;
        if (seen[i].in_isr || it->nodes[index].broker == NULL || seen[i].log_end_offset < 0 ||
            seen[i].broker_epoch != broker_epoch(&it->nodes[index]))
            continue;
        int32_t replicas[NODES], isr[NODES], joining = seen[i].replica_id, isr_count = 0;
        for (int k = 0; k < NODES; k++) {
            replicas[k] = it->nodes[k].id;
            if ((it->isr >> k & 1) != 0)
                isr[isr_count++] = it->nodes[k].id;
        }
        pb_leadership leadership = {.leader_epoch = it->epoch,
                                    .partition_epoch = it->partition_epoch,
                                    .replicas = replicas,
                                    .isr = isr,
                                    .joining = &joining,
                                    .replica_count = NODES,
                                    .isr_count = isr_count,
                                    .joining_count = 1};
        int result = pb_partition_start_leading_replicas(leader->partition, leader->id, &leadership);
        CHECK(result == 0 || result == PB_KAFKA_INELIGIBLE_REPLICA);
        if (result != 0)
            continue;
        join_isr(it, index);
        return; /* one in flight */
    }
}

/* ---- faults ---- */

static void crash(world *it, node *one)
{
    int index = one->id - 1;
    bool power = it->durable && chance(it, 2) == 0;
    pb_io *after = NULL;
    pb_partition_ends ends;
    pb_partition_read_ends(one->partition, &ends);
    if (chance(it, 2) == 0) {
        one->saved_watermark = ends.high_watermark;
        one->saved_start = world_deletes ? ends.log_start_offset : -1;
    }
    CHECK_INT(pb_sim_crash(one->io, power ? PB_SIM_POWER_CUT : PB_SIM_KILL, chance(it, UINT32_MAX), &after), 0);
    unplug(it, one);
    if (it->producer_node == one)
        it->producer_node = NULL;
    take_down(one);
    pb_broker_destroy(one->broker);
    one->broker = NULL;
    one->io = after;
    it->crashes++;
    /* Where one is enough, the last of the ISR stays in it. */
    if ((it->isr >> index & 1) != 0 && (it->minimum > 1 || it->isr != 1u << index))
        leave_isr(it, index);
    if (it->leader == index)
        elect(it, find_eligible(it));
}

static void shrink_isr(world *it)
{
    int index = (int)chance(it, NODES);
    if (it->leader < 0 || index == it->leader || (it->isr >> index & 1) == 0 ||
        it->nodes[it->leader].told_partition_epoch != it->partition_epoch)
        return;
    leave_isr(it, index);
}

static void delete_records(world *it)
{
    node *leader = it->leader >= 0 ? &it->nodes[it->leader] : NULL;
    if (leader == NULL || leader->broker == NULL || !leader->partition->serving)
        return;
    pb_partition_ends ends;
    pb_partition_read_ends(leader->partition, &ends);
    if (ends.high_watermark <= ends.log_start_offset)
        return;
    int64_t most = ends.high_watermark - ends.log_start_offset;
    int64_t offset = ends.log_start_offset + 1 + (int64_t)chance(it, (uint64_t)most);
    CHECK_INT(pb_log_set_start_offset(leader->partition->log, offset), 0);
    if (offset > it->deleted_offset)
        it->deleted_offset = offset;
}

static void misfortune(world *it)
{
    node *one = &it->nodes[chance(it, NODES)];
    switch (chance(it, 12)) {
    case 0:
        if (one->broker != NULL)
            crash(it, one);
        break;
    case 1:
    case 2: { /* a leader moves without need */
        int next = find_eligible(it);
        if (next >= 0 && it->leader >= 0)
            elect(it, next);
        break;
    }
    case 3:
        shrink_isr(it);
        break;
    case 4:
    case 5:
        if (one->broker != NULL)
            unplug(it, one);
        break;
    default:
        if (one->broker == NULL)
            come_back(it, one);
    }
}

/* ---- network ---- */

static void plug(world *it, node *from, int from_client, node *to)
{
    for (int i = 0; i < WIRES; i++) {
        wire *each = &it->wires[i];
        if (each->from != NULL)
            continue;
        *each = (wire){.from = from,
                       .to = to,
                       .from_client = from_client,
                       .to_client = pb_sim_connect(to->io, to->port),
                       .from_life = from->lives,
                       .to_life = to->lives};
        CHECK(each->to_client >= 0);
        return;
    }
    CHECK(!"more connections than there should be");
}

static void answer_calls(world *it, node *from)
{
    int port, client;
    while ((client = pb_sim_next_outgoing(from->io, &port)) >= 0) {
        node *to = &it->nodes[port - PORT_BASE];
        bool works = to->broker != NULL && (it->calm || chance(it, 8) != 0);
        pb_sim_answer_outgoing(from->io, client, works);
        if (works)
            plug(it, from, client, to);
    }
}

/* Bytes of one direction; false: the sender has closed. */
static bool carry(world *it, pb_io *from, int from_client, pb_io *to, int to_client)
{
    if (!it->calm && chance(it, 4) != 0)
        return true; /* later */
    int64_t got = pb_sim_client_receive(from, from_client, world_bytes, 1 + chance(it, sizeof world_bytes));
    if (got > 0)
        pb_sim_client_send(to, to_client, world_bytes, (size_t)got);
    return got >= 0;
}

static void carry_all(world *it)
{
    for (int i = 0; i < WIRES; i++) {
        wire *each = &it->wires[i];
        if (each->from == NULL)
            continue;
        bool open = carry(it, each->from->io, each->from_client, each->to->io, each->to_client) &&
                    carry(it, each->to->io, each->to_client, each->from->io, each->from_client);
        if (open)
            continue;
        pb_sim_client_close(each->from->io, each->from_client);
        pb_sim_client_close(each->to->io, each->to_client);
        each->from = NULL;
    }
}

/* ---- Python's part ---- */

static void take_events(world *it, node *one)
{
    pb_event_node *event;
    while ((event = pb_events_next(&one->broker->events)) != NULL) {
        if (event->kind == PB_NODE_REQUEST) {
            answer_offsets(one, PB_CONTAINER(event, pb_request, event));
            continue;
        }
        if (event->kind == PB_NODE_FOLLOWER) {
            /* Leaders come from the ISR: nothing that was committed is ever cut, and nothing is corrupt. */
            CHECK(event->error != PB_TELL_CUT && (event->error != PB_TELL_RESTARTED || world_deletes));
            CHECK(event->error != PB_TELL_CORRUPT && event->error != PB_TELL_STOPPED);
            it->inside += event->error == PB_TELL_CHECKPOINT && one->restarted;
            one->restarted = event->error == PB_TELL_RESTARTED;
            if (event->error == PB_TELL_CHECKPOINT && one->told_leader != one->id - 1)
                one->told_epoch = one->told_partition_epoch = -1; /* it is told to follow again */
        }
        if (event->kind == PB_NODE_NOTICE)
            pb_events_claim_notice(&one->broker->events, PB_CONTAINER(event, pb_notice, event));
        free(event);
    }
}

/* ---- the producer ---- */

static void send_batch(world *it)
{
    node *leader = it->leader >= 0 ? &it->nodes[it->leader] : NULL;
    if (leader == NULL || leader->broker == NULL || it->sent_count == BATCHES)
        return;
    if (it->producer_node != leader || it->producer_life != leader->lives) {
        if (it->producer_node != NULL && it->producer_node->broker != NULL &&
            it->producer_life == it->producer_node->lives)
            pb_sim_client_close(it->producer_node->io, it->producer_client);
        it->producer_node = leader;
        it->producer_life = leader->lives;
        it->producer_client = pb_sim_connect(leader->io, leader->port);
        it->answer_bytes = 0;
    }
    size_t length = mini_batch(world_bytes, sizeof world_bytes, 1 + it->sent_count % 3, 60);
    world_bytes[length - 2] = (uint8_t)it->sent_count;
    world_bytes[length - 3] = (uint8_t)(it->sent_count >> 8);
    pb_batch_header header;
    CHECK_INT(pb_batch_parse(world_bytes, length, &header), 0);
    pb_batch_write(world_bytes, &header);
    CHECK_INT(pb_batch_parse(world_bytes, length, &header), 0);
    it->batches[it->sent_count] = (sent){.offset = -1, .crc = header.crc};
    pb_writer writer;
    mini_encode_produce(&writer, it->sent_count, 9, -1, "t", 0, world_bytes, length);
    pb_sim_client_send(leader->io, it->producer_client, writer.data, writer.length);
    pb_writer_free(&writer);
    it->sent_count++;
    it->waits = true;
}

/* What was not acknowledged is not sent again: it may be in the log or not. */
static void produce(world *it)
{
    node *leader = it->producer_node;
    if (!it->waits || leader == NULL || it->leader != leader->id - 1 || it->producer_life != leader->lives) {
        it->waits = false;
        if (chance(it, 20) == 0)
            send_batch(it);
        return;
    }
    int64_t got = pb_sim_client_receive(leader->io, it->producer_client, it->answer + it->answer_bytes,
                                        sizeof it->answer - it->answer_bytes);
    if (got < 0) {
        it->producer_node = NULL;
        return;
    }
    it->answer_bytes += (size_t)got;
    uint32_t size;
    if (it->answer_bytes < sizeof size)
        return;
    memcpy(&size, it->answer, sizeof size);
    size = be32toh(size);
    if (it->answer_bytes < size + sizeof size)
        return;
    pb_arena arena;
    pb_arena_init(&arena, 1 << 20);
    pb_produce_response response;
    mini_decode_produce(it->answer + sizeof size, size, 9, &arena, &response);
    const pb_produce_response_partition_produce_response *answer = &response.responses[0].partition_responses[0];
    /* The leader may have moved and come back meanwhile: then this is about a batch before the last. */
    uint32_t sent_as;
    memcpy(&sent_as, it->answer + sizeof size, sizeof sent_as);
    int number = (int)be32toh(sent_as);
    CHECK(number < it->sent_count);
    if (answer->error_code == 0) {
        it->batches[number].offset = answer->base_offset;
        it->acked_count++;
    }
    pb_arena_free(&arena);
    it->answer_bytes -= size + sizeof size;
    memmove(it->answer, it->answer + size + sizeof size, it->answer_bytes);
    it->waits = number < it->sent_count - 1;
}

/* ---- the whole ---- */

static WORLD_UNUSED void begin_world(world *it, uint64_t seed, bool durable)
{
    memset(it, 0, sizeof *it);
    it->random = seed;
    it->durable = durable;
    it->minimum = 1 + (int)(seed / 2 % 2);
    for (int i = 0; i < NODES; i++) {
        node *one = &it->nodes[i];
        one->id = i + 1;
        one->saved_start = -1;
        CHECK_INT(pb_io_sim_open(seed * NODES + (uint64_t)i, &one->io), 0);
        CHECK_INT(one->io->ops->directory_make(one->io, "/data"), 0);
        CHECK_INT(one->io->ops->directory_sync(one->io, "/"), 0);
        boot(it, one);
    }
    it->isr = (1u << NODES) - 1;
    elect(it, 0);
}

/* One machine goes on a step: the one whose clock is behind. */
static void step_machines(world *it)
{
    node *next = NULL;
    for (int i = 0; i < NODES; i++) {
        node *one = &it->nodes[i];
        if (one->broker != NULL &&
            (next == NULL || one->io->ops->monotonic_ns(one->io) < next->io->ops->monotonic_ns(next->io)))
            next = one;
    }
    if (next != NULL)
        (void)pb_sim_step(next->io);
}

static void live(world *it)
{
    for (int i = 0; i < NODES; i++) {
        node *one = &it->nodes[i];
        if (one->broker == NULL)
            continue;
        answer_calls(it, one);
        take_events(it, one);
        if (it->calm || chance(it, 200) == 0)
            tell(it, one);
    }
    if (it->leader < 0 && find_eligible(it) >= 0)
        elect(it, find_eligible(it));
    if (chance(it, it->calm ? 20 : 300) == 0)
        expand_isr(it);
    carry_all(it);
    step_machines(it);
}

static bool all_is_equal(const world *it)
{
    if (it->leader < 0 || it->isr != (1u << NODES) - 1)
        return false;
    int64_t end = -1;
    for (int i = 0; i < NODES; i++) {
        if (it->nodes[i].broker == NULL || it->nodes[i].told_partition_epoch != it->partition_epoch)
            return false;
        pb_partition_ends ends;
        pb_partition_read_ends(it->nodes[i].partition, &ends);
        if (ends.high_watermark != ends.log_end_offset || (end >= 0 && ends.log_end_offset != end))
            return false;
        end = ends.log_end_offset;
    }
    return true;
}

/* The CRC and epoch of each batch at its base offset; the end. */
typedef struct copy {
    uint32_t crc[OFFSETS];
    int32_t epoch[OFFSETS];
    int64_t end;
} copy;

static void read_copy(const node *one, int64_t start_offset, copy *out)
{
    memset(out, 0, sizeof *out);
    out->end = start_offset;
    pb_log *log = one->partition->log;
    while (out->end < pb_log_written_end(log)) {
        pb_log_slice slice = {0};
        pb_log_guard guard = pb_partition_guard(one->partition);
        CHECK_INT(pb_log_read(log, &guard, out->end, sizeof world_bytes, pb_log_written_end(log), true, &slice), 0);
        CHECK(slice.segment != NULL && slice.length <= (int64_t)sizeof world_bytes);
        CHECK_INT(pb_io_read_all(one->io, slice.file, world_bytes, (size_t)slice.length, slice.position), 0);
        pb_segment_release(slice.segment);
        size_t position = 0;
        pb_batch_header header;
        while (position < (size_t)slice.length) {
            const uint8_t *batch = world_bytes + position;
            CHECK_INT(pb_batch_next(world_bytes, (size_t)slice.length, &position, &header), 0);
            if (header.size_bytes == 0)
                break;
            CHECK(header.base_offset == out->end || (out->end == start_offset && header.base_offset < start_offset));
            CHECK(out->end < OFFSETS && pb_batch_crc_matches(batch, header.size_bytes));
            out->crc[header.base_offset] = header.crc;
            out->epoch[header.base_offset] = header.partition_leader_epoch;
            out->end = pb_batch_last_offset(&header) + 1;
        }
    }
}

static void judge(const world *it)
{
    static copy first, other;
    /* Of what was deleted nothing is promised. Crashes may bring some of it back, each its own: epochs that ended below
     * a leader's start have told nobody where he differs. */
    int64_t start_offset = it->deleted_offset;
    for (int i = 0; i < NODES; i++) {
        int64_t start = pb_log_start_offset(it->nodes[i].partition->log);
        start_offset = start > start_offset ? start : start_offset;
    }
    CHECK(start_offset == 0 || world_deletes);
    read_copy(&it->nodes[0], start_offset, &first);
    for (int i = 1; i < NODES; i++) {
        read_copy(&it->nodes[i], start_offset, &other);
        CHECK_INT(other.end, first.end);
        CHECK_MEM(other.crc, first.crc, sizeof first.crc);
        CHECK_MEM(other.epoch, first.epoch, sizeof first.epoch);
    }
    for (int i = 0; i < it->sent_count; i++)
        if (it->batches[i].offset >= start_offset)
            CHECK_INT(first.crc[it->batches[i].offset], it->batches[i].crc);
}

static void end_world(world *it)
{
    for (int i = 0; i < NODES; i++) {
        node *one = &it->nodes[i];
        unplug(it, one);
    }
    if (it->producer_node != NULL)
        pb_sim_client_close(it->producer_node->io, it->producer_client);
    for (int i = 0; i < NODES; i++) {
        take_down(&it->nodes[i]);
        pb_broker_destroy(it->nodes[i].broker);
    }
}

/* A life with misfortunes, then peace: in the end all is as it should be. */
static WORLD_UNUSED void play(world *it, uint64_t seed, bool durable, int steps)
{
    begin_world(it, seed, durable);
    for (int step = 0; step < steps; step++) {
        live(it);
        produce(it);
        if (chance(it, 700) == 0)
            misfortune(it);
        if (world_deletes && chance(it, 1000) == 0)
            delete_records(it);
    }
    it->calm = true;
    for (int step = 0; !all_is_equal(it); step++) {
        CHECK(step < HEAL_STEPS);
        for (int i = 0; i < NODES; i++)
            if (it->nodes[i].broker == NULL)
                come_back(it, &it->nodes[i]);
        live(it);
        if (it->waits)
            produce(it);
    }
    judge(it);
    end_world(it);
}

#endif
