/* Opening after every kind of stop: what is found, cut, built again and reported. */
#include "base/kafka_error.h"
#include "log/derived/producer_snapshot.h"
#include "log/recover/recovery.h"
#include "log/segment/transaction_index.h"
#include "tests/log/log_fixture.h"

static void fill(fixture *f, int count)
{
    for (int i = 0; i < count; i++)
        (void)log_append(f, (batch_spec){.record_count = 3,
                                         .value_length = 300,
                                         .timestamp = 1000 + i,
                                         .producer_id = 5,
                                         .base_sequence = i * 3,
                                         .leader_epoch = i / 10});
}

static void damage(const fixture *f, const char *name, long position)
{
    size_t length;
    uint8_t *bytes = file_load(f, name, &length);
    CHECK(position < (long)length);
    bytes[position < 0 ? (long)length + position : position] ^= 0x40;
    file_store(f, name, bytes, length);
    free(bytes);
}

TEST(a_torn_tail_is_cut)
{
    fixture f;
    fixture_start(&f);
    fill(&f, 50);
    fixture_close(&f, false);
    size_t length;
    uint8_t *bytes = file_load(&f, "00000000000000000000.log", &length);
    for (size_t cut = 1; cut < 1200; cut += 97) {
        file_store(&f, "00000000000000000000.log", bytes, length - cut);
        f.options.clean = false;
        fixture_open(&f);
        CHECK_INT(pb_log_written_end(f.log), 150 - 3 * (int)((cut + length / 50 - 1) / (length / 50)));
        CHECK_INT(pb_log_size_bytes(f.log), pb_log_written_end(f.log) / 3 * (int64_t)(length / 50));
        pb_producer_info info;
        CHECK_INT(pb_log_producers(f.log, &info, 1), 1);
        CHECK_INT(info.last_sequence, pb_log_written_end(f.log) - 1);
        CHECK_INT(f.recovery.truncated_bytes, (int64_t)(length - cut) % (int64_t)(length / 50));
        fixture_close(&f, false);
    }
    free(bytes);
    fixture_free(&f);
}

TEST(a_bad_crc_ends_the_log_and_later_segments_go)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 10000;
    fixture_open(&f);
    fill(&f, 50);
    uint32_t segments = f.log->segment_count;
    CHECK(segments > 4);
    int64_t third = f.log->segments[2]->base_offset;
    char name[64];
    snprintf(name, sizeof(name), "%020lld.log", (long long)third);
    fixture_close(&f, false);
    damage(&f, name, 3000);
    fixture_open(&f);
    CHECK_INT(f.log->segment_count, 3);
    CHECK(pb_log_written_end(f.log) >= third && pb_log_written_end(f.log) < third + 15);
    CHECK(f.recovery.truncated_bytes > 10000);
    CHECK_INT(log_append(&f, (batch_spec){.timestamp = 5}), pb_log_written_end(f.log) - 1);
    fixture_free(&f);
}

TEST(data_below_the_recovery_point_is_not_scanned)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 10000;
    fixture_open(&f);
    fill(&f, 50);
    pb_failure failure;
    CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), 0);
    CHECK_INT(pb_log_durable_end(f.log), 150);
    CHECK_INT(pb_log_recovery_point(f.log), 0);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1000, &failure), 0);
    /* The active segment's index is not synced: were the log to go on in a new one, recovery must still build it. */
    CHECK_INT(pb_log_recovery_point(f.log), 149);
    int64_t active_bytes = pb_log_active(f.log)->size_bytes;
    fixture_close(&f, false);
    f.options.recovery_point = 150;
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), 150);
    CHECK_INT(f.recovery.scanned_bytes, active_bytes);
    CHECK_INT(f.recovery.rebuilt_index_count, 1);
    CHECK_INT(f.recovery.unsound_index_count, 0);
    pb_producer_info info;
    CHECK_INT(pb_log_producers(f.log, &info, 1), 1);
    CHECK_INT(info.last_sequence, 149);
    CHECK_INT(pb_log_latest_epoch(f.log), 4);
    fixture_free(&f);
}

