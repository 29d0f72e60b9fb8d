/* Hot logs: what goes through the ring is what a cold log would have, at every place and at every time. */
#include <dirent.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "log/tail_ring.h"
#include "tests/log/log_fixture.h"

enum { RING_BYTES = 64 << 10, MOST_BATCHES = 4096 };

typedef struct hot_fixture {
    fixture f;
    char rings[64];
    pb_ring_identity identity;
    /* Every batch that was appended, as it should be read. */
    uint8_t *bytes[MOST_BATCHES];
    uint32_t lengths[MOST_BATCHES];
    int count; /* batch i has offset i */
} hot_fixture;

static void hot_open_within(hot_fixture *h, int64_t ring_bytes, int64_t budget_bytes)
{
    memset(h, 0, sizeof(*h));
    fixture_init(&h->f);
    strcpy(h->rings, "/dev/shm/pb-hot-test-XXXXXX");
    CHECK(mkdtemp(h->rings) != NULL);
    const pb_ring_pool_options options = {
        .io = h->f.io, .directory = h->rings, .budget_bytes = budget_bytes, .ring_bytes = ring_bytes};
    CHECK_INT(pb_ring_pool_open(&options, &h->f.options.rings, NULL), 0);
    const uint8_t directory_id[PB_RING_UUID_BYTES] = {7};
    CHECK_INT(pb_ring_pool_add_log_dir(h->f.options.rings, "/tmp", directory_id), 0);
    strcpy(h->identity.topic, "hot");
    h->f.options.ring_identity = &h->identity;
    h->f.options.config.index_interval_bytes = 10000;
    fixture_open(&h->f);
}

static void hot_open(hot_fixture *h, int64_t ring_bytes)
{
    hot_open_within(h, ring_bytes, 1 << 20);
}

static int count_files(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL)
        return 0;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static void hot_free(hot_fixture *h)
{
    pb_ring_pool *rings = h->f.options.rings;
    if (h->f.log != NULL)
        fixture_close(&h->f, false);
    pb_ring_pool_close(rings);
    CHECK_INT(count_files(h->rings), 0);
    fixture_free(&h->f);
    for (int i = 0; i < h->count; i++)
        free(h->bytes[i]);
}

static void hot_append(hot_fixture *h, int value_length)
{
    CHECK(h->count < MOST_BATCHES);
    pb_append *append = append_make((batch_spec){.timestamp = 1000 + h->count, .value_length = value_length});
    memset(append->bytes + append->length - value_length, 'a' + h->count % 26, (size_t)value_length);
    uint8_t *copy = malloc(append->length);
    h->lengths[h->count] = append->length;
    CHECK_INT(pb_log_append(h->f.log, append), 0);
    memcpy(copy, append->bytes, append->length);
    CHECK_INT(append->base_offset, h->count);
    h->bytes[h->count++] = copy;
    log_write(&h->f);
}

/* Read from a batch on, and compare what comes. */
static void hot_read(hot_fixture *h, int from, int64_t max_bytes)
{
    pb_log_slice slice;
    CHECK_INT(pb_log_read(h->f.log, &h->f.guard, from, max_bytes, h->count, true, &slice), 0);
    CHECK(slice.segment != NULL && slice.base_offset == from);
    uint8_t *buffer = malloc((size_t)slice.length);
    CHECK_INT(pb_tail_read(slice.segment, slice.file, buffer, (size_t)slice.length, slice.position), 0);
    int64_t at = 0;
    for (int i = from; at < slice.length; i++) {
        int64_t length = slice.length - at < h->lengths[i] ? slice.length - at : h->lengths[i];
        CHECK(i < h->count && memcmp(buffer + at, h->bytes[i], (size_t)length) == 0);
        at += length;
    }
    free(buffer);
    pb_segment_release(slice.segment);
}

static void hot_read_all(hot_fixture *h)
{
    for (int i = 0; i < h->count; i++)
        hot_read(h, i, 1);
}

