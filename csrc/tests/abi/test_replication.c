/* The leader of a replicated partition, through pybroker.h and the wire: followers that fetch as Kafka's do, and
 * followers that lie. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>

#include "record/batch.h"
#include "replica/partition.h"
#include "tests/abi/serving.h"

enum { LEADER = 1, FETCH_VERSION = 18, PRODUCE_VERSION = 9, LONG_WAIT_MS = 60000 };

static const uint8_t topic_id[16] = {7};
static uint8_t batch[512];
static size_t batch_length;

static const int32_t all[] = {LEADER, 2, 3};

/* Lead t-0 with the first `replicas` of `all`, of which the first `isr` are in sync. */
static int32_t lead_with(const served *it, int32_t leader_epoch, int32_t partition_epoch, int replicas, int isr,
                         const int32_t *joining)
{
    pb_partition_leadership leadership = {
        .leader_epoch = leader_epoch,
        .partition_epoch = partition_epoch,
        .replicas = all,
        .isr = all,
        .joining = joining,
        .replica_count = replicas,
        .isr_count = isr,
        .joining_count = joining != NULL ? 1 : 0,
    };
    return pb_partition_lead_replicated(it->partition, &leadership);
}

static pb_partition_state state_of(const served *it)
{
    pb_partition_state state;
    pb_partitions_state(&it->partition, 1, &state);
    return state;
}

static pb_partition_follower follower_of(const served *it, int32_t replica_id)
{
    pb_partition_follower followers[8];
    int32_t count = pb_partition_followers(it->partition, followers, 8);
    for (int32_t i = 0; i < count; i++)
        if (followers[i].replica_id == replica_id)
            return followers[i];
    CHECK(false);
    return followers[0];
}

static void send_produce(mini_client *client, int16_t acks)
{
    mini_client_send_produce(client, PRODUCE_VERSION, acks, "t", 0, batch, batch_length);
}

static const pb_produce_response_partition_produce_response *receive_produce(mini_client *client)
{
    static pb_produce_response produced;
    mini_client_receive_produce(client, PRODUCE_VERSION, &produced);
    return answer_of(&produced);
}

static void produce(mini_client *client, int16_t acks, int error)
{
    send_produce(client, acks);
    CHECK_INT(receive_produce(client)->error_code, error);
}

/* Has nothing come for this client? */
static bool is_silent(const mini_client *client)
{
    struct pollfd poll_fd = {.fd = client->fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) == 0;
}

/* A follower with its connection. */
typedef struct follower {
    mini_client client;
    mini_replica_fetch next;
} follower;

static void open_follower(follower *it, const served *leader, int32_t replica_id)
{
    mini_client_open(&it->client, leader->port);
    it->next = mini_replica(replica_id, "t", topic_id);
    it->next.broker_epoch = 100 + replica_id;
    it->next.leader_epoch = 1;
}

static const pb_fetch_response_partition_data *receive_fetch(follower *it)
{
    static pb_fetch_response fetched;
    mini_client_receive_fetch(&it->client, FETCH_VERSION, &fetched);
    CHECK_INT(fetched.error_code, 0);
    CHECK_INT(fetched.responses_count, 1);
    return &fetched.responses[0].partitions[0];
}

static const pb_fetch_response_partition_data *fetch(follower *it)
{
    mini_client_send_replica_fetch(&it->client, FETCH_VERSION, &it->next);
    return receive_fetch(it);
}

static const pb_fetch_response_partition_data *fetch_at(follower *it, int64_t offset)
{
    it->next.offset = offset;
    return fetch(it);
}

/* Wait for the event; others are none. */
static int64_t await_caught_up(const served *it)
{
    pb_event event;
    while (!take_event(it, &event))
        usleep(200);
    CHECK_INT(event.kind, PB_EVENT_CAUGHT_UP);
    CHECK_INT(event.handle, 42);
    return event.offset;
}

/* Who is connected in every case: a producer, and two followers who have asked for nothing yet. */
static mini_client client;
static follower two, three;

static void begin(served *it, const char *backend, int replicas, int isr, int32_t min_insync, int32_t durability)
{
    batch_length = mini_batch(batch, sizeof batch, 1, 100);
    pb_partition_config config = default_config();
    config.min_insync_replicas = min_insync;
    config.durability = durability;
    serve_with(it, backend, 2, &config);
    CHECK_INT(lead_with(it, 1, 0, replicas, isr, NULL), 0);
    mini_client_open(&client, it->port);
    open_follower(&two, it, 2);
    open_follower(&three, it, 3);
}

