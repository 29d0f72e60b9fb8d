/* A follower's cuts: a log that begins anew far from where it was, and epochs without batches. */
#include "tests/log/log_fixture.h"

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
        CHECK_INT(pb_log_restart(f.log, &f.guard, 5000, &failure), 0);
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

CHECK_MAIN()
