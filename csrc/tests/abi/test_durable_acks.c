/* Durable acks through pybroker.h with real threads and a real disk, on both real backends. */
#include <errno.h>
#include <pthread.h>

#include "tests/abi/serving.h"

enum { WRITERS = 6, ROUNDS = 40, LOCAL_APPENDS = 100, MORE = 60 };

static uint8_t small[512];
static size_t small_length;

static void begin(served *it, const char *backend, int reactors, int32_t durability)
{
    small_length = mini_batch(small, sizeof small, 1, 100);
    pb_partition_config config = default_config();
    config.durability = durability;
    serve_with(it, backend, reactors, &config);
}

static pb_partition_state state_of(served *it)
{
    pb_partition_state state;
    pb_partitions_state(&it->partition, 1, &state);
    return state;
}

static int64_t produce(mini_client *client, int16_t acks)
{
    pb_produce_response produced;
    mini_client_send_produce(client, 9, acks, "t", 0, small, small_length);
    mini_client_receive_produce(client, 9, &produced);
    CHECK_INT(answer_of(&produced)->error_code, 0);
    return answer_of(&produced)->base_offset;
}

static void configure(served *it, int32_t durability)
{
    pb_partition_config config = default_config();
    config.durability = durability;
    CHECK_INT(pb_partition_configure(it->partition, &config), 0);
}

typedef struct writer {
    served *it;
    pthread_t thread;
} writer;

/* What is acknowledged lies below the durable end, and so does all that a reader may see. */
static void *write_and_look(void *argument)
{
    writer *self = argument;
    mini_client client;
    mini_client_open(&client, self->it->port);
    for (int i = 0; i < ROUNDS; i++) {
        int64_t offset = produce(&client, i % 2 == 0 ? 1 : -1);
        pb_partition_state state = state_of(self->it);
        CHECK(offset < state.durable_offset);
        CHECK(state.high_watermark <= state.durable_offset);
    }
    mini_client_close(&client);
    return NULL;
}

/* Python's own appends, beside the clients'. */
static void append_locally(served *it)
{
    int told = 0;
    for (int i = 0; i < LOCAL_APPENDS; i++)
        CHECK_INT(pb_partition_append(it->partition, small, small_length, 7), 0);
    while (told < LOCAL_APPENDS) {
        pb_event event;
        if (!take_event(it, &event)) {
            usleep(200);
            continue;
        }
        CHECK_INT(event.kind, PB_EVENT_APPENDED);
        CHECK_INT(event.error, 0);
        CHECK(event.offset < state_of(it).durable_offset);
        told++;
    }
}

TEST(acknowledged_and_read_is_what_is_durable)
{
    for (int b = 0; b < 2; b++)
        for (int reactors = 1; reactors <= 2; reactors++) {
            served it;
            begin(&it, backends[b], reactors, PB_DURABILITY_ACKS);
            writer writers[WRITERS];
            for (int i = 0; i < WRITERS; i++) {
                writers[i].it = &it;
                CHECK_INT(pthread_create(&writers[i].thread, NULL, write_and_look, &writers[i]), 0);
            }
            append_locally(&it);
            for (int i = 0; i < WRITERS; i++)
                pthread_join(writers[i].thread, NULL);
            pb_partition_state state = state_of(&it);
            CHECK_INT(state.high_watermark, WRITERS * ROUNDS + LOCAL_APPENDS);
            CHECK_INT(state.exposed_bytes, 0);
            stop(&it);
        }
}

TEST(a_fetch_that_waits_is_woken_when_records_are_durable)
{
    for (int b = 0; b < 2; b++) {
        served it;
        begin(&it, backends[b], 2, PB_DURABILITY_ACKS);
        mini_client reader, client;
        mini_client_open(&reader, it.port);
        mini_client_open(&client, it.port);
        for (int i = 0; i < 20; i++) {
            int acks = i % 2; /* also what nobody is told of */
            mini_client_send_fetch(&reader, 12, "t", 0, i, 1, 30000);
            mini_client_send_produce(&client, 9, (int16_t)acks, "t", 0, small, small_length);
            pb_fetch_response fetched;
            mini_client_receive_fetch(&reader, 12, &fetched);
            CHECK_INT(fetched.responses[0].partitions[0].records.length, (int64_t)small_length);
            CHECK(fetched.responses[0].partitions[0].high_watermark <= state_of(&it).durable_offset);
            if (acks == 1) {
                pb_produce_response produced;
                mini_client_receive_produce(&client, 9, &produced);
            }
        }
        mini_client_close(&reader);
        mini_client_close(&client);
        stop(&it);
    }
}

