/* Writeback is started behind the end of a growing log, segment by segment, and the next one's file made ahead. */
#include "tests/log/log_fixture.h"

enum { BATCH_BYTES = 64 << 10 };

static int64_t started_from, started_to;

static int count_writeback(pb_io *io, int file, int64_t position, int64_t length)
{
    (void)io;
    CHECK(file >= 0 && length > 0);
    CHECK_INT(position, started_to);
    started_from = position;
    started_to = position + length;
    return 0;
}

static void grow(fixture *f, int64_t bytes)
{
    int64_t until = pb_log_size_bytes(f->log) + bytes;
    while (pb_log_size_bytes(f->log) < until)
        (void)log_append(f, (batch_spec){.timestamp = 5, .value_length = BATCH_BYTES});
}

TEST(writeback_follows_a_growing_log_at_a_distance)
{
    fixture f;
    fixture_init(&f);
    pb_io_ops counted = *f.io->ops;
    counted.file_writeback = count_writeback;
    f.io->ops = &counted;
    f.options.config.segment_bytes = 40 << 20;
    fixture_open(&f);
    grow(&f, (1 << 20) - 2 * BATCH_BYTES);
    CHECK(!pb_log_needs_pacing(f.log));
    grow(&f, 16 << 20);
    CHECK(pb_log_needs_pacing(f.log));
    CHECK_INT(pb_log_pace(f.log, &f.guard), 0);
    CHECK(!pb_log_needs_pacing(f.log));
    CHECK(started_from == 0 && started_to > 8 << 20 && started_to <= pb_log_size_bytes(f.log) - (4 << 20));
    grow(&f, 16 << 20);
    CHECK_INT(pb_log_pace(f.log, &f.guard), 0);
    CHECK(started_to > 24 << 20);
    /* A new segment begins from its own start. */
    int64_t before = pb_log_size_bytes(f.log);
    grow(&f, 24 << 20);
    CHECK(f.log->segment_count == 2 && pb_log_size_bytes(f.log) > before);
    started_to = 0;
    CHECK(pb_log_needs_pacing(f.log));
    CHECK_INT(pb_log_pace(f.log, &f.guard), 0);
    CHECK(started_to > 0 && started_to < 20 << 20);
    fixture_free(&f);
}

TEST(a_slow_log_has_little_that_the_kernel_could_lock)
{
    enum { MOST_DIRTY_BYTES = 3 << 19 };
    fixture f;
    fixture_init(&f);
    pb_io_ops counted = *f.io->ops;
    counted.file_writeback = count_writeback;
    f.io->ops = &counted;
    f.options.config.segment_bytes = 40 << 20;
    fixture_open(&f);
    started_to = 0;
    while (pb_log_size_bytes(f.log) < 16 << 20) {
        grow(&f, BATCH_BYTES);
        if (pb_log_needs_pacing(f.log))
            CHECK_INT(pb_log_pace(f.log, &f.guard), 0);
        int64_t dirty_bytes = pb_log_size_bytes(f.log) - started_to;
        CHECK(dirty_bytes < MOST_DIRTY_BYTES && (started_to == 0 || dirty_bytes >= 256 << 10));
    }
    fixture_free(&f);
}

static int made_count;

static int count_made(pb_io *io, const char *directory)
{
    made_count++;
    return fixture_ops->file_make_unnamed(io, directory);
}

static int refuse_unnamed(pb_io *io, const char *directory)
{
    (void)io;
    CHECK(directory != NULL);
    return -EOPNOTSUPP;
}

static int refuse_name(pb_io *io, int file, const char *path)
{
    (void)io;
    CHECK(file >= 0 && path != NULL);
    return -EXDEV;
}

/* A log whose active segment is nearly full; `ops` are the usual ones, for the test to change. */
static void begin_nearly_full(fixture *f, pb_io_ops *ops)
{
    fixture_init(f);
    *ops = *fixture_ops;
    f->options.config.segment_bytes = 12 << 20;
    fixture_open(f);
    f->io->ops = ops;
    grow(f, 10 << 20);
    CHECK_INT(f->log->spare_file, -1);
}

TEST(a_roll_only_names_the_file_that_was_made_ahead)
{
    fixture f;
    pb_io_ops ops;
    begin_nearly_full(&f, &ops);
    made_count = 0;
    ops.file_make_unnamed = count_made;
    CHECK_INT(pb_log_pace(f.log, &f.guard), 0);
    CHECK(f.log->spare_file >= 0);
    CHECK_INT(pb_log_pace(f.log, &f.guard), 0); /* once is enough */
    CHECK_INT(made_count, 1);
    ops.file_open = fixture_refuse_creation;
    grow(&f, 4 << 20);
    CHECK_INT(f.log->segment_count, 2);
    CHECK_INT(f.log->spare_file, -1);
    CHECK_INT(pb_log_check_files(f.log, &f.guard, NULL), 0);
    fixture_free(&f);
}

TEST(a_roll_makes_the_file_that_could_not_be_made_ahead)
{
    fixture f;
    pb_io_ops ops;
    begin_nearly_full(&f, &ops);
    ops.file_make_unnamed = refuse_unnamed;
    CHECK_INT(pb_log_pace(f.log, &f.guard), 0);
    CHECK_INT(f.log->spare_file, -1);
    grow(&f, 4 << 20);
    CHECK_INT(f.log->segment_count, 2);
    CHECK_INT(pb_log_check_files(f.log, &f.guard, NULL), 0);
    fixture_free(&f);

    begin_nearly_full(&f, &ops);
    ops.file_name = refuse_name;
    CHECK_INT(pb_log_pace(f.log, &f.guard), 0);
    CHECK(f.log->spare_file >= 0);
    grow(&f, 4 << 20);
    CHECK_INT(f.log->segment_count, 2);
    CHECK_INT(f.log->spare_file, -1);
    CHECK_INT(pb_log_check_files(f.log, &f.guard, NULL), 0);
    fixture_free(&f);
}

CHECK_MAIN()
