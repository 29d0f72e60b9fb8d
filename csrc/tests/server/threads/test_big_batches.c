/* The threads that validate large batches: what they find, how they share, and how much memory they take; on the
 * simulated machine, whose threads take turns in an order that a seed decides. */
#include <errno.h>
#include <snappy-c.h>
#include <stdlib.h>

#include "base/kafka_error.h"
#include "server/threads/big_batches.h"
#include "tests/sim/sim_broker.h"
#include "tests/support/bomb.h"

#define MIB (1 << 20)

enum { BATCH_BYTES = 2 * MIB, MANY = 12 };

/* A batch on its way, and when it was done. */
typedef struct work {
    pb_big_batch batch;
    int place; /* among those that were done; -1: it is not */
    uint8_t *bytes;
} work;

typedef struct fixture {
    pb_io *io;
    pb_big_batches batches;
    pb_partition_rules rules;
    work works[MANY];
} fixture;

static fixture it;
static int done_count;

static void note_done(pb_big_batch *batch)
{
    PB_CONTAINER(batch, work, batch)->place = done_count++;
}

static void begin(uint64_t seed, int thread_count)
{
    memset(&it, 0, sizeof it);
    done_count = 0;
    CHECK_INT(pb_io_sim_open(seed, &it.io), 0);
    it.rules = sim_rules(false);
    it.rules.validation.max_message_bytes = BATCH_BYTES;
    pb_big_batches_init(&it.batches, it.io, thread_count);
}

static void end(void)
{
    pb_big_batches_stop(&it.batches);
    CHECK_INT(it.batches.held_bytes, 0);
    CHECK_INT(pb_counter_read(&it.batches.in_progress), 0);
    pb_big_batches_destroy(&it.batches);
    for (int i = 0; i < MANY; i++) {
        pb_recompressed_trim(&it.works[i].batch.recompressed, 0);
        free(it.works[i].bytes);
    }
    it.io->ops->close(it.io);
}

static void submit_bytes(work *w)
{
    w->place = -1;
    w->batch.bytes = w->bytes;
    w->batch.rules = &it.rules;
    w->batch.done = note_done;
    w->batch.now_ms = BOMB_TIMESTAMP;
    w->batch.produce_version = 9;
    CHECK_INT(pb_big_batches_submit(&it.batches, &w->batch, NULL), 0);
}

static work *submit(int index, int compression, int records, int32_t value_bytes)
{
    work *w = &it.works[index];
    w->bytes = malloc(BATCH_BYTES);
    CHECK(w->bytes != NULL);
    w->batch.length = bomb_batch(w->bytes, BATCH_BYTES, compression, records, value_bytes);
    submit_bytes(w);
    return w;
}

TEST(a_small_one_is_not_behind_large_ones_that_came_before)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        begin(seed, 1 + (int)(seed % 2));
        for (int i = 0; i < 4; i++) /* in one record or in many */
            submit(i, PB_COMPRESSION_ZSTD, i % 2 == 0 ? 1 : 48, (i % 2 == 0 ? 48 : 1) * MIB);
        const work *honest = submit(4, PB_COMPRESSION_GZIP, 4, MIB / 2);
        pb_sim_settle(it.io);
        CHECK_INT(honest->batch.verdict.result, 0);
        CHECK_INT(honest->place, 0);
        CHECK_INT(done_count, 5);
        for (int i = 0; i < 4; i++)
            CHECK_INT(it.works[i].batch.verdict.result, 0);
        CHECK_INT(pb_counter_read(&it.batches.taken), 5);
        CHECK(pb_counter_read(&it.batches.unpacked_bytes) > (4LL * 48 + 2) * MIB);
        end();
    }
}

