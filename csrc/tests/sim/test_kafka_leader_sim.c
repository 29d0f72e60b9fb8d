/*
 * The simulation of replicas with leaders that say a high watermark once per session, as Apache Kafka's do: also to a
 * follower that they send back, and that has taken nothing else of that answer. At the end all replicas have all of it;
 * but not when followers forget what they were told then, which is a bug to switch on.
 */
#include "replica/fetch_session.h"

#define pb_session_partition_tell_again(partition) ((void)(partition))
#include "server/fetch/answer.c" // NOLINT(bugprone-suspicious-include): it is meant
#undef pb_session_partition_tell_again

enum bug { NO_BUG, WATERMARK_FORGOTTEN, BUG_COUNT };
static enum bug bug;

static void buggy_take(pb_link *to, pb_link *from)
{
    pb_list_take(to, from);
    if (bug == WATERMARK_FORGOTTEN)
        while (pb_list_pop_front(to) != NULL) {
        }
}
#define pb_list_take buggy_take
#define pb_fetch_answer taken_answer /* the other file has a function of that name */
#include "server/follow/answer.c"    // NOLINT(bugprone-suspicious-include): it is meant
#undef pb_fetch_answer
#undef pb_list_take

#include "tests/sim/planted.h"
#include "tests/sim/replication_world.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 3 };
#else
enum { SEEDS = 20 };
#endif
enum { STEPS = 40000 };

static int elections;

static void play_seeds(uint64_t seed, int count)
{
    static world it;
    for (int left = count; left > 0; left--, seed++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        play(&it, seed, seed % 2 == 0, STEPS);
        elections += it.elections;
    }
}

/* One life in some three hundred ends so that it shows: where nobody writes any more, and the leader has no other
 * reason to say it again. If a change of the simulation makes other lives of these seeds, look for some with
 * PB_SIM_BUG=1. */
static const uint64_t SEEDS_THAT_SHOW[] = {175, 527};

static void play_with(int planted)
{
    bug = (enum bug)planted;
    for (size_t i = 0; i < sizeof SEEDS_THAT_SHOW / sizeof SEEDS_THAT_SHOW[0]; i++)
        play_seeds(SEEDS_THAT_SHOW[i], 1);
}

TEST(a_follower_that_was_sent_back_has_the_high_watermark)
{
    const char *first = getenv("PB_SIM_SEED"), *runs = getenv("PB_SIM_RUNS");
    bug = getenv("PB_SIM_BUG") != NULL ? WATERMARK_FORGOTTEN : NO_BUG;
    play_seeds(first != NULL ? strtoull(first, NULL, 10) : 1, runs != NULL ? atoi(runs) : SEEDS);
    CHECK(elections > 0); /* or nobody was sent back */
}

TEST(it_is_found_when_what_it_was_told_then_is_forgotten)
{
    CHECK(!planted_is_found(play_with, NO_BUG));
    planted_are_found(play_with, BUG_COUNT, 1);
}

CHECK_MAIN()
