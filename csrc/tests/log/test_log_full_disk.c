/* Full disks: a log opens, is read, is cut, gives up segments and is closed without room for anything new. */
#include "log/recover/recovery.h"
#include "log/segment/transaction_index.h"
#include "tests/log/hot_log_fixture.h"

enum { SEGMENTS = 4, BATCHES = SEGMENTS * 4, NOT_REACHED = 1000 };
enum { NOTE_CHANGES = 2 }; /* the note of a cut is made and written, see log/change/cut_note.c */

static const int FULL[] = {ENOSPC, EDQUOT};

/* ---- a disk that becomes full ---- */

static int full_code;
static int room;        /* so many changes that need room are done yet */
static int refused;     /* were not */
static bool names_full; /* directories have no room for longer names either */

static bool finds_room(void)
{
    refused += room <= 0;
    return room-- > 0;
}

static int full_open(pb_io *io, const char *path, int flags)
{
    bool makes = (flags & PB_OPEN_CREATE) != 0 && access(path, F_OK) != 0;
    return makes && !finds_room() ? -full_code : fixture_ops->file_open(io, path, flags);
}

static int64_t full_write(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    return finds_room() ? fixture_ops->file_write(io, file, iov, count, position) : -full_code;
}

static int full_allocate(pb_io *io, int file, int64_t position, int64_t length)
{
    return finds_room() ? fixture_ops->file_allocate(io, file, position, length) : -full_code;
}

static int full_unnamed(pb_io *io, const char *directory)
{
    return finds_room() ? fixture_ops->file_make_unnamed(io, directory) : -full_code;
}

static int full_rename(pb_io *io, const char *from, const char *to)
{
    bool is_new = access(to, F_OK) != 0;
    return names_full && is_new && !finds_room() ? -full_code : fixture_ops->rename(io, from, to);
}

/* After so many changes. */
static void fill_disk(fixture *f, int code, int changes)
{
    static pb_io_ops full;
    full = *fixture_ops;
    full.file_open = full_open;
    full.file_write = full_write;
    full.file_allocate = full_allocate;
    full.file_make_unnamed = full_unnamed;
    full.rename = full_rename;
    full_code = code;
    room = changes;
    refused = 0;
    names_full = false;
    f->io->ops = &full;
}

static void make_room(fixture *f)
{
    f->io->ops = fixture_ops;
}

/* ---- a log of four segments, the first of which has an aborted transaction ---- */

static void fill(fixture *f)
{
    pb_failure failure;
    CHECK_INT(log_append(
                  f, (batch_spec){.value_length = 3000, .timestamp = 1000, .producer_id = 1, .is_transactional = true}),
              0);
    CHECK_INT(log_append(f, (batch_spec){.timestamp = 1001, .producer_id = 1, .marker = 1}), 1);
    for (int i = 2; i < BATCHES; i++) {
        if (i % 4 == 0)
            CHECK_INT(pb_log_roll(f->log, &f->guard, &failure), 0);
        CHECK_INT(log_append(f, (batch_spec){.value_length = 3000, .timestamp = 1000 + i, .leader_epoch = i / 8}), i);
    }
    CHECK_INT(f->log->segment_count, SEGMENTS);
}

/* Everything from `first` on can be read, and found by its time. */
static void check_readable(fixture *f, int64_t first, int64_t end)
{
    CHECK_INT(pb_log_written_end(f->log), end);
    for (int64_t offset = first; offset < end; offset++) {
        pb_log_slice slice;
        CHECK_INT(pb_log_read(f->log, &f->guard, offset, 1, end, true, &slice), 0);
        CHECK(slice.segment != NULL && slice.base_offset == offset);
        pb_segment_release(slice.segment);
        pb_log_position found;
        CHECK_INT(pb_log_offset_for_timestamp(f->log, &f->guard, 1000 + offset, end, &found), 0);
        CHECK_INT(found.offset, offset);
    }
    pb_transaction_entry *entries;
    int count;
    CHECK_INT(pb_log_aborted_entries(f->log, &f->guard, first, end, &entries, &count), 0);
    CHECK_INT(count, first < 2 ? 1 : 0);
    free(entries);
}

/* With room again everything comes into its files, and the next opening trusts them. */
static void check_catches_up(fixture *f, int64_t first, int64_t end)
{
    pb_failure failure;
    make_room(f);
    CHECK_INT(pb_log_upkeep(f->log, &f->guard, 0, &failure), 0);
    CHECK_INT(pb_log_sync(f->log, &f->guard, &failure), 0);
    for (uint32_t i = 0; i + 1 < f->log->segment_count; i++)
        CHECK_INT(f->log->segments[i]->indexes, PB_SYNCED);
    CHECK_INT(log_append(f, (batch_spec){.value_length = 3000, .timestamp = 1000 + end}), end);
    fixture_close(f, true);
    fixture_open(f);
    CHECK_INT(f->recovery.rebuilt_index_count, 0);
    check_readable(f, first, end + 1);
}

