/* Looking things up: times, epochs, transactions, and what Kafka's files hold byte for byte. */
#include "base/kafka_error.h"
#include "log/derived/producer_snapshot.h"
#include "tests/log/log_fixture.h"

TEST(times_are_found_in_every_segment)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 9000;
    f.options.config.index_interval_bytes = 1000;
    fixture_open(&f);
    /* Batch i has offsets 4i..4i+3 at times 100i..100i+3. */
    for (int i = 0; i < 120; i++)
        (void)log_append(&f, (batch_spec){.record_count = 4, .value_length = 100, .timestamp = 100 * i});
    for (int pass = 0; pass < 3; pass++) {
        pb_failure failure;
        pb_log_position found;
        for (int i = 0; i < 120; i++) {
            CHECK_INT(pb_log_offset_for_timestamp(f.log, &f.guard, 100 * i + 2, INT64_MAX, &found), 0);
            CHECK_INT(found.offset, 4 * i + 2);
            CHECK_INT(found.timestamp_ms, 100 * i + 2);
            CHECK_INT(found.leader_epoch, 0);
            CHECK_INT(pb_log_offset_for_timestamp(f.log, &f.guard, 100 * i - 50, INT64_MAX, &found), 0);
            CHECK_INT(found.offset, 4 * i);
        }
        CHECK_INT(pb_log_offset_for_timestamp(f.log, &f.guard, 11904, INT64_MAX, &found), 0);
        CHECK_INT(found.offset, -1);
        CHECK_INT(pb_log_offset_for_timestamp(f.log, &f.guard, 5000, 200, &found), 0);
        CHECK_INT(found.offset, -1);
        CHECK_INT(pb_log_offset_of_max_timestamp(f.log, &f.guard, INT64_MAX, &found), 0);
        CHECK_INT(found.offset, 479);
        CHECK_INT(found.timestamp_ms, 11903);
        if (pass == 0)
            CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1, &failure), 0);
        if (pass == 1) {
            fixture_close(&f, true);
            fixture_open(&f);
        }
    }
    fixture_free(&f);
}

TEST(records_below_the_log_start_are_not_found)
{
    fixture f;
    fixture_start(&f);
    for (int i = 0; i < 10; i++)
        (void)log_append(&f, (batch_spec){.record_count = 4, .timestamp = 1000 - 10 * i});
    CHECK_INT(pb_log_set_start_offset(f.log, 21), 0);
    pb_log_position found;
    CHECK_INT(pb_log_offset_for_timestamp(f.log, &f.guard, 951, INT64_MAX, &found), 0);
    CHECK_INT(found.offset, 21);
    CHECK_INT(pb_log_offset_for_timestamp(f.log, &f.guard, 999, INT64_MAX, &found), 0);
    CHECK_INT(found.offset, -1);
    CHECK_INT(pb_log_set_start_offset(f.log, 41), PB_OFFSET_OUT_OF_RANGE);
    pb_log_slice slice;
    CHECK_INT(pb_log_read(f.log, &f.guard, 20, 10, 40, true, &slice), PB_OFFSET_OUT_OF_RANGE);
    fixture_free(&f);
}

TEST(epochs_are_kept_and_answered)
{
    fixture f;
    fixture_start(&f);
    pb_log_start_epoch(f.log, 3);
    for (int i = 0; i < 5; i++)
        (void)log_append(&f, (batch_spec){.record_count = 2, .leader_epoch = 3, .timestamp = 1});
    pb_log_start_epoch(f.log, 7);
    for (int i = 0; i < 5; i++)
        (void)log_append(&f, (batch_spec){.record_count = 2, .leader_epoch = 7, .timestamp = 1});
    for (int pass = 0; pass < 3; pass++) {
        int32_t epoch;
        int64_t end;
        pb_log_end_offset_for_epoch(f.log, 3, &epoch, &end);
        CHECK_INT(epoch, 3);
        CHECK_INT(end, 10);
        pb_log_end_offset_for_epoch(f.log, 5, &epoch, &end);
        CHECK_INT(epoch, 3);
        CHECK_INT(end, 10);
        pb_log_end_offset_for_epoch(f.log, 7, &epoch, &end);
        CHECK_INT(epoch, 7);
        CHECK_INT(end, 20);
        pb_log_end_offset_for_epoch(f.log, 8, &epoch, &end);
        CHECK_INT(epoch, -1);
        CHECK_INT(end, -1);
        pb_log_end_offset_for_epoch(f.log, 1, &epoch, &end);
        CHECK_INT(epoch, 1);
        CHECK_INT(end, 0);
        CHECK_INT(pb_log_epoch_at(f.log, 9), 3);
        CHECK_INT(pb_log_epoch_at(f.log, 10), 7);
        fixture_close(&f, pass == 0);
        if (pass == 1) {
            file_store(&f, "leader-epoch-checkpoint", "0\n9\nrubbish", 11);
            f.options.clean = true;
        }
        fixture_open(&f);
    }
    size_t length;
    fixture_close(&f, true);
    char *text = (char *)file_load(&f, "leader-epoch-checkpoint", &length);
    text[length] = 0;
    CHECK_STR(text, "0\n2\n3 0\n7 10\n");
    free(text);
    fixture_free(&f);
}

