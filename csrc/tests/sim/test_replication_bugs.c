/*
 * The simulation of replicas finds rules that are broken. What a follower does with its log is compiled in here once
 * more, in place of the library's, with bugs that can be switched on; each has to make a run fail within a few seeds,
 * while without one they pass. A run ends its process when it fails, so each has a child of its own.
 */
#include "replica/follow.h"

enum bug {
    NO_BUG,
    NOT_CUT,              /* what differs stays */
    EPOCHS_NOT_LOOKED_AT, /* cut where the leader's epoch ends, whatever epochs are here (before KIP-279) */
    EPOCH_KEPT,           /* what is cut leaves the epoch behind that it was led at */
    MINIMUM_NOT_HELD,     /* the high watermark goes on with fewer in sync than there have to be (before KIP-966) */
    BUG_COUNT,
};
static enum bug bug;

static void buggy_epoch_end(const pb_log *log, int32_t leader_epoch, int32_t *epoch, int64_t *end_offset)
{
    pb_log_end_offset_for_epoch(log, leader_epoch, epoch, end_offset);
    if (bug == EPOCHS_NOT_LOOKED_AT)
        *end_offset = -1;
}

static int buggy_truncate(pb_log *log, const pb_log_guard *guard, int64_t offset, pb_failure *failure)
{
    return bug == NOT_CUT ? 0 : pb_log_truncate(log, guard, offset, failure);
}

static void buggy_end_epoch(pb_log *log)
{
    if (bug != EPOCH_KEPT)
        pb_log_end_epoch(log);
}
#define pb_log_end_offset_for_epoch buggy_epoch_end
#define pb_log_truncate buggy_truncate
#define pb_log_end_epoch buggy_end_epoch
#include "replica/follow.c" // NOLINT(bugprone-suspicious-include): it is meant
#undef pb_log_end_offset_for_epoch
#undef pb_log_truncate
#undef pb_log_end_epoch

#include "tests/sim/planted.h"
#include "tests/sim/replication_world.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 20, GOOD_SEEDS = 3, BUGS = NOT_CUT + 1 }; /* the others take many seeds */
#else
enum { SEEDS = 100, GOOD_SEEDS = 5, BUGS = BUG_COUNT };
#endif
enum { STEPS = 40000 };

static void play_with(int planted)
{
    static world it;
    bug = (enum bug)planted;
    world_mistaken_minimum = bug == MINIMUM_NOT_HELD ? 1 : 0;
    for (uint64_t seed = 1; seed <= (planted == NO_BUG ? GOOD_SEEDS : SEEDS); seed++)
        play(&it, seed, seed % 2 == 0, STEPS);
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
