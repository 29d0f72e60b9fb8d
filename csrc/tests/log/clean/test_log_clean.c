/*
 * Single rules and failures of cleaning that a random run does not show by itself: delete horizons in time, codecs,
 * upper bounds, markers, groups, and passes that end early.
 */
#include "base/kafka_error.h"
#include "tests/log/clean/clean_fixture.h"

static pb_codec *codec;
static pb_clean_throttle throttle;

static void begin(fixture *f, int64_t segment_bytes)
{
    memset(&throttle, 0, sizeof(throttle));
    CHECK_INT(pb_codec_create(&codec), 0);
    fixture_init(f);
    f->options.config.compact = true;
    f->options.config.segment_bytes = segment_bytes;
    fixture_open(f);
}

static void end(fixture *f)
{
    fixture_free(f);
    pb_codec_destroy(codec);
}

/* One batch of `count` records with keys from `key` on; value CLEAN_TOMBSTONE or a number. */
static void put(fixture *f, int key, int value, int count, int compression)
{
    clean_batch batch = {.base_offset = pb_log_appended_end(f->log),
                         .producer_id = -1,
                         .epoch = -1,
                         .base_sequence = -1,
                         .codec = compression,
                         .count = count};
    for (int i = 0; i < count; i++)
        batch.items[i] = (clean_item){batch.base_offset + i, 1000 + batch.base_offset + i, key + i, value};
    CHECK_INT(pb_log_append(f->log, clean_append_make(&batch, codec)), 0);
    log_write(f);
}

static void roll(fixture *f)
{
    CHECK_INT(pb_log_roll(f->log, &f->guard, NULL), 0);
}

static pb_clean_stats clean(fixture *f, pb_clean_settings settings, int expected)
{
    pb_failure failure = {0};
    pb_clean_stats stats;
    settings.cut_count = pb_log_cut_count(f->log);
    int rc = pb_log_clean(f->log, &f->guard, &settings, &throttle, &stats, &failure);
    if (rc != expected)
        check_fail(__FILE__, __LINE__, "clean: %d %s", rc, failure.text);
    return stats;
}

static int count_records(fixture *f)
{
    int count;
    int records = 0;
    clean_batch *found = clean_log_read(f, &count);
    for (int i = 0; i < count; i++)
        records += found[i].control ? 0 : found[i].count;
    free(found);
    return records;
}

TEST(a_tombstone_goes_when_its_horizon_has_passed)
{
    fixture f;
    begin(&f, 1 << 20);
    put(&f, 1, 7, 1, 0);
    put(&f, 1, CLEAN_TOMBSTONE, 1, PB_COMPRESSION_LZ4);
    put(&f, 2, 8, 1, 0);
    roll(&f);
    pb_clean_stats stats = clean(&f, clean_settings(0, 5000), 0);
    CHECK_INT(stats.end_offset, 3);
    CHECK_INT(stats.kept_records, 2);
    int count;
    clean_batch *found = clean_log_read(&f, &count);
    CHECK_INT(count, 2);
    CHECK_INT(found[0].horizon, 6000);
    CHECK_INT(found[0].items[0].timestamp, 1001);
    CHECK_INT(found[1].horizon, -1);
    free(found);
    /* Something dirty to clean for; the horizon is reached, and not a millisecond sooner. */
    put(&f, 3, 9, 1, 0);
    roll(&f);
    stats = clean(&f, clean_settings(stats.end_offset, 5999), 0);
    CHECK_INT(count_records(&f), 3);
    put(&f, 3, 9, 1, 0);
    roll(&f);
    (void)clean(&f, clean_settings(stats.end_offset, 6000), 0);
    CHECK_INT(count_records(&f), 2);
    end(&f);
}

