/*
 * The whole data plane on the simulated machine: many clients, short reads and writes, late and failing appends,
 * SIGKILL and power cuts, all from a seed. What was acknowledged is there, once and in its place; what was synced
 * survives a power cut; with durable acks, so does what was acknowledged or read. A seed to replay: PB_SIM_SEED=n
 * PB_SIM_RUNS=1.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "record/batch.h"
#include "tests/sim/sim_broker.h"
#include "tests/support/mini_client.h"
#include "wire/generated/kafka_errors.h"

enum {
    CLIENTS = 4,
    REQUESTS = 60,
    VALUE_BYTES = 200,
    STEP_LIMIT = 400000,
    ANSWER_BYTES = 1 << 16,
    OFFSETS = CLIENTS * REQUESTS * 3
};

#define DIRECTORY "/data"
#define LOG_DIRECTORY "/data/t-0"

/* What a client was told about one of its batches. `offset` < 0: not acknowledged. */
typedef struct sent_batch {
    int64_t offset;
    uint32_t crc;
} sent_batch;

typedef struct sim_client {
    int id;
    int sent;
    int answered;
    uint8_t buffer[ANSWER_BYTES];
    size_t buffered;
    sent_batch batches[REQUESTS];
} sim_client;

/* A consumer from the first offset on, one fetch at a time; the CRC of what it saw at each base offset. */
typedef struct sim_reader {
    int id;
    bool waits;
    int64_t next;
    uint8_t buffer[ANSWER_BYTES];
    size_t buffered;
    uint32_t crc_at[OFFSETS];
} sim_reader;

typedef struct world {
    pb_io *io;
    pb_broker *broker;
    pb_partition *partition;
    int port;
    sim_client clients[CLIENTS];
    sim_reader reader;
    int64_t synced_offset;
    bool durable_acks;
    int mends;
    int sync_failures;
} world;

static uint8_t bytes[4096];
static int mended, sync_failed; /* over all seeds: the faults must have bitten */
static int64_t cold_reads;

static pb_log *open_log(pb_io *io, bool clean)
{
    return sim_open_log(io, LOG_DIRECTORY, 8192, clean);
}

static void on_failure(pb_partition *partition, enum pb_partition_failure what, int error)
{
    world *it = partition->owner;
    CHECK((what == PB_WRITE_FAILED || what == PB_SYNC_FAILED) && error < 0);
    it->mends += what == PB_WRITE_FAILED;
    it->sync_failures += what == PB_SYNC_FAILED;
}

static void on_sync_due(pb_partition *partition)
{
    pb_syncer_submit(&((world *)partition->owner)->broker->syncer, partition);
}

static void start(world *it, uint64_t seed, bool durable_acks)
{
    memset(it, 0, sizeof *it);
    it->durable_acks = durable_acks;
    CHECK_INT(pb_io_sim_open(seed, &it->io), 0);
    CHECK_INT(it->io->ops->directory_make(it->io, DIRECTORY), 0);
    pb_failure failure = {0};
    it->broker = sim_make_broker(it->io);
    CHECK_INT(pb_broker_set_apis(it->broker, PB_API_FETCH, 4, 18), 0);
    pb_partition_rules rules = sim_rules(durable_acks);
    it->partition = pb_partition_create(it->io, "t", sim_topic_id, 0, open_log(it->io, true), &rules);
    it->partition->owner = it;
    it->partition->failed = on_failure;
    it->partition->sync_due = on_sync_due;
    pb_partition_start_leading(it->partition, 0);
    CHECK_INT(pb_registry_add(&it->broker->registry, it->partition), 0);
    CHECK_INT(pb_broker_add_listener(it->broker, "SIM", "", 0, &it->port, &failure), 0);
    CHECK_INT(pb_broker_run(it->broker, &failure), 0);
    for (int i = 0; i < CLIENTS; i++)
        it->clients[i].id = pb_sim_connect(it->io, it->port);
    it->reader.id = pb_sim_connect(it->io, it->port);
}

