/* What happens to a log after a mark, and to its derived files, does not outlive what it was derived from. */
#include <fcntl.h>

#include "log/change/scrub.h"
#include "log/recover/mark.h"
#include "log/recover/recovery.h"
#include "tests/log/log_fixture.h"

#define LOG_NAME "00000000000000000000.log"

enum { FILLED = 20 };

static pb_failure failure;

static int try_mark(fixture *f)
{
    pb_mark_plan plan;
    CHECK_INT(pb_log_mark_begin(f->log, &plan), 0);
    CHECK_INT(pb_log_sync(f->log, &f->guard, &failure), 0);
    int rc = pb_log_mark_finish(f->log, &f->guard, &plan, &failure);
    pb_log_mark_release(&plan);
    return rc;
}

static void add(fixture *f, batch_spec spec)
{
    if (spec.record_count == 0 && spec.marker == 0)
        spec.record_count = 1;
    spec.value_length = 300;
    CHECK(log_append(f, spec) >= 0);
}

static void start(fixture *f)
{
    fixture_init(f);
    f->options.config.index_interval_bytes = 1000;
    f->options.config.producer_expiration_ms = INT64_MAX;
    fixture_open(f);
    for (int i = 0; i < FILLED; i++)
        add(f, (batch_spec){.timestamp = 1000 + i});
}

/* Three records and what becomes of them: 1 abort, 2 commit. */
static void transaction(fixture *f, int16_t epoch, int marker)
{
    add(f,
        (batch_spec){
            .record_count = 3, .timestamp = 2000, .producer_id = 9, .producer_epoch = epoch, .is_transactional = true});
    add(f, (batch_spec){.timestamp = 2001, .producer_id = 9, .producer_epoch = epoch, .marker = marker});
}

static uint32_t aborted_after_clean_restart(fixture *f)
{
    fixture_close(f, true);
    fixture_open(f);
    return pb_log_active(f->log)->transaction_index.flushed_count;
}

TEST(aborted_transactions_that_a_power_cut_took_are_gone)
{
    fixture f;
    start(&f);
    CHECK_INT(try_mark(&f), 0);
    int64_t size = pb_log_size_bytes(f.log);
    f.options.recovery_point = pb_log_recovery_point(f.log);
    transaction(&f, 0, 1);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1000, &failure), 0);
    fixture_close(&f, false);
    /* The index was written back, the batches were not. */
    size_t length;
    uint8_t *bytes = file_load(&f, LOG_NAME, &length);
    CHECK((int64_t)length > size);
    file_store(&f, LOG_NAME, bytes, (size_t)size);
    free(bytes);
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), FILLED);
    CHECK(f.recovery.scanned_bytes < size);
    transaction(&f, 1, 2);
    CHECK_INT(aborted_after_clean_restart(&f), 0);
    fixture_free(&f);
}

TEST(aborted_transactions_that_a_follower_cut_are_gone)
{
    fixture f;
    start(&f);
    transaction(&f, 0, 1);
    CHECK_INT(try_mark(&f), 0);
    fixture_close(&f, false);
    fixture_open(&f);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, FILLED, &failure), 0);
    CHECK(!file_exists(&f, PB_MARK_FILE));
    transaction(&f, 1, 2);
    CHECK_INT(aborted_after_clean_restart(&f), 0);
    fixture_free(&f);
}

TEST(the_last_time_entry_of_a_segment_that_is_rolled_behind_a_mark_is_found_again)
{
    fixture f;
    pb_log_position found = {.offset = -1};
    start(&f);
    add(&f, (batch_spec){.timestamp = 900000});
    CHECK_INT(try_mark(&f), 0);
    f.options.recovery_point = pb_log_recovery_point(f.log);
    CHECK_INT(pb_log_roll(f.log, &f.guard, &failure), 0);
    add(&f, (batch_spec){.timestamp = 5000});
    fixture_close(&f, false);
    fixture_open(&f);
    CHECK_INT(f.log->segments[0]->largest_timestamp_ms, 900000);
    CHECK_INT(pb_log_offset_for_timestamp(f.log, &f.guard, 800000, pb_log_written_end(f.log), &found), 0);
    CHECK_INT(found.offset, FILLED);
    fixture_free(&f);
}

static int failing_directory_sync(pb_io *io, const char *path)
{
    char mark[300];
    snprintf(mark, sizeof(mark), "%s/" PB_MARK_FILE, path);
    return access(mark, F_OK) == 0 ? -EMFILE : fixture_ops->directory_sync(io, path);
}

TEST(a_mark_whose_name_could_not_be_synced_is_none)
{
    fixture f;
    start(&f);
    static pb_io_ops ops;
    const pb_io_ops *usual = f.io->ops;
    ops = *usual;
    ops.directory_sync = failing_directory_sync;
    f.io->ops = &ops;
    CHECK_INT(try_mark(&f), -EMFILE);
    f.io->ops = usual;
    CHECK(!f.log->failed);
    CHECK(!file_exists(&f, PB_MARK_FILE));
    CHECK_INT(try_mark(&f), 0);
    CHECK_INT(f.log->marked_offset, FILLED);
    fixture_free(&f);
}

TEST(a_mark_goes_when_the_indexes_of_its_segment_are_built_again)
{
    fixture f;
    start(&f);
    CHECK_INT(try_mark(&f), 0);
    CHECK_INT(pb_log_roll(f.log, &f.guard, &failure), 0);
    add(&f, (batch_spec){.timestamp = 5000});
    CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), 0);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1000, &failure), 0);
    CHECK_INT(pb_log_rebuild_indexes(f.log, &f.guard, f.log->segments[0]), 0);
    CHECK(!file_exists(&f, PB_MARK_FILE));
    CHECK_INT(f.log->marked_offset, -1);
    fixture_free(&f);
}

TEST(a_mark_that_the_log_has_not_got_to_is_not_set_and_that_is_told)
{
    fixture f;
    start(&f);
    pb_append *append = append_make((batch_spec){.record_count = 1, .value_length = 300, .timestamp = 2000});
    CHECK_INT(pb_log_append(f.log, append), 0);
    pb_mark_plan plan;
    CHECK_INT(pb_log_mark_begin(f.log, &plan), 0);
    CHECK_INT(pb_log_mark_finish(f.log, &f.guard, &plan, &failure), -EBUSY);
    log_write(&f);
    CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), 0);
    CHECK_INT(pb_log_mark_finish(f.log, &f.guard, &plan, &failure), 0);
    pb_log_mark_release(&plan);
    CHECK_INT(f.log->marked_offset, FILLED + 1);
    fixture_free(&f);
}

TEST(a_stop_in_order_needs_no_mark)
{
    fixture f;
    start(&f);
    CHECK_INT(try_mark(&f), 0);
    char path[300];
    snprintf(path, sizeof(path), "%s/" PB_MARK_FILE, f.directory);
    CHECK_INT(unlink(path), 0);
    fixture_close(&f, true);
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), FILLED);
    fixture_free(&f);
}

CHECK_MAIN()
