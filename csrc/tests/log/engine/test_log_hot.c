/* Hot logs: what goes through the ring is what a cold log would have, at every place and at every time. */
#include <stdatomic.h>

#include "base/kafka_error.h"
#include "tests/log/hot_log_fixture.h"

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
    hot_close_and_read_again(&h);
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
    enum { SEGMENT_BYTES = 64 << 20, LEAST_BYTES = 12 << 20, PART = 2 };
    static hot_fixture h;
    hot_open_within(&h, 32 << 20, 64 << 20);
    h.f.options.config.segment_bytes = SEGMENT_BYTES;
    pb_log_configure(h.f.log, &h.f.options.config);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    int64_t most = 0, most_at_end = 0;
    while (h.f.log->segment_count < 3) {
        hot_append(&h, 200000);
        int64_t left = SEGMENT_BYTES - pb_log_active(h.f.log)->size_bytes;
        int64_t gathered = pb_log_gathered_bytes(h.f.log);
        CHECK(gathered <= (left / PART > LEAST_BYTES ? left / PART : LEAST_BYTES));
        most = gathered > most ? gathered : most;
        if (left < 1 << 20)
            most_at_end = gathered > most_at_end ? gathered : most_at_end;
    }
    CHECK(most > 20 << 20);
    CHECK(most_at_end > 9 << 20);
    hot_read_all(&h);
    hot_free(&h);
}

TEST(a_writer_pauses_with_less_in_the_ring_before_a_segment_ends)
{
    enum { SEGMENT_BYTES = 64 << 20 };
    static hot_fixture h;
    hot_open_within(&h, 32 << 20, 64 << 20);
    h.f.options.config.segment_bytes = SEGMENT_BYTES;
    pb_log_configure(h.f.log, &h.f.options.config);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    for (int64_t left = SEGMENT_BYTES; left > 1 << 20; left = SEGMENT_BYTES - pb_log_active(h.f.log)->size_bytes) {
        int64_t full = left / 4 > 2 << 20 ? left / 4 : 2 << 20;
        int64_t gathered = pb_log_gathered_bytes(h.f.log), pause_ns = pb_log_pause_ns(h.f.log);
        CHECK((pause_ns > 0) == (gathered > full / 4));
        CHECK((pause_ns == 2000000) == (gathered >= full));
        hot_append(&h, 200000);
        while (pb_log_gathered_bytes(h.f.log) > full + (1 << 20))
            CHECK_INT(pb_log_flush(h.f.log, &h.f.guard, NULL), 0);
    }
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

/* The ring that the note of a hot log names; NULL: there is no note. To be freed. */
static char *noted_ring(const hot_fixture *h)
{
    if (!file_exists(&h->f, PB_RING_FILE))
        return NULL;
    size_t length;
    char *text = (char *)file_load(&h->f, PB_RING_FILE, &length);
    CHECK(length > 0 && text[length - 1] == '\n');
    text[length - 1] = '\0';
    const char *name = strrchr(text, ' ');
    CHECK(name != NULL);
    char *copy = strdup(name + 1);
    free(text);
    return copy;
}

TEST(a_note_names_the_ring_for_as_long_as_the_log_is_hot)
{
    hot_fixture h;
    hot_open(&h, RING_BYTES);
    hot_append(&h, 100);
    CHECK(noted_ring(&h) == NULL);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    char *name = noted_ring(&h);
    CHECK(name != NULL);
    char path[PB_LOG_PATH_BYTES];
    CHECK(snprintf(path, sizeof(path), "%s/%s", h.rings, name) < (int)sizeof(path));
    CHECK_INT(access(path, F_OK), 0);
    free(name);
    hot_append(&h, 100);
    CHECK_INT(pb_log_cool(h.f.log, &h.f.guard), 0);
    CHECK(noted_ring(&h) == NULL);
    /* One that a kill has left goes when the log has been opened with what its ring had. */
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    size_t length;
    uint8_t *text = file_load(&h.f, PB_RING_FILE, &length);
    fixture_close(&h.f, true);
    CHECK(noted_ring(&h) == NULL);
    file_store(&h.f, PB_RING_FILE, text, length);
    free(text);
    fixture_open(&h.f);
    CHECK(noted_ring(&h) == NULL);
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

/* ---- near the reserve ---- */

static int64_t left_bytes; /* on the disk */
static int64_t most_bytes; /* that were taken at once */

static int64_t tell_left(pb_io *io, const char *path)
{
    (void)io;
    (void)path;
    return left_bytes;
}

static int take_from_left(pb_io *io, int file, int64_t position, int64_t length)
{
    most_bytes = length > most_bytes ? length : most_bytes;
    left_bytes -= length;
    return fixture_ops->file_allocate(io, file, position, length);
}

TEST(blocks_ahead_leave_the_reserve_alone)
{
    enum { RESERVE_BYTES = 8 << 20 };
    static hot_fixture h;
    pb_io_ops ops;
    hot_open(&h, 512 << 10);
    ops = *h.f.io->ops;
    ops.path_free_bytes = tell_left;
    ops.file_allocate = take_from_left;
    h.f.io->ops = &ops;
    h.f.log->config.reserve_bytes = RESERVE_BYTES;
    left_bytes = RESERVE_BYTES; /* nothing is left for it: it stays as it is */
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), -ENOSPC);
    CHECK_INT(most_bytes, 0);
    left_bytes = RESERVE_BYTES + (4 << 20);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    CHECK_INT(most_bytes, 1 << 20);
    /* What comes then takes the blocks that it needs, and no more. */
    for (int i = 0; i < 100; i++) {
        hot_append(&h, 100000);
        CHECK_INT(pb_log_flush(h.f.log, &h.f.guard, NULL), 0);
    }
    CHECK_INT(most_bytes, 1 << 20);
    CHECK(RESERVE_BYTES - left_bytes < 100 * 100000);
    hot_read_all(&h);
    hot_free(&h);
}

/* What something else has cut off its file is missing; what the ring has is not. */
TEST(a_hot_log_whose_file_was_cut_goes_on_in_a_new_segment)
{
    enum { CUT = 4, BATCH_BYTES = 30000 };
    static hot_fixture h;
    char path[300];
    pb_failure failure = {0};
    hot_open(&h, 512 << 10);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    for (int i = 0; i < CUT; i++)
        hot_append(&h, BATCH_BYTES);
    CHECK_INT(pb_log_flush(h.f.log, &h.f.guard, NULL), 0);
    snprintf(path, sizeof(path), "%s/00000000000000000000.log", h.f.directory);
    CHECK_INT(truncate(path, BATCH_BYTES + 2000), 0);
    hot_append(&h, 100);
    CHECK_INT(pb_log_check_files(h.f.log, &h.f.guard, &failure), -ENODATA);
    CHECK_INT(pb_log_roll(h.f.log, &h.f.guard, &failure), 0);
    CHECK(!pb_log_is_hot(h.f.log) && h.f.log->segment_count == 2);
    CHECK_INT(pb_log_check_files(h.f.log, &h.f.guard, &failure), 0);
    hot_append(&h, 100);
    hot_read(&h, 0, 1);
    hot_read(&h, CUT + 1, 1);
    pb_log_slice slice;
    /* Of the one that was cut the header is left, and its CRC is the client's to check. The newest block was in the
     * ring. */
    for (int i = 2; i < CUT - 1; i++)
        CHECK_INT(pb_log_read(h.f.log, &h.f.guard, i, 1, h.count, true, &slice), PB_CORRUPT_MESSAGE);
    hot_free(&h);
}

CHECK_MAIN()
