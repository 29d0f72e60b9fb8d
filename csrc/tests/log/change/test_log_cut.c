/* Who reads a log while it is cut finds what is left of it, and blames no disk: files end too soon for a reason. */
#include "base/kafka_error.h"
#include "log/change/scrub.h"
#include "tests/log/log_fixture.h"

enum { BATCHES = 60, CUT_OFFSET = 50 };

/* Which read of an operation meets the cut; it is made just before. */
static fixture *cut_one;
static int reads_left;
static bool grows_again;

static void fill(fixture *f)
{
    for (int i = 0; i < BATCHES; i++) {
        CHECK(log_append(
                  f, (batch_spec){.record_count = 3, .value_length = 150, .timestamp = 1000 + i * 10, .keyed = true}) >=
              0);
        if (i % 7 == 3) {
            CHECK(log_append(f, (batch_spec){.timestamp = 1000,
                                             .producer_id = 9,
                                             .base_sequence = i / 7,
                                             .is_transactional = true,
                                             .keyed = true}) >= 0);
            CHECK(log_append(f, (batch_spec){.timestamp = 1000, .producer_id = 9, .marker = 1}) >= 0);
        }
    }
}

static void cut_now(void)
{
    fixture *f = cut_one;
    cut_one = NULL;
    CHECK_INT(pb_log_truncate(f->log, &f->guard, CUT_OFFSET, NULL), 0);
    /* In its place comes what is of another length. */
    for (int i = 0; grows_again && i < 2 * BATCHES; i++)
        CHECK(log_append(f, (batch_spec){.record_count = 2, .value_length = 77, .timestamp = 900 + i, .keyed = true}) >=
              0);
}

static int64_t cutting_read(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    if (cut_one != NULL && reads_left-- == 0)
        cut_now();
    return fixture_ops->file_read(io, file, buffer, length, position);
}

typedef int operation(fixture *f);

static int do_read(fixture *f, int64_t offset, int64_t upper_offset)
{
    pb_log_slice slice;
    int rc = pb_log_read(f->log, &f->guard, offset, 300, upper_offset, true, &slice);
    if (rc == 0 && slice.segment != NULL) {
        CHECK(slice.base_offset <= offset);
        pb_segment_release(slice.segment);
    }
    return rc;
}

static int read_inside(fixture *f)
{
    return do_read(f, CUT_OFFSET + 2, CUT_OFFSET + 8);
}

static int read_behind(fixture *f)
{
    return do_read(f, 3 * CUT_OFFSET, 4 * CUT_OFFSET);
}

static int find_time(fixture *f)
{
    pb_log_position found;
    return pb_log_offset_for_timestamp(f->log, &f->guard, 1000 + 10 * 17 + 1, INT64_MAX, &found);
}

static int find_largest_time(fixture *f)
{
    pb_log_position found;
    return pb_log_offset_of_max_timestamp(f->log, &f->guard, INT64_MAX, &found);
}

static int find_aborted(fixture *f)
{
    pb_aborted_transaction *found;
    int count;
    int rc = pb_log_aborted_transactions(f->log, &f->guard, 0, INT64_MAX, &found, &count);
    free(found);
    return rc;
}

static int scrub_all(fixture *f)
{
    pb_scrub_cursor cursor = {0};
    pb_scrub_result result = {0};
    int rc = 0;
    while (rc == 0 && !result.done) {
        rc = pb_log_scrub(f->log, &f->guard, &cursor, 2000, &result, NULL);
        CHECK_INT(result.finding, PB_SCRUB_NOTHING);
    }
    return rc;
}

static int first_time(fixture *f)
{
    int64_t found_ms;
    return pb_log_first_timestamp(f->log, &f->guard, 0, INT64_MAX, &found_ms, NULL);
}

static int clean(fixture *f)
{
    static pb_clean_throttle throttle;
    pb_clean_settings settings = {.upper_offset = INT64_MAX,
                                  .cut_count = pb_log_cut_count(f->log),
                                  .syncs = true,
                                  .now_ms = 1,
                                  .map_bytes = 1 << 20,
                                  .io_buffer_bytes = 1 << 16,
                                  .load_factor_percent = 90,
                                  .compression = -1};
    pb_clean_stats stats;
    bool was_to_be_cut = cut_one != NULL;
    int rc = pb_log_clean(f->log, &f->guard, &settings, &throttle, &stats, NULL);
    CHECK(rc == (was_to_be_cut && cut_one == NULL ? -EAGAIN : 0));
    return 0;
}

