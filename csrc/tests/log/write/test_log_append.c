/* What an append answers: producers, rolls, log append time, replicas. */
#include "base/kafka_error.h"
#include "tests/log/log_fixture.h"

static int64_t produce(fixture *f, int16_t epoch, int32_t sequence, int count)
{
    return log_append(f, (batch_spec){.record_count = count,
                                      .timestamp = 1000,
                                      .producer_id = 1,
                                      .producer_epoch = epoch,
                                      .base_sequence = sequence});
}

TEST(duplicates_gaps_and_zombies_are_refused)
{
    fixture f;
    fixture_start(&f);
    CHECK_INT(produce(&f, 4, 17, 3), 0); /* unknown producer: any sequence */
    CHECK_INT(produce(&f, 4, 20, 2), 3);
    CHECK_INT(produce(&f, 4, 20, 2), 3);
    CHECK_INT(produce(&f, 4, 17, 3), 0);
    CHECK_INT(produce(&f, 4, 23, 1), -PB_OUT_OF_ORDER_SEQUENCE_NUMBER);
    CHECK_INT(produce(&f, 4, 21, 1), -PB_OUT_OF_ORDER_SEQUENCE_NUMBER);
    CHECK_INT(produce(&f, 3, 22, 1), -PB_INVALID_PRODUCER_EPOCH);
    CHECK_INT(produce(&f, 5, 22, 1), -PB_OUT_OF_ORDER_SEQUENCE_NUMBER);
    CHECK_INT(produce(&f, 5, 0, 1), 5);
    CHECK_INT(produce(&f, 4, 22, 1), -PB_INVALID_PRODUCER_EPOCH);
    for (int i = 1; i <= 5; i++)
        CHECK_INT(produce(&f, 5, i, 1), 5 + i);
    CHECK_INT(produce(&f, 5, 1, 1), 6);
    CHECK_INT(produce(&f, 5, 0, 1), -PB_OUT_OF_ORDER_SEQUENCE_NUMBER); /* the sixth last is forgotten */
    fixture_free(&f);
}

TEST(sequences_wrap)
{
    fixture f;
    fixture_start(&f);
    CHECK_INT(produce(&f, 0, INT32_MAX - 1, 2), 0);
    CHECK_INT(produce(&f, 0, 0, 1), 2);
    CHECK_INT(produce(&f, 0, INT32_MAX - 1, 2), 0);
    fixture_free(&f);
    fixture_start(&f);
    CHECK_INT(produce(&f, 0, INT32_MAX - 1, 4), 0); /* ..., 2^31-1, 0, 1 */
    CHECK_INT(produce(&f, 0, 2, 1), 4);
    CHECK_INT(produce(&f, 0, INT32_MAX - 1, 4), 0);
    fixture_free(&f);
}

TEST(epochs_begin_with_0_and_none_is_minus_1)
{
    fixture f;
    fixture_start(&f);
    CHECK_INT(produce(&f, -5, 0, 1), -PB_INVALID_PRODUCER_EPOCH);
    CHECK_INT(produce(&f, -2, 0, 1), -PB_INVALID_PRODUCER_EPOCH);
    CHECK_INT(produce(&f, INT16_MIN, 0, 1), -PB_INVALID_PRODUCER_EPOCH);
    CHECK_INT(produce(&f, -1, 3, 1), 0);
    CHECK_INT(produce(&f, -2, 4, 1), -PB_INVALID_PRODUCER_EPOCH);
    CHECK_INT(produce(&f, -1, 3, 1), 0); /* comes again */
    CHECK_INT(produce(&f, -1, 7, 1), 1); /* without an epoch there is no order */
    CHECK_INT(produce(&f, 0, 9, 1), 2);
    CHECK_INT(produce(&f, 0, 9, 1), 2);
    CHECK_INT(produce(&f, 0, 11, 1), -PB_OUT_OF_ORDER_SEQUENCE_NUMBER);
    fixture_free(&f);
}

/* Queue a marker of coordinator epoch 7 that goes by a transaction version; the answer. */
static int64_t end_transaction(fixture *f, int16_t epoch, int16_t transaction_version)
{
    pb_append *append =
        append_make((batch_spec){.producer_id = 1, .producer_epoch = epoch, .marker = 2, .timestamp = 1000});
    append->transaction_version = transaction_version;
    int rc = pb_log_append(f->log, append);
    if (rc == 0)
        log_write(f);
    else
        append_free(append);
    return rc;
}