/* ---- opening ---- */

TEST(a_log_that_was_not_closed_in_order_opens_on_a_full_disk)
{
    for (int i = 0; i < 2 * 24; i++) { /* full at each step of it */
        fixture f;
        pb_failure failure;
        fixture_start(&f);
        fill(&f);
        fixture_close(&f, false);
        fill_disk(&f, FULL[i % 2], i / 2);
        fixture_open(&f);
        check_readable(&f, 0, BATCHES);
        if (room <= 0) {
            CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), -FULL[i % 2]);
            CHECK(!pb_log_failed(f.log));
        }
        check_catches_up(&f, 0, BATCHES);
        fixture_free(&f);
    }
}

static void remove_files(const fixture *f, int64_t base_offset)
{
    static const char *const ENDINGS[] = {"index", "timeindex", "txnindex"};
    for (int i = 0; i < 3; i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/%020lld.%s", f->directory, (long long)base_offset, ENDINGS[i]);
        (void)unlink(path);
    }
}

/* The recovery point is above such a segment, and must come back below it until its indexes are saved. */
TEST(indexes_that_are_missing_below_the_recovery_point_are_kept_in_memory)
{
    for (int i = 0; i < 2 * (SEGMENTS - 1) * 4; i++) {
        fixture f;
        int64_t base_offset = i / 8 * 4;
        fixture_start(&f);
        fill(&f);
        fixture_close(&f, true);
        f.options.clean = i % 2 == 0;
        f.options.recovery_point = BATCHES;
        remove_files(&f, base_offset);
        fill_disk(&f, ENOSPC, i % 8 / 2);
        fixture_open(&f);
        check_readable(&f, 0, BATCHES);
        bool unsaved = f.log->segments[base_offset / 4]->indexes == PB_UNSAVED;
        CHECK(!unsaved || pb_log_recovery_point(f.log) <= base_offset);
        CHECK(i % 8 / 2 > 0 || unsaved);
        fixture_close(&f, false);
        /* Whatever is left half is not trusted by the next start, though the recovery point says so. */
        f.options.recovery_point = BATCHES;
        make_room(&f);
        fixture_open(&f);
        check_readable(&f, 0, BATCHES);
        check_catches_up(&f, 0, BATCHES);
        fixture_free(&f);
    }
}

/* ---- closing ---- */

TEST(a_log_that_is_closed_on_a_full_disk_says_that_nothing_is_lost)
{
    bool ended = false;
    int steps = 0;
    for (; !ended; steps++) {
        CHECK(steps < NOT_REACHED);
        for (int settles = 0; settles < 2; settles++) {
            fixture f;
            pb_failure failure = {0};
            fixture_start(&f);
            fill(&f);
            fill_disk(&f, FULL[steps % 2], steps);
            int rc = settles ? pb_log_settle(f.log, &failure) : pb_log_close(f.log, true, &failure);
            CHECK_INT(rc, refused > 0 ? PB_LOG_UNFINISHED : 0);
            ended = rc == 0;
            if (settles)
                CHECK_INT(pb_log_close(f.log, rc == 0, &failure), 0);
            make_room(&f);
            f.options.clean = ended;
            fixture_open(&f);
            check_readable(&f, 0, BATCHES);
            fixture_free(&f);
        }
    }
    CHECK(steps > 8);
}

/* Not for lack of room alone. */
TEST(a_derived_file_that_cannot_be_written_costs_no_record)
{
    fixture f;
    pb_failure failure = {0};
    char path[256];
    fixture_start(&f);
    fill(&f);
    snprintf(path, sizeof(path), "%s/%020d.index", f.directory, BATCHES - 4);
    CHECK_INT(unlink(path), 0);
    CHECK_INT(mkdir(path, 0700), 0);
    CHECK_INT(pb_log_close(f.log, true, &failure), PB_LOG_UNFINISHED);
    CHECK(strstr(failure.text, "Is a directory") != NULL);
    CHECK_INT(rmdir(path), 0);
    f.options.clean = false;
    fixture_open(&f);
    check_readable(&f, 0, BATCHES);
    fixture_free(&f);
}

static int lose_room(pb_io *io, int file)
{
    (void)io;
    (void)file;
    return -ENOSPC;
}

