/* The files of a log's directory from the first moment on: Apache Kafka's tools read them while it is served. */
#include "tests/log/hot_log_fixture.h"

static const char *const NEW_FILES[] = {
    "00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex",
    "leader-epoch-checkpoint",    "partition.metadata",
};
enum { NEW_FILE_COUNT = sizeof(NEW_FILES) / sizeof(NEW_FILES[0]), BATCHES = 40 };

static void check_text(const fixture *f, const char *name, const char *expected)
{
    size_t length;
    char *text = (char *)file_load(f, name, &length);
    text[length] = '\0';
    CHECK_STR(text, expected);
    free(text);
}

static int64_t bytes_of(const fixture *f, int64_t base_offset, const char *ending)
{
    char path[256];
    struct stat info;
    snprintf(path, sizeof(path), "%s/%020lld.%s", f->directory, (long long)base_offset, ending);
    return stat(path, &info) == 0 ? info.st_size : -1;
}

/* Every segment has its two indexes, with whole entries, which speak of nothing behind its end. */
static void check_indexes(const fixture *f)
{
    for (uint32_t i = 0; i < f->log->segment_count; i++) {
        pb_segment *segment = f->log->segments[i];
        int64_t index_bytes = bytes_of(f, segment->base_offset, "index");
        int64_t time_index_bytes = bytes_of(f, segment->base_offset, "timeindex");
        CHECK(index_bytes >= 0 && index_bytes % PB_OFFSET_INDEX_ENTRY_BYTES == 0);
        CHECK(time_index_bytes >= 0 && time_index_bytes % PB_TIME_INDEX_ENTRY_BYTES == 0);
        int64_t end = pb_log_segment_end(f->log, i);
        CHECK_INT(pb_segment_flushed_below(segment, PB_FILE_OFFSET_INDEX,
                                           (uint32_t)(index_bytes / PB_OFFSET_INDEX_ENTRY_BYTES), end),
                  index_bytes / PB_OFFSET_INDEX_ENTRY_BYTES);
        CHECK_INT(pb_segment_flushed_below(segment, PB_FILE_TIME_INDEX,
                                           (uint32_t)(time_index_bytes / PB_TIME_INDEX_ENTRY_BYTES), end),
                  time_index_bytes / PB_TIME_INDEX_ENTRY_BYTES);
    }
}

static void check_readable(fixture *f, int64_t from, int64_t to)
{
    while (from < to) {
        pb_log_slice slice;
        CHECK_INT(pb_log_read(f->log, &f->guard, from, 1, to, true, &slice), 0);
        CHECK(slice.segment != NULL);
        CHECK_INT(slice.base_offset, from);
        pb_segment_release(slice.segment);
        from++;
    }
}

/* Segments of a few batches each, whose indexes have an entry for nearly every batch. */
static void init_small(fixture *f)
{
    fixture_init(f);
    f->options.config.segment_bytes = 3000;
    f->options.config.index_interval_bytes = 100;
}

static void fill(fixture *f, int from, int to)
{
    for (int i = from; i < to; i++)
        CHECK_INT(log_append(f, (batch_spec){.timestamp = 1000 + i, .value_length = 300}), i);
}

TEST(a_new_log_has_all_files_at_once)
{
    fixture f;
    fixture_init(&f);
    f.options.leader_epoch = 3;
    fixture_open(&f);
    for (int i = 0; i < NEW_FILE_COUNT; i++)
        CHECK(file_exists(&f, NEW_FILES[i]));
    CHECK_INT(count_files(f.directory), NEW_FILE_COUNT);
    check_text(&f, "leader-epoch-checkpoint", "0\n1\n3 0\n");
    pb_log_start_epoch(f.log, 3);
    CHECK_INT(pb_log_recovery_point(f.log), 0); /* the checkpoint is not synced yet */
    CHECK_INT(log_append(&f, (batch_spec){.timestamp = 1000, .leader_epoch = 3}), 0);
    CHECK_INT(count_files(f.directory), NEW_FILE_COUNT);
    pb_failure failure;
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), 0);
    check_text(&f, "leader-epoch-checkpoint", "0\n1\n3 0\n");
    CHECK_INT(count_files(f.directory), NEW_FILE_COUNT);
    fixture_free(&f);
}

