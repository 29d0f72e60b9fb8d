/* Hot logs that share a flush of their disk, and when they do not. Nothing here runs by itself: what the reactor has
 * started ends when the test says so. */
#include "replica/durable.h"
#include "replica/flush_group.h"
#include "tests/replica/hot_fixture.h"

enum { LOGS = 3, SMALL_BYTES = 1000, UNNAMED_FILE = 1000, DEVICE = 7, OTHER_DEVICE = 8, MANY = 1000 * PB_ROUND_APPEND };

static hot_fixture logs[LOGS];
static uint64_t devices[LOGS];
static pb_io_ops ops;
static pb_reactor reactor, other; /* most tests need one */
static pb_flush_group groups[PB_FLUSH_GROUPS], other_groups[PB_FLUSH_GROUPS];
static int claimed;         /* the log that `other` appends to as soon as an answer goes out; -1: none */
static pb_op *writes[LOGS]; /* started and not ended, oldest first */
static int64_t write_results[LOGS];
static pb_op *flush_op;
static int write_count, flush_count, durable_count; /* started by now */
static int ended_count, error_count, syncs_due, failure_count;
static int flushed_file;
static int unnamed_file; /* what a file without a name comes to */
static int made_count, closed_count;

static int pending(void)
{
    int count = 0;
    while (count < LOGS && writes[count] != NULL)
        count++;
    return count;
}

static int64_t start_write(pb_loop *loop, pb_op *op, int file, struct iovec *iov, int count, int64_t position)
{
    CHECK(loop == NULL && op->direct);
    int next = pending();
    CHECK(next < LOGS && flush_op == NULL); /* while they are flushed nobody writes here */
    writes[next] = op;
    write_results[next] = (op->durable ? fixture_ops->file_write_durable
                                       : fixture_ops->file_write)(reactor.io, file, iov, count, position);
    write_count++;
    durable_count += op->durable;
    return PB_IO_PENDING;
}

static void start_flush(pb_loop *loop, pb_op *op, int file)
{
    CHECK(loop == NULL && file >= 0 && flush_op == NULL);
    for (int i = 0; i < pending(); i++)
        CHECK(writes[i]->durable); /* what has not been written is not flushed */
    flush_op = op;
    flushed_file = file;
    flush_count++;
}

static uint64_t flush_device(pb_io *io, int file)
{
    CHECK(file >= 0);
    for (int i = 0; i < LOGS; i++)
        if (logs[i].f.io == io)
            return devices[i];
    check_fail(__FILE__, __LINE__, "whose file is it?");
}

static int make_unnamed(pb_io *io, const char *directory)
{
    if (strcmp(directory, "/tmp") != 0)
        return fixture_ops->file_make_unnamed(io, directory);
    made_count++;
    return unnamed_file;
}

static int close_file(pb_io *io, int file)
{
    if (file != UNNAMED_FILE)
        return fixture_ops->file_close(io, file);
    closed_count++;
    return 0;
}

/* The oldest write ends with `result`; 0: with what it came to. */
static void end_write(int64_t result)
{
    CHECK(writes[0] != NULL);
    pb_op *op = writes[0];
    if (result == 0)
        result = write_results[0];
    memmove(writes, writes + 1, sizeof writes - sizeof *writes);
    memmove(write_results, write_results + 1, sizeof write_results - sizeof *write_results);
    writes[LOGS - 1] = NULL;
    op->done(op, result);
}

static void end_flush(int64_t result)
{
    CHECK(flush_op != NULL);
    pb_op *op = flush_op;
    flush_op = NULL;
    op->done(op, result);
}

static void end_append(pb_partition_append_op *op, pb_reactor *here)
{
    CHECK(here == NULL || here == &reactor || here == &other);
    ended_count++;
    error_count += op->append.error != 0;
    free(op->append.bytes);
    free(op);
    int index = claimed;
    claimed = -1;
    if (index >= 0)
        hot_produce(&logs[index], &other, SMALL_BYTES, end_append);
}

