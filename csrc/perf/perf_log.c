/*
 * Measures the cost of a log: appends and reads at the tail, recovery, and many open logs. Prints one figure per line.
 *
 *     perf_log <directory>     a directory that may be filled with 1 GiB; it is emptied again
 *
 * Figures are CPU time of this process unless they say wall; run it on a quiet machine, name machine and file system.
 */
#include <string.h>

#include "perf/perf_fixture.h"

enum { LOG_COUNT = 1000, LOG_SEGMENTS = 5 };

static pb_io *io;

static void batch_fill(uint8_t *bytes, size_t length)
{
    memset(bytes, 'x', length);
    pb_batch_header header = {
        .size_bytes = (uint32_t)length,
        .last_offset_delta = 0,
        .base_timestamp = 1,
        .max_timestamp = 1,
        .producer_id = -1,
        .producer_epoch = -1,
        .base_sequence = -1,
        .record_count = 1,
        .magic = PB_BATCH_MAGIC,
    };
    pb_batch_write(bytes, &header);
}

/* Append and write one batch. */
static void append_one(pb_log *log, pb_append *append, uint8_t *bytes, size_t length)
{
    *append = (pb_append){.bytes = bytes, .length = (uint32_t)length, .record_count = 1, .producer_id = -1};
    append_and_write(io, log, append);
}

static void measure_appends(const char *directory, size_t length, int count)
{
    pb_log_recovery recovery;
    pb_failure failure;
    pb_log *log = open_log(io, directory, 1 << 30, false, true, &recovery);
    uint8_t *bytes = malloc(length);
    pb_append append;
    batch_fill(bytes, length);
    double wall = seconds(CLOCK_MONOTONIC);
    double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < count; i++)
        append_one(log, &append, bytes, length);
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    wall = seconds(CLOCK_MONOTONIC) - wall;
    double gigabytes = (double)length * count / 1e9;
    printf("append %zu B: %.2f us/batch, %.2f CPU s/GB, %.0f MB/s wall\n", length, cpu / count * 1e6, cpu / gigabytes,
           gigabytes * 1e3 / wall);
    int64_t end = pb_log_written_end(log);
    pb_log_slice slice;
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < 1000000; i++) {
        if (pb_log_read(log, NULL, end, 1 << 20, end, true, &slice) != 0 || slice.segment != NULL)
            abort();
    }
    printf("read at the end: %.0f ns\n", (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e3);
    append_one(log, &append, bytes, length);
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < 1000000; i++) {
        if (pb_log_read(log, NULL, end, 1 << 20, end + 1, true, &slice) != 0 || slice.length != (int64_t)length)
            abort();
        pb_segment_release(slice.segment);
    }
    printf("read of the last batch: %.0f ns\n", (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e3);
    uint64_t random = 1;
    must(pb_log_upkeep(log, NULL, 0, &failure), &failure);
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < 100000; i++) {
        random = random * UINT64_C(6364136223846793005) + 1;
        if (pb_log_read(log, NULL, (int64_t)(random >> 33) % end, 1 << 20, end, true, &slice) != 0)
            abort();
        pb_segment_release(slice.segment);
    }
    printf("read at a random offset: %.0f ns\n", (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e4);
    must(pb_log_close(log, false, &failure), &failure);
    wall = seconds(CLOCK_MONOTONIC);
    log = open_log(io, directory, 1 << 30, false, false, &recovery);
    wall = seconds(CLOCK_MONOTONIC) - wall;
    printf("recovery of %.2f GB in batches of %zu B: %.3f s wall\n", (double)recovery.scanned_bytes / 1e9, length,
           wall);
    must(pb_log_close(log, false, &failure), &failure);
    free(bytes);
}

static long resident_kib(void)
{
    long size = 0;
    long resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &size, &resident) != 2)
        abort();
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void measure_many(const char *directory)
{
    static pb_log *logs[LOG_COUNT];
    static char paths[LOG_COUNT][512];
    pb_log_recovery recovery;
    pb_failure failure;
    pb_append append;
    uint8_t bytes[1024];
    batch_fill(bytes, sizeof(bytes));
    for (int i = 0; i < LOG_COUNT; i++) {
        snprintf(paths[i], sizeof(paths[i]), "%s/many-%d", directory, i);
        logs[i] = open_log(io, paths[i], 8 * sizeof(bytes), false, true, &recovery);
        for (int batch = 0; batch < 8 * LOG_SEGMENTS; batch++)
            append_one(logs[i], &append, bytes, sizeof(bytes));
        must(pb_log_upkeep(logs[i], NULL, 0, &failure), &failure);
        must(pb_log_close(logs[i], true, &failure), &failure);
    }
    long before = resident_kib();
    double wall = seconds(CLOCK_MONOTONIC);
    for (int i = 0; i < LOG_COUNT; i++)
        logs[i] = open_log(io, paths[i], 8 * sizeof(bytes), false, true, &recovery);
    wall = seconds(CLOCK_MONOTONIC) - wall;
    printf("%d logs of %d segments: opened in %.3f s wall, %ld KiB more resident\n", LOG_COUNT,
           (int)recovery.segment_count, wall, resident_kib() - before);
    for (int i = 0; i < LOG_COUNT; i++) {
        must(pb_log_close(logs[i], false, &failure), &failure);
        empty(paths[i]);
        rmdir(paths[i]);
    }
}

int main(int argument_count, char **arguments)
{
    if (argument_count != 2) {
        fprintf(stderr, "usage: perf_log <directory>\n");
        return 2;
    }
    io = open_io();
    measure_many(arguments[1]);
    static const size_t LENGTHS[] = {1024, 16384, 262144};
    for (int i = 0; i < (getenv("QUICK") ? 0 : 3); i++) {
        measure_appends(arguments[1], LENGTHS[i], (int)((size_t)(i == 0 ? 512 << 20 : 1000 << 20) / LENGTHS[i]));
        empty(arguments[1]);
    }
    io->ops->close(io);
    return 0;
}
