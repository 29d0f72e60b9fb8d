/* Hot logs through pybroker.h: producers that fill the ring, consumers beside them, rolls; on both real backends. */
#include <pthread.h>
#include <stdatomic.h>

#include <errno.h>

#include "record/batch.h"
#include "server/broker.h"
#include "tests/abi/serving.h"

enum { RING_BYTES = 512 << 10, SEGMENT_BYTES = 2 << 20, IN_FLIGHT = 8, MOST_BYTES = 200 << 10 };

/* A producer with several requests in flight; batches of changing sizes. */
typedef struct load {
    served *it;
    int batches;
    size_t bytes; /* of records, at most */
    atomic_int acked;
} load;

static void receive_one(load *self, mini_client *client)
{
    pb_produce_response produced;
    mini_client_receive_produce(client, 9, &produced);
    CHECK_INT(answer_of(&produced)->error_code, 0);
    CHECK_INT(answer_of(&produced)->base_offset, atomic_load(&self->acked));
    atomic_fetch_add(&self->acked, 1);
}

static void *produce_all(void *argument)
{
    load *self = argument;
    mini_client client;
    mini_client_open(&client, self->it->port);
    uint8_t *batch = malloc(self->bytes + 1024);
    for (int i = atomic_load(&self->acked); i < self->batches; i++) {
        size_t bytes = 1 + (size_t)i * 7919 % self->bytes;
        size_t length = mini_batch(batch, self->bytes + 1024, 1, bytes);
        if (i - atomic_load(&self->acked) == IN_FLIGHT)
            receive_one(self, &client);
        mini_client_send_produce(&client, 9, -1, "t", 0, batch, length);
    }
    while (atomic_load(&self->acked) < self->batches)
        receive_one(self, &client);
    free(batch);
    mini_client_close(&client);
    return NULL;
}

/* Check what a fetch at `offset` has brought; the next offset. */
static int64_t check_records(int64_t offset, const uint8_t *bytes, size_t length)
{
    size_t position = 0;
    while (position < length) {
        pb_batch_header header;
        if (pb_batch_parse(bytes + position, length - position, &header) != 0 || header.size_bytes == 0)
            break;
        CHECK_INT(header.base_offset, offset);
        CHECK(pb_batch_crc_matches(bytes + position, header.size_bytes));
        position += header.size_bytes;
        offset++;
    }
    return offset;
}

static void read_all(served *it, int64_t until, int64_t from)
{
    mini_client client;
    mini_client_open(&client, it->port);
    while (from < until) {
        pb_fetch_response fetched;
        mini_client_send_fetch(&client, 12, "t", 0, from, 1, 1000);
        mini_client_receive_fetch(&client, 12, &fetched);
        const pb_fetch_response_partition_data *data = &fetched.responses[0].partitions[0];
        CHECK_INT(data->error_code, 0);
        int64_t next = check_records(from, (const uint8_t *)data->records.data, (size_t)data->records.length);
        CHECK(next > from || data->records.length <= 0);
        from = next;
    }
    mini_client_close(&client);
}

static int hot_count(served *it)
{
    pb_broker_ring_stats stats;
    pb_broker_ring_stats_read(it->broker, &stats);
    return stats.taken_count;
}

static void *read_beside(void *argument)
{
    load *self = argument;
    read_all(self->it, self->batches, 0);
    return NULL;
}

static void run_load(load *self)
{
    pthread_t producer, consumer;
    CHECK_INT(pthread_create(&producer, NULL, produce_all, self), 0);
    CHECK_INT(pthread_create(&consumer, NULL, read_beside, self), 0);
    pthread_join(producer, NULL);
    pthread_join(consumer, NULL);
}

static void reopen(served *it, int64_t batches)
{
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_resign(it->partition, 0), 0);
    CHECK_INT(pb_partition_close(it->partition, 1, &failure), 0);
    CHECK_INT(hot_count(it), 0);
    open_partition(it, 1);
    read_all(it, batches, 0);
}