TEST(opening_tells_the_largest_producer_id_that_a_controller_may_have_given)
{
    static const int64_t LIMIT = INT64_C(1) << 62;
    fixture f;
    fixture_init(&f);
    f.options.config.producer_expiration_ms = INT64_MAX;
    fixture_open(&f);
    CHECK_INT(f.recovery.largest_producer_id, -1);
    log_append(&f, (batch_spec){.timestamp = 5, .producer_id = LIMIT});
    for (int clean = 0; clean < 2; clean++) {
        fixture_close(&f, clean != 0);
        f.options.clean = clean != 0;
        fixture_open(&f);
        CHECK_INT(f.recovery.largest_producer_id, -1);
    }
    log_append(&f, (batch_spec){.timestamp = 5, .producer_id = LIMIT - 1});
    log_append(&f, (batch_spec){.timestamp = 5, .producer_id = 7});
    for (int clean = 0; clean < 2; clean++) {
        fixture_close(&f, clean != 0);
        f.options.clean = clean != 0;
        fixture_open(&f);
        CHECK_INT(f.recovery.largest_producer_id, LIMIT - 1);
    }
    fixture_free(&f);
}

/* A power cut may keep a segment and forget all of the one before, whose size is no sign of that. */
static void open_with_gap(bool compact, int known_segments, bool stays)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 10000;
    f.options.config.compact = compact;
    fixture_open(&f);
    fill(&f, 50);
    CHECK(f.log->segment_count >= 3);
    int64_t second = f.log->segments[1]->base_offset, third = f.log->segments[2]->base_offset;
    f.options.gap_offset = known_segments < 0 ? -1 : f.log->segments[known_segments]->base_offset;
    fixture_close(&f, false);
    char name[64];
    snprintf(name, sizeof(name), "%020lld.log", (long long)second);
    file_store(&f, name, "", 0);
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), stays ? 150 : second);
    CHECK_INT(f.recovery.gap_offset, stays ? third : f.options.gap_offset < 0 ? 0 : f.options.gap_offset);
    CHECK_INT(f.recovery.kept_batch_count > 0, !stays);
    CHECK_INT(log_append(&f, (batch_spec){.timestamp = 5}), stays ? 150 : second);
    fixture_free(&f);
}

TEST(a_segment_behind_a_gap_stays_only_where_cleaning_can_have_made_it)
{
    open_with_gap(false, -1, false);
    open_with_gap(true, -1, true);
    open_with_gap(true, 0, false);
    open_with_gap(true, 1, false);
    open_with_gap(true, 2, true);
    open_with_gap(false, 2, true); /* it was compacted before */
}

TEST(damaged_and_missing_indexes_are_rebuilt)
{
    static const char *const NAMES[] = {"00000000000000000000.index", "00000000000000000000.timeindex"};
    for (int kind = 0; kind < 2; kind++) {
        for (int how = 0; how < 3; how++) {
            fixture f;
            fixture_init(&f);
            f.options.config.segment_bytes = 30000;
            fixture_open(&f);
            fill(&f, 60);
            fixture_close(&f, true);
            size_t length;
            uint8_t *bytes = file_load(&f, NAMES[kind], &length);
            CHECK(length >= 24);
            char path[256];
            snprintf(path, sizeof(path), "%s/%s", f.directory, NAMES[kind]);
            if (how == 0)
                CHECK_INT(unlink(path), 0);
            if (how == 1)
                file_store(&f, NAMES[kind], bytes, length - 3);
            uint8_t *noise = malloc(length);
            memset(noise, 0xff, length);
            if (how == 2)
                file_store(&f, NAMES[kind], noise, length);
            free(noise);
            fixture_open(&f);
            CHECK_INT(f.recovery.rebuilt_index_count, 1);
            CHECK_INT(f.recovery.unsound_index_count, 1);
            CHECK_INT(f.recovery.unsound_index_segment, 0);
            CHECK_INT(pb_log_written_end(f.log), 180);
            size_t rebuilt_length;
            uint8_t *rebuilt = file_load(&f, NAMES[kind], &rebuilt_length);
            CHECK_INT(rebuilt_length, length);
            CHECK_MEM(rebuilt, bytes, length);
            free(bytes);
            free(rebuilt);
            fixture_free(&f);
        }
    }
}