static void note_sync(pb_partition *of)
{
    CHECK(of->syncing);
    syncs_due++;
}

static void note_failure(pb_partition *of, enum pb_partition_failure what, int error)
{
    CHECK(of->broken && what == PB_SYNC_FAILED && error < 0);
    failure_count++;
}

static void make_reactor(pb_reactor *it, pb_flush_group *its_groups)
{
    memset(it, 0, sizeof *it);
    memset(its_groups, 0, PB_FLUSH_GROUPS * sizeof *its_groups);
    it->flush_groups = its_groups;
    pb_list_init(&it->flush);
}

/* Logs with zeros where the next batches go; `round_appends` is what goes with each of their rounds, on average. */
static void begin(int64_t round_appends, uint64_t device)
{
    claimed = -1;
    unnamed_file = -EMFILE;
    make_reactor(&reactor, groups);
    make_reactor(&other, other_groups);
    for (int i = 0; i < LOGS; i++) {
        devices[i] = device;
        hot_init(&logs[i]);
        ops = *fixture_ops;
        ops.write_start = start_write;
        ops.flush_start = start_flush;
        ops.file_make_unnamed = make_unnamed;
        ops.file_close = close_file;
        ops.file_flush_device = flush_device;
        ops.starts_durable_writes = true;
        reactor.io = logs[i].f.io;
        hot_start(&logs[i], &ops, 64 << 20);
        pb_partition *partition = logs[i].partition;
        partition->sync_due = note_sync;
        partition->failed = note_failure;
        hot_come_to_zeros(&logs[i], &reactor, end_append);
        partition->round_appends = round_appends;
    }
    other.io = reactor.io;
    reactor.thread = other.thread = (pb_thread *)&reactor;
    write_count = flush_count = durable_count = ended_count = error_count = syncs_due = failure_count = 0;
    made_count = closed_count = 0;
}

static void end(void)
{
    CHECK(pending() == 0 && flush_op == NULL);
    CHECK(reactor.holds == 0 && other.holds == 0 && reactor.rounds == 0 && other.rounds == 0);
    for (int i = 0; i < LOGS; i++)
        hot_end(&logs[i]);
}

static void end_turn(void)
{
    CHECK(!pb_flush_groups_start(&reactor));
}

/* Until nothing is under way; each end is a turn. */
static void end_all(void)
{
    while (pending() > 0 || flush_op != NULL) {
        if (pending() > 0)
            end_write(0);
        else
            end_flush(0);
        end_turn();
    }
}

static void produce(int index)
{
    hot_produce(&logs[index], &reactor, SMALL_BYTES, end_append);
}

/* Each log gets a batch, and the turn ends. */
static void produce_to_all(void)
{
    for (int i = 0; i < LOGS; i++)
        produce(i);
    CHECK_INT(write_count, 0);
    end_turn();
}

TEST(many_appends_are_written_together_and_end_with_one_flush)
{
    begin(MANY, DEVICE);
    produce_to_all();
    CHECK(pending() == LOGS && durable_count == 0);
    for (int i = 0; i < LOGS; i++) {
        CHECK_INT(flush_count, 0);
        end_write(0);
    }
    CHECK(flush_count == 1 && ended_count == 0);
    CHECK(pb_log_durable_end(logs[0].f.log) < pb_log_written_end(logs[0].f.log));
    end_flush(0);
    CHECK(ended_count == LOGS && error_count == 0);
    for (int i = 0; i < LOGS; i++)
        CHECK_INT(pb_log_durable_end(logs[i].f.log), pb_log_written_end(logs[i].f.log));
    end();
}

