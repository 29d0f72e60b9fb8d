/* Syncs that fail: nothing is trusted afterwards that the disk may not have. */
#include "log/recovery.h"
#include "log/transaction_index.h"
#include "tests/log/log_fixture.h"

static const int PASSING[] = {ENOSPC, EDQUOT, ENOMEM};
enum { PASSING_COUNT = sizeof(PASSING) / sizeof(PASSING[0]) };

/* ---- a file whose next sync fails ---- */

static const char *losing_name; /* the end of its name */
static int losing_file;
static int losing_code; /* 0: what it lost was told */
static int drop_count;  /* of what is in memory of it, since then */

static int losing_open(pb_io *io, const char *path, int flags)
{
    int file = fixture_ops->file_open(io, path, flags);
    size_t length = strlen(path);
    size_t ending = strlen(losing_name);
    if (file >= 0 && flags & PB_OPEN_WRITE && length > ending && strcmp(path + length - ending, losing_name) == 0)
        losing_file = file;
    return file;
}

static int losing_sync(pb_io *io, int file)
{
    int code = file == losing_file ? losing_code : 0;
    if (code == 0)
        return fixture_ops->file_sync(io, file);
    losing_code = 0;
    return -code;
}

static int losing_close(pb_io *io, int file)
{
    if (file == losing_file)
        losing_file = -1;
    return fixture_ops->file_close(io, file);
}

static int losing_drop(pb_io *io, int file, int64_t position, int64_t length)
{
    drop_count += file == losing_file && losing_code == 0 && position == 0 && length == 0;
    return fixture_ops->file_drop(io, file, position, length);
}

static void lose(fixture *f, const char *name, int code)
{
    static pb_io_ops losing;
    losing = *fixture_ops;
    losing.file_open = losing_open;
    losing.file_sync = losing_sync;
    losing.file_close = losing_close;
    losing.file_drop = losing_drop;
    losing_name = name;
    losing_code = code;
    losing_file = -1;
    drop_count = 0;
    f->io->ops = &losing;
}

/* It was told, and forgotten. */
static void check_lost(fixture *f)
{
    CHECK_INT(losing_code, 0);
    CHECK_INT(drop_count, 1);
    f->io->ops = fixture_ops;
}

/* ---- logs ---- */

/* Of the four batches the first two are an aborted transaction. */
static void fill(fixture *f)
{
    batch_spec data = {
        .record_count = 2, .value_length = 3000, .timestamp = 1000, .producer_id = 1, .is_transactional = true};
    CHECK_INT(log_append(f, data), 0);
    CHECK_INT(log_append(f, (batch_spec){.timestamp = 2000, .producer_id = 1, .marker = 1}), 2);
    CHECK_INT(log_append(f, (batch_spec){.value_length = 3000, .timestamp = 3000}), 3);
    CHECK_INT(log_append(f, (batch_spec){.value_length = 3000, .timestamp = 4000}), 4);
}

/* The same, sealed, with everything in its files, and a batch behind it. */
static void fill_sealed(fixture *f)
{
    pb_failure failure;
    fixture_start(f);
    fill(f);
    CHECK_INT(pb_log_roll(f->log, &f->guard, &failure), 0);
    CHECK_INT(log_append(f, (batch_spec){.timestamp = 5000}), 5);
    fixture_close(f, true);
}

static void check_aborted(fixture *f)
{
    pb_transaction_entry *entries;
    int count;
    CHECK_INT(pb_log_aborted_entries(f->log, &f->guard, 0, 6, &entries, &count), 0);
    CHECK_INT(count, 1);
    CHECK_INT(entries[0].first_offset, 0);
    CHECK_INT(entries[0].last_offset, 2);
    free(entries);
    CHECK_INT(f->log->segments[0]->largest_timestamp_ms, 4000);
}

static void remove_file(const fixture *f, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", f->directory, name);
    CHECK_INT(unlink(path), 0);
}

static int try_to_open(fixture *f)
{
    pb_failure failure;
    int rc = pb_log_open(&f->options, &f->log, &f->recovery, &failure);
    if (rc != 0)
        f->log = NULL;
    return rc;
}

/* ---- syncs ---- */

/* Entries that were in the file before are not written again, so another sync says nothing of them. */
TEST(an_index_whose_sync_failed_is_not_synced_again)
{
    static const char *const NAMES[] = {".index", ".timeindex", ".txnindex"};
    for (int i = 0; i < 3 * PASSING_COUNT; i++) {
        fixture f;
        pb_failure failure;
        fixture_start(&f);
        fill(&f);
        CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), 0); /* written, not synced: it may grow */
        CHECK_INT(pb_log_roll(f.log, &f.guard, &failure), 0);
        CHECK_INT(log_append(&f, (batch_spec){.timestamp = 5000}), 5);
        CHECK_INT(pb_log_sync(f.log, &f.guard, &failure), 0);
        int64_t point = pb_log_recovery_point(f.log);
        lose(&f, NAMES[i % 3], PASSING[i / 3]);
        CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), -EIO);
        CHECK(pb_log_failed(f.log));
        check_lost(&f);
        CHECK_INT(pb_log_upkeep(f.log, &f.guard, 0, &failure), 0);
        CHECK_INT(pb_log_recovery_point(f.log), point);
        CHECK(f.log->segments[0]->indexes != PB_SYNCED);
        fixture_free(&f);
    }
}

TEST(a_log_is_not_moved_with_an_index_whose_sync_failed)
{
    fixture f;
    pb_failure failure;
    fixture_start(&f);
    fill(&f);
    CHECK_INT(pb_log_roll(f.log, &f.guard, &failure), 0);
    lose(&f, ".index", ENOSPC);
    CHECK_INT(pb_log_hold(f.log, &f.guard, &failure), -EIO);
    CHECK(pb_log_failed(f.log));
    CHECK(!f.log->maintaining && !f.log->writing);
    check_lost(&f);
    fixture_free(&f);
}

/* Who opens the log again, in this process too, goes by what the disk has. */
TEST(a_cut_of_recovery_whose_sync_failed_leaves_nothing_in_memory)
{
    for (int how = 0; how < 2; how++) {
        for (int i = 0; i < PASSING_COUNT; i++) {
            fixture f;
            fixture_start(&f);
            fill(&f);
            fixture_close(&f, false);
            size_t length;
            uint8_t *bytes = file_load(&f, "00000000000000000000.log", &length);
            uint8_t *longer = calloc(1, length + 500); /* padding is cut off by the scan, */
            memcpy(longer, bytes, length);
            if (how == 1) /* a torn batch by what follows it */
                memcpy(longer + length, bytes, 300);
            file_store(&f, "00000000000000000000.log", longer, length + 500);
            free(bytes);
            free(longer);
            lose(&f, ".log", PASSING[i]);
            CHECK_INT(try_to_open(&f), -EIO);
            check_lost(&f);
            fixture_open(&f);
            CHECK_INT(pb_log_written_end(f.log), 5);
            fixture_free(&f);
        }
    }
}

TEST(an_index_that_was_built_again_and_not_synced_is_not_left_in_memory)
{
    static const char *const NAMES[] = {".index", ".timeindex", ".txnindex"};
    for (int i = 0; i < 3 * PASSING_COUNT; i++) {
        fixture f;
        fill_sealed(&f);
        remove_file(&f, "00000000000000000000.index");
        lose(&f, NAMES[i % 3], PASSING[i / 3]);
        CHECK_INT(try_to_open(&f), -EIO);
        check_lost(&f);
        fixture_open(&f);
        check_aborted(&f);
        fixture_free(&f);
    }
}

CHECK_MAIN()