TEST(markers_have_epochs_too)
{
    fixture f;
    fixture_start(&f);
    CHECK_INT(end_transaction(&f, -5, 0), PB_INVALID_PRODUCER_EPOCH);
    CHECK_INT(end_transaction(&f, -5, 2), PB_INVALID_PRODUCER_EPOCH);
    batch_spec data = {.timestamp = 1000, .producer_id = 1, .producer_epoch = INT16_MAX, .is_transactional = true};
    CHECK_INT(log_append(&f, data), 0);
    CHECK_INT(end_transaction(&f, INT16_MAX, 2), 0); /* no epoch is left for it alone */
    CHECK_INT(pb_log_first_unstable_offset(f.log), INT64_MAX);
    fixture_free(&f);
}

TEST(markers_of_zombies_are_refused)
{
    fixture f;
    fixture_start(&f);
    batch_spec data = {.timestamp = 1000, .producer_id = 1, .producer_epoch = 4, .is_transactional = true};
    CHECK_INT(log_append(&f, data), 0);
    CHECK_INT(end_transaction(&f, 3, 0), PB_INVALID_PRODUCER_EPOCH);
    CHECK_INT(end_transaction(&f, 4, 2), PB_INVALID_PRODUCER_EPOCH); /* from version 2 on with an epoch of its own */
    CHECK_INT(pb_log_first_unstable_offset(f.log), 0);
    CHECK_INT(end_transaction(&f, 5, 2), 0);
    CHECK_INT(pb_log_first_unstable_offset(f.log), INT64_MAX);
    CHECK_INT(end_transaction(&f, 5, 2), 0); /* comes again */
    CHECK_INT(log_append(&f, data), -PB_INVALID_PRODUCER_EPOCH);
    data.producer_epoch = 5;
    CHECK_INT(log_append(&f, data), 3);
    CHECK_INT(end_transaction(&f, 5, 1), 0); /* before version 2 the epoch stays */
    data.base_sequence = 1;
    CHECK_INT(log_append(&f, data), 5);
    fixture_free(&f);
}

/* Append with a guard where one is asked for; as log_append. */
static int64_t append_verified(fixture *f, batch_spec spec, int64_t guard)
{
    pb_append *append = append_make(spec);
    append->must_be_verified = true;
    append->verification_guard = guard;
    int rc = pb_log_append(f->log, append);
    int64_t offset = append->base_offset;
    if (rc != 0) {
        append_free(append);
        return rc == PB_LOG_DUPLICATE ? offset : -rc;
    }
    log_write(f);
    return offset;
}

static int64_t begin_verification(fixture *f, batch_spec spec)
{
    pb_verified_batch batch = {spec.producer_id, spec.base_sequence, spec.producer_epoch, false};
    int64_t guard = -1;
    int rc = pb_log_begin_verification(f->log, &batch, spec.timestamp, &guard);
    return rc == 0 ? guard : -rc;
}

TEST(a_transaction_begins_with_the_guard_that_was_asked_for_before)
{
    fixture f;
    fixture_start(&f);
    batch_spec data = {.timestamp = 1000, .producer_id = 1, .producer_epoch = 4, .is_transactional = true};
    CHECK_INT(append_verified(&f, data, 0), -PB_INVALID_TXN_STATE);
    int64_t guard = begin_verification(&f, data);
    CHECK(guard > 0);
    CHECK_INT(begin_verification(&f, data), guard); /* until something is written, all that ask share it */
    CHECK_INT(append_verified(&f, data, guard + 1), -PB_INVALID_TXN_STATE);
    CHECK_INT(append_verified(&f, data, guard), 0);
    data.base_sequence = 1;
    CHECK_INT(begin_verification(&f, data), 0); /* it is open */
    CHECK_INT(append_verified(&f, data, 0), 1);
    CHECK_INT(append_verified(&f, data, 0), 1); /* a duplicate takes no guard */
    data.producer_epoch = 3;
    CHECK_INT(begin_verification(&f, data), -PB_INVALID_PRODUCER_EPOCH);
    data.producer_epoch = 5; /* not its transaction any more */
    data.base_sequence = 0;
    CHECK_INT(append_verified(&f, data, guard), -PB_INVALID_TXN_STATE);
    fixture_free(&f);
}