/* A log whose first three offsets stay: [0, 2] is an aborted transaction, and so is [3, 4], which is cut off. */
static void cut_and_roll(fixture *f, const char *name)
{
    pb_failure failure;
    size_t length;
    batch_spec data = {.record_count = 2, .timestamp = 1000, .producer_id = 1, .is_transactional = true};
    batch_spec abort = {.timestamp = 2000, .producer_id = 1, .marker = 1};
    CHECK_INT(log_append(f, data), 0);
    CHECK_INT(log_append(f, abort), 2);
    data.record_count = 1;
    data.base_sequence = 2;
    data.timestamp = abort.timestamp = 3000;
    CHECK_INT(log_append(f, data), 3);
    CHECK_INT(log_append(f, abort), 4);
    fixture_close(f, true);
    uint8_t *stale = file_load(f, name, &length);
    fixture_open(f);
    CHECK_INT(pb_log_truncate(f->log, &f->guard, 3, &failure), 0);
    CHECK_INT(pb_log_roll(f->log, &f->guard, &failure), 0);
    fixture_close(f, false);
    file_store(f, name, stale, length);
    free(stale);
}

/* A power cut may leave an index with entries of batches that it took, and a kill may come once the log goes on in the
 * next segment and before that index is written again. */
TEST(indexes_that_speak_of_what_was_cut_off_are_rebuilt)
{
    static const char *const NAMES[] = {"00000000000000000000.timeindex", "00000000000000000000.txnindex"};
    for (int i = 0; i < 2; i++) {
        fixture f;
        fixture_start(&f);
        cut_and_roll(&f, NAMES[i]);
        f.options.recovery_point = 3;
        fixture_open(&f);
        CHECK_INT(pb_log_written_end(f.log), 3);
        CHECK_INT(f.recovery.rebuilt_index_count, 2); /* the active segment's as well */
        pb_transaction_entry *entries;
        int count;
        CHECK_INT(pb_log_aborted_entries(f.log, &f.guard, 0, 3, &entries, &count), 0);
        CHECK_INT(count, 1);
        CHECK_INT(entries[0].last_offset, 2);
        free(entries);
        CHECK_INT(f.log->segments[0]->largest_timestamp_ms, 2000);
        fixture_free(&f);
    }
}

TEST(a_damaged_snapshot_is_dropped_and_state_built_from_an_older_one)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 10000;
    fixture_open(&f);
    fill(&f, 50);
    fixture_close(&f, true);
    CHECK(file_exists(&f, "00000000000000000150.snapshot"));
    damage(&f, "00000000000000000150.snapshot", -1);
    fixture_open(&f);
    CHECK(!file_exists(&f, "00000000000000000150.snapshot"));
    pb_producer_info info;
    CHECK_INT(pb_log_producers(f.log, &info, 1), 1);
    CHECK_INT(info.last_sequence, 149);
    fixture_close(&f, true);
    CHECK(file_exists(&f, "00000000000000000150.snapshot"));
    fixture_free(&f);
}

/* Of two segments below the log start offset a power cut may bring the older back: what it and its snapshot know of
 * producers is out of date, and a producer that goes on would be refused for it. */