static operation *const operations[] = {read_inside,  read_behind, find_time,  find_largest_time,
                                        find_aborted, scrub_all,   first_time, clean};

static void begin(fixture *f)
{
    fixture_init(f);
    f->options.config.segment_bytes = 6000;
    f->options.config.index_interval_bytes = 1000;
    f->options.config.compact = true;
    fixture_open(f);
    fill(f);
    /* Nothing is remembered of where batches lie. */
    fixture_close(f, true);
    fixture_open(f);
    CHECK(f->log->segment_count > 5 && f->log->segments[1]->base_offset < CUT_OFFSET);
}

/* false: the operation was over before so many reads. */
static bool meet(operation *what, int read_index, bool grows)
{
    static pb_io_ops cutting;
    fixture f;
    begin(&f);
    cutting = *fixture_ops;
    cutting.file_read = cutting_read;
    f.io->ops = &cutting;
    reads_left = read_index;
    grows_again = grows;
    cut_one = &f;
    int rc = what(&f);
    if (rc != 0 && rc != PB_OFFSET_OUT_OF_RANGE)
        check_fail(__FILE__, __LINE__, "a cut before read %d: %d", read_index, rc);
    bool met = cut_one == NULL;
    cut_one = NULL;
    rc = what(&f);
    CHECK(rc == 0 || rc == PB_OFFSET_OUT_OF_RANGE);
    f.io->ops = fixture_ops;
    fixture_free(&f);
    return met;
}

TEST(a_cut_before_any_read_of_an_operation_is_no_failure)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        for (int grows = 0; grows < 2; grows++) {
            int read_index = 0;
            while (meet(operations[i], read_index, grows))
                read_index++;
            CHECK(read_index > 0);
        }
    }
}

/* Others read so many segments before each read of the repair that files are closed for those. */
static fixture *repairing;

static int64_t crowded_read(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    fixture *f = repairing;
    repairing = NULL;
    for (uint32_t i = 0; f != NULL && i + 1 < f->log->segment_count; i++) {
        const pb_segment *segment = f->log->segments[i];
        if (segment->file != file)
            CHECK_INT(do_read(f, segment->base_offset, segment->base_offset + 1), 0);
    }
    repairing = f;
    return fixture_ops->file_read(io, file, buffer, length, position);
}

TEST(a_repair_keeps_the_file_that_it_replays)
{
    static pb_io_ops crowded;
    fixture f;
    begin(&f);
    CHECK(f.log->segment_count > PB_OPEN_SEALED_FILES + 1);
    /* Without snapshots, the producers are in the batches of all segments. */
    char command[128];
    snprintf(command, sizeof command, "rm %s/*.snapshot", f.directory);
    CHECK_INT(system(command), 0);
    crowded = *fixture_ops;
    crowded.file_read = crowded_read;
    f.io->ops = &crowded;
    repairing = &f;
    pb_failure failure = {0};
    CHECK_INT(pb_log_repair(f.log, &f.guard, &failure), 0);
    repairing = NULL;
    batch_spec next = {.timestamp = 1000, .producer_id = 9, .base_sequence = BATCHES / 7 + 1, .is_transactional = true};
    next.base_sequence++;
    CHECK(log_append(&f, next) < 0);
    next.base_sequence--;
    CHECK(log_append(&f, next) > 0);
    f.io->ops = fixture_ops;
    fixture_free(&f);
}

/* Between the cut of the file and that of what is known in memory. */
static fixture *truncating;
static pb_log_slice held;
static pb_log_slice in_between;

static int watched_truncate(pb_io *io, int file, int64_t size_bytes)
{
    int rc = fixture_ops->file_truncate(io, file, size_bytes);
    if (truncating != NULL && size_bytes > 0) {
        fixture *f = truncating;
        truncating = NULL;
        CHECK(!pb_log_has_slice(f->log, &held));
        CHECK_INT(pb_log_read(f->log, &f->guard, CUT_OFFSET - 1, 300, CUT_OFFSET + 8, true, &in_between), 0);
        CHECK_INT(read_inside(f), 0);
        CHECK_INT(read_behind(f), 0);
        CHECK_INT(find_time(f), 0);
        CHECK_INT(find_aborted(f), 0);
        CHECK_INT(scrub_all(f), 0);
    }
    return rc;
}