static void finish(served *it)
{
    mini_client_close(&client);
    mini_client_close(&two.client);
    mini_client_close(&three.client);
    stop(it);
}

TEST(the_high_watermark_is_where_all_in_sync_replicas_have_got_to)
{
    for (int b = 0; b < 2; b++) {
        served it;
        begin(&it, backends[b], 3, 3, 1, PB_DURABILITY_NONE);
        mini_client reader;
        mini_client_open(&reader, it.port);
        produce(&client, 1, 0); /* acks=1 waits for nobody */
        CHECK_INT(state_of(&it).high_watermark, 0);
        mini_client_send_fetch(&reader, 12, "t", 0, 0, 1, LONG_WAIT_MS);
        const pb_fetch_response_partition_data *answer = fetch_at(&two, 0);
        CHECK_INT(answer->error_code, 0);
        CHECK_INT(answer->records.length, (int64_t)batch_length); /* followers read above the high watermark */
        CHECK_INT(answer->high_watermark, 0);
        CHECK_INT(fetch_at(&two, 1)->high_watermark, 0);
        CHECK_INT(fetch_at(&three, 0)->high_watermark, 0);
        CHECK(is_silent(&reader));
        CHECK_INT(fetch_at(&three, 1)->high_watermark, 1); /* by what this fetch says */
        pb_fetch_response fetched;
        mini_client_receive_fetch(&reader, 12, &fetched);
        CHECK_INT(fetched.responses[0].partitions[0].records.length, (int64_t)batch_length);
        CHECK_INT(fetch_at(&two, 0)->high_watermark, 1); /* never back, whoever begins anew */
        CHECK_INT(follower_of(&it, 2).log_end_offset, 0);
        mini_client_close(&reader);
        finish(&it);
    }
}

TEST(acks_all_waits_for_all_in_sync_replicas)
{
    for (int b = 0; b < 2; b++)
        for (int durability = PB_DURABILITY_NONE; durability <= PB_DURABILITY_ACKS; durability += PB_DURABILITY_ACKS) {
            served it;
            begin(&it, backends[b], 3, 2, 2, durability);
            mini_client other;
            mini_client_open(&other, it.port);
            for (int i = 0; i < 20; i++) {
                send_produce(&client, -1);
                two.next.max_wait_ms = LONG_WAIT_MS;
                /* Woken by the append, not by the high watermark. */
                const pb_fetch_response_partition_data *answer = fetch_at(&two, 2 * i);
                CHECK_INT(answer->records.length, (int64_t)batch_length);
                CHECK_INT(answer->high_watermark, 2 * i);
                produce(&other, 1, 0);
                CHECK(is_silent(&client));
                CHECK_INT(fetch_at(&two, 2 * i + 1)->error_code, 0);
                const pb_produce_response_partition_produce_response *produced = receive_produce(&client);
                CHECK_INT(produced->error_code, 0);
                CHECK_INT(produced->base_offset, 2 * i);
                if (durability == PB_DURABILITY_ACKS)
                    CHECK(state_of(&it).durable_offset > 2 * i);
                two.next.max_wait_ms = 0;
                (void)fetch_at(&two, 2 * i + 2);
            }
            CHECK_INT(state_of(&it).high_watermark, 40);
            mini_client_close(&other);
            finish(&it);
        }
}

/* Else those that are waited for could not be heard. */
TEST(produces_that_wait_for_followers_leave_their_receive_memory)
{
    enum { PRODUCERS = 20, VALUE_BYTES = 50000 };
    static uint8_t large[VALUE_BYTES + 200];
    size_t large_length = mini_batch(large, sizeof large, 1, VALUE_BYTES);
    for (int b = 0; b < 2; b++) {
        served it = {.config = default_config(), .buffer_budget_bytes = 1 << 20};
        open_broker(&it, backends[b], 1);
        start_serving(&it);
        CHECK_INT(lead_with(&it, 1, 0, 2, 2, NULL), 0);
        mini_client producers[PRODUCERS];
        for (int i = 0; i < PRODUCERS; i++) {
            mini_client_open(&producers[i], it.port);
            mini_client_send_produce(&producers[i], PRODUCE_VERSION, -1, "t", 0, large, large_length);
        }
        open_follower(&two, &it, 2);
        two.next.max_wait_ms = LONG_WAIT_MS;
        for (int64_t offset = 0; offset < PRODUCERS;)
            offset += fetch_at(&two, offset)->records.length / (int64_t)large_length;
        two.next.max_wait_ms = 0;
        CHECK_INT(fetch_at(&two, PRODUCERS)->error_code, 0);
        for (int i = 0; i < PRODUCERS; i++) {
            CHECK_INT(receive_produce(&producers[i])->error_code, 0);
            mini_client_close(&producers[i]);
        }
        mini_client_close(&two.client);
        stop(&it);
    }
}

