/* The writer of a hot log that found no room in the ring: it is sent on, whatever becomes of what it waits for. Nothing
 * here runs by itself: the syncer, the flusher and the reactor are the test's. */
#include "replica/durable.h"
#include "tests/replica/hot_fixture.h"

enum {
    SMALL_BYTES = 1000,
    LARGE_BYTES = 100000, /* more than the ring takes */
};

static hot_fixture h;
static pb_io_ops ops;
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
        return fixture_ops->file_write(h.f.io, file, iov, count, position);
    CHECK(started == NULL);
    started = op;
    started_result = fixture_ops->file_write_durable(h.f.io, file, iov, count, position);
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
    hot_init(&h);
    ops = *fixture_ops;
    ops.loop_wake = wake_nobody;
    ops.write_start = start_write;
    ops.starts_durable_writes = true;
    hot_start(&h, &ops, segment_bytes);
    partition = h.partition;
    partition->sync_due = note_sync;
    partition->flush_due = note_flush;
    partition->failed = note_failure;
    memset(&reactor, 0, sizeof reactor);
    reactor.io = h.f.io;
    syncs_due = flushes_due = failure_count = ended_count = start_count = 0;
    started = NULL;
}

/* A segment ends where zeros would begin. */
static void begin_without_zeros(void)
{
    begin(HOT_UNZEROED_BYTES);
}

static void end(void)
{
    CHECK_INT(reactor.holds, 0);
    hot_end(&h);
}

static void produce(int value_length)
{
    hot_produce(&h, &reactor, value_length, end_append);
}

static void sync_by_thread(void)
{
    hot_sync_by_thread(&h);
}

TEST(a_writer_is_sent_on_when_the_round_that_it_waits_for_cannot_begin)
{
    begin_without_zeros();
    produce(SMALL_BYTES);
    CHECK_INT(syncs_due, 1);
    produce(LARGE_BYTES);
    CHECK(partition->waits && flushes_due == 0);
    char path[128];
    snprintf(path, sizeof path, "%s/00000000000000000000.log", h.f.directory);
    CHECK_INT(unlink(path), 0);
    pb_log_guard guard = pb_partition_guard(partition);
    CHECK_INT(pb_log_upkeep(h.f.log, &guard, 1, NULL), -ESTALE);
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
    hot_come_to_zeros(&h, &reactor, end_append);
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
