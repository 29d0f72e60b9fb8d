/* Batches that are validated off the reactors, seen by clients: order on a connection, other clients, and what happens
 * meanwhile. With the threads held, so that what a test expects does not depend on time. */
#include <pthread.h>
#include <sys/socket.h>

#include "server/broker.h"
#include "tests/abi/serving.h"
#include "tests/support/bomb.h"
#include "wire/generated/produce_request.h"

#define MIB (1 << 20)

enum { WAIT_US = 1000, WAITS = 60000, VERSION = 9 };

static uint8_t bomb[MIB], small[1 << 12];
static size_t bomb_bytes, small_bytes;

static void make_batches(void)
{
    bomb_bytes = bomb_batch(bomb, sizeof bomb, PB_COMPRESSION_GZIP, 1, 32 * MIB);
    small_bytes = mini_batch(small, sizeof small, 1, 100);
}

/* Begin none, or as many as usual. */
static void let_begin(served *it, bool may_begin)
{
    pb_big_batches *batches = &it->broker->big_batches;
    pthread_mutex_lock(&batches->lock);
    batches->memory_bytes = may_begin ? PB_BIG_MEMORY_BYTES : 0;
    for (int i = 0; i < batches->crew.thread_count; i++)
        it->broker->io->ops->thread_wake(batches->crew.threads[i].thread);
    pthread_mutex_unlock(&batches->lock);
}

static pb_broker_stats stats_of(const served *it)
{
    pb_broker_stats stats;
    pb_broker_stats_read(it->broker, &stats);
    return stats;
}

static void await_handed_over(const served *it, int64_t count)
{
    for (int i = 0; i < WAITS && stats_of(it).large_batches < count; i++)
        usleep(WAIT_US);
    CHECK_INT(stats_of(it).large_batches, count);
}

static int64_t end_offset(const served *it)
{
    pb_partition_state state;
    pb_partitions_state(&it->partition, 1, &state);
    return state.log_end_offset;
}

static void send_bomb(mini_client *client)
{
    mini_client_send_produce(client, VERSION, 1, "t", 0, bomb, bomb_bytes);
}

static void send_small(mini_client *client)
{
    mini_client_send_produce(client, VERSION, 1, "t", 0, small, small_bytes);
}

static int expect(mini_client *client, int64_t offset)
{
    pb_produce_response produced;
    mini_client_receive_produce(client, VERSION, &produced);
    const pb_produce_response_partition_produce_response *answer = answer_of(&produced);
    CHECK_INT(answer->base_offset, offset);
    return answer->error_code;
}

TEST(a_connection_keeps_its_order_and_others_go_on)
{
    for (int b = 0; b < 2; b++) {
        served it;
        mini_client bomber, other;
        make_batches();
        serve(&it, backends[b], 1);
        let_begin(&it, false);
        mini_client_open(&bomber, it.port);
        mini_client_open(&other, it.port);
        send_small(&bomber);
        send_bomb(&bomber);
        for (int i = 0; i < 3; i++)
            send_small(&bomber);
        send_bomb(&bomber);
        send_small(&bomber);
        CHECK_INT(expect(&bomber, 0), 0); /* what was sent before is answered before */
        await_handed_over(&it, 1);
        for (int64_t i = 0; i < 5; i++) {
            send_small(&other);
            CHECK_INT(expect(&other, 1 + i), 0);
        }
        /* The other's requests went through the same reactor: it would have taken the bomber's. */
        CHECK_INT(end_offset(&it), 6);
        CHECK_INT(stats_of(&it).large_batches_now, 1);
        let_begin(&it, true);
        for (int64_t i = 0; i < 6; i++)
            CHECK_INT(expect(&bomber, 6 + i), 0);
        CHECK_INT(stats_of(&it).large_batches, 2);
        CHECK_INT(stats_of(&it).large_batches_now, 0);
        CHECK(stats_of(&it).large_batch_bytes >= 64LL * MIB);
        mini_client_close(&bomber);
        mini_client_close(&other);
        stop(&it);
    }
}