TEST(a_tombstone_that_is_to_stay_for_ever_stays)
{
    fixture f;
    begin(&f, 1 << 20);
    put(&f, 1, 7, 1, 0);
    put(&f, 1, CLEAN_TOMBSTONE, 1, 0);
    roll(&f);
    pb_clean_settings settings = clean_settings(0, INT64_C(1764000000000));
    settings.delete_retention_ms = INT64_MAX;
    settings.first_dirty_offset = clean(&f, settings, 0).end_offset;
    int count;
    clean_batch *found = clean_log_read(&f, &count);
    CHECK_INT(count, 1);
    CHECK_INT(found[0].horizon, INT64_MAX);
    CHECK_INT(found[0].items[0].timestamp, 1001);
    free(found);
    put(&f, 2, 9, 1, 0);
    roll(&f);
    settings.now_ms++;
    (void)clean(&f, settings, 0);
    CHECK_INT(count_records(&f), 2);
    end(&f);
}

TEST(what_is_rewritten_gets_the_codec_that_is_asked_for)
{
    fixture f;
    begin(&f, 1 << 20);
    put(&f, 0, 1, 8, PB_COMPRESSION_NONE);
    put(&f, 20, 1, 8, PB_COMPRESSION_NONE); /* all of it stays, so it stays as it is */
    put(&f, 4, 2, 4, PB_COMPRESSION_GZIP);
    put(&f, 4, 2, 1, PB_COMPRESSION_GZIP);
    roll(&f);
    pb_clean_settings settings = clean_settings(0, 1);
    settings.compression = PB_COMPRESSION_ZSTD;
    settings.level = 3;
    (void)clean(&f, settings, 0);
    int count;
    clean_batch *found = clean_log_read(&f, &count);
    CHECK_INT(count, 4);
    CHECK_INT(found[0].codec, PB_COMPRESSION_ZSTD);
    CHECK_INT(found[0].count, 4);
    CHECK_INT(found[1].codec, PB_COMPRESSION_NONE);
    CHECK_INT(found[2].codec, PB_COMPRESSION_ZSTD);
    CHECK_INT(found[3].codec, PB_COMPRESSION_GZIP);
    free(found);
    end(&f);
}

TEST(nothing_at_or_above_the_upper_bound_counts_or_changes)
{
    fixture f;
    begin(&f, 1 << 20);
    put(&f, 1, 1, 1, 0);
    put(&f, 1, 2, 1, 0);
    put(&f, 1, 3, 1, 0);
    roll(&f);
    pb_clean_settings settings = clean_settings(0, 1);
    settings.upper_offset = 2;
    pb_clean_stats stats = clean(&f, settings, 0);
    CHECK_INT(stats.end_offset, 2);
    CHECK_INT(count_records(&f), 2);
    /* The active segment is never touched, whatever is asked for. */
    put(&f, 1, 4, 1, 0);
    stats = clean(&f, clean_settings(2, 1), 0);
    CHECK_INT(stats.end_offset, 3);
    CHECK_INT(count_records(&f), 2);
    stats = clean(&f, clean_settings(3, 1), 0);
    CHECK_INT(stats.end_offset, 3);
    CHECK_INT(stats.read_bytes, 0);
    end(&f);
}

TEST(small_segments_are_joined_and_the_old_files_wait_for_the_purge)
{
    fixture f;
    begin(&f, 4000);
    for (int i = 0; i < 10; i++) {
        put(&f, i % 3, i, 2, 0);
        roll(&f);
    }
    CHECK_INT(f.log->segment_count, 11);
    pb_clean_stats stats = clean(&f, clean_settings(0, 1), 0);
    CHECK_INT(stats.source_segments, 10);
    CHECK_INT(stats.cleaned_segments, 1);
    CHECK_INT(f.log->segment_count, 2);
    CHECK(file_exists(&f, "00000000000000000002.log.deleted"));
    CHECK(file_exists(&f, "00000000000000000000.log"));
    CHECK(!file_exists(&f, "00000000000000000002.log"));
    CHECK_INT(pb_log_purge(f.log, &f.guard, INT64_MAX, NULL), 0);
    CHECK(!file_exists(&f, "00000000000000000002.log.deleted"));
    CHECK(!file_exists(&f, "00000000000000000000.log.deleted"));
    CHECK_INT(pb_log_size_bytes(f.log), f.log->segments[0]->size_bytes);
    end(&f);
}

