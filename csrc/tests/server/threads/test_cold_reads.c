/* History into memory: shares, read-ahead and what is given back, on the simulated machine with its reads counted. */
#include "log/segment/segment.h"
#include "server/threads/cold_reads.h"
#include "tests/sim/sim_broker.h"

#define MIB (1 << 20)
#define CALLS 4096

enum { SEGMENT_BYTES = 256 * MIB, CACHE_BYTES = PB_HISTORY_LEAST_BYTES };

/* What was read of the files, in order. */
static struct call {
    int64_t position;
    int64_t length;
} brought[CALLS];
static int brought_count;
static int64_t resident_below_position;

static int64_t count_read(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    (void)io;
    CHECK(file >= 0 && brought_count < CALLS);
    CHECK((uintptr_t)buffer % PB_DIRECT_BLOCK_BYTES == 0);
    brought[brought_count++] = (struct call){position, (int64_t)length};
    return (int64_t)length;
}

static int count_brought_in(pb_io *io, int file, int64_t position, int64_t length)
{
    (void)io;
    CHECK(file >= 0 && brought_count < CALLS);
    brought[brought_count++] = (struct call){position, length};
    return 0;
}

static int say_resident(pb_io *io, int file, int64_t position, int64_t length)
{
    (void)io;
    CHECK(file >= 0);
    return position + length <= resident_below_position;
}

typedef struct fixture {
    pb_io *io;
    const pb_io_ops *real_ops;
    pb_io_ops ops;
    pb_partition *partition;
    pb_log_slice slice; /* the whole of a file that the log does not know of */
    pb_cold_reads reads;
} fixture;

static void begin(fixture *it)
{
    memset(it, 0, sizeof *it);
    brought_count = 0;
    resident_below_position = 0;
    CHECK_INT(pb_io_sim_open(1, &it->io), 0);
    it->real_ops = it->io->ops;
    it->ops = *it->io->ops;
    it->ops.file_resident = say_resident;
    CHECK_INT(it->io->ops->directory_make(it->io, "/data"), 0);
    pb_partition_rules rules = sim_rules(false);
    pb_log *log = sim_open_log(it->io, "/data/t-0", MIB, true);
    it->partition = pb_partition_create(it->io, "t", sim_topic_id, 0, log, &rules);
    pb_segment *segment = pb_segment_new(it->io, "/data/t-0", 1000);
    CHECK(segment != NULL);
    char path[PB_LOG_PATH_BYTES];
    CHECK_INT(pb_segment_path(path, "/data/t-0", 1000, PB_FILE_LOG, ""), 0);
    segment->file = it->io->ops->file_open(it->io, path, PB_OPEN_WRITE | PB_OPEN_CREATE);
    it->slice = (pb_log_slice){.segment = segment,
                               .file = segment->file,
                               .length = SEGMENT_BYTES,
                               .ahead_position = SEGMENT_BYTES,
                               .sealed = true};
    it->ops.file_read = count_read;
    it->ops.file_bring_in = count_brought_in;
    it->io->ops = &it->ops;
    pb_cold_reads_init(&it->reads, it->io, CACHE_BYTES);
    CHECK_INT(pb_cold_reads_start(&it->reads, NULL), 0);
    pb_sim_settle(it->io);
}

static void end(fixture *it)
{
    pb_cold_reads_stop(&it->reads);
    pb_cold_reads_destroy(&it->reads);
    pb_failure failure = {0};
    if (it->partition->log != NULL)
        CHECK_INT(pb_log_close(it->partition->log, true, &failure), 0);
    it->partition->log = NULL;
    CHECK_INT(atomic_load(&it->partition->references), 1);
    pb_partition_release(it->partition);
    CHECK_INT(atomic_load(&it->slice.segment->references), 1);
    pb_segment_release(it->slice.segment);
    it->io->ops = it->real_ops;
    it->io->ops->close(it->io);
}

