/* Batches leave the cleaner's packer whole and in the order in which they came, whoever makes them. */
#include <stdatomic.h>

#include "log/clean/pack.h"
#include "tests/log/log_fixture.h"

enum { BATCHES = 1000, LEAST_BYTES = 200, MOST_BYTES = 6000 };

typedef struct packing {
    fixture f;
    pb_io_ops ops; /* the real ones but for what a test replaces */
    pb_codec *codec;
    pb_clean_output output;
    pb_clean_packer packer;
} packing;

static atomic_int started_threads;

static int count_start(pb_io *io, const char *name, enum pb_thread_rank rank, pb_step_fn step, void *context,
                       pb_thread **out)
{
    started_threads++;
    return fixture_ops->thread_start(io, name, rank, step, context, out);
}

static int refuse_start(pb_io *io, const char *name, enum pb_thread_rank rank, pb_step_fn step, void *context,
                        pb_thread **out)
{
    (void)rank;
    CHECK(io != NULL && name != NULL && step != NULL && context != NULL && out != NULL);
    return -EAGAIN;
}

static void begin(packing *p)
{
    fixture_init(&p->f);
    p->ops = *fixture_ops;
    p->ops.thread_start = count_start;
    p->f.io->ops = &p->ops;
    started_threads = 0;
    CHECK_INT(pb_codec_create(&p->codec), 0);
    CHECK_INT(pb_clean_output_init(&p->output, 64 << 10), 0);
    CHECK_INT(pb_clean_output_begin(&p->output, p->f.io, p->f.directory, 0, 4096), 0);
    CHECK_INT(pb_clean_packer_init(&p->packer, p->f.io), 0);
}

static void end(packing *p)
{
    pb_clean_packer_clear(&p->packer);
    CHECK_INT(pb_clean_output_abandon(&p->output), 0);
    pb_clean_output_clear(&p->output);
    pb_codec_destroy(p->codec);
    fixture_free(&p->f);
}

/* Record bytes that compress a little and differ from batch to batch. */
static void fill(uint8_t *bytes, size_t length, int number)
{
    uint32_t state = (uint32_t)number + 1;
    for (size_t i = 0; i < length; i++) {
        state = state * 1664525 + 1013904223;
        bytes[i] = i % 4 == 0 ? (uint8_t)(state >> 24) : (uint8_t)number;
    }
}

static size_t size_of(int number)
{
    return LEAST_BYTES + (size_t)number * 7919 % (MOST_BYTES - LEAST_BYTES);
}

static bool is_packed(int number)
{
    return number % 3 != 0;
}

/* One batch, with offset `number`: every third as it is, the others to be made of their records. */
static int add(packing *p, int number, size_t length, int own)
{
    uint8_t *bytes = malloc(PB_BATCH_HEADER_BYTES + length);
    fill(bytes + PB_BATCH_HEADER_BYTES, length, number);
    pb_clean_outcome outcome = {
        .header = {.base_offset = number,
                   .size_bytes = (uint32_t)(PB_BATCH_HEADER_BYTES + length),
                   .attributes = (uint16_t)own,
                   .base_timestamp = 1,
                   .max_timestamp = number,
                   .producer_id = -1,
                   .record_count = 1,
                   .magic = PB_BATCH_MAGIC},
        .packs = is_packed(number),
        .aborted = {.last_offset = number % 100 == 0 ? number : -1, .first_offset = 0, .last_stable_offset = number},
    };
    if (!outcome.packs)
        pb_batch_write(bytes, &outcome.header);
    outcome.bytes = outcome.packs ? bytes + PB_BATCH_HEADER_BYTES : bytes;
    outcome.length = outcome.packs ? length : length + PB_BATCH_HEADER_BYTES;
    int rc = pb_clean_packer_add(&p->packer, &p->output, &outcome);
    memset(bytes, 0xee, PB_BATCH_HEADER_BYTES + length); /* it was the caller's */
    free(bytes);
    return rc;
}

/* What the cleaned segment has at `position`: a whole batch with that offset and those records. */
static int64_t check_batch(packing *p, pb_segment *segment, int64_t position, int number, size_t length, int codec)
{
    static uint8_t batch[1 << 21], records[1 << 21], wanted[1 << 21];
    int file = pb_segment_open(segment, PB_FILE_LOG);
    CHECK(file >= 0);
    pb_batch_header header;
    CHECK_INT(pb_io_read_all(p->f.io, file, batch, PB_BATCH_HEADER_BYTES, position), 0);
    CHECK_INT(pb_batch_parse(batch, sizeof(batch), &header), 0);
    CHECK_INT(pb_io_read_all(p->f.io, file, batch, header.size_bytes, position), 0);
    CHECK_INT(p->f.io->ops->file_close(p->f.io, file), 0);
    CHECK(pb_batch_crc_matches(batch, header.size_bytes));
    CHECK_INT(header.base_offset, number);
    CHECK_INT(header.max_timestamp, number);
    CHECK_INT(pb_batch_compression(&header), is_packed(number) ? codec : PB_COMPRESSION_NONE);
    size_t got = header.size_bytes - PB_BATCH_HEADER_BYTES;
    if (pb_batch_compression(&header) == PB_COMPRESSION_NONE)
        memcpy(records, batch + PB_BATCH_HEADER_BYTES, got);
    else
        CHECK_INT(pb_decompress(p->codec, pb_batch_compression(&header), batch + PB_BATCH_HEADER_BYTES, got, records,
                                sizeof(records), &got, NULL),
                  0);
    fill(wanted, length, number);
    CHECK(got == length && memcmp(records, wanted, length) == 0);
    return position + header.size_bytes;
}

