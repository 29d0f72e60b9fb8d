/* Recovery from a mark finds what recovery from the segment's start finds; a mark that does not fit is passed over. */
#include "log/derived/producer_snapshot.h"
#include "log/recover/mark.h"
#include "tests/log/log_fixture.h"

enum { FILLED = 120, BEHIND = 30 };

static void fill(fixture *f, int from, int count)
{
    for (int i = from; i < from + count; i++) {
        /* The largest timestamp is not the last one. */
        batch_spec spec = {.record_count = 3, .value_length = 300, .timestamp = 1000 + i - (i % 7) * 20};
        spec.leader_epoch = i / 10;
        if (i % 5 == 0) {
            spec.producer_id = 5;
            spec.base_sequence = i / 5 * 3;
        } else if (i % 10 == 3) {
            spec.producer_id = 9;
            spec.is_transactional = true;
            spec.base_sequence = i / 10 * 3;
        } else if (i % 10 == 6) {
            spec = (batch_spec){.timestamp = spec.timestamp, .producer_id = 9, .marker = 1, .leader_epoch = i / 10};
        }
        CHECK(log_append(f, spec) >= 0);
    }
}

static int set_mark_after(fixture *f, void (*meanwhile)(fixture *f))
{
    pb_mark_plan plan;
    pb_failure failure;
    CHECK_INT(pb_log_mark_begin(f->log, &plan), 0);
    if (meanwhile != NULL)
        meanwhile(f);
    CHECK_INT(pb_log_sync(f->log, &f->guard, &failure), 0);
    int rc = pb_log_mark_finish(f->log, &f->guard, &plan, &failure);
    pb_log_mark_release(&plan);
    return rc;
}

static void set_mark(fixture *f)
{
    CHECK_INT(set_mark_after(f, NULL), 0);
}

static void init(fixture *f)
{
    fixture_init(f);
    f->options.config.index_interval_bytes = 1000;
    f->options.config.producer_expiration_ms = INT64_MAX;
    fixture_open(f);
}

/* A log with a mark in its only segment, and batches behind it, killed. */
static void start_marked(fixture *f)
{
    init(f);
    fill(f, 0, FILLED);
    set_mark(f);
    CHECK_INT(f->log->marked_offset, pb_log_written_end(f->log));
    fill(f, FILLED, BEHIND);
    fixture_close(f, false);
}

/* All that recovery derives of a log. */
typedef struct derived {
    int64_t ends[3];
    int64_t tail[8];
    size_t lengths[5];
    uint8_t *bytes[5];
} derived;

static derived derive(const fixture *f)
{
    derived found = {0};
    pb_segment *active = pb_log_active(f->log);
    const pb_tail *tail = &f->log->tail;
    found.ends[0] = pb_log_start_offset(f->log);
    found.ends[1] = pb_log_written_end(f->log);
    found.ends[2] = pb_log_latest_epoch(f->log);
    const int64_t values[] = {tail->base_offset,        tail->size_bytes,           tail->bytes_since_index,
                              tail->first_timestamp_ms, tail->largest_timestamp_ms, tail->largest_timestamp_offset,
                              tail->last_time_entry_ms, active->last_time_entry_ms};
    memcpy(found.tail, values, sizeof(values));
    for (int kind = PB_FILE_OFFSET_INDEX; kind <= PB_FILE_TRANSACTION_INDEX; kind++) {
        uint32_t entry_bytes;
        const pb_index_buffer *index = pb_segment_index(active, (pb_file_kind)kind, &entry_bytes);
        size_t flushed = (size_t)index->flushed_count * entry_bytes;
        size_t pending = (size_t)index->pending_count * entry_bytes;
        found.lengths[kind - 1] = flushed + pending;
        found.bytes[kind - 1] = malloc(flushed + pending + 1);
        int file = pb_segment_open(active, (pb_file_kind)kind);
        CHECK(file >= 0 || flushed == 0);
        CHECK_INT(flushed > 0 ? pb_io_read_all(f->io, file, found.bytes[kind - 1], flushed, 0) : 0, 0);
        if (file >= 0)
            f->io->ops->file_close(f->io, file);
        if (pending > 0)
            memcpy(found.bytes[kind - 1] + flushed, index->pending, pending);
    }
    found.bytes[3] = pb_producer_snapshot_format(&f->log->producers, &found.lengths[3]);
    found.bytes[4] = (uint8_t *)pb_leader_epochs_format(&f->log->epochs, &found.lengths[4]);
    return found;
}