TEST(what_is_stable_is_not_below_the_start)
{
    fixture f;
    fixture_start(&f);
    batch_spec data = {.record_count = 4, .timestamp = 1, .producer_id = 1, .is_transactional = true};
    CHECK_INT(log_append(&f, data), 0);
    CHECK_INT(log_append(&f, (batch_spec){.timestamp = 2}), 4);
    CHECK_INT(pb_log_last_stable_offset(f.log, 5), 0);
    CHECK_INT(pb_log_set_start_offset(f.log, 3), 0);
    CHECK_INT(pb_log_last_stable_offset(f.log, 5), 3);
    CHECK_INT(log_append(&f, (batch_spec){.producer_id = 1, .marker = 1, .timestamp = 2}), 5);
    CHECK_INT(pb_log_last_stable_offset(f.log, 6), 6);
    fixture_free(&f);
}

TEST(aborted_transactions_are_listed)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 600;
    fixture_open(&f);
    batch_spec data = {.value_length = 100, .timestamp = 1, .producer_id = 1, .is_transactional = true};
    CHECK_INT(log_append(&f, data), 0);
    data.producer_id = 2;
    CHECK_INT(log_append(&f, data), 1);
    CHECK_INT(pb_log_first_unstable_offset(f.log), 0);
    CHECK_INT(log_append(&f, (batch_spec){.producer_id = 2, .base_sequence = 1, .timestamp = 2}),
              -PB_INVALID_TXN_STATE);
    CHECK_INT(log_append(&f, (batch_spec){.producer_id = 1, .marker = 1, .timestamp = 2}), 2);
    CHECK_INT(pb_log_last_stable_offset(f.log, 2), 0);
    CHECK_INT(pb_log_last_stable_offset(f.log, 3), 1);
    CHECK_INT(pb_log_first_unstable_offset(f.log), 1);
    CHECK_INT(log_append(&f, (batch_spec){.producer_id = 2, .marker = 2, .timestamp = 2}), 3);
    CHECK_INT(pb_log_last_stable_offset(f.log, 4), 4);
    data.producer_id = 3;
    for (int i = 0; i < 8; i++) {
        data.base_sequence = i;
        CHECK_INT(log_append(&f, data), 4 + i);
    }
    CHECK_INT(log_append(&f, (batch_spec){.producer_id = 3, .marker = 1, .timestamp = 2}), 12);
    CHECK(f.log->segment_count > 2);
    for (int pass = 0; pass < 4; pass++) {
        pb_aborted_transaction *aborted;
        int count;
        CHECK_INT(pb_log_aborted_transactions(f.log, &f.guard, 0, 13, &aborted, &count), 0);
        CHECK_INT(count, 2);
        CHECK_INT(aborted[0].producer_id, 1);
        CHECK_INT(aborted[0].first_offset, 0);
        CHECK_INT(aborted[1].producer_id, 3);
        CHECK_INT(aborted[1].first_offset, 4);
        free(aborted);
        CHECK_INT(pb_log_aborted_transactions(f.log, &f.guard, 3, 4, &aborted, &count), 0);
        CHECK_INT(count, 0);
        free(aborted);
        CHECK_INT(pb_log_first_unstable_offset(f.log), INT64_MAX);
        fixture_close(&f, pass % 2 == 0);
        fixture_open(&f);
    }
    fixture_close(&f, true);
    CHECK(file_exists(&f, "00000000000000000000.txnindex"));
    size_t length;
    uint8_t *bytes = file_load(&f, "00000000000000000000.txnindex", &length);
    static const uint8_t ENTRY[34] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
                                      0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1};
    CHECK_INT(length, 34);
    CHECK_MEM(bytes, ENTRY, 34);
    free(bytes);
    fixture_free(&f);
}