TEST(a_slice_that_a_reader_holds_outlives_the_swap)
{
    fixture f;
    pb_log_slice slice;
    begin(&f, 1 << 20);
    put(&f, 1, 1, 3, 0);
    put(&f, 1, 2, 3, 0);
    roll(&f);
    CHECK_INT(pb_log_read(f.log, &f.guard, 0, 1 << 20, INT64_MAX, true, &slice), 0);
    int64_t length = slice.length;
    (void)clean(&f, clean_settings(0, 1), 0);
    CHECK_INT(pb_log_purge(f.log, &f.guard, INT64_MAX, NULL), 0);
    uint8_t *bytes = malloc((size_t)length);
    CHECK_INT(pb_io_read_all(f.io, slice.file, bytes, (size_t)length, slice.position), 0);
    pb_batch_header header;
    size_t position = 0;
    CHECK_INT(pb_batch_next(bytes, (size_t)length, &position, &header), 0);
    CHECK_INT(header.record_count, 3);
    free(bytes);
    pb_segment_release(slice.segment);
    CHECK_INT(pb_log_read(f.log, &f.guard, 0, 1 << 20, INT64_MAX, true, &slice), 0);
    CHECK(slice.length < length);
    CHECK_INT(slice.base_offset, 3);
    pb_segment_release(slice.segment);
    end(&f);
}

TEST(a_damaged_batch_ends_the_pass_and_is_named)
{
    fixture f;
    size_t length;
    pb_failure failure = {0};
    pb_clean_stats stats;
    begin(&f, 1 << 20);
    put(&f, 1, 1, 3, 0);
    put(&f, 1, 2, 3, 0);
    roll(&f);
    uint8_t *bytes = file_load(&f, "00000000000000000000.log", &length);
    bytes[length - 5] ^= 1;
    file_store(&f, "00000000000000000000.log", bytes, length);
    pb_clean_settings settings = clean_settings(0, 1);
    CHECK_INT(pb_log_clean(f.log, &f.guard, &settings, &throttle, &stats, &failure), PB_CORRUPT_MESSAGE);
    CHECK(strstr(failure.text, "00000000000000000000.log: at position ") != NULL);
    CHECK(strstr(failure.text, "CRC") != NULL);
    CHECK_INT(stats.end_offset, 0);
    CHECK(!file_exists(&f, "00000000000000000000.log.cleaned"));
    free(bytes);
    end(&f);
}

TEST(a_compressed_record_above_the_limit_ends_the_pass_until_it_is_raised)
{
    enum { LIMIT = 22, ENOUGH = 40 };         /* bodies of records as put() makes them have some bytes more, and less */
    for (int dirty = 0; dirty < 2; dirty++) { /* it is found as the map is made, or as records are kept */
        fixture f;
        begin(&f, 1 << 20);
        put(&f, 1, 1, 3, PB_COMPRESSION_NONE);
        put(&f, 1, 2, 3, PB_COMPRESSION_LZ4);
        roll(&f);
        put(&f, 2, 2, 2, PB_COMPRESSION_NONE);
        roll(&f);
        f.options.config.max_record_bytes = LIMIT;
        pb_log_configure(f.log, &f.options.config);
        pb_clean_settings settings = clean_settings(dirty == 1 ? 6 : 0, 1);
        pb_failure failure = {0};
        pb_clean_stats stats;
        settings.cut_count = pb_log_cut_count(f.log);
        CHECK_INT(pb_log_clean(f.log, &f.guard, &settings, &throttle, &stats, &failure), PB_INVALID_RECORD);
        CHECK(strstr(failure.text, "max.decompressed.message.bytes allows 22") != NULL);
        CHECK_INT(count_records(&f), 8);
        f.options.config.max_record_bytes = ENOUGH;
        pb_log_configure(f.log, &f.options.config);
        (void)clean(&f, settings, 0);
        CHECK_INT(count_records(&f), dirty == 1 ? 4 : 3);
        end(&f);
    }
}

