/* The writer of a hot log that found no room in the ring: it is sent on, whatever becomes of what it waits for. Nothing
 * here runs by itself: the syncer, the flusher and the reactor are the test's. */
#include "replica/append.h"
#include "replica/durable.h"
#include "tests/log/log_fixture.h"

enum {
    RING_BYTES = 64 << 10,
    SMALL_BYTES = 1000,
    LARGE_BYTES = 100000, /* more than the ring takes */
    MEDIUM_BYTES = 20000,
    UNZEROED_BYTES = 1 << 20, /* so many come before the first that zeros are written for */
};

static fixture f;
static pb_io_ops ops;
static pb_ring_identity identity;
static char rings[64];
static pb_reactor reactor;
static pb_partition *partition;
static int syncs_due, flushes_due, failure_count, ended_count, last_error;
static pb_op *started; /* a durable write that has not ended */
static int64_t started_result;
static int start_count, starts_at_end; /* by now, and when the last append ended */

static void note_sync(pb_partition *of)
{
    CHECK(of == partition);
    syncs_due++;
}

static void note_flush(pb_partition *of)
{
    CHECK(of == partition);
    flushes_due++;
}

static void note_failure(pb_partition *of, enum pb_partition_failure what, int error)
{
    CHECK(of == partition && what == PB_SYNC_FAILED && error < 0);
    failure_count++;
}

static void wake_nobody(pb_loop *loop)
{
    CHECK(loop == NULL);
}

static int64_t start_write(pb_loop *loop, pb_op *op, int file, struct iovec *iov, int count, int64_t position)
{
    CHECK(loop == NULL && op != NULL);
    if (!op->durable)
        return fixture_ops->file_write(f.io, file, iov, count, position);
    CHECK(started == NULL);
    started = op;
    started_result = fixture_ops->file_write_durable(f.io, file, iov, count, position);
    start_count++;
    return PB_IO_PENDING;
}

static void end_write(void)
{
    pb_op *op = started;
    CHECK(op != NULL);
    started = NULL;
    op->done(op, started_result);
}

static void end_append(pb_partition_append_op *op, pb_reactor *here)
{
    CHECK(here == NULL || here == &reactor);
    ended_count++;
    last_error = op->append.error;
    starts_at_end = start_count;
    free(op->append.bytes);
    free(op);
}

static void begin(int64_t segment_bytes)
{
    fixture_init(&f);
    ops = *fixture_ops;
    ops.loop_wake = wake_nobody;
    ops.write_start = start_write;
    ops.starts_durable_writes = true;
    f.io->ops = &ops;
    strcpy(rings, "/dev/shm/pb-hot-test-XXXXXX");
    CHECK(mkdtemp(rings) != NULL);
    const pb_ring_pool_options options = {
        .io = f.io, .directory = rings, .budget_bytes = 1 << 20, .ring_bytes = RING_BYTES};
    const uint8_t directory_id[PB_RING_UUID_BYTES] = {7};
    CHECK_INT(pb_ring_pool_open(&options, &f.options.rings, NULL), 0);
    CHECK_INT(pb_ring_pool_add_log_dir(f.options.rings, "/tmp", directory_id), 0);
    strcpy(identity.topic, "t");
    f.options.ring_identity = &identity;
    f.options.config.segment_bytes = segment_bytes;
    fixture_open(&f);
    CHECK_INT(pb_log_heat(f.log, &f.guard), 0);
    const pb_partition_rules rules = {.min_insync_replicas = 1, .durable_acks = true};
    partition = pb_partition_create(f.io, "t", FIXTURE_TOPIC_ID, 0, f.log, &rules);
    partition->sync_due = note_sync;
    partition->flush_due = note_flush;
    partition->failed = note_failure;
    pb_partition_start_leading(partition, 0);
    memset(&reactor, 0, sizeof reactor);
    reactor.io = f.io;
    syncs_due = flushes_due = failure_count = ended_count = start_count = 0;
    started = NULL;
}

/* A segment ends where zeros would begin. */
static void begin_without_zeros(void)
{
    begin(UNZEROED_BYTES);
}

/* Nobody has it any more: it can be taken. */
static void end(void)
{
    CHECK_INT(reactor.holds, 0);
    CHECK(pb_partition_take_log(partition) == f.log);
    pb_partition_release(partition);
    (void)pb_log_close(f.log, true, NULL);
    f.log = NULL;
    pb_ring_pool_close(f.options.rings);
    fixture_remove(rings);
    fixture_free(&f);
}

