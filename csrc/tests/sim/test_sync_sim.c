/*
 * Durable acks of many partitions at once, on the simulated machine: they are synced by themselves or by their file
 * system, syncs fail, the power is cut at any moment. What was acknowledged is there. A seed to replay: PB_SIM_SEED=n
 * PB_SIM_RUNS=1.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim_broker.h"
#include "tests/support/mini_client.h"
#include "wire/generated/kafka_errors.h"

enum { MOST_PARTITIONS = 40, ANSWER_BYTES = 1 << 16, STEP_LIMIT = 200000, BATCH_BYTES = 1 << 16 };

typedef struct load_shape {
    int partitions;
    int rounds;
    int64_t segment_bytes;
    size_t value_bytes;
    int sync_error; /* with every other seed */
    int rings;
    int64_t ring_bytes;
    int64_t round_appends; /* that each round is said to end, on average; 0: as it is */
} load_shape;

/* A batch or two a segment: directories are synced as well. */
static const load_shape cold = {
    .partitions = 40, .rounds = 12, .segment_bytes = 512, .value_bytes = 150, .sync_error = 200000};
static const load_shape some_hot = {.partitions = 40,
                                    .rounds = 12,
                                    .segment_bytes = 512,
                                    .value_bytes = 150,
                                    .sync_error = 200000,
                                    .rings = 12,
                                    .ring_bytes = 16384};
/* Enough for zeros ahead, and to come to where they are. */
static const load_shape busy = {.partitions = 2,
                                .rounds = 60,
                                .segment_bytes = 32 << 20,
                                .value_bytes = 40000,
                                .sync_error = 20000,
                                .rings = 2,
                                .ring_bytes = 256 << 10};

/* As if so many appends waited that logs share flushes. */
static const load_shape crowded = {.partitions = 4,
                                   .rounds = 60,
                                   .segment_bytes = 32 << 20,
                                   .value_bytes = 40000,
                                   .sync_error = 20000,
                                   .rings = 4,
                                   .ring_bytes = 256 << 10,
                                   .round_appends = 1 << 20};

typedef struct world {
    pb_io *io;
    pb_broker *broker;
    const load_shape *shape;
    pb_partition *partitions[MOST_PARTITIONS];
    int client;
    uint8_t buffer[ANSWER_BYTES];
    size_t buffered;
    int sent; /* in the order of the partitions, round by round */
    int answered;
    int64_t acknowledged[MOST_PARTITIONS]; /* ends */
    int failed[MOST_PARTITIONS];
} world;

static int filesystem_syncs, failures, durable_writes, shared_flushes, idle_flushes; /* over all seeds */
static int idle_file; /* that nobody writes to; -1: there is none */
static bool refuses_idle_file;
static int (*make_unnamed)(pb_io *io, const char *directory);
static int (*sync_whole)(pb_io *io, int filesystem);
static void (*start_flush)(pb_loop *loop, pb_op *op, int file);
static int64_t (*start_write)(pb_loop *loop, pb_op *op, int file, struct iovec *iov, int count, int64_t position);

static int64_t count_durable_write(pb_loop *loop, pb_op *op, int file, struct iovec *iov, int count, int64_t position)
{
    durable_writes += op->durable;
    return start_write(loop, op, file, iov, count, position);
}

static void count_flush(pb_loop *loop, pb_op *op, int file)
{
    shared_flushes++;
    idle_flushes += file == idle_file;
    start_flush(loop, op, file);
}

static int find_idle_file(pb_io *io, const char *directory)
{
    bool is_idle = strcmp(directory, "/data") == 0;
    int file = is_idle && refuses_idle_file ? -ENOSPC : make_unnamed(io, directory);
    if (is_idle)
        idle_file = file;
    return file;
}

static int count_filesystem_sync(pb_io *io, int filesystem)
{
    filesystem_syncs++;
    return sync_whole(io, filesystem);
}

/* A partition's directory is a mount of its own. */
static int hold_nothing(pb_io *io, int filesystem, const char *path)
{
    (void)io;
    CHECK(filesystem >= 0);
    return strcmp(path, "/data/t-7") != 0;
}

