/* Clients over their quota: told at once, and not heard for as long. Through pybroker.h, on both real backends. */
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include "tests/abi/serving.h"

#define FOREVER_MS 600000

static uint8_t batch[1 << 20];
static const pb_client_quota nobody = {.client_id_length = -1};

static int64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* For the mini client; one sample, so that a burst has to wait for bytes / rate - 1 s. */
static void limit(const served *it, double produce, double fetch)
{
    pb_client_quota quota = {.client_id = "mini",
                             .client_id_length = 4,
                             .produce_bytes_per_second = produce,
                             .fetch_bytes_per_second = fetch};
    CHECK_INT(pb_broker_set_client_quotas(it->broker, &quota, 1, &nobody, 1, 1000), 0);
}

static int32_t produced(mini_client *client, int64_t base_offset)
{
    pb_produce_response response;
    mini_client_receive_produce(client, 9, &response);
    CHECK_INT(answer_of(&response)->error_code, 0);
    CHECK_INT(answer_of(&response)->base_offset, base_offset);
    return response.throttle_time_ms;
}

static void drain_notices(const served *it)
{
    pb_event event;
    while (take_event(it, &event))
        if (event.kind == PB_EVENT_NOTICE) {
            CHECK_INT(event.error, PB_NOTICE_THROTTLE);
            CHECK(strstr((const char *)(uintptr_t)event.body, "producer_byte_rate") != NULL);
            pb_notice_release(event.handle);
        }
}

TEST(who_produces_too_much_is_not_heard_for_a_while)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        limit(&it, 100000, 0);
        mini_client client;
        mini_client_open(&client, it.port);
        size_t length = mini_batch(batch, sizeof batch, 1, 120000);
        int64_t began_ms = monotonic_ms();
        mini_client_send_produce(&client, 9, 1, "t", 0, batch, length);
        mini_client_send_produce(&client, 9, 1, "t", 0, batch, length); /* behind it in the socket */
        int32_t wait_ms = produced(&client, 0);
        CHECK(wait_ms > 150 && wait_ms < 300);
        CHECK(produced(&client, 1) > 0);
        CHECK(monotonic_ms() - began_ms >= wait_ms);
        drain_notices(&it);
        mini_client_close(&client);
        stop(&it);
    }
}

TEST(also_without_acknowledgements)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        limit(&it, 100000, 0);
        mini_client client;
        mini_client_open(&client, it.port);
        size_t length = mini_batch(batch, sizeof batch, 1, 120000);
        int64_t began_ms = monotonic_ms();
        mini_client_send_produce(&client, 9, 0, "t", 0, batch, length);
        mini_client_send_produce(&client, 9, 1, "t", 0, batch, 0);
        CHECK(mini_client_receive(&client));
        CHECK(monotonic_ms() - began_ms >= 150);
        mini_client_close(&client);
        stop(&it);
    }
}

/* Nothing but a throttle time. */
static void check_throttled(const pb_fetch_response *fetched)
{
    CHECK(fetched->throttle_time_ms > 0);
    CHECK_INT(fetched->error_code, 0);
    CHECK_INT(fetched->responses_count, 0);
    CHECK_INT(fetched->session_id, 0);
}

TEST(who_fetches_too_much_gets_nothing_until_it_has_waited)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        mini_client client;
        mini_client_open(&client, it.port);
        size_t length = mini_batch(batch, sizeof batch, 1, 60000);
        for (int i = 0; i < 2; i++) {
            mini_client_send_produce(&client, 9, 1, "t", 0, batch, length);
            CHECK_INT(produced(&client, i), 0);
        }
        limit(&it, 0, 100000);
        pb_fetch_response fetched;
        mini_client_send_fetch_of(&client, 12, "t", 0, 0, 1);
        mini_client_receive_fetch(&client, 12, &fetched);
        CHECK_INT(fetched.throttle_time_ms, 0);
        CHECK_INT(fetched.responses[0].partitions[0].records.length, (int64_t)length);
        int throttled = 0;
        do {
            mini_client_send_fetch_of(&client, 12, "t", 0, 1, 1);
            mini_client_receive_fetch(&client, 12, &fetched);
            if (fetched.responses_count == 0)
                check_throttled(&fetched);
            throttled++;
        } while (fetched.responses_count == 0);
        CHECK_INT(fetched.responses[0].partitions[0].records.length, (int64_t)length);
        CHECK(throttled < 10);
        mini_client_close(&client);
        stop(&it);
    }
}