/* Let a pass meet something when it syncs its cleaned segment. */
static fixture *met;
static int (*meet)(fixture *f);

static int meeting_sync(pb_io *io, int file)
{
    (void)io;
    (void)file;
    int (*once)(fixture *) = meet;
    meet = NULL;
    return once != NULL ? once(met) : 0;
}

static pb_clean_stats clean_and_meet(fixture *f, int (*what)(fixture *), int expected)
{
    static pb_io_ops meeting;
    const pb_io_ops *ops = f->io->ops;
    put(f, 1, 1, 3, 0);
    put(f, 1, 2, 3, 0);
    roll(f);
    CHECK_INT(pb_log_sync(f->log, &f->guard, NULL), 0);
    meeting = *ops;
    meeting.file_sync = meeting_sync;
    f->io->ops = &meeting;
    met = f;
    meet = what;
    pb_clean_stats stats = clean(f, clean_settings(0, 1), expected);
    f->io->ops = ops;
    CHECK(!file_exists(f, "00000000000000000000.log.cleaned"));
    CHECK(!file_exists(f, "00000000000000000000.log.swap"));
    return stats;
}

static int meet_retention(fixture *f)
{
    int deleted;
    CHECK_INT(pb_log_set_start_offset(f->log, 6), 0);
    CHECK_INT(pb_log_delete_segments(f->log, &f->guard, &deleted, NULL), 0);
    CHECK_INT(deleted, 1);
    return 0;
}

static int meet_truncation(fixture *f)
{
    CHECK_INT(pb_log_truncate(f->log, &f->guard, 3, NULL), 0);
    return 0;
}

static int meet_cancel(fixture *f)
{
    /* Somebody else has the log: the pass waits for it, until it is told to end. */
    CHECK_INT(pb_log_begin_maintenance(f->log, &f->guard), 0);
    atomic_store(&pb_log_clean_control(f->log)->cancelled, true);
    return 0;
}

static int meet_full_disk(fixture *f)
{
    (void)f;
    return -ENOSPC;
}

TEST(retention_may_take_a_segment_away_meanwhile)
{
    fixture f;
    begin(&f, 1 << 20);
    (void)clean_and_meet(&f, meet_retention, -EAGAIN);
    CHECK_INT(f.log->segment_count, 1);
    end(&f);
}

TEST(a_truncation_meanwhile_ends_the_pass)
{
    fixture f;
    begin(&f, 1 << 20);
    (void)clean_and_meet(&f, meet_truncation, -EAGAIN);
    CHECK_INT(count_records(&f), 3);
    end(&f);
}

static int (*plain_unlink)(pb_io *io, const char *path);

static int truncating_unlink(pb_io *io, const char *path)
{
    if (meet != NULL && strstr(path, ".cleaned") != NULL) {
        meet = NULL;
        CHECK_INT(meet_truncation(met), 0);
    }
    return plain_unlink(io, path);
}

/* All stays as it is, so nothing is swapped, and the pass has read all when the log is cut. */
TEST(a_truncation_at_the_very_end_takes_back_what_a_pass_has_come_to)
{
    fixture f;
    begin(&f, 1 << 20);
    put(&f, 1, 1, 3, 0);
    put(&f, 4, 2, 3, 0);
    roll(&f);
    static pb_io_ops meeting;
    const pb_io_ops *ops = f.io->ops;
    meeting = *ops;
    plain_unlink = ops->unlink;
    meeting.unlink = truncating_unlink;
    f.io->ops = &meeting;
    met = &f;
    meet = meet_truncation;
    pb_clean_stats stats = clean(&f, clean_settings(0, 1), -EAGAIN);
    f.io->ops = ops;
    CHECK(meet == NULL);
    CHECK_INT(stats.end_offset, 0);
    CHECK_INT(pb_log_cut_offset(f.log), 3);
    end(&f);
}

