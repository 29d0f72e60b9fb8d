#include "server/quota/rate.h"

#include <stdlib.h>

#include "tests/check.h"

static const pb_rate_window window = {.count = 11, .sample_ms = 1000};

static pb_rate *new_rate(const pb_rate_window *of)
{
    pb_rate *rate = calloc(1, pb_rate_size(of));
    CHECK(rate != NULL);
    return rate;
}

TEST(a_rate_without_anything_waits_for_nothing)
{
    pb_rate *rate = new_rate(&window);
    CHECK_INT(pb_rate_wait_ms(rate, &window, 1, 5), 0);
    pb_rate_add(rate, &window, 0, 5);
    CHECK_INT(pb_rate_wait_ms(rate, &window, 1, 5), 0);
    free(rate);
}

TEST(a_first_burst_counts_over_all_samples_but_the_newest)
{
    pb_rate *rate = new_rate(&window);
    pb_rate_add(rate, &window, 10000, 1000000);
    CHECK_INT(pb_rate_wait_ms(rate, &window, 1000, 1000000), 0); /* 10 s at the limit */
    pb_rate_add(rate, &window, 5000, 1000000);
    CHECK_INT(pb_rate_wait_ms(rate, &window, 1000, 1000000), 5000);
    CHECK_INT(pb_rate_wait_ms(rate, &window, 1000, 1000400), 4600); /* the newest sample has got longer */
    free(rate);
}

TEST(a_rate_below_the_limit_never_waits)
{
    pb_rate *rate = new_rate(&window);
    for (int64_t now_ms = 0; now_ms < 60000; now_ms += 100) {
        pb_rate_add(rate, &window, 98, now_ms);
        CHECK_INT(pb_rate_wait_ms(rate, &window, 1000, now_ms), 0);
    }
    free(rate);
}

TEST(who_waits_as_told_gets_the_limit)
{
    pb_rate *rate = new_rate(&window);
    int64_t now_ms = 12345, taken_bytes = 0;
    while (now_ms < 12345 + 600000) {
        pb_rate_add(rate, &window, 3000, now_ms);
        taken_bytes += 3000;
        now_ms += pb_rate_wait_ms(rate, &window, 1000, now_ms) + 7;
    }
    CHECK(taken_bytes >= 600000 && taken_bytes < 660000);
    free(rate);
}

TEST(what_is_old_is_forgotten)
{
    pb_rate *rate = new_rate(&window);
    pb_rate_add(rate, &window, 1000000, 0);
    CHECK(pb_rate_wait_ms(rate, &window, 1000, 10999) > 0);
    CHECK_INT(pb_rate_wait_ms(rate, &window, 1000, 11000), 0);
    pb_rate_add(rate, &window, 10000, 11000);
    CHECK_INT(pb_rate_wait_ms(rate, &window, 1000, 11000), 0);
    free(rate);
}

TEST(what_was_not_taken_after_all_does_not_count)
{
    pb_rate *rate = new_rate(&window);
    pb_rate_add(rate, &window, 10000, 0);
    pb_rate_add(rate, &window, 50000, 1);
    CHECK(pb_rate_wait_ms(rate, &window, 1000, 1) > 0);
    pb_rate_add(rate, &window, -50000, 1);
    CHECK_INT(pb_rate_wait_ms(rate, &window, 1000, 1), 0);
    free(rate);
}

TEST(one_sample_is_enough)
{
    pb_rate_window one = {.count = 1, .sample_ms = 1000};
    pb_rate *rate = new_rate(&one);
    for (int64_t now_ms = 0; now_ms < 20000; now_ms += 250) {
        pb_rate_add(rate, &one, 120, now_ms);
        CHECK_INT(pb_rate_wait_ms(rate, &one, 1000, now_ms), 0);
    }
    pb_rate_add(rate, &one, 10000, 20000);
    CHECK(pb_rate_wait_ms(rate, &one, 1000, 20000) > 8000);
    free(rate);
}

TEST(a_long_wait_fits_what_clients_are_told)
{
    pb_rate *rate = new_rate(&window);
    pb_rate_add(rate, &window, INT64_MAX / 2, 0);
    CHECK_INT(pb_rate_wait_ms(rate, &window, 0.001, 0), INT32_MAX);
    CHECK_INT(pb_rate_wait_ms(rate, &window, 1e300, 0), 0);
    free(rate);
}

CHECK_MAIN()