static int64_t file_bytes(hot_fixture *h, const char *name)
{
    char path[256];
    struct stat status;
    snprintf(path, sizeof(path), "%s/%s", h->f.directory, name);
    CHECK_INT(stat(path, &status), 0);
    return status.st_size;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

TEST(a_log_that_changes_between_hot_and_cold_reads_as_it_was_written)
{
    for (uint32_t seed = 1; seed <= 6; seed++) {
        hot_fixture *h = malloc(sizeof(*h));
        hot_open(h, RING_BYTES);
        h->f.options.config.segment_bytes = seed % 2 ? 1 << 30 : 300000;
        pb_log_configure(h->f.log, &h->f.options.config);
        uint32_t state = seed;
        for (int step = 0; step < 600; step++) {
            uint32_t what = next_random(&state) % 100;
            if (what < 70)
                hot_append(h, 1 + (int)(next_random(&state) % (what < 10 ? 40000 : 3000)));
            else if (what < 80)
                CHECK_INT(pb_log_flush(h->f.log, &h->f.guard, NULL), 0);
            else if (what < 82 && !pb_log_is_hot(h->f.log))
                CHECK_INT(pb_log_heat(h->f.log, &h->f.guard), 0);
            else if (what < 84)
                CHECK_INT(pb_log_cool(h->f.log, &h->f.guard), 0);
            else if (what < 85)
                CHECK_INT(pb_log_roll(h->f.log, &h->f.guard, NULL), 0);
            else if (what < 88)
                CHECK_INT(pb_log_sync(h->f.log, &h->f.guard, NULL), 0);
            else if (h->count > 0)
                hot_read(h, (int)(next_random(&state) % (uint32_t)h->count), 1 + next_random(&state) % 100000);
            if (what >= 84 && what < 88 && !pb_log_is_hot(h->f.log))
                CHECK_INT(pb_log_heat(h->f.log, &h->f.guard), 0);
            CHECK_INT(pb_log_check_files(h->f.log, &h->f.guard, NULL), 0);
        }
        hot_read_all(h);
        fixture_close(&h->f, true);
        fixture_open(&h->f);
        CHECK_INT(pb_log_written_end(h->f.log), h->count);
        CHECK_INT(h->f.recovery.truncated_bytes, 0);
        hot_read_all(h);
        hot_free(h);
        free(h);
    }
}

TEST(a_hot_log_has_whole_blocks_in_its_file_and_the_rest_when_it_is_closed)
{
    static hot_fixture h;
    hot_open(&h, RING_BYTES);
    hot_append(&h, 5000);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), -EBUSY);
    hot_append(&h, 5000);
    int64_t size = pb_log_size_bytes(h.f.log);
    CHECK_INT(pb_log_gathered_bytes(h.f.log), h.lengths[1]);
    CHECK(file_bytes(&h, "00000000000000000000.log") < size);
    CHECK_INT(pb_log_flush(h.f.log, &h.f.guard, NULL), 0);
    CHECK_INT(pb_log_gathered_bytes(h.f.log), 0);
    CHECK_INT(file_bytes(&h, "00000000000000000000.log"), (size + 4095) / 4096 * 4096);
    fixture_close(&h.f, true);
    CHECK_INT(file_bytes(&h, "00000000000000000000.log"), size);
    fixture_open(&h.f);
    hot_read_all(&h);
    hot_free(&h);
}

TEST(zeros_lie_ahead_of_a_log_that_is_synced_in_small_pieces)
{
    static hot_fixture h;
    hot_open(&h, RING_BYTES);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    for (int i = 0; i < 40; i++) {
        hot_append(&h, 5000);
        CHECK_INT(pb_log_sync(h.f.log, &h.f.guard, NULL), 0);
        if (pb_log_wants_zeros(h.f.log))
            CHECK_INT(pb_log_write_zeros(h.f.log, &h.f.guard, NULL), 0);
        CHECK_INT(pb_log_check_files(h.f.log, &h.f.guard, NULL), 0);
    }
    CHECK(file_bytes(&h, "00000000000000000000.log") > 16 << 20);
    CHECK(!pb_log_wants_zeros(h.f.log));
    hot_read_all(&h);
    int64_t size = pb_log_size_bytes(h.f.log);
    fixture_close(&h.f, true);
    CHECK_INT(file_bytes(&h, "00000000000000000000.log"), size);
    fixture_open(&h.f);
    hot_read_all(&h);
    hot_free(&h);
}