TEST(a_log_can_be_read_in_the_middle_of_a_cut)
{
    static pb_io_ops watched;
    fixture f;
    begin(&f);
    CHECK_INT(pb_log_read(f.log, &f.guard, CUT_OFFSET + 2, 300, CUT_OFFSET + 8, true, &held), 0);
    CHECK(pb_log_has_slice(f.log, &held));
    watched = *fixture_ops;
    watched.file_truncate = watched_truncate;
    f.io->ops = &watched;
    truncating = &f;
    CHECK_INT(pb_log_truncate(f.log, &f.guard, CUT_OFFSET, NULL), 0);
    CHECK(truncating == NULL);
    pb_segment_release(held.segment);
    /* What he brings in, who has seen the segment while it was being cut, is found by nobody. */
    CHECK(in_between.segment != NULL && in_between.segment != pb_log_active(f.log));
    pb_segment_release(in_between.segment);
    f.io->ops = fixture_ops;
    fixture_free(&f);
}

/* Before a look at the log somebody has cut it, and others have appended. */
static int looks_left;

static void cut_and_lock(void *context)
{
    fixture *f = truncating;
    if (f != NULL && looks_left-- == 0) {
        truncating = NULL;
        CHECK_INT(pb_log_truncate(f->log, &f->guard, 5, NULL), 0);
        for (int i = 5; i < 30; i++)
            CHECK_INT(log_append(f, (batch_spec){.timestamp = 5000 + i, .value_length = 300}), i);
    }
    fixture_lock(context);
}

TEST(where_a_reader_beside_a_cut_found_batches_is_not_remembered)
{
    fixture f;
    fixture_start(&f);
    for (int i = 0; i < 12; i++)
        CHECK_INT(log_append(&f, (batch_spec){.timestamp = 1000 + i, .value_length = 100}), i);
    pb_log_guard guard = {cut_and_lock, fixture_unlock, &f.mutex};
    pb_log_slice slice;
    truncating = &f;
    looks_left = 1; /* the first one plans the read */
    CHECK_INT(pb_log_read(f.log, &guard, 6, 500, 12, true, &slice), 0);
    CHECK(truncating == NULL && slice.segment != NULL && slice.end_offset < 12);
    int64_t next = slice.end_offset;
    pb_segment_release(slice.segment);
    CHECK_INT(pb_log_read(f.log, &f.guard, next, 1, 30, true, &slice), 0);
    uint8_t header[PB_BATCH_HEADER_BYTES];
    CHECK_INT(pb_io_read_all(f.io, slice.file, header, sizeof(header), slice.position), 0);
    CHECK_INT(pb_be64_load(header), next);
    pb_segment_release(slice.segment);
    fixture_free(&f);
}

/* What nobody here has cut is told as before. */
TEST(a_file_that_something_else_has_cut_is_still_told)
{
    fixture f;
    begin(&f);
    const pb_segment *active = pb_log_active(f.log);
    int64_t end = pb_log_written_end(f.log);
    pb_log_slice slice;
    CHECK_INT(pb_log_read(f.log, &f.guard, end - 1, 300, end, true, &slice), 0);
    char path[128];
    snprintf(path, sizeof path, "%s/%020lld.log", f.directory, (long long)active->base_offset);
    CHECK_INT(truncate(path, 100), 0);
    CHECK(pb_log_has_slice(f.log, &slice));
    pb_segment_release(slice.segment);
    CHECK_INT(pb_log_note_short_file(f.log, &f.guard, f.log->segments[f.log->segment_count - 1]), -ENODATA);
    CHECK_INT(do_read(&f, active->base_offset + 1, end), -ENODATA);
    CHECK_INT(active->damage_count, 0);

    /* A look at the files says so, and a new segment is all it takes to go on. */
    pb_failure failure = {0};
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1, &failure), -ENODATA);
    CHECK(strstr(failure.text, "something else has cut it") != NULL && !pb_log_failed(f.log));
    CHECK_INT(pb_log_check_files(f.log, &f.guard, &failure), -ENODATA);
    int64_t base_offset = active->base_offset;
    CHECK_INT(pb_log_roll(f.log, &f.guard, &failure), 0);
    failure = (pb_failure){0};
    CHECK_INT(pb_log_check_files(f.log, &f.guard, &failure), 0);
    CHECK(strstr(failure.text, "are answered CORRUPT_MESSAGE") != NULL);
    CHECK_INT(do_read(&f, base_offset + 1, end), PB_CORRUPT_MESSAGE);
    CHECK_INT(do_read(&f, base_offset - 1, end), 0);
    CHECK(log_append(&f, (batch_spec){.record_count = 1}) == end);
    CHECK_INT(do_read(&f, end, end + 1), 0);
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 2, &failure), 0);
    fixture_free(&f);
}

