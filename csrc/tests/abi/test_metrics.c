/* What a broker counts, and whether its reactors turn. */
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>

#include "server/broker.h"
#include "tests/abi/serving.h"

static uint8_t batch[1 << 20];

static void produce(served *it, mini_client *client, const char *topic, size_t length, int error)
{
    pb_produce_response produced;
    mini_client_send_produce(client, 9, -1, topic, 0, batch, length);
    mini_client_receive_produce(client, 9, &produced);
    CHECK_INT(answer_of(&produced)->error_code, error);
    (void)it;
}

/* The answer may be here before its reactor has counted it. */
static void await_requests(served *it, int64_t count)
{
    pb_request_times rows[4];
    for (int i = 0; i < 60000; i++) {
        if (pb_broker_request_times(it->broker, rows, 4) > 0 && rows[0].stages[PB_STAGE_TOTAL].count >= count)
            return;
        usleep(1000);
    }
    CHECK(!"the requests are never counted");
}

static void check_distribution(const pb_distribution *it, int64_t count)
{
    CHECK_INT(it->count, count);
    for (int i = 1; i < 30; i++)
        CHECK(it->below[i] >= it->below[i - 1]);
    CHECK_INT(it->below[29], count);
    CHECK(it->sum >= 0);
}

TEST(what_is_produced_is_counted)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 2);
        mini_client client;
        mini_client_open(&client, it.port);
        size_t length = mini_batch(batch, sizeof batch, 3, 100);
        for (int i = 0; i < 10; i++)
            produce(&it, &client, "t", length, 0);
        produce(&it, &client, "unknown", length, PB_KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
        await_requests(&it, 11);
        pb_broker_stats stats;
        pb_broker_stats_read(it.broker, &stats);
        CHECK_INT(stats.produce_requests, 11);
        CHECK_INT(stats.appended_batches, 10);
        CHECK_INT(stats.appended_records, 30);
        CHECK_INT(stats.appended_bytes, 10 * (int64_t)length);
        CHECK_INT(stats.written_bytes, 10 * (int64_t)length);
        CHECK_INT(stats.writes, 10);
        CHECK_INT(stats.failed_produces, 1);
        CHECK_INT(stats.rolls, 0);
        CHECK_INT(stats.buffer_budget_bytes, 64 << 20);
        CHECK(stats.turns > 0);
        pb_request_times rows[4];
        CHECK_INT(pb_broker_request_times(it.broker, rows, 4), 1);
        CHECK_INT(rows[0].api_key, 0);
        for (int stage = PB_STAGE_QUEUE; stage <= PB_STAGE_TOTAL; stage++)
            check_distribution(&rows[0].stages[stage], 11);
        pb_broker_distributions all;
        pb_broker_distributions_read(it.broker, &all);
        CHECK(all.turn_us.count > 0 && all.turn_us.count <= stats.turns);
        CHECK_INT(all.file_sync_us.count, 0);
        pb_native_failure failure = {0};
        CHECK_INT(pb_partition_sync(it.partition, &failure), 0);
        pb_broker_distributions_read(it.broker, &all);
        check_distribution(&all.file_sync_us, 1);
        mini_client_close(&client);
        stop(&it);
    }
}

TEST(durable_acks_count_their_syncs_and_what_each_let_end)
{
    served it;
    pb_partition_config config = default_config();
    config.durability = PB_DURABILITY_ACKS;
    serve_with(&it, "epoll", 1, &config);
    mini_client client;
    mini_client_open(&client, it.port);
    size_t length = mini_batch(batch, sizeof batch, 1, 100);
    for (int i = 0; i < 5; i++)
        produce(&it, &client, "t", length, 0);
    mini_client_close(&client);
    pb_broker_end_requests(it.broker);
    pb_broker_stop(it.broker);
    pb_broker_distributions all;
    pb_broker_distributions_read(it.broker, &all);
    CHECK(all.file_sync_us.count >= 5);
    CHECK_INT(all.commit_appends.sum, 5);
    end(&it, 1);
}

/* The next notice, which the broker may have yet to put. */
static void next_notice(served *it, enum pb_notice_kind kind, const char *start)
{
    pb_event event;
    for (int i = 0; i < 60000; i++) {
        if (pb_broker_take_events(it->broker, &event, 1) == 1)
            break;
        usleep(1000);
        CHECK(i < 59999);
    }
    CHECK_INT(event.kind, PB_EVENT_NOTICE);
    CHECK_INT(event.error, kind);
    char text[512] = {0};
    memcpy(text, (const char *)(uintptr_t)event.body, strlen(start)); /* NOLINT(performance-no-int-to-ptr) */
    CHECK_STR(text, start);
    pb_notice_release(event.handle);
}