TEST(the_mode_changes_while_it_is_served)
{
    served it;
    begin(&it, "epoll", 2, PB_DURABILITY_NONE);
    mini_client client;
    mini_client_open(&client, it.port);
    for (int i = 0; i < 10; i++)
        (void)produce(&client, 1);
    pb_partition_state before = state_of(&it);
    CHECK_INT(before.durable_offset, 0);
    CHECK(before.exposed_bytes == 10 * (int64_t)small_length);
    configure(&it, PB_DURABILITY_ACKS);
    CHECK_INT(state_of(&it).high_watermark, 10); /* never back */
    for (int i = 0; i < 6000 && state_of(&it).durable_offset < 10; i++)
        usleep(10000); /* what had gathered is synced at once */
    CHECK_INT(state_of(&it).durable_offset, 10);
    writer writers[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        writers[i].it = &it;
        CHECK_INT(pthread_create(&writers[i].thread, NULL, write_and_look, &writers[i]), 0);
    }
    pb_native_failure failure = {0};
    for (int i = 0; i < 20; i++) { /* beside the threads that sync */
        CHECK_INT(pb_partition_sync(it.partition, &failure), 0);
        CHECK_INT(pb_partition_upkeep(it.partition, 0, 0, &failure), 0);
        CHECK(pb_partition_roll(it.partition, &failure) <= 0);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writers[i].thread, NULL);
    for (int i = 0; i < 100; i++) {
        configure(&it, i % 2 == 0 ? PB_DURABILITY_NONE : PB_DURABILITY_ACKS);
        CHECK_INT(produce(&client, 1), 10 + WRITERS * ROUNDS + i);
    }
    mini_client_close(&client);
    stop(&it);
}

TEST(a_partition_is_resigned_when_its_syncs_have_ended)
{
    served it;
    begin(&it, "epoll", 1, PB_DURABILITY_ACKS);
    mini_client client;
    mini_client_open(&client, it.port);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 5; i++)
            mini_client_send_produce(&client, 9, 1, "t", 0, small, small_length);
        CHECK_INT(pb_partition_resign(it.partition, PB_KAFKA_NOT_LEADER_OR_FOLLOWER), 0);
        pb_partition_state state = state_of(&it);
        CHECK_INT(state.durable_offset, state.log_end_offset);
        CHECK_INT(state.durable_offset, state.high_watermark);
        for (int i = 0; i < 5; i++) {
            pb_produce_response produced;
            mini_client_receive_produce(&client, 9, &produced);
            int error = answer_of(&produced)->error_code;
            CHECK(error == 0 || error == PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
            CHECK(error != 0 || answer_of(&produced)->base_offset < state.durable_offset);
        }
        CHECK_INT(pb_partition_lead(it.partition, round + 1), 0);
    }
    mini_client_close(&client);
    stop(&it);
}

TEST(a_broker_stops_while_syncs_are_under_way)
{
    for (int round = 0; round < 20; round++) {
        served it;
        begin(&it, backends[round % 2], 1 + round / 2 % 2, PB_DURABILITY_ACKS);
        mini_client client;
        mini_client_open(&client, it.port);
        CHECK_INT(produce(&client, 1), 0);
        for (int i = 0; i < 20; i++)
            mini_client_send_produce(&client, 9, 1, "t", 0, small, small_length);
        for (int i = 0; i < 10; i++)
            CHECK_INT(pb_partition_append(it.partition, small, small_length, 7), 0);
        pb_broker_end_requests(it.broker);
        pb_broker_stop(it.broker);
        pb_partition_state state = state_of(&it);
        CHECK_INT(state.durable_offset, state.log_end_offset);
        CHECK_INT(state.durable_offset, state.high_watermark);
        mini_client_close(&client);
        end(&it, 1);
    }
}

static void open_more(served *it, pb_partition **more)
{
    char path[128];
    uint8_t id[16] = {7};
    for (int i = 0; i < MORE; i++) {
        snprintf(path, sizeof path, "%s/t-%d", it->directory, i + 1);
        pb_partition_options options = {.topic = "t",
                                        .topic_id = id,
                                        .partition = i + 1,
                                        .directory = path,
                                        .clean = 1,
                                        .log_start_offset = -1,
                                        .high_watermark = -1,
                                        .config = default_config()};
        options.config.durability = PB_DURABILITY_ACKS;
        pb_partition_recovery recovery;
        pb_native_failure failure = {0};
        CHECK_INT(pb_partition_open(it->broker, &options, &more[i], &recovery, &failure), 0);
        CHECK_INT(pb_partition_lead(more[i], 0), 0);
    }
}

/* So many that their file system is synced, on and off. */
TEST(many_partitions_are_durable_when_they_say_so)
{
    for (int b = 0; b < 2; b++) {
        served it;
        pb_partition *more[MORE];
        begin(&it, backends[b], 2, PB_DURABILITY_ACKS);
        open_more(&it, more);
        mini_client client;
        mini_client_open(&client, it.port);
        for (int round = 0; round < 10; round++) {
            for (int i = 0; i < MORE; i++)
                mini_client_send_produce(&client, 9, 1, "t", i + 1, small, small_length);
            for (int i = 0; i < MORE; i++) {
                pb_produce_response produced;
                mini_client_receive_produce(&client, 9, &produced);
                CHECK_INT(answer_of(&produced)->error_code, 0);
                pb_partition_state state;
                pb_partitions_state(&more[i], 1, &state);
                CHECK(state.durable_offset > answer_of(&produced)->base_offset);
                CHECK_INT(state.high_watermark, round + 1);
            }
        }
        mini_client_close(&client);
        for (int i = 0; i < MORE; i++) {
            pb_native_failure failure = {0};
            CHECK_INT(pb_partition_resign(more[i], 0), 0);
            CHECK_INT(pb_partition_close(more[i], 1, &failure), 0);
        }
        stop(&it);
    }
}

CHECK_MAIN()