TEST(a_verdict_about_a_transaction_that_has_ended_lets_nothing_in)
{
    fixture f;
    fixture_start(&f);
    batch_spec data = {.timestamp = 1000, .producer_id = 1, .producer_epoch = 4, .is_transactional = true};
    int64_t late = begin_verification(&f, data);
    CHECK(late > 0);
    CHECK_INT(end_transaction(&f, 4, 0), 0);
    CHECK_INT(append_verified(&f, data, late), -PB_INVALID_TXN_STATE);
    int64_t guard = begin_verification(&f, data); /* of the next transaction, and the old verdict is not its */
    CHECK(guard > late);
    CHECK_INT(append_verified(&f, data, late), -PB_INVALID_TXN_STATE);
    CHECK_INT(append_verified(&f, data, guard), 1);
    fixture_free(&f);
}

TEST(no_batch_goes_before_one_that_was_refused)
{
    fixture f;
    fixture_start(&f);
    pb_failure failure;
    batch_spec first = {.timestamp = 1000, .producer_id = 1, .producer_epoch = 4, .is_transactional = true};
    batch_spec second = first;
    second.base_sequence = 1;
    int64_t guard = begin_verification(&f, first);
    CHECK_INT(begin_verification(&f, second), guard);
    CHECK_INT(append_verified(&f, second, guard), -PB_OUT_OF_ORDER_SEQUENCE_NUMBER);
    CHECK_INT(append_verified(&f, first, guard), 0);
    CHECK_INT(append_verified(&f, second, 0), 1);
    /* What is never written is forgotten in the end. */
    first.producer_id = 2;
    guard = begin_verification(&f, first);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1000, &failure), 0);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1000 + 86399999, &failure), 0);
    CHECK_INT(begin_verification(&f, first), guard);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1000 + 2 * 86400000LL, &failure), 0);
    CHECK_INT(append_verified(&f, first, guard), -PB_INVALID_TXN_STATE);
    for (int id = 3; id < 100; id++) { /* many at once */
        first.producer_id = id;
        CHECK(begin_verification(&f, first) > guard);
    }
    CHECK_INT(f.log->verifications.count, 97);
    fixture_free(&f);
}

TEST(batches_that_follow_in_memory_are_one_range_of_a_write)
{
    enum { BATCHES = 100 };
    fixture f;
    fixture_start(&f);
    pb_append *one = append_make((batch_spec){.timestamp = 1000});
    uint8_t *bytes = malloc((size_t)BATCHES * one->length);
    pb_append appends[BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        appends[i] = *one;
        appends[i].bytes = bytes + (size_t)i * one->length;
        memcpy(appends[i].bytes, one->bytes, one->length);
        pb_list_init(&appends[i].link);
        CHECK_INT(pb_log_append(f.log, &appends[i]), 0);
    }
    CHECK_INT(pb_log_append(f.log, one), 0); /* elsewhere */
    pb_log_write write;
    pb_link finished;
    pb_list_init(&finished);
    CHECK(pb_log_write_begin(f.log, &write));
    CHECK_INT(write.iov_count, 2);
    CHECK_INT(write.iov[0].iov_len, (size_t)BATCHES * one->length);
    CHECK_INT(write.length, (BATCHES + 1) * (int64_t)one->length);
    CHECK_INT(pb_log_write_prepare(f.log, &write), 0);
    CHECK_INT(pb_io_write_all(f.io, write.file, write.iov, write.iov_count, write.position), 0);
    pb_log_write_end(f.log, &write, write.length, &finished);
    for (int i = 0; i < BATCHES; i++) {
        CHECK(pb_list_pop_front(&finished) == &appends[i].link);
        CHECK_INT(appends[i].error, 0);
        CHECK_INT(appends[i].base_offset, i);
    }
    CHECK(pb_list_pop_front(&finished) == &one->link);
    CHECK_INT(pb_log_written_end(f.log), BATCHES + 1);
    append_free(one);
    free(bytes);
    fixture_free(&f);
}

TEST(producers_expire)
{
    fixture f;
    fixture_start(&f);
    pb_failure failure;
    pb_producer_info info;
    CHECK_INT(produce(&f, 0, 0, 1), 0);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1000 + 86399999, &failure), 0);
    CHECK_INT(pb_log_producers(f.log, &info, 1), 1);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1000 + 2 * 86400000LL, &failure), 0);
    CHECK_INT(pb_log_producers(f.log, &info, 1), 0);
    CHECK_INT(produce(&f, 0, 55, 1), 1);
    fixture_free(&f);
}