TEST(one_mebibyte_stays_on_the_reactor)
{
    served it;
    mini_client client;
    serve(&it, "epoll", 1);
    let_begin(&it, false);
    mini_client_open(&client, it.port);
    for (int compression = 1; compression < PB_COMPRESSION_COUNT; compression++) {
        bomb_bytes = bomb_batch(bomb, sizeof bomb, compression, 8, MIB / 8 - 100);
        send_bomb(&client);
        CHECK_INT(expect(&client, 8 * (compression - 1)), 0);
    }
    CHECK_INT(stats_of(&it).large_batches, 0);
    let_begin(&it, true);
    for (int compression = 1; compression < PB_COMPRESSION_COUNT; compression++) {
        bomb_bytes = bomb_batch(bomb, sizeof bomb, compression, 1, 2 * MIB);
        send_bomb(&client);
        CHECK_INT(expect(&client, 32 + compression - 1), 0);
        CHECK_INT(stats_of(&it).large_batches, compression);
    }
    mini_client_close(&client);
    stop(&it);
}

TEST(the_partitions_behind_it_in_a_request_wait_too)
{
    served it;
    mini_client client;
    make_batches();
    serve(&it, "epoll", 1);
    mini_client_open(&client, it.port);
    pb_produce_request_partition_produce_data data[] = {
        {.index = 0, .records = {small, (int32_t)small_bytes}}, {.index = 0, .records = {bomb, (int32_t)bomb_bytes}},
        {.index = 7, .records = {bomb, (int32_t)bomb_bytes}}, /* there is none */
        {.index = 0, .records = {bomb, (int32_t)bomb_bytes}},   {.index = 0, .records = {small, (int32_t)small_bytes}},
    };
    enum { COUNT = sizeof data / sizeof data[0] };
    pb_produce_request_topic_produce_data topic = {
        .name = pb_slice_of_text("t"), .partition_data = data, .partition_data_count = COUNT};
    pb_produce_request request = {.transactional_id = PB_NULL_SLICE,
                                  .acks = -1,
                                  .timeout_ms = 60000,
                                  .topic_data = &topic,
                                  .topic_data_count = 1};
    pb_writer body;
    pb_writer_init(&body, 8 * MIB);
    CHECK_INT(pb_produce_request_write(&body, VERSION, &request), 0);
    mini_client_send_body(&client, 0, VERSION, &body);
    pb_writer_free(&body);
    pb_produce_response produced;
    mini_client_receive_produce(&client, VERSION, &produced);
    CHECK_INT(produced.responses[0].partition_responses_count, COUNT);
    static const int64_t offsets[COUNT] = {0, 1, -1, 2, 3};
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(produced.responses[0].partition_responses[i].base_offset, offsets[i]);
    CHECK_INT(produced.responses[0].partition_responses[2].error_code, PB_KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    mini_client_close(&client);
    stop(&it);
}

TEST(a_batch_is_compressed_anew_elsewhere)
{
    enum { VALUE_BYTES = 200, RECORDS = 1000 };
    served it;
    mini_client client;
    pb_partition_config config = default_config();
    config.compression = PB_COMPRESSION_GZIP;
    serve_with(&it, "io_uring", 1, &config);
    mini_client_open(&client, it.port);
    bomb_bytes = mini_batch(bomb, sizeof bomb, RECORDS, VALUE_BYTES);
    send_bomb(&client);
    CHECK_INT(expect(&client, 0), 0);
    CHECK_INT(stats_of(&it).large_batches, 1);
    small_bytes = mini_batch(small, sizeof small, 1, 100);
    send_small(&client);
    CHECK_INT(expect(&client, RECORDS), 0);
    CHECK_INT(stats_of(&it).large_batches, 1);
    static uint8_t stored[MIB], plain[MIB];
    CHECK(pb_partition_read(it.partition, 0, PB_READ_TO_LOG_END, stored, sizeof stored) > 0);
    pb_batch_header header;
    CHECK_INT(pb_batch_parse(stored, sizeof stored, &header), 0);
    CHECK_INT(pb_batch_compression(&header), PB_COMPRESSION_GZIP);
    CHECK(pb_batch_crc_matches(stored, header.size_bytes));
    pb_codec *codec = NULL;
    size_t length = 0;
    CHECK_INT(pb_codec_create(&codec), 0);
    CHECK_INT(pb_decompress(codec, PB_COMPRESSION_GZIP, stored + PB_BATCH_HEADER_BYTES,
                            header.size_bytes - PB_BATCH_HEADER_BYTES, plain, sizeof plain, &length, NULL),
              0);
    pb_codec_destroy(codec);
    CHECK_INT(length, bomb_bytes - PB_BATCH_HEADER_BYTES);
    CHECK_MEM(plain, bomb + PB_BATCH_HEADER_BYTES, length);
    mini_client_close(&client);
    stop(&it);
}

TEST(a_record_above_max_decompressed_message_bytes_is_refused)
{
    served it;
    mini_client client;
    pb_partition_config config = default_config();
    config.max_decompressed_message_bytes = 1000;
    serve_with(&it, "epoll", 1, &config);
    mini_client_open(&client, it.port);
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        /* A body has 8 bytes beside a value of that size; uncompressed records are not limited. */
        bomb_bytes = bomb_batch(bomb, sizeof bomb, compression, 2, 1000 - 7);
        send_bomb(&client);
        pb_produce_response produced;
        mini_client_receive_produce(&client, VERSION, &produced);
        int error = answer_of(&produced)->error_code;
        CHECK_INT(error, compression == PB_COMPRESSION_NONE ? 0 : PB_KAFKA_INVALID_RECORD);
        bomb_bytes = bomb_batch(bomb, sizeof bomb, compression, 2, 1000 - 8);
        send_bomb(&client);
        CHECK_INT(expect(&client, 2 * compression + 2), 0);
    }
    /* Look-ups by time go by the setting of their time. */
    pb_partition_position found;
    CHECK_INT(pb_partition_list_offset(it.partition, BOMB_TIMESTAMP, PB_READ_UNCOMMITTED, &found), 0);
    CHECK_INT(found.offset, 0);
    it.config.max_decompressed_message_bytes = 999;
    CHECK_INT(pb_partition_configure(it.partition, &it.config), 0);
    CHECK_INT(pb_partition_list_offset(it.partition, BOMB_TIMESTAMP, PB_READ_UNCOMMITTED, &found), 0);
    CHECK_INT(found.offset, 0); /* an uncompressed batch */
    mini_client_close(&client);
    stop(&it);
}