TEST(a_sealed_file_that_something_else_has_cut_is_damaged_where_it_was)
{
    fixture f;
    begin(&f);
    char path[128];
    snprintf(path, sizeof path, "%s/%020d.log", f.directory, 0);
    CHECK_INT(truncate(path, 100), 0);
    CHECK_INT(do_read(&f, 10, 12), PB_CORRUPT_MESSAGE);
    CHECK_INT(f.log->segments[0]->damage_count, 1);
    CHECK_INT(f.log->segments[0]->damages[0].position, 0);
    CHECK_INT(f.log->segments[0]->damages[0].end_position, f.log->segments[0]->size_bytes);
    CHECK_INT(f.log->segments[0]->damages[0].end_offset, f.log->segments[1]->base_offset);
    CHECK_INT(do_read(&f, f.log->segments[1]->base_offset, INT64_MAX), 0);
    pb_log_position found;
    CHECK_INT(pb_log_offset_for_timestamp(f.log, &f.guard, 1031, INT64_MAX, &found), PB_CORRUPT_MESSAGE);
    fixture_free(&f);
}

/* Before anybody reads there: the scrub says what is missing, once, and so does a look at the files. */
TEST(the_scrub_and_upkeep_find_a_sealed_file_too_short)
{
    fixture f;
    pb_scrub_cursor cursor = {0};
    pb_scrub_result result;
    pb_failure failure = {0};
    begin(&f);
    char path[128];
    int64_t size_bytes = f.log->segments[1]->size_bytes, base_offset = f.log->segments[1]->base_offset;
    snprintf(path, sizeof path, "%s/%020lld.log", f.directory, (long long)base_offset);
    CHECK_INT(truncate(path, size_bytes - 1), 0);
    do {
        CHECK_INT(pb_log_scrub(f.log, &f.guard, &cursor, 2000, &result, NULL), 0);
    } while (result.finding == PB_SCRUB_NOTHING && !result.done);
    CHECK(result.finding == PB_SCRUB_BATCHES && !result.known);
    CHECK_INT(result.segment_base, base_offset);
    CHECK(result.position > 0 && result.position < size_bytes - 1);
    CHECK_INT(result.end_position, size_bytes);
    CHECK_INT(result.end_offset, f.log->segments[2]->base_offset);
    CHECK_INT(do_read(&f, result.offset, INT64_MAX), PB_CORRUPT_MESSAGE);
    CHECK_INT(do_read(&f, result.offset - 1, INT64_MAX), 0);
    while (!result.done)
        CHECK_INT(pb_log_scrub(f.log, &f.guard, &cursor, 2000, &result, NULL), 0);
    CHECK_INT(pb_log_check_files(f.log, &f.guard, &failure), 0);
    CHECK(strstr(failure.text, "something else has cut it") != NULL);
    failure = (pb_failure){0};
    CHECK_INT(pb_log_upkeep(f.log, &f.guard, 1, &failure), 0);
    CHECK_STR(failure.text, "");
    fixture_free(&f);
}

/* Four batches of three records; the second read of what follows meets the cut, and smaller batches come after it. */
static int reads_seen;

static int64_t second_read_cut(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    int64_t got = fixture_ops->file_read(io, file, buffer, length, position);
    if (++reads_seen == 2) {
        CHECK_INT(pb_log_truncate(cut_one->log, &cut_one->guard, 3, NULL), 0);
        for (int i = 0; i < 64; i++)
            CHECK(log_append(cut_one, (batch_spec){.record_count = 1, .value_length = 5}) >= 0);
    }
    return got;
}

/* The end of the last batch that a reader at `offset` is sent. */
static int64_t end_of_read(fixture *f, int64_t offset, int64_t upper_offset)
{
    pb_log_slice slice;
    pb_batch_header header;
    int64_t end_offset = -1;
    CHECK_INT(pb_log_read(f->log, &f->guard, offset, 1 << 20, upper_offset, true, &slice), 0);
    CHECK(slice.segment != NULL);
    size_t length = (size_t)slice.length;
    uint8_t *bytes = malloc(length);
    CHECK_INT(pb_io_read_all(f->io, slice.file, bytes, length, slice.position), 0);
    for (size_t at = 0; pb_batch_next(bytes, length, &at, &header) == 0 && header.size_bytes > 0;)
        end_offset = pb_batch_last_offset(&header) + 1;
    free(bytes);
    pb_segment_release(slice.segment);
    return end_offset;
}