TEST(producers_of_deleted_segments_are_not_known)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 10000;
    f.options.config.producer_expiration_ms = INT64_MAX;
    fixture_open(&f);
    (void)log_append(&f, (batch_spec){.timestamp = 1, .producer_id = 6, .base_sequence = 0});
    fill(&f, 15);
    int64_t first = log_append(&f, (batch_spec){.timestamp = 1, .producer_id = 6, .base_sequence = 1});
    CHECK_INT(f.log->segment_count, 2);
    CHECK(first > f.log->segments[1]->base_offset);
    for (int i = 15; i < 50; i++)
        (void)log_append(&f, (batch_spec){.record_count = 3,
                                          .value_length = 300,
                                          .timestamp = 1000 + i,
                                          .producer_id = 5,
                                          .base_sequence = i * 3});
    pb_failure failure;
    CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), 0);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1000, &failure), 0);
    f.options.log_start_offset = pb_log_active(f.log)->base_offset + 1;
    f.options.recovery_point = pb_log_recovery_point(f.log);
    char command[1024];
    int length = snprintf(command, sizeof(command), "cd %s && rm %020lld.log", f.directory,
                          (long long)f.log->segments[1]->base_offset);
    for (uint32_t i = 2; i < f.log->segment_count; i++)
        length += snprintf(command + length, sizeof(command) - (size_t)length, " %020lld.snapshot",
                           (long long)f.log->segments[i]->base_offset);
    fixture_close(&f, false);
    CHECK_INT(system(command), 0);
    fixture_open(&f);
    CHECK(log_append(&f, (batch_spec){.timestamp = 1, .producer_id = 6, .base_sequence = 2}) > first);
    fixture_free(&f);
}

TEST(stray_snapshots_go_and_the_newest_stays)
{
    fixture f;
    fixture_start(&f);
    fill(&f, 10);
    fixture_close(&f, true);
    size_t length;
    uint8_t *bytes = file_load(&f, "00000000000000000030.snapshot", &length);
    file_store(&f, "00000000000000000007.snapshot", bytes, length);
    file_store(&f, "00000000000000000099.snapshot", bytes, length);
    free(bytes);
    fixture_open(&f);
    CHECK(!file_exists(&f, "00000000000000000007.snapshot"));
    CHECK(!file_exists(&f, "00000000000000000099.snapshot"));
    CHECK(file_exists(&f, "00000000000000000030.snapshot"));
    fixture_free(&f);
}

TEST(leftovers_of_deletion_and_cleaning_are_handled)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 10000;
    fixture_open(&f);
    fill(&f, 30);
    int64_t second = f.log->segments[1]->base_offset;
    fixture_close(&f, true);
    char name[64];
    char swapped[96];
    size_t length;
    snprintf(name, sizeof(name), "%020lld.log", (long long)second);
    uint8_t *bytes = file_load(&f, name, &length);
    file_store(&f, "00000000000000000000.log.deleted", bytes, length);
    file_store(&f, "00000000000000000088.index.cleaned", bytes, 8);
    file_store(&f, "00000000000000000088.log.swap", bytes, 8);
    file_store(&f, "00000000000000000777.index", bytes, 8);
    snprintf(swapped, sizeof(swapped), "%s.swap", name);
    file_store(&f, swapped, bytes, length);
    file_store(&f, name, bytes, 100);
    free(bytes);
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), 90);
    CHECK(!file_exists(&f, "00000000000000000000.log.deleted"));
    CHECK(!file_exists(&f, "00000000000000000088.index.cleaned"));
    CHECK(!file_exists(&f, "00000000000000000088.log.swap"));
    CHECK(!file_exists(&f, "00000000000000000777.index"));
    CHECK(!file_exists(&f, swapped));
    CHECK_INT(f.log->segments[1]->size_bytes, (int64_t)length);
    fixture_free(&f);
}

TEST(old_message_formats_are_named)
{
    fixture f;
    fixture_start(&f);
    fixture_close(&f, true);
    /* A magic-1 message: offset 3, size 22, CRC, magic, attributes, timestamp, null key, null value. */
    uint8_t message[34] = {0};
    pb_be64_store(message, 3);
    pb_be32_store(message + 8, 22);
    message[16] = 1;
    memset(message + 26, 0xff, 8);
    file_store(&f, "00000000000000000000.log", message, sizeof(message));
    for (int clean = 0; clean < 2; clean++) {
        f.options.clean = clean != 0;
        fixture_open(&f);
        CHECK(f.recovery.old_magic_found);
        CHECK_INT(f.recovery.old_magic_offset, 3);
        CHECK_INT(pb_log_written_end(f.log), 4);
        pb_log_slice slice;
        CHECK_INT(pb_log_read(f.log, &f.guard, 0, 100, 4, true, &slice), PB_UNSUPPORTED_FOR_MESSAGE_FORMAT);
        fixture_close(&f, false);
    }
    fixture_free(&f);
}