TEST(a_hot_segment_grows_with_its_settings)
{
    static hot_fixture h;
    hot_open(&h, RING_BYTES);
    h.f.options.config.segment_bytes = 100000;
    pb_log_configure(h.f.log, &h.f.options.config);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    hot_append(&h, 50000);
    h.f.options.config.segment_bytes = 1 << 30;
    pb_log_configure(h.f.log, &h.f.options.config);
    for (int i = 0; i < 20; i++)
        hot_append(&h, 20000);
    CHECK(pb_log_is_hot(h.f.log) && h.f.log->segment_count == 1);
    hot_read_all(&h);
    hot_free(&h);
}

TEST(a_writer_that_waits_gets_on_before_all_has_been_written)
{
    static hot_fixture h;
    hot_open_within(&h, 4 << 20, 8 << 20);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    while (pb_log_size_bytes(h.f.log) <= 4 << 20)
        hot_append(&h, 500000);
    CHECK(pb_log_gathered_bytes(h.f.log) > 2 << 20);
    hot_read_all(&h);
    hot_free(&h);
}

TEST(less_and_less_is_in_the_ring_before_a_segment_ends)
{
    enum { SEGMENT_BYTES = 24 << 20, LEAST_BYTES = 2 << 20, PART = 4 };
    static hot_fixture h;
    hot_open_within(&h, 4 << 20, 8 << 20);
    h.f.options.config.segment_bytes = SEGMENT_BYTES;
    pb_log_configure(h.f.log, &h.f.options.config);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    int64_t most = 0;
    while (h.f.log->segment_count < 3) {
        hot_append(&h, 200000);
        int64_t left = (SEGMENT_BYTES - pb_log_active(h.f.log)->size_bytes) / PART;
        int64_t gathered = pb_log_gathered_bytes(h.f.log);
        CHECK(gathered <= (left > LEAST_BYTES ? left : LEAST_BYTES));
        most = gathered > most ? gathered : most;
    }
    CHECK(most > 3 << 20);
    hot_read_all(&h);
    hot_free(&h);
}

TEST(a_writer_pauses_the_longer_the_more_has_gathered)
{
    static hot_fixture h;
    hot_open_within(&h, 4 << 20, 8 << 20);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    int64_t last_ns = 0;
    while (pb_log_gathered_bytes(h.f.log) < 3 << 20) {
        hot_append(&h, 200000);
        int64_t pause_ns = pb_log_pause_ns(h.f.log);
        CHECK((pause_ns > 0) == (pb_log_gathered_bytes(h.f.log) > 1 << 20));
        CHECK(pause_ns > last_ns || pause_ns == 0);
        last_ns = pause_ns;
    }
    CHECK(last_ns > 1300000 && last_ns < 2000000);
    CHECK_INT(pb_log_flush(h.f.log, &h.f.guard, NULL), 0);
    CHECK(pb_log_pause_ns(h.f.log) < last_ns);
    hot_free(&h);
}

TEST(a_hot_log_goes_over_to_a_file_that_was_made_ahead)
{
    static hot_fixture h;
    hot_open(&h, 512 << 10);
    h.f.options.config.segment_bytes = 1 << 20;
    pb_log_configure(h.f.log, &h.f.options.config);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    CHECK(!pb_log_needs_pacing(h.f.log));
    hot_append(&h, 100000);
    CHECK(pb_log_needs_pacing(h.f.log));
    CHECK_INT(pb_log_pace(h.f.log, &h.f.guard), 0);
    CHECK(h.f.log->spare_file >= 0 && !pb_log_needs_pacing(h.f.log));
    CHECK_INT(h.f.log->spare_bytes, 1 << 20);
    pb_io_ops ops = *fixture_ops;
    ops.file_open = fixture_refuse_creation;
    h.f.io->ops = &ops;
    for (int i = 0; i < 15; i++)
        hot_append(&h, 100000);
    CHECK(pb_log_is_hot(h.f.log) && h.f.log->segment_count == 2);
    CHECK_INT(pb_log_check_files(h.f.log, &h.f.guard, NULL), 0);
    hot_read_all(&h);
    h.f.io->ops = fixture_ops;
    CHECK_INT(pb_log_pace(h.f.log, &h.f.guard), 0);
    CHECK(h.f.log->spare_file >= 0);
    CHECK_INT(pb_log_cool(h.f.log, &h.f.guard), 0);
    CHECK_INT(h.f.log->spare_file, -1);
    hot_free(&h);
}