static void send_next(world *it, sim_client *client)
{
    size_t length = mini_batch(bytes, sizeof bytes, 1 + client->sent % 3, (size_t)VALUE_BYTES + (size_t)client->sent);
    bytes[length - 2] = (uint8_t)client->id; /* the last byte of the last value: no two batches are alike */
    bytes[length - 3] = (uint8_t)client->sent;
    pb_batch_header header;
    CHECK_INT(pb_batch_parse(bytes, length, &header), 0);
    header.base_timestamp += client->id;
    header.max_timestamp += client->id;
    pb_batch_write(bytes, &header);
    CHECK_INT(pb_batch_parse(bytes, length, &header), 0);
    client->batches[client->sent] = (sent_batch){.offset = -1, .crc = header.crc};
    pb_writer writer;
    mini_encode_produce(&writer, client->sent, 9, 1, "t", 0, bytes, length);
    pb_sim_client_send(it->io, client->id, writer.data, writer.length);
    pb_writer_free(&writer);
    client->sent++;
}

static void take_answers(world *it, sim_client *client)
{
    int64_t got =
        pb_sim_client_receive(it->io, client->id, client->buffer + client->buffered, ANSWER_BYTES - client->buffered);
    CHECK(got >= 0); /* the broker closes no connection of a well-behaved client */
    client->buffered += (size_t)got;
    uint32_t size;
    while (client->buffered >= 4 &&
           (memcpy(&size, client->buffer, 4), size = be32toh(size), client->buffered >= 4 + size)) {
        pb_arena arena;
        pb_arena_init(&arena, 1 << 20);
        pb_produce_response response;
        mini_decode_produce(client->buffer + 4, size, 9, &arena, &response);
        const pb_produce_response_partition_produce_response *answer = &response.responses[0].partition_responses[0];
        CHECK(answer->error_code == 0 || answer->error_code == PB_KAFKA_KAFKA_STORAGE_ERROR);
        if (answer->error_code == 0)
            client->batches[client->answered].offset = answer->base_offset;
        client->answered++;
        pb_arena_free(&arena);
        client->buffered -= 4 + size;
        memmove(client->buffer, client->buffer + 4 + size, client->buffered);
    }
}

static void look_at_records(world *it, pb_slice records)
{
    sim_reader *reader = &it->reader;
    size_t position = 0, length = (size_t)records.length;
    pb_batch_header header;
    while (position < length && pb_batch_next(records.data, length, &position, &header) == 0 && header.size_bytes > 0) {
        if (pb_batch_last_offset(&header) < reader->next)
            continue; /* fetched from the middle of it */
        CHECK_INT(header.base_offset, reader->next);
        CHECK(pb_batch_last_offset(&header) < OFFSETS);
        reader->crc_at[header.base_offset] = header.crc;
        reader->next = pb_batch_last_offset(&header) + 1;
    }
}

static void take_fetched(world *it)
{
    sim_reader *reader = &it->reader;
    uint32_t size;
    reader->buffered += (size_t)pb_sim_client_receive(it->io, reader->id, reader->buffer + reader->buffered,
                                                      ANSWER_BYTES - reader->buffered);
    if (reader->buffered < 4 || (memcpy(&size, reader->buffer, 4), size = be32toh(size), reader->buffered < 4 + size))
        return;
    pb_arena arena;
    pb_arena_init(&arena, 1 << 20);
    pb_fetch_response response;
    mini_decode_fetch(reader->buffer + 4, size, 12, &arena, &response);
    const pb_fetch_response_partition_data *answer = &response.responses[0].partitions[0];
    if (answer->error_code != 0)
        CHECK(pb_log_failed(it->partition->log) && answer->error_code == PB_KAFKA_KAFKA_STORAGE_ERROR);
    if (it->durable_acks)
        CHECK(answer->high_watermark <= pb_log_durable_end(it->partition->log));
    look_at_records(it, answer->records);
    pb_arena_free(&arena);
    CHECK_INT(reader->buffered, 4 + size); /* one at a time */
    reader->buffered = 0;
    reader->waits = false;
}

static void read_on(world *it)
{
    sim_reader *reader = &it->reader;
    if (reader->waits) {
        take_fetched(it);
        return;
    }
    pb_writer writer;
    mini_encode_fetch(&writer, 1, 12, "t", 0, reader->next, 1, 5);
    pb_sim_client_send(it->io, reader->id, writer.data, writer.length);
    pb_writer_free(&writer);
    reader->waits = true;
}

