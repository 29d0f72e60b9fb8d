/* Produce of transactions whose coordinators have to be asked first (KIP-890), through pybroker.h alone. */
#include <string.h>
#include <unistd.h>

#include "record/batch.h"
#include "tests/abi/serving.h"

enum { PRODUCER = 7, WAIT_US = 1000, WAITS = 60000 };

static uint8_t batch[1 << 16];

static size_t transactional_batch(int16_t epoch, int32_t sequence)
{
    size_t length = mini_batch(batch, sizeof batch, 1, 10);
    pb_batch_header header;
    CHECK_INT(pb_batch_parse(batch, length, &header), 0);
    header.attributes |= PB_BATCH_TRANSACTIONAL;
    header.producer_id = PRODUCER;
    header.producer_epoch = epoch;
    header.base_sequence = sequence;
    pb_batch_write(batch, &header);
    return length;
}

static void send(mini_client *client, int16_t epoch, int32_t sequence)
{
    size_t length = transactional_batch(epoch, sequence);
    mini_client_send_produce(client, 9, -1, "t", 0, batch, length);
}

static int error_of(mini_client *client)
{
    pb_produce_response produced;
    mini_client_receive_produce(client, 9, &produced);
    return answer_of(&produced)->error_code;
}

/* The VERIFY event that must come. */
static pb_event asked(const served *it)
{
    pb_event event;
    for (int i = 0; i < WAITS; i++) {
        if (take_event(it, &event)) {
            CHECK_INT(event.kind, PB_EVENT_VERIFY);
            return event;
        }
        usleep(WAIT_US);
    }
    CHECK(!"an event");
    return event;
}

static void answer(const served *it, const pb_event *event, int16_t error)
{
    pb_request_verified(it->broker, event->handle, &error, 1);
}

static void serve_verified(served *it, mini_client *client, const char *backend)
{
    pb_partition_config config = default_config();
    config.transactional = PB_TRANSACTIONAL_VERIFIED;
    serve_with(it, backend, 2, &config);
    mini_client_open(client, it->port);
    client->transactional_id = "tx";
}

TEST(a_transaction_is_asked_about_once)
{
    for (int b = 0; b < 2; b++) {
        served it;
        mini_client client;
        serve_verified(&it, &client, backends[b]);
        send(&client, 3, 0);
        send(&client, 3, 1); /* waits for the first one, and is not asked about */
        pb_event event = asked(&it);
        CHECK_INT(event.offset, PRODUCER);
        CHECK_INT(event.api_key, 3);
        CHECK_INT(event.api_version, 9);
        CHECK_INT(event.client_id_length, 2);
        CHECK(memcmp((const char *)(uintptr_t)event.client_id, "tx", 2) == 0);
        CHECK_INT(event.body_length, 1);
        const pb_verified_partition *partition = (const pb_verified_partition *)(uintptr_t)event.body;
        CHECK_STR(partition->topic, "t");
        CHECK_INT(partition->partition, 0);
        pb_event other;
        CHECK(!take_event(&it, &other));
        pb_partition_state state;
        pb_partitions_state(&it.partition, 1, &state);
        CHECK_INT(state.log_end_offset, 0);
        answer(&it, &event, 0);
        CHECK_INT(error_of(&client), 0);
        CHECK_INT(error_of(&client), 0);
        CHECK(!take_event(&it, &other));
        mini_client_close(&client);
        stop(&it);
    }
}

TEST(what_the_coordinator_refuses_is_not_written)
{
    served it;
    mini_client client;
    serve_verified(&it, &client, "epoll");
    const int16_t errors[] = {PB_KAFKA_INVALID_TXN_STATE, PB_KAFKA_NOT_ENOUGH_REPLICAS};
    for (int i = 0; i < 2; i++) {
        send(&client, 3, 0);
        pb_event event = asked(&it);
        answer(&it, &event, errors[i]);
        CHECK_INT(error_of(&client), errors[i]);
    }
    send(&client, 3, 0);
    pb_event event = asked(&it);
    pb_request_verified(it.broker, event.handle, NULL, 0); /* nobody could say anything */
    CHECK_INT(error_of(&client), PB_KAFKA_NOT_ENOUGH_REPLICAS);
    pb_partition_state state;
    pb_partitions_state(&it.partition, 1, &state);
    CHECK_INT(state.log_end_offset, 0);
    mini_client_close(&client);
    stop(&it);
}

TEST(what_changes_while_it_is_asked_counts)
{
    served it;
    mini_client client;
    serve_verified(&it, &client, "epoll");
    send(&client, 3, 0);
    pb_event event = asked(&it);
    CHECK_INT(pb_partition_resign(it.partition, PB_KAFKA_NOT_LEADER_OR_FOLLOWER), 0);
    answer(&it, &event, 0);
    CHECK_INT(error_of(&client), PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
    CHECK_INT(pb_partition_lead(it.partition, 1), 0);
    /* Without anybody to ask from now on, and back again: settings count when a Produce comes. */
    it.config.transactional = PB_TRANSACTIONAL_TRUSTED;
    CHECK_INT(pb_partition_configure(it.partition, &it.config), 0);
    send(&client, 3, 0);
    CHECK_INT(error_of(&client), 0);
    it.config.transactional = PB_TRANSACTIONAL_REFUSED;
    CHECK_INT(pb_partition_configure(it.partition, &it.config), 0);
    send(&client, 3, 1);
    CHECK_INT(error_of(&client), PB_KAFKA_INVALID_TXN_STATE);
    it.config.transactional = PB_TRANSACTIONAL_VERIFIED;
    CHECK_INT(pb_partition_configure(it.partition, &it.config), 0);
    send(&client, 3, 1); /* the transaction is open: there is nothing to ask */
    CHECK_INT(error_of(&client), 0);
    send(&client, 4, 0); /* another epoch's is not */
    event = asked(&it);
    answer(&it, &event, PB_KAFKA_INVALID_TXN_STATE);
    CHECK_INT(error_of(&client), PB_KAFKA_INVALID_TXN_STATE);
    send(&client, 2, 0);
    CHECK_INT(error_of(&client), PB_KAFKA_INVALID_PRODUCER_EPOCH);
    mini_client_close(&client);
    stop(&it);
}

TEST(a_client_that_has_gone_leaves_nothing)
{
    for (int b = 0; b < 2; b++) {
        served it;
        mini_client client, other;
        serve_verified(&it, &client, backends[b]);
        mini_client_open(&other, it.port);
        other.transactional_id = "tx";
        send(&client, 3, 0);
        pb_event gone = asked(&it);
        mini_client_close(&client);
        send(&other, 3, 0);
        pb_event event = asked(&it);
        answer(&it, &event, 0);
        CHECK_INT(error_of(&other), 0);
        answer(&it, &gone, 0); /* the same batch, which is there by now */
        send(&other, 3, 1);
        CHECK_INT(error_of(&other), 0);
        pb_partition_state state;
        pb_partitions_state(&it.partition, 1, &state);
        CHECK_INT(state.log_end_offset, 2);
        mini_client_close(&other);
        stop(&it);
    }
}

TEST(a_broker_that_stops_answers_what_is_being_asked)
{
    served it;
    mini_client client;
    serve_verified(&it, &client, "epoll");
    send(&client, 3, 0);
    pb_event event = asked(&it);
    pb_broker_end_requests(it.broker);
    pb_request_verified(it.broker, event.handle, NULL, 0);
    CHECK_INT(error_of(&client), PB_KAFKA_NOT_ENOUGH_REPLICAS);
    mini_client_close(&client);
    pb_broker_stop(it.broker);
    end(&it, 1);
}

CHECK_MAIN()