TEST(a_session_survives_and_a_new_one_is_not_made)
{
    served it;
    serve(&it, backends[0], 1);
    mini_client client;
    mini_client_open(&client, it.port);
    size_t length = mini_batch(batch, sizeof batch, 1, 1000);
    mini_client_send_produce(&client, 9, 1, "t", 0, batch, length);
    CHECK_INT(produced(&client, 0), 0);
    mini_replica_fetch fetch = mini_replica(-1, "t", NULL);
    fetch.session_epoch = 0;
    pb_fetch_response fetched;
    limit(&it, 0, 1e-3);
    mini_client_send_replica_fetch(&client, 12, &fetch); /* a new session */
    mini_client_receive_fetch(&client, 12, &fetched);
    check_throttled(&fetched);
    mini_client_close(&client); /* it is not heard any more */
    limit(&it, 0, 0);
    mini_client_open(&client, it.port);
    mini_client_send_replica_fetch(&client, 12, &fetch);
    mini_client_receive_fetch(&client, 12, &fetched);
    CHECK(fetched.session_id > 0);
    CHECK_INT(fetched.responses_count, 1);
    fetch.session_id = fetched.session_id;
    fetch.session_epoch = 1;
    fetch.says_nothing = true;
    limit(&it, 0, 1e-3);
    mini_client_send_replica_fetch(&client, 12, &fetch);
    mini_client_receive_fetch(&client, 12, &fetched);
    CHECK(fetched.throttle_time_ms > 0);
    CHECK_INT(fetched.session_id, fetch.session_id);
    CHECK_INT(fetched.responses_count, 0);
    mini_client_close(&client);
    mini_client_open(&client, it.port);
    limit(&it, 0, 0);
    fetch.session_epoch = 2;
    mini_client_send_replica_fetch(&client, 12, &fetch); /* it goes on where it was */
    mini_client_receive_fetch(&client, 12, &fetched);
    CHECK_INT(fetched.error_code, 0);
    CHECK_INT(fetched.responses_count, 1);
    CHECK(fetched.responses[0].partitions[0].records.length > 0);
    mini_client_close(&client);
    stop(&it);
}

TEST(a_broker_that_stops_does_not_wait_for_who_is_not_heard)
{
    for (int b = 0; b < 2; b++)
        for (int goes_first = 0; goes_first < 2; goes_first++) {
            served it;
            serve(&it, backends[b], 2);
            limit(&it, 1, 0);
            mini_client clients[4];
            size_t length = mini_batch(batch, sizeof batch, 1, 5000);
            for (int i = 0; i < 4; i++) {
                mini_client_open(&clients[i], it.port);
                mini_client_send_produce(&clients[i], 9, 1, "t", 0, batch, length);
                CHECK(produced(&clients[i], i) > FOREVER_MS);
                mini_client_send_produce(&clients[i], 9, 1, "t", 0, batch, length);
            }
            for (int i = 0; goes_first && i < 4; i++)
                mini_client_close(&clients[i]);
            stop(&it);
            for (int i = 0; !goes_first && i < 4; i++)
                mini_client_close(&clients[i]);
        }
}

TEST(wrong_windows_are_refused)
{
    served it;
    serve(&it, backends[0], 1);
    CHECK_INT(pb_broker_set_client_quotas(it.broker, NULL, -1, &nobody, 1, 1000), -EINVAL);
    CHECK_INT(pb_broker_set_client_quotas(it.broker, NULL, 0, &nobody, 0, 1000), -EINVAL);
    CHECK_INT(pb_broker_set_client_quotas(it.broker, NULL, 0, &nobody, PB_QUOTA_SAMPLES + 1, 1000), -EINVAL);
    CHECK_INT(pb_broker_set_client_quotas(it.broker, NULL, 0, &nobody, PB_QUOTA_SAMPLES, 1000), 0);
    stop(&it);
}

CHECK_MAIN()