TEST(an_open_transaction_survives_a_restart)
{
    for (int clean = 0; clean < 2; clean++) {
        fixture f;
        fixture_start(&f);
        CHECK_INT(log_append(&f, (batch_spec){.record_count = 3, .timestamp = 1}), 0);
        CHECK_INT(log_append(&f, (batch_spec){.timestamp = 1, .producer_id = 1, .is_transactional = true}), 3);
        fixture_close(&f, clean != 0);
        fixture_open(&f);
        CHECK_INT(pb_log_first_unstable_offset(f.log), 3);
        CHECK_INT(log_append(&f, (batch_spec){.producer_id = 1, .marker = 1, .timestamp = 2}), 4);
        pb_aborted_transaction *aborted;
        int count;
        CHECK_INT(pb_log_aborted_transactions(f.log, &f.guard, 0, 5, &aborted, &count), 0);
        CHECK_INT(count, 1);
        CHECK_INT(aborted[0].first_offset, 3);
        free(aborted);
        fixture_free(&f);
    }
}

TEST(index_files_hold_what_kafka_writes)
{
    fixture f;
    fixture_init(&f);
    f.options.config.index_interval_bytes = 100;
    fixture_open(&f);
    /* Three batches of 200 bytes each: the second and the third come after more than 100 bytes. */
    for (int i = 0; i < 3; i++)
        (void)log_append(&f, (batch_spec){.record_count = 2, .value_length = 61, .timestamp = 1000 - (i == 1)});
    int64_t size = pb_log_size_bytes(f.log) / 3;
    fixture_close(&f, true);
    size_t length;
    uint8_t *bytes = file_load(&f, "00000000000000000000.index", &length);
    uint8_t index[16] = {
        0, 0, 0, 3, 0, 0, 0, (uint8_t)size, 0, 0, 0, 5, 0, 0, (uint8_t)(2 * size >> 8), (uint8_t)(2 * size)};
    CHECK_INT(length, 16);
    CHECK_MEM(bytes, index, 16);
    free(bytes);
    bytes = file_load(&f, "00000000000000000000.timeindex", &length);
    static const uint8_t TIME_INDEX[12] = {0, 0, 0, 0, 0, 0, 0x03, 0xe9, 0, 0, 0, 1};
    CHECK_INT(length, 12);
    CHECK_MEM(bytes, TIME_INDEX, 12);
    free(bytes);
    fixture_free(&f);
}

TEST(a_snapshot_holds_what_kafka_writes)
{
    fixture f;
    fixture_start(&f);
    (void)log_append(
        &f, (batch_spec){
                .record_count = 4, .timestamp = 500, .producer_id = 77, .producer_epoch = 2, .is_transactional = true});
    f.options.config.producer_expiration_ms = INT64_MAX;
    fixture_close(&f, true);
    static const uint8_t ENTRY[50] = {0, 0,    0,    1, /* count */
                                      0, 0,    0,    0,    0,    0,    0, 77, 0, 2, 0, 0, 0, 3, 0, 0,
                                      0, 0,    0,    0,    0,    3,    0, 0,  0, 3, 0, 0, 0, 0, 0, 0,
                                      1, 0xf7, 0xff, 0xff, 0xff, 0xff, 0, 0,  0, 0, 0, 0, 0, 0};
    size_t length;
    uint8_t *bytes = file_load(&f, "00000000000000000004.snapshot", &length);
    CHECK_INT(length, 56);
    CHECK_INT(pb_be16_load(bytes), 1);
    CHECK_MEM(bytes + 6, ENTRY, 50);
    free(bytes);
    fixture_free(&f);
}

CHECK_MAIN()