/* A reader of so many pieces. */
typedef struct reader {
    pb_cold_read read;
    fixture *it;
    int64_t position;
    int left;
    int finished_at; /* how many pieces had been read in all by then */
} reader;

static bool piece(pb_cold_read *read)
{
    reader *self = PB_CONTAINER(read, reader, read);
    fixture *it = self->it;
    CHECK(self->left > 0);
    CHECK_INT(pb_cold_reads_bring_in(&it->reads, &it->slice, self->position, MIB), 0);
    self->position += MIB;
    self->finished_at = brought_count;
    return --self->left > 0;
}

static reader reader_of(fixture *it, int64_t position, int pieces)
{
    return (reader){.read.piece = piece, .it = it, .position = position, .left = pieces};
}

TEST(who_asks_for_little_does_not_wait_for_who_asks_for_much)
{
    fixture it;
    begin(&it);
    reader large[PB_COLD_THREADS], small = reader_of(&it, 200LL * MIB, 1);
    for (int i = 0; i < PB_COLD_THREADS; i++) {
        large[i] = reader_of(&it, (int64_t)i * 30 * MIB, 20);
        pb_cold_reads_submit(&it.reads, &large[i].read);
    }
    while (brought_count < 8)
        CHECK(pb_sim_step(it.io));
    pb_cold_reads_submit(&it.reads, &small.read);
    pb_sim_settle(it.io);
    /* Each of the large ones at most once more, and what was under way. */
    CHECK(small.left == 0 && small.finished_at <= 8 + 2 * PB_COLD_THREADS + 1);
    int first = CALLS, last = 0;
    for (int i = 0; i < PB_COLD_THREADS; i++) {
        CHECK_INT(large[i].left, 0);
        first = large[i].finished_at < first ? large[i].finished_at : first;
        last = large[i].finished_at > last ? large[i].finished_at : last;
    }
    CHECK(last - first <= 4 * PB_COLD_THREADS); /* equal shares end together */
    CHECK_INT(brought_count, 20 * PB_COLD_THREADS + 1);
    end(&it);
}

TEST(history_makes_room_for_history_and_takes_nothing_else)
{
    fixture it;
    begin(&it);
    resident_below_position = 50LL * MIB; /* what others have in memory */
    reader one = reader_of(&it, 0, 200);
    pb_cold_reads_submit(&it.reads, &one.read);
    pb_sim_settle(it.io);
    CHECK_INT(brought_count, 150);
    CHECK(pb_history_holds(it.slice.segment, 150LL * MIB, 50LL * MIB));
    CHECK(!pb_history_holds(it.slice.segment, 100LL * MIB, MIB));
    int64_t dropped_bytes = atomic_load(&it.reads.history.dropped_bytes);
    CHECK(dropped_bytes >= 150LL * MIB - CACHE_BYTES && dropped_bytes <= 150LL * MIB - CACHE_BYTES / 2);
    CHECK_INT(atomic_load(&it.reads.history.read_bytes), 150LL * MIB);
    end(&it);
}

TEST(what_is_brought_in_again_is_not_read_again)
{
    fixture it;
    begin(&it);
    for (int round = 0; round < 10; round++) {
        reader one = reader_of(&it, 0, 20);
        pb_cold_reads_submit(&it.reads, &one.read);
        while (one.left > 0) /* settled, the machine would move the clock to where all is forgotten */
            CHECK(pb_sim_step(it.io));
    }
    CHECK_INT(brought_count, 20);
    end(&it);
}

