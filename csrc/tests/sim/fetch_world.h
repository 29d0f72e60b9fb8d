/*
 * A broker of hot partitions on the simulated machine, with consumers that fetch from anywhere, while its page cache
 * and its history forget, its memory runs short, and a producer goes on. Each Fetch below the high watermark returns a
 * record, or the next one does, and no partition of a fetch waits for ever while others are served. Header only.
 */
#ifndef PB_TESTS_SIM_FETCH_WORLD_H
#define PB_TESTS_SIM_FETCH_WORLD_H

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "record/batch.h"
#include "tests/sim/sim_broker.h"
#include "tests/support/mini_client.h"
#include "wire/generated/fetch_request.h"
#include "wire/generated/kafka_errors.h"

enum {
    PARTITIONS = 2,
    READERS = 3,
    FETCHES = 25, /* of each reader, at least */
    IN_FLIGHT = 4,
    STEPS = 400000,
    LOG_BYTES = 4 << 20, /* of each partition, about */
    RING_BYTES = 512 << 10,
    BATCH_BYTES = 512 << 10,
    ANSWER_BYTES = 9 << 20,
    FETCH_BYTES = 8 << 20,
    BUDGET_BYTES = 8 << 20,
    EMPTY_MOST = 1,            /* answers in a row, below the high watermark */
    STARVED_MOST = PARTITIONS, /* of a partition: in this many its turn has come */
    VERSION = 12,
};

typedef struct fetch_reader {
    int id;
    bool waits;
    bool has_session;
    int32_t session_id;
    int32_t session_epoch;
    int32_t max_bytes; /* of a partition */
    int32_t min_bytes;
    int64_t next[PARTITIONS];
    int64_t asked[PARTITIONS];    /* what the session has; -1: nothing */
    bool is_readable[PARTITIONS]; /* as it was sent */
    int starved[PARTITIONS];
    int empty;
    int fetches;
    uint8_t *buffer;
    size_t buffered;
} fetch_reader;

typedef struct fetch_world {
    pb_io *io;
    pb_broker *broker;
    pb_partition *partitions[PARTITIONS];
    uint64_t random;
    int producer;
    int sent;
    int answered;
    int64_t sent_bytes;
    uint8_t produced[1 << 12];
    size_t produced_bytes;
    fetch_reader readers[READERS];
} fetch_world;

static int64_t fetched_cold, fetched_bytes; /* over all seeds: it must have been hard */

static uint64_t draw(fetch_world *it, uint64_t below)
{
    it->random = it->random * 6364136223846793005u + 1442695040888963407u;
    return (it->random >> 33) % below;
}

/* ---- the broker ---- */

static void on_flush_due(pb_partition *partition)
{
    pb_flusher_submit(&((fetch_world *)partition->owner)->broker->flusher, partition);
}

static void on_failure(pb_partition *partition, enum pb_partition_failure what, int error)
{
    check_fail(__FILE__, __LINE__, "partition %d failed: %d, %d", partition->index, (int)what, error);
}

static void pump(pb_task *task, pb_reactor *reactor)
{
    pb_partition *partition = PB_CONTAINER(task, pb_partition, pump);
    pb_partition_pump(partition, reactor);
    pb_partition_release(partition);
}

static void on_pump_due(pb_partition *partition)
{
    pb_partition_retain(partition);
    partition->pump.run = pump;
    pb_reactor_post(&((fetch_world *)partition->owner)->broker->reactors[1].reactor, &partition->pump);
}

static void open_partition(fetch_world *it, int index, int64_t segment_bytes)
{
    char directory[64];
    snprintf(directory, sizeof directory, "/data/t-%d", index);
    pb_partition_rules rules = sim_rules(false);
    pb_log *log = sim_open_log_with(it->io, directory, segment_bytes, true, it->broker->rings, index);
    pb_partition *partition = pb_partition_create(it->io, "t", sim_topic_id, index, log, &rules);
    it->partitions[index] = partition;
    partition->owner = it;
    partition->failed = on_failure;
    partition->pump_due = on_pump_due;
    partition->flush_due = on_flush_due;
    partition->hot_bytes_per_second = 1;
    pb_partition_start_leading(partition, 0);
    CHECK_INT(pb_registry_add(&it->broker->registry, partition), 0);
}