TEST(what_is_appended_behind_a_cut_is_dirty_again)
{
    fixture f;
    begin(&f, 1 << 20);
    for (int i = 0; i < 2; i++) {
        put(&f, 1, i, 3, 0);
        roll(&f);
    }
    CHECK_INT(pb_log_cut_offset(f.log), INT64_MAX);
    CHECK_INT(clean(&f, clean_settings(0, 1), 0).end_offset, 6);
    CHECK_INT(count_records(&f), 3);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, 5, NULL), 0);
    int64_t cut_offset = pb_log_written_end(f.log);
    CHECK(cut_offset < 6);
    CHECK_INT(pb_log_cut_offset(f.log), cut_offset);
    put(&f, 1, 5, 3, 0);
    put(&f, 1, 6, 3, 0);
    roll(&f);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, pb_log_written_end(f.log), NULL), 0);
    CHECK_INT(pb_log_cut_offset(f.log), cut_offset);
    /* By the checkpoint of before: the pass would not see what came below. */
    (void)clean(&f, clean_settings(6, 1), -EAGAIN);
    CHECK_INT(pb_log_cut_offset(f.log), cut_offset);
    /* Nothing is done, so it is not forgotten. */
    pb_clean_settings nothing = clean_settings(cut_offset, 1);
    nothing.upper_offset = cut_offset;
    (void)clean(&f, nothing, 0);
    CHECK_INT(pb_log_cut_offset(f.log), cut_offset);
    pb_clean_stats stats = clean(&f, clean_settings(cut_offset, 1), 0);
    CHECK_INT(stats.end_offset, cut_offset + 6);
    CHECK_INT(count_records(&f), 3);
    CHECK_INT(pb_log_cut_offset(f.log), INT64_MAX);
    end(&f);
}

/* Between a look at the log's ends and the pass a follower is cut, and fetches what is not committed. */
TEST(a_pass_does_not_go_by_a_stable_offset_from_before_a_cut)
{
    fixture f;
    pb_clean_stats stats;
    begin(&f, 1 << 20);
    put(&f, 1, 1, 3, 0);
    put(&f, 4, 2, 3, 0);
    roll(&f);
    pb_clean_settings settings = clean_settings(0, 1);
    settings.upper_offset = 6;
    settings.cut_count = pb_log_cut_count(f.log);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, 3, NULL), 0);
    put(&f, 1, 3, 3, 0);
    roll(&f);
    CHECK_INT(pb_log_clean(f.log, &f.guard, &settings, &throttle, &stats, NULL), -EAGAIN);
    CHECK_INT(stats.end_offset, 0);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, 3, NULL), 0); /* it came to nobody else */
    CHECK_INT(count_records(&f), 3);
    end(&f);
}

TEST(a_pass_over_a_log_that_others_sync_begins_when_they_have)
{
    fixture f;
    begin(&f, 1 << 20);
    put(&f, 1, 1, 3, 0);
    put(&f, 1, 2, 3, 0);
    roll(&f);
    pb_clean_settings settings = clean_settings(0, 1);
    settings.syncs = false;
    CHECK_INT(clean(&f, settings, -EAGAIN).end_offset, 0);
    CHECK_INT(count_records(&f), 6);
    CHECK_INT(pb_log_durable_end(f.log), 0);
    CHECK_INT(pb_log_sync(f.log, &f.guard, NULL), 0);
    CHECK_INT(clean(&f, settings, 0).end_offset, 6);
    CHECK_INT(count_records(&f), 3);
    end(&f);
}