TEST(what_nobody_comes_to_for_long_is_given_back)
{
    fixture it;
    begin(&it);
    reader one = reader_of(&it, 0, 20);
    pb_cold_reads_submit(&it.reads, &one.read);
    while (one.left > 0)
        CHECK(pb_sim_step(it.io));
    CHECK_INT(it.reads.history.held_bytes, 20 * MIB);
    int64_t read_ns = it.io->ops->monotonic_ns(it.io);
    while (it.reads.history.held_bytes > 0) {
        CHECK_INT(it.reads.history.held_bytes + atomic_load(&it.reads.history.dropped_bytes), 20 * MIB);
        (void)pb_sim_step(it.io); /* time moves when all sleep */
        CHECK(it.io->ops->monotonic_ns(it.io) <= read_ns + 2 * PB_HISTORY_IDLE_NS);
    }
    CHECK(it.io->ops->monotonic_ns(it.io) >= read_ns + PB_HISTORY_IDLE_NS);
    pb_sim_settle(it.io);
    CHECK_INT(it.reads.history.buffers.spare_count, 0);
    CHECK_INT(it.reads.history.buffers.clean_count, 20);
    end(&it);
}

/* A slice of the file, for a reader that comes to it. Whether it went on where one was before. */
static bool come_to(fixture *it, int64_t position, int64_t length, bool was_cold)
{
    pb_log_slice slice = it->slice;
    slice.position = position;
    slice.length = length;
    bool goes_on = pb_cold_reads_follow(&it->reads, it->partition, &slice, was_cold);
    pb_sim_settle(it->io);
    return goes_on;
}

TEST(who_goes_on_where_one_was_before_is_known)
{
    fixture it;
    begin(&it);
    CHECK(!come_to(&it, 10 * MIB, MIB, false)); /* nobody reads history yet */
    CHECK(!come_to(&it, 11 * MIB, MIB, true));
    CHECK(come_to(&it, 12 * MIB, MIB, true));
    CHECK(come_to(&it, 13 * MIB, MIB, false));
    CHECK(!come_to(&it, 50LL * MIB, MIB, false)); /* in memory, and nobody has come to it from what was not */
    CHECK(!come_to(&it, 51LL * MIB, MIB, false));
    CHECK(!come_to(&it, 14 * MIB, 1000, false)); /* as little as there is at the tail */
    end(&it);
}

TEST(who_reads_in_order_is_read_ahead_of_in_bounds)
{
    fixture it;
    begin(&it);
    come_to(&it, 7 * MIB, MIB, false); /* nobody reads history: nothing is followed */
    come_to(&it, 8 * MIB, MIB, false);
    come_to(&it, 10 * MIB, MIB, true);
    CHECK_INT(brought_count, 0);              /* it may be the only one */
    come_to(&it, 11 * MIB - 1000, MIB, true); /* the batch that was cut off comes again */
    CHECK_INT(brought_count, 3);
    CHECK_INT(brought[0].position, 12 * MIB - PB_DIRECT_BLOCK_BYTES);
    CHECK_INT(brought[0].length, PB_DIRECT_BLOCK_BYTES); /* from there on in whole pieces */
    CHECK_INT(brought[2].position, 13 * MIB);
    CHECK_INT(brought[2].length, MIB);
    come_to(&it, 12 * MIB - 2000, 40000, false); /* in memory thanks to that */
    CHECK_INT(brought_count, 4);
    CHECK_INT(brought[3].position, 14 * MIB);
    come_to(&it, 12 * MIB + 6000, 100000, false);
    CHECK_INT(brought_count, 4); /* too little to go on for */
    come_to(&it, 12 * MIB + 90000, MIB, false);
    CHECK_INT(brought_count, 5);
    CHECK_INT(brought[4].position, 15 * MIB);
    come_to(&it, 100LL * MIB, MIB, true); /* elsewhere: another reader */
    come_to(&it, 50LL * MIB, MIB, true);
    CHECK_INT(brought_count, 5);
    end(&it);
}

