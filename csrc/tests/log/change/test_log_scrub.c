/* The scrub finds every flipped bit that the format lets it see, tells readers of it, and mends indexes. */
#include "base/kafka_error.h"
#include "log/change/scrub.h"
#include "tests/log/log_fixture.h"

enum { BATCHES = 40 };

static void fill(fixture *f)
{
    fixture_init(f);
    f->options.config.segment_bytes = 6000;
    f->options.config.index_interval_bytes = 1000;
    fixture_open(f);
    for (int i = 0; i < BATCHES; i++) {
        CHECK(log_append(f, (batch_spec){.record_count = 3, .value_length = 150, .timestamp = 1000 + i * 10}) >= 0);
        if (i % 7 == 3) {
            CHECK(log_append(f, (batch_spec){.timestamp = 1000,
                                             .producer_id = 9,
                                             .base_sequence = i / 7,
                                             .is_transactional = true}) >= 0);
            CHECK(log_append(f, (batch_spec){.timestamp = 1000, .producer_id = 9, .marker = 1}) >= 0);
        }
    }
    CHECK(f->log->segment_count > 3);
    pb_failure failure;
    CHECK_INT(pb_log_upkeep(f->log, &f->guard, 1000, &failure), 0);
}

/* A whole pass in steps of `step_bytes`: how many findings; the last one is in *last. */
static int pass(fixture *f, int64_t step_bytes, pb_scrub_result *last)
{
    pb_scrub_cursor cursor = {0};
    pb_scrub_result result = {0};
    int64_t read_bytes = 0;
    int findings = 0;
    pb_failure failure = {0};
    while (!result.done) {
        int rc = pb_log_scrub(f->log, &f->guard, &cursor, step_bytes, &result, &failure);
        if (rc != 0)
            check_fail(__FILE__, __LINE__, "scrub: %d %s", rc, failure.text);
        read_bytes += result.read_bytes;
        if (result.finding != PB_SCRUB_NOTHING) {
            *last = result;
            findings++;
        }
    }
    CHECK(findings > 0 || read_bytes == pb_log_size_bytes(f->log) - pb_log_active(f->log)->size_bytes);
    return findings;
}

TEST(a_sound_log_has_no_findings_in_steps_of_any_size)
{
    fixture f;
    fill(&f);
    pb_scrub_result last;
    for (int64_t step = 1; step < 100000; step *= 7)
        CHECK_INT(pass(&f, step, &last), 0);
    fixture_close(&f, true);
    fixture_open(&f);
    CHECK_INT(pass(&f, 1 << 20, &last), 0);
    fixture_free(&f);
}

static bool readable(fixture *f, int64_t offset)
{
    pb_log_slice slice;
    int rc = pb_log_read(f->log, &f->guard, offset, 100, pb_log_written_end(f->log), true, &slice);
    if (rc == 0)
        pb_segment_release(slice.segment);
    CHECK(rc == 0 || rc == PB_CORRUPT_MESSAGE);
    return rc == 0;
}

/* Which bytes of a batch's header no check can see: the leader epoch, which is not under the CRC. A base offset is seen
 * when it leaves its place between the neighbours'. */
TEST(flipped_bits_of_a_sealed_segment_are_found_and_readers_are_told)
{
    fixture f;
    fill(&f);
    fixture_close(&f, true);
    const char *name = "00000000000000000000.log";
    size_t length;
    uint8_t *bytes = file_load(&f, name, &length);
    const size_t size_bytes = pb_be32_load(bytes + 8) + 12; /* of the first two batches */
    for (size_t at = 0; at < length; at += at < 61 ? 2 : 307) {
        bytes[at] ^= (uint8_t)(1 << at % 8);
        file_store(&f, name, bytes, length);
        f.options.clean = true;
        fixture_open(&f);
        pb_scrub_result found = {0};
        int findings = pass(&f, 2000, &found);

        size_t in_batch = at < 2 * size_bytes ? at % size_bytes : SIZE_MAX;
        if (in_batch >= 12 && in_batch < 16) {
            CHECK_INT(findings, 0);
        } else if (findings != 1) {
            check_fail(__FILE__, __LINE__, "byte %zu: %d findings", at, findings);
        } else {
            CHECK_INT(found.finding, PB_SCRUB_BATCHES);
            CHECK_INT(found.segment_base, 0);
            CHECK(found.position <= (int64_t)at && (int64_t)at < found.end_position);
            CHECK(!found.known && !readable(&f, found.offset) && readable(&f, found.end_offset));
            CHECK_INT(pass(&f, 2000, &found), 1);
            CHECK(found.known);
        }
        fixture_close(&f, true);
        bytes[at] ^= (uint8_t)(1 << at % 8);
        file_store(&f, name, bytes, length);
    }
    free(bytes);
    fixture_free(&f);
}