TEST(a_cancelled_pass_leaves_the_log_as_it_was)
{
    fixture f;
    begin(&f, 1 << 20);
    pb_clean_stats stats = clean_and_meet(&f, meet_cancel, -ECANCELED);
    CHECK_INT(stats.end_offset, 0);
    CHECK_INT(count_records(&f), 6);
    pb_log_end_maintenance(f.log, &f.guard);
    (void)clean(&f, clean_settings(0, 1), 0);
    CHECK_INT(count_records(&f), 3);
    end(&f);
}

TEST(a_full_disk_leaves_the_log_as_it_was)
{
    fixture f;
    begin(&f, 1 << 20);
    (void)clean_and_meet(&f, meet_full_disk, -ENOSPC);
    CHECK_INT(count_records(&f), 6);
    CHECK(!pb_log_failed(f.log));
    (void)clean(&f, clean_settings(0, 1), 0);
    CHECK_INT(count_records(&f), 3);
    end(&f);
}

TEST(first_timestamps_are_those_of_sealed_segments)
{
    fixture f;
    int64_t timestamp_ms;
    begin(&f, 1 << 20);
    CHECK_INT(pb_log_first_timestamp(f.log, &f.guard, 0, INT64_MAX, &timestamp_ms, NULL), 0);
    CHECK_INT(timestamp_ms, -1);
    put(&f, 1, 1, 2, 0);
    roll(&f);
    put(&f, 1, 1, 2, 0);
    roll(&f);
    put(&f, 1, 1, 2, 0);
    CHECK_INT(pb_log_first_timestamp(f.log, &f.guard, 0, INT64_MAX, &timestamp_ms, NULL), 0);
    CHECK_INT(timestamp_ms, 1001); /* the largest of the first batch */
    CHECK_INT(pb_log_first_timestamp(f.log, &f.guard, 2, INT64_MAX, &timestamp_ms, NULL), 0);
    CHECK_INT(timestamp_ms, 1003);
    CHECK_INT(pb_log_first_timestamp(f.log, &f.guard, 4, INT64_MAX, &timestamp_ms, NULL), 0);
    CHECK_INT(timestamp_ms, -1);
    end(&f);
}

TEST(a_throttle_makes_a_pass_wait_and_lets_it_be_cancelled)
{
    fixture f;
    begin(&f, 1 << 20);
    pb_clean_throttle slow = {.bytes_per_second = 1 << 20};
    atomic_bool cancelled = false;
    int64_t began_ns = f.io->ops->monotonic_ns(f.io);
    pb_clean_throttle_wait(&slow, f.io, 1 << 14, &cancelled); /* a 64th of a second */
    CHECK(f.io->ops->monotonic_ns(f.io) - began_ns >= 15 * 1000 * 1000);
    cancelled = true;
    pb_clean_throttle_wait(&slow, f.io, INT64_C(1) << 40, &cancelled);
    end(&f);
}

/* Two segments too large for one: everything of the first stays, the second loses records. */
static void put_two_segments(fixture *f)
{
    f->log->config.index_interval_bytes = 1;
    put(f, 10, 1, 3, 0);
    put(f, 20, 1, 3, 0);
    CHECK_INT(pb_log_upkeep(f->log, &f->guard, 1, NULL), 0);
    put(f, 30, 1, 3, 0); /* its index entries are still in memory when the pass runs */
    roll(f);
    put(f, 1, 1, 3, 0);
    put(f, 1, 2, 3, 0);
    put(f, 1, 3, 3, 0);
    roll(f);
    put(f, 2, 3, 3, 0);
    f->log->config.segment_bytes = f->log->segments[0]->size_bytes + 1;
}