TEST(a_batch_larger_than_the_ring_makes_the_log_cold)
{
    static hot_fixture h;
    hot_open(&h, RING_BYTES);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    hot_append(&h, 1000);
    hot_append(&h, 2 * RING_BYTES);
    CHECK(!pb_log_is_hot(h.f.log));
    hot_append(&h, 1000);
    hot_read_all(&h);
    hot_free(&h);
}

static int refuse_allocation(pb_io *io, int file, int64_t position, int64_t length)
{
    (void)io;
    (void)file;
    (void)length;
    return position == 0 ? 0 : -ENOSPC;
}

TEST(a_full_disk_makes_a_hot_log_cold_before_anything_is_taken_that_has_no_room)
{
    static hot_fixture h;
    hot_open(&h, 32 << 20);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), -EAGAIN); /* beyond the budget */
    hot_free(&h);
    hot_open(&h, 512 << 10);
    pb_io_ops full = *h.f.io->ops;
    full.file_allocate = refuse_allocation;
    h.f.io->ops = &full;
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    while (pb_log_is_hot(h.f.log))
        hot_append(&h, 400000);
    CHECK(pb_log_size_bytes(h.f.log) > 64 << 20);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), -ENOSPC);
    hot_append(&h, 1000);
    hot_read(&h, h.count - 3, 1 << 20);
    hot_free(&h);
}

static int64_t refuse_write(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    (void)io;
    (void)file;
    (void)iov;
    (void)count;
    (void)position;
    return -EIO;
}

TEST(a_flush_that_fails_ends_the_log_and_leaves_its_ring)
{
    static hot_fixture h;
    hot_open(&h, RING_BYTES);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    hot_append(&h, 1000);
    pb_io_ops broken = *h.f.io->ops;
    const pb_io_ops *whole = h.f.io->ops;
    broken.file_write = refuse_write;
    h.f.io->ops = &broken;
    pb_failure failure;
    CHECK_INT(pb_log_flush(h.f.log, &h.f.guard, &failure), -EIO);
    CHECK(pb_log_failed(h.f.log));
    hot_read_all(&h); /* what was acknowledged is still read */
    pb_append *append = append_make((batch_spec){.timestamp = 5});
    CHECK(pb_log_append(h.f.log, append) > 0);
    append_free(append);
    CHECK(pb_log_close(h.f.log, true, &failure) < 0);
    h.f.log = NULL;
    h.f.io->ops = whole;
    CHECK_INT(count_files(h.rings), 1);
    pb_ring_pool_close(h.f.options.rings);
    CHECK_INT(count_files(h.rings), 1);
    fixture_remove(h.rings);
    fixture_free(&h.f);
}

/* ---- a reader beside a writer and a flusher ---- */

typedef struct readers_state {
    hot_fixture *h;
    _Atomic int written;
    atomic_bool stop;
} readers_state;

static void *flush_on(void *argument)
{
    readers_state *s = argument;
    while (!atomic_load(&s->stop))
        CHECK_INT(pb_log_flush(s->h->f.log, &s->h->f.guard, NULL), 0);
    return NULL;
}

static void *sync_on(void *argument)
{
    readers_state *s = argument;
    while (!atomic_load(&s->stop)) {
        CHECK_INT(pb_log_sync(s->h->f.log, &s->h->f.guard, NULL), 0);
        fixture_lock(&s->h->f.mutex);
        bool wants = pb_log_wants_zeros(s->h->f.log);
        fixture_unlock(&s->h->f.mutex);
        if (wants)
            CHECK_INT(pb_log_write_zeros(s->h->f.log, &s->h->f.guard, NULL), 0);
    }
    return NULL;
}

static void *read_on(void *argument)
{
    readers_state *s = argument;
    hot_fixture *h = s->h;
    uint32_t state = 3;
    while (!atomic_load(&s->stop)) {
        int written = atomic_load(&s->written);
        int back = (int)(next_random(&state) % 40);
        int from = written > back ? written - back - 1 : 0;
        if (written == 0)
            continue;
        pb_log_slice slice;
        CHECK_INT(pb_log_read(h->f.log, &h->f.guard, from, 20000, written, true, &slice), 0);
        uint8_t *buffer = malloc((size_t)slice.length);
        CHECK_INT(pb_tail_read(slice.segment, slice.file, buffer, (size_t)slice.length, slice.position), 0);
        CHECK_INT((int64_t)pb_be64_load(buffer), from);
        if (slice.length >= h->lengths[from])
            CHECK(memcmp(buffer, h->bytes[from], h->lengths[from]) == 0);
        free(buffer);
        pb_segment_release(slice.segment);
    }
    return NULL;
}

