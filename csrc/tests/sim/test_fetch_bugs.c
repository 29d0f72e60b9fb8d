/*
 * The simulation of fetches finds defects. The files that answer a Fetch are compiled in here once more, in place of
 * the library's, with bugs that can be switched on, and each bug has to make a run fail within a few seeds, while
 * without one they pass. A run ends its process when it fails, so each has a child of its own.
 */
#include "log/segment/segment.h"
#include "server/fetch/fetch.h"

enum bug {
    NO_BUG,
    LEFT_OUT,        /* what is not in memory is left for the next fetch, and nothing brings it in */
    LEFT_OUT_UNSEEN, /* nor does the broker notice */
    TURN_LOST,       /* a partition that is left out goes to the end of its session */
    BUG_COUNT,
};
static enum bug bug;

/* In place of the copy by a background thread. */
static void buggy_copy_cold(fetch_state *fetch)
{
    fetch_item *item = &fetch->items[fetch->copied_count];
    if (bug == NO_BUG || bug == TURN_LOST) {
        pb_fetch_copy_cold(fetch);
        return;
    }
    pb_segment_release(item->slice.segment);
    item->slice = (pb_log_slice){0};
    if (bug == LEFT_OUT_UNSEEN)
        fetch->bytes = 0;
    fetch->copied_count++;
    pb_fetch_answer(fetch);
}
#define pb_fetch_copy_cold buggy_copy_cold
#include "server/fetch/copy.c" // NOLINT(bugprone-suspicious-include): it is meant
#undef pb_fetch_copy_cold

#define pb_session_partition_changed(session, partition, has_records, error, high_watermark, start)         \
    pb_session_partition_changed(session, partition, bug == TURN_LOST ? item->found : (has_records), error, \
                                 high_watermark, start)
#include "server/fetch/answer.c" // NOLINT(bugprone-suspicious-include): it is meant
#undef pb_session_partition_changed

#include "tests/sim/fetch_world.h"
#include "tests/sim/planted.h"

enum { SEEDS = 40, GOOD_SEEDS = 3 };

static void play_with(int planted)
{
    bug = (enum bug)planted;
    for (uint64_t seed = 1; seed <= (planted == NO_BUG ? GOOD_SEEDS : SEEDS); seed++)
        live(seed);
}

TEST(no_bug_no_failure)
{
    CHECK(!planted_is_found(play_with, NO_BUG));
}

TEST(a_bug_is_found)
{
    planted_are_found(play_with, BUG_COUNT, SEEDS);
}

CHECK_MAIN()