/* All records of an uncompressed batch as one bare block of snappy, as librdkafka makes it. */
static void pack_as_one_block(work *w, size_t plain_capacity)
{
    pb_batch_header header;
    uint8_t *plain = malloc(plain_capacity);
    CHECK(plain != NULL);
    size_t plain_bytes = bomb_batch(plain, plain_capacity, PB_COMPRESSION_NONE, 1, (int32_t)plain_capacity - MIB);
    CHECK_INT(pb_batch_parse(plain, plain_bytes, &header), 0);
    size_t records_bytes = plain_bytes - PB_BATCH_HEADER_BYTES;
    size_t packed_bytes = snappy_max_compressed_length(records_bytes);
    w->bytes = malloc(PB_BATCH_HEADER_BYTES + packed_bytes);
    CHECK(w->bytes != NULL);
    CHECK_INT(snappy_compress((const char *)plain + PB_BATCH_HEADER_BYTES, records_bytes,
                              (char *)w->bytes + PB_BATCH_HEADER_BYTES, &packed_bytes),
              SNAPPY_OK);
    free(plain);
    header.size_bytes = (uint32_t)(PB_BATCH_HEADER_BYTES + packed_bytes);
    header.attributes = PB_COMPRESSION_SNAPPY;
    pb_batch_write(w->bytes, &header);
    w->batch.length = header.size_bytes;
}

TEST(a_block_that_is_unpacked_at_once_is_paid_for_with_later_turns)
{
    begin(1, 1);
    work *w = &it.works[0];
    pack_as_one_block(w, 30 * MIB);
    CHECK(w->batch.length < BATCH_BYTES);
    pb_codec *codec = NULL;
    pb_validator validator;
    pb_validation validation;
    CHECK_INT(pb_codec_create(&codec), 0);
    /* A reactor does not even begin to unpack it. */
    CHECK_INT(pb_validate_begin(&validator, &it.rules.validation, 9, BOMB_TIMESTAMP, codec, w->bytes, w->batch.length,
                                MIB, &validation, NULL),
              0);
    CHECK_INT(pb_validate_step(&validator, MIB, NULL), -EAGAIN);
    CHECK(pb_codec_memory_bytes(codec) < MIB);
    pb_codec_destroy(codec);
    submit_bytes(w);
    const work *honest = submit(1, PB_COMPRESSION_GZIP, 8, MIB);
    pb_sim_settle(it.io);
    CHECK_INT(w->batch.verdict.result, 0);
    CHECK_INT(honest->batch.verdict.result, 0);
    CHECK(honest->place < w->place);
    end();
}

TEST(no_more_are_begun_than_there_is_memory_for)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        begin(seed, 2);
        it.batches.memory_bytes = MIB;
        for (int i = 0; i < MANY; i++)
            submit(i, PB_COMPRESSION_GZIP, 1, 4 * MIB);
        int most_begun = 0;
        for (int left = 100000; done_count < MANY && left > 0; left--) {
            pb_sim_step(it.io);
            int begun = (int)it.batches.begun_count - done_count;
            most_begun = begun > most_begun ? begun : most_begun;
        }
        pb_sim_settle(it.io);
        CHECK_INT(done_count, MANY);
        CHECK(most_begun >= 2 && most_begun <= 4);
        for (int i = 0; i < MANY; i++)
            CHECK_INT(it.works[i].batch.verdict.result, 0);
        end();
    }
}

TEST(above_its_memory_the_oldest_are_ended_first)
{
    begin(1, 1);
    for (int i = 0; i < 4; i++)
        submit(i, PB_COMPRESSION_GZIP, 1, (4 - i) * 4 * MIB); /* in turn, the last would be the first */
    for (int left = 100000; it.batches.begun_count < 4 && left > 0; left--)
        pb_sim_step(it.io);
    it.batches.memory_bytes = 1;
    pb_sim_settle(it.io);
    CHECK_INT(done_count, 4);
    for (int i = 0; i < 4; i++)
        CHECK_INT(it.works[i].place, i);
    end();
}

static int refuse_thread(pb_io *io, const char *name, enum pb_thread_rank rank, pb_step_fn step, void *context,
                         pb_thread **out)
{
    CHECK(io != NULL && name != NULL && rank == PB_RANK_USUAL && step != NULL && context != NULL && out != NULL);
    return -EAGAIN;
}

