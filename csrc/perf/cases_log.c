/* Cases of log/: appends, reads, look-ups, producers' state. Owns a log in a directory of its own; see cases.h. */
#include <string.h>

#include "log/derived/producer_state.h"
#include "log/engine/tail_ring.h"
#include "perf/cases.h"
#include "perf/perf_fixture.h"
#include "record/batch.h"

enum {
    RECORDS = 10,
    VALUE_BYTES = 100,
    READ_BATCHES = 4000, /* some hundred index entries */
    PRODUCERS = 1000,
    EMPTY_AFTER_BYTES = 256 << 20, /* the log that is appended to begins anew */
    RING_BYTES = 32 << 20,         /* enough for what is timed: flushing is other threads' work */
    FLUSH_BYTES = 30 << 20,
};

static pb_io *io;
static pb_log *log_;
static char directory[64];
static char rings[64];
static uint8_t *bytes;
static uint32_t length;
static int64_t now_ms;
static pb_producers producers;

static void guard_nothing(void *context)
{
    (void)context;
}

static const pb_log_guard GUARD = {guard_nothing, guard_nothing, NULL};

static void start_log(void)
{
    pb_log_recovery recovery;
    log_ = open_log(io, directory, 1 << 30, false, true, &recovery);
}

static void end_log(void)
{
    pb_failure failure;
    must(pb_log_close(log_, false, &failure), &failure);
    empty(directory);
}

/* The directory, files and clock that a log needs. */
static void set_up(void)
{
    io = open_io();
    strcpy(directory, "/tmp/pb-perf-XXXXXX");
    PERF_MUST(mkdtemp(directory) != NULL);
    bytes = perf_batch(RECORDS, VALUE_BYTES, 0, &length);
    now_ms = 1000;
}

static void take_down(void)
{
    PERF_MUST(rmdir(directory) == 0);
    free(bytes);
    io->ops->close(io);
}

static void open_empty(void)
{
    set_up();
    start_log();
}

static void close_log(void)
{
    end_log();
    take_down();
}

static pb_append next_append(void)
{
    now_ms += 10;
    return (pb_append){.bytes = bytes,
                       .length = length,
                       .record_count = RECORDS,
                       .max_timestamp_ms = now_ms,
                       .max_timestamp_offset_delta = RECORDS - 1,
                       .producer_id = -1,
                       .base_sequence = -1};
}

/* One batch through the whole of it, as a cold log does: offsets, the write, what becomes visible. */
static void run_append(uint64_t calls)
{
    for (uint64_t i = 0; i < calls; i++) {
        pb_append append = next_append();
        append_and_write(io, log_, &append);
        if (pb_log_size_bytes(log_) > EMPTY_AFTER_BYTES) {
            end_log();
            start_log();
        }
    }
}

/* ---- a hot log: batches go into a ring, which others flush ---- */

static pb_ring_pool *pool;
static pb_ring_identity identity = {.topic = "perf"};

static void open_hot(void)
{
    pb_log_recovery recovery;
    pb_failure failure;
    const uint8_t directory_id[PB_RING_UUID_BYTES] = {1};
    static const uint8_t TOPIC_ID[PB_RING_UUID_BYTES] = {2};
    set_up();
    strcpy(rings, "/dev/shm/pb-perf-XXXXXX");
    PERF_MUST(mkdtemp(rings) != NULL);
    const pb_ring_pool_options pool_options = {
        .io = io, .directory = rings, .budget_bytes = RING_BYTES + (1 << 20), .ring_bytes = RING_BYTES};
    must(pb_ring_pool_open(&pool_options, &pool, &failure), &failure);
    PERF_MUST(pb_ring_pool_add_log_dir(pool, "/tmp", directory_id) == 0);
    pb_log_options options = log_options(io, directory, 1 << 30);
    options.topic_id = TOPIC_ID;
    options.rings = pool;
    options.ring_identity = &identity;
    must(pb_log_open(&options, &log_, &recovery, &failure), &failure);
    pb_append append = next_append();
    append_and_write(io, log_, &append);
    must(pb_log_heat(log_, &GUARD), NULL);
}

static void close_hot(void)
{
    end_log();
    pb_ring_pool_close(pool);
    take_down();
}