static void locked_append(readers_state *s, int value_length)
{
    hot_fixture *h = s->h;
    pb_append *append = append_make((batch_spec){.timestamp = 1000 + h->count, .value_length = value_length});
    memset(append->bytes + append->length - value_length, 'a' + h->count % 26, (size_t)value_length);
    pb_link finished;
    pb_list_init(&finished);
    pb_log_write write;
    fixture_lock(&h->f.mutex);
    CHECK_INT(pb_log_append(h->f.log, append), 0);
    h->lengths[h->count] = append->length;
    h->bytes[h->count] = malloc(append->length);
    memcpy(h->bytes[h->count], append->bytes, append->length);
    CHECK(pb_log_write_begin(h->f.log, &write));
    fixture_unlock(&h->f.mutex);
    int rc;
    while ((rc = pb_log_write_prepare(h->f.log, &write)) == PB_LOG_WAITS)
        CHECK_INT(pb_log_write_unblock(h->f.log, &h->f.guard, &write), 0);
    CHECK_INT(rc, 0);
    int64_t result = pb_log_write_ring(h->f.log, &write);
    fixture_lock(&h->f.mutex);
    pb_log_write_end(h->f.log, &write, result, &finished);
    h->count++;
    fixture_unlock(&h->f.mutex);
    atomic_store(&s->written, h->count);
    append_free(PB_CONTAINER(pb_list_pop_front(&finished), pb_append, link));
}

TEST(readers_beside_a_writer_never_see_what_was_overwritten)
{
    static hot_fixture h;
    hot_open(&h, RING_BYTES);
    h.f.options.config.segment_bytes = 3 << 20;
    pb_log_configure(h.f.log, &h.f.options.config);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    readers_state s = {.h = &h};
    pthread_t flushers[2], readers[2];
    CHECK_INT(pthread_create(&flushers[0], NULL, flush_on, &s), 0);
    CHECK_INT(pthread_create(&flushers[1], NULL, sync_on, &s), 0);
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_create(&readers[i], NULL, read_on, &s), 0);
    uint32_t state = 9;
    for (int i = 0; i < MOST_BATCHES; i++)
        locked_append(&s, 1 + (int)(next_random(&state) % 4000));
    atomic_store(&s.stop, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(flushers[i], NULL);
        pthread_join(readers[i], NULL);
    }
    CHECK(h.f.log->segment_count > 2);
    hot_read_all(&h);
    hot_free(&h);
}

/* ---- syncs that are one write ---- */

/* Make one, as a reactor does. false: it has to be made by a thread. */
static bool sync_by_write(hot_fixture *h)
{
    pb_log_sync_round round;
    pb_log_sync_write write;
    fixture_lock(&h->f.mutex);
    bool begun = pb_log_sync_begin_write(h->f.log, &round, &write);
    fixture_unlock(&h->f.mutex);
    if (!begun)
        return false;
    int64_t result = h->f.io->ops->file_write_durable(h->f.io, write.file, write.iov, write.iov_count, write.position);
    int rc = pb_log_sync_end_write(h->f.log, &write, result);
    CHECK_INT(rc, 0);
    fixture_lock(&h->f.mutex);
    pb_log_sync_end(h->f.log, &round, rc);
    fixture_unlock(&h->f.mutex);
    pb_log_sync_release(&round);
    CHECK_INT(pb_log_durable_end(h->f.log), h->count);
    CHECK_INT(pb_log_gathered_bytes(h->f.log), 0);
    return true;
}