TEST(acks_all_is_refused_below_the_minimum_and_times_out_without_its_followers)
{
    for (int b = 0; b < 2; b++) {
        served it;
        begin(&it, backends[b], 3, 1, 2, PB_DURABILITY_NONE);
        produce(&client, -1, PB_KAFKA_NOT_ENOUGH_REPLICAS);
        CHECK_INT(state_of(&it).log_end_offset, 0);
        produce(&client, 1, 0);
        CHECK_INT(state_of(&it).high_watermark, 0); /* KIP-966: below the minimum it stands still */
        CHECK_INT(lead_with(&it, 1, 1, 3, 2, NULL), 0);
        client.produce_timeout_ms = 100;
        produce(&client, -1, PB_KAFKA_REQUEST_TIMED_OUT);
        CHECK_INT(state_of(&it).log_end_offset, 2);
        (void)fetch_at(&two, 2);
        CHECK_INT(state_of(&it).high_watermark, 2);
        finish(&it);
    }
}

TEST(a_follower_outside_the_isr_is_told_of_and_joins_only_with_all_below_the_high_watermark)
{
    served it;
    begin(&it, "epoll", 2, 1, 1, PB_DURABILITY_NONE);
    const int32_t joining[] = {2};
    produce(&client, -1, 0); /* the leader is the ISR */
    CHECK_INT(lead_with(&it, 1, 0, 2, 1, joining), PB_KAFKA_INELIGIBLE_REPLICA);
    CHECK_INT(fetch_at(&two, 0)->records.length, (int64_t)batch_length);
    CHECK_INT(lead_with(&it, 1, 0, 2, 1, joining), PB_KAFKA_INELIGIBLE_REPLICA);
    pb_event event;
    CHECK(!take_event(&it, &event));
    (void)fetch_at(&two, 1);
    CHECK_INT(await_caught_up(&it), 2);
    CHECK_INT(lead_with(&it, 1, 0, 2, 1, joining), 0);
    CHECK_INT(follower_of(&it, 2).in_isr, 0); /* not yet, says the controller; but it counts */
    produce(&client, 1, 0);
    CHECK_INT(state_of(&it).high_watermark, 1);
    (void)fetch_at(&two, 2);
    CHECK_INT(state_of(&it).high_watermark, 2);
    CHECK_INT(lead_with(&it, 1, 1, 2, 2, NULL), 0);
    CHECK_INT(follower_of(&it, 2).in_isr, 1);
    CHECK(!take_event(&it, &event));
    produce(&client, 1, 0);
    CHECK_INT(state_of(&it).high_watermark, 2);
    CHECK_INT(lead_with(&it, 1, 2, 2, 1, NULL), 0); /* out again: nobody waits for it */
    CHECK_INT(state_of(&it).high_watermark, 3);
    finish(&it);
}

TEST(the_high_watermark_waits_for_what_becomes_of_a_follower_that_was_told_of)
{
    served it;
    begin(&it, "io_uring", 2, 1, 1, PB_DURABILITY_NONE);
    (void)fetch_at(&two, 0);
    CHECK_INT(await_caught_up(&it), 2);
    CHECK_INT(lead_with(&it, 1, 0, 2, 1, NULL), 0); /* it may not join */
    produce(&client, -1, 0);
    CHECK_INT(state_of(&it).high_watermark, 1);
    (void)fetch_at(&two, 1);
    pb_event event;
    for (int i = 0; i < 60000 && !take_event(&it, &event); i++) { /* again, a second after the last time */
        usleep(1000);
        (void)fetch_at(&two, 1);
    }
    CHECK_INT(event.kind, PB_EVENT_CAUGHT_UP);
    produce(&client, -1, 0); /* nobody answers the event, and the wait for that ends */
    CHECK_INT(state_of(&it).high_watermark, 2);
    finish(&it);
}

/* Another leader may have had the follower cut meanwhile. */
TEST(what_a_follower_had_is_forgotten_when_epochs_are_missed)
{
    served it;
    begin(&it, "epoll", 3, 3, 1, PB_DURABILITY_NONE);
    for (int i = 0; i < 3; i++)
        produce(&client, 1, 0);
    (void)fetch_at(&two, 3);
    (void)fetch_at(&three, 0);
    CHECK_INT(state_of(&it).high_watermark, 0);
    CHECK_INT(lead_with(&it, 2, 1, 3, 3, NULL), 0); /* nobody else has led */
    CHECK_INT(follower_of(&it, 2).log_end_offset, 3);
    CHECK_INT(lead_with(&it, 4, 2, 3, 2, NULL), 0);
    CHECK_INT(follower_of(&it, 2).log_end_offset, -1);
    CHECK_INT(state_of(&it).high_watermark, 0);
    two.next.leader_epoch = 4;
    (void)fetch_at(&two, 1);
    CHECK_INT(state_of(&it).high_watermark, 1);
    finish(&it);
}

