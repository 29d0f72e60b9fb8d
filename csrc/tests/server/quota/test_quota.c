#include "server/quota/quota.h"
#include "tests/check.h"

enum { RATE = 1000 };
#define SECOND_NS 1000000000LL

TEST(without_a_bound_nothing_is_too_much)
{
    pb_quota quota;
    pb_quota_init(&quota);
    pb_quota_take(&quota, INT64_MAX / 2, 5);
    CHECK(!pb_quota_is_exceeded(&quota, 5));
    pb_quota_destroy(&quota);
}

TEST(what_is_taken_too_much_is_waited_for)
{
    pb_quota quota;
    pb_quota_init(&quota);
    pb_quota_limit(&quota, RATE, SECOND_NS);
    CHECK(!pb_quota_is_exceeded(&quota, SECOND_NS));
    pb_quota_take(&quota, 3 * RATE, SECOND_NS);
    CHECK(pb_quota_is_exceeded(&quota, SECOND_NS));
    CHECK(pb_quota_is_exceeded(&quota, 3 * SECOND_NS));
    CHECK(!pb_quota_is_exceeded(&quota, 3 * SECOND_NS + SECOND_NS / RATE));
    pb_quota_limit(&quota, 0, 3 * SECOND_NS);
    pb_quota_take(&quota, 9 * RATE, 3 * SECOND_NS);
    CHECK(!pb_quota_is_exceeded(&quota, 3 * SECOND_NS));
    pb_quota_destroy(&quota);
}

TEST(looking_often_loses_nothing_and_waiting_long_saves_a_second)
{
    pb_quota quota;
    pb_quota_init(&quota);
    pb_quota_limit(&quota, RATE, 0);
    pb_quota_take(&quota, 2 * RATE, 0);
    int64_t now_ns = 0;
    while (pb_quota_is_exceeded(&quota, now_ns))
        now_ns += 777; /* less than a byte */
    CHECK(now_ns >= SECOND_NS && now_ns < SECOND_NS + 2 * (SECOND_NS / RATE));
    pb_quota_take(&quota, RATE, now_ns + 100 * SECOND_NS);
    CHECK(pb_quota_is_exceeded(&quota, now_ns + 100 * SECOND_NS));
    pb_quota_destroy(&quota);
}

CHECK_MAIN()