TEST(flipped_bits_of_indexes_are_found_and_the_index_is_built_again)
{
    static const struct {
        const char *suffix;
        pb_scrub_finding finding;
    } INDEXES[] = {
        {"index", PB_SCRUB_OFFSET_INDEX}, {"timeindex", PB_SCRUB_TIME_INDEX}, {"txnindex", PB_SCRUB_TRANSACTION_INDEX}};
    fixture f;
    fill(&f);
    for (int kind = 0; kind < 3; kind++) {
        char name[64];
        snprintf(name, sizeof(name), "%020d.%s", 0, INDEXES[kind].suffix);
        size_t length;
        uint8_t *bytes = file_load(&f, name, &length);
        CHECK(length > 0);
        int missed = 0;
        for (size_t at = 0; at < length; at++) {
            bytes[at] ^= 0x10;
            file_store(&f, name, bytes, length);
            pb_scrub_result found = {0};
            int findings = pass(&f, 2000, &found);
            missed += findings == 0;
            if (findings > 0) {
                CHECK_INT(found.finding, INDEXES[kind].finding);
                CHECK_INT(found.segment_base, 0);
                CHECK(found.mended == (kind < 2));
            }
            bytes[at] ^= 0x10;
            size_t mended_length;
            uint8_t *mended = file_load(&f, name, &mended_length);
            if (findings > 0 && kind < 2)
                CHECK_MEM(mended, bytes, length);
            CHECK_INT(mended_length, length);
            free(mended);
            file_store(&f, name, bytes, length);
        }
        /* Of a transaction its first and last stable offset are only said here; an offset index entry may say more than
         * its batch's last offset. */
        CHECK(missed <= (kind == 2 ? (int)length / 34 * 16 : kind == 0 ? (int)length / 8 : 0));
        if (kind < 2) {
            char path[256];
            snprintf(path, sizeof(path), "%s/%s", f.directory, name);
            CHECK_INT(unlink(path), 0);
            pb_scrub_result found;
            CHECK_INT(pass(&f, 2000, &found), 1);
            CHECK(found.finding == INDEXES[kind].finding && found.mended);
            CHECK_INT(pass(&f, 2000, &found), 0);
        }
        free(bytes);
    }
    fixture_free(&f);
}

/* Retention goes by it, and who looks for the largest timestamp. */
TEST(a_time_index_that_is_built_again_says_how_old_its_segment_is)
{
    fixture f;
    fill(&f);
    const pb_segment before = *f.log->segments[0];
    fixture_close(&f, true);
    size_t length;
    uint8_t *bytes = file_load(&f, "00000000000000000000.timeindex", &length);
    bytes[length - 12] ^= 0x10; /* the timestamp of the last entry, */
    bytes[length - 1] ^= 0x01;  /* and its offset */
    file_store(&f, "00000000000000000000.timeindex", bytes, length);
    free(bytes);
    fixture_open(&f);
    const pb_segment *segment = f.log->segments[0];
    CHECK(segment->largest_timestamp_ms > before.largest_timestamp_ms);
    CHECK(segment->largest_timestamp_offset != before.largest_timestamp_offset);
    pb_scrub_result found = {0};
    CHECK_INT(pass(&f, 2000, &found), 1);
    CHECK(found.finding == PB_SCRUB_TIME_INDEX && found.mended);
    CHECK_INT(segment->largest_timestamp_ms, before.largest_timestamp_ms);
    CHECK_INT(segment->largest_timestamp_offset, before.largest_timestamp_offset);
    CHECK_INT(segment->last_time_entry_ms, before.largest_timestamp_ms);
    fixture_free(&f);
}

static pb_io_ops failing;
static int fail_code;

static int64_t failing_read(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    (void)io;
    (void)file;
    (void)buffer;
    (void)length;
    (void)position;
    return fail_code;
}

TEST(a_disk_that_cannot_be_read_is_no_finding)
{
    fixture f;
    fill(&f);
    const pb_io_ops *good = f.io->ops;
    failing = *good;
    failing.file_read = failing_read;
    fail_code = -EIO;
    f.io->ops = &failing;
    pb_scrub_cursor cursor = {0};
    pb_scrub_result result;
    pb_failure failure = {0};
    CHECK_INT(pb_log_scrub(f.log, &f.guard, &cursor, 1000, &result, &failure), -EIO);
    f.io->ops = good;
    CHECK_INT(result.finding, PB_SCRUB_NOTHING);
    CHECK(strstr(failure.text, "00000000000000000000.log") != NULL);
    fixture_free(&f);
}

static const pb_io_ops *good_ops;
static int bad_file;
static int64_t bad_position;

/* One sector of the oldest segment cannot be read; what lies before it comes as a short read. */
static int64_t read_around_sector(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    if (file == bad_file && position <= bad_position && position + (int64_t)length > bad_position) {
        if (position == bad_position)
            return -EIO;
        length = (size_t)(bad_position - position);
    }
    if (file == bad_file && position > bad_position && position < bad_position + 512)
        return -EIO;
    return good_ops->file_read(io, file, buffer, length, position);
}