static pb_log *open_log(pb_io *io, const load_shape *shape, int index, bool clean, pb_ring_pool *rings)
{
    char directory[64];
    snprintf(directory, sizeof directory, "/data/t-%d", index);
    return sim_open_log_with(io, directory, shape->segment_bytes, clean, rings, index);
}

/* For some of the partitions. */
static pb_ring_pool *open_rings(pb_io *io, const load_shape *shape)
{
    const pb_ring_pool_options options = {.io = io,
                                          .directory = "/dev/shm/rings",
                                          .budget_bytes = shape->rings * shape->ring_bytes,
                                          .ring_bytes = shape->ring_bytes};
    pb_ring_pool *rings = NULL;
    CHECK_INT(pb_ring_pool_open(&options, &rings, NULL), 0);
    CHECK_INT(pb_ring_pool_add_log_dir(rings, "/data", sim_topic_id), 0);
    return rings;
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
    pb_reactor_post(&((world *)partition->owner)->broker->reactors[1].reactor, &partition->pump);
}

static void on_flush_due(pb_partition *partition)
{
    pb_flusher_submit(&((world *)partition->owner)->broker->flusher, partition);
}

static void on_failure(pb_partition *partition, enum pb_partition_failure what, int error)
{
    world *it = partition->owner;
    CHECK(what == PB_SYNC_FAILED && error == -EIO);
    CHECK_INT(it->failed[partition->index]++, 0); /* told once */
    failures++;
}

static void on_sync_due(pb_partition *partition)
{
    pb_syncer_submit(&((world *)partition->owner)->broker->syncer, partition);
}

static void start(world *it, uint64_t seed, bool mounted, const load_shape *shape)
{
    memset(it, 0, sizeof *it);
    it->shape = shape;
    CHECK_INT(pb_io_sim_open(seed, &it->io), 0);
    static pb_io_ops counting;
    counting = *it->io->ops;
    sync_whole = counting.filesystem_sync;
    counting.filesystem_sync = count_filesystem_sync;
    start_write = counting.write_start;
    counting.write_start = count_durable_write;
    make_unnamed = counting.file_make_unnamed;
    counting.file_make_unnamed = find_idle_file;
    start_flush = counting.flush_start;
    counting.flush_start = count_flush;
    if (mounted)
        counting.filesystem_holds = hold_nothing;
    it->io->ops = &counting;
    CHECK_INT(it->io->ops->directory_make(it->io, "/data"), 0);
    idle_file = -1;
    refuses_idle_file = seed % 3 == 0;
    it->broker = sim_make_broker(it->io);
    it->broker->rings = shape->rings > 0 ? open_rings(it->io, shape) : NULL;
    pb_partition_rules rules = sim_rules(true);
    for (int i = 0; i < it->shape->partitions; i++) {
        it->partitions[i] = pb_partition_create(it->io, "t", sim_topic_id, i,
                                                open_log(it->io, shape, i, true, it->broker->rings), &rules);
        it->partitions[i]->owner = it;
        it->partitions[i]->failed = on_failure;
        it->partitions[i]->sync_due = on_sync_due;
        it->partitions[i]->pump_due = on_pump_due;
        it->partitions[i]->flush_due = shape->rings > 0 ? on_flush_due : NULL; /* hot from the first write on */
        pb_partition_start_leading(it->partitions[i], 0);
        CHECK_INT(pb_registry_add(&it->broker->registry, it->partitions[i]), 0);
    }
    for (int i = 0; i < it->shape->partitions; i++)
        pb_syncer_watch(&it->broker->syncer, pb_log_directory(it->partitions[i]->log));
    int port;
    CHECK_INT(pb_broker_add_listener(it->broker, "SIM", "", 0, &port, NULL), 0);
    CHECK_INT(pb_broker_run(it->broker, NULL), 0);
    it->client = pb_sim_connect(it->io, port);
}

/* Once the broker has been halted. */
static void end(world *it)
{
    for (int i = 0; i < it->shape->partitions; i++) {
        pb_partition *partition = it->partitions[i];
        pb_registry_remove(&it->broker->registry, partition);
        pb_partition_stop_leading(partition, 0);
        CHECK_INT(pb_log_close(partition->log, true, NULL), it->failed[i] > 0 ? -EIO : 0);
        partition->log = NULL;
        pb_partition_release(partition);
    }
    pb_broker_destroy(it->broker);
}

