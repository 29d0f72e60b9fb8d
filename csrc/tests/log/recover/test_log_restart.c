/* A follower's cuts: a log that begins anew far from where it was, and epochs without batches. */
#include "tests/log/log_fixture.h"
#include "wire/generated/kafka_errors.h"

static void append_many(fixture *f, int count, int32_t leader_epoch)
{
    for (int i = 0; i < count; i++)
        (void)log_append(
            f, (batch_spec){.record_count = 2, .leader_epoch = leader_epoch, .producer_id = 5, .base_sequence = 2 * i});
}

TEST(a_restart_throws_all_away_and_stays_after_any_end)
{
    for (int clean = 0; clean < 2; clean++) {
        fixture f;
        fixture_start(&f);
        f.options.config.segment_bytes = 700;
        pb_log_configure(f.log, &f.options.config);
        pb_log_start_epoch(f.log, 3);
        append_many(&f, 40, 3);
        CHECK(f.log->segment_count > 3);
        pb_failure failure;
        CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1000, &failure), 0); /* with snapshots in files */
        pb_log_end_epoch(f.log);
        CHECK_INT(pb_log_restart(f.log, &f.guard, 5000, 5000, &failure), 0);
        for (int opened = 0; opened < 2; opened++) {
            pb_producer_info producers[2];
            CHECK_INT(pb_log_start_offset(f.log), 5000);
            CHECK_INT(pb_log_appended_end(f.log), 5000);
            CHECK_INT(pb_log_written_end(f.log), 5000);
            CHECK_INT(pb_log_durable_end(f.log), 5000);
            CHECK_INT(pb_log_latest_epoch(f.log), -1);
            CHECK_INT(pb_log_producers(f.log, producers, 2), 0);
            CHECK_INT(f.log->segment_count, 1);
            CHECK(!file_exists(&f, "00000000000000000000.log"));
            if (opened == 0) {
                fixture_close(&f, clean);
                f.options.log_start_offset = 5000;
                fixture_open(&f);
                CHECK(f.log != NULL);
            }
        }
        pb_log_start_epoch(f.log, 9);
        CHECK_INT(log_append(&f, (batch_spec){.record_count = 3, .leader_epoch = 9}), 5000);
        CHECK_INT(pb_log_latest_epoch(f.log), 9);
        fixture_free(&f);
    }
}

TEST(a_cut_at_the_end_forgets_epochs_that_brought_nothing)
{
    fixture f;
    fixture_start(&f);
    pb_failure failure;
    pb_log_start_epoch(f.log, 2);
    append_many(&f, 3, 2);
    pb_log_start_epoch(f.log, 4);
    CHECK_INT(pb_log_latest_epoch(f.log), 4);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, 6, &failure), 0);
    CHECK_INT(pb_log_latest_epoch(f.log), 4); /* it leads at it still */
    pb_log_end_epoch(f.log);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, 6, &failure), 0);
    CHECK_INT(pb_log_latest_epoch(f.log), 2);
    CHECK_INT(pb_log_appended_end(f.log), 6);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, 2, &failure), 0);
    CHECK_INT(pb_log_appended_end(f.log), 2);
    CHECK_INT(pb_log_latest_epoch(f.log), 2);
    fixture_free(&f);
}

/* Append and write a batch as a leader sent it. */
static int append_fetched(fixture *f, int64_t base_offset, int record_count)
{
    pb_append *append = append_make((batch_spec){.record_count = record_count});
    pb_batch_set_base_offset(append->bytes, base_offset);
    pb_batch_set_partition_leader_epoch(append->bytes, 3);
    append->is_replica = true;
    int result = pb_log_append(f->log, append);
    if (result != 0)
        append_free(append);
    else
        log_write(f);
    return result;
}

/* What a leader of `epoch` sends. */
static void fetch_epoch(fixture *f, int64_t base_offset, int32_t epoch)
{
    pb_append *append = append_make((batch_spec){.record_count = 1});
    pb_batch_set_base_offset(append->bytes, base_offset);
    pb_batch_set_partition_leader_epoch(append->bytes, epoch);
    append->is_replica = true;
    CHECK_INT(pb_log_append(f->log, append), 0);
    log_write(f);
}

static void check_epoch_end(fixture *f, int32_t epoch, int64_t expected)
{
    int32_t found;
    int64_t end_offset;
    pb_log_end_offset_for_epoch(f->log, epoch, &found, &end_offset);
    CHECK_INT(found, epoch);
    CHECK_INT(end_offset, expected);
}

