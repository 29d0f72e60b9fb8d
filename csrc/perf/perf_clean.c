/*
 * Measures the cost of cleaning: a log of random keys is written, rolled and cleaned once. Prints one figure per line.
 *
 *     perf_clean <directory> [MiB of values] [codec, Kafka's number] [records in a batch] [keys per 100 records]
 *
 * The directory is emptied again. With 0 MiB the log that lies there is cleaned and stays. CPU figures are of this
 * process; run it on a quiet machine.
 */
#include <string.h>

#include "log/clean/clean.h"
#include "perf/perf_fixture.h"

enum { VALUE_BYTES = 1024, WORDS = 512 };

static pb_io *io;
static uint64_t random_state = 88172645463325252u;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Text of random words: zstd makes about a third of it. */
static void fill_value(uint8_t *value)
{
    static char words[WORDS][12];
    if (words[0][0] == '\0') {
        for (int i = 0; i < WORDS; i++) {
            for (int k = 0; k < 11; k++)
                words[i][k] = (char)('a' + next_random() % 26);
        }
    }
    for (int at = 0; at < VALUE_BYTES;) {
        uint64_t random = next_random();
        int length = 4 + (int)(random >> 40) % 8;
        if (length > VALUE_BYTES - at)
            length = VALUE_BYTES - at;
        memcpy(value + at, words[random % WORDS], (size_t)length);
        at += length;
    }
}

static void append_batch(pb_log *log, pb_codec *codec, int compression, int records, uint64_t keys, uint8_t *plain,
                         uint8_t *bytes, size_t capacity, int64_t now_ms)
{
    uint8_t *end = plain;
    for (int i = 0; i < records; i++) {
        char key[32];
        uint8_t value[VALUE_BYTES];
        snprintf(key, sizeof(key), "key-%012llu", (unsigned long long)(next_random() % keys));
        fill_value(value);
        end = put_record(end, i, key, value, sizeof(value));
    }
    uint32_t length = put_batch(codec, compression, records, now_ms, plain, (size_t)(end - plain), bytes, capacity);
    pb_append append = {.bytes = bytes,
                        .length = length,
                        .record_count = records,
                        .max_timestamp_ms = now_ms + records - 1,
                        .producer_id = -1,
                        .now_ms = now_ms};
    append_and_write(io, log, &append);
}

static pb_log *make_log(const char *directory, int64_t mebibytes, int compression, int records, int key_percent)
{
    pb_failure failure;
    pb_log_recovery recovery;
    pb_log *log = open_log(io, directory, 1 << 30, true, true, &recovery);
    pb_codec *codec;
    must(pb_codec_create(&codec), NULL);
    size_t capacity = (size_t)records * (VALUE_BYTES + 64) + PB_BATCH_HEADER_BYTES + PB_COMPRESS_SLACK_BYTES;
    uint8_t *plain = malloc(capacity);
    uint8_t *bytes = malloc(capacity);
    int64_t record_count = mebibytes * (1 << 20) / VALUE_BYTES;
    uint64_t keys = (uint64_t)(record_count * key_percent / 100) + 1;
    for (int64_t done = 0; done < record_count; done += records)
        append_batch(log, codec, compression, records, keys, plain, bytes, capacity, 1000 + done);
    if (record_count > 0)
        must(pb_log_roll(log, NULL, &failure), &failure);
    must(pb_log_sync(log, NULL, &failure), &failure);
    free(plain);
    free(bytes);
    pb_codec_destroy(codec);
    return log;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    int64_t mebibytes = argc > 2 ? atoll(argv[2]) : 512;
    int compression = argc > 3 ? atoi(argv[3]) : PB_COMPRESSION_ZSTD;
    int records = argc > 4 ? atoi(argv[4]) : 16;
    int key_percent = argc > 5 ? atoi(argv[5]) : 20;
    pb_failure failure;
    io = open_io();
    pb_log *log = make_log(argv[1], mebibytes, compression, records, key_percent);
    printf("log_bytes %lld\n", (long long)pb_log_size_bytes(log));
    pb_clean_settings settings = {.upper_offset = pb_log_written_end(log),
                                  .syncs = true,
                                  .now_ms = 1,
                                  .delete_retention_ms = 86400000,
                                  .map_bytes = 128 << 20,
                                  .io_buffer_bytes = 512 << 10,
                                  .load_factor_percent = 90,
                                  .compression = -1};
    pb_clean_throttle throttle = {0};
    pb_clean_stats stats;
    double wall = seconds(CLOCK_MONOTONIC);
    double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    must(pb_log_clean(log, NULL, &settings, &throttle, &stats, &failure), &failure);
    printf("clean_cpu_s %.3f\nclean_wall_s %.3f\n", seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu,
           seconds(CLOCK_MONOTONIC) - wall);
    printf("read_records %lld\nkept_records %lld\nwritten_bytes %lld\nmap_entries %lld\n",
           (long long)stats.read_records, (long long)stats.kept_records, (long long)stats.written_bytes,
           (long long)stats.map_entries);
    must(pb_log_close(log, false, &failure), &failure);
    if (mebibytes > 0)
        empty(argv[1]);
    return 0;
}
