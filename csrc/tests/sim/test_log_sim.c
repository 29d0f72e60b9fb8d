/*
 * A log keeps its promises through crashes; see log_lives.h.
 *
 *     PB_SIM_SEED=n PB_SIM_RUNS=1   replays a seed
 *     PB_SIM_LIVES=n                crashes of each run, at most 8
 *     PB_SIM_EVERY_POINT=1          the first crash of a seed at each disk operation in turn, a run for each
 */
#include "tests/sim/log_lives.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RUNS = 60 };
#else
enum { RUNS = 2000 };
#endif

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void run_seeds(bool rings)
{
    const uint64_t first = setting("PB_SIM_SEED", 1);
    const uint64_t runs = setting("PB_SIM_RUNS", RUNS);
    const bool every_point = setting("PB_SIM_EVERY_POINT", 0) != 0;
    const char *test = check_running;
    uint64_t crash_count = 0;
    for (uint64_t seed = first; seed < first + runs; seed++) {
        life_plan plan = {.lives = (int)setting("PB_SIM_LIVES", 2),
                          .rings = rings,
                          .marks_often = seed % 4 == 0,
                          .crash_point = every_point};
        char name[128];
        bool again;
        do {
            snprintf(name, sizeof(name), "%s, PB_SIM_SEED=%llu, crash point %lld", test, (unsigned long long)seed,
                     (long long)plan.crash_point);
            check_running = name;
            bool crashed = live_through(seed, plan);
            crash_count += (uint64_t)plan.lives;
            again = every_point && crashed;
            plan.crash_point += again;
        } while (again);
        check_running = test;
    }
    fprintf(stderr, "%llu seeds, %llu crashes\n", (unsigned long long)runs, (unsigned long long)crash_count);
}

TEST(a_log_keeps_its_promises_through_crashes)
{
    run_seeds(false);
}

TEST(a_log_that_becomes_hot_keeps_its_promises_through_crashes)
{
    run_seeds(true);
}

CHECK_MAIN()