/* It led at 5 without a record; the next leader has some of `epoch` that came to nobody else. */
static void give_up_epoch(fixture *f, int32_t epoch)
{
    fixture_start(f);
    for (int64_t offset = 0; offset < 3; offset++)
        fetch_epoch(f, offset, 3);
    pb_log_start_epoch(f->log, 5);
    CHECK_INT(pb_log_upkeep(f->log, &f->guard, 1, NULL), 0);
    CHECK_INT(pb_log_sync(f->log, &f->guard, NULL), 0);
    pb_log_end_epoch(f->log);
    CHECK_INT(pb_log_truncate(f->log, &f->guard, 3, NULL), 0);
    CHECK_INT(pb_log_latest_epoch(f->log), 3);
    fetch_epoch(f, 3, epoch);
    fetch_epoch(f, 4, epoch);
    CHECK_INT(pb_log_sync(f->log, &f->guard, NULL), 0);
}

TEST(an_epoch_that_was_given_up_does_not_come_back_with_a_kill)
{
    for (int32_t epoch = 3; epoch <= 4; epoch++) {
        fixture f;
        give_up_epoch(&f, epoch);
        CHECK(pb_log_recovery_point(f.log) <= 3); /* as long as the checkpoint has it */
        fetch_epoch(&f, 5, 6);
        CHECK_INT(pb_log_sync(f.log, &f.guard, NULL), 0);
        for (int opened = 0; opened < 2; opened++) {
            CHECK_INT(pb_log_appended_end(f.log), 6);
            CHECK_INT(pb_log_epoch_at(f.log, 2), 3);
            CHECK_INT(pb_log_epoch_at(f.log, 3), epoch);
            CHECK_INT(pb_log_epoch_at(f.log, 5), 6);
            check_epoch_end(&f, 3, epoch == 3 ? 5 : 3);
            check_epoch_end(&f, epoch, 5);
            f.options.recovery_point = pb_log_recovery_point(f.log);
            fixture_close(&f, false);
            fixture_open(&f);
        }
        CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1, NULL), 0);
        CHECK_INT(pb_log_sync(f.log, &f.guard, NULL), 0);
        CHECK(pb_log_recovery_point(f.log) >= 5);
        fixture_free(&f);
    }
}

/* Where a reader at `offset` is sent: the base offset of the first batch. */
static int64_t read_at(fixture *f, int64_t offset)
{
    pb_log_slice slice;
    CHECK_INT(pb_log_read(f->log, &f->guard, offset, 1 << 20, INT64_MAX, true, &slice), 0);
    CHECK(slice.segment != NULL && slice.length > 0);
    pb_segment_release(slice.segment);
    return slice.base_offset;
}

/* An empty log that begins at 62, with a segment that begins at 60. */
static void begin_inside(fixture *f)
{
    pb_failure failure;
    fixture_start(f);
    append_many(f, 3, 2);
    pb_log_end_epoch(f->log);
    CHECK_INT(pb_log_restart(f->log, &f->guard, 62, 62, &failure), 0);
    CHECK_INT(pb_log_recovery_point(f->log), 62);
    CHECK_INT(append_fetched(f, 60, 5), PB_KAFKA_OFFSET_OUT_OF_RANGE); /* positions in a segment are from its base on */
    CHECK_INT(pb_log_restart(f->log, &f->guard, 60, 62, &failure), 0);
    CHECK_INT(pb_log_start_offset(f->log), 62);
    CHECK_INT(pb_log_appended_end(f->log), 62);
    CHECK_INT(pb_log_written_end(f->log), 62);
    CHECK_INT(pb_log_durable_end(f->log), 62);
    CHECK_INT(pb_log_recovery_point(f->log), 60);
    CHECK(file_exists(f, "00000000000000000060.log") && !file_exists(f, "00000000000000000062.log"));
}

/* As after a kill, or a stop in order. */
static void open_again(fixture *f, bool clean)
{
    f->options.recovery_point = pb_log_recovery_point(f->log);
    f->options.log_start_offset = pb_log_start_offset(f->log);
    fixture_close(f, clean);
    fixture_open(f);
    CHECK_INT(f->recovery.kept_file_count, 0);
    CHECK_INT(f->recovery.hole_count, 0);
    CHECK_INT(pb_log_start_offset(f->log), 62);
}

