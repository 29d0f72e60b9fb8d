/* Zeros that are written ahead of a hot log with durable acks, and syncs that are one write into them. */
#include <sched.h>
#include <semaphore.h>

#include "tests/log/hot_log_fixture.h"

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
    CHECK(file_bytes(&h, "00000000000000000000.log") > 8 << 20);
    CHECK(!pb_log_wants_zeros(h.f.log));
    hot_read_all(&h);
    hot_close_and_read_again(&h);
    hot_free(&h);
}

TEST(zeros_are_few_where_a_segment_begins)
{
    static const int64_t MIB[] = {2, 2, 4, 8, 16, 16};
    static hot_fixture h;
    hot_open_within(&h, 4 << 20, 8 << 20);
    h.f.options.config.segment_bytes = 128 << 20;
    pb_log_configure(h.f.log, &h.f.options.config);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    int64_t zeroed_end = 1 << 20; /* in front, syncs come meanwhile */
    for (size_t i = 0; i < sizeof(MIB) / sizeof(MIB[0]); i++) {
        while (!pb_log_wants_zeros(h.f.log)) {
            hot_append(&h, 120000);
            CHECK_INT(pb_log_sync(h.f.log, &h.f.guard, NULL), 0);
        }
        CHECK_INT(pb_log_write_zeros(h.f.log, &h.f.guard, NULL), 0);
        zeroed_end += MIB[i] << 20;
        CHECK_INT(atomic_load(&h.f.log->hot->zeroed_end), zeroed_end);
    }
    hot_read_all(&h);
    hot_free(&h);
}

static int durable_write_count, sync_count;

static int64_t count_durable_write(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    durable_write_count++;
    return fixture_ops->file_write_durable(io, file, iov, count, position);
}

static int count_sync(pb_io *io, int file)
{
    sync_count++;
    return fixture_ops->file_sync(io, file);
}

TEST(syncs_that_are_huge_go_without_zeros)
{
    static hot_fixture h;
    hot_open_within(&h, 8 << 20, 16 << 20);
    h.f.options.config.segment_bytes = 48 << 20;
    pb_log_configure(h.f.log, &h.f.options.config);
    pb_io_ops counting = *fixture_ops;
    counting.file_write_durable = count_durable_write;
    counting.file_sync = count_sync;
    h.f.io->ops = &counting;
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    for (int i = 0; i < 20; i++) {
        hot_append(&h, 500000);
        CHECK_INT(pb_log_sync(h.f.log, &h.f.guard, NULL), 0);
    }
    CHECK(!pb_log_wants_zeros(h.f.log));
    /* What is more than one write is made durable by one sync, not write by write. */
    for (int i = 0; i < 3; i++)
        hot_append(&h, 900000);
    durable_write_count = sync_count = 0;
    CHECK_INT(pb_log_sync(h.f.log, &h.f.guard, NULL), 0);
    CHECK(durable_write_count == 0 && sync_count == 1);
    hot_append(&h, 500000);
    CHECK_INT(pb_log_sync(h.f.log, &h.f.guard, NULL), 0);
    CHECK(durable_write_count == 1 && sync_count == 1);
    /* The next segment is written to as this one is. */
    while (h.f.log->segment_count == 1)
        hot_append(&h, 500000);
    CHECK(!pb_log_wants_zeros(h.f.log));
    for (int i = 0; i < 20; i++) {
        hot_append(&h, 5000);
        CHECK_INT(pb_log_sync(h.f.log, &h.f.guard, NULL), 0);
    }
    CHECK(pb_log_wants_zeros(h.f.log));
    hot_read_all(&h);
    h.f.io->ops = fixture_ops;
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

static int unnamed_file;
static bool is_elsewhere;

/* The log directory is that which all tests' directories lie in. */
static int make_in_log_dir(pb_io *io, const char *directory)
{
    CHECK(strcmp(directory, "/tmp") == 0);
    return unnamed_file = fixture_ops->file_make_unnamed(io, directory);
}

static int make_none(pb_io *io, const char *directory)
{
    (void)io;
    (void)directory;
    return -EMFILE;
}

static uint64_t flush_device(pb_io *io, int file)
{
    (void)io;
    return file == unnamed_file && is_elsewhere ? 2 : 1;
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

TEST(a_disk_is_flushed_by_a_file_of_the_log_directory_if_it_lies_there)
{
    static hot_fixture h;
    hot_open(&h, RING_BYTES);
    static pb_io_ops ops;
    ops = *fixture_ops;
    ops.file_make_unnamed = make_none;
    ops.file_flush_device = flush_device;
    h.f.io->ops = &ops;
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    CHECK_INT(pb_log_make_flush_file(h.f.log), -EMFILE);
    ops.file_make_unnamed = make_in_log_dir;
    int file = pb_log_make_flush_file(h.f.log);
    CHECK(file >= 0);
    ops.file_close(h.f.io, file);
    is_elsewhere = true;
    CHECK_INT(pb_log_make_flush_file(h.f.log), -EXDEV);
    is_elsewhere = false;
    h.f.io->ops = fixture_ops;
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
    /* Of what was written ahead, which is much, nearly all is used up. */
    int64_t zeroed_end = pb_block_floor(pb_tail_ring_end(h.f.log->hot->ring)) + (2 << 20);
    h.f.log->hot->zeroed_end = zeroed_end;
    h.f.log->hot->zeroed_position = zeroed_end - (16 << 20);
    others = 1;
    CHECK_INT(pb_log_write_zeros(h.f.log, &h.f.guard, &others), 0);
    CHECK(nap_count >= 64 && nap_count <= 256); /* of 64 pieces, beside which nothing was flushed */
    CHECK_INT(atomic_load(&h.f.log->hot->zeroed_end), zeroed_end + (16 << 20));
    for (int round = 0; round < 2; round++) { /* who is in a hurry is so once */
        h.f.log->hot->zeroed_end = zeroed_end;
        h.f.log->hot->zeroed_position = zeroed_end - (16 << 20);
        hurried = round == 0 ? h.f.log : NULL;
        nap_count = 0;
        CHECK_INT(pb_log_write_zeros(h.f.log, &h.f.guard, NULL), 0);
        CHECK((nap_count == 10) == (round == 0));
    }
    /* Beside large rounds it is fewer pieces. */
    h.f.log->hot->zeroed_end = zeroed_end;
    h.f.log->hot->zeroed_position = zeroed_end - (16 << 20);
    atomic_store(&h.f.log->hot->round_bytes, PB_LARGE_ROUND_BYTES);
    nap_count = 0;
    CHECK_INT(pb_log_write_zeros(h.f.log, &h.f.guard, &others), 0);
    CHECK(nap_count >= 8 && nap_count <= 32);
    CHECK_INT(atomic_load(&h.f.log->hot->zeroed_end), zeroed_end + (16 << 20));
    atomic_store(&h.f.log->hot->round_bytes, 0);
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
        atomic_store(&h->f.log->hot->round_bytes, 0); /* syncs that are huge, as these, would go without zeros */
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

CHECK_MAIN()
