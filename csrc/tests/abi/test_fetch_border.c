/*
 * Fetches whose range begins in a segment's file and ends in the tail ring, with any part of the file out of memory: on
 * both real backends, over sizes, codecs and places. Each of them returns the batch that was asked for.
 */
#include <errno.h>
#include <fcntl.h>

#include "io/linux/posix.h"
#include "log/engine/hot.h"
#include "log/segment/segment.h"
#include "log/state.h"
#include "record/batch.h"
#include "server/broker.h"
#include "tests/abi/serving.h"
#include "tests/record/build_batch.h"

enum {
    MIB = 1 << 20,
    RING_BYTES = 2 * MIB,
    LOG_BYTES = 7 * MIB,
    MOST_BATCHES = 8192,
    IN_FLIGHT = 8,
    RECORD_BYTES = 1 << 10,
    PAGE_BYTES = 4096,
    LOOKED_AT_BYTES = 64 << 10, /* before a batch, to find it */
    ATTEMPTS = 3,               /* of a client that got nothing */
};

/* Batch i begins at its position and offset; so does the end of the log. */
static int64_t positions[MOST_BATCHES + 1];
static int64_t offsets[MOST_BATCHES + 1];
static int batch_count;

static batch_builder builder;

/* A batch of so many records of 1 KiB that compression makes little smaller. */
static void build(pb_codec *codec, int compression, int records, uint64_t seed)
{
    uint8_t value[RECORD_BYTES];
    build_begin(&builder);
    for (int i = 0; i < records; i++) {
        for (size_t k = 0; k < sizeof value; k++)
            value[k] = (uint8_t)(((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 57) + 'a');
        build_record(&builder, 1000 + i, NULL, value, RECORD_BYTES);
    }
    build_finish(&builder, codec, compression);
}

static void receive_produced(mini_client *client)
{
    pb_produce_response produced;
    mini_client_receive_produce(client, 9, &produced);
    CHECK_INT(answer_of(&produced)->error_code, 0);
}

/* A hot log of batches of so many records. */
static void fill(served *it, int compression, int records)
{
    mini_client client;
    pb_codec *codec;
    CHECK_INT(pb_codec_create(&codec), 0);
    mini_client_open(&client, it->port);
    int answered = 0;
    for (batch_count = 0; positions[batch_count] < LOG_BYTES; batch_count++) {
        CHECK(batch_count < MOST_BATCHES);
        build(codec, compression, records, (uint64_t)batch_count);
        if (batch_count - answered == IN_FLIGHT) {
            receive_produced(&client);
            answered++;
        }
        mini_client_send_produce(&client, 9, -1, "t", 0, builder.batch, builder.batch_length);
        positions[batch_count + 1] = positions[batch_count] + (int64_t)builder.batch_length;
        offsets[batch_count + 1] = offsets[batch_count] + records;
    }
    while (answered++ < batch_count)
        receive_produced(&client);
    pb_codec_destroy(codec);
    mini_client_close(&client);
}

static int64_t border_of(const served *it)
{
    pthread_mutex_lock(&it->partition->lock);
    CHECK(pb_log_is_hot(it->partition->log));
    int64_t border = atomic_load(&it->partition->log->hot->segment->tail.kept_position);
    pthread_mutex_unlock(&it->partition->lock);
    return border;
}

/* The batch that `position` lies in. */
static int batch_at(int64_t position)
{
    int i = 0;
    while (positions[i + 1] <= position)
        i++;
    return i;
}

/* Nothing of the segment's file is in memory but its bytes from `position` on, `length` of them. */
static void cool(const served *it, int64_t position, int64_t length)
{
    static uint8_t bytes[LOG_BYTES];
    char path[128];
    snprintf(path, sizeof path, "%s/t-0/00000000000000000000.log", it->directory);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0 && fsync(file) == 0);
    CHECK_INT(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM), 0);
    CHECK_INT(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
    CHECK(length <= LOG_BYTES && pread(file, bytes, (size_t)length, position) == length);
    close(file);
}