TEST(an_empty_log_takes_the_batch_whole_that_its_leaders_log_begins_inside_of)
{
    for (int clean = 0; clean < 2; clean++) {
        fixture f;
        begin_inside(&f);
        CHECK_INT(append_fetched(&f, 57, 5), PB_KAFKA_OFFSET_OUT_OF_RANGE);
        CHECK_INT(append_fetched(&f, 59, 5), PB_KAFKA_OFFSET_OUT_OF_RANGE);
        CHECK_INT(append_fetched(&f, 60, 5), 0);
        CHECK_INT(append_fetched(&f, 64, 5), PB_KAFKA_OFFSET_OUT_OF_RANGE);
        CHECK_INT(pb_log_start_offset(f.log), 62);
        CHECK_INT(pb_log_written_end(f.log), 65);
        CHECK_INT(pb_log_recovery_point(f.log), 60);
        CHECK_INT(pb_log_sync(f.log, &f.guard, NULL), 0);
        CHECK_INT(pb_log_durable_end(f.log), 65);
        CHECK_INT(append_fetched(&f, 65, 2), 0);
        for (int opened = 0; opened < 2; opened++) {
            CHECK_INT(pb_log_written_end(f.log), 67);
            CHECK_INT(pb_log_latest_epoch(f.log), 3);
            CHECK_INT(read_at(&f, 62), 60);
            CHECK_INT(read_at(&f, 66), 65);
            if (opened == 0)
                open_again(&f, clean);
        }
        fixture_free(&f);
    }
}

TEST(a_batch_that_it_began_inside_of_and_has_lost_leaves_it_empty)
{
    for (int way = 0; way < 3; way++) { /* nothing came, before a kill or a stop; a loss of power took some of it */
        fixture f;
        begin_inside(&f);
        if (way == 2) {
            char path[256];
            CHECK_INT(append_fetched(&f, 60, 5), 0);
            CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1000, NULL), 0); /* its epoch is in the checkpoint */
            snprintf(path, sizeof path, "%s/00000000000000000060.log", f.directory);
            CHECK_INT(truncate(path, PB_BATCH_HEADER_BYTES + 4), 0);
        }
        open_again(&f, way == 1);
        CHECK_INT(pb_log_written_end(f.log), 62);
        CHECK_INT(append_fetched(&f, 62, 5), 0);
        CHECK_INT(read_at(&f, 62), 62);
        fixture_free(&f);
    }
}

TEST(a_leader_writes_into_the_segment_that_waited_for_that_batch)
{
    fixture f;
    begin_inside(&f);
    pb_log_start_epoch(f.log, 4);
    CHECK_INT(log_append(&f, (batch_spec){.record_count = 3, .leader_epoch = 4}), 62);
    CHECK_INT(append_fetched(&f, 60, 6), PB_KAFKA_OFFSET_OUT_OF_RANGE);
    open_again(&f, false);
    CHECK_INT(pb_log_written_end(f.log), 65);
    CHECK_INT(read_at(&f, 62), 62);
    fixture_free(&f);
}

/* Recovery writes the active segment's indexes at once; after the next kill they may be those of a sealed segment. */
TEST(indexes_written_at_an_open_have_the_newest_timestamp)
{
    fixture f;
    fixture_start(&f);
    for (int i = 0; i < 3; i++)
        (void)log_append(&f, (batch_spec){.record_count = 1, .value_length = 4000, .timestamp = 1000 + i});
    (void)log_append(&f, (batch_spec){.record_count = 1, .timestamp = 900000});
    fixture_close(&f, false);
    fixture_open(&f);
    pb_failure failure;
    CHECK_INT(pb_log_roll(f.log, &f.guard, &failure), 0);
    CHECK_INT(log_append(&f, (batch_spec){.record_count = 1, .timestamp = 5000}), 4);
    fixture_close(&f, false);
    f.options.recovery_point = 4;
    fixture_open(&f);
    CHECK_INT(f.log->segment_count, 2);
    CHECK_INT(f.recovery.rebuilt_index_count, 1);
    CHECK_INT(f.log->segments[0]->largest_timestamp_ms, 900000);
    pb_log_position found = {.offset = -1};
    CHECK_INT(pb_log_offset_for_timestamp(f.log, &f.guard, 800000, 5, &found), 0);
    CHECK_INT(found.offset, 3);
    fixture_free(&f);
}

CHECK_MAIN()
