/* The measuring runs over both real backends, with a few KiB each: what they did, not how fast. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cpu/crc32c.h"
#include "measure/bare_server.h"
#include "measure/cpu_work.h"
#include "measure/exchange.h"
#include "measure/frame.h"
#include "measure/scratch.h"
#include "tests/check.h"

enum { BLOCK = 4096, BLOCKS = 16, REGION = BLOCK * BLOCKS };

static const int64_t second_ns = 1000000000;
static const char *backends[] = {"epoll", "io_uring"};
static char directory[64];

static pb_io *io_open(int backend)
{
    pb_io *io = NULL;
    pb_failure failure = {0};
    CHECK_INT(pb_io_open(backends[backend], &io, &failure), 0);
    return io;
}

static pb_meter_limits for_bytes(int64_t bytes)
{
    return (pb_meter_limits){20 * second_ns, bytes, NULL};
}

static int entries(const char *path)
{
    int count = 0;
    DIR *open = opendir(path);
    CHECK(open != NULL);
    for (struct dirent *entry; (entry = readdir(open)) != NULL;)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(open);
    return count;
}

static pb_meter_result measured(pb_scratch *scratch, pb_scratch_run run)
{
    pb_meter_result result;
    pb_failure failure = {0};
    CHECK_INT(pb_scratch_measure(scratch, &run, &result, &failure), 0);
    CHECK(result.operations > 0 && result.elapsed_ns > 0);
    CHECK(result.min_ns <= result.p50_ns && result.p50_ns <= result.p99_ns && result.p99_ns <= result.max_ns);
    return result;
}

static void with_scratch(void (*body)(pb_scratch *scratch))
{
    snprintf(directory, sizeof directory,
             "/var/tmp/pb-test-measure-XXXXXX"); /* not tmpfs, which has no direct writes */
    CHECK(mkdtemp(directory) != NULL);
    for (int backend = 0; backend < 2; backend++) {
        pb_io *io = io_open(backend);
        pb_scratch *scratch = NULL;
        pb_failure failure = {0};
        CHECK_INT(pb_scratch_create(io, directory, &scratch, &failure), 0);
        CHECK_INT(entries(directory), 0); /* while it is open */
        body(scratch);
        pb_scratch_destroy(scratch);
        io->ops->close(io);
    }
    CHECK_INT(rmdir(directory), 0);
}

static void write_and_read(pb_scratch *scratch)
{
    pb_scratch_run run = {.operation = PB_SCRATCH_WRITE, .block_bytes = BLOCK, .length = REGION};
    run.limits = for_bytes(2 * REGION);
    run.syncs_at_end = true;
    pb_meter_result result = measured(scratch, run);
    CHECK_INT(result.operations, 2 * BLOCKS);
    CHECK_INT(result.bytes, 2 * REGION);
    run.operation = PB_SCRATCH_READ;
    run.syncs_at_end = false;
    CHECK_INT(measured(scratch, run).bytes, 2 * REGION);
    run.is_random = true;
    CHECK_INT(measured(scratch, run).operations, 2 * BLOCKS);
    pb_failure failure = {0};
    CHECK_INT(pb_scratch_drop(scratch, &failure), 0);
    CHECK_INT(measured(scratch, run).operations, 2 * BLOCKS);
}

TEST(a_region_is_gone_over_again_and_again)
{
    with_scratch(write_and_read);
}

static void write_durably(pb_scratch *scratch)
{
    pb_scratch_run run = {.operation = PB_SCRATCH_WRITE, .block_bytes = BLOCK, .length = REGION, .is_direct = true};
    run.limits = for_bytes(REGION);
    CHECK_INT(measured(scratch, run).operations, BLOCKS);
    run.operation = PB_SCRATCH_WRITE_DURABLE;
    CHECK_INT(measured(scratch, run).operations, BLOCKS);
    run.operation = PB_SCRATCH_WRITE_SYNC;
    CHECK_INT(measured(scratch, run).bytes, REGION);
    run.operation = PB_SCRATCH_SYNC;
    run.limits = (pb_meter_limits){second_ns / 100, 0, NULL};
    CHECK_INT(measured(scratch, run).bytes, 0);
    run.operation = PB_SCRATCH_READ;
    run.limits = for_bytes(REGION);
    CHECK_INT(measured(scratch, run).operations, BLOCKS);
}

TEST(direct_and_durable_writes)
{
    with_scratch(write_durably);
}

static void write_paced(pb_scratch *scratch)
{
    pb_scratch_run run = {
        .operation = PB_SCRATCH_WRITE, .block_bytes = BLOCK, .length = 4 * REGION, .pace_bytes = 2 * BLOCK};
    run.limits = for_bytes(8 * REGION);
    CHECK_INT(measured(scratch, run).bytes, 8 * REGION);
}