TEST(a_roll_comes_by_time_and_leaves_a_snapshot)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_ms = 1000;
    fixture_open(&f);
    CHECK_INT(produce(&f, 0, 0, 1), 0);
    CHECK_INT(log_append(&f, (batch_spec){.timestamp = 2000}), 1);
    CHECK_INT(f.log->segment_count, 1);
    CHECK_INT(log_append(&f, (batch_spec){.timestamp = 2001}), 2);
    CHECK_INT(f.log->segment_count, 2);
    pb_failure failure;
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), 0);
    CHECK(file_exists(&f, "00000000000000000002.snapshot"));
    CHECK(file_exists(&f, "00000000000000000000.timeindex"));
    fixture_free(&f);
}

static int leave_no_room_for_snapshots(pb_io *io, const char *path, int flags)
{
    bool snapshot = flags & PB_OPEN_CREATE && strstr(path, ".snapshot") != NULL;
    return snapshot ? -ENOSPC : fixture_ops->file_open(io, path, flags);
}

TEST(a_snapshot_that_found_no_room_is_written_when_there_is_some)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_ms = 1000;
    fixture_open(&f);
    CHECK_INT(produce(&f, 0, 0, 1), 0);
    pb_io_ops full = *fixture_ops;
    full.file_open = leave_no_room_for_snapshots;
    f.io->ops = &full;
    pb_failure failure;
    for (int i = 1; i <= 3; i++) { /* each begins a segment */
        CHECK_INT(log_append(&f, (batch_spec){.timestamp = 1000 + 1001 * i}), i);
        CHECK_INT(f.log->segment_count, i + 1);
        CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), -ENOSPC);
        CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), -ENOSPC);
    }
    f.io->ops = fixture_ops;
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), 0);
    CHECK(file_exists(&f, "00000000000000000003.snapshot"));
    CHECK(!file_exists(&f, "00000000000000000001.snapshot")); /* the newest says all */
    fixture_free(&f);
}

/* Then the clock decides, also when the log has been closed or recovered in between. */
TEST(no_roll_by_timestamps_when_the_first_batch_has_none)
{
    for (int clean = 0; clean < 2; clean++) {
        fixture f;
        fixture_init(&f);
        f.options.config.segment_ms = INT32_MAX;
        fixture_open(&f);
        CHECK_INT(log_append(&f, (batch_spec){.timestamp = -1}), 0);
        CHECK_INT(log_append(&f, (batch_spec){.timestamp = 5}), 1);
        fixture_close(&f, clean);
        fixture_open(&f);
        PB_ASSERT(f.log != NULL);
        CHECK_INT(log_append(&f, (batch_spec){.timestamp = 5 + 2 * (int64_t)INT32_MAX}), 2);
        CHECK_INT(f.log->segment_count, 1);
        fixture_free(&f);
    }
}

TEST(a_roll_comes_when_an_index_is_full)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_index_bytes = 60;
    f.options.config.index_interval_bytes = 10;
    fixture_open(&f);
    for (int i = 0; i < 40; i++)
        (void)log_append(&f, (batch_spec){.timestamp = i});
    CHECK(f.log->segment_count >= 7);
    for (uint32_t i = 0; i < f.log->segment_count; i++) {
        CHECK(pb_index_count(&f.log->segments[i]->time_index) <= 5);
        CHECK(pb_index_count(&f.log->segments[i]->offset_index) <= 7);
    }
    fixture_free(&f);
}

TEST(queued_appends_are_split_at_a_roll)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 1000;
    fixture_open(&f);
    for (int i = 0; i < 30; i++)
        CHECK_INT(pb_log_append(f.log, append_make((batch_spec){.value_length = 200, .timestamp = i})), 0);
    CHECK_INT(pb_log_written_end(f.log), 0);
    CHECK_INT(pb_log_appended_end(f.log), 30);
    CHECK_INT(f.log->segment_count, 1);
    log_write(&f);
    CHECK_INT(pb_log_written_end(f.log), 30);
    CHECK_INT(f.log->segment_count, 10);
    pb_append *huge = append_make((batch_spec){.value_length = 1000, .timestamp = 1});
    CHECK_INT(pb_log_append(f.log, huge), PB_RECORD_LIST_TOO_LARGE);
    append_free(huge);
    fixture_free(&f);
}

