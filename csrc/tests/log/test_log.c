/* A log as its partition uses it: append, write, read, roll, close, open. */
#include "base/kafka_error.h"
#include "tests/log/log_fixture.h"

static void check_read(fixture *f, int64_t offset, int64_t max_bytes, int64_t base_offset, int64_t length)
{
    pb_log_slice slice;
    CHECK_INT(pb_log_read(f->log, &f->guard, offset, max_bytes, INT64_MAX, true, &slice), 0);
    CHECK(slice.segment != NULL);
    CHECK_INT(slice.base_offset, base_offset);
    if (length >= 0)
        CHECK_INT(slice.length, length);
    uint8_t header[PB_BATCH_HEADER_BYTES];
    CHECK_INT(pb_io_read_all(f->io, slice.file, header, sizeof(header), slice.position), 0);
    CHECK_INT(pb_be64_load(header), base_offset);
    CHECK(slice.end_offset > offset && slice.end_offset <= pb_log_written_end(f->log));
    pb_segment_release(slice.segment);
}

TEST(a_new_log_is_empty)
{
    fixture f;
    fixture_start(&f);
    CHECK_INT(pb_log_start_offset(f.log), 0);
    CHECK_INT(pb_log_written_end(f.log), 0);
    CHECK(file_exists(&f, "00000000000000000000.log"));
    size_t length;
    uint8_t *text = file_load(&f, "partition.metadata", &length);
    text[length] = 0;
    CHECK_STR((char *)text, "version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA");
    free(text);
    pb_log_slice slice;
    CHECK_INT(pb_log_read(f.log, &f.guard, 0, 1000, 0, true, &slice), 0);
    CHECK(slice.segment == NULL);
    CHECK_INT(pb_log_read(f.log, &f.guard, 1, 1000, 0, true, &slice), PB_OFFSET_OUT_OF_RANGE);
    fixture_free(&f);
}

TEST(what_is_appended_is_read_back)
{
    fixture f;
    fixture_start(&f);
    for (int i = 0; i < 200; i++)
        CHECK_INT(log_append(&f, (batch_spec){.record_count = 5, .value_length = 100, .timestamp = 1000 + i}), i * 5);
    CHECK_INT(pb_log_written_end(f.log), 1000);
    for (int64_t offset = 0; offset < 1000; offset++)
        check_read(&f, offset, 1, offset / 5 * 5, -1);
    fixture_close(&f, true);
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), 1000);
    CHECK_INT(f.recovery.scanned_bytes, 0);
    for (int64_t offset = 0; offset < 1000; offset++)
        check_read(&f, offset, 1, offset / 5 * 5, -1);
    pb_log_slice slice;
    CHECK_INT(pb_log_read(f.log, &f.guard, 500, 1, INT64_MAX, true, &slice), 0);
    CHECK_INT(slice.end_offset, 505);
    pb_segment_release(slice.segment);
    fixture_free(&f);
}

TEST(few_batches_come_whole_and_many_are_cut)
{
    fixture f;
    fixture_start(&f);
    for (int i = 0; i < 100; i++)
        CHECK_INT(log_append(&f, (batch_spec){.record_count = 1, .value_length = 1000, .timestamp = 1000}), i);
    pb_log_slice slice;
    CHECK_INT(pb_log_read(f.log, &f.guard, 0, 1, INT64_MAX, true, &slice), 0);
    int64_t batch_bytes = slice.length;
    pb_segment_release(slice.segment);
    check_read(&f, 0, 3 * batch_bytes, 0, 3 * batch_bytes);
    check_read(&f, 3, 3 * batch_bytes - 1, 3, 2 * batch_bytes);
    check_read(&f, 5, batch_bytes + batch_bytes / 9, 5, batch_bytes);
    check_read(&f, 6, 20 * batch_bytes + 7, 6, 20 * batch_bytes + 7);
    fixture_free(&f);
}

TEST(segments_roll_by_size_and_are_read_across)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 4000;
    fixture_open(&f);
    for (int i = 0; i < 100; i++)
        CHECK_INT(log_append(&f, (batch_spec){.record_count = 2, .value_length = 200, .timestamp = i}), i * 2);
    pb_segment_info *infos;
    int count;
    CHECK_INT(pb_log_segments(f.log, &infos, &count), 0);
    CHECK(count > 10);
    for (int i = 0; i < count; i++)
        CHECK(infos[i].size_bytes <= 4000 && infos[i].size_bytes > 3000 - (i + 1 == count) * 3000);
    free(infos);
    for (int64_t offset = 0; offset < 200; offset++)
        check_read(&f, offset, 1, offset / 2 * 2, -1);
    fixture_close(&f, false);
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), 200);
    CHECK(f.recovery.rebuilt_index_count > 10);
    for (int64_t offset = 0; offset < 200; offset++)
        check_read(&f, offset, 1, offset / 2 * 2, -1);
    fixture_free(&f);
}

