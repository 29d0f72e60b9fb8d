/* What a start trusts of the active segment is checked soon after it: every flipped bit is found there too. */
#include "base/kafka_error.h"
#include "log/change/scrub.h"
#include "log/recover/mark.h"
#include "tests/log/log_fixture.h"

enum { BATCHES = 40, BEHIND = 10, STEP_BYTES = 2000 };

static const char *const NAME = "00000000000000000000.log";

static void append_batches(fixture *f, int count)
{
    for (int i = 0; i < count; i++)
        CHECK(log_append(f, (batch_spec){.record_count = 3, .value_length = 150, .timestamp = 1000 + i * 10}) >= 0);
}

/* A log of one segment, closed. */
static void fill(fixture *f)
{
    fixture_init(f);
    f->options.config.index_interval_bytes = 1000;
    fixture_open(f);
    append_batches(f, BATCHES);
    CHECK_INT(f->log->segment_count, 1);
    fixture_close(f, true);
}

/* A whole pass: how many findings, and *read_bytes; the last one is in *last. */
static int check_opened(fixture *f, pb_scrub_result *last, int64_t *read_bytes)
{
    pb_scrub_cursor cursor = {.opened = true};
    pb_scrub_result result = {0};
    pb_failure failure = {0};
    int findings = 0;
    *read_bytes = 0;
    while (!result.done) {
        int rc = pb_log_scrub(f->log, &f->guard, &cursor, STEP_BYTES, &result, &failure);
        if (rc != 0)
            check_fail(__FILE__, __LINE__, "scrub: %d %s", rc, failure.text);
        *read_bytes += result.read_bytes;
        if (result.finding != PB_SCRUB_NOTHING) {
            *last = result;
            findings++;
        }
    }
    return findings;
}

static int read_at(fixture *f, int64_t offset)
{
    pb_log_slice slice;
    int rc = pb_log_read(f->log, &f->guard, offset, 100, pb_log_written_end(f->log), true, &slice);
    if (rc == 0)
        pb_segment_release(slice.segment);
    return rc;
}

static void flip(fixture *f, size_t at)
{
    size_t length;
    uint8_t *bytes = file_load(f, NAME, &length);
    CHECK(at < length);
    bytes[at] ^= (uint8_t)(1 << at % 8);
    file_store(f, NAME, bytes, length);
    free(bytes);
}

TEST(a_sound_segment_is_read_once_and_new_batches_are_not)
{
    fixture f;
    fill(&f);
    fixture_open(&f);
    int64_t opened_bytes = pb_log_size_bytes(f.log), read_bytes;
    pb_scrub_result last;
    append_batches(&f, BEHIND);
    CHECK_INT(check_opened(&f, &last, &read_bytes), 0);
    CHECK_INT(read_bytes, opened_bytes);
    CHECK_INT(check_opened(&f, &last, &read_bytes), 0);
    CHECK_INT(read_bytes, 0);
    fixture_free(&f);
}

TEST(every_flipped_bit_is_told_at_the_start_or_by_the_check_behind_it)
{
    fixture f;
    fill(&f);
    size_t length;
    uint8_t *sound = file_load(&f, NAME, &length);
    const size_t size_bytes = pb_be32_load(sound + 8) + 12; /* of each batch */
    int by_start = 0, by_check = 0;
    for (size_t at = 0; at < length; at++) {
        if (at % size_bytes >= 61 ? at % 37 != 0 : at > size_bytes && at < length - size_bytes)
            continue; /* some of the records, and the headers of the first and the last batch */
        file_store(&f, NAME, sound, length);
        flip(&f, at);
        f.options.clean = true;
        fixture_open(&f);
        int64_t end = pb_log_written_end(f.log), read_bytes;
        bool told = f.recovery.hole_count > 0 || f.recovery.truncated_bytes > 0;
        pb_scrub_result found = {0};
        int findings = check_opened(&f, &found, &read_bytes);
        by_start += told;
        by_check += findings;
        size_t in_batch = at % size_bytes;
        if (in_batch < 8 && at >= length - size_bytes) {
            /* A base offset is not under the CRC, and shows by the batch that follows. A lower end is a recorded loss.
             */
            CHECK(end != (int64_t)BATCHES * 3 || told || findings > 0);
        } else if (in_batch >= 12 && in_batch < 16) { /* the leader epoch is not under the CRC */
            CHECK(!told && findings == 0);
        } else if (told + findings != 1) {
            check_fail(__FILE__, __LINE__, "byte %zu: told %d, %d findings", at, told, findings);
        } else if (findings == 1) {
            CHECK(found.finding == PB_SCRUB_BATCHES && !found.known && found.segment_base == 0);
            /* A base offset is not under the CRC: a higher one shows in the batch that follows. */
            CHECK(found.position <= (int64_t)(at + size_bytes) && (int64_t)at < found.end_position);
            if (found.offset < found.end_offset)
                CHECK_INT(read_at(&f, found.offset), PB_CORRUPT_MESSAGE);
            append_batches(&f, 1);
            CHECK_INT(read_at(&f, found.end_offset), 0);
            CHECK_INT(pb_log_written_end(f.log), end + 3);
        }
        fixture_close(&f, true);
    }
    CHECK(by_start > 0 && by_check > (int)(length / 37 / 2));
    free(sound);
    fixture_free(&f);
}