static void check_same(derived *one, derived *other)
{
    CHECK(memcmp(one->ends, other->ends, sizeof(one->ends)) == 0);
    CHECK(memcmp(one->tail, other->tail, sizeof(one->tail)) == 0);
    for (int i = 0; i < 5; i++) {
        CHECK_INT(one->lengths[i], other->lengths[i]);
        CHECK(one->lengths[i] > 0 && memcmp(one->bytes[i], other->bytes[i], one->lengths[i]) == 0);
        free(one->bytes[i]);
        free(other->bytes[i]);
    }
}

/* Open it as it is, and once more without a mark: both find the same. With `resumes` less is read the first time. */
static void check_recovery(fixture *f, bool resumes)
{
    f->options.clean = false;
    fixture_open(f);
    bool resumed = f->recovery.scanned_bytes < pb_log_size_bytes(f->log) - 1000;
    CHECK_INT(resumed, resumes);
    CHECK_INT(f->recovery.rebuilt_index_count, resumes ? 0 : 1);
    CHECK_INT(file_exists(f, PB_MARK_FILE), resumes);
    derived found = derive(f);
    fixture_close(f, false);
    char path[300];
    snprintf(path, sizeof(path), "%s/" PB_MARK_FILE, f->directory);
    CHECK(unlink(path) == 0 || !resumes);
    fixture_open(f);
    CHECK_INT(f->recovery.scanned_bytes, pb_log_size_bytes(f->log));
    derived whole = derive(f);
    check_same(&found, &whole);
}

TEST(recovery_begins_at_a_mark)
{
    fixture f;
    start_marked(&f);
    /* Twice: a start that is killed leaves the mark. */
    fixture_open(&f);
    CHECK(f.recovery.scanned_bytes > 0 && f.recovery.scanned_bytes < pb_log_size_bytes(f.log) / 3);
    CHECK(pb_log_durable_end(f.log) >= FILLED && pb_log_durable_end(f.log) == f.log->marked_offset);
    fixture_close(&f, false);
    check_recovery(&f, true);
    fixture_free(&f);
}

TEST(a_torn_end_behind_a_mark_is_cut)
{
    fixture f;
    start_marked(&f);
    size_t length;
    uint8_t *bytes = file_load(&f, "00000000000000000000.log", &length);
    file_store(&f, "00000000000000000000.log", bytes, length - 100);
    free(bytes);
    fixture_open(&f);
    CHECK(f.recovery.truncated_bytes > 0 && f.recovery.kept_file_count == 0);
    fixture_close(&f, false);
    check_recovery(&f, true);
    fixture_free(&f);
}

TEST(an_end_at_the_mark_itself_is_one)
{
    fixture f;
    init(&f);
    fill(&f, 0, FILLED);
    set_mark(&f);
    fixture_close(&f, false);
    check_recovery(&f, true);
    fixture_free(&f);
}

/* Change each of some bytes of a marked log's file. */
static void check_damage(const char *name, size_t step)
{
    fixture f;
    start_marked(&f);
    size_t length, mark_length;
    uint8_t *bytes = file_load(&f, name, &length);
    uint8_t *mark = file_load(&f, PB_MARK_FILE, &mark_length);
    for (size_t i = 0; i < length; i += step) {
        file_store(&f, PB_MARK_FILE, mark, mark_length);
        bytes[i] ^= 0xff;
        file_store(&f, name, bytes, length);
        bytes[i] ^= 0xff;
        f.options.clean = false;
        fixture_open(&f);
        CHECK_INT(f.recovery.rebuilt_index_count, 1);
        CHECK(!file_exists(&f, PB_MARK_FILE));
        fixture_close(&f, false);
    }
    check_recovery(&f, false);
    free(bytes);
    free(mark);
    fixture_free(&f);
}

