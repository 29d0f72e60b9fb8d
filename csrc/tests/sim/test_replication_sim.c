/*
 * Three replicas through crashes, cut connections and elections, on simulated machines: what was acknowledged by
 * acks=all stays, in its place, on all of them. A seed to replay: PB_SIM_SEED=n PB_SIM_RUNS=1.
 */
#include "tests/sim/replication_world.h"

enum { STEPS = 40000 };

static int elections, crashes, acked, inside;

static void for_seeds(bool durable)
{
    static world it;
    const char *first = getenv("PB_SIM_SEED"), *runs = getenv("PB_SIM_RUNS");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1;
    for (int left = runs != NULL ? atoi(runs) : 10; left > 0; left--, seed++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        play(&it, seed, durable, STEPS);
        elections += it.elections;
        crashes += it.crashes;
        acked += it.acked_count;
        inside += it.inside;
    }
    fprintf(stderr, "%d elections, %d crashes, %d batches acknowledged, %d logs begun inside of one\n", elections,
            crashes, acked, inside);
    CHECK(elections > 0 && acked > 0); /* or it would have shown nothing */
}

TEST(acknowledged_records_survive_elections_and_kills)
{
    for_seeds(false);
}

TEST(with_durable_acks_they_survive_power_cuts_as_well)
{
    for_seeds(true);
}

TEST(a_replica_that_begins_where_records_were_deleted_gets_in_sync)
{
    world_deletes = true;
    for_seeds(false);
    for_seeds(true);
    world_deletes = false;
    CHECK(inside > 0 || getenv("PB_SIM_RUNS") != NULL);
}

CHECK_MAIN()