static void run_append_hot(uint64_t calls)
{
    pb_failure failure;
    for (uint64_t i = 0; i < calls; i++) {
        pb_append append = next_append();
        pb_log_write write;
        append_and_begin(log_, &append, &write);
        end_write(log_, &write, pb_log_write_ring(log_, &write));
        if (pb_log_gathered_bytes(log_) > FLUSH_BYTES)
            must(pb_log_flush(log_, &GUARD, &failure), &failure);
    }
}

/* ---- reads ---- */

static void open_filled(void)
{
    pb_failure failure;
    open_empty();
    for (int i = 0; i < READ_BATCHES; i++) {
        pb_append append = next_append();
        append.log_append_time = true; /* or all batches would carry the same timestamps */
        append.now_ms = now_ms;
        append_and_write(io, log_, &append);
    }
    /* Index entries lie in their files from here on. */
    must(pb_log_upkeep(log_, NULL, 0, &failure), &failure);
}

static void read_at(int64_t offset, int64_t end)
{
    pb_log_slice slice;
    PERF_MUST(pb_log_read(log_, NULL, offset, 64 << 10, end, true, &slice) == 0 && slice.length > 0);
    pb_segment_release(slice.segment);
}

static void run_read_tail(uint64_t calls)
{
    int64_t end = pb_log_written_end(log_);
    for (uint64_t i = 0; i < calls; i++)
        read_at(end - RECORDS, end);
}

/* Through the offset index. Always the same offsets. */
static void run_read_by_index(uint64_t calls)
{
    int64_t end = pb_log_written_end(log_);
    uint32_t random = 1;
    for (uint64_t i = 0; i < calls; i++) {
        random = random * 1664525U + 1013904223U;
        read_at((int64_t)(random >> 8) % (end - RECORDS * 100), end);
    }
}

static void run_read_by_time(uint64_t calls)
{
    int64_t end = pb_log_written_end(log_);
    pb_log_position position;
    uint32_t random = 1;
    for (uint64_t i = 0; i < calls; i++) {
        random = random * 1664525U + 1013904223U;
        int64_t timestamp_ms = 1000 + (int64_t)(random >> 8) % (now_ms - 1000);
        must(pb_log_offset_for_timestamp(log_, &GUARD, timestamp_ms, end, &position), NULL);
        PERF_MUST(position.offset >= 0);
    }
}

/* ---- idempotent producers ---- */

static void open_producers(void)
{
    memset(&producers, 0, sizeof(producers));
}

static void close_producers(void)
{
    pb_producers_clear(&producers);
}

/* The sequences of a thousand producers, in turns: check, then apply. */
static void run_producer_check(uint64_t calls)
{
    static int32_t next_sequence[PRODUCERS];
    static int64_t next_offset;
    if (producers.count == 0)
        memset(next_sequence, 0, sizeof(next_sequence));
    for (uint64_t i = 0; i < calls; i++) {
        uint64_t producer = i % PRODUCERS;
        const pb_producer_append append = {.producer_id = (int64_t)producer,
                                           .base_offset = next_offset,
                                           .last_offset = next_offset + RECORDS - 1,
                                           .max_timestamp_ms = 1000,
                                           .base_sequence = next_sequence[producer],
                                           .record_count = RECORDS};
        pb_producer_batch duplicate;
        PERF_MUST(pb_producers_check(&producers, &append, &duplicate) == 0);
        PERF_MUST(pb_producers_apply(&producers, &append, NULL) == 0);
        next_sequence[producer] = pb_sequence_add(next_sequence[producer], RECORDS);
        next_offset += RECORDS;
    }
}

const perf_case PERF_LOG_CASES[] = {
    {"append", open_empty, run_append, close_log, RECORDS *VALUE_BYTES, false},
    {"append_hot", open_hot, run_append_hot, close_hot, RECORDS *VALUE_BYTES, false},
    {"read_tail", open_filled, run_read_tail, close_log, 0, false},
    {"read_by_index", open_filled, run_read_by_index, close_log, 0, false},
    {"read_by_time", open_filled, run_read_by_time, close_log, 0, false},
    {"producer_check", open_producers, run_producer_check, close_producers, 0, false},
    {0},
};