TEST(what_a_mark_vouches_for_is_checked_after_a_kill)
{
    fixture f;
    fixture_init(&f);
    f.options.config.index_interval_bytes = 1000;
    fixture_open(&f);
    append_batches(&f, BATCHES);
    pb_mark_plan plan;
    pb_failure failure;
    CHECK_INT(pb_log_mark_begin(f.log, &plan), 0);
    CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), 0);
    CHECK_INT(pb_log_mark_finish(f.log, &f.guard, &plan, &failure), 0);
    pb_log_mark_release(&plan);
    int64_t marked_bytes = pb_log_size_bytes(f.log), read_bytes;
    append_batches(&f, BEHIND);
    fixture_close(&f, false);
    flip(&f, (size_t)marked_bytes / 2);
    fixture_open(&f);
    CHECK_INT(f.recovery.hole_count, 0);
    pb_scrub_result found = {0};
    CHECK_INT(check_opened(&f, &found, &read_bytes), 1);
    CHECK(read_bytes > marked_bytes / 2 && read_bytes <= marked_bytes);
    CHECK_INT(read_at(&f, found.offset), PB_CORRUPT_MESSAGE);
    fixture_close(&f, false);
    fixture_free(&f);
}

/* The segment may be sealed, or cut, before anybody comes to check it. */
TEST(a_segment_that_was_rolled_or_cut_meanwhile_is_checked_as_far_as_it_goes)
{
    for (int is_cut = 0; is_cut < 2; is_cut++) {
        fixture f;
        fill(&f);
        size_t length;
        free(file_load(&f, NAME, &length));
        flip(&f, length / 4 + 100);
        fixture_open(&f);
        pb_failure failure;
        int64_t end = pb_log_written_end(f.log), read_bytes;
        if (is_cut)
            CHECK_INT(pb_log_truncate(f.log, &f.guard, end / 2, &failure), 0);
        else
            CHECK_INT(pb_log_roll(f.log, &f.guard, &failure), 0);
        append_batches(&f, BATCHES);
        pb_scrub_result found = {0};
        CHECK_INT(check_opened(&f, &found, &read_bytes), 1);
        CHECK(is_cut ? read_bytes < (int64_t)length * 3 / 4 : read_bytes > (int64_t)length * 3 / 4);
        CHECK_INT(read_at(&f, found.offset), PB_CORRUPT_MESSAGE);
        CHECK_INT(read_at(&f, found.end_offset), 0);
        fixture_free(&f);
    }
}

/* Followers cut their logs, and so does a repair. */
TEST(a_segment_with_damage_can_be_cut_behind_and_before_it)
{
    fixture f;
    fill(&f);
    size_t length;
    free(file_load(&f, NAME, &length));
    flip(&f, length / 2);
    fixture_open(&f);
    pb_failure failure;
    pb_scrub_result found = {0};
    int64_t end = pb_log_written_end(f.log), read_bytes;
    CHECK_INT(check_opened(&f, &found, &read_bytes), 1);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, end - 3, &failure), 0);
    CHECK_INT(read_at(&f, found.offset), PB_CORRUPT_MESSAGE);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, found.offset, &failure), 0);
    CHECK_INT(pb_log_written_end(f.log), found.offset);
    append_batches(&f, BATCHES);
    for (int64_t offset = 0; offset < pb_log_written_end(f.log); offset++)
        CHECK_INT(read_at(&f, offset), 0);
    fixture_free(&f);
}

CHECK_MAIN()