static void start(fetch_world *it, uint64_t seed)
{
    memset(it, 0, sizeof *it);
    it->random = seed;
    CHECK_INT(pb_io_sim_open(seed, &it->io), 0);
    pb_sim_count_pages(it->io);
    CHECK_INT(it->io->ops->directory_make(it->io, "/data"), 0);
    it->broker = sim_make_broker(it->io);
    it->broker->settings.fetch_max_bytes = FETCH_BYTES;
    CHECK_INT(pb_broker_set_apis(it->broker, PB_API_FETCH, 4, 18), 0);
    const pb_ring_pool_options options = {.io = it->io,
                                          .directory = "/dev/shm/rings",
                                          .budget_bytes = (int64_t)PARTITIONS * RING_BYTES,
                                          .ring_bytes = RING_BYTES};
    CHECK_INT(pb_ring_pool_open(&options, &it->broker->rings, NULL), 0);
    CHECK_INT(pb_ring_pool_add_log_dir(it->broker->rings, "/data", sim_topic_id), 0);
    for (int i = 0; i < PARTITIONS; i++)
        open_partition(it, i, seed % 3 == 0 ? 2 << 20 : 1 << 30);
    int port;
    CHECK_INT(pb_broker_add_listener(it->broker, "SIM", "", 0, &port, NULL), 0);
    CHECK_INT(pb_broker_run(it->broker, NULL), 0);
    it->producer = pb_sim_connect(it->io, port);
    for (int i = 0; i < READERS; i++) {
        it->readers[i].id = pb_sim_connect(it->io, port);
        it->readers[i].buffer = malloc(ANSWER_BYTES);
        CHECK(it->readers[i].buffer != NULL);
    }
}

static void stop(fetch_world *it)
{
    pb_sim_client_close(it->io, it->producer);
    for (int i = 0; i < READERS; i++) {
        pb_sim_client_close(it->io, it->readers[i].id);
        free(it->readers[i].buffer);
    }
    for (int i = 0; i < it->broker->settings.reactor_count; i++) {
        fetched_cold += atomic_load(&it->broker->reactors[i].counters.cold_reads);
        CHECK_INT(atomic_load(&it->broker->reactors[i].counters.empty_fetches), 0);
    }
    pb_broker_halt(it->broker);
    for (int i = 0; i < PARTITIONS; i++) {
        pb_partition *partition = it->partitions[i];
        fetched_bytes += atomic_load(&partition->fetched_bytes);
        pb_registry_remove(&it->broker->registry, partition);
        pb_partition_stop_leading(partition, 0);
        CHECK_INT(pb_log_close(partition->log, true, NULL), 0);
        partition->log = NULL;
        pb_partition_release(partition);
    }
    pb_broker_destroy(it->broker);
}

/* ---- the producer ---- */

static void produce(fetch_world *it)
{
    static uint8_t batch[BATCH_BYTES + 4096];
    if (it->sent - it->answered >= IN_FLIGHT || it->sent_bytes >= (int64_t)PARTITIONS * LOG_BYTES)
        return;
    static const size_t most[] = {2000, 20000, 20000, 60000, 60000, 60000, BATCH_BYTES};
    size_t bytes = 1 + draw(it, most[draw(it, sizeof most / sizeof most[0])]);
    size_t length = mini_batch(batch, sizeof batch, 1, bytes);
    pb_writer writer;
    mini_encode_produce(&writer, it->sent++, 9, 1, "t", (int)draw(it, PARTITIONS), batch, length);
    pb_sim_client_send(it->io, it->producer, writer.data, writer.length);
    pb_writer_free(&writer);
    it->sent_bytes += (int64_t)length;
}