static void end_hot(served *it)
{
    stop(it);
    CHECK(access(it->rings, F_OK) != 0);
}

TEST(a_busy_log_becomes_hot_and_loses_nothing)
{
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        served it;
        serve_hot(&it, backends[i], PB_DURABILITY_NONE, RING_BYTES, SEGMENT_BYTES);
        load all = {.it = &it, .batches = 200, .bytes = MOST_BYTES};
        run_load(&all);
        CHECK_INT(hot_count(&it), 1);
        CHECK(pb_partition_segments(it.partition, NULL, 0) > 5);
        reopen(&it, all.batches);
        end_hot(&it);
    }
}

/* Be the thread that flushes. */
static void take_flushing(pb_partition *partition)
{
    for (bool taken = false; !taken;) {
        pthread_mutex_lock(&partition->lock);
        taken = !partition->flushing;
        if (taken) {
            partition->flushing = true;
            partition->readers++;
        }
        pthread_mutex_unlock(&partition->lock);
    }
}

static int64_t gathered_bytes(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    int64_t bytes = pb_log_gathered_bytes(partition->log);
    pthread_mutex_unlock(&partition->lock);
    return bytes;
}

TEST(a_log_of_which_much_has_gathered_leaves_others_their_turn)
{
    enum { TURN_BYTES = 2 << 20, LARGE_RING_BYTES = 8 << 20, LARGE_SEGMENT_BYTES = 64 << 20 };
    served it;
    serve_hot(&it, backends[0], PB_DURABILITY_NONE, LARGE_RING_BYTES, LARGE_SEGMENT_BYTES);
    load all = {.it = &it, .batches = 20, .bytes = MOST_BYTES};
    run_load(&all);
    CHECK_INT(hot_count(&it), 1);
    take_flushing(it.partition);
    all.batches += 60;
    run_load(&all);
    int64_t before = gathered_bytes(it.partition);
    CHECK(before > 2 * TURN_BYTES);
    int turns = 0;
    while (pb_partition_flush(it.partition, NULL).again) {
        int64_t after = gathered_bytes(it.partition);
        CHECK(after < before && before - after <= TURN_BYTES);
        before = after;
        turns++;
    }
    CHECK(turns >= 2 && before < TURN_BYTES);
    reopen(&it, all.batches);
    end_hot(&it);
}

TEST(a_hot_log_acknowledges_what_is_durable)
{
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        served it;
        serve_hot(&it, backends[i], PB_DURABILITY_ACKS, RING_BYTES, SEGMENT_BYTES);
        load all = {.it = &it, .batches = 200, .bytes = 30 << 10};
        run_load(&all);
        CHECK_INT(hot_count(&it), 1);
        pb_partition_state state;
        pb_partitions_state(&it.partition, 1, &state);
        CHECK_INT(state.durable_offset, all.batches);
        CHECK_INT(state.exposed_bytes, 0);
        reopen(&it, all.batches);
        end_hot(&it);
    }
}

static pb_io_ops watched;
static const pb_io_ops *usual;
static _Atomic(pb_partition *) rolled; /* NULL: nothing is to be rolled yet */
static atomic_bool has_rolled, met_write;

static void *roll(void *context)
{
    pb_native_failure failure = {0};
    int32_t result;
    while ((result = pb_partition_roll(context, &failure)) == -EBUSY) /* beside writes */
        usleep(100);
    CHECK_INT(result, 0);
    has_rolled = true;
    return NULL;
}

/* Could it be rolled at once, but for its syncs? */
static bool is_quiet(pb_partition *partition)
{
    pthread_mutex_lock(&partition->lock);
    bool quiet = !partition->writing && !pb_log_has_queued(partition->log);
    pthread_mutex_unlock(&partition->lock);
    return quiet;
}

