/*
 * The leader of a replicated partition on the simulated machine, with followers, producers, a consumer and a controller
 * made up here, all from a seed: followers that lag, stop, lie, or come back without their disk; an ISR that shrinks,
 * grows and is refused, and that the leader hears of late. Whatever happens: the high watermark never goes back and is
 * never above what a replica has that the controller may elect; what was acknowledged by acks=all, or read, is in every
 * one of them. A seed to replay: PB_SIM_SEED=n PB_SIM_RUNS=1.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "record/batch.h"
#include "tests/sim/sim_broker.h"
#include "tests/support/mini_client.h"
#include "wire/generated/kafka_errors.h"

enum {
    LEADER = 1,
    FOLLOWERS = 3, /* 2, 3, ... */
    CLIENTS = 3,
    REQUESTS = 40,
    VALUE_BYTES = 100,
    ANSWER_BYTES = 1 << 16,
    STEP_LIMIT = 400000,
    OFFSETS = CLIENTS * REQUESTS * 3,
    MINIMUM = 2,
    VERSION = 18,
};

#define DIRECTORY "/data"
#define LOG_DIRECTORY "/data/t-0"

/* What is done wrong on purpose, to see that it is found. */
enum bug { NO_BUG, BUG_UNCHECKED_JOIN, BUG_STALE_JOIN, BUG_EARLY_SHRINK, BUG_LOST_DISK, BUGS };

typedef struct sim_follower {
    int connection;
    mini_replica_fetch next;
    bool waits;     /* for an answer */
    bool lies;      /* in the fetch that is under way */
    int rests;      /* for so many steps it does nothing */
    bool in_isr;    /* the controller may elect it */
    bool caught_up; /* the leader says so, and nobody has looked yet */
    uint8_t buffer[ANSWER_BYTES];
    size_t buffered;
    uint32_t crc_at[OFFSETS];
} sim_follower;

typedef struct sim_client {
    int connection;
    int sent;
    int answered;
    int16_t acks;
    uint32_t crc;
    uint8_t buffer[ANSWER_BYTES];
    size_t buffered;
} sim_client;

/* A change of the ISR on its way to the controller, and back to the leader. */
typedef struct isr_change {
    int32_t replica_id; /* 0: there is none */
    bool joins;         /* else it leaves */
    bool decided;
    int wait; /* steps until the next thing happens to it */
} isr_change;

typedef struct world {
    pb_io *io;
    pb_broker *broker;
    pb_partition *partition;
    uint64_t random;
    enum bug bug;
    bool durable_acks;
    int port;
    int32_t leader_epoch;
    int32_t partition_epoch;
    isr_change proposal;
    sim_follower followers[FOLLOWERS];
    sim_client clients[CLIENTS];
    sim_client reader; /* `answered` is the next offset */
    int64_t high_watermark;
    int violations;
    int refused_joins;
    int acknowledged;
} world;

static uint8_t bytes[4096];
static int joined, left, refused_joins, acknowledged, told_lies; /* over all seeds: it must all have happened */

/* A number below `bound`. */
static uint64_t pick(world *it, uint64_t bound)
{
    it->random += 0x9e3779b97f4a7c15u;
    uint64_t value = it->random;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return (value ^ (value >> 31)) % bound;
}

static void violated(world *it, const char *what)
{
    if (it->bug == NO_BUG)
        check_fail(__FILE__, __LINE__, "%s, at high watermark %lld", what, (long long)it->high_watermark);
    it->violations++;
}

static sim_follower *follower_of(world *it, int32_t replica_id)
{
    return &it->followers[replica_id - 2];
}

static void on_failure(pb_partition *partition, enum pb_partition_failure what, int error)
{
    (void)partition;
    check_fail(__FILE__, __LINE__, "the log failed: %d, %d", (int)what, error);
}

static void on_sync_due(pb_partition *partition)
{
    pb_syncer_submit(&((world *)partition->owner)->broker->syncer, partition);
}

static void on_caught_up(pb_partition *partition, int32_t replica_id)
{
    follower_of(partition->owner, replica_id)->caught_up = true;
}

/* ---- the controller ---- */

/* It comes back with an empty disk, as another incarnation; a fetch of the former one may still be under way. */
static void lose_disk(sim_follower *follower)
{
    follower->next.offset = 0;
    follower->next.last_fetched_epoch = -1;
    follower->next.broker_epoch++;
    memset(follower->crc_at, 0, sizeof follower->crc_at);
}

