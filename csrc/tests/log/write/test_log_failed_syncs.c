/* Syncs that fail, and openings that are stopped half way: nothing is trusted afterwards that the disk may not have. */
#include "log/recover/recovery.h"
#include "log/segment/transaction_index.h"
#include "tests/log/log_fixture.h"

enum { NOT_REACHED = 1000 };

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
        CHECK(!file_exists(&f, "00000000000000000000.index"));
        fixture_open(&f);
        check_aborted(&f);
        fixture_free(&f);
    }
}

TEST(a_log_whose_file_system_could_not_be_synced_is_not_left_in_memory)
{
    for (int clean = 0; clean < 2; clean++) {
        fixture f;
        fixture_init(&f);
        lose(&f, ".log", 0);
        fixture_open(&f);
        fill(&f);
        losing_file = f.log->segments[0]->file;
        CHECK_INT(pb_log_settle(f.log, NULL), 0);
        CHECK_INT(drop_count, 0);
        CHECK_INT(pb_log_close(f.log, clean, NULL), 0);
        f.log = NULL;
        CHECK_INT(drop_count, clean ? 0 : 1);
        f.io->ops = fixture_ops;
        fixture_free(&f);
    }
}

/* ---- openings that end half way ---- */

static int turns; /* until nothing is done to the disk any more */

static bool is_over(void)
{
    return turns-- <= 0;
}

static int ending_open(pb_io *io, const char *path, int flags)
{
    return flags & PB_OPEN_WRITE && is_over() ? -EIO : fixture_ops->file_open(io, path, flags);
}

static int64_t ending_write(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    return is_over() ? -EIO : fixture_ops->file_write(io, file, iov, count, position);
}

static int ending_truncate(pb_io *io, int file, int64_t size)
{
    return is_over() ? -EIO : fixture_ops->file_truncate(io, file, size);
}

static int ending_rename(pb_io *io, const char *from, const char *to)
{
    return is_over() ? -EIO : fixture_ops->rename(io, from, to);
}

static int ending_unlink(pb_io *io, const char *path)
{
    return is_over() ? -EIO : fixture_ops->unlink(io, path);
}

static int ending_sync(pb_io *io, int file)
{
    return is_over() ? -EIO : fixture_ops->file_sync(io, file);
}

/* An opening whose process is killed before its `turn`-th change; whether it came to that. */
static bool open_and_end(fixture *f, int turn)
{
    pb_io_ops ending = *fixture_ops;
    ending.file_open = ending_open;
    ending.file_write = ending_write;
    ending.file_truncate = ending_truncate;
    ending.rename = ending_rename;
    ending.unlink = ending_unlink;
    ending.file_sync = ending_sync;
    f->io->ops = &ending;
    turns = turn;
    bool ended = try_to_open(f) != 0;
    if (!ended)
        (void)pb_log_close(f->log, false, NULL);
    f->log = NULL;
    f->io->ops = fixture_ops;
    return ended;
}

/* A missing transaction index is as good as one that says that no transaction was aborted, so it must not be missing
 * while the others are there that were built with it. */
TEST(an_opening_that_ends_half_way_costs_no_aborted_transaction)
{
    int turn = 0;
    for (bool ended = true; ended; turn++) {
        CHECK(turn < NOT_REACHED);
        fixture f;
        fill_sealed(&f);
        remove_file(&f, "00000000000000000000.index");
        remove_file(&f, "00000000000000000000.timeindex");
        remove_file(&f, "00000000000000000000.txnindex");
        ended = open_and_end(&f, turn);
        fixture_open(&f);
        check_aborted(&f);
        fixture_free(&f);
    }
    CHECK(turn > 8); /* three files and more */
}

static int64_t fill_disk(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    /* The last piece of room goes to the first entry. */
    struct iovec part = {iov->iov_base, iov->iov_len < 12 ? iov->iov_len : 12};
    if (count == 1 && iov->iov_len % PB_TIME_INDEX_ENTRY_BYTES == 0 && iov->iov_len < 500)
        return position == 0 ? fixture_ops->file_write(io, file, &part, 1, position) : -ENOSPC;
    return fixture_ops->file_write(io, file, iov, count, position);
}

/* Of a time index the last entry tells how old the segment's newest record is: retention goes by that. */
TEST(an_index_for_which_there_was_no_room_is_not_trusted_half)
{
    fixture f;
    fill_sealed(&f);
    remove_file(&f, "00000000000000000000.index");
    remove_file(&f, "00000000000000000000.timeindex");
    pb_io_ops full = *fixture_ops;
    full.file_write = fill_disk;
    f.io->ops = &full;
    fixture_open(&f);
    CHECK(!file_exists(&f, "00000000000000000000.index"));
    check_aborted(&f);
    f.io->ops = fixture_ops;
    fixture_close(&f, false);
    fixture_open(&f);
    check_aborted(&f);
    fixture_free(&f);
}

CHECK_MAIN()