/* Room that the kernel had promised to what was written, and did not have. */
TEST(a_sync_that_finds_no_room_may_have_cost_records)
{
    for (int settles = 0; settles < 2; settles++) {
        static hot_fixture h;
        pb_failure failure = {0};
        hot_open(&h, RING_BYTES);
        if (settles)
            CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
        hot_append(&h, 1000);
        pb_io_ops losing = *fixture_ops;
        losing.file_sync = lose_room;
        h.f.io->ops = &losing;
        int rc = settles ? pb_log_settle(h.f.log, &failure) : pb_log_close(h.f.log, true, &failure);
        CHECK_INT(rc, -ENOSPC);
        if (settles)
            CHECK_INT(pb_log_close(h.f.log, false, &failure), 0);
        h.f.log = NULL;
        make_room(&h.f);
        hot_free(&h);
    }
}

TEST(what_found_no_room_stays_in_the_ring_when_the_log_is_closed)
{
    for (int settles = 0; settles < 2; settles++) {
        static hot_fixture h;
        pb_failure failure = {0};
        hot_open(&h, RING_BYTES);
        CHECK_INT(pb_log_heat(h.f.log, &h.f.guard), 0);
        for (int i = 0; i < 5; i++)
            CHECK_INT(log_append(&h.f, (batch_spec){.value_length = 5000, .timestamp = 1000 + i}), i);
        fill_disk(&h.f, ENOSPC, 0);
        if (settles)
            CHECK_INT(pb_log_settle(h.f.log, &failure), PB_LOG_UNFINISHED);
        CHECK_INT(pb_log_close(h.f.log, !settles, &failure), settles ? 0 : PB_LOG_UNFINISHED);
        h.f.log = NULL;
        CHECK_INT(count_files(h.rings), 1);
        make_room(&h.f);
        CHECK_INT(pb_ring_pool_replay(h.f.options.rings, h.f.directory, h.identity.topic_id, 0, &failure), 0);
        fixture_open(&h.f);
        CHECK_INT(pb_log_written_end(h.f.log), 5);
        hot_free(&h);
    }
}

/* ---- while it is open ---- */

TEST(a_log_is_cut_and_repaired_on_a_full_disk)
{
    for (int i = 0; i < 2 * BATCHES; i++) {
        fixture f;
        pb_failure failure;
        int64_t end = i / 2;
        fixture_start(&f);
        fill(&f);
        fill_disk(&f, FULL[i % 2], 0);
        CHECK_INT(pb_log_repair(f.log, &f.guard, &failure), 0);
        check_readable(&f, 0, BATCHES);
        if (end >= 2) {
            room = NOTE_CHANGES;
            CHECK_INT(pb_log_truncate(f.log, &f.guard, end, &failure), 0);
            CHECK(!pb_log_failed(f.log));
            check_readable(&f, 0, end);
            check_catches_up(&f, 0, end);
        }
        make_room(&f);
        fixture_free(&f);
    }
}

/* Records would be missed at the next start without a note of the cut. */
TEST(nothing_is_cut_without_room_for_a_note_of_it)
{
    for (int i = 0; i < 2 * NOTE_CHANGES; i++) {
        fixture f;
        pb_failure failure;
        fixture_start(&f);
        fill(&f);
        fill_disk(&f, FULL[i % 2], i / 2);
        CHECK_INT(pb_log_truncate(f.log, &f.guard, BATCHES / 2, &failure), -FULL[i % 2]);
        CHECK(pb_log_failed(f.log)); /* whoever asked for it opens the log again */
        fixture_close(&f, false);
        room = 0;
        fixture_open(&f);
        check_readable(&f, 0, BATCHES);
        check_catches_up(&f, 0, BATCHES);
        fixture_free(&f);
    }
}

static int count_of(const fixture *f, const char *ending)
{
    int count = 0;
    DIR *directory = opendir(f->directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        size_t length = strlen(entry->d_name);
        count += length > strlen(ending) && strcmp(entry->d_name + length - strlen(ending), ending) == 0;
    }
    closedir(directory);
    return count;
}

TEST(segments_go_on_a_full_disk_even_without_room_for_other_names)
{
    for (int i = 0; i < 2 * 8; i++) {
        fixture f;
        pb_failure failure;
        int deleted_count;
        fixture_start(&f);
        fill(&f);
        fill_disk(&f, FULL[i % 2], i / 2);
        names_full = true;
        CHECK_INT(pb_log_set_start_offset(f.log, 8), 0);
        CHECK_INT(pb_log_delete_segments(f.log, &f.guard, &deleted_count, &failure), 0);
        CHECK_INT(deleted_count, 2);
        check_readable(&f, 8, BATCHES);
        CHECK_INT(count_of(&f, ".log"), 2);
        CHECK_INT(pb_log_purge(f.log, &f.guard, INT64_MAX, &failure), 0);
        CHECK_INT(count_of(&f, ".deleted"), 0);
        make_room(&f);
        fixture_close(&f, true);
        f.options.log_start_offset = 8;
        fixture_open(&f);
        check_readable(&f, 8, BATCHES);
        fixture_free(&f);
    }
}

CHECK_MAIN()