TEST(look_ups_by_time_refuse_longer_records_and_leave_the_partition_online)
{
    served it;
    mini_client client;
    serve(&it, "epoll", 1);
    mini_client_open(&client, it.port);
    bomb_bytes = bomb_batch(bomb, sizeof bomb, PB_COMPRESSION_ZSTD, 2, 10000);
    send_bomb(&client);
    CHECK_INT(expect(&client, 0), 0);
    pb_partition_position found;
    for (int limit = 0; limit < 3; limit++) {
        static const int32_t limits[] = {9999, 10009, 10008};
        static const int errors[] = {PB_KAFKA_INVALID_RECORD, 0, PB_KAFKA_INVALID_RECORD};
        it.config.max_decompressed_message_bytes = limits[limit];
        CHECK_INT(pb_partition_configure(it.partition, &it.config), 0);
        CHECK_INT(pb_partition_list_offset(it.partition, BOMB_TIMESTAMP, PB_READ_UNCOMMITTED, &found), errors[limit]);
        CHECK_INT(pb_partition_list_offset(it.partition, -3, PB_READ_UNCOMMITTED, &found), errors[limit]);
    }
    pb_event event;
    CHECK(!take_event(&it, &event));
    mini_client_close(&client);
    stop(&it);
}

/* Close, so that the broker is told of a reset and not of an end. */
static void reset(mini_client *client)
{
    struct linger linger = {.l_onoff = 1};
    CHECK_INT(setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
    mini_client_close(client);
}

static void await_connections(const served *it, int64_t count)
{
    for (int i = 0; i < WAITS && stats_of(it).connections != count; i++)
        usleep(WAIT_US);
    CHECK_INT(stats_of(it).connections, count);
}

TEST(the_client_goes_away_meanwhile)
{
    for (int b = 0; b < 2; b++) {
        served it;
        mini_client gone, ended;
        make_batches();
        serve(&it, backends[b], 1);
        let_begin(&it, false);
        mini_client_open(&gone, it.port);
        send_bomb(&gone);
        await_handed_over(&it, 1);
        reset(&gone);
        for (int turns = 0; turns < 3; turns++) { /* the reactor has heard of it */
            int64_t latency_us;
            int32_t stuck;
            CHECK_INT(pb_broker_ping(it.broker, 60000, &latency_us, &stuck), 0);
        }
        let_begin(&it, true);
        await_connections(&it, 0);
        CHECK_INT(stats_of(&it).large_batches_now, 0);
        CHECK_INT(end_offset(&it), 0);
        /* A client that has no more to say, and waits for no answer, has sent it all the same. */
        mini_client_open(&ended, it.port);
        mini_client_send_produce(&ended, VERSION, 0, "t", 0, bomb, bomb_bytes);
        mini_client_send_produce(&ended, VERSION, 0, "t", 0, small, small_bytes);
        CHECK_INT(shutdown(ended.fd, SHUT_WR), 0);
        CHECK(!mini_client_receive(&ended));
        CHECK_INT(end_offset(&it), 2);
        mini_client_close(&ended);
        stop(&it);
    }
}

TEST(the_partition_goes_away_meanwhile)
{
    for (int closes = 0; closes < 2; closes++) {
        served it;
        mini_client client;
        pb_native_failure failure = {0};
        make_batches();
        serve(&it, "epoll", 1);
        let_begin(&it, false);
        mini_client_open(&client, it.port);
        send_bomb(&client);
        await_handed_over(&it, 1);
        CHECK_INT(pb_partition_resign(it.partition, PB_KAFKA_NOT_LEADER_OR_FOLLOWER), 0);
        if (closes == 1)
            CHECK_INT(pb_partition_close(it.partition, 1, &failure), 0);
        let_begin(&it, true);
        CHECK_INT(expect(&client, -1), PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
        if (closes == 1) {
            open_partition(&it, 1);
        } else {
            CHECK_INT(end_offset(&it), 0);
            CHECK_INT(pb_partition_lead(it.partition, 1), 0);
        }
        send_bomb(&client);
        CHECK_INT(expect(&client, 0), 0);
        mini_client_close(&client);
        stop(&it);
    }
}

TEST(the_broker_stops_meanwhile)
{
    enum { CLIENTS = 6 };
    for (int b = 0; b < 2; b++) {
        served it;
        mini_client clients[CLIENTS];
        make_batches();
        bomb_bytes = bomb_batch(bomb, sizeof bomb, PB_COMPRESSION_ZSTD, 1, 100 * MIB);
        serve(&it, backends[b], 2);
        for (int i = 0; i < CLIENTS; i++) {
            mini_client_open(&clients[i], it.port);
            send_bomb(&clients[i]);
            send_bomb(&clients[i]);
        }
        for (int i = 0; i < WAITS && stats_of(&it).large_batches < CLIENTS; i++)
            usleep(WAIT_US);
        stop(&it);
        for (int i = 0; i < CLIENTS; i++)
            mini_client_close(&clients[i]);
    }
}

CHECK_MAIN()
