/*
 * The simulation of replicas with leaders that say a high watermark once per session, as Apache Kafka's do: also to a
 * follower that they send back, and that has taken nothing else of that answer. At the end all replicas have all of it.
 */
#include "replica/fetch_session.h"

#define pb_session_partition_tell_again(partition) ((void)(partition))
#include "server/fetch_answer.c" // NOLINT(bugprone-suspicious-include): it is meant
#undef pb_session_partition_tell_again

#include "tests/sim/replication_world.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 3 };
#else
enum { SEEDS = 20 };
#endif
enum { STEPS = 40000 };

TEST(a_follower_that_was_sent_back_has_the_high_watermark)
{
    static world it;
    const char *first = getenv("PB_SIM_SEED"), *runs = getenv("PB_SIM_RUNS");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1;
    int elections = 0;
    for (int left = runs != NULL ? atoi(runs) : SEEDS; left > 0; left--, seed++) {
        play(&it, seed, seed % 2 == 0, STEPS);
        elections += it.elections;
    }
    CHECK(elections > 0); /* or nobody was sent back */
}

CHECK_MAIN()