TEST(followers_that_lie_change_nothing)
{
    served it;
    begin(&it, "epoll", 2, 2, 1, PB_DURABILITY_NONE);
    follower stranger;
    open_follower(&stranger, &it, 3);
    produce(&client, 1, 0);
    CHECK_INT(fetch_at(&two, 2)->error_code, PB_KAFKA_OFFSET_OUT_OF_RANGE);
    CHECK_INT(fetch_at(&two, -5)->error_code, PB_KAFKA_OFFSET_OUT_OF_RANGE);
    two.next.leader_epoch = 0;
    CHECK_INT(fetch_at(&two, 1)->error_code, PB_KAFKA_FENCED_LEADER_EPOCH);
    two.next.leader_epoch = 2;
    CHECK_INT(fetch_at(&two, 1)->error_code, PB_KAFKA_UNKNOWN_LEADER_EPOCH);
    two.next.leader_epoch = 1;
    CHECK_INT(fetch_at(&stranger, 1)->error_code, PB_KAFKA_UNKNOWN_LEADER_EPOCH);
    stranger.next.leader_epoch = -1;
    CHECK_INT(fetch_at(&stranger, 1)->error_code, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
    stranger.next.replica_id = LEADER;
    CHECK_INT(fetch_at(&stranger, 1)->error_code, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
    CHECK_INT(follower_of(&it, 2).log_end_offset, -1);
    CHECK_INT(state_of(&it).high_watermark, 0);
    (void)fetch_at(&two, 0);
    CHECK_INT(follower_of(&it, 2).broker_epoch, 102);
    two.next.broker_epoch = 101; /* the same broker, before it has restarted */
    CHECK_INT(fetch_at(&two, 1)->error_code, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
    CHECK_INT(state_of(&it).high_watermark, 0);
    two.next.broker_epoch = 103;
    CHECK_INT(fetch_at(&two, 1)->error_code, 0);
    CHECK_INT(state_of(&it).high_watermark, 1);
    CHECK_INT(pb_partition_lead(it.partition, 2), 0);
    two.next.leader_epoch = -1;
    CHECK_INT(fetch_at(&two, 1)->error_code, PB_KAFKA_NOT_LEADER_OR_FOLLOWER); /* there are no followers any more */
    mini_client_close(&stranger.client);
    finish(&it);
}

TEST(a_follower_that_has_diverged_is_told_where)
{
    served it;
    begin(&it, "epoll", 2, 2, 1, PB_DURABILITY_NONE);
    produce(&client, 1, 0);
    produce(&client, 1, 0); /* epoch 1: offsets 0 and 1 */
    CHECK_INT(lead_with(&it, 5, 1, 2, 2, NULL), 0);
    produce(&client, 1, 0); /* epoch 5: offset 2 */
    two.next.leader_epoch = 5;
    two.next.last_fetched_epoch = 1;
    const pb_fetch_response_partition_data *answer = fetch_at(&two, 7); /* it has more of epoch 1 than there is */
    CHECK_INT(answer->error_code, 0);
    CHECK_INT(answer->diverging_epoch.epoch, 1);
    CHECK_INT(answer->diverging_epoch.end_offset, 2);
    CHECK_INT(answer->records.length, 0);
    two.next.last_fetched_epoch = 3; /* an epoch that was never led here */
    answer = fetch_at(&two, 2);
    CHECK_INT(answer->diverging_epoch.epoch, 1);
    CHECK_INT(answer->diverging_epoch.end_offset, 2);
    CHECK_INT(follower_of(&it, 2).log_end_offset, -1); /* what it says of its end is worth nothing */
    two.next.last_fetched_epoch = 9;
    CHECK_INT(fetch_at(&two, 2)->error_code, PB_KAFKA_OFFSET_OUT_OF_RANGE);
    two.next.last_fetched_epoch = 1;
    answer = fetch_at(&two, 2);
    CHECK_INT(answer->diverging_epoch.epoch, -1);
    CHECK_INT(answer->records.length, (int64_t)batch_length);
    CHECK_INT(state_of(&it).high_watermark, 2);
    finish(&it);
}

/* Until so many fetches wait. */
static void await_delayed(const served *it, int64_t count)
{
    pb_broker_stats stats;
    do {
        usleep(200);
        pb_broker_stats_read(it->broker, &stats);
    } while (stats.delayed_fetches != count);
}

static pb_event await_appended(const served *it)
{
    pb_event event;
    while (!take_event(it, &event))
        usleep(200);
    CHECK_INT(event.kind, PB_EVENT_APPENDED);
    return event;
}

TEST(who_waits_when_the_partition_resigns_is_told_so)
{
    for (int b = 0; b < 2; b++) {
        served it;
        begin(&it, backends[b], 3, 3, 1, PB_DURABILITY_NONE);
        two.next.max_wait_ms = LONG_WAIT_MS;
        send_produce(&client, -1);
        CHECK_INT(fetch_at(&two, 0)->error_code, 0);
        CHECK_INT(pb_partition_append(it.partition, batch, batch_length, 9), 0);
        CHECK_INT(fetch_at(&two, 1)->records.length, (int64_t)batch_length);
        two.next.offset = 2;
        mini_client_send_replica_fetch(&two.client, FETCH_VERSION, &two.next);
        await_delayed(&it, 1);
        CHECK_INT(pb_partition_resign(it.partition, PB_KAFKA_NOT_LEADER_OR_FOLLOWER), 0);
        CHECK_INT(receive_fetch(&two)->error_code, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
        CHECK_INT(receive_produce(&client)->error_code, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
        pb_event event = await_appended(&it);
        CHECK_INT(event.handle, 9);
        CHECK_INT(event.error, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
        CHECK_INT(pb_partition_followers(it.partition, NULL, 0), 0);
        CHECK_INT(state_of(&it).high_watermark, 0);
        finish(&it);
    }
}

static void *resign(void *partition)
{
    CHECK_INT(pb_partition_resign(partition, PB_KAFKA_NOT_LEADER_OR_FOLLOWER), 0);
    return NULL;
}

static void await_refusal(const served *it)
{
    pb_partition_rules rules;
    int32_t leader_epoch;
    while (pb_partition_admit(it->partition, &rules, &leader_epoch) == 0)
        usleep(200);
}

/* No follower has seen it, and from now on none is asked. */
static void resign_with_appends_held(int32_t durability)
{
    served it;
    begin(&it, "epoll", 2, 2, 1, durability);
    mini_client other;
    mini_client_open(&other, it.port);
    while (pb_partition_hold(it.partition, NULL) == -EBUSY)
        usleep(200);
    send_produce(&client, -1);
    CHECK_INT(pb_partition_append(it.partition, batch, batch_length, 9), 0);
    send_produce(&other, 1);
    while (state_of(&it).log_end_offset < 3)
        usleep(200);
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, resign, it.partition), 0);
    await_refusal(&it);
    CHECK(is_silent(&client) && is_silent(&other));
    pb_partition_unhold(it.partition);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(receive_produce(&client)->error_code, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
    CHECK_INT(await_appended(&it).error, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
    CHECK_INT(receive_produce(&other)->error_code, 0); /* acks=1: it is in the leader's log, which may lose it */
    CHECK_INT(state_of(&it).appended_records, 3);
    CHECK_INT(state_of(&it).high_watermark, 0);
    mini_client_close(&other);
    finish(&it);
}

TEST(what_is_queued_while_writes_are_held_is_not_acknowledged_when_the_partition_resigns)
{
    resign_with_appends_held(PB_DURABILITY_NONE);
    resign_with_appends_held(PB_DURABILITY_ACKS);
}

TEST(what_waits_for_followers_ends_when_there_are_none)
{
    served it;
    begin(&it, "epoll", 2, 2, 1, PB_DURABILITY_NONE);
    send_produce(&client, -1);
    CHECK_INT(pb_partition_append(it.partition, batch, batch_length, 9), 0);
    while (state_of(&it).appended_records < 2)
        usleep(200);
    CHECK_INT(lead_with(&it, 1, 1, 1, 1, NULL), 0);
    CHECK_INT(receive_produce(&client)->error_code, 0);
    CHECK_INT(await_appended(&it).error, 0);
    CHECK_INT(pb_partition_lead(it.partition, 2), 0);
    produce(&client, -1, 0);
    CHECK_INT(state_of(&it).high_watermark, 3);
    finish(&it);
}

TEST(a_producer_that_goes_away_and_a_broker_that_stops_wait_for_no_follower)
{
    for (int b = 0; b < 2; b++) {
        served it;
        begin(&it, backends[b], 2, 2, 1, PB_DURABILITY_NONE);
        mini_client gone, stays;
        mini_client_open(&gone, it.port);
        mini_client_open(&stays, it.port);
        for (int i = 0; i < 3; i++)
            send_produce(&gone, -1);
        mini_client_close(&gone);
        send_produce(&stays, -1);
        while (state_of(&it).appended_records < 1)
            usleep(200);
        finish(&it);
        mini_client_close(&stays);
    }
}

TEST(what_a_producer_sends_again_waits_with_the_first_copy)
{
    served it;
    begin(&it, "epoll", 2, 2, 1, PB_DURABILITY_NONE);
    pb_batch_header header;
    CHECK_INT(pb_batch_parse(batch, batch_length, &header), 0);
    header.producer_id = 5;
    header.producer_epoch = 0;
    header.base_sequence = 0;
    pb_batch_write(batch, &header);
    mini_client again, third;
    mini_client_open(&again, it.port);
    mini_client_open(&third, it.port);
    send_produce(&client, -1);
    while (state_of(&it).appended_records < 1)
        usleep(200);
    CHECK_INT(fetch_at(&two, 0)->error_code, 0);
    send_produce(&again, -1);
    produce(&third, 1, 0); /* acks=1 has the leader's word, as the first copy would have had */
    CHECK(is_silent(&again));
    (void)fetch_at(&two, 1);
    CHECK_INT(receive_produce(&client)->base_offset, 0);
    const pb_produce_response_partition_produce_response *answer = receive_produce(&again);
    CHECK_INT(answer->error_code, 0);
    CHECK_INT(answer->base_offset, 0);
    CHECK_INT(state_of(&it).log_end_offset, 1);
    mini_client_close(&again);
    mini_client_close(&third);
    finish(&it);
}

TEST(a_follower_that_asks_for_it_is_told_of_the_high_watermark_at_once)
{
    for (int b = 0; b < 2; b++) {
        served it;
        begin(&it, backends[b], 3, 3, 1, PB_DURABILITY_NONE);
        produce(&client, 1, 0);
        two.next.max_wait_ms = LONG_WAIT_MS;
        two.next.known_high_watermark = 0;
        two.next.offset = 1;
        mini_client_send_replica_fetch(&two.client, FETCH_VERSION, &two.next);
        await_delayed(&it, 1);
        (void)fetch_at(&three, 1);
        CHECK_INT(receive_fetch(&two)->high_watermark, 1); /* woken */
        CHECK_INT(fetch(&two)->high_watermark, 1);         /* there already */
        finish(&it);
    }
}

TEST(a_fetch_session_of_a_follower_counts_what_it_does_not_say_again)
{
    served it;
    begin(&it, "epoll", 2, 2, 1, PB_DURABILITY_NONE);
    two.next.session_epoch = 0;
    two.next.last_fetched_epoch = -1;
    mini_client_send_replica_fetch(&two.client, FETCH_VERSION, &two.next);
    pb_fetch_response fetched;
    mini_client_receive_fetch(&two.client, FETCH_VERSION, &fetched);
    CHECK(fetched.session_id != 0);
    two.next.session_id = fetched.session_id;
    two.next.says_nothing = true;
    two.next.session_epoch = 1;
    two.next.max_wait_ms = LONG_WAIT_MS;
    mini_client_send_replica_fetch(&two.client, FETCH_VERSION, &two.next);
    await_delayed(&it, 1);
    send_produce(&client, -1);
    CHECK_INT(receive_fetch(&two)->records.length, (int64_t)batch_length);
    two.next.says_nothing = false;
    two.next.session_epoch = 2;
    two.next.offset = 1;
    two.next.last_fetched_epoch = 1;
    CHECK_INT(fetch(&two)->high_watermark, 1); /* at once: the high watermark is news to the session */
    CHECK_INT(receive_produce(&client)->error_code, 0);
    CHECK_INT(lead_with(&it, 3, 1, 2, 2, NULL), 0);
    two.next.says_nothing = true;
    two.next.session_epoch = 3;
    CHECK_INT(fetch(&two)->error_code, PB_KAFKA_FENCED_LEADER_EPOCH);
    finish(&it);
}

TEST(who_was_told_where_it_has_diverged_is_told_of_the_high_watermark_afterwards)
{
    served it;
    begin(&it, "epoll", 2, 1, 1, PB_DURABILITY_NONE);
    produce(&client, 1, 0);
    produce(&client, 1, 0); /* epoch 1: offsets 0 and 1 */
    CHECK_INT(lead_with(&it, 5, 1, 2, 1, NULL), 0);
    two.next.session_epoch = 0;
    two.next.leader_epoch = 5;
    two.next.last_fetched_epoch = 1;
    two.next.offset = 7;
    mini_client_send_replica_fetch(&two.client, FETCH_VERSION, &two.next);
    pb_fetch_response fetched;
    mini_client_receive_fetch(&two.client, FETCH_VERSION, &fetched);
    CHECK(fetched.session_id != 0);
    CHECK_INT(fetched.responses[0].partitions[0].diverging_epoch.end_offset, 2);
    two.next.session_id = fetched.session_id;
    two.next.session_epoch = 1;
    CHECK_INT(fetch_at(&two, 2)->high_watermark, 2); /* nothing has changed, but it had to cut its log first */
    two.next.says_nothing = true;
    two.next.session_epoch = 2;
    mini_client_send_replica_fetch(&two.client, FETCH_VERSION, &two.next);
    mini_client_receive_fetch(&two.client, FETCH_VERSION, &fetched);
    CHECK_INT(fetched.responses_count, 0); /* it has it now */
    finish(&it);
}

TEST(a_leadership_that_cannot_be_is_refused)
{
    served it;
    begin(&it, "epoll", 2, 2, 1, PB_DURABILITY_NONE);
    const int32_t nobody[] = {2, 3}, twice[] = {LEADER, 2, 2}, stranger[] = {9};
    pb_partition_leadership leadership = {
        .leader_epoch = 1, .partition_epoch = 7, .replicas = nobody, .isr = nobody, .replica_count = 2, .isr_count = 2};
    CHECK_INT(pb_partition_lead_replicated(it.partition, &leadership), -EINVAL);
    leadership.replicas = twice;
    leadership.isr = twice;
    leadership.replica_count = 3;
    CHECK_INT(pb_partition_lead_replicated(it.partition, &leadership), -EINVAL);
    CHECK_INT(lead_with(&it, 1, 7, 2, 2, stranger), -EINVAL);
    CHECK_INT(lead_with(&it, 1, 7, 2, 3, NULL), -EINVAL);
    CHECK_INT(lead_with(&it, 1, 7, 2, 0, NULL), -EINVAL);
    CHECK_INT(lead_with(&it, 1, 7, 2, 2, NULL), 0);
    CHECK_INT(lead_with(&it, 1, 6, 2, 2, NULL), PB_KAFKA_INVALID_UPDATE_VERSION);
    CHECK_INT(lead_with(&it, 0, 8, 2, 2, NULL), PB_KAFKA_FENCED_LEADER_EPOCH);
    finish(&it);
}

/* Where a consumer at `offset` who names this rack is sent; -1: nowhere. */
static int32_t sent_to(follower *consumer, const char *rack, int64_t offset)
{
    consumer->next.rack = rack;
    const pb_fetch_response_partition_data *answer = fetch_at(consumer, offset);
    CHECK_INT(answer->error_code, 0);
    if (answer->preferred_read_replica >= 0)
        CHECK_INT(answer->records.length, 0);
    return answer->preferred_read_replica;
}

TEST(a_consumer_is_sent_to_a_replica_in_its_rack_that_has_what_it_wants)
{
    served it;
    begin(&it, "epoll", 3, 3, 1, PB_DURABILITY_NONE);
    const pb_broker_rack racks[] = {{LEADER, "a"}, {2, "b"}, {3, "b"}, {4, "c"}};
    CHECK_INT(pb_broker_set_racks(it.broker, racks, 4), 0);
    follower consumer;
    open_follower(&consumer, &it, -1);
    produce(&client, 1, 0);
    produce(&client, 1, 0);
    CHECK_INT(sent_to(&consumer, "b", 0), -1); /* nobody knows yet what they have */
    (void)fetch_at(&three, 1);
    CHECK_INT(sent_to(&consumer, "b", 0), 3);
    (void)fetch_at(&two, 2);
    CHECK_INT(sent_to(&consumer, "b", 0), 2); /* which has more */
    CHECK_INT(sent_to(&consumer, "b", 1), 2);
    two.next.log_start_offset = 1;
    (void)fetch_at(&two, 2);
    CHECK_INT(sent_to(&consumer, "b", 0), 3); /* which has that still */
    CHECK_INT(sent_to(&consumer, "a", 0), -1);
    CHECK_INT(sent_to(&consumer, "c", 0), -1); /* no replica */
    CHECK_INT(sent_to(&consumer, "", 0), -1);
    CHECK_INT(lead_with(&it, 1, 1, 3, 2, NULL), 0);
    CHECK_INT(sent_to(&consumer, "b", 0), -1); /* that one is not in sync now: it might stay behind */
    CHECK_INT(sent_to(&consumer, "b", 1), 2);
    CHECK_INT(pb_broker_set_racks(it.broker, NULL, 0), 0);
    CHECK_INT(sent_to(&consumer, "b", 0), -1);
    CHECK_INT(fetch_at(&consumer, 0)->records.length, 2 * (int64_t)batch_length);
    mini_client_close(&consumer.client);
    finish(&it);
}

static int16_t fetch_as_consumer(mini_client *consumer, int16_t version, int64_t offset, int32_t *length)
{
    pb_fetch_response fetched;
    mini_client_send_fetch(consumer, version, "t", 0, offset, 1, 0);
    mini_client_receive_fetch(consumer, version, &fetched);
    *length = fetched.responses[0].partitions[0].records.length;
    return fetched.responses[0].partitions[0].error_code;
}

TEST(a_follower_is_read_by_consumers_that_know_of_it_up_to_its_high_watermark)
{
    served it;
    begin(&it, "epoll", 1, 1, 1, PB_DURABILITY_NONE);
    produce(&client, -1, 0);
    pb_fetcher_options options = {.leader_id = 2,
                                  .host = "127.0.0.1",
                                  .port = 1, /* nobody listens */
                                  .replica_id = LEADER,
                                  .replica_epoch = 5,
                                  .fetch_version = FETCH_VERSION,
                                  .max_wait_ms = 500,
                                  .min_bytes = 1,
                                  .max_bytes = 1 << 20,
                                  .partition_max_bytes = 1 << 20,
                                  .backoff_ms = 1000,
                                  .connect_timeout_ms = 1000};
    pb_fetcher *fetcher = NULL;
    pb_native_failure failure = {0};
    CHECK_INT(pb_fetcher_open(it.broker, &options, &fetcher, &failure), 0);
    CHECK_INT(pb_partition_follow(it.partition, fetcher, 2), 0);
    int32_t length;
    CHECK_INT(fetch_as_consumer(&client, 12, 0, &length), 0);
    CHECK_INT(length, (int64_t)batch_length);
    CHECK_INT(fetch_as_consumer(&client, 10, 0, &length), PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
    produce(&client, 1, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
    two.next.leader_epoch = 2;
    CHECK_INT(fetch(&two)->error_code, PB_KAFKA_NOT_LEADER_OR_FOLLOWER); /* followers follow leaders */
    mini_client_send_fetch(&client, 12, "t", 0, 1, 1, LONG_WAIT_MS);
    await_delayed(&it, 1);
    pb_partition_unfollow(it.partition);
    pb_fetch_response fetched;
    mini_client_receive_fetch(&client, 12, &fetched);
    CHECK_INT(fetched.responses[0].partitions[0].error_code, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
    CHECK_INT(pb_partition_follow(it.partition, fetcher, 2), 0);
    CHECK_INT(lead_with(&it, 3, 1, 2, 1, NULL), 0); /* of itself it follows no more */
    produce(&client, -1, 0);
    CHECK_INT(state_of(&it).high_watermark, 2);
    pb_fetcher_close(fetcher);
    finish(&it);
}

TEST(a_throttled_follower_that_is_not_in_sync_gets_no_more_than_the_quota)
{
    served it;
    begin(&it, "epoll", 3, 2, 1, PB_DURABILITY_NONE);
    it.config.leader_throttled = 1;
    CHECK_INT(pb_partition_configure(it.partition, &it.config), 0);
    pb_broker_limit_leader_replication(it.broker, 1); /* a byte: the first answer takes minutes of it */
    for (int i = 0; i < 3; i++)
        produce(&client, 1, 0);
    CHECK_INT(fetch_at(&three, 0)->records.length, 3 * (int64_t)batch_length);
    const pb_fetch_response_partition_data *answer = fetch_at(&three, 1);
    CHECK_INT(answer->error_code, 0);
    CHECK_INT(answer->records.length, 0);
    CHECK_INT(follower_of(&it, 3).log_end_offset, 1); /* what it has counts all the same */
    CHECK_INT(fetch_at(&two, 0)->records.length, 3 * (int64_t)batch_length);
    CHECK_INT(lead_with(&it, 1, 1, 3, 3, NULL), 0);
    CHECK_INT(fetch_at(&three, 1)->records.length, 2 * (int64_t)batch_length); /* in sync */
    CHECK_INT(lead_with(&it, 1, 2, 3, 2, NULL), 0);
    CHECK_INT(fetch_at(&three, 1)->records.length, 0);
    pb_broker_limit_leader_replication(it.broker, 0);
    CHECK_INT(fetch_at(&three, 1)->records.length, 2 * (int64_t)batch_length);
    finish(&it);
}

CHECK_MAIN()