static void stop(world *it)
{
    pb_sim_faults none = {0};
    pb_sim_set_faults(it->io, &none);
    pb_sim_client_close(it->io, it->client);
    pb_broker_halt(it->broker);
    end(it);
}

static void send_round(world *it)
{
    static uint8_t bytes[BATCH_BYTES];
    size_t length = mini_batch(bytes, sizeof bytes, 1, it->shape->value_bytes);
    for (int i = 0; i < it->shape->partitions; i++) {
        pb_writer writer;
        mini_encode_produce(&writer, it->sent++, 9, 1, "t", i, bytes, length);
        pb_sim_client_send(it->io, it->client, writer.data, writer.length);
        pb_writer_free(&writer);
    }
}

static void take_answers(world *it)
{
    int64_t got = pb_sim_client_receive(it->io, it->client, it->buffer + it->buffered, ANSWER_BYTES - it->buffered);
    CHECK(got >= 0);
    it->buffered += (size_t)got;
    uint32_t size;
    while (it->buffered >= 4 && (memcpy(&size, it->buffer, 4), size = be32toh(size), it->buffered >= 4 + size)) {
        pb_arena arena;
        pb_arena_init(&arena, 1 << 20);
        pb_produce_response response;
        mini_decode_produce(it->buffer + 4, size, 9, &arena, &response);
        const pb_produce_response_partition_produce_response *answer = &response.responses[0].partition_responses[0];
        int index = it->answered++ % it->shape->partitions;
        if (it->failed[index] == 0)
            CHECK_INT(answer->error_code, 0);
        if (answer->error_code == 0) {
            CHECK_INT(answer->base_offset, it->acknowledged[index]); /* none after one that failed */
            it->acknowledged[index]++;
        }
        pb_arena_free(&arena);
        it->buffered -= 4 + size;
        memmove(it->buffer, it->buffer + 4 + size, it->buffered);
    }
}

static void cut_power(world *it, uint64_t seed)
{
    pb_io *cut;
    CHECK_INT(pb_sim_crash(it->io, PB_SIM_POWER_CUT, seed, &cut), 0);
    for (int i = 0; i < it->shape->partitions; i++) {
        if (it->acknowledged[i] == 0)
            continue; /* its directory need not be there */
        pb_log *log = open_log(cut, it->shape, i, false, NULL);
        CHECK(pb_log_written_end(log) >= it->acknowledged[i]);
        CHECK_INT(pb_log_close(log, true, NULL), 0);
    }
    cut->ops->close(cut);
}

/* How many logs are hot. */
static int hot_count(const world *it)
{
    pb_ring_pool_stats stats = {0};
    if (it->broker->rings != NULL)
        pb_ring_pool_stats_read(it->broker->rings, &stats);
    return stats.taken_count;
}

static void survive(uint64_t seed, bool mounted, const load_shape *shape)
{
    static world it;
    start(&it, seed, mounted, shape);
    const int all = shape->rounds * shape->partitions;
    int most_hot = 0;
    pb_sim_faults faults = {.short_io = 200000, .sync_error = seed % 2 == 0 ? (uint32_t)shape->sync_error : 0};
    pb_sim_set_faults(it.io, &faults);
    int cut_at = (int)(seed * 37 % (uint64_t)all);
    bool is_cut = false;
    for (int step = 0; it.answered < all; step++) {
        CHECK(step < STEP_LIMIT);
        if (it.sent - it.answered <= shape->partitions && it.sent < all)
            send_round(&it);
        take_answers(&it);
        if (!is_cut && it.answered >= cut_at) {
            cut_power(&it, seed);
            is_cut = true;
        }
        for (int i = 0; shape->round_appends > 0 && i < shape->partitions; i++)
            it.partitions[i]->round_appends = shape->round_appends;
        (void)pb_sim_step(it.io);
        most_hot = hot_count(&it) > most_hot ? hot_count(&it) : most_hot;
    }
    CHECK_INT(most_hot, shape->rings);
    cut_power(&it, seed + 1);
    stop(&it);
}