TEST(a_log_start_above_the_end_begins_anew_there)
{
    fixture f;
    fixture_start(&f);
    fill(&f, 5);
    fixture_close(&f, true);
    f.options.log_start_offset = 100;
    fixture_open(&f);
    CHECK_INT(pb_log_start_offset(f.log), 100);
    CHECK_INT(pb_log_written_end(f.log), 100);
    CHECK_INT(log_append(&f, (batch_spec){.timestamp = 1}), 100);
    fixture_free(&f);
}

TEST(nothing_is_left_of_a_log_that_begins_anew)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 4000;
    fixture_open(&f);
    fill(&f, 30);
    CHECK(f.log->segment_count > 3);
    fixture_close(&f, false);
    f.options.log_start_offset = 1000;
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), 1000);
    pb_failure failure;
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1000, &failure), 0);
    pb_offsets snapshots = {0};
    CHECK_INT(pb_directory_snapshots(f.log, &snapshots, &failure), 0);
    for (uint32_t i = 0; i < snapshots.count; i++)
        CHECK_INT(snapshots.values[i], 1000);
    free(snapshots.values);
    fixture_free(&f);
}

TEST(another_topics_directory_is_refused)
{
    static const uint8_t OTHER[16] = {9};
    fixture f;
    fixture_start(&f);
    fixture_close(&f, true);
    f.options.topic_id = OTHER;
    pb_failure failure;
    CHECK_INT(pb_log_open(&f.options, &f.log, &f.recovery, &failure), -EEXIST);
    CHECK(strstr(failure.text, "another topic") != NULL);
    f.options.topic_id = FIXTURE_TOPIC_ID;
    fixture_free(&f);
}

TEST(a_failed_write_is_repaired)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 5000;
    fixture_open(&f);
    fill(&f, 12);
    pb_failure failure;
    for (int64_t limit = 0; limit < 4000; limit += 333) {
        int64_t end = pb_log_written_end(f.log);
        for (int i = 0; i < 8; i++) {
            pb_append *append = append_make((batch_spec){.record_count = 1,
                                                         .value_length = 900,
                                                         .timestamp = 2000,
                                                         .producer_id = 9,
                                                         .base_sequence = i,
                                                         .producer_epoch = (int16_t)(limit / 333)});
            CHECK_INT(pb_log_append(f.log, append), 0);
        }
        pb_link finished;
        pb_link *link;
        pb_list_init(&finished);
        while (!pb_log_needs_repair(f.log))
            CHECK(log_write_limited(&f, limit, &finished));
        int good = 0;
        int bad = 0;
        while ((link = pb_list_pop_front(&finished)) != NULL) {
            pb_append *append = PB_CONTAINER(link, pb_append, link);
            *(append->error == 0 ? &good : &bad) += 1;
            append_free(append);
        }
        CHECK_INT(good + bad, 8);
        CHECK(bad > 0);
        CHECK_INT(pb_log_written_end(f.log), end + good);
        pb_append *refused = append_make((batch_spec){.timestamp = 1});
        CHECK_INT(pb_log_append(f.log, refused), PB_KAFKA_STORAGE_ERROR);
        append_free(refused);
        CHECK_INT(pb_log_repair(f.log, &f.guard, &failure), 0);
        CHECK_INT(pb_log_truncation_count(f.log), 0); /* who copies the log goes on */
        CHECK_INT(pb_log_appended_end(f.log), end + good);
        pb_producer_info info[2];
        int count = pb_log_producers(f.log, info, 2);
        for (int i = 0; i < count; i++) {
            if (info[i].producer_id == 9 && info[i].producer_epoch == (int16_t)(limit / 333))
                CHECK_INT(info[i].last_sequence, good - 1);
        }
        CHECK_INT(log_append(&f, (batch_spec){.timestamp = 3000}), end + good);
    }
    int64_t end = pb_log_written_end(f.log);
    fixture_close(&f, true);
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), end);
    CHECK_INT(f.recovery.rebuilt_index_count, 0);
    fixture_free(&f);
}