static void produce(int value_length)
{
    pb_append *append = append_make((batch_spec){.timestamp = 1000, .value_length = value_length});
    pb_partition_append_op *op = calloc(1, sizeof *op);
    op->append = *append;
    pb_list_init(&op->append.link);
    op->done = end_append;
    free(append);
    bool must_pump;
    CHECK_INT(pb_partition_append_batch(partition, op, &must_pump), 0);
    CHECK(must_pump);
    pb_partition_pump(partition, &reactor);
}

/* A round as a thread makes it. */
static void sync_by_thread(void)
{
    pb_log_sync_round round;
    CHECK(pb_partition_sync_begin(partition, &round));
    int result = pb_partition_sync_run(partition, &round, NULL);
    CHECK_INT(result, 0);
    CHECK(!pb_partition_sync_end(partition, &round, result).again);
}

TEST(a_writer_is_sent_on_when_the_round_that_it_waits_for_cannot_begin)
{
    begin_without_zeros();
    produce(SMALL_BYTES);
    CHECK_INT(syncs_due, 1);
    produce(LARGE_BYTES);
    CHECK(partition->waits && flushes_due == 0);
    char path[128];
    snprintf(path, sizeof path, "%s/00000000000000000000.log", f.directory);
    CHECK_INT(unlink(path), 0);
    pb_log_guard guard = pb_partition_guard(partition);
    CHECK_INT(pb_log_upkeep(f.log, &guard, 1, NULL), -ESTALE);
    pb_log_sync_round round;
    CHECK(!pb_partition_sync_begin(partition, &round));
    pb_reactor_drain(&reactor);
    CHECK_INT(ended_count, 2);
    CHECK(last_error != 0 && failure_count == 1);
    end();
}

TEST(a_writer_is_sent_on_when_syncs_that_were_stopped_may_begin_again)
{
    begin_without_zeros();
    pb_durable_stop_syncs(partition); /* as for a roll, which cannot be while somebody writes */
    produce(LARGE_BYTES);
    CHECK(partition->waits && flushes_due == 0);
    pb_durable_allow_syncs(partition);
    pb_reactor_drain(&reactor);
    CHECK(partition->waits && flushes_due == 1);
    CHECK(pb_partition_flush(partition, NULL).again);
    CHECK(!pb_partition_flush(partition, NULL).again);
    pb_reactor_drain(&reactor);
    CHECK_INT(syncs_due, 1);
    sync_by_thread();
    CHECK_INT(ended_count, 1);
    CHECK_INT(last_error, 0);
    end();
}

/* On a reactor that runs, with zeros where the next batches go: their syncs are its writes. */
static void begin_with_zeros(void)
{
    begin(64 << 20);
    pb_log_guard guard = pb_partition_guard(partition);
    CHECK_INT(pb_log_write_zeros(f.log, &guard, NULL), 0);
    while (pb_log_active(f.log)->size_bytes < UNZEROED_BYTES) {
        produce(MEDIUM_BYTES);
        sync_by_thread();
    }
    reactor.thread = (pb_thread *)&reactor;
    syncs_due = ended_count = 0;
}

TEST(what_gathered_is_being_written_when_the_answers_of_the_last_round_go)
{
    begin_with_zeros();
    produce(SMALL_BYTES);
    CHECK_INT(start_count, 1);
    produce(SMALL_BYTES);
    produce(SMALL_BYTES);
    CHECK(start_count == 1 && ended_count == 0);
    end_write();
    CHECK(ended_count == 1 && starts_at_end == 2);
    end_write();
    CHECK(ended_count == 3 && last_error == 0);
    CHECK(start_count == 2 && started == NULL && syncs_due == 0);
    end();
}

TEST(a_round_for_which_there_is_no_memory_is_tried_again_by_a_thread)
{
    begin_with_zeros();
    produce(SMALL_BYTES);
    started_result = -ENOMEM;
    end_write();
    CHECK(ended_count == 0 && start_count == 1);
    CHECK_INT(syncs_due, 1);
    sync_by_thread();
    CHECK(ended_count == 1 && last_error == 0 && failure_count == 0);
    end();
}

TEST(a_reactor_that_has_ended_starts_no_write)
{
    begin_with_zeros();
    reactor.thread = NULL;
    produce(SMALL_BYTES);
    CHECK_INT(start_count, 0);
    CHECK_INT(syncs_due, 1);
    sync_by_thread();
    CHECK_INT(ended_count, 1);
    end();
}

CHECK_MAIN()