TEST(log_append_time_is_set_and_the_crc_stays_right)
{
    fixture f;
    fixture_start(&f);
    pb_append *append = append_make((batch_spec){.record_count = 3, .timestamp = 77, .leader_epoch = 6});
    append->log_append_time = true;
    append->now_ms = 123456;
    CHECK_INT(pb_log_append(f.log, append), 0);
    CHECK_INT(append->log_append_time_ms, 123456);
    pb_batch_header header;
    CHECK_INT(pb_batch_parse(append->bytes, append->length, &header), 0);
    CHECK_INT(header.max_timestamp, 123456);
    CHECK_INT(header.partition_leader_epoch, 6);
    CHECK(pb_batch_crc_matches(append->bytes, append->length));
    log_write(&f);
    pb_log_position found;
    CHECK_INT(pb_log_offset_of_max_timestamp(f.log, &f.guard, 3, &found), 0);
    CHECK_INT(found.timestamp_ms, 123456);
    CHECK_INT(found.offset, 2);
    fixture_free(&f);
}

TEST(a_replica_keeps_offsets_and_epochs)
{
    fixture f;
    fixture_start(&f);
    static const int64_t OFFSETS[] = {10, 13, 50, 5000000000};
    for (size_t i = 0; i < 4; i++) {
        pb_append *append = append_make((batch_spec){.record_count = 3, .timestamp = 7});
        pb_batch_set_base_offset(append->bytes, OFFSETS[i]);
        pb_batch_set_partition_leader_epoch(append->bytes, 4);
        append->is_replica = true;
        CHECK_INT(pb_log_append(f.log, append), 0);
        log_write(&f);
        CHECK_INT(pb_log_written_end(f.log), OFFSETS[i] + 3);
    }
    CHECK_INT(f.log->segment_count, 2);
    CHECK_INT(pb_log_latest_epoch(f.log), 4);
    pb_log_slice slice;
    CHECK_INT(pb_log_read(f.log, &f.guard, 20, 1, INT64_MAX, true, &slice), 0);
    CHECK_INT(slice.base_offset, 50);
    pb_segment_release(slice.segment);
    CHECK_INT(pb_log_read(f.log, &f.guard, 60, 1, INT64_MAX, true, &slice), 0);
    CHECK_INT(slice.base_offset, 5000000000);
    pb_segment_release(slice.segment);
    pb_append *late = append_make((batch_spec){.timestamp = 7});
    late->is_replica = true;
    CHECK_INT(pb_log_append(f.log, late), PB_OFFSET_OUT_OF_RANGE);
    append_free(late);
    fixture_free(&f);
}

TEST(gaps_that_a_leader_has_do_not_end_a_replica_after_a_crash)
{
    enum { BATCHES = 8, STEP = 100 };
    for (int compact = 0; compact < 2; compact++) {
        fixture f;
        fixture_init(&f);
        f.options.config.segment_bytes = 1;
        f.options.config.compact = compact != 0;
        fixture_open(&f);
        for (int i = 0; i < BATCHES; i++) {
            pb_append *append = append_make((batch_spec){.record_count = 3, .timestamp = 7});
            pb_batch_set_base_offset(append->bytes, (int64_t)i * STEP);
            append->is_replica = true;
            CHECK_INT(pb_log_append(f.log, append), 0);
            log_write(&f);
        }
        CHECK_INT(f.log->segment_count, BATCHES);
        fixture_close(&f, false);
        f.options.clean = false;
        f.options.gap_offset = 0;
        fixture_open(&f);
        CHECK_INT(pb_log_written_end(f.log), (BATCHES - 1) * STEP + 3);
        CHECK_INT(f.recovery.gap_offset, 0);
        for (int i = 1; i < BATCHES; i++) {
            pb_log_slice slice;
            CHECK_INT(pb_log_read(f.log, &f.guard, (int64_t)i * STEP - 50, 1, INT64_MAX, true, &slice), 0);
            CHECK_INT(slice.base_offset, (int64_t)i * STEP);
            pb_segment_release(slice.segment);
        }
        fixture_free(&f);
    }
}