TEST(a_roll_is_told_with_its_reason_and_the_doorbell_is_timed)
{
    served it;
    pb_partition_config config = default_config();
    config.segment_bytes = 1000;
    serve_with(&it, "epoll", 1, &config);
    mini_client client;
    mini_client_open(&client, it.port);
    size_t length = mini_batch(batch, sizeof batch, 1, 600);
    produce(&it, &client, "t", length, 0);
    produce(&it, &client, "t", length, 0);
    next_notice(&it, PB_NOTICE_ROLL, "t-0 begins a segment at offset 1: segment.bytes is reached");
    pb_broker_stats stats;
    pb_broker_stats_read(it.broker, &stats);
    CHECK_INT(stats.rolls, 1);
    pb_broker_distributions all;
    pb_broker_distributions_read(it.broker, &all);
    check_distribution(&all.doorbell_us, 1);
    mini_client_close(&client);
    stop(&it);
}

TEST(a_request_that_takes_long_is_told_of)
{
    served it;
    memset(&it, 0, sizeof it);
    it.config = default_config();
    it.slow_request_ms = 400;
    open_broker(&it, "epoll", 1);
    start_serving(&it);
    mini_client client;
    mini_client_open(&client, it.port);
    size_t length = mini_batch(batch, sizeof batch, 1, 100);
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_hold(it.partition, &failure), 0);
    mini_client_send_produce(&client, 9, -1, "t", 0, batch, length);
    usleep(1200000); /* of which its reactor may sleep a part before it has the request */
    pb_partition_unhold(it.partition);
    pb_produce_response produced;
    mini_client_receive_produce(&client, 9, &produced);
    CHECK_INT(answer_of(&produced)->error_code, 0);
    next_notice(&it, PB_NOTICE_SLOW_REQUEST, "Produce version 9 of client ");
    /* A fetch may wait for data. */
    pb_fetch_response fetched;
    mini_client_send_fetch(&client, 12, "t", 0, 1, 1, 600);
    mini_client_receive_fetch(&client, 12, &fetched);
    mini_client_close(&client);
    pb_broker_end_requests(it.broker);
    pb_broker_stop(it.broker);
    pb_broker_stats stats;
    pb_broker_stats_read(it.broker, &stats);
    CHECK_INT(stats.slow_requests, 1);
    end(&it, 1);
}

TEST(who_has_to_wait_for_buffers_is_told_of_once)
{
    served it;
    memset(&it, 0, sizeof it);
    it.config = default_config();
    it.buffer_budget_bytes = 128 << 10;
    open_broker(&it, "epoll", 1);
    start_serving(&it);
    mini_client clients[8];
    const uint8_t half_a_frame[5] = {0, 1, 0, 0, 0};
    for (int i = 0; i < 8; i++) {
        mini_client_open(&clients[i], it.port);
        mini_client_send_raw(&clients[i], half_a_frame, sizeof half_a_frame);
    }
    next_notice(&it, PB_NOTICE_THROTTLE, "127.0.0.1");
    for (int i = 0; i < 8; i++)
        mini_client_close(&clients[i]);
    pb_broker_end_requests(it.broker);
    pb_broker_stop(it.broker);
    pb_broker_stats stats;
    pb_broker_stats_read(it.broker, &stats);
    CHECK(stats.throttled > 0);
    pb_event event;
    CHECK_INT(pb_broker_take_events(it.broker, &event, 1), 0);
    end(&it, 1);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void stand_still(pb_task *task, pb_reactor *reactor)
{
    (void)task;
    (void)reactor;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

TEST(a_reactor_that_stands_still_is_named)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 2);
        int64_t latency_us = -1;
        int32_t stuck = -1;
        CHECK_INT(pb_broker_ping(it.broker, 10000, &latency_us, &stuck), 0);
        CHECK(latency_us >= 0 && latency_us < 10000000);
        CHECK_INT(pb_broker_ping(it.broker, -1, &latency_us, &stuck), -EINVAL);
        pthread_mutex_lock(&gate);
        pb_task task = {.run = stand_still};
        pb_reactor_post(&it.broker->reactors[1].reactor, &task);
        CHECK_INT(pb_broker_ping(it.broker, 20, &latency_us, &stuck), -ETIMEDOUT);
        CHECK_INT(stuck, 1);
        CHECK(latency_us >= 20000);
        CHECK_INT(pb_broker_ping(it.broker, 0, &latency_us, &stuck), -ETIMEDOUT); /* the first one is still out */
        pthread_mutex_unlock(&gate);
        CHECK_INT(pb_broker_ping(it.broker, 10000, &latency_us, &stuck), 0);
        pb_broker_end_requests(it.broker);
        pb_broker_stop(it.broker);
        CHECK_INT(pb_broker_ping(it.broker, 20, &latency_us, &stuck), -ESHUTDOWN);
        end(&it, 1);
    }
}

CHECK_MAIN()