/* Ten seeds, or those that were asked for. Among the ten syncs must have failed. */
static void survive_seeds(const load_shape *shape)
{
    const char *first = getenv("PB_SIM_SEED"), *runs = getenv("PB_SIM_RUNS");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1;
    failures = 0;
    for (int left = runs != NULL ? atoi(runs) : 10; left > 0; left--, seed++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        survive(seed, false, shape);
    }
    CHECK(failures > 0 || first != NULL);
}

TEST(what_many_partitions_acknowledged_survives_a_power_cut)
{
    survive_seeds(&cold);
    CHECK(filesystem_syncs > 0);
}

TEST(a_file_system_is_not_synced_for_a_log_on_another_one)
{
    filesystem_syncs = 0;
    survive(1, true, &cold);
    CHECK_INT(filesystem_syncs, 0);
}

TEST(what_hot_logs_acknowledged_survives_a_power_cut)
{
    survive_seeds(&some_hot);
}

TEST(what_reactors_wrote_themselves_survives_a_power_cut)
{
    const char *first = getenv("PB_SIM_SEED"), *runs = getenv("PB_SIM_RUNS");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1;
    failures = 0;
    durable_writes = 0;
    /* It takes luck that appends come while a write is under way: with one seed in six or so. */
    const int enough = runs != NULL ? atoi(runs) : 6, most = runs != NULL ? enough : 300;
    for (int done = 0; done < enough || (durable_writes == 0 && done < most); done++, seed++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        survive(seed, false, &busy);
    }
    CHECK(durable_writes > 0);
    CHECK(failures > 0 || first != NULL);
}

TEST(what_shared_a_flush_survives_a_power_cut)
{
    shared_flushes = idle_flushes = 0;
    survive_seeds(&crowded);
    CHECK(idle_flushes > 0 && shared_flushes > idle_flushes);
}

/* ---- the end ---- */

static const load_shape single = {.partitions = 1, .rounds = 1, .segment_bytes = 1 << 20, .value_bytes = 150};
static int64_t slow_ns;
static int slow_syncs;
static int (*sync_file)(pb_io *io, int file);
static void (*pass_time)(pb_io *io, int64_t ns);

/* A disk that takes its time, which passes for all. */
static int sync_slowly(pb_io *io, int file)
{
    if (slow_ns > 0) {
        slow_syncs++;
        pass_time(io, slow_ns);
    }
    return sync_file(io, file);
}

/* Whoever stops the broker waits for those who are at work. */
static void nap_and_step(pb_io *io, int64_t ns)
{
    const int64_t until_ns = io->ops->monotonic_ns(io) + ns;
    while (io->ops->monotonic_ns(io) < until_ns)
        (void)pb_sim_step(io);
}

/* Stop the broker while the sync that an answer waits for takes so long, or 0: when all is answered. The client stays.
 * In how many ns. */
static int64_t stop_during_sync(uint64_t seed, int64_t sync_ns)
{
    static world it;
    start(&it, seed, false, &single);
    static pb_io_ops slow;
    slow = *it.io->ops;
    sync_file = slow.file_sync;
    pass_time = slow.nap;
    slow.file_sync = sync_slowly;
    slow.nap = nap_and_step;
    it.io->ops = &slow;
    slow_ns = sync_ns;
    slow_syncs = 0;
    send_round(&it);
    while (sync_ns > 0 ? pb_log_written_end(it.partitions[0]->log) == 0 : it.answered == 0) {
        (void)pb_sim_step(it.io);
        take_answers(&it);
    }
    CHECK_INT(slow_syncs, 0);
    int64_t left_ns = it.io->ops->monotonic_ns(it.io);
    pb_broker_leave(it.broker);
    pb_broker_halt(it.broker);
    int64_t took_ns = it.io->ops->monotonic_ns(it.io) - left_ns;
    slow_ns = 0;
    if (it.answered == 0)
        take_answers(&it);
    CHECK_INT(it.answered, 1);
    end(&it);
    return took_ns;
}

TEST(answers_that_take_seconds_are_given_before_the_end_and_nobody_waits_without_need)
{
    const int64_t second_ns = 1000000000;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        CHECK(stop_during_sync(seed, 3 * second_ns) >= 3 * second_ns);
        CHECK(slow_syncs > 0);
        /* The machine steps from timer to timer, a second apart. */
        CHECK(stop_during_sync(seed, 0) <= 2 * second_ns);
    }
}

CHECK_MAIN()
