/*
 * Cleaning beside everything else that goes on in a log: an appender, readers that go through history, look-ups,
 * upkeep, rolls and retention. Meant for the thread sanitizer, and for what readers may see: whole batches, in order,
 * and at the end the last record of every key.
 */
#include <sched.h>

#include "tests/log/clean/clean_fixture.h"

enum { THREAD_BATCHES = 1500, THREAD_KEYS = 37, THREAD_READERS = 2 };

typedef struct shared {
    fixture f;
    atomic_bool done;
    int64_t last_offset[THREAD_KEYS]; /* the writer's, until it has ended */
    atomic_int pass_count;            /* that have put a segment in place */
} shared;

static void write_out(shared *s, bool wait)
{
    bool all = false;
    while (!all) {
        pb_log_write write;
        pb_link finished;
        pb_link *link;
        pb_list_init(&finished);
        fixture_lock(&s->f.mutex);
        bool began = pb_log_write_begin(s->f.log, &write);
        fixture_unlock(&s->f.mutex);
        if (began) {
            CHECK_INT(pb_log_write_prepare(s->f.log, &write), 0);
            CHECK_INT(pb_io_write_all(s->f.io, write.file, write.iov, write.iov_count, write.position), 0);
            fixture_lock(&s->f.mutex);
            pb_log_write_end(s->f.log, &write, write.length, &finished);
            fixture_unlock(&s->f.mutex);
        }
        while ((link = pb_list_pop_front(&finished)) != NULL)
            append_free(PB_CONTAINER(link, pb_append, link));
        fixture_lock(&s->f.mutex);
        all = !wait || pb_log_written_end(s->f.log) == pb_log_appended_end(s->f.log);
        fixture_unlock(&s->f.mutex);
        if (!all)
            sched_yield();
    }
}

static void *write_batches(void *context)
{
    shared *s = context;
    pb_codec *codec;
    CHECK_INT(pb_codec_create(&codec), 0);
    int64_t offset = 0;
    for (int i = 0; i < THREAD_BATCHES; i++) {
        clean_batch batch = {.base_offset = offset,
                             .producer_id = 1,
                             .base_sequence = (int32_t)offset,
                             .codec = i % PB_COMPRESSION_COUNT,
                             .count = 1 + i % CLEAN_RECORDS};
        for (int k = 0; k < batch.count; k++, offset++) {
            int key = (int)(offset * 7 % THREAD_KEYS);
            batch.items[k] = (clean_item){offset, 1000 + offset, key, (int)offset};
            s->last_offset[key] = offset;
        }
        pb_append *append = clean_append_make(&batch, codec);
        fixture_lock(&s->f.mutex);
        CHECK_INT(pb_log_append(s->f.log, append), 0);
        fixture_unlock(&s->f.mutex);
        write_out(s, false);
        /* However slow the machine: at least one pass goes on beside appends. */
        while (i == THREAD_BATCHES / 2 && atomic_load(&s->pass_count) == 0)
            sched_yield();
    }
    write_out(s, true);
    pb_codec_destroy(codec);
    atomic_store(&s->done, true);
    return NULL;
}

/* Every whole batch of a slice; the offset to go on at. */
static int64_t check_slice(const uint8_t *bytes, int64_t length, int64_t offset)
{
    size_t position = 0;
    int64_t next = offset;
    for (;;) {
        pb_batch_header header;
        size_t at = position;
        CHECK_INT(pb_batch_next(bytes, (size_t)length, &position, &header), 0);
        if (header.size_bytes == 0)
            return next;
        CHECK(pb_batch_crc_matches(bytes + at, header.size_bytes));
        CHECK(pb_batch_last_offset(&header) >= next);
        CHECK(at == 0 || header.base_offset >= next);
        next = pb_batch_last_offset(&header) + 1;
    }
}

static void *read_batches(void *context)
{
    shared *s = context;
    uint8_t *bytes = malloc(65536);
    int64_t offset = 0;
    while (!atomic_load(&s->done)) {
        pb_log_slice slice;
        int rc = pb_log_read(s->f.log, &s->f.guard, offset, 20000, INT64_MAX, true, &slice);
        CHECK(rc == 0 || rc == 1);
        if (rc == 0 && slice.segment != NULL) {
            CHECK(slice.length <= 65536);
            CHECK_INT(pb_io_read_all(s->f.io, slice.file, bytes, (size_t)slice.length, slice.position), 0);
            pb_segment_release(slice.segment);
            offset = check_slice(bytes, slice.length, offset);
            continue;
        }
        fixture_lock(&s->f.mutex);
        offset = pb_log_start_offset(s->f.log); /* once more from the beginning */
        fixture_unlock(&s->f.mutex);
    }
    free(bytes);
    return NULL;
}