static void take_produced(fetch_world *it)
{
    int64_t got = pb_sim_client_receive(it->io, it->producer, it->produced + it->produced_bytes,
                                        sizeof it->produced - it->produced_bytes);
    CHECK(got >= 0);
    it->produced_bytes += (size_t)got;
    uint32_t size;
    while (it->produced_bytes >= 4 &&
           (memcpy(&size, it->produced, 4), size = be32toh(size), it->produced_bytes >= 4 + size)) {
        pb_arena arena;
        pb_produce_response response;
        pb_arena_init(&arena, 1 << 20);
        mini_decode_produce(it->produced + 4, size, 9, &arena, &response);
        CHECK_INT(response.responses[0].partition_responses[0].error_code, 0);
        pb_arena_free(&arena);
        it->answered++;
        it->produced_bytes -= 4 + size;
        memmove(it->produced, it->produced + 4 + size, it->produced_bytes);
    }
}

/* ---- the readers ---- */

static int64_t high_watermark(const fetch_world *it, int index)
{
    return it->partitions[index]->high_watermark;
}

/* Another place, another size, and now and then another session. */
static void choose(fetch_world *it, fetch_reader *reader)
{
    static const int32_t sizes[] = {1, 4000, 40000, 300000, 1 << 20, 2 << 20, 3 << 20, FETCH_BYTES};
    reader->max_bytes = sizes[draw(it, sizeof sizes / sizeof sizes[0])];
    reader->min_bytes = draw(it, 4) == 0 ? 1 << 20 : 1;
    for (int i = 0; i < PARTITIONS; i++) {
        reader->next[i] = (int64_t)draw(it, (uint64_t)high_watermark(it, i) + 1);
        reader->starved[i] = 0;
    }
    reader->empty = 0;
    if (draw(it, 4) != 0)
        return;
    reader->has_session = draw(it, 3) > 0;
    reader->session_id = reader->session_epoch = 0;
    for (int i = 0; i < PARTITIONS; i++)
        reader->asked[i] = -1;
}

static void send_fetch(fetch_world *it, fetch_reader *reader)
{
    pb_fetch_request_fetch_partition asked[PARTITIONS];
    pb_fetch_request_fetch_topic topic = {.topic = pb_slice_of_text("t"), .partitions = asked};
    int first = reader->starved[1] > reader->starved[0]; /* as Kafka's consumers take turns */
    for (int k = 0; k < PARTITIONS; k++) {
        int i = (first + k) % PARTITIONS;
        reader->is_readable[i] = reader->next[i] < high_watermark(it, i);
        if (reader->has_session && reader->asked[i] == reader->next[i])
            continue;
        pb_fetch_request_fetch_partition *partition = &asked[topic.partitions_count++];
        pb_fetch_request_fetch_partition_init(partition);
        partition->partition = i;
        partition->fetch_offset = reader->next[i];
        partition->partition_max_bytes = reader->max_bytes;
        reader->asked[i] = reader->next[i];
    }
    pb_fetch_request request;
    pb_fetch_request_init(&request);
    request.max_wait_ms = 5;
    request.min_bytes = reader->min_bytes;
    request.max_bytes = FETCH_BYTES;
    request.session_id = reader->has_session ? reader->session_id : 0;
    request.session_epoch = reader->has_session ? reader->session_epoch : -1;
    request.topics = &topic;
    request.topics_count = topic.partitions_count > 0;
    pb_writer writer;
    mini_encode_fetch_request(&writer, reader->fetches, VERSION, &request);
    pb_sim_client_send(it->io, reader->id, writer.data, writer.length);
    pb_writer_free(&writer);
    reader->waits = true;
}

/* What has come of a partition: whole batches, from the one that was asked for on. */
static void look_at_records(fetch_reader *reader, int index, pb_slice records)
{
    const uint8_t *bytes = records.data;
    int64_t before = reader->next[index];
    size_t at = 0, length = (size_t)records.length;
    pb_batch_header header;
    while (at < length && pb_batch_parse(bytes + at, length - at, &header) == 0 && header.size_bytes > 0) {
        CHECK_INT(header.base_offset, reader->next[index]);
        CHECK(pb_batch_crc_matches(bytes + at, header.size_bytes));
        reader->next[index] = pb_batch_last_offset(&header) + 1;
        at += header.size_bytes;
    }
    CHECK(reader->next[index] > before);
}