TEST(a_damaged_mark_is_passed_over)
{
    check_damage(PB_MARK_FILE, 1);
}

TEST(a_mark_with_a_damaged_snapshot_is_passed_over)
{
    fixture f;
    start_marked(&f);
    char name[64];
    fixture_open(&f);
    snprintf(name, sizeof(name), "%020lld.snapshot", (long long)f.log->marked_offset);
    fixture_close(&f, false);
    size_t length;
    uint8_t *bytes = file_load(&f, name, &length);
    bytes[length - 1] ^= 1;
    file_store(&f, name, bytes, length);
    free(bytes);
    check_recovery(&f, false);
    fixture_free(&f);
}

static void check_short(const char *name)
{
    fixture f;
    start_marked(&f);
    file_store(&f, name, (const uint8_t *)"", 0);
    check_recovery(&f, false);
    fixture_free(&f);
}

TEST(a_mark_without_an_index_is_passed_over)
{
    check_short("00000000000000000000.index");
    check_short("00000000000000000000.timeindex");
    check_short("00000000000000000000.txnindex");
}

static void check_entry(const char *name, size_t position, uint8_t value)
{
    fixture f;
    start_marked(&f);
    size_t length;
    uint8_t *bytes = file_load(&f, name, &length);
    CHECK(position < length);
    bytes[position] = value;
    file_store(&f, name, bytes, length);
    free(bytes);
    check_recovery(&f, false);
    fixture_free(&f);
}

TEST(a_mark_with_an_index_that_lies_is_passed_over)
{
    check_entry("00000000000000000000.index", 0, 0x7f);     /* an offset above the mark */
    check_entry("00000000000000000000.index", 4, 0x7f);     /* a position above it */
    check_entry("00000000000000000000.timeindex", 0, 0xff); /* a timestamp below zero */
    check_entry("00000000000000000000.txnindex", 1, 9);     /* another version */
}

TEST(a_mark_behind_other_batches_is_passed_over)
{
    fixture f;
    start_marked(&f);
    pb_mark mark;
    size_t mark_length, length;
    uint8_t *bytes = file_load(&f, PB_MARK_FILE, &mark_length);
    CHECK(pb_mark_parse(bytes, mark_length, &mark));
    free(bytes);
    bytes = file_load(&f, "00000000000000000000.log", &length);
    bytes[mark.position - 3] ^= 1;
    file_store(&f, "00000000000000000000.log", bytes, length);
    free(bytes);
    f.options.clean = false;
    fixture_open(&f);
    CHECK(!file_exists(&f, PB_MARK_FILE));
    CHECK_INT(pb_log_written_end(f.log) < mark.offset, 1);
    fixture_free(&f);
}

TEST(a_cut_below_a_mark_takes_it_away_and_one_above_does_not)
{
    fixture f;
    start_marked(&f);
    pb_failure failure;
    fixture_open(&f);
    int64_t marked = f.log->marked_offset;
    CHECK_INT(pb_log_truncate(f.log, &f.guard, marked, &failure), 0);
    CHECK(file_exists(&f, PB_MARK_FILE));
    CHECK_INT(pb_log_truncate(f.log, &f.guard, marked - 1, &failure), 0);
    CHECK(!file_exists(&f, PB_MARK_FILE));
    fixture_close(&f, false);
    check_recovery(&f, false);
    set_mark(&f);
    CHECK(file_exists(&f, PB_MARK_FILE));
    CHECK_INT(pb_log_restart(f.log, &f.guard, 7000, 7000, &failure), 0);
    CHECK(!file_exists(&f, PB_MARK_FILE));
    fixture_free(&f);
}