TEST(what_comes_during_a_shared_round_goes_with_the_next_one)
{
    begin(MANY, DEVICE);
    produce(0);
    produce(1);
    end_turn();
    CHECK_INT(pending(), 2);
    produce(0); /* once more, */
    produce(2); /* and one that was idle */
    end_turn();
    CHECK_INT(pending(), 2);
    end_write(0);
    end_write(0);
    end_flush(0);
    CHECK(ended_count == 2 && pending() == 0);
    end_turn();
    CHECK(pending() == 2 && durable_count == 0);
    end_write(0);
    end_write(0);
    end_flush(0);
    CHECK(ended_count == 4 && flush_count == 2 && error_count == 0);
    end();
}

TEST(one_that_is_due_alone_writes_durably_and_others_wait_for_its_end)
{
    begin(MANY, DEVICE);
    produce(0);
    end_turn();
    CHECK(pending() == 1 && durable_count == 1);
    produce(1);
    produce(2);
    end_turn();
    CHECK_INT(pending(), 1);
    end_write(0);
    CHECK(ended_count == 1 && pending() == 0);
    end_turn();
    CHECK(pending() == 2 && durable_count == 1);
    end_write(0);
    end_write(0);
    end_flush(0);
    CHECK(ended_count == LOGS && error_count == 0);
    end();
}

TEST(an_append_at_a_time_is_alone)
{
    begin(0, DEVICE);
    for (int i = 0; i < 2; i++) {
        produce(0);
        CHECK(reactor.disk_alone);
        end_turn();
        end_all();
    }
    produce(0);
    end_turn();
    produce(1); /* while another log's round is under way */
    CHECK(!reactor.disk_alone);
    end_turn();
    end_all();
    produce(0);
    CHECK(reactor.disk_alone);
    produce(0);
    CHECK(!reactor.disk_alone);
    end_turn();
    end_all();
    logs[0].partition->round_appends = 3 * PB_ROUND_APPEND; /* mostly there are more */
    produce(0);
    CHECK(!reactor.disk_alone);
    end_turn();
    end_all();
    end();
}

TEST(few_appends_wait_for_nobody)
{
    begin(0, DEVICE);
    produce_to_all();
    CHECK(pending() == LOGS && durable_count == LOGS);
    end_write(0);
    CHECK_INT(ended_count, 1);
    produce(0);
    end_turn();
    CHECK(pending() == LOGS && durable_count == LOGS + 1);
    while (pending() > 0)
        end_write(0);
    CHECK(ended_count == LOGS + 1 && flush_count == 0 && error_count == 0);
    end();
}

/* Each log gets a batch, and so many while that one is under way. */
static void produce_rounds(int batches)
{
    write_count = 0;
    produce_to_all();
    for (int i = 0; i < LOGS; i++)
        for (int j = 0; j < batches; j++)
            produce(i);
    end_all();
}

TEST(flushes_are_shared_while_many_appends_go_with_the_rounds_and_for_some_time_after)
{
    begin(0, DEVICE);
    for (int i = 0; i < 20; i++)
        produce_rounds(4);
    CHECK(durable_count > 20 && flush_count == 0);
    for (int i = 0; i < 20; i++)
        produce_rounds(16);
    CHECK(flush_count > 10);
    for (int i = 0; i < 20; i++)
        produce_rounds(0);
    int durable_before = durable_count, flushes_before = flush_count;
    reactor.now_ns += 2000000;
    produce_rounds(0); /* few, and many shortly before */
    CHECK(durable_count == durable_before && flush_count == flushes_before + 1);
    reactor.now_ns += 10000000;
    produce_rounds(0);
    CHECK(durable_count == durable_before + LOGS && flush_count == flushes_before + 1);
    CHECK_INT(error_count, 0);
    end();
}

TEST(a_flush_is_not_shared_with_logs_on_another_disk)
{
    begin(MANY, DEVICE);
    devices[2] = OTHER_DEVICE;
    atomic_store(&logs[2].f.log->hot->device, OTHER_DEVICE);
    produce_to_all();
    CHECK(pending() == LOGS && durable_count == 1);
    end_write(0);
    end_write(0);
    CHECK(flush_count == 1 && ended_count == 0);
    end_flush(0);
    CHECK_INT(ended_count, 2);
    end_write(0);
    CHECK(ended_count == LOGS && flush_count == 1);
    end();
}

