/*
 * The crash model finds defects. Six files of the log are compiled in here once more, in place of the library's, with
 * bugs that can be switched on, and each bug has to make a run fail within a few seeds, while without one they pass. A
 * run ends its process when it fails, so each has a child of its own.
 */
#include "log/recover/recovery.h"
#include "log/segment/scan.h"

enum bug {
    NO_BUG,
    CRC_NOT_CHECKED,
    PRODUCERS_NOT_REPLAYED,
    CUT_TOO_LATE,
    DATA_NOT_SYNCED,
    NAMES_NOT_SYNCED,
    CUT_NOT_SYNCED,
    GAPS_NOT_KNOWN,
    FILE_SYSTEM_NOT_SYNCED,
    MARK_KEPT,
    BUG_COUNT,
};
static enum bug bug;

static int buggy_crc(pb_scan *scan, int64_t position, const pb_batch_header *header, bool *matches)
{
    int rc = pb_scan_crc(scan, position, header, matches);
    *matches = *matches || bug == CRC_NOT_CHECKED;
    return rc;
}
#define pb_scan_crc buggy_crc
#include "log/recover/replay.c" // NOLINT(bugprone-suspicious-include): it is meant
#undef pb_scan_crc

static int buggy_producers(pb_log *log, const pb_log_guard *guard, int64_t end_offset, pb_failure *failure)
{
    return bug == PRODUCERS_NOT_REPLAYED ? 0 : pb_replay_producers(log, guard, end_offset, failure);
}
#define pb_replay_producers buggy_producers
#define file_truncate(io, file, size) file_truncate(io, file, (size) + (bug == CUT_TOO_LATE ? 70 : 0))
#define pb_segment_sync(segment, file) (bug == CUT_NOT_SYNCED ? 0 : pb_segment_sync(segment, file))
#include "log/recover/cut.c"      // NOLINT(bugprone-suspicious-include): it is meant
#include "log/recover/recovery.c" // NOLINT(bugprone-suspicious-include): it is meant
#include "log/recover/scan.c"     // NOLINT(bugprone-suspicious-include): it is meant
#undef pb_replay_producers
#undef file_truncate
#undef pb_segment_sync

#define pb_io_sync(io, file) (bug == DATA_NOT_SYNCED ? 0 : pb_io_sync(io, file))
#define directory_sync(io, path) wall_ms(io) < 0 || bug == NAMES_NOT_SYNCED ? 0 : (io)->ops->directory_sync(io, path)
#include "log/write/sync.c" // NOLINT(bugprone-suspicious-include): it is meant
#undef pb_io_sync
#undef directory_sync

#define pb_log_unlink_file(log, name) (bug == MARK_KEPT ? -ENOENT : pb_log_unlink_file(log, name))
#include "log/recover/mark.c" // NOLINT(bugprone-suspicious-include): it is meant
#undef pb_log_unlink_file

#include "tests/sim/log_lives.h"
#include "tests/sim/planted.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 50, GOOD_SEEDS = 10, BUGS = PRODUCERS_NOT_REPLAYED + 1 }; /* the others take many seeds */
#else
enum { SEEDS = 5000, GOOD_SEEDS = 20, BUGS = BUG_COUNT };
#endif

static void play_with(int planted)
{
    bug = (enum bug)planted;
    lives_skip_filesystem_sync = bug == FILE_SYSTEM_NOT_SYNCED;
    for (uint64_t seed = 1; seed <= (planted == NO_BUG ? GOOD_SEEDS : SEEDS); seed++)
        (void)live_through(
            seed,
            (life_plan){.lives = 8, .gaps_unknown = planted == GAPS_NOT_KNOWN, .marks_often = planted == MARK_KEPT});
}

TEST(no_bug_no_failure)
{
    CHECK(!planted_is_found(play_with, NO_BUG));
}

TEST(a_bug_is_found)
{
    planted_are_found(play_with, BUGS, SEEDS);
}

CHECK_MAIN()