TEST(a_sync_is_one_write_where_zeros_are)
{
    hot_fixture h;
    hot_open_within(&h, 4 << 20, 8 << 20);
    h.f.options.config.segment_bytes = 8 << 20;
    pb_log_configure(h.f.log, &h.f.options.config);
    CHECK(!sync_by_write(&h)); /* cold */
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    hot_append(&h, 5000);
    CHECK(!sync_by_write(&h)); /* the directory has to be synced */
    CHECK_INT(pb_log_sync(h.f.log, &h.f.guard, NULL), 0);
    hot_append(&h, 5000);
    CHECK(!sync_by_write(&h)); /* no zeros */
    CHECK_INT(pb_log_write_zeros(h.f.log, &h.f.guard, NULL), 0);
    CHECK(!sync_by_write(&h)); /* they begin further ahead */
    while (h.f.log->hot->flushed_end < h.f.log->hot->zeroed_position) {
        hot_append(&h, 100000);
        CHECK_INT(pb_log_sync(h.f.log, &h.f.guard, NULL), 0);
    }
    int64_t zeroed_end = h.f.log->hot->zeroed_end;
    for (int i = 0; i < 200; i++) {
        hot_append(&h, 1 + i * 100);
        CHECK(sync_by_write(&h));
    }
    hot_append(&h, 1);
    CHECK(sync_by_write(&h)); /* into a block that was written before */
    while (pb_tail_ring_end(h.f.log->hot->ring) < zeroed_end - 300000) {
        hot_append(&h, 290000);
        CHECK(sync_by_write(&h));
    }
    hot_append(&h, 300000);
    CHECK(!sync_by_write(&h)); /* behind the zeros */
    hot_read_all(&h);
    CHECK_INT(pb_log_cool(h.f.log, &h.f.guard), 0);
    hot_read_all(&h);
    hot_free(&h);
}

/* ---- zeros that are slow ---- */

static sem_t zeros_begun, zeros_may_end;

/* Zeros begin with it. */
static int truncate_slowly(pb_io *io, int file, int64_t length)
{
    if (length > fixture_ops->file_size(io, file)) {
        sem_post(&zeros_begun);
        sem_wait(&zeros_may_end);
    }
    return fixture_ops->file_truncate(io, file, length);
}

static int nap_count;
static pb_log *hurried;    /* by somebody, in the tenth nap; NULL: nobody comes */
static hot_fixture *grows; /* in the first nap; NULL: nothing is appended */

static void count_nap(pb_io *io, int64_t ns)
{
    (void)io;
    CHECK(ns > 0);
    if (++nap_count == 10 && hurried != NULL)
        pb_log_hurry_zeros(hurried);
    if (nap_count == 1 && grows != NULL)
        hot_append(grows, 700000);
}

TEST(zeros_leave_the_disk_to_rounds_unless_many_wait_for_them)
{
    static hot_fixture h;
    hot_open_within(&h, 4 << 20, 8 << 20);
    static pb_io_ops napping;
    napping = *h.f.io->ops;
    napping.nap = count_nap;
    h.f.io->ops = &napping;
    h.f.options.config.segment_bytes = 64 << 20;
    pb_log_configure(h.f.log, &h.f.options.config);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    hot_append(&h, 5000);
    atomic_int others = 100;
    nap_count = 0;
    CHECK_INT(pb_log_write_zeros(h.f.log, &h.f.guard, &others), 0);
    CHECK_INT(nap_count, 0);
    int64_t zeroed_end = atomic_load(&h.f.log->hot->zeroed_end);
    CHECK(zeroed_end > 16 << 20);
    /* What was written ahead is nearly used up. */
    h.f.log->hot->zeroed_end = zeroed_end = pb_block_floor(pb_tail_ring_end(h.f.log->hot->ring)) + (2 << 20);
    others = 1;
    CHECK_INT(pb_log_write_zeros(h.f.log, &h.f.guard, &others), 0);
    CHECK(nap_count >= 64 && nap_count <= 256); /* of 64 pieces, beside which nothing was flushed */
    CHECK_INT(atomic_load(&h.f.log->hot->zeroed_end), zeroed_end + (16 << 20));
    for (int round = 0; round < 2; round++) { /* who is in a hurry is so once */
        h.f.log->hot->zeroed_end = zeroed_end;
        hurried = round == 0 ? h.f.log : NULL;
        nap_count = 0;
        CHECK_INT(pb_log_write_zeros(h.f.log, &h.f.guard, NULL), 0);
        CHECK((nap_count == 10) == (round == 0));
    }
    /* Syncs are about to come to where zeros are written, a MiB ahead of them at first. */
    h.f.log->hot->zeroed_end = 0;
    grows = &h;
    nap_count = 0;
    CHECK_INT(pb_log_write_zeros(h.f.log, &h.f.guard, NULL), 0);
    CHECK_INT(nap_count, 1);
    grows = NULL;
    h.f.io->ops = fixture_ops;
    hot_free(&h);
}

