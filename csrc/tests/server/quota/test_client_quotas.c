#include "server/quota/client_quotas.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "tests/check.h"

static const pb_rate_window window = {.count = 11, .sample_ms = 1000};
static const pb_client_limits nobody;

static pb_slice id_of(const char *text)
{
    return (pb_slice){text, (int32_t)strlen(text)};
}

static pb_client_limits limits(const char *id, double produce, double fetch)
{
    return (pb_client_limits){.client_id = id_of(id), .of = {{produce, false}, {fetch, false}}};
}

static int32_t produce(pb_client_quotas *quotas, const char *id, int64_t bytes)
{
    return pb_client_quotas_take(quotas, PB_QUOTA_PRODUCE, id_of(id), bytes, 5000);
}

static int32_t fetch(pb_client_quotas *quotas, const char *id, int64_t bytes)
{
    return pb_client_quotas_take(quotas, PB_QUOTA_FETCH, id_of(id), bytes, 5000);
}

TEST(without_quotas_it_is_off)
{
    pb_client_quotas quotas;
    pb_client_quotas_init(&quotas, 1);
    CHECK(!pb_client_quotas_is_on(&quotas));
    pb_client_limits none = limits("a", 0, 0);
    CHECK_INT(pb_client_quotas_set(&quotas, &none, 1, &nobody, &window), 0);
    CHECK(!pb_client_quotas_is_on(&quotas));
    CHECK_INT(produce(&quotas, "a", INT64_MAX / 4), 0);
    CHECK(pb_client_quotas_fetch_bytes(&quotas, id_of("a")) == INT64_MAX);
    pb_client_quotas_destroy(&quotas);
}

TEST(each_client_has_the_limit_of_its_name_or_that_of_others)
{
    pb_client_quotas quotas;
    pb_client_quotas_init(&quotas, 2);
    pb_client_limits named[] = {limits("free", 0, 0), limits("b", 1000, 0), limits("ab", 2000, 500), limits("", 10, 0)};
    pb_client_limits others = limits("", 3000, 0);
    CHECK_INT(pb_client_quotas_set(&quotas, named, 4, &others, &window), 0);
    CHECK(pb_client_quotas_is_on(&quotas));
    CHECK_INT(produce(&quotas, "free", 1 << 30), 0);
    CHECK_INT(produce(&quotas, "b", 11000), 1000);
    CHECK_INT(produce(&quotas, "ab", 22000), 1000);
    CHECK_INT(produce(&quotas, "a", 33000), 1000);
    CHECK_INT(produce(&quotas, "c", 33000), 1000);
    CHECK_INT(produce(&quotas, "b", 1000), 2000);
    pb_slice null = {NULL, -1};
    CHECK_INT(pb_client_quotas_take(&quotas, PB_QUOTA_PRODUCE, null, 110, 5000), 1000);
    CHECK_INT(produce(&quotas, "", 10), 2000); /* the same */
    CHECK_INT(fetch(&quotas, "b", 1 << 30), 0);
    CHECK_INT(pb_client_quotas_fetch_bytes(&quotas, id_of("ab")), 5000);
    CHECK(pb_client_quotas_fetch_bytes(&quotas, id_of("b")) == INT64_MAX);
    pb_client_quotas_destroy(&quotas);
}

TEST(what_is_not_sent_is_not_counted)
{
    pb_client_quotas quotas;
    pb_client_quotas_init(&quotas, 3);
    pb_client_limits others = limits("", 0, 1000);
    CHECK_INT(pb_client_quotas_set(&quotas, NULL, 0, &others, &window), 0);
    CHECK_INT(fetch(&quotas, "a", 8000), 0);
    for (int i = 0; i < 5; i++)
        CHECK_INT(fetch(&quotas, "a", 4000), 2000);
    CHECK_INT(fetch(&quotas, "a", 2000), 0);
    pb_client_quotas_destroy(&quotas);
}

TEST(clients_of_one_user_share_what_it_has)
{
    pb_client_quotas quotas;
    pb_client_quotas_init(&quotas, 4);
    pb_client_limits others = {.of = {{1000, true}, {1000, true}}};
    pb_client_limits own = limits("own", 1000, 0);
    CHECK_INT(pb_client_quotas_set(&quotas, &own, 1, &others, &window), 0);
    CHECK_INT(produce(&quotas, "a", 10000), 0);
    CHECK_INT(produce(&quotas, "b", 1000), 1000);
    CHECK_INT(produce(&quotas, "own", 10000), 0);
    CHECK_INT(fetch(&quotas, "b", 10000), 0);
    CHECK_INT(fetch(&quotas, "a", 1000), 1000);
    pb_client_quotas_destroy(&quotas);
}