/* Off the reactors, as a background thread would: sync now and then, mend what broke. */
static void upkeep(world *it, int step)
{
    pb_failure failure = {0};
    pb_log_guard guard = pb_partition_guard(it->partition);
    if (it->mends > 0 && !it->partition->writing && !it->partition->queued && !it->partition->syncing) {
        pb_sim_faults none = {0};
        pb_sim_set_faults(it->io, &none);
        bool failed = pb_log_failed(it->partition->log);
        CHECK_INT(pb_partition_mend(it->partition, &failure), failed ? -EIO : 0);
        it->mends = 0;
        mended++;
    }
    if (!it->durable_acks && step % 997 == 0 && pb_log_sync(it->partition->log, &guard, &failure) == 0)
        it->synced_offset = pb_log_durable_end(it->partition->log);
    if (step % 501 == 0)
        (void)pb_log_upkeep(it->partition->log, &guard, it->io->ops->wall_ms(it->io), &failure);
}

static void run(world *it, int requests)
{
    for (int step = 0; step < STEP_LIMIT; step++) {
        int done = 0;
        for (int i = 0; i < CLIENTS; i++) {
            sim_client *client = &it->clients[i];
            if (client->sent < requests && client->sent - client->answered < 5)
                send_next(it, client);
            take_answers(it, client);
            done += client->answered == requests;
        }
        read_on(it);
        upkeep(it, step);
        if (done == CLIENTS)
            return;
        (void)pb_sim_step(it->io);
    }
    CHECK(!"the broker stopped answering");
}

static void stop(world *it)
{
    for (int i = 0; i < it->broker->settings.reactor_count; i++)
        cold_reads += atomic_load(&it->broker->reactors[i].counters.cold_reads);
    pb_failure failure = {0};
    pb_sim_faults none = {0};
    pb_sim_set_faults(it->io, &none);
    for (int i = 0; i < CLIENTS; i++)
        pb_sim_client_close(it->io, it->clients[i].id);
    pb_sim_client_close(it->io, it->reader.id);
    pb_broker_halt(it->broker);
    pb_registry_remove(&it->broker->registry, it->partition);
    pb_partition_stop_leading(it->partition, 0);
    bool failed = pb_log_failed(it->partition->log); /* by a sync, or by one of upkeep's */
    CHECK(failed || it->sync_failures == 0);
    CHECK_INT(pb_log_close(it->partition->log, true, &failure), failed ? -EIO : 0);
    it->partition->log = NULL;
    pb_partition_release(it->partition);
    pb_broker_destroy(it->broker);
}

static void no_lock(void *context)
{
    (void)context;
}

/* Every batch in the log, in order, without a hole; the CRC at each base offset. */
static int64_t read_log(pb_io *io, pb_log *log, uint32_t *crc_at, int64_t capacity)
{
    static uint8_t buffer[1 << 20];
    pb_log_guard guard = {no_lock, no_lock, NULL};
    int64_t next = pb_log_start_offset(log), end = pb_log_written_end(log);
    CHECK_INT(next, 0);
    while (next < end) {
        pb_log_slice slice = {0};
        CHECK_INT(pb_log_read(log, &guard, next, sizeof buffer, end, true, &slice), 0);
        CHECK(slice.segment != NULL && slice.length <= (int64_t)sizeof buffer);
        CHECK_INT(pb_io_read_all(io, slice.file, buffer, (size_t)slice.length, slice.position), 0);
        size_t position = 0, length = (size_t)slice.length;
        pb_batch_header header;
        while (position < length) {
            const uint8_t *batch = buffer + position;
            CHECK_INT(pb_batch_next(buffer, length, &position, &header), 0);
            if (header.size_bytes == 0)
                break;
            CHECK_INT(header.base_offset, next);
            CHECK(pb_batch_crc_matches(batch, header.size_bytes));
            CHECK(next < capacity);
            crc_at[next] = header.crc;
            next = pb_batch_last_offset(&header) + 1;
        }
        pb_segment_release(slice.segment);
    }
    return next;
}