static void look_at_answer(fetch_reader *reader, const pb_fetch_response *response)
{
    bool came[PARTITIONS] = {false};
    bool any = false, is_due = false;
    CHECK_INT(response->error_code, 0);
    for (int t = 0; t < response->responses_count; t++)
        for (int i = 0; i < response->responses[t].partitions_count; i++) {
            const pb_fetch_response_partition_data *data = &response->responses[t].partitions[i];
            CHECK_INT(data->error_code, 0);
            if (data->records.length <= 0)
                continue;
            look_at_records(reader, data->partition_index, data->records);
            came[data->partition_index] = any = true;
        }
    for (int i = 0; i < PARTITIONS; i++) {
        is_due = is_due || reader->is_readable[i];
        reader->starved[i] = reader->is_readable[i] && !came[i] ? reader->starved[i] + 1 : 0;
        if (reader->starved[i] > STARVED_MOST)
            check_fail(__FILE__, __LINE__, "partition %d got nothing at offset %lld in %d fetches", i,
                       (long long)reader->next[i], reader->starved[i]);
    }
    reader->empty = is_due && !any ? reader->empty + 1 : 0;
    if (reader->empty > EMPTY_MOST)
        check_fail(__FILE__, __LINE__, "%d fetches in a row were answered empty", reader->empty);
}

static void take_fetched(fetch_reader *reader, pb_io *io)
{
    int64_t got =
        pb_sim_client_receive(io, reader->id, reader->buffer + reader->buffered, ANSWER_BYTES - reader->buffered);
    CHECK(got >= 0);
    reader->buffered += (size_t)got;
    uint32_t size;
    if (reader->buffered < 4 || (memcpy(&size, reader->buffer, 4), size = be32toh(size), reader->buffered < 4 + size))
        return;
    pb_arena arena;
    pb_fetch_response response;
    pb_arena_init(&arena, 1 << 20);
    mini_decode_fetch(reader->buffer + 4, size, VERSION, &arena, &response);
    look_at_answer(reader, &response);
    if (reader->has_session) {
        reader->session_id = response.session_id;
        reader->session_epoch++;
    }
    pb_arena_free(&arena);
    CHECK_INT(reader->buffered, 4 + size);
    reader->buffered = 0;
    reader->waits = false;
    reader->fetches++;
}

/* A reader goes on where it is three times out of four, and stays while it has to wait for its turn. */
static void read_on(fetch_world *it, fetch_reader *reader)
{
    if (reader->waits) {
        take_fetched(reader, it->io);
        return;
    }
    bool is_waiting = reader->empty > 0;
    for (int i = 0; i < PARTITIONS; i++)
        is_waiting = is_waiting || reader->starved[i] > 0;
    if (reader->fetches == 0 || (!is_waiting && draw(it, 4) == 0))
        choose(it, reader);
    send_fetch(it, reader);
}

/* ---- what the machine does ---- */

/* What is in memory changes between any two steps. */
static void disturb(fetch_world *it)
{
    static const int64_t runs[] = {PB_DIRECT_BLOCK_BYTES, 64 << 10, 1 << 20};
    switch (draw(it, 400)) {
    case 0:
        pb_sim_forget_pages(it->io, runs[draw(it, 3)], (uint32_t)draw(it, 1000000));
        break;
    case 1: /* history keeps less, so that what was brought in makes room before it is sent */
        it->broker->cold_reads.history.target_bytes = (int64_t)draw(it, 4) << 20;
        break;
    case 2:
        it->broker->pool.budget_bytes = draw(it, 2) == 0 ? BUDGET_BYTES : BUDGET_BYTES / 8;
        break;
    case 3:
        if (draw(it, 20) == 0 && pb_partition_ask_cool(it->partitions[0]))
            on_flush_due(it->partitions[0]);
        break;
    default:
        break;
    }
}

static void live(uint64_t seed)
{
    static fetch_world it;
    start(&it, seed);
    int done = 0;
    for (int step = 0; step < STEPS && done < READERS; step++) {
        done = 0;
        produce(&it);
        take_produced(&it);
        for (int i = 0; i < READERS; i++) {
            read_on(&it, &it.readers[i]);
            done += it.readers[i].fetches >= FETCHES;
        }
        disturb(&it);
        (void)pb_sim_step(it.io);
    }
    CHECK_INT(done, READERS); /* else the broker has stopped answering */
    stop(&it);
}

#endif