/* What comes from a batch on, up to `max_bytes`: that batch first, and all as it was sent. */
static void check_fetched(const pb_slice *records, int first)
{
    const uint8_t *bytes = records->data;
    int64_t at = 0;
    CHECK(records->length >= positions[first + 1] - positions[first]);
    for (int i = first; at < records->length; i++) {
        pb_batch_header header;
        if (records->length - at < positions[i + 1] - positions[i])
            break; /* cut off, as readers expect */
        CHECK_INT(pb_batch_parse(bytes + at, (size_t)(records->length - at), &header), 0);
        CHECK_INT(header.base_offset, offsets[i]);
        CHECK_INT(header.size_bytes, positions[i + 1] - positions[i]);
        CHECK(pb_batch_crc_matches(bytes + at, header.size_bytes));
        at += header.size_bytes;
    }
}

static void fetch(mini_client *client, int first, int32_t max_bytes)
{
    pb_fetch_response fetched;
    const pb_slice *records = NULL;
    for (int attempt = 0; attempt < ATTEMPTS && (records == NULL || records->length <= 0); attempt++) {
        mini_client_send_fetch_of(client, 12, "t", 0, offsets[first], max_bytes);
        mini_client_receive_fetch(client, 12, &fetched);
        CHECK_INT(fetched.responses[0].partitions[0].error_code, 0);
        records = &fetched.responses[0].partitions[0].records;
    }
    if (records->length <= 0)
        check_fail(__FILE__, __LINE__, "nothing at offset %lld, position %lld, of %d bytes, in %d attempts",
                   (long long)offsets[first], (long long)positions[first], max_bytes, ATTEMPTS);
    check_fetched(records, first);
}

/* How often a fetch has waited for a disk. */
static int64_t cold_reads(const served *it)
{
    pb_broker_stats stats;
    pb_broker_stats_read(it->broker, &stats);
    CHECK_INT(stats.empty_fetches, 0);
    return stats.cold_reads;
}

static void serve_filled(served *it, const char *backend, int compression, int records)
{
    serve_hot(it, backend, PB_DURABILITY_NONE, RING_BYTES, 1 << 30);
    fill(it, compression, records);
}

TEST(a_range_that_begins_in_the_page_cache_and_goes_on_where_it_is_not_is_returned)
{
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        served it;
        mini_client client;
        serve_filled(&it, backends[i], PB_COMPRESSION_LZ4, 1);
        int64_t border = border_of(&it);
        int first = batch_at(border - 3 * MIB / 2);
        int64_t part = MIB - positions[first] % MIB;
        cool(&it, positions[first], part);
        mini_client_open(&client, it.port);
        fetch(&client, first, (int32_t)(part - MIB / 8)); /* alone it is in memory, and stays in the page cache */
        fetch(&client, first, 2 * MIB);
        int64_t before = cold_reads(&it);
        fetch(&client, first, 2 * MIB); /* partly from there, partly from history, partly from the ring */
        CHECK_INT(cold_reads(&it), before);
        mini_client_close(&client);
        stop(&it);
    }
}

/* Bytes before the border at which a fetch begins. */
static const int64_t before_border[] = {1,           2 * PAGE_BYTES, MIB / 2 + 100, MIB - 1,
                                        3 * MIB / 2, 5 * MIB / 2,    9 * MIB / 2};
static const int32_t sizes[] = {1, 5000, 40 << 10, MIB, 2 * MIB, 3 * MIB, 8 * MIB};

/* Fetches of all sizes around the border, each with another part of what it asks for in the page cache. */
static void fetch_around(served *it, int64_t border)
{
    static const int64_t kept[] = {PAGE_BYTES, MIB, 0, 2 * MIB};
    mini_client client;
    mini_client_open(&client, it->port);
    int round = 0;
    for (size_t place = 0; place < sizeof before_border / sizeof before_border[0]; place++) {
        int first = batch_at(border - before_border[place]);
        for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++, round++) {
            int64_t left = border - positions[first] > 0 ? border - positions[first] : 0;
            int64_t length = kept[round % 4] < left ? kept[round % 4] : left;
            cool(it, round % 3 == 0 ? border - length : positions[first], length);
            fetch(&client, first, sizes[size]);
        }
    }
    CHECK(cold_reads(it) > 0);
    mini_client_close(&client);
}