TEST(who_finds_all_in_memory_is_not_looked_ahead_of_any_more)
{
    fixture it;
    begin(&it);
    come_to(&it, 10 * MIB, MIB, true);
    CHECK(come_to(&it, 11 * MIB, MIB, true));
    CHECK_INT(brought_count, 3); /* up to 15 MiB */
    resident_below_position = 40LL * MIB;
    int64_t position = 12 * MIB;
    while (position < 60LL * MIB && come_to(&it, position, MIB, false))
        position += MIB;
    CHECK_INT(position, 28 * MIB); /* 16 MiB from 15 MiB on, found while 3 MiB behind them was read */
    CHECK_INT(brought_count, 3);
    CHECK(!come_to(&it, 40LL * MIB, MIB, true)); /* followed again from the first wait on */
    CHECK(come_to(&it, 41LL * MIB, MIB, true));
    CHECK_INT(brought_count, 6);
    end(&it);
}

TEST(what_is_not_in_memory_now_and_then_is_looked_for)
{
    fixture it;
    begin(&it);
    come_to(&it, 10 * MIB, MIB, true);
    int64_t position = 11 * MIB;
    for (; position < 100LL * MIB && come_to(&it, position, MIB, false); position += MIB)
        resident_below_position = position % (10 * MIB) == 0 ? 0 : INT64_MAX;
    CHECK_INT(position, 100LL * MIB);
    end(&it);
}

TEST(nothing_is_read_ahead_behind_what_may_be_read)
{
    fixture it;
    begin(&it);
    it.slice.ahead_position = 12 * MIB + 100;
    come_to(&it, 10 * MIB, MIB, true);
    come_to(&it, 11 * MIB, MIB, true);
    CHECK_INT(brought_count, 1);
    CHECK_INT(brought[0].position, 12 * MIB);
    CHECK_INT(brought[0].length, PB_DIRECT_BLOCK_BYTES); /* the block that the last byte lies in */
    come_to(&it, 12 * MIB, 100, true);
    CHECK_INT(brought_count, 1);
    end(&it);
}

/* Three times through twice what is kept, which is so quickly read that the page cache shall have it. */
static void go_through_thrice(fixture *it)
{
    for (int round = 0; round < 3; round++) {
        reader one = reader_of(it, 0, 2 * CACHE_BYTES / MIB);
        brought_count = 0;
        pb_cold_reads_submit(&it->reads, &one.read);
        pb_sim_settle(it->io);
        CHECK_INT(one.left, 0);
    }
}

static void check_brought(int index, int64_t position, int64_t length)
{
    CHECK_INT(brought[index].position, position);
    CHECK_INT(brought[index].length, length);
}

TEST(what_the_page_cache_gets_comes_in_large_pages_where_nobody_writes)
{
    static const uint8_t ring[PB_DIRECT_BLOCK_BYTES];
    fixture it;
    begin(&it);
    go_through_thrice(&it);
    check_brought(3, 2 * MIB, 2 * MIB);
    check_brought(30, 30 * MIB, 2 * MIB);
    end(&it);
    begin(&it);
    it.slice.sealed = false;
    go_through_thrice(&it);
    check_brought(3, 3 * MIB, MIB);
    pb_tail_attach(it.slice.segment, ring, sizeof ring, it.slice.ahead_position);
    go_through_thrice(&it);
    check_brought(3, 3 * MIB, MIB);
    pb_tail_detach(it.slice.segment);
    end(&it);
}

TEST(nothing_is_read_ahead_while_others_wait)
{
    fixture it;
    begin(&it);
    reader waiting[2 * PB_COLD_THREADS];
    come_to(&it, 10 * MIB, MIB, true);
    for (int i = 0; i < 2 * PB_COLD_THREADS; i++) {
        waiting[i] = reader_of(&it, (int64_t)(100 + 10 * i) * MIB, 5);
        pb_cold_reads_submit(&it.reads, &waiting[i].read);
    }
    come_to(&it, 11 * MIB, MIB, true);
    int first_ahead = 0;
    while (first_ahead < brought_count && brought[first_ahead].position >= 100LL * MIB)
        first_ahead++;
    CHECK(brought_count > 2 * PB_COLD_THREADS * 5);
    CHECK(first_ahead >= 2 * PB_COLD_THREADS * 5 - PB_COLD_THREADS);
    end(&it);
}

CHECK_MAIN()