TEST(writeback_follows_paced_writes)
{
    with_scratch(write_paced);
}

static void refuse(pb_scratch *scratch)
{
    pb_scratch_run run = {.operation = PB_SCRATCH_READ, .block_bytes = BLOCK, .length = REGION};
    run.limits = for_bytes(REGION);
    pb_meter_result result;
    pb_failure failure = {0};
    CHECK_INT(pb_scratch_measure(scratch, &run, &result, &failure), -ENODATA);
    CHECK(strstr(failure.text, directory) != NULL);
    run.length = REGION + 1;
    CHECK_INT(pb_scratch_measure(scratch, &run, &result, &failure), -EINVAL);
    run.length = REGION;
    run.is_direct = true;
    run.block_bytes = BLOCK / 8;
    CHECK_INT(pb_scratch_measure(scratch, &run, &result, &failure), -EINVAL);
    run.operation = 0;
    CHECK_INT(pb_scratch_measure(scratch, &run, &result, &failure), -EINVAL);
}

TEST(what_makes_no_sense_is_refused)
{
    with_scratch(refuse);
}

TEST(a_directory_that_is_not_there)
{
    pb_io *io = io_open(0);
    pb_scratch *scratch = NULL;
    pb_failure failure = {0};
    CHECK_INT(pb_scratch_create(io, "/nonexistent/dir", &scratch, &failure), -ENOENT);
    CHECK(strstr(failure.text, "/nonexistent/dir") != NULL);
    io->ops->close(io);
}

static void stop_at_once(pb_scratch *scratch)
{
    const int32_t stop = 1;
    pb_scratch_run run = {.operation = PB_SCRATCH_WRITE, .block_bytes = BLOCK, .length = REGION};
    run.limits = (pb_meter_limits){3600 * second_ns, 0, &stop};
    CHECK_INT(measured(scratch, run).operations, 1);
}

TEST(somebody_else_ends_a_run)
{
    with_scratch(stop_at_once);
}

TEST(every_implementation_of_crc32c_is_measured)
{
    pb_io *io = io_open(0);
    pb_failure failure = {0};
    pb_meter_result result;
    const char *before = pb_crc32c_selected();
    for (const char *const *name = pb_crc32c_names(); *name != NULL; name++)
        for (int kind = PB_CPU_WORK_CRC32C; kind <= PB_CPU_WORK_COPY_CRC32C; kind++) {
            pb_cpu_work work = {kind, *name, 1 << 12, for_bytes(1 << 20)};
            CHECK_INT(pb_cpu_work_run(io, &work, &result, &failure), 0);
            CHECK_INT(result.bytes, 1 << 20);
            CHECK_INT(result.operations, 1 << 8);
        }
    CHECK_STR(pb_crc32c_selected(), before);
    pb_cpu_work unknown = {PB_CPU_WORK_CRC32C, "abacus", 4096, for_bytes(1)};
    CHECK_INT(pb_cpu_work_run(io, &unknown, &result, &failure), -ENOTSUP);
    pb_cpu_work huge = {PB_CPU_WORK_COPY, NULL, 1LL << 40, for_bytes(1)};
    CHECK_INT(pb_cpu_work_run(io, &huge, &result, &failure), -EINVAL);
    io->ops->close(io);
}

TEST(latencies_fall_where_they_belong)
{
    pb_io *io = io_open(0);
    pb_meter meter;
    pb_meter_result result;
    pb_meter_limits limits = {second_ns, 0, NULL};
    pb_meter_start(&meter, io, &limits);
    for (int64_t ns = 1; ns <= 100000; ns++)
        pb_meter_add(&meter, 1, 0, ns);
    pb_meter_finish(&meter, &result);
    CHECK_INT(result.operations, 100000);
    CHECK_INT(result.min_ns, 1);
    CHECK_INT(result.max_ns, 100000);
    CHECK(labs(result.p50_ns - 50000) <= 1600);
    CHECK(labs(result.p99_ns - 99000) <= 3100);
    pb_meter_start(&meter, io, &limits);
    pb_meter_finish(&meter, &result);
    CHECK_INT(result.p50_ns, 0);
    pb_meter_add(&meter, 1, 0, INT64_MAX);
    pb_meter_finish(&meter, &result);
    CHECK_INT(result.p50_ns, INT64_MAX);
    io->ops->close(io);
}