TEST(a_batch_below_the_upper_offset_is_found_however_little_is_asked_for)
{
    static const int64_t sizes[] = {INT32_MIN, -1, 0, 1, 500, 5000, INT64_MAX};
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 10000;
    fixture_open(&f);
    for (int i = 0; i < 30; i++)
        CHECK_INT(log_append(&f, (batch_spec){.record_count = 1, .value_length = i * 40, .timestamp = i}), i);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t upper_offset = 1; upper_offset <= 30; upper_offset++)
            for (int64_t offset = 0; offset < upper_offset; offset++)
                for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                    pb_log_slice slice;
                    CHECK_INT(pb_log_read(f.log, &f.guard, offset, sizes[i], upper_offset, true, &slice), 0);
                    CHECK(slice.segment != NULL && slice.base_offset == offset);
                    pb_segment_release(slice.segment);
                }
        fixture_close(&f, true); /* then without what the writer remembers */
        fixture_open(&f);
    }
    fixture_free(&f);
}

static bool has_more(fixture *f, int64_t offset, int64_t max_bytes, int64_t upper_offset)
{
    pb_log_slice slice;
    CHECK_INT(pb_log_read(f->log, &f->guard, offset, max_bytes, upper_offset, true, &slice), 0);
    CHECK(slice.segment != NULL);
    pb_segment_release(slice.segment);
    return slice.more;
}

TEST(a_slice_tells_whether_there_is_more)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 10000;
    fixture_open(&f);
    for (int i = 0; i < 20; i++)
        CHECK_INT(log_append(&f, (batch_spec){.record_count = 1, .value_length = 1000, .timestamp = i}), i);
    pb_segment_info *infos;
    int count;
    CHECK_INT(pb_log_segments(f.log, &infos, &count), 0);
    CHECK(count >= 2);
    int64_t second = infos[1].base_offset, end = pb_log_written_end(f.log);
    free(infos);
    enum { ALL = 1 << 20 };
    CHECK(has_more(&f, 0, 1, end)); /* by the size */
    CHECK(has_more(&f, 0, 1500, end));
    CHECK(has_more(&f, 0, ALL, end)); /* in the next segment */
    CHECK(has_more(&f, 0, ALL, second + 1));
    CHECK(!has_more(&f, 0, ALL, second));
    CHECK(!has_more(&f, 0, ALL, 3)); /* no more may be read */
    CHECK(!has_more(&f, 2, 1, 3));
    CHECK(has_more(&f, 1, 1, 3));
    CHECK(has_more(&f, end - 2, 1, end));
    CHECK(!has_more(&f, end - 2, ALL, end));
    CHECK(!has_more(&f, end - 1, 1, end));
    fixture_free(&f);
}

/* One batch to a segment. */
enum { OLD = 10, NEW = 4 };

static void read_old(fixture *f)
{
    for (int i = 0; i < OLD; i++)
        check_read(f, i, 1, i, -1);
}

TEST(a_sealed_segment_keeps_its_file_until_it_is_synced)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 1000;
    fixture_open(&f);
    for (int i = 0; i <= OLD; i++)
        CHECK_INT(log_append(&f, (batch_spec){.timestamp = 1000, .value_length = 800}), i);
    fixture_close(&f, true);
    fixture_open(&f);
    CHECK_INT(pb_log_durable_end(f.log), OLD + 1);
    for (int i = OLD + 1; i <= OLD + NEW; i++)
        CHECK_INT(log_append(&f, (batch_spec){.timestamp = 1000, .value_length = 800}), i);
    read_old(&f);
    for (int i = OLD + 1; i < OLD + NEW; i++)
        CHECK(f.log->segments[i]->file >= 0);
    CHECK_INT(f.log->segments[0]->file, -1);
    CHECK_INT(pb_log_sync(f.log, &f.guard, NULL), 0);
    read_old(&f);
    for (int i = OLD + 1; i < OLD + NEW; i++)
        CHECK_INT(f.log->segments[i]->file, -1);
    fixture_free(&f);
}

TEST(a_file_is_named_by_its_base_offset)
{
    char path[PB_LOG_PATH_BYTES], directory[PB_LOG_PATH_BYTES];
    CHECK_INT(pb_segment_path(path, "/data/t-0", 0, PB_FILE_LOG, ""), 0);
    CHECK_STR(path, "/data/t-0/00000000000000000000.log");
    CHECK_INT(pb_segment_path(path, "/data/t-0", 120340, PB_FILE_TIME_INDEX, ".swap"), 0);
    CHECK_STR(path, "/data/t-0/00000000000000120340.timeindex.swap");
    CHECK_INT(pb_segment_path(path, "", INT64_MAX, PB_FILE_SNAPSHOT, ""), 0);
    CHECK_STR(path, "/09223372036854775807.snapshot");
    CHECK_INT(pb_segment_path(path, "/data/t-0", -1, PB_FILE_LOG, ""), -EINVAL);
    /* The longest path, and one byte more. */
    size_t rest = strlen("/00000000000000000000.log") + 1;
    memset(directory, 'd', sizeof directory);
    directory[PB_LOG_PATH_BYTES - rest] = '\0';
    CHECK_INT(pb_segment_path(path, directory, 7, PB_FILE_LOG, ""), 0);
    CHECK_INT(strlen(path), PB_LOG_PATH_BYTES - 1);
    for (size_t i = 0; i + 1 < rest; i++) {
        directory[PB_LOG_PATH_BYTES - rest + i] = 'd';
        directory[PB_LOG_PATH_BYTES - rest + i + 1] = '\0';
        CHECK_INT(pb_segment_path(path, directory, 7, PB_FILE_LOG, ""), -ENAMETOOLONG);
    }
}

CHECK_MAIN()