/* Tell the leader what the controller has, and what is proposed. */
static int tell_leader(world *it, int32_t joining)
{
    int32_t replicas[FOLLOWERS + 1] = {LEADER}, isr[FOLLOWERS + 1] = {LEADER};
    pb_leadership leadership = {.leader_epoch = it->leader_epoch,
                                .partition_epoch = it->partition_epoch,
                                .replicas = replicas,
                                .isr = isr,
                                .joining = &joining,
                                .replica_count = FOLLOWERS + 1,
                                .isr_count = 1,
                                .joining_count = joining != 0};
    for (int i = 0; i < FOLLOWERS; i++) {
        replicas[i + 1] = i + 2;
        if (it->followers[i].in_isr)
            isr[leadership.isr_count++] = i + 2;
    }
    return pb_partition_start_leading_replicas(it->partition, LEADER, &leadership);
}

static void begin_proposal(world *it, int32_t replica_id, bool joins)
{
    it->proposal = (isr_change){.replica_id = replica_id, .joins = joins, .wait = (int)pick(it, 200)};
}

/* What the leader knows is of the incarnation that runs now: the controller refuses any other (KIP-903). */
static bool is_known(world *it, int32_t replica_id)
{
    pb_follower_view known[FOLLOWERS];
    CHECK_INT(pb_partition_read_followers(it->partition, known, FOLLOWERS), FOLLOWERS);
    return known[replica_id - 2].broker_epoch == follower_of(it, replica_id)->next.broker_epoch;
}

static void propose_join(world *it, int32_t replica_id)
{
    sim_follower *follower = follower_of(it, replica_id);
    follower->caught_up = false;
    if (it->bug == BUG_STALE_JOIN && !follower->waits)
        lose_disk(follower);
    else if (!is_known(it, replica_id))
        return;
    if (it->bug != BUG_UNCHECKED_JOIN) {
        int result = tell_leader(it, replica_id);
        it->refused_joins += result == PB_KAFKA_INELIGIBLE_REPLICA;
        if (result != 0) {
            CHECK_INT(result, PB_KAFKA_INELIGIBLE_REPLICA);
            return;
        }
    }
    begin_proposal(it, replica_id, true);
}

static void propose_leave(world *it, int32_t replica_id)
{
    begin_proposal(it, replica_id, false);
    if (it->bug == BUG_EARLY_SHRINK) {
        it->followers[replica_id - 2].in_isr = false;
        CHECK_INT(tell_leader(it, 0), 0);
        it->followers[replica_id - 2].in_isr = true;
    }
}

/* The next thing happens to the proposal: the controller decides, or the leader hears of it. */
static void go_on(world *it)
{
    isr_change *proposal = &it->proposal;
    if (proposal->wait-- > 0)
        return;
    if (!proposal->decided) {
        proposal->decided = true;
        proposal->wait = (int)pick(it, 200);
        if (pick(it, 4) != 0) { /* else it is refused */
            follower_of(it, proposal->replica_id)->in_isr = proposal->joins;
            it->partition_epoch++;
            joined += proposal->joins;
            left += !proposal->joins;
        }
        return;
    }
    CHECK_INT(tell_leader(it, 0), 0);
    *proposal = (isr_change){0};
}

static void control(world *it)
{
    if (it->proposal.replica_id != 0) {
        go_on(it);
        return;
    }
    if (pick(it, 20000) == 0) { /* the same leader again, at another epoch */
        it->leader_epoch++;
        CHECK_INT(tell_leader(it, 0), 0);
    }
    int32_t replica_id = 2 + (int32_t)pick(it, FOLLOWERS);
    sim_follower *follower = follower_of(it, replica_id);
    if (!follower->in_isr && follower->caught_up && pick(it, 20) == 0)
        propose_join(it, replica_id);
    else if (follower->in_isr && pick(it, 3000) == 0)
        propose_leave(it, replica_id);
}

/* ---- frames ---- */

/* The length of the whole answer that lies in the buffer; 0: there is none yet. */
static size_t take_frame(world *it, int connection, uint8_t *buffer, size_t *buffered)
{
    uint32_t size;
    int64_t got = pb_sim_client_receive(it->io, connection, buffer + *buffered, ANSWER_BYTES - *buffered);
    CHECK(got >= 0);
    *buffered += (size_t)got;
    if (*buffered < 4 || (memcpy(&size, buffer, 4), size = be32toh(size), *buffered < 4 + size))
        return 0;
    return size;
}

