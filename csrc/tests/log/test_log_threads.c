/* One writer, tail readers and background work at once: meant for the thread sanitizer, and for what readers may see.
 */
#include <sched.h>

#include "log/change/scrub.h"
#include "tests/log/log_fixture.h"

enum { THREAD_BATCHES = 4000, THREAD_READERS = 2 };

typedef struct shared {
    fixture f;
    bool done; /* under the mutex */
} shared;

static void *write_batches(void *context)
{
    shared *s = context;
    for (int i = 0; i < THREAD_BATCHES; i++) {
        pb_append *append = append_make((batch_spec){
            .record_count = 2, .value_length = 200, .timestamp = i, .producer_id = 1, .base_sequence = 2 * i});
        pb_log_write write;
        pb_link finished;
        pb_list_init(&finished);
        fixture_lock(&s->f.mutex);
        CHECK_INT(pb_log_append(s->f.log, append), 0);
        bool began = pb_log_write_begin(s->f.log, &write);
        fixture_unlock(&s->f.mutex);
        /* A roll by background work may hold the token: the batch goes with the next write. */
        if (!began)
            continue;
        CHECK_INT(pb_log_write_prepare(s->f.log, &write), 0);
        CHECK_INT(pb_io_write_all(s->f.io, write.file, write.iov, write.iov_count, write.position), 0);
        fixture_lock(&s->f.mutex);
        pb_log_write_end(s->f.log, &write, write.length, &finished);
        fixture_unlock(&s->f.mutex);
        pb_link *link;
        while ((link = pb_list_pop_front(&finished)) != NULL)
            append_free(PB_CONTAINER(link, pb_append, link));
    }
    /* A roll may hold the write token: what it kept back is written when it has given it up. */
    for (bool done = false; !done;) {
        fixture_lock(&s->f.mutex);
        log_write(&s->f);
        done = s->done = pb_log_written_end(s->f.log) == pb_log_appended_end(s->f.log);
        fixture_unlock(&s->f.mutex);
        sched_yield();
    }
    return NULL;
}

/* Follow the tail: every offset comes once, in order; what retention takes away is skipped. */
static void *read_batches(void *context)
{
    shared *s = context;
    uint8_t *bytes = malloc(65536);
    int64_t offset = 0;
    while (offset < 2 * THREAD_BATCHES) {
        pb_log_slice slice;
        int rc = pb_log_read(s->f.log, &s->f.guard, offset, 65536, INT64_MAX, false, &slice);
        if (rc == 1) {
            fixture_lock(&s->f.mutex);
            offset = pb_log_start_offset(s->f.log);
            fixture_unlock(&s->f.mutex);
            continue;
        }
        CHECK_INT(rc, 0);
        if (slice.segment == NULL) {
            sched_yield();
            continue;
        }
        CHECK_INT(pb_io_read_all(s->f.io, slice.file, bytes, (size_t)slice.length, slice.position), 0);
        pb_segment_release(slice.segment);
        size_t position = 0;
        pb_batch_header header = {.size_bytes = 1};
        while (header.size_bytes > 0) {
            CHECK_INT(pb_batch_next(bytes, (size_t)slice.length, &position, &header), 0);
            if (header.size_bytes == 0)
                break;
            CHECK_INT(header.base_offset, offset);
            offset = pb_batch_last_offset(&header) + 1;
        }
    }
    free(bytes);
    return NULL;
}

/* A step of the scrub, which finds nothing; and the oldest sealed segment's indexes are built again under the readers.
 */
static void scrub(shared *s, pb_scrub_cursor *cursor)
{
    pb_scrub_result result;
    CHECK_INT(pb_log_scrub(s->f.log, &s->f.guard, cursor, 20000, &result, NULL), 0);
    CHECK_INT(result.finding, PB_SCRUB_NOTHING);
    if (result.done)
        *cursor = (pb_scrub_cursor){0};
    pb_segment *oldest = NULL;
    fixture_lock(&s->f.mutex);
    if (s->f.log->segment_count > 1) {
        oldest = s->f.log->segments[0];
        pb_segment_retain(oldest);
    }
    fixture_unlock(&s->f.mutex);
    if (oldest == NULL)
        return;
    int rc = pb_log_rebuild_indexes(s->f.log, &s->f.guard, oldest);
    CHECK(rc == 0 || rc == -ESTALE);
    pb_segment_release(oldest);
}

static void *maintain(void *context)
{
    shared *s = context;
    bool done = false;
    pb_scrub_cursor cursor = {0};
    for (int round = 0; !done; round++) {
        int deleted;
        pb_log_position found;
        CHECK_INT(pb_log_upkeep(s->f.log, &s->f.guard, 0, NULL), 0);
        CHECK_INT(pb_log_sync(s->f.log, &s->f.guard, NULL), 0);
        CHECK_INT(pb_log_offset_for_timestamp(s->f.log, &s->f.guard, 10 * round, INT64_MAX, &found), 0);
        int rc = pb_log_roll(s->f.log, &s->f.guard, NULL);
        CHECK(rc == 0 || rc == -EBUSY);
        fixture_lock(&s->f.mutex);
        int64_t end = pb_log_written_end(s->f.log);
        CHECK_INT(pb_log_set_start_offset(s->f.log, end > 2000 ? end - 2000 : 0), 0);
        done = s->done;
        fixture_unlock(&s->f.mutex);
        CHECK_INT(pb_log_delete_segments(s->f.log, &s->f.guard, &deleted, NULL), 0);
        CHECK_INT(pb_log_purge(s->f.log, &s->f.guard, INT64_MAX, NULL), 0);
        scrub(s, &cursor);
    }
    return NULL;
}

TEST(threads_share_a_log)
{
    shared *s = calloc(1, sizeof(*s));
    fixture_init(&s->f);
    s->f.options.config.segment_bytes = 40000;
    fixture_open(&s->f);
    pthread_t threads[2 + THREAD_READERS];
    CHECK_INT(pthread_create(&threads[0], NULL, write_batches, s), 0);
    CHECK_INT(pthread_create(&threads[1], NULL, maintain, s), 0);
    for (int i = 0; i < THREAD_READERS; i++)
        CHECK_INT(pthread_create(&threads[2 + i], NULL, read_batches, s), 0);
    for (int i = 0; i < 2 + THREAD_READERS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK_INT(pb_log_written_end(s->f.log), 2 * THREAD_BATCHES);
    fixture_close(&s->f, true);
    fixture_open(&s->f);
    CHECK_INT(pb_log_written_end(s->f.log), 2 * THREAD_BATCHES);
    fixture_free(&s->f);
    free(s);
}

CHECK_MAIN()