typedef struct shape {
    int compression;
    int records; /* of 1 KiB, in a batch */
} shape;

static void fetch_shapes(const shape *shapes, int count)
{
    for (int i = 0; i < 2 * count; i++) {
        served it;
        serve_filled(&it, backends[i % 2], shapes[i / 2].compression, shapes[i / 2].records);
        fetch_around(&it, border_of(&it));
        stop(&it);
    }
}

TEST(small_batches_around_the_border_are_returned)
{
    static const shape shapes[] = {{PB_COMPRESSION_NONE, 1}, {PB_COMPRESSION_LZ4, 1}};
    fetch_shapes(shapes, 2);
}

TEST(batches_of_some_pages_around_the_border_are_returned)
{
    static const shape shapes[] = {{PB_COMPRESSION_LZ4, 30}, {PB_COMPRESSION_GZIP, 60}};
    fetch_shapes(shapes, 2);
}

TEST(large_batches_around_the_border_are_returned)
{
    static const shape shapes[] = {{PB_COMPRESSION_SNAPPY, 300}, {PB_COMPRESSION_ZSTD, 900}};
    fetch_shapes(shapes, 2);
}

TEST(what_lies_in_a_file_alone_is_returned)
{
    for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
        served it;
        serve(&it, backends[i], 1);
        fill(&it, PB_COMPRESSION_LZ4, 30);
        fetch_around(&it, positions[batch_count] - RING_BYTES);
        stop(&it);
    }
}

TEST(a_kernel_without_cachestat_makes_no_difference)
{
    pb_posix_force_residency(PB_RESIDENCY_MINCORE);
    served it;
    serve_filled(&it, backends[0], PB_COMPRESSION_LZ4, 16);
    fetch_around(&it, border_of(&it));
    stop(&it);
    pb_posix_force_residency(PB_RESIDENCY_CACHESTAT);
}

static int tell_nothing(pb_io *io, int file, int64_t position, int64_t length)
{
    (void)io;
    CHECK(file >= 0 && position >= 0 && length > 0);
    return -EOPNOTSUPP;
}

/* All is taken to be in memory then, and a read that does not wait finds that it is not. Nothing is in history yet. */
TEST(a_file_system_that_does_not_tell_what_is_in_memory_makes_no_difference)
{
    static const int64_t kept[] = {PAGE_BYTES, MIB / 2, MIB};
    for (int i = 0; i < 6; i++) {
        served it;
        mini_client client;
        prepare_hot(&it, backends[i % 2], PB_DURABILITY_NONE, RING_BYTES, 1 << 30);
        pb_io_ops silent = *it.broker->io->ops;
        silent.file_resident = tell_nothing;
        it.broker->io->ops = &silent;
        start_serving(&it);
        fill(&it, PB_COMPRESSION_LZ4, 16);
        int first = batch_at(border_of(&it) - 3 * MIB / 2);
        cool(&it, positions[first] - LOOKED_AT_BYTES, LOOKED_AT_BYTES + kept[i / 2]);
        mini_client_open(&client, it.port);
        fetch(&client, first, 2 * MIB);
        CHECK(cold_reads(&it) > 0);
        mini_client_close(&client);
        stop(&it);
    }
}

/* No chunk is large enough for a copy: a batch is copied beside the budget, and what the file has leaves from there. */
TEST(short_memory_makes_no_difference)
{
    served it;
    serve_filled(&it, backends[0], PB_COMPRESSION_LZ4, 60);
    pb_pool *pool = &it.broker->pool;
    int64_t left = pool->budget_bytes / 2 - pb_pool_used_bytes(pool) - PB_CHUNK_UNIT_BYTES;
    CHECK(pb_pool_reserve(pool, left));
    fetch_around(&it, border_of(&it));
    pb_pool_unreserve(pool, left);
    stop(&it);
}

CHECK_MAIN()