static int failing_sync(pb_io *io, int file)
{
    (void)io;
    (void)file;
    return -EIO;
}

TEST(a_failed_sync_is_not_forgotten)
{
    fixture f;
    fixture_start(&f);
    fill(&f, 3);
    pb_failure failure;
    const pb_io_ops *good = f.io->ops;
    pb_io_ops failing = *good;
    failing.file_sync = failing_sync;
    f.io->ops = &failing;
    CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), -EIO);
    f.io->ops = good;
    CHECK(strstr(failure.text, f.directory) != NULL);
    CHECK(pb_log_failed(f.log));
    CHECK_INT(pb_log_durable_end(f.log), 0);
    pb_append *append = append_make((batch_spec){.timestamp = 1});
    CHECK_INT(pb_log_append(f.log, append), PB_KAFKA_STORAGE_ERROR);
    append_free(append);
    CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), -EIO);
    CHECK_INT(pb_log_durable_end(f.log), 0);
    CHECK_INT(pb_log_close(f.log, true, &failure), -EIO);
    f.options.clean = false;
    fixture_open(&f);
    CHECK_INT(pb_log_written_end(f.log), 9);
    fixture_free(&f);
}

static int syncs_failed;

/* Told once; what is lost is clean from then on. */
static int lack_memory_once(pb_io *io, int file)
{
    (void)io;
    CHECK(file >= 0);
    return syncs_failed++ == 0 ? -ENOMEM : 0;
}

TEST(a_sync_that_lacked_memory_is_not_tried_again)
{
    fixture f;
    fixture_start(&f);
    fill(&f, 3);
    pb_failure failure;
    pb_io_ops failing = *fixture_ops;
    failing.file_sync = lack_memory_once;
    f.io->ops = &failing;
    syncs_failed = 0;
    CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), -EIO);
    CHECK(pb_log_failed(f.log));
    CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), -EIO);
    CHECK_INT(pb_log_durable_end(f.log), 0);
    f.io->ops = fixture_ops;
    fixture_free(&f);
}

TEST(a_repair_that_is_told_of_lost_batches_is_the_last)
{
    fixture f;
    fixture_start(&f);
    fill(&f, 3);
    pb_link finished;
    pb_list_init(&finished);
    CHECK_INT(pb_log_append(f.log, append_make((batch_spec){.timestamp = 2000, .value_length = 900})), 0);
    CHECK(log_write_limited(&f, 100, &finished));
    append_free(PB_CONTAINER(pb_list_pop_front(&finished), pb_append, link));
    CHECK(pb_log_needs_repair(f.log));
    pb_failure failure;
    pb_io_ops failing = *fixture_ops;
    failing.file_sync = lack_memory_once;
    f.io->ops = &failing;
    syncs_failed = 0;
    CHECK_INT(pb_log_repair(f.log, &f.guard, &failure), -EIO);
    CHECK(pb_log_failed(f.log));
    CHECK_INT(pb_log_repair(f.log, &f.guard, &failure), -EIO);
    CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), -EIO);
    CHECK_INT(pb_log_durable_end(f.log), 0);
    f.io->ops = fixture_ops;
    fixture_free(&f);
}

/* A file tells one sync only that it could not be written. */
TEST(one_sync_at_a_time)
{
    fixture f;
    fixture_start(&f);
    fill(&f, 3);
    pb_failure failure;
    pb_log_sync_round round;
    CHECK(pb_log_sync_begin(f.log, &round));
    CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), -EBUSY);
    CHECK_INT(pb_log_durable_end(f.log), 0);
    pb_log_sync_end(f.log, &round, pb_log_sync_run(f.log, &f.guard, &round, &failure));
    pb_log_sync_release(&round);
    CHECK_INT(pb_log_durable_end(f.log), 9);
    CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), 0);
    fixture_free(&f);
}