TEST(frames_are_found_however_they_are_cut)
{
    uint8_t stream[600];
    size_t length = 0;
    for (int i = 0; i < 20; i++) {
        stream[length] = stream[length + 1] = stream[length + 2] = 0;
        stream[length + 3] = (uint8_t)i;
        memset(stream + length + 4, i, (size_t)i);
        length += 4 + (size_t)i;
    }
    for (size_t piece = 1; piece <= length; piece++) {
        pb_frame_reader reader = {0};
        int64_t frames = 0;
        for (size_t at = 0; at < length; at += piece)
            frames += pb_frame_read(&reader, stream + at, pb_frame_min((int64_t)piece, (int64_t)(length - at)));
        CHECK_INT(frames, 20);
        CHECK_INT(reader.head[18], 19);
    }
}

/* Frames to and fro on one backend; how many requests were answered. */
static int64_t exchanged(pb_io *io, const pb_bare_server_options *served, pb_exchange_options *options, int expected)
{
    pb_bare_server *server = NULL;
    pb_failure failure = {0};
    pb_meter_result result = {0};
    pb_bare_server_usage usage;
    CHECK_INT(pb_bare_server_start(io, served, &server, &options->port, &failure), 0);
    options->host = "127.0.0.1";
    CHECK_INT(pb_exchange_measure(io, options, &result, &failure), expected);
    pb_bare_server_stop(server, &usage);
    CHECK(usage.cpu_ns > 0 && usage.frames >= result.operations);
    return result.operations;
}

static const uint8_t frames[2][20] = {{0, 0, 0, 16, 'a'}, {0, 0, 0, 16, 'b'}};

static pb_exchange_options exchange_options(void)
{
    return (pb_exchange_options){
        .connection_count = 3,
        .in_flight = 5,
        .frames = frames[0],
        .frame_bytes = sizeof frames[0],
        .frame_count = 2,
        .counter_position = 12,
        .counter_step = 7,
        .counter_count = 3,
        .answer_min_bytes = 100,
        .limits = for_bytes(100 * 120),
    };
}

TEST(every_request_is_answered)
{
    for (int backend = 0; backend < 2; backend++) {
        pb_io *io = io_open(backend);
        pb_bare_server_options served = {.answer_bytes = 100};
        pb_exchange_options options = exchange_options();
        CHECK(exchanged(io, &served, &options, 0) >= 100);
        served.spin_ns = options.spin_ns = 20000;
        options.connection_count = options.in_flight = 1;
        CHECK_INT(exchanged(io, &served, &options, 0), 100);
        served.answer_bytes = 200000;
        options.connection_count = 4;
        options.limits.max_bytes = 50 * 200020;
        CHECK(exchanged(io, &served, &options, 0) >= 50);
        io->ops->close(io);
    }
}

TEST(answers_that_are_wrong_end_the_exchange)
{
    for (int backend = 0; backend < 2; backend++) {
        pb_io *io = io_open(backend);
        pb_bare_server_options served = {.answer_bytes = 99};
        pb_exchange_options options = exchange_options();
        CHECK_INT(exchanged(io, &served, &options, -EPROTO), 0);
        io->ops->close(io);
    }
}

static void send_the_file(pb_scratch *scratch)
{
    pb_scratch_run run = {.operation = PB_SCRATCH_WRITE, .block_bytes = 1 << 20, .length = 1 << 20};
    run.limits = for_bytes(1 << 20);
    (void)measured(scratch, run);
    pb_bare_server_options served = {.answer_bytes = 300000, .scratch = scratch, .scratch_bytes = 1 << 20};
    for (int backend = 0; backend < 2; backend++) {
        pb_io *io = io_open(backend);
        pb_exchange_options options = exchange_options();
        options.limits.max_bytes = 30 * 300000;
        options.error_position = -1;
        CHECK(exchanged(io, &served, &options, 0) >= 29);
        /* The file's bytes stand where an error code would. */
        uint8_t bytes[2];
        options.connection_count = 1;
        options.error_position = 4;
        CHECK_INT(pread(pb_scratch_file(scratch), bytes, sizeof bytes, options.error_position), 2);
        CHECK_INT(exchanged(io, &served, &options, (int16_t)(bytes[0] << 8 | bytes[1])), 0);
        io->ops->close(io);
    }
}

TEST(answers_come_from_a_file)
{
    with_scratch(send_the_file);
}

TEST(nobody_listens)
{
    pb_io *io = io_open(0);
    pb_failure failure = {0};
    pb_meter_result result;
    pb_exchange_options options = exchange_options();
    options.host = "127.0.0.1";
    options.port = 1;
    CHECK_INT(pb_exchange_measure(io, &options, &result, &failure), -ECONNREFUSED);
    CHECK(strstr(failure.text, "127.0.0.1:1") != NULL);
    options.connection_count = 0;
    CHECK_INT(pb_exchange_measure(io, &options, &result, &failure), -EINVAL);
    io->ops->close(io);
}

CHECK_MAIN()