TEST(a_reader_from_before_a_cut_misleads_none_that_comes_after_it)
{
    static pb_io_ops cutting;
    fixture f;
    pb_log_slice slice;
    fixture_start(&f);
    for (int i = 0; i < 4; i++)
        CHECK(log_append(&f, (batch_spec){.record_count = 3, .value_length = 116}) >= 0);
    int64_t batch_bytes = f.log->segments[0]->size_bytes / 4;
    cutting = *fixture_ops;
    cutting.file_read = second_read_cut;
    f.io->ops = &cutting;
    cut_one = &f;
    reads_seen = 0;
    CHECK_INT(pb_log_read(f.log, &f.guard, 0, batch_bytes * 5 / 2, INT64_MAX, true, &slice), 0);
    f.io->ops = fixture_ops;
    cut_one = NULL;
    CHECK(reads_seen >= 2);
    CHECK_INT(slice.end_offset, 6); /* as the log was */
    pb_segment_release(slice.segment);
    CHECK_INT(end_of_read(&f, 3, 6), 6); /* and not what is above the watermark */
    fixture_free(&f);
}

/* Copy what `directory` lacks of the first segment, by its size. */
static void copy_rest(const fixture *f, const char *directory)
{
    char path[128];
    size_t length;
    uint8_t *bytes = file_load(f, "00000000000000000000.log", &length);
    snprintf(path, sizeof path, "%s/%020d.log", directory, 0);
    FILE *copy = fopen(path, "ab");
    CHECK(copy != NULL);
    CHECK_INT(fseek(copy, 0, SEEK_END), 0);
    size_t copied = (size_t)ftell(copy);
    CHECK(copied < length);
    CHECK_INT(fwrite(bytes + copied, 1, length - copied, copy), length - copied);
    CHECK_INT(fclose(copy), 0);
    free(bytes);
}

TEST(a_log_that_was_cut_while_it_was_copied_does_not_move)
{
    fixture f;
    pb_failure failure;
    char directory[] = "/tmp/pb-log-test-XXXXXX";
    CHECK(mkdtemp(directory) != NULL);
    fixture_start(&f);
    for (int i = 0; i < 4; i++)
        CHECK(log_append(&f, (batch_spec){.record_count = 3, .value_length = 50}) >= 0);
    uint32_t cut_count = pb_log_truncation_count(f.log);
    copy_rest(&f, directory);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, 3, NULL), 0);
    for (int i = 0; i < 20; i++)
        CHECK(log_append(&f, (batch_spec){.record_count = 1, .value_length = 77}) >= 0);
    CHECK_INT(pb_log_hold(f.log, &f.guard, NULL), 0);
    copy_rest(&f, directory);
    CHECK_INT(pb_log_relocate(f.log, &f.guard, directory, cut_count, true, &failure), -ESTALE);
    pb_log_release(f.log, &f.guard);
    CHECK(strcmp(pb_log_directory(f.log), f.directory) == 0);
    /* Copied anew it does. */
    fixture_remove(directory);
    CHECK_INT(mkdir(directory, 0700), 0);
    cut_count = pb_log_truncation_count(f.log);
    copy_rest(&f, directory);
    CHECK_INT(pb_log_hold(f.log, &f.guard, NULL), 0);
    CHECK_INT(pb_log_relocate(f.log, &f.guard, directory, cut_count, true, &failure), 0);
    pb_log_release(f.log, &f.guard);
    CHECK_INT(do_read(&f, 3, 5), 0);
    fixture_free(&f);
    fixture_remove(directory);
}

/* What the note of the last cut says. */
static void read_note(const fixture *f, long long *generation, long long *offset)
{
    size_t length;
    char *text = (char *)file_load(f, PB_CUT_FILE, &length);
    CHECK(text != NULL && length > 0 && length < 64);
    char copy[64] = {0};
    memcpy(copy, text, length);
    free(text);
    char *end;
    CHECK_INT(strtoll(copy, &end, 10), 0);
    *generation = strtoll(end, &end, 10);
    *offset = strtoll(end, &end, 10);
    CHECK(*end == '\n');
}