static pb_segment *finish(packing *p)
{
    pb_segment *segment;
    CHECK_INT(pb_clean_packer_drain(&p->packer, &p->output), 0);
    CHECK_INT(pb_clean_output_finish(&p->output, &segment), 0);
    return segment;
}

static void check_many(packing *p)
{
    p->packer.how = (pb_clean_codec){PB_COMPRESSION_ZSTD, 3};
    for (int i = 0; i < BATCHES; i++)
        CHECK_INT(add(p, i, size_of(i), PB_COMPRESSION_NONE), 0);
    pb_segment *segment = finish(p);
    int64_t position = 0;
    for (int i = 0; i < BATCHES; i++)
        position = check_batch(p, segment, position, i, size_of(i), PB_COMPRESSION_ZSTD);
    CHECK_INT(position, segment->size_bytes);
    pb_transaction_entry *aborted;
    CHECK_INT(pb_transaction_index_load(segment, segment->transaction_index.flushed_count, &aborted), 0);
    CHECK_INT(segment->transaction_index.flushed_count, BATCHES / 100);
    for (int i = 0; i < BATCHES / 100; i++)
        CHECK_INT(aborted[i].last_offset, i * 100);
    free(aborted);
    pb_segment_release(segment);
}

TEST(batches_keep_their_order_over_many_chunks)
{
    packing p;
    begin(&p);
    check_many(&p);
    CHECK(started_threads > PB_CLEAN_CHUNKS);
    end(&p);
}

TEST(without_threads_the_cleaner_makes_them_itself)
{
    packing p;
    begin(&p);
    p.ops.thread_start = refuse_start;
    check_many(&p);
    CHECK_INT(started_threads, 0);
    end(&p);
}

TEST(a_batch_may_be_larger_than_a_chunk)
{
    enum { LARGE_BYTES = PB_CLEAN_CHUNK_BYTES * 2 + 17 };
    packing p;
    begin(&p);
    CHECK_INT(add(&p, 1, 100, PB_COMPRESSION_GZIP), 0);
    CHECK_INT(add(&p, 2, LARGE_BYTES, PB_COMPRESSION_GZIP), 0);
    CHECK_INT(add(&p, 4, 100, PB_COMPRESSION_GZIP), 0);
    pb_segment *segment = finish(&p);
    int64_t position = check_batch(&p, segment, 0, 1, 100, PB_COMPRESSION_GZIP);
    position = check_batch(&p, segment, position, 2, LARGE_BYTES, PB_COMPRESSION_GZIP);
    CHECK_INT(check_batch(&p, segment, position, 4, 100, PB_COMPRESSION_GZIP), segment->size_bytes);
    pb_segment_release(segment);
    end(&p);
}

TEST(a_codec_that_makes_a_batch_larger_is_not_used)
{
    packing p;
    begin(&p);
    p.packer.how = (pb_clean_codec){PB_COMPRESSION_SNAPPY, pb_compression_default_level(PB_COMPRESSION_SNAPPY)};
    pb_clean_outcome outcome = {
        .header = {.size_bytes = 1, .record_count = 1, .producer_id = -1, .magic = PB_BATCH_MAGIC}, .packs = true};
    outcome.bytes = (const uint8_t *)"it was smaller, whatever it was";
    outcome.length = 31;
    pb_clean_bytes made = {0};
    size_t length;
    CHECK_INT(pb_clean_pack(p.codec, &p.packer.how, &outcome, &made, 0, &length), 0);
    CHECK_INT(length, PB_BATCH_HEADER_BYTES + outcome.length);
    pb_batch_header header;
    CHECK_INT(pb_batch_parse(made.data, length, &header), 0);
    CHECK_INT(pb_batch_compression(&header), PB_COMPRESSION_NONE);
    CHECK(pb_batch_crc_matches(made.data, length));
    free(made.data);
    end(&p);
}

TEST(what_was_abandoned_does_not_come_later)
{
    packing p;
    begin(&p);
    for (int i = 0; i < BATCHES / 2; i++)
        CHECK_INT(add(&p, i, size_of(i), PB_COMPRESSION_LZ4), 0);
    pb_clean_packer_abandon(&p.packer);
    CHECK_INT(pb_clean_output_abandon(&p.output), 0);
    CHECK_INT(pb_clean_output_begin(&p.output, p.f.io, p.f.directory, 7, 4096), 0);
    CHECK_INT(add(&p, 7, 3000, PB_COMPRESSION_LZ4), 0);
    pb_segment *segment = finish(&p);
    CHECK_INT(check_batch(&p, segment, 0, 7, 3000, PB_COMPRESSION_LZ4), segment->size_bytes);
    pb_segment_release(segment);
    end(&p);
}

CHECK_MAIN()