static int64_t counted(pb_histogram *histogram)
{
    int64_t count = 0;
    for (int i = 0; i < PB_HISTOGRAM_BUCKETS; i++)
        count += atomic_load(&histogram->counts[i]);
    return count;
}

static void fill(int index, bool fills)
{
    logs[index].partition->flushing = logs[index].partition->filling = fills;
}

TEST(a_file_that_zeros_are_written_to_is_not_the_one_that_is_flushed)
{
    begin(MANY, DEVICE);
    fill(0, true);
    produce_to_all();
    end_all();
    CHECK_INT(flushed_file, logs[1].f.log->hot->file);
    fill(0, false);
    end();
}

TEST(a_round_beside_zeros_flushes_a_file_that_nobody_writes_to)
{
    for (int many = 0; many < 2; many++) {
        begin(many * MANY, DEVICE);
        unnamed_file = UNNAMED_FILE;
        fill(0, true);
        produce(0);
        end_turn();
        CHECK(pending() == 1 && durable_count == 0);
        produce(1); /* beside it, with a round of its own, or after it */
        end_turn();
        CHECK(pending() == (many ? 1 : 2) && durable_count == !many);
        end_write(0);
        CHECK(flush_count == 1 && flushed_file == UNNAMED_FILE && ended_count == 0);
        end_flush(0);
        CHECK_INT(ended_count, 1);
        end_turn();
        end_all();
        CHECK(ended_count == 2 && durable_count == 1 && flush_count == 1 && error_count == 0);
        CHECK_INT(counted(&reactor.counters.shared_sync_us), 0);
        CHECK_INT(counted(&reactor.counters.sync_us), 2);
        fill(0, false);
        produce(0); /* the disk does both in one go, where nothing else is to be written */
        end_turn();
        CHECK(pending() == 1 && durable_count == 2);
        end_all();
        end();
    }
}

TEST(a_shared_round_flushes_a_file_that_nobody_writes_to)
{
    begin(MANY, DEVICE);
    unnamed_file = UNNAMED_FILE;
    produce_to_all();
    end_all();
    CHECK(flush_count == 1 && flushed_file == UNNAMED_FILE && ended_count == LOGS && error_count == 0);
    CHECK(counted(&reactor.counters.shared_sync_us) == 1 && counted(&reactor.counters.sync_us) == 0);
    write_count = 0;
    produce_to_all();
    while (pending() > 0)
        end_write(-EIO);
    CHECK(flush_count == 1 && ended_count == 2 * LOGS && error_count == LOGS);
    end();
}

TEST(the_file_that_nobody_writes_to_is_a_new_one_each_hour)
{
    begin(MANY, DEVICE);
    unnamed_file = UNNAMED_FILE;
    produce_to_all();
    end_all();
    write_count = 0;
    produce_to_all();
    CHECK(made_count == 1 && closed_count == 0);
    reactor.now_ns += 3700 * 1000000000LL;
    produce(0); /* while the flush is to come */
    CHECK_INT(made_count, 1);
    end_all();
    CHECK(made_count == 2 && closed_count == 1 && flushed_file == UNNAMED_FILE);
    pb_flush_groups_close(&reactor);
    CHECK(closed_count == 2 && error_count == 0);
    end();
}

TEST(after_a_flush_that_failed_no_file_is_kept)
{
    begin(MANY, DEVICE);
    unnamed_file = UNNAMED_FILE;
    produce_to_all();
    while (pending() > 0)
        end_write(0);
    end_flush(-EIO);
    CHECK(closed_count == 1 && error_count == LOGS);
    pb_flush_groups_close(&reactor);
    CHECK_INT(closed_count, 1);
    end();
}

/* So many batches of a log with a round of its own are let go, and one has come meanwhile. */
static void answer(int batches)
{
    for (int i = 0; i < batches; i++)
        produce(0);
    end_turn();
    produce(0);
    end_turn();
    end_write(0);
    CHECK_INT(pending(), 0);
}