typedef struct zeros_state {
    hot_fixture h;
    pb_log_write write; /* it rolls, and waits for that */
    _Atomic int sync_result;
} zeros_state;

/* As the background thread does it: zeros, and at once what a writer waits for. */
static void *zeros_then_roll(void *argument)
{
    zeros_state *s = argument;
    CHECK_INT(pb_log_write_zeros(s->h.f.log, &s->h.f.guard, NULL), 0);
    CHECK_INT(pb_log_write_unblock(s->h.f.log, &s->h.f.guard, &s->write), 0);
    return NULL;
}

static void *sync_once(void *argument)
{
    zeros_state *s = argument;
    atomic_store(&s->sync_result, pb_log_sync(s->h.f.log, &s->h.f.guard, NULL));
    return NULL;
}

static bool is_syncing(zeros_state *s)
{
    fixture_lock(&s->h.f.mutex);
    bool syncing = s->h.f.log->syncing;
    fixture_unlock(&s->h.f.mutex);
    return syncing;
}

static void wait_until_it_waits(zeros_state *s)
{
    while (!is_syncing(s))
        sched_yield();
    for (int i = 0; i < 200; i++)
        sched_yield();
}

/* A batch that begins a new segment, up to where its writer waits. */
static void begin_roll(zeros_state *s)
{
    hot_fixture *h = &s->h;
    pb_append *append = append_make((batch_spec){.timestamp = 1000 + h->count, .value_length = 480000});
    h->lengths[h->count] = append->length;
    fixture_lock(&h->f.mutex);
    CHECK_INT(pb_log_append(h->f.log, append), 0);
    h->bytes[h->count] = malloc(append->length);
    memcpy(h->bytes[h->count++], append->bytes, append->length);
    CHECK(pb_log_write_begin(h->f.log, &s->write) && s->write.rolls);
    fixture_unlock(&h->f.mutex);
    CHECK_INT(pb_log_write_prepare(h->f.log, &s->write), PB_LOG_WAITS);
}

static void end_roll(zeros_state *s)
{
    pb_link finished;
    pb_list_init(&finished);
    CHECK_INT(pb_log_write_prepare(s->h.f.log, &s->write), 0);
    int64_t result = pb_log_write_ring(s->h.f.log, &s->write);
    fixture_lock(&s->h.f.mutex);
    pb_log_write_end(s->h.f.log, &s->write, result, &finished);
    fixture_unlock(&s->h.f.mutex);
    append_free(PB_CONTAINER(pb_list_pop_front(&finished), pb_append, link));
}

TEST(a_sync_that_waited_for_zeros_does_not_mistake_the_next_segment_for_its_own)
{
    zeros_state *s = calloc(1, sizeof(*s));
    hot_fixture *h = &s->h;
    hot_open_within(h, 4 << 20, 8 << 20);
    h->f.options.config.segment_bytes = 2000000;
    pb_log_configure(h->f.log, &h->f.options.config);
    pb_io_ops slow = *fixture_ops;
    slow.file_truncate = truncate_slowly;
    h->f.io->ops = &slow;
    sem_init(&zeros_begun, 0, 0);
    sem_init(&zeros_may_end, 0, 0);
    CHECK_INT(pb_log_heat(h->f.log, &h->f.guard), 0);
    hot_append(h, 480000);
    for (int round = 0; round < 8; round++) {
        pthread_t background, sync;
        CHECK_INT(pthread_create(&background, NULL, zeros_then_roll, s), 0);
        sem_wait(&zeros_begun);
        for (int i = 0; i < 3; i++)
            hot_append(h, 480000);
        CHECK_INT(pthread_create(&sync, NULL, sync_once, s), 0);
        wait_until_it_waits(s);
        begin_roll(s);
        sem_post(&zeros_may_end);
        pthread_join(background, NULL);
        end_roll(s);
        pthread_join(sync, NULL);
        CHECK_INT(atomic_load(&s->sync_result), 0);
    }
    CHECK(h->f.log->segment_count == 9);
    hot_read_all(h);
    h->f.io->ops = fixture_ops;
    hot_free(h);
    free(s);
}

/* ---- a disk that fails: Linux tells each handle once that pages of its file could not be written ---- */