TEST(deleted_segments_wait_for_the_purge)
{
    fixture f;
    fixture_init(&f);
    f.options.config.segment_bytes = 1000;
    fixture_open(&f);
    for (int i = 0; i < 20; i++)
        (void)log_append(&f, (batch_spec){.value_length = 200, .timestamp = i});
    pb_failure failure;
    int deleted;
    pb_log_slice slice;
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), 0);
    CHECK_INT(pb_log_read(f.log, &f.guard, 0, 10, 20, true, &slice), 0);
    CHECK_INT(pb_log_set_start_offset(f.log, 7), 0);
    CHECK_INT(pb_log_delete_segments(f.log, &f.guard, &deleted, &failure), 0);
    CHECK_INT(deleted, 2);
    CHECK(file_exists(&f, "00000000000000000000.log.deleted"));
    CHECK(!file_exists(&f, "00000000000000000000.index"));
    uint8_t header[8];
    CHECK_INT(pb_io_read_all(f.io, slice.file, header, 8, slice.position), 0);
    pb_segment_release(slice.segment);
    CHECK_INT(pb_log_purge(f.log, &f.guard, 0, &failure), 0);
    CHECK(file_exists(&f, "00000000000000000000.log.deleted"));
    CHECK_INT(pb_log_purge(f.log, &f.guard, INT64_MAX, &failure), 0);
    CHECK(!file_exists(&f, "00000000000000000000.log.deleted"));
    CHECK_INT(pb_log_read(f.log, &f.guard, 6, 10, 20, true, &slice), PB_OFFSET_OUT_OF_RANGE);
    CHECK_INT(pb_log_roll(f.log, &f.guard, &failure), 0);
    CHECK_INT(pb_log_roll(f.log, &f.guard, &failure), 0);
    CHECK_INT(pb_log_set_start_offset(f.log, 20), 0);
    CHECK_INT(pb_log_delete_segments(f.log, &f.guard, &deleted, &failure), 0);
    CHECK_INT(f.log->segment_count, 1);
    CHECK_INT(log_append(&f, (batch_spec){.timestamp = 1}), 20);
    fixture_free(&f);
}

enum { DRAIN_BYTES = 100, DRAINS = 64 };

/* How large the pieces were, and what others take of the disk while a file goes. */
static int64_t drained_pieces[DRAINS], taken_while_draining;
static int drain_count;

static int count_drain(pb_io *io, const char *path, int64_t piece_bytes, int64_t *taken_bytes)
{
    (void)io;
    CHECK(strstr(path, ".log.deleted") != NULL && drain_count < DRAINS);
    drained_pieces[drain_count++] = piece_bytes / DRAIN_BYTES;
    *taken_bytes = taken_while_draining;
    return 0;
}

/* Eight segments of 1,000 bytes or less go while others take that much during each. */
static void purge_eight(fixture *f, int64_t taken_bytes)
{
    pb_failure failure;
    int deleted;
    drain_count = 0;
    taken_while_draining = taken_bytes;
    for (int i = 0; i < 8 * 3; i++)
        (void)log_append(f, (batch_spec){.value_length = 200, .timestamp = 1});
    CHECK_INT(pb_log_upkeep(f->log, &f->guard, 0, &failure), 0);
    CHECK_INT(pb_log_roll(f->log, &f->guard, &failure), 0);
    CHECK_INT(pb_log_set_start_offset(f->log, f->log->written_end), 0);
    CHECK_INT(pb_log_delete_segments(f->log, &f->guard, &deleted, &failure), 0);
    CHECK_INT(deleted, 8);
    CHECK_INT(pb_log_purge(f->log, &f->guard, INT64_MAX, &failure), 0);
    CHECK_INT(drain_count, 8);
}

TEST(files_go_in_larger_pieces_while_the_disk_fills_faster)
{
    fixture f;
    fixture_init(&f);
    static pb_io_ops counting;
    counting = *f.io->ops;
    counting.drain_bytes = DRAIN_BYTES;
    counting.path_drain = count_drain;
    f.io->ops = &counting;
    f.options.config.segment_bytes = 1000;
    fixture_open(&f);
    purge_eight(&f, 100); /* little */
    for (int i = 0; i < 8; i++)
        CHECK_INT(drained_pieces[i], 1);
    purge_eight(&f, 2000); /* more than goes */
    for (int i = 0; i < 8; i++)
        CHECK_INT(drained_pieces[i], i < 4 ? 1 << i : 16);
    purge_eight(&f, 2000);
    CHECK_INT(drained_pieces[0], 16);
    CHECK_INT(drained_pieces[7], 16); /* the most */
    purge_eight(&f, 300);             /* as much as can be kept up with */
    CHECK_INT(drained_pieces[7], 16);
    purge_eight(&f, 0);
    for (int i = 0; i < 8; i++)
        CHECK_INT(drained_pieces[i], i < 4 ? 16 >> i : 1);
    fixture_free(&f);
}

CHECK_MAIN()