static void *maintain(void *context)
{
    shared *s = context;
    for (int round = 0; !atomic_load(&s->done); round++) {
        int deleted;
        pb_log_position found;
        pb_aborted_transaction *aborted;
        int aborted_count;
        CHECK_INT(pb_log_upkeep(s->f.log, &s->f.guard, 0, NULL), 0);
        int synced = pb_log_sync(s->f.log, &s->f.guard, NULL);
        CHECK(synced == 0 || synced == -EBUSY);
        CHECK_INT(pb_log_offset_for_timestamp(s->f.log, &s->f.guard, 1000 + 50 * round, INT64_MAX, &found), 0);
        CHECK_INT(pb_log_aborted_transactions(s->f.log, &s->f.guard, 0, INT64_MAX, &aborted, &aborted_count), 0);
        free(aborted);
        int rc = pb_log_roll(s->f.log, &s->f.guard, NULL);
        CHECK(rc == 0 || rc == -EBUSY);
        fixture_lock(&s->f.mutex);
        int64_t end = pb_log_written_end(s->f.log);
        CHECK_INT(pb_log_set_start_offset(s->f.log, end > 6000 ? end - 6000 : 0), 0);
        fixture_unlock(&s->f.mutex);
        rc = pb_log_delete_segments(s->f.log, &s->f.guard, &deleted, NULL);
        CHECK(rc == 0 || rc == -EBUSY);
        rc = pb_log_purge(s->f.log, &s->f.guard, INT64_MAX, NULL);
        CHECK(rc == 0 || rc == -EBUSY);
    }
    return NULL;
}

static int64_t clean_pass(shared *s, int64_t first_dirty)
{
    pb_failure failure = {0};
    pb_clean_throttle throttle = {0};
    pb_clean_stats stats;
    pb_clean_settings settings = clean_settings(first_dirty, 1);
    fixture_lock(&s->f.mutex);
    settings.upper_offset = pb_log_written_end(s->f.log);
    settings.cut_count = pb_log_cut_count(s->f.log);
    fixture_unlock(&s->f.mutex);
    int rc = pb_log_clean(s->f.log, &s->f.guard, &settings, &throttle, &stats, &failure);
    if (rc != 0 && rc != -EAGAIN)
        check_fail(__FILE__, __LINE__, "clean: %d %s", rc, failure.text);
    atomic_fetch_add(&s->pass_count, stats.cleaned_segments > 0);
    return stats.end_offset;
}

static void *clean_often(void *context)
{
    shared *s = context;
    int64_t first_dirty = 0;
    while (!atomic_load(&s->done))
        first_dirty = clean_pass(s, first_dirty);
    return NULL;
}

TEST(cleaning_goes_on_beside_everything_else)
{
    shared *s = calloc(1, sizeof(*s));
    fixture_init(&s->f);
    s->f.options.config.segment_bytes = 15000;
    s->f.options.config.index_interval_bytes = 500;
    s->f.options.config.compact = true;
    fixture_open(&s->f);
    void *(*const bodies[])(void *) = {write_batches, maintain, clean_often, read_batches, read_batches};
    pthread_t threads[sizeof(bodies) / sizeof(bodies[0])];
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        CHECK_INT(pthread_create(&threads[i], NULL, bodies[i], s), 0);
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK(atomic_load(&s->pass_count) > 0);
    /* Quiet now: what is left is the last record of each key. */
    CHECK_INT(pb_log_roll(s->f.log, &s->f.guard, NULL), 0);
    (void)clean_pass(s, 0);
    int count;
    clean_batch *found = clean_log_read(&s->f, &count);
    int keys = 0;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < found[i].count; k++, keys++)
            CHECK_INT(found[i].items[k].offset, s->last_offset[found[i].items[k].key]);
    }
    CHECK_INT(keys, THREAD_KEYS);
    free(found);
    fixture_free(&s->f);
    free(s);
}

CHECK_MAIN()