static void drop_frame(uint8_t *buffer, size_t *buffered, size_t size)
{
    *buffered -= 4 + size;
    memmove(buffer, buffer + 4 + size, *buffered);
}

static void send_frame(world *it, int connection, pb_writer *writer)
{
    pb_sim_client_send(it->io, connection, writer->data, writer->length);
    pb_writer_free(writer);
}

/* ---- followers ---- */

static void send_fetch(world *it, sim_follower *follower)
{
    mini_replica_fetch fetch = follower->next;
    follower->lies = pick(it, 50) == 0;
    if (follower->lies) {
        told_lies++;
        switch (pick(it, 3)) {
        case 0:
            fetch.offset += OFFSETS;
            fetch.last_fetched_epoch = -1;
            break;
        case 1:
            fetch.offset = it->high_watermark + 1;
            fetch.leader_epoch = 1000;
            break;
        default:
            fetch.offset = it->high_watermark + 1;
            fetch.replica_id = 77;
        }
    }
    fetch.max_wait_ms = (int32_t)pick(it, 20);
    if (pick(it, 2) == 0)
        fetch.known_high_watermark = it->high_watermark;
    pb_writer writer;
    mini_encode_replica_fetch(&writer, 1, VERSION, &fetch);
    send_frame(it, follower->connection, &writer);
    follower->waits = true;
}

static void append(world *it, sim_follower *follower, pb_slice records)
{
    size_t position = 0, length = (size_t)records.length;
    pb_batch_header header;
    while (position < length && pb_batch_next(records.data, length, &position, &header) == 0 && header.size_bytes > 0) {
        CHECK_INT(header.base_offset, follower->next.offset);
        CHECK(pb_batch_last_offset(&header) < OFFSETS);
        CHECK(header.partition_leader_epoch <= it->leader_epoch);
        follower->crc_at[header.base_offset] = header.crc;
        follower->next.offset = pb_batch_last_offset(&header) + 1;
        follower->next.last_fetched_epoch = header.partition_leader_epoch;
    }
}

static void take_fetched(world *it, sim_follower *follower)
{
    size_t size = take_frame(it, follower->connection, follower->buffer, &follower->buffered);
    if (size == 0)
        return;
    pb_arena arena;
    pb_arena_init(&arena, 1 << 20);
    pb_fetch_response response;
    mini_decode_fetch(follower->buffer + 4, size, VERSION, &arena, &response);
    const pb_fetch_response_partition_data *answer = &response.responses[0].partitions[0];
    CHECK(answer->diverging_epoch.epoch < 0);
    if (follower->lies)
        CHECK(answer->error_code != 0);
    else if (answer->error_code == PB_KAFKA_FENCED_LEADER_EPOCH)
        follower->next.leader_epoch = it->leader_epoch;
    else
        CHECK_INT(answer->error_code, 0);
    if (answer->error_code == 0)
        append(it, follower, answer->records);
    pb_arena_free(&arena);
    drop_frame(follower->buffer, &follower->buffered, size);
    follower->waits = false;
}

static void follow(world *it, sim_follower *follower)
{
    if (follower->rests > 0) {
        follower->rests--;
        return;
    }
    bool proposed = it->proposal.replica_id == follower->next.replica_id;
    if (follower->waits)
        take_fetched(it, follower);
    else if (((!follower->in_isr && !proposed) || it->bug == BUG_LOST_DISK) && pick(it, 1000) == 0)
        lose_disk(follower);
    else if (pick(it, 400) == 0)
        follower->rests = (int)pick(it, 3000);
    else
        send_fetch(it, follower);
}

/* ---- producers, and a consumer ---- */

static void send_produce(world *it, sim_client *client)
{
    size_t length = mini_batch(bytes, sizeof bytes, 1 + client->sent % 3, (size_t)VALUE_BYTES + (size_t)client->sent);
    pb_batch_header header;
    CHECK_INT(pb_batch_parse(bytes, length, &header), 0);
    header.base_timestamp += client->connection * 1000 + client->sent; /* no two batches are alike */
    header.max_timestamp = header.base_timestamp;
    pb_batch_write(bytes, &header);
    CHECK_INT(pb_batch_parse(bytes, length, &header), 0);
    client->crc = header.crc;
    client->acks = pick(it, 4) == 0 ? 1 : -1;
    pb_writer writer;
    mini_encode_produce(&writer, client->sent++, 9, client->acks, "t", 0, bytes, length);
    send_frame(it, client->connection, &writer);
}

