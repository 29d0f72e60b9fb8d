/* Consumers of hot partitions on the simulated machine: see fetch_world.h. A seed to replay: PB_SIM_SEED=n
 * PB_SIM_RUNS=1.
 */
#include "tests/sim/fetch_world.h"

enum { SEEDS = 12 };

TEST(a_fetch_below_the_high_watermark_returns_a_record_or_the_next_one_does)
{
    const char *first = getenv("PB_SIM_SEED"), *runs = getenv("PB_SIM_RUNS");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1;
    for (int left = runs != NULL ? atoi(runs) : SEEDS; left > 0; left--, seed++) {
        fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        live(seed);
    }
    fprintf(stderr, "%lld MiB fetched, %lld cold reads\n", (long long)(fetched_bytes >> 20), (long long)fetched_cold);
    CHECK(fetched_cold > 10 || first != NULL);
}

CHECK_MAIN()