TEST(without_a_thread_a_batch_is_given_back_and_the_next_tries_again)
{
    begin(1, 1);
    const pb_io_ops *real_ops = it.io->ops;
    pb_io_ops ops = *real_ops;
    ops.thread_start = refuse_thread;
    it.io->ops = &ops;
    work *w = &it.works[0];
    pb_failure failure = {0};
    w->batch.rules = &it.rules;
    w->batch.done = note_done;
    CHECK_INT(pb_big_batches_submit(&it.batches, &w->batch, &failure), -EAGAIN);
    CHECK(strstr(failure.text, "large batches") != NULL);
    it.io->ops = real_ops;
    pb_sim_settle(it.io);
    CHECK_INT(done_count, 0);
    CHECK_INT(pb_counter_read(&it.batches.taken), 0);
    submit(0, PB_COMPRESSION_GZIP, 1, 4 * MIB);
    pb_sim_settle(it.io);
    CHECK_INT(done_count, 1);
    end();
}

TEST(what_nobody_needs_any_more_is_dropped)
{
    begin(1, 1);
    for (int i = 0; i < 4; i++)
        submit(i, PB_COMPRESSION_ZSTD, 1, 100 * MIB);
    int steps = 0;
    for (; steps < 20; steps++)
        pb_sim_step(it.io);
    CHECK_INT(done_count, 0);
    for (int i = 0; i < 4; i++)
        atomic_store(&it.works[i].batch.cancelled, true);
    for (; done_count < 4 && steps < 60; steps++)
        pb_sim_step(it.io);
    CHECK_INT(done_count, 4);
    for (int i = 0; i < 4; i++)
        CHECK_INT(it.works[i].batch.verdict.result, -ECANCELED);
    end();
}

TEST(the_verdict_and_the_rewritten_batch_are_those_of_a_reactor)
{
    static const int targets[] = {PB_TARGET_COMPRESSION_PRODUCER, PB_COMPRESSION_NONE, PB_COMPRESSION_LZ4,
                                  PB_COMPRESSION_ZSTD};
    for (int t = 0; t < 4; t++)
        for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++)
            for (int limit = 0; limit < 2; limit++) {
                begin(1, 1);
                it.rules.validation.target_compression = targets[t];
                it.rules.compression_level = targets[t] > 0 ? pb_compression_default_level(targets[t]) : 0;
                it.rules.validation.max_record_bytes = limit == 0 ? 0 : 300000;
                const work *w = submit(0, compression, 5, 350000);
                uint8_t *same = malloc(BATCH_BYTES);
                CHECK(same != NULL);
                memcpy(same, w->bytes, w->batch.length);
                pb_sim_settle(it.io);
                CHECK_INT(w->place, 0);
                pb_codec *codec = NULL;
                pb_validation validation;
                pb_failure failure = {0};
                pb_recompressed out = {0};
                CHECK_INT(pb_codec_create(&codec), 0);
                int result = pb_validate_produce(&it.rules.validation, 9, BOMB_TIMESTAMP, codec, same, w->batch.length,
                                                 &validation, &failure);
                CHECK_INT(result, limit == 1 && compression != PB_COMPRESSION_NONE ? PB_INVALID_RECORD : 0);
                if (result == 0 && validation.needs_recompression)
                    result = pb_recompress(codec, same, w->batch.length, targets[t], it.rules.compression_level,
                                           BATCH_BYTES, &out, &failure);
                CHECK_INT(w->batch.verdict.result, result);
                CHECK_STR(w->batch.verdict.failure.text, failure.text);
                CHECK_INT(w->batch.recompressed.size_bytes, out.size_bytes);
                if (out.size_bytes > 0)
                    CHECK_MEM(w->batch.recompressed.data, out.data, out.size_bytes);
                CHECK_MEM(w->bytes, same, w->batch.length);
                pb_recompressed_trim(&out, 0);
                pb_codec_destroy(codec);
                free(same);
                end();
            }
}

CHECK_MAIN()