/* Every replica that may be elected has this batch. */
static void check_everywhere(world *it, int64_t base_offset, uint32_t crc, const char *what)
{
    for (int i = 0; i < FOLLOWERS; i++)
        if (it->followers[i].in_isr && it->followers[i].crc_at[base_offset] != crc)
            violated(it, what);
}

static void take_produced(world *it, sim_client *client)
{
    size_t size = take_frame(it, client->connection, client->buffer, &client->buffered);
    if (size == 0)
        return;
    pb_arena arena;
    pb_arena_init(&arena, 1 << 20);
    pb_produce_response response;
    mini_decode_produce(client->buffer + 4, size, 9, &arena, &response);
    const pb_produce_response_partition_produce_response *answer = &response.responses[0].partition_responses[0];
    if (answer->error_code == 0 && client->acks == -1) {
        check_everywhere(it, answer->base_offset, client->crc, "acknowledged, and not on every in-sync replica");
        it->acknowledged++;
    }
    if (answer->error_code != 0)
        CHECK(client->acks == -1 &&
              (answer->error_code == PB_KAFKA_NOT_ENOUGH_REPLICAS || answer->error_code == PB_KAFKA_REQUEST_TIMED_OUT));
    pb_arena_free(&arena);
    drop_frame(client->buffer, &client->buffered, size);
    client->answered++;
}

static void produce(world *it, sim_client *client)
{
    if (client->sent > client->answered)
        take_produced(it, client);
    else if (client->sent < REQUESTS)
        send_produce(it, client);
}

static void take_read(world *it, sim_client *reader, size_t size)
{
    pb_arena arena;
    pb_arena_init(&arena, 1 << 20);
    pb_fetch_response response;
    mini_decode_fetch(reader->buffer + 4, size, 12, &arena, &response);
    pb_slice records = response.responses[0].partitions[0].records;
    size_t position = 0, length = (size_t)records.length;
    pb_batch_header header;
    while (position < length && pb_batch_next(records.data, length, &position, &header) == 0 && header.size_bytes > 0) {
        check_everywhere(it, header.base_offset, header.crc, "read, and not on every in-sync replica");
        reader->answered = (int)pb_batch_last_offset(&header) + 1;
    }
    CHECK(reader->answered <= it->high_watermark);
    pb_arena_free(&arena);
    drop_frame(reader->buffer, &reader->buffered, size);
    reader->sent = 0;
}

static void read_on(world *it, sim_client *reader)
{
    if (reader->sent != 0) {
        size_t size = take_frame(it, reader->connection, reader->buffer, &reader->buffered);
        if (size > 0)
            take_read(it, reader, size);
        return;
    }
    pb_writer writer;
    mini_encode_fetch(&writer, 1, 12, "t", 0, reader->answered, 1, 5);
    send_frame(it, reader->connection, &writer);
    reader->sent = 1;
}

/* ---- a run ---- */

static void check_watermark(world *it)
{
    int64_t high_watermark = it->partition->high_watermark;
    if (high_watermark < it->high_watermark)
        violated(it, "the high watermark has gone back");
    it->high_watermark = high_watermark;
    for (int i = 0; i < FOLLOWERS; i++)
        if (it->followers[i].in_isr && it->followers[i].next.offset < high_watermark)
            violated(it, "a replica in sync lacks something below the high watermark");
    if (it->durable_acks && high_watermark > pb_log_durable_end(it->partition->log))
        violated(it, "a power cut would take back what is below the high watermark");
}

