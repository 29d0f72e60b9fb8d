/* Timers against a sorted scan of what is set. */
#include <stdlib.h>

#include "net/timers.h"
#include "tests/check.h"

enum { TIMERS = 200, STEPS = 50000 };

static pb_timers timers;
static pb_timer all[TIMERS];
static int64_t now;
static int64_t last_fired;
static int fired;
static int repeats;

static void fire(pb_timer *timer)
{
    CHECK(!pb_timer_is_set(timer));
    CHECK(timer->deadline_ns <= now && timer->deadline_ns >= last_fired);
    last_fired = timer->deadline_ns;
    fired++;
    if (repeats > 0) {
        repeats--;
        CHECK_INT(pb_timer_set(&timers, timer, now + 1000), 0);
    }
}

TEST(timers_fire_in_order_and_only_when_due)
{
    pb_timers_init(&timers);
    srand(3);
    for (int i = 0; i < TIMERS; i++)
        all[i].fire = fire;
    for (int step = 0; step < STEPS; step++) {
        pb_timer *timer = &all[rand() % TIMERS];
        if (rand() % 3 == 0)
            pb_timer_cancel(&timers, timer);
        else
            CHECK_INT(pb_timer_set(&timers, timer, now + rand() % 1000), 0);
        if (step % 10 != 0)
            continue;
        now += rand() % 50;
        int due = 0, set = 0;
        for (int i = 0; i < TIMERS; i++) {
            due += pb_timer_is_set(&all[i]) && all[i].deadline_ns <= now;
            set += pb_timer_is_set(&all[i]);
        }
        repeats = 2;
        fired = 0;
        last_fired = 0;
        CHECK_INT(timers.count, set);
        pb_timers_fire(&timers, now);
        CHECK_INT(fired, due);
        CHECK(pb_timers_next(&timers) > now);
    }
    for (int i = 0; i < TIMERS; i++)
        pb_timer_cancel(&timers, &all[i]);
    CHECK(pb_timers_next(&timers) == INT64_MAX);
    pb_timers_destroy(&timers);
}

CHECK_MAIN()