static void cut_and_grow(fixture *f)
{
    pb_failure failure;
    CHECK_INT(pb_log_truncate(f->log, &f->guard, 50, &failure), 0);
    for (int i = 0; i < FILLED; i++)
        (void)log_append(f, (batch_spec){.record_count = 3, .value_length = 300, .timestamp = 1000});
    CHECK(pb_log_written_end(f->log) > FILLED);
}

TEST(no_mark_is_set_beside_a_cut)
{
    fixture f;
    init(&f);
    fill(&f, 0, FILLED);
    CHECK_INT(set_mark_after(&f, cut_and_grow), -EBUSY);
    CHECK(!file_exists(&f, PB_MARK_FILE));
    fixture_free(&f);
}

static void roll_and_grow(fixture *f)
{
    pb_failure failure;
    fill(f, FILLED, 5);
    CHECK_INT(pb_log_roll(f->log, &f->guard, &failure), 0);
    fill(f, FILLED + 5, BEHIND);
}

TEST(a_mark_may_lie_in_a_segment_that_is_sealed)
{
    fixture f;
    init(&f);
    fill(&f, 0, FILLED);
    CHECK_INT(set_mark_after(&f, roll_and_grow), 0);
    CHECK(file_exists(&f, PB_MARK_FILE));
    CHECK_INT(f.log->segment_count, 2);
    int64_t largest = f.log->segments[0]->largest_timestamp_ms;
    fixture_close(&f, false);
    fixture_open(&f);
    CHECK_INT(f.log->segments[0]->largest_timestamp_ms, largest);
    CHECK_INT(f.log->segments[0]->offset_index.pending_count, 0);
    CHECK(f.recovery.scanned_bytes < pb_log_size_bytes(f.log) / 2);
    fixture_free(&f);
}

TEST(a_new_mark_takes_the_place_of_the_old_one_and_a_close_in_order_needs_none)
{
    fixture f;
    start_marked(&f);
    fixture_open(&f);
    int64_t first = f.log->marked_offset;
    char name[64];
    snprintf(name, sizeof(name), "%020lld.snapshot", (long long)first);
    CHECK(file_exists(&f, name));
    fill(&f, FILLED + BEHIND, 5);
    set_mark(&f);
    CHECK(f.log->marked_offset > first && !file_exists(&f, name));
    fixture_close(&f, true);
    CHECK(!file_exists(&f, PB_MARK_FILE));
    fixture_free(&f);
}

TEST(a_mark_below_the_recovery_points_segment_goes)
{
    fixture f;
    init(&f);
    fill(&f, 0, FILLED);
    CHECK_INT(set_mark_after(&f, roll_and_grow), 0);
    f.options.recovery_point = pb_log_active(f.log)->base_offset;
    fixture_close(&f, false);
    fixture_open(&f);
    CHECK(!file_exists(&f, PB_MARK_FILE));
    CHECK_INT(f.log->marked_offset, -1);
    fixture_free(&f);
}

TEST(what_is_written_of_a_mark_is_read)
{
    pb_mark mark = {.offset = 12, .base_offset = 3, .position = 99, .entry_counts = {1, 2, 3}}, read;
    uint8_t bytes[PB_MARK_BYTES], again[PB_MARK_BYTES];
    pb_mark_format(&mark, bytes);
    CHECK(pb_mark_parse(bytes, sizeof(bytes), &read));
    CHECK(read.offset == 12 && read.base_offset == 3 && read.position == 99 && read.entry_counts[2] == 3);
    pb_mark_format(&read, again);
    CHECK(memcmp(bytes, again, sizeof(bytes)) == 0);
    CHECK(!pb_mark_parse(bytes, sizeof(bytes) - 1, &read));
    mark.offset = mark.base_offset;
    pb_mark_format(&mark, bytes);
    CHECK(!pb_mark_parse(bytes, sizeof(bytes), &read));
}

CHECK_MAIN()