/* Before the first durable write from the ring that a reactor starts while it is quiet otherwise. */
static int64_t write_beside_roll(pb_loop *loop, pb_op *op, int file, struct iovec *iov, int count, int64_t position)
{
    pb_partition *partition = rolled;
    if (op->durable && !met_write && partition != NULL && is_quiet(partition)) {
        pthread_t thread;
        met_write = true;
        CHECK_INT(pthread_create(&thread, NULL, roll, partition), 0);
        CHECK_INT(pthread_detach(thread), 0);
        usleep(300000);
        CHECK(!has_rolled);
    }
    return usual->write_start(loop, op, file, iov, count, position);
}

/* A roll gives the ring back, which the kernel may be writing from. */
TEST(a_hot_log_rolls_between_writes_that_make_it_durable)
{
    served it;
    prepare_hot(&it, "io_uring", PB_DURABILITY_ACKS, RING_BYTES, 1 << 30);
    usual = it.broker->io->ops;
    watched = *usual;
    watched.write_start = write_beside_roll;
    it.broker->io->ops = &watched;
    start_serving(&it);
    rolled = it.partition;
    load all = {.it = &it, .batches = 1500, .bytes = 30 << 10};
    run_load(&all);
    CHECK(met_write);
    for (int i = 0; i < 1000 && !has_rolled; i++)
        usleep(10000);
    CHECK(has_rolled);
    reopen(&it, all.batches);
    end_hot(&it);
}

TEST(a_batch_that_no_ring_takes_is_written_all_the_same)
{
    served it;
    serve_hot(&it, "epoll", PB_DURABILITY_NONE, 256 << 10, 1 << 30);
    load many = {.it = &it, .batches = 60, .bytes = 100 << 10};
    run_load(&many);
    CHECK_INT(hot_count(&it), 1);
    mini_client client;
    mini_client_open(&client, it.port);
    uint8_t *batch = malloc(1 << 20);
    size_t length = mini_batch(batch, 1 << 20, 1, 600 << 10);
    mini_client_send_produce(&client, 9, -1, "t", 0, batch, length);
    pb_produce_response produced;
    mini_client_receive_produce(&client, 9, &produced);
    CHECK_INT(answer_of(&produced)->error_code, 0);
    CHECK_INT(hot_count(&it), 0);
    read_all(&it, 61, 0);
    free(batch);
    mini_client_close(&client);
    end_hot(&it);
}

/* ---- a disk that fails ---- */

static atomic_bool disk_fails;
static int64_t (*write_whole)(pb_io *io, int file, const struct iovec *iov, int count, int64_t position);

static int64_t write_or_fail(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    return atomic_load(&disk_fails) ? -EIO : write_whole(io, file, iov, count, position);
}

static int (*truncate_whole)(pb_io *io, int file, int64_t size);

static int truncate_or_fail(pb_io *io, int file, int64_t size)
{
    return atomic_load(&disk_fails) ? -EIO : truncate_whole(io, file, size);
}

/* A broker on a disk of which `failing`, a copy of the table, is to be made to fail before it serves. */
static void prepare_failing(served *it, pb_io_ops *failing)
{
    prepare_hot(it, "epoll", PB_DURABILITY_NONE, 4 << 20, 1 << 30);
    *failing = *it->broker->io->ops;
    write_whole = failing->file_write;
    truncate_whole = failing->file_truncate;
    it->broker->io->ops = failing;
}

/* Serve until the log is hot; then the disk fails. How many batches were acknowledged. */
static int fail_when_hot(served *it)
{
    start_serving(it);
    load some = {.it = it, .batches = 60, .bytes = 60 << 10};
    run_load(&some);
    CHECK_INT(hot_count(it), 1);
    atomic_store(&disk_fails, true);
    return some.batches;
}

/* The next event of that kind. */
static pb_event wait_for_event(served *it, uint32_t kind)
{
    pb_event event = {0};
    while (!take_event(it, &event) || event.kind != kind)
        usleep(1000);
    return event;
}