/* So many connections have something to send. */
static void mark_connections(int count)
{
    static pb_link connections[64];
    pb_list_init(&reactor.flush);
    for (int i = 0; i < count; i++)
        pb_list_push_back(&reactor.flush, &connections[i]);
}

TEST(the_next_round_begins_when_the_answers_to_the_last_one_have_been_sent)
{
    enum { ANSWERS = 3 * PB_FLUSHES_BESIDE_DISK };
    begin(MANY, DEVICE);
    answer(ANSWERS);
    for (int left = ANSWERS; left > 0; left -= PB_FLUSHES_BESIDE_DISK) {
        mark_connections(left);
        CHECK(pb_flush_groups_start(&reactor) && pending() == 0);
    }
    mark_connections(0);
    end_turn();
    CHECK_INT(pending(), 1);
    end_all();
    CHECK(ended_count == ANSWERS + 1 && error_count == 0);
    end();
}

TEST(the_next_round_waits_no_longer_than_the_answers_take)
{
    enum { ANSWERS = 3 * PB_FLUSHES_BESIDE_DISK };
    begin(MANY, DEVICE);
    answer(ANSWERS);
    mark_connections(40); /* of others too, who always have something to send */
    for (int i = 0; i < ANSWERS / PB_FLUSHES_BESIDE_DISK; i++)
        CHECK(pb_flush_groups_start(&reactor) && pending() == 0);
    end_turn();
    CHECK_INT(pending(), 1);
    end_all();
    CHECK(ended_count == ANSWERS + 1 && error_count == 0);
    end();
}

TEST(the_next_round_does_not_wait_for_a_few_answers)
{
    begin(MANY, DEVICE);
    answer(PB_FLUSHES_BESIDE_DISK - 1);
    mark_connections(40);
    end_turn();
    CHECK_INT(pending(), 1);
    end_all();
    answer(40); /* by a few connections */
    mark_connections(PB_FLUSHES_BESIDE_DISK - 1);
    end_turn();
    CHECK_INT(pending(), 1);
    end_all();
    end();
}

/* As soon as answers go out another reactor appends to a log whose round has just ended. */
static void hand_over(int64_t round_appends)
{
    begin(round_appends, DEVICE);
    produce_to_all();
    for (int i = 0; i < LOGS - 1; i++)
        end_write(0);
    claimed = LOGS - 1;
    end_write(0);
    if (flush_op != NULL)
        end_flush(0);
    CHECK(ended_count == LOGS && reactor.holds == 0 && other.holds == 1);
    end_turn();
    CHECK_INT(pending(), 0);
    pb_flush_groups_start(&other);
    end_all();
    CHECK(ended_count == LOGS + 1 && error_count == 0);
    end();
}

TEST(a_log_goes_over_to_another_reactor_after_a_shared_round)
{
    hand_over(MANY);
    CHECK_INT(flush_count, 1);
}

TEST(a_log_goes_over_to_another_reactor_after_a_round_of_its_own)
{
    hand_over(0);
    CHECK_INT(flush_count, 0);
}

TEST(where_the_file_system_is_not_known_each_log_flushes_for_itself)
{
    begin(MANY, 0);
    for (int i = 0; i < LOGS; i++)
        produce(i);
    CHECK(pending() == LOGS && durable_count == LOGS);
    while (pending() > 0)
        end_write(0);
    CHECK(ended_count == LOGS && flush_count == 0 && error_count == 0);
    end();
}

TEST(a_flush_that_fails_fails_all_that_shared_it)
{
    begin(MANY, DEVICE);
    produce_to_all();
    while (pending() > 0)
        end_write(0);
    end_flush(-EIO);
    CHECK(ended_count == LOGS && error_count == LOGS && failure_count == LOGS);
    for (int i = 0; i < LOGS; i++)
        CHECK(pb_log_failed(logs[i].f.log));
    end();
}