static hot_fixture *losing; /* it syncs once more while its zeros are synced; NULL: nothing has been lost */
static int lost_error;      /* what is told */
static bool told_of[1024];  /* by handle */

static int tell_once(pb_io *io, int file)
{
    (void)io;
    CHECK(file >= 0 && file < 1024);
    if (told_of[file] || lost_error == 0)
        return 0;
    told_of[file] = true;
    hot_fixture *h = losing;
    losing = NULL;
    if (h != NULL)
        (void)pb_log_sync(h->f.log, &h->f.guard, NULL);
    return lost_error;
}

/* A hot log with a batch that went through the page cache before, none of it durable. */
static void open_losing(hot_fixture *h, pb_io_ops *ops)
{
    hot_open_within(h, 4 << 20, 8 << 20);
    hot_append(h, 5000);
    CHECK_INT(pb_log_heat(h->f.log, &h->f.guard), 0);
    hot_append(h, 5000);
    *ops = *fixture_ops;
    ops->file_sync = tell_once;
    h->f.io->ops = ops;
    memset(told_of, 0, sizeof(told_of));
}

/* The log has failed, and nothing of it is durable. */
static void close_losing(hot_fixture *h)
{
    CHECK(pb_log_failed(h->f.log));
    CHECK_INT(pb_log_durable_end(h->f.log), 0);
    lost_error = 0;
    h->f.io->ops = fixture_ops;
    (void)pb_log_close(h->f.log, false, NULL);
    h->f.log = NULL;
    pb_ring_pool_close(h->f.options.rings);
    fixture_remove(h->rings);
    fixture_free(&h->f);
    for (int i = 0; i < h->count; i++)
        free(h->bytes[i]);
}

TEST(what_zeros_are_told_of_a_failure_is_told_to_the_round_beside_them)
{
    static hot_fixture h;
    pb_io_ops ops;
    open_losing(&h, &ops);
    lost_error = -EIO;
    losing = &h;
    CHECK_INT(pb_log_write_zeros(h.f.log, &h.f.guard, NULL), -EIO);
    close_losing(&h);
}

TEST(a_hot_log_has_failed_when_its_pages_found_no_memory_to_be_written)
{
    static hot_fixture h;
    pb_io_ops ops;
    open_losing(&h, &ops);
    lost_error = -ENOMEM;
    CHECK_INT(pb_log_sync(h.f.log, &h.f.guard, NULL), -EIO);
    CHECK_INT(pb_log_sync(h.f.log, &h.f.guard, NULL), -EIO);
    close_losing(&h);
}

static int refuse_to_open(pb_io *io, const char *path, int flags)
{
    return flags & PB_OPEN_DIRECT ? -EMFILE : fixture_ops->file_open(io, path, flags);
}

TEST(a_log_does_without_zeros_when_it_has_no_handle_for_them)
{
    static hot_fixture h;
    hot_open_within(&h, 4 << 20, 8 << 20);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    hot_append(&h, 5000);
    pb_io_ops ops = *fixture_ops;
    ops.file_open = refuse_to_open;
    h.f.io->ops = &ops;
    CHECK(pb_log_wants_zeros(h.f.log));
    CHECK_INT(pb_log_write_zeros(h.f.log, &h.f.guard, NULL), 0);
    CHECK(!pb_log_wants_zeros(h.f.log)); /* not again and again */
    for (int i = 0; i < 20; i++) {
        hot_append(&h, 100000);
        CHECK(!sync_by_write(&h));
        CHECK_INT(pb_log_sync(h.f.log, &h.f.guard, NULL), 0);
    }
    hot_read_all(&h);
    h.f.io->ops = fixture_ops;
    hot_free(&h);
}

static int64_t find_no_room(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    (void)io;
    (void)file;
    (void)iov;
    (void)count;
    (void)position;
    return -ENOSPC;
}

TEST(a_hot_log_that_cannot_be_emptied_is_not_held)
{
    static hot_fixture h;
    pb_io_ops ops;
    open_losing(&h, &ops);
    ops.file_write = find_no_room; /* of a file system that copies what it writes over */
    CHECK_INT(pb_log_hold(h.f.log, &h.f.guard, NULL), -ENOSPC);
    CHECK(!h.f.log->writing && !h.f.log->maintaining);
    CHECK(pb_log_gathered_bytes(h.f.log) > 0);
    close_losing(&h);
}

CHECK_MAIN()