static void check_log(world *it, pb_io *io, int64_t must_reach)
{
    static uint32_t crc_at[OFFSETS];
    memset(crc_at, 0, sizeof crc_at);
    pb_failure failure = {0};
    pb_log *log = open_log(io, false);
    int64_t end = read_log(io, log, crc_at, OFFSETS);
    CHECK(end >= must_reach);
    for (int i = 0; i < CLIENTS; i++)
        for (int k = 0; k < it->clients[i].answered; k++) {
            const sent_batch *batch = &it->clients[i].batches[k];
            if (batch->offset >= 0 && batch->offset < must_reach)
                CHECK_INT(crc_at[batch->offset], batch->crc);
        }
    for (int64_t offset = 0; offset < it->reader.next && offset < must_reach; offset++)
        if (it->reader.crc_at[offset] != 0)
            CHECK_INT(crc_at[offset], it->reader.crc_at[offset]);
    CHECK_INT(pb_log_close(log, true, &failure), 0);
    io->ops->close(io);
}

static int64_t acknowledged_end(const world *it)
{
    int64_t end = 0;
    for (int i = 0; i < CLIENTS; i++)
        for (int k = 0; k < it->clients[i].answered; k++)
            if (it->clients[i].batches[k].offset + 1 > end)
                end = it->clients[i].batches[k].offset + 1;
    return end;
}

/* Runs of `body` from PB_SIM_SEED on, PB_SIM_RUNS of them. */
static void for_seeds(void (*body)(uint64_t seed))
{
    const char *first = getenv("PB_SIM_SEED"), *runs = getenv("PB_SIM_RUNS");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1;
    for (int left = runs != NULL ? atoi(runs) : 20; left > 0; left--, seed++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        body(seed);
    }
}

static void survive(uint64_t seed)
{
    static world it;
    start(&it, seed, false);
    pb_sim_faults faults = {.short_io = 300000, .delayed_write = 500000, .write_error = seed % 2 == 0 ? 30000 : 0};
    faults.cold_read = seed % 5 != 0 ? 400000 : 0;
    pb_sim_set_faults(it.io, &faults);
    run(&it, REQUESTS / 2 + (int)(seed % (REQUESTS / 2)));
    pb_io *killed, *cut;
    CHECK_INT(pb_sim_crash(it.io, PB_SIM_KILL, seed, &killed), 0);
    CHECK_INT(pb_sim_crash(it.io, PB_SIM_POWER_CUT, seed, &cut), 0);
    check_log(&it, killed, acknowledged_end(&it));
    check_log(&it, cut, it.synced_offset);
    stop(&it);
}

/* What nobody may ever miss: the last offset that was acknowledged or read, and one. */
static int64_t promised_end(const world *it)
{
    int64_t acknowledged = acknowledged_end(it);
    return it->reader.next > acknowledged ? it->reader.next : acknowledged;
}

static void survive_with_durable_acks(uint64_t seed)
{
    static world it;
    start(&it, seed, true);
    pb_sim_faults faults = {.short_io = 300000, .delayed_write = 500000, .write_error = seed % 2 == 0 ? 30000 : 0};
    faults.cold_read = seed % 5 != 0 ? 400000 : 0;
    faults.sync_error = seed % 3 == 0 ? 20000 : 0;
    pb_sim_set_faults(it.io, &faults);
    int rounds = REQUESTS / 2 + (int)(seed % (REQUESTS / 2));
    for (int requests = rounds / 3; requests <= rounds; requests += rounds / 3) {
        run(&it, requests);
        pb_io *cut;
        CHECK_INT(pb_sim_crash(it.io, PB_SIM_POWER_CUT, seed, &cut), 0);
        check_log(&it, cut, promised_end(&it));
    }
    CHECK(it.sync_failures <= 1); /* none after the first */
    if (it.sync_failures > 0) {
        CHECK(promised_end(&it) <= pb_log_durable_end(it.partition->log));
        sync_failed++;
    }
    stop(&it);
}

TEST(with_durable_acks_what_was_acknowledged_or_read_survives_a_power_cut)
{
    for_seeds(survive_with_durable_acks);
    CHECK(sync_failed > 0 || getenv("PB_SIM_SEED") != NULL);
}

TEST(what_was_acknowledged_survives_a_kill_and_what_was_synced_a_power_cut)
{
    for_seeds(survive);
    CHECK((mended > 0 && cold_reads > 50) || getenv("PB_SIM_SEED") != NULL);
}

CHECK_MAIN()