TEST(a_write_that_fails_or_is_short_fails_its_own_log_only)
{
    begin(MANY, DEVICE);
    produce_to_all();
    end_write(-EIO);
    end_write(PB_DIRECT_BLOCK_BYTES / 2);
    end_write(0);
    CHECK_INT(flush_count, 1);
    end_flush(0);
    CHECK(ended_count == LOGS && error_count == 2 && failure_count == 2);
    CHECK(pb_log_failed(logs[0].f.log) && pb_log_failed(logs[1].f.log) && !pb_log_failed(logs[2].f.log));
    end();
}

TEST(when_all_writes_fail_nothing_is_flushed)
{
    begin(MANY, DEVICE);
    produce_to_all();
    while (pending() > 0)
        end_write(-EIO);
    CHECK(flush_count == 0 && ended_count == LOGS && error_count == LOGS);
    end();
}

TEST(what_the_kernel_puts_off_is_started_again)
{
    begin(MANY, DEVICE);
    produce_to_all();
    end_write(-EAGAIN);
    CHECK(pending() == LOGS && write_count == LOGS + 1 && durable_count == 0);
    while (pending() > 0)
        end_write(0);
    end_flush(-EAGAIN);
    CHECK_INT(flush_count, 2);
    end_flush(0);
    CHECK(ended_count == LOGS && error_count == 0);
    end();
}

TEST(a_lone_write_that_the_kernel_puts_off_is_started_again)
{
    begin(0, DEVICE);
    produce_to_all();
    end_write(-EAGAIN);
    CHECK(pending() == LOGS && durable_count == LOGS + 1 && ended_count == 0);
    end_all();
    CHECK(ended_count == LOGS && flush_count == 0 && error_count == 0);
    end();
}

TEST(a_round_that_cannot_begin_is_a_threads_and_the_reactor_lets_go_of_it)
{
    begin(MANY, DEVICE);
    produce(0);
    produce(1);
    logs[0].partition->flushing = true; /* by somebody who does more than write zeros */
    end_turn();
    CHECK(pending() == 1 && syncs_due == 1 && reactor.holds == 1);
    logs[0].partition->flushing = false;
    hot_sync_by_thread(&logs[0]);
    end_all();
    CHECK(ended_count == 2 && error_count == 0);
    end();
}

TEST(nobody_else_flushes_a_log_between_its_write_and_the_shared_flush)
{
    begin(MANY, DEVICE);
    produce_to_all();
    while (pending() > 0)
        end_write(0);
    pb_partition *partition = logs[0].partition;
    int64_t gathered_bytes = pb_log_gathered_bytes(logs[0].f.log);
    partition->flushing = true;
    partition->readers++;
    CHECK(!pb_partition_flush(partition, NULL).again);
    CHECK(gathered_bytes > 0 && pb_log_gathered_bytes(logs[0].f.log) == gathered_bytes);
    end_flush(0);
    CHECK(ended_count == LOGS && error_count == 0);
    end();
}

TEST(logs_with_large_rounds_share_no_flush)
{
    begin(MANY, DEVICE);
    atomic_store(&logs[0].f.log->hot->round_bytes, PB_LARGE_ROUND_BYTES);
    produce(0);
    CHECK(pending() == 1 && durable_count == 1); /* at once, too */
    produce(1);
    produce(2);
    end_turn();
    CHECK(pending() == LOGS && durable_count == 1);
    end_all();
    CHECK(ended_count == LOGS && flush_count == 1 && error_count == 0);
    end();
}

TEST(a_member_without_memory_is_synced_by_a_thread)
{
    begin(MANY, DEVICE);
    produce_to_all();
    end_write(-ENOMEM);
    end_write(0);
    end_write(0);
    end_flush(0);
    CHECK(ended_count == LOGS - 1 && syncs_due == 1);
    hot_sync_by_thread(&logs[0]);
    CHECK(ended_count == LOGS && error_count == 0 && failure_count == 0);
    end();
}

CHECK_MAIN()