/* Produce until it is refused; how many were acknowledged. */
static int64_t produce_until_refused(served *it)
{
    static uint8_t batch[64 << 10];
    size_t length = mini_batch(batch, sizeof batch, 1, 60 << 10);
    mini_client client;
    mini_client_open(&client, it->port);
    for (int64_t acked = 0;; acked++) {
        pb_produce_response produced;
        mini_client_send_produce(&client, 9, -1, "t", 0, batch, length);
        mini_client_receive_produce(&client, 9, &produced);
        if (answer_of(&produced)->error_code == 0)
            continue;
        CHECK_INT(answer_of(&produced)->error_code, PB_KAFKA_KAFKA_STORAGE_ERROR);
        mini_client_close(&client);
        return acked;
    }
}

/* The one ring file there is, brought into the log. */
static void replay_ring(served *it)
{
    char command[256];
    char path[128];
    snprintf(command, sizeof command, "ls %s/*.ring", it->rings);
    FILE *list = popen(command, "r");
    CHECK(list != NULL && fscanf(list, "%127s", path) == 1);
    pclose(list);
    char directory[128];
    snprintf(directory, sizeof directory, "%s/t-0", it->directory);
    int64_t moved_bytes;
    pb_native_failure failure = {0};
    CHECK_INT(pb_ring_file_replay(path, directory, 0, &moved_bytes, &failure), 0);
    CHECK(moved_bytes > 0);
}

static void expect_offline(served *it)
{
    pb_event event = wait_for_event(it, PB_EVENT_OFFLINE);
    CHECK(event.error == -EIO && event.offset == PB_OFFLINE_SYNC);
}

static int fetch_error(served *it)
{
    mini_client client;
    pb_fetch_response fetched;
    mini_client_open(&client, it->port);
    mini_client_send_fetch(&client, 12, "t", 0, 0, 1, 1000);
    mini_client_receive_fetch(&client, 12, &fetched);
    int error = fetched.responses[0].partitions[0].error_code;
    mini_client_close(&client);
    return error;
}

static void close_failed(served *it)
{
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_resign(it->partition, 0), 0);
    CHECK(pb_partition_close(it->partition, 1, &failure) < 0);
    atomic_store(&disk_fails, false);
}

TEST(what_was_acknowledged_outlives_a_disk_that_fails)
{
    served it;
    pb_io_ops failing;
    prepare_failing(&it, &failing);
    failing.file_write = write_or_fail;
    int64_t acked = fail_when_hot(&it);
    acked += produce_until_refused(&it);
    expect_offline(&it);
    CHECK_INT(fetch_error(&it), PB_KAFKA_KAFKA_STORAGE_ERROR);
    close_failed(&it);
    replay_ring(&it);
    open_partition(&it, 0);
    read_all(&it, acked, 0);
    stop(&it);
}

TEST(a_log_that_cannot_be_made_cold_is_offline)
{
    served it;
    pb_io_ops failing;
    prepare_failing(&it, &failing);
    failing.file_truncate = truncate_or_fail;
    int acked = fail_when_hot(&it);
    while (!pb_partition_ask_cool(it.partition))
        usleep(1000);
    pb_flush_submit(it.partition);
    expect_offline(&it);
    CHECK_INT(produce_until_refused(&it), 0);
    CHECK_INT(fetch_error(&it), PB_KAFKA_KAFKA_STORAGE_ERROR);
    close_failed(&it);
    open_partition(&it, 0);
    read_all(&it, acked, 0);
    stop(&it);
}

TEST(a_log_that_gets_no_ring_is_written_all_the_same_and_somebody_is_told)
{
    served it;
    serve_hot(&it, "epoll", PB_DURABILITY_NONE, 4 << 20, 1 << 30);
    CHECK_INT(rmdir(it.rings), 0);
    load some = {.it = &it, .batches = 60, .bytes = 60 << 10};
    run_load(&some);
    pb_event event = wait_for_event(&it, PB_EVENT_NOTICE);
    CHECK(strstr((const char *)(uintptr_t)event.body, "t-0 is written to steadily and stays paced") != NULL);
    pb_notice_release(event.handle);
    CHECK_INT(hot_count(&it), 0);
    end_hot(&it);
}