TEST(a_new_limit_counts_what_was_taken_before)
{
    pb_client_quotas quotas;
    pb_client_quotas_init(&quotas, 5);
    pb_client_limits others = limits("", 1000, 0);
    CHECK_INT(pb_client_quotas_set(&quotas, NULL, 0, &others, &window), 0);
    CHECK_INT(produce(&quotas, "a", 10000), 0);
    pb_client_limits lower = limits("a", 500, 0);
    CHECK_INT(pb_client_quotas_set(&quotas, &lower, 1, &others, &window), 0);
    CHECK_INT(produce(&quotas, "a", 0), 10000);
    CHECK_INT(pb_client_quotas_set(&quotas, NULL, 0, &nobody, &window), 0);
    CHECK(!pb_client_quotas_is_on(&quotas));
    CHECK_INT(pb_client_quotas_set(&quotas, NULL, 0, &others, &window), 0);
    CHECK_INT(produce(&quotas, "a", 10000), 0); /* without any quota nobody is measured */
    pb_client_quotas_destroy(&quotas);
}

TEST(another_window_begins_anew)
{
    pb_client_quotas quotas;
    pb_client_quotas_init(&quotas, 6);
    pb_client_limits others = limits("", 1000, 0);
    CHECK_INT(pb_client_quotas_set(&quotas, NULL, 0, &others, &window), 0);
    CHECK(produce(&quotas, "a", 100000) > 0);
    pb_rate_window longer = {.count = 100, .sample_ms = 1000};
    CHECK_INT(pb_client_quotas_set(&quotas, NULL, 0, &others, &longer), 0);
    CHECK_INT(produce(&quotas, "a", 99000), 0);
    pb_rate_window wrong[] = {{0, 1000}, {-1, 1000}, {1, 0}, {PB_QUOTA_SAMPLES_MAX + 1, 1000}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK_INT(pb_client_quotas_set(&quotas, NULL, 0, &nobody, &wrong[i]), -EINVAL);
    CHECK(pb_client_quotas_is_on(&quotas));
    pb_client_quotas_destroy(&quotas);
}

TEST(clients_without_end_make_old_ones_forgotten)
{
    pb_client_quotas quotas;
    pb_client_quotas_init(&quotas, 7);
    pb_client_limits others = limits("", 1000, 0);
    CHECK_INT(pb_client_quotas_set(&quotas, NULL, 0, &others, &window), 0);
    char id[600];
    memset(id, 'x', sizeof id);
    id[599] = '\0';
    for (int i = 0; i < 3 * PB_QUOTA_CLIENTS_MAX; i++) {
        for (int digit = 0; digit < 6; digit++) /* long ones, which differ early */
            id[digit] = (char)('0' + (i >> (3 * digit)) % 8);
        CHECK_INT(produce(&quotas, id, 10000), 0);
        (void)produce(&quotas, "heard", 1);
        CHECK(quotas.client_count <= PB_QUOTA_CLIENTS_MAX);
    }
    CHECK_INT(quotas.client_count, PB_QUOTA_CLIENTS_MAX);
    CHECK_INT(produce(&quotas, "heard", 0), 2288); /* it was never forgotten: 12,288 bytes */
    pb_client_quotas_destroy(&quotas);
}

static void *take_often(void *argument)
{
    pb_client_quotas *quotas = argument;
    char id[] = "a";
    for (int i = 0; i < 20000; i++) {
        id[0] = (char)('a' + i % 20);
        if (pb_client_quotas_is_on(quotas))
            (void)pb_client_quotas_take(quotas, (enum pb_quota_kind)(i % 2), id_of(id), i, i);
        (void)pb_client_quotas_fetch_bytes(quotas, id_of(id));
    }
    return NULL;
}

TEST(limits_change_while_they_are_used)
{
    pb_client_quotas quotas;
    pb_client_quotas_init(&quotas, 8);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, take_often, &quotas), 0);
    for (int i = 0; i < 2000; i++) {
        pb_client_limits named[] = {limits("a", i, 1), limits("c", 0, i)};
        pb_rate_window other = {.count = 1 + i % 5, .sample_ms = 1000};
        CHECK_INT(pb_client_quotas_set(&quotas, named, i % 3, i % 7 == 0 ? &nobody : &named[0], &other), 0);
    }
    for (int i = 0; i < 3; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    pb_client_quotas_destroy(&quotas);
}

CHECK_MAIN()