TEST(a_log_that_is_not_led_has_an_empty_checkpoint)
{
    fixture f;
    fixture_init(&f);
    f.options.log_start_offset = 7;
    fixture_open(&f);
    check_text(&f, "leader-epoch-checkpoint", "0\n0\n");
    check_indexes(&f);
    CHECK_INT(count_files(f.directory), NEW_FILE_COUNT);
    fixture_free(&f);
}

/* A roll, a truncation within a segment, to the start and to another start, a stop in disorder, a deletion. */
TEST(every_segment_has_its_indexes_whatever_made_it)
{
    fixture f;
    pb_failure failure;
    init_small(&f);
    fixture_open(&f);
    for (int i = 0; i < BATCHES; i++) {
        fill(&f, i, i + 1);
        check_indexes(&f);
    }
    CHECK(f.log->segment_count > 4);
    CHECK_INT(pb_log_roll(f.log, &f.guard, &failure), 0);
    check_indexes(&f);
    for (int end = BATCHES - 1; end > 0; end -= 7) {
        CHECK_INT(pb_log_truncate(f.log, &f.guard, end, &failure), 0);
        check_indexes(&f);
        check_readable(&f, 0, end);
    }
    CHECK_INT(pb_log_truncate(f.log, &f.guard, 0, &failure), 0);
    check_indexes(&f);
    fill(&f, 0, BATCHES);
    fixture_close(&f, false);
    fixture_open(&f);
    check_indexes(&f);
    check_readable(&f, 0, BATCHES);
    CHECK_INT(pb_log_restart(f.log, &f.guard, 100, 100, &failure), 0);
    check_indexes(&f);
    CHECK(bytes_of(&f, 100, "index") == 0);
    fixture_free(&f);
}

TEST(hot_segments_have_their_indexes)
{
    static hot_fixture h;
    hot_open(&h, RING_BYTES);
    h.f.options.config.segment_bytes = 100000;
    pb_log_configure(h.f.log, &h.f.options.config);
    CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
    for (int i = 0; i < 60; i++) {
        hot_append(&h, 5000);
        check_indexes(&h.f);
    }
    CHECK(pb_log_is_hot(h.f.log) && h.f.log->segment_count > 2);
    hot_free(&h);
}

/* The process was killed before the checkpoint was written for good. */
TEST(a_stop_in_disorder_right_after_creation_leaves_nothing_to_mend)
{
    static const char *const CHECKPOINTS[] = {"0\n1\n0 0\n", "0\n1\n5 0\n", "0\n0\n", "", "0\n", "rubbish"};
    for (size_t i = 0; i < sizeof(CHECKPOINTS) / sizeof(CHECKPOINTS[0]); i++) {
        for (int batches = 0; batches < 2; batches++) {
            fixture f;
            init_small(&f);
            f.options.leader_epoch = 0;
            fixture_open(&f);
            pb_log_start_epoch(f.log, 2);
            if (batches > 0)
                CHECK_INT(log_append(&f, (batch_spec){.timestamp = 1000, .leader_epoch = 2}), 0);
            fixture_close(&f, false);
            file_store(&f, "leader-epoch-checkpoint", CHECKPOINTS[i], strlen(CHECKPOINTS[i]));
            fixture_open(&f);
            CHECK_INT(pb_log_written_end(f.log), batches);
            CHECK_INT(pb_log_latest_epoch(f.log), batches > 0 ? 2 : -1);
            CHECK_INT(f.recovery.truncated_bytes + f.recovery.hole_count + f.recovery.kept_file_count, 0);
            check_indexes(&f);
            fixture_free(&f);
        }
    }
}