TEST(indexes_in_front_of_a_cleaned_segment_still_reach_their_files)
{
    fixture f;
    begin(&f, 1 << 20);
    put_two_segments(&f);
    int64_t largest_ms = f.log->segments[0]->largest_timestamp_ms;
    pb_clean_stats stats = clean(&f, clean_settings(0, 1), 0);
    CHECK_INT(stats.cleaned_segments, 1);
    CHECK_INT(f.log->segment_count, 3);
    CHECK_INT(pb_log_sync(f.log, &f.guard, NULL), 0);
    CHECK_INT(pb_log_recovery_point(f.log), 0);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1, NULL), 0);
    CHECK_INT(f.log->segments[0]->time_index.pending_count, 0);
    CHECK_INT(f.log->segments[0]->indexes, PB_SYNCED);
    CHECK_INT(f.log->segments[1]->indexes, PB_SYNCED);
    fixture_close(&f, true);
    fixture_open(&f);
    CHECK(f.log != NULL);
    CHECK_INT(f.log->segments[0]->largest_timestamp_ms, largest_ms);
    end(&f);
}

static int64_t generation_of(fixture *f, int index)
{
    pb_segment_info *infos;
    int count;
    CHECK_INT(pb_log_segments(f->log, &infos, &count), 0);
    CHECK(index < count);
    int64_t generation = infos[index].generation;
    free(infos);
    return generation;
}

/* Inodes are used again, and sizes may be the same. */
TEST(who_copies_a_log_can_tell_whose_file_a_name_is)
{
    fixture f;
    begin(&f, 1 << 20);
    put_two_segments(&f);
    pb_clean_stats stats = clean(&f, clean_settings(0, 1), 0);
    CHECK_INT(stats.cleaned_segments, 1);
    CHECK_INT(generation_of(&f, 0), 0);
    CHECK_INT(generation_of(&f, 1), 1);
    CHECK_INT(generation_of(&f, 2), 0);
    put(&f, 1, 4, 3, 0);
    roll(&f);
    stats = clean(&f, clean_settings(stats.end_offset, 1), 0);
    CHECK(stats.cleaned_segments > 0);
    CHECK_INT(generation_of(&f, 0), 0);
    CHECK(generation_of(&f, 1) > 1);
    /* A cut opens another file handle, and not another file. */
    int64_t generation = generation_of(&f, 1);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, f.log->segments[1]->base_offset + 9, NULL), 0);
    CHECK_INT(generation_of(&f, 1), generation);
    end(&f);
}

TEST(an_index_that_lies_costs_no_record)
{
    fixture f;
    size_t length;
    begin(&f, 1 << 20);
    f.log->config.index_interval_bytes = 1;
    for (int i = 0; i < 5; i++)
        put(&f, i, 1, 1, 0);
    roll(&f);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1, NULL), 0);
    uint8_t *entries = file_load(&f, "00000000000000000000.index", &length);
    CHECK_INT(length, 4 * PB_OFFSET_INDEX_ENTRY_BYTES);
    memcpy(entries + 4, entries + 2 * PB_OFFSET_INDEX_ENTRY_BYTES + 4, 4); /* offset 1 lies where 3 does */
    file_store(&f, "00000000000000000000.index", entries, length);
    free(entries);
    (void)clean(&f, clean_settings(1, 1), 0);
    CHECK_INT(count_records(&f), 5);
    end(&f);
}

TEST(a_pass_leaves_to_others_what_it_need_not_sync)
{
    fixture f;
    begin(&f, 1 << 20);
    put(&f, 1, 1, 3, 0);
    put(&f, 1, 2, 3, 0);
    roll(&f);
    CHECK_INT(pb_log_sync(f.log, &f.guard, NULL), 0);
    put(&f, 1, 3, 3, 0);
    (void)clean(&f, clean_settings(0, 1), 0);
    CHECK_INT(count_records(&f), 6);
    CHECK_INT(pb_log_durable_end(f.log), 6);
    end(&f);
}

CHECK_MAIN()