TEST(a_damaged_note_leaves_generations_for_later_cuts)
{
    static const char *const notes[] = {"0 9223372036854775807 5\n", "0 99999999999999999999999 5\n", "0 -7 5\n",
                                        "junk", "0"};
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        fixture f;
        begin(&f);
        fixture_close(&f, true);
        file_store(&f, PB_CUT_FILE, notes[i], strlen(notes[i]));
        fixture_open(&f);
        CHECK_INT(pb_log_cut_generation(f.log), 0);
        CHECK_INT(pb_log_truncate(f.log, &f.guard, CUT_OFFSET, NULL), 0);
        long long generation, offset;
        read_note(&f, &generation, &offset);
        CHECK(generation > 0 && generation == pb_log_cut_generation(f.log));
        CHECK_INT(offset, -1); /* the damaged one may have said anything */
        fixture_free(&f);
    }
}

/* Nothing records how far the log reaches between the two: ends from before the first are judged by the second note. */
TEST(a_note_speaks_of_the_cuts_of_earlier_sessions_too)
{
    fixture f;
    long long first, second, offset;
    begin(&f);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, CUT_OFFSET, NULL), 0);
    read_note(&f, &first, &offset);
    CHECK_INT(offset, CUT_OFFSET);
    fixture_close(&f, false);
    fixture_open(&f);
    CHECK_INT(pb_log_cut_generation(f.log), first);
    fill(&f);
    int64_t end = pb_log_written_end(f.log);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, end - 3, NULL), 0);
    read_note(&f, &second, &offset);
    CHECK(second > first);
    CHECK_INT(offset, CUT_OFFSET);
    fixture_free(&f);
}

static int64_t generation_at_sync;

/* Files may be cut from the moment in which the first of them goes: the note is there by then. */
static int unlinking(pb_io *io, const char *path)
{
    const char *ending = strstr(path, ".log");
    if (cut_one != NULL && ending != NULL && ending[4] == '\0') {
        long long generation, offset;
        read_note(cut_one, &generation, &offset);
        CHECK(generation > 0 && offset == CUT_OFFSET);
        CHECK_INT(pb_log_cut_generation(cut_one->log), 0);
        generation_at_sync = generation;
    }
    return fixture_ops->unlink(io, path);
}

TEST(a_cut_is_noted_before_anything_goes)
{
    static pb_io_ops watching;
    fixture f;
    begin(&f);
    CHECK(!file_exists(&f, PB_CUT_FILE));
    CHECK_INT(pb_log_cut_generation(f.log), 0);
    /* A repair is no cut: what was written whole stays. */
    CHECK_INT(pb_log_truncate(f.log, &f.guard, INT64_MAX, NULL), 0);
    CHECK(!file_exists(&f, PB_CUT_FILE));
    watching = *fixture_ops;
    watching.unlink = unlinking;
    f.io->ops = &watching;
    generation_at_sync = 0;
    cut_one = &f;
    CHECK_INT(pb_log_truncate(f.log, &f.guard, CUT_OFFSET, NULL), 0);
    cut_one = NULL;
    f.io->ops = fixture_ops;
    CHECK(generation_at_sync > 0);
    /* The ends and the generation change together, once the cut is done. */
    CHECK_INT(pb_log_cut_generation(f.log), generation_at_sync);
    /* Each cut has a later one, over restarts too, and the note keeps the least offset since the log was opened. */
    long long before, generation, offset;
    read_note(&f, &before, &offset);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, CUT_OFFSET - 20, NULL), 0);
    CHECK(log_append(&f, (batch_spec){.record_count = 9, .timestamp = 1, .keyed = true}) >= 0);
    CHECK_INT(pb_log_truncate(f.log, &f.guard, CUT_OFFSET - 18, NULL), 0);
    read_note(&f, &generation, &offset);
    CHECK(generation > before && offset == CUT_OFFSET - 20);
    fixture_close(&f, true);
    fixture_open(&f);
    CHECK_INT(pb_log_cut_generation(f.log), generation);
    CHECK_INT(pb_log_restart(f.log, &f.guard, 500, 500, NULL), 0);
    read_note(&f, &before, &offset);
    CHECK(before > generation && offset == -1);
    CHECK_INT(pb_log_cut_generation(f.log), before);
    fixture_free(&f);
}

CHECK_MAIN()