/* Those of the active segment are missing, or speak of batches that a loss of power has taken. */
TEST(a_start_in_disorder_makes_the_active_segments_indexes_good)
{
    for (int missing = 0; missing < 2; missing++) {
        fixture f;
        pb_failure failure;
        init_small(&f);
        f.options.config.segment_bytes = 1 << 30;
        fixture_open(&f);
        fill(&f, 0, BATCHES);
        CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), 0);
        int64_t index_bytes = bytes_of(&f, 0, "index");
        int64_t log_bytes = bytes_of(&f, 0, "log");
        fixture_close(&f, false);
        char path[256];
        snprintf(path, sizeof(path), "%s/%020d.log", f.directory, 0);
        CHECK_INT(truncate(path, log_bytes / 2), 0);
        snprintf(path, sizeof(path), "%s/%020d.index", f.directory, 0);
        CHECK_INT(missing ? unlink(path) : 0, 0);
        fixture_open(&f);
        int64_t end = pb_log_written_end(f.log);
        CHECK(end > BATCHES / 3 && end < BATCHES);
        check_indexes(&f);
        CHECK(bytes_of(&f, 0, "index") > 0 && bytes_of(&f, 0, "index") < index_bytes);
        check_readable(&f, 0, end);
        fill(&f, (int)end, BATCHES);
        CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), 0);
        check_indexes(&f);
        CHECK(bytes_of(&f, 0, "index") >= index_bytes - PB_OFFSET_INDEX_ENTRY_BYTES);
        fixture_free(&f);
    }
}

/* The files of a sealed segment are there and were never written: wherever it lies, they are not trusted. */
TEST(indexes_that_were_made_and_never_written_are_built_again)
{
    for (int clean = 0; clean < 2; clean++) {
        fixture f;
        init_small(&f);
        fixture_open(&f);
        fill(&f, 0, BATCHES);
        int64_t base = f.log->segments[1]->base_offset;
        int64_t next = f.log->segments[2]->base_offset;
        fixture_close(&f, true);
        CHECK(bytes_of(&f, base, "index") > 0);
        char name[64];
        snprintf(name, sizeof(name), "%020lld.index", (long long)base);
        file_store(&f, name, "", 0);
        snprintf(name, sizeof(name), "%020lld.timeindex", (long long)base);
        file_store(&f, name, "", 0);
        f.options.clean = clean;
        f.options.recovery_point = BATCHES;
        fixture_open(&f);
        CHECK_INT(f.recovery.rebuilt_index_count, clean ? 1 : 2); /* the active one, too */
        CHECK(bytes_of(&f, base, "index") > 0);
        CHECK(bytes_of(&f, base, "timeindex") > 0);
        pb_log_position found;
        CHECK_INT(pb_log_offset_for_timestamp(f.log, &f.guard, 1000 + base + 1, BATCHES, &found), 0);
        CHECK_INT(found.offset, base + 1);
        CHECK(base + 1 < next);
        check_readable(&f, 0, BATCHES);
        fixture_free(&f);
    }
}

static int refuse_indexes(pb_io *io, const char *path, int flags)
{
    bool index = flags & PB_OPEN_CREATE && (strstr(path, "index") != NULL || strstr(path, "checkpoint") != NULL);
    return index ? -EMFILE : fixture_ops->file_open(io, path, flags);
}

/* They are made for tools alone: where that fails the log is served, and upkeep makes them. */
TEST(files_for_tools_that_cannot_be_made_keep_nothing_from_being_served)
{
    fixture f;
    pb_failure failure;
    init_small(&f);
    pb_io_ops refusing = *fixture_ops;
    refusing.file_open = refuse_indexes;
    f.io->ops = &refusing;
    fixture_open(&f);
    fill(&f, 0, BATCHES);
    CHECK_INT(bytes_of(&f, 0, "index"), -1);
    CHECK(!file_exists(&f, "leader-epoch-checkpoint"));
    f.io->ops = fixture_ops;
    pb_log_start_epoch(f.log, 1);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), 0);
    check_indexes(&f);
    CHECK(file_exists(&f, "leader-epoch-checkpoint"));
    fixture_free(&f);
}

CHECK_MAIN()