static fixture *repaired;
static const pb_io_ops *plain_ops;
static int looks;

/* A repair is looking for snapshots: somebody reads. */
static int look_and_list(pb_io *io, const char *path, int (*visit)(void *context, const char *name, bool is_directory),
                         void *context)
{
    pb_log_lock(&repaired->guard);
    CHECK_INT(pb_log_last_stable_offset(repaired->log, 2), 1);
    pb_log_unlock(&repaired->guard);
    looks++;
    return plain_ops->directory_list(io, path, visit, context);
}

/* A truncation is removing files: somebody asks for the segments, which all have theirs. */
static int look_and_unlink(pb_io *io, const char *path)
{
    int rc = plain_ops->unlink(io, path);
    pb_segment_info *infos;
    int count;
    int64_t total_bytes = 0;
    pb_log_lock(&repaired->guard);
    CHECK_INT(pb_log_segments(repaired->log, &infos, &count), 0);
    int64_t size_bytes = pb_log_size_bytes(repaired->log);
    pb_log_unlock(&repaired->guard);
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof(name), "%020lld.log", (long long)infos[i].base_offset);
        CHECK(file_exists(repaired, name));
        total_bytes += infos[i].size_bytes;
    }
    CHECK_INT(size_bytes, total_bytes);
    free(infos);
    looks++;
    return rc;
}

TEST(a_truncation_shows_segments_that_are_there_and_leaves_readers_their_file)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 1000;
    fixture_open(&f);
    for (int i = 0; i < 20; i++)
        CHECK_INT(log_append(&f, (batch_spec){.value_length = 300, .timestamp = i}), i);
    pb_log_slice slice;
    CHECK_INT(pb_log_read(f.log, &f.guard, 7, 10000, INT64_MAX, true, &slice), 0);
    plain_ops = f.io->ops;
    pb_io_ops looking = *plain_ops;
    looking.unlink = look_and_unlink;
    repaired = &f;
    looks = 0;
    f.io->ops = &looking;
    CHECK_INT(pb_log_truncate(f.log, &f.guard, 7, NULL), 0);
    f.io->ops = plain_ops;
    CHECK(looks > 10);
    CHECK_INT(pb_log_written_end(f.log), 7);
    CHECK(pb_log_active(f.log)->file != slice.file);
    uint8_t byte;
    CHECK_INT(pb_io_read_all(f.io, slice.file, &byte, 1, 0), 0);
    pb_segment_release(slice.segment);
    CHECK_INT(log_append(&f, (batch_spec){.value_length = 300, .timestamp = 99}), 7);
    fixture_free(&f);
}

TEST(a_repair_keeps_open_transactions_in_sight_and_has_the_files_to_itself)
{
    fixture f;
    fixture_start(&f);
    CHECK_INT(log_append(&f, (batch_spec){.timestamp = 1}), 0);
    CHECK_INT(log_append(&f, (batch_spec){.timestamp = 1, .producer_id = 9, .is_transactional = true}), 1);
    pb_append *lost = append_make((batch_spec){.timestamp = 2});
    CHECK_INT(pb_log_append(f.log, lost), 0);
    pb_link finished;
    pb_list_init(&finished);
    CHECK(log_write_limited(&f, 0, &finished));
    append_free(lost);
    CHECK_INT(pb_log_begin_maintenance(f.log, &f.guard), 0);
    CHECK_INT(pb_log_repair(f.log, &f.guard, NULL), -EBUSY);
    CHECK(pb_log_needs_repair(f.log));
    pb_log_end_maintenance(f.log, &f.guard);
    plain_ops = f.io->ops;
    pb_io_ops looking = *plain_ops;
    looking.directory_list = look_and_list;
    repaired = &f;
    f.io->ops = &looking;
    CHECK_INT(pb_log_repair(f.log, &f.guard, NULL), 0);
    f.io->ops = plain_ops;
    CHECK(looks >= 2);
    CHECK_INT(pb_log_last_stable_offset(f.log, 2), 1);
    fixture_free(&f);
}

CHECK_MAIN()