/* ---- rings that something else removes ---- */

static void run(const char *format, const char *directory)
{
    char command[256];
    /* NOLINTNEXTLINE(clang-diagnostic-format-nonliteral): literals of this file */
    snprintf(command, sizeof command, format, directory);
    CHECK_INT(system(command), 0);
}

static void expect_loss_told(served *it)
{
    pb_event event = wait_for_event(it, PB_EVENT_NOTICE);
    const char *text = (const char *)(uintptr_t)event.body;
    CHECK(strstr(text, "1 tail rings in ") != NULL && strstr(text, "were removed or replaced") != NULL);
    pb_notice_release(event.handle);
}

TEST(a_log_whose_ring_is_removed_goes_on_without_and_its_file_has_all)
{
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        served it;
        serve_hot(&it, backends[i], PB_DURABILITY_NONE, 4 << 20, 1 << 30);
        load some = {.it = &it, .batches = 60, .bytes = 60 << 10};
        run_load(&some);
        CHECK_INT(hot_count(&it), 1);
        run("rm -r %s", it.rings);
        load more = {.it = &it, .batches = 120, .bytes = 60 << 10, .acked = 60};
        run_load(&more);
        expect_loss_told(&it);
        CHECK_INT(hot_count(&it), 0);
        pb_partition_segment segment;
        CHECK_INT(pb_partition_segments(it.partition, &segment, 1), 1);
        CHECK_INT(segment.file_bytes, segment.size_bytes);
        read_all(&it, more.batches, 0);
        stop(&it);
    }
}

TEST(a_ring_that_was_replaced_is_left_alone_and_a_new_one_is_made)
{
    served it;
    serve_hot(&it, "epoll", PB_DURABILITY_NONE, 4 << 20, 2 << 20); /* found at a roll at the latest */
    load some = {.it = &it, .batches = 60, .bytes = 60 << 10};
    run_load(&some);
    CHECK_INT(hot_count(&it), 1);
    run("cd %s && for each in *.ring; do rm -f $each && echo garbage > $each; done", it.rings);
    load more = {.it = &it, .batches = 120, .bytes = 60 << 10, .acked = 60};
    run_load(&more);
    expect_loss_told(&it);
    read_all(&it, more.batches, 0);
    stop(&it);
    run("cd %s && grep -q garbage *.ring && rm *.ring && rmdir ../$(basename $PWD)", it.rings);
}

/* A notice with these words has come. */
static bool is_told(const served *it, const char *words)
{
    pb_event event;
    bool told = false;
    while (pb_broker_take_events(it->broker, &event, 1) == 1) {
        char text[1024];
        if (event.kind != PB_EVENT_NOTICE)
            continue;
        snprintf(text, sizeof text, "%.*s", (int)event.body_length, (const char *)event.body);
        pb_notice_release(event.handle);
        told = told || strstr(text, words) != NULL;
    }
    return told;
}

TEST(a_cut_that_a_ring_fills_up_with_zeros_is_told)
{
    served it;
    serve_hot(&it, backends[0], PB_DURABILITY_NONE, RING_BYTES, 64 << 20);
    load all = {.it = &it, .batches = 200, .bytes = MOST_BYTES};
    run_load(&all);
    CHECK_INT(hot_count(&it), 1);
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_check_files(it.partition, &failure), 0);
    (void)is_told(&it, "");
    char path[200];
    snprintf(path, sizeof path, "%s/t-0/00000000000000000000.log", it.directory);
    CHECK_INT(truncate(path, 1 << 20), 0);
    CHECK_INT(pb_partition_check_files(it.partition, &failure), 0);
    CHECK(is_told(&it, "something else has cut it"));
    end_hot(&it);
}

CHECK_MAIN()