/* Damage of which the search for its end comes to a sector that cannot be read, and damage behind that sector. */
TEST(a_sector_that_cannot_be_read_does_not_hide_what_lies_behind)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 200000;
    fixture_open(&f);
    while (f.log->segment_count < 3)
        CHECK(log_append(&f, (batch_spec){.value_length = 900}) >= 0);
    fixture_close(&f, true);
    const char *name = "00000000000000000000.log";
    size_t length;
    uint8_t *bytes = file_load(&f, name, &length);
    const size_t batch_bytes = pb_be32_load(bytes + 8) + 12;
    const size_t first = 20 * batch_bytes, second = 120 * batch_bytes;
    bytes[first + 16] ^= 1; /* the magic: where it ends has to be searched */
    bytes[second + 100] ^= 1;
    file_store(&f, name, bytes, length);
    free(bytes);
    f.options.clean = true;
    fixture_open(&f);
    CHECK_INT(pb_log_open_segment(f.log, &f.guard, f.log->segments[0], &bad_file), 0);
    bad_position = (int64_t)(21 * batch_bytes + 100);
    good_ops = f.io->ops;
    failing = *good_ops;
    failing.file_read = read_around_sector;
    f.io->ops = &failing;
    pb_scrub_cursor cursor = {0};
    pb_scrub_result result = {0};
    pb_failure failure = {0};
    int failures = 0, findings = 0;
    for (int steps = 0; !result.done; steps++) {
        CHECK(steps < 100);
        int rc = pb_log_scrub(f.log, &f.guard, &cursor, 30000, &result, &failure);
        CHECK(rc == 0 || rc == -EIO);
        failures += rc == -EIO;
        if (rc == -EIO)
            CHECK(strstr(failure.text, "00000000000000000000.log and its indexes from position ") != NULL);
        if (result.finding == PB_SCRUB_BATCHES && result.position == (int64_t)second)
            findings++;
    }
    f.io->ops = good_ops;
    CHECK_INT(failures, 1);
    CHECK_INT(findings, 1);
    fixture_free(&f);
}

static int renames;

static int fail_second_rename(pb_io *io, const char *from, const char *to)
{
    return ++renames == 2 ? -EIO : good_ops->rename(io, from, to);
}

TEST(an_index_that_was_replaced_alone_is_read_as_it_is_now)
{
    fixture f;
    fill(&f);
    pb_log_config config = f.options.config;
    config.index_interval_bytes = 4000; /* fewer entries */
    pb_log_configure(f.log, &config);
    good_ops = f.io->ops;
    failing = *good_ops;
    failing.rename = fail_second_rename;
    f.io->ops = &failing;
    pb_segment *oldest = f.log->segments[0];
    uint32_t before = oldest->offset_index.flushed_count, before_times = oldest->time_index.flushed_count;
    CHECK_INT(pb_log_rebuild_indexes(f.log, &f.guard, oldest), -EIO);
    f.io->ops = good_ops;
    CHECK(oldest->offset_index.flushed_count > 0 && oldest->offset_index.flushed_count < before);
    CHECK_INT(oldest->time_index.flushed_count, before_times);
    CHECK(!file_exists(&f, "00000000000000000000.timeindex.tmp"));
    for (int64_t offset = 0; offset < f.log->segments[1]->base_offset; offset++)
        CHECK(readable(&f, offset));
    pb_scrub_result last;
    CHECK_INT(pass(&f, 2000, &last), 0);
    fixture_free(&f);
}

TEST(indexes_that_have_not_got_their_names_yet_are_no_finding)
{
    fixture f;
    char from[256];
    char to[300];
    pb_scrub_result last;
    fill(&f);
    snprintf(from, sizeof(from), "%s/00000000000000000000.index", f.directory);
    snprintf(to, sizeof(to), "%s.swap", from);
    CHECK_INT(rename(from, to), 0);
    atomic_store(&f.log->segments[0]->names, PB_NAMES_SWAP);
    CHECK_INT(pass(&f, 1 << 20, &last), 0);
    CHECK(!file_exists(&f, "00000000000000000000.index"));
    fixture_free(&f);
}

TEST(segments_that_go_away_are_passed_over)
{
    fixture f;
    fill(&f);
    pb_scrub_cursor cursor = {0};
    pb_scrub_result result;
    pb_failure failure = {0};
    CHECK_INT(pb_log_scrub(f.log, &f.guard, &cursor, 1000, &result, &failure), 0);
    int64_t third = f.log->segments[2]->base_offset;
    int deleted;
    CHECK_INT(pb_log_set_start_offset(f.log, third), 0);
    CHECK_INT(pb_log_delete_segments(f.log, &f.guard, &deleted, &failure), 0);
    CHECK_INT(deleted, 2);
    CHECK_INT(pb_log_scrub(f.log, &f.guard, &cursor, 1000, &result, &failure), 0);
    CHECK_INT(result.finding, PB_SCRUB_NOTHING);
    CHECK_INT(cursor.segment_base, third);
    fixture_free(&f);
}

CHECK_MAIN()