static void start(world *it, uint64_t seed, enum bug bug)
{
    memset(it, 0, sizeof *it);
    it->random = seed;
    it->bug = bug;
    it->durable_acks = seed % 2 == 0;
    CHECK_INT(pb_io_sim_open(seed, &it->io), 0);
    CHECK_INT(it->io->ops->directory_make(it->io, DIRECTORY), 0);
    pb_failure failure = {0};
    it->broker = sim_make_broker(it->io);
    CHECK_INT(pb_broker_set_apis(it->broker, PB_API_FETCH, 4, 18), 0);
    pb_partition_rules rules = sim_rules(it->durable_acks);
    rules.min_insync_replicas = MINIMUM;
    pb_log *log = sim_open_log(it->io, LOG_DIRECTORY, 8192, true);
    it->partition = pb_partition_create(it->io, "t", sim_topic_id, 0, log, &rules);
    it->partition->owner = it;
    it->partition->failed = on_failure;
    it->partition->sync_due = on_sync_due;
    it->partition->caught_up = on_caught_up;
    CHECK_INT(pb_registry_add(&it->broker->registry, it->partition), 0);
    CHECK_INT(pb_broker_add_listener(it->broker, "SIM", "", 0, &it->port, &failure), 0);
    CHECK_INT(pb_broker_run(it->broker, &failure), 0);
    for (int i = 0; i < FOLLOWERS; i++) {
        it->followers[i].next = mini_replica(i + 2, "t", sim_topic_id);
        it->followers[i].next.broker_epoch = 10;
        it->followers[i].next.leader_epoch = 0;
        it->followers[i].in_isr = pick(it, 2) == 0;
        it->followers[i].connection = pb_sim_connect(it->io, it->port);
    }
    for (int i = 0; i < CLIENTS; i++)
        it->clients[i].connection = pb_sim_connect(it->io, it->port);
    it->reader.connection = pb_sim_connect(it->io, it->port);
    CHECK_INT(tell_leader(it, 0), 0);
    pb_sim_faults faults = {.short_io = 300000, .delayed_write = 500000, .cold_read = seed % 3 == 0 ? 400000 : 0};
    pb_sim_set_faults(it->io, &faults);
}

static void run(world *it)
{
    for (int step = 0; step < STEP_LIMIT; step++) {
        int done = 0;
        for (int i = 0; i < CLIENTS; i++) {
            produce(it, &it->clients[i]);
            done += it->clients[i].answered == REQUESTS;
        }
        for (int i = 0; i < FOLLOWERS; i++)
            follow(it, &it->followers[i]);
        read_on(it, &it->reader);
        control(it);
        check_watermark(it);
        if (done == CLIENTS)
            return;
        (void)pb_sim_step(it->io);
        check_watermark(it);
    }
    CHECK(!"the leader stopped answering");
}

static void stop(world *it)
{
    pb_failure failure = {0};
    pb_sim_faults none = {0};
    pb_sim_set_faults(it->io, &none);
    for (int i = 0; i < CLIENTS; i++)
        pb_sim_client_close(it->io, it->clients[i].connection);
    for (int i = 0; i < FOLLOWERS; i++)
        pb_sim_client_close(it->io, it->followers[i].connection);
    pb_sim_client_close(it->io, it->reader.connection);
    pb_broker_halt(it->broker);
    pb_registry_remove(&it->broker->registry, it->partition);
    pb_partition_stop_leading(it->partition, 0);
    CHECK_INT(pb_log_close(it->partition->log, true, &failure), 0);
    it->partition->log = NULL;
    pb_partition_release(it->partition);
    pb_broker_destroy(it->broker);
}

/* How many things were found wrong. */
static int play(uint64_t seed, enum bug bug)
{
    static world it;
    start(&it, seed, bug);
    run(&it);
    stop(&it);
    refused_joins += it.refused_joins;
    acknowledged += it.acknowledged;
    return it.violations;
}

TEST(what_is_acknowledged_or_read_is_on_every_replica_that_may_be_elected)
{
    const char *first = getenv("PB_SIM_SEED"), *runs = getenv("PB_SIM_RUNS");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1;
    int left_count = runs != NULL ? atoi(runs) : 40;
    for (; left_count > 0; left_count--, seed++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        CHECK_INT(play(seed, NO_BUG), 0);
    }
    fprintf(stderr, "%d joined, %d left, %d joins refused, %d lies, %d acknowledged\n", joined, left, refused_joins,
            told_lies, acknowledged);
    CHECK((joined > 0 && left > 0 && told_lies > 0 && acknowledged > 0) || first != NULL);
}

TEST(what_would_lose_records_is_found)
{
    for (int bug = NO_BUG + 1; bug < BUGS; bug++) {
        int violations = 0;
        for (uint64_t seed = 1; seed <= 200 && violations == 0; seed++)
            violations = play(seed, (enum bug)bug);
        if (violations == 0)
            check_fail(__FILE__, __LINE__, "bug %d was not found", bug);
    }
}

CHECK_MAIN()
