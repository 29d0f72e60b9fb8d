/* Receive memory is for those who send: who waits for others, or does not read, leaves it to them. */
#include <endian.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "record/batch.h"
#include "record/codec.h"
#include "tests/abi/serving.h"
#include "wire/generated/fetch_request.h"
#include "wire/generated/request_header.h"

enum {
    BUDGET_BYTES = 1 << 20,
    CONNECTIONS = 20, /* their receive memory is more than the budget */
    PADDING_BYTES = 30000,
    PATIENCE_S = 20,
    PRODUCE_VERSION = 9,
    LARGE_BYTES = 900000,
};

static uint8_t batch[LARGE_BYTES + 200];
static served it;
static mini_client clients[CONNECTIONS];

static void open_client(mini_client *client)
{
    mini_client_open(client, it.port);
    struct timeval patience = {.tv_sec = PATIENCE_S};
    CHECK_INT(setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
}

static void begin(const char *backend)
{
    memset(&it, 0, sizeof it);
    it.config = default_config();
    it.buffer_budget_bytes = BUDGET_BYTES;
    open_broker(&it, backend, 1);
    start_serving(&it);
    for (int i = 0; i < CONNECTIONS; i++)
        open_client(&clients[i]);
}

static void finish(void)
{
    for (int i = 0; i < CONNECTIONS; i++)
        mini_client_close(&clients[i]);
    stop(&it);
}

static void produce(const char *topic, size_t value_bytes, int error)
{
    mini_client client;
    open_client(&client);
    size_t length = mini_batch(batch, sizeof batch, 1, value_bytes);
    pb_produce_response produced;
    mini_client_send_produce(&client, PRODUCE_VERSION, 1, topic, 0, batch, length);
    mini_client_receive_produce(&client, PRODUCE_VERSION, &produced);
    CHECK_INT(answer_of(&produced)->error_code, error);
    mini_client_close(&client);
}

/* The frame with a client id so long that it is not copied out of its receive memory at once. */
static void send_padded(mini_client *client, pb_writer *frame)
{
    enum { CLIENT_ID_AT = 12, SHORT_BYTES = sizeof "mini" - 1 };
    static uint8_t padded[PADDING_BYTES + 4096];
    size_t rest_at = CLIENT_ID_AT + 2 + SHORT_BYTES, rest_bytes = frame->length - rest_at;
    uint16_t id_bytes = htobe16(PADDING_BYTES);
    uint32_t size_bytes = htobe32((uint32_t)(CLIENT_ID_AT + 2 + PADDING_BYTES + rest_bytes - 4));
    memcpy(padded, frame->data, CLIENT_ID_AT);
    memcpy(padded, &size_bytes, sizeof size_bytes);
    memcpy(padded + CLIENT_ID_AT, &id_bytes, sizeof id_bytes);
    memset(padded + CLIENT_ID_AT + 2, 'x', PADDING_BYTES);
    memcpy(padded + CLIENT_ID_AT + 2 + PADDING_BYTES, frame->data + rest_at, rest_bytes);
    mini_client_send_raw(client, padded, CLIENT_ID_AT + 2 + PADDING_BYTES + rest_bytes);
    pb_writer_free(frame);
}

static void fetches_that_wait(int16_t version)
{
    for (int i = 0; i < CONNECTIONS; i++) {
        pb_writer frame;
        mini_encode_fetch(&frame, i, version, "t", 0, 0, 1, 60000);
        send_padded(&clients[i], &frame);
    }
    produce("t", 100, 0);
    for (int i = 0; i < CONNECTIONS; i++) {
        pb_fetch_response fetched;
        mini_client_receive_fetch(&clients[i], version, &fetched);
        CHECK_INT(fetched.responses_count, 1);
        CHECK(pb_slice_equal(fetched.responses[0].topic, pb_slice_of_text("t")));
        CHECK(fetched.responses[0].partitions[0].records.length > 100);
    }
}

TEST(fetches_that_wait_leave_their_memory)
{
    for (int b = 0; b < 2; b++) {
        begin(backends[b]);
        fetches_that_wait(12);
        finish();
    }
}

/* Take what comes for Python, and say that it has been copied. */
static int take_requests(uint64_t *handles, int count)
{
    pb_event event;
    while (pb_broker_take_events(it.broker, &event, 1) == 1) {
        if (event.kind == PB_EVENT_NOTICE) {
            pb_notice_release(event.handle);
            continue;
        }
        CHECK_INT(event.kind, PB_EVENT_REQUEST);
        CHECK_INT(event.client_id_length, PADDING_BYTES);
        CHECK_INT(event.offset, 1);
        pb_request_taken(it.broker, event.handle);
        handles[count++] = event.handle;
    }
    return count;
}

TEST(requests_that_python_has_copied_leave_their_memory)
{
    static const uint8_t api_versions_0[] = {0, 0, 0, 14, 0, 18, 0, 0, 0, 0, 0, 9, 0, 4, 'm', 'i', 'n', 'i'};
    for (int b = 0; b < 2; b++) {
        begin(backends[b]);
        for (int i = 0; i < CONNECTIONS; i++) {
            pb_writer frame;
            pb_writer_init(&frame, 1 << 20);
            pb_write_raw(&frame, api_versions_0, sizeof api_versions_0);
            send_padded(&clients[i], &frame);
        }
        uint64_t handles[CONNECTIONS];
        int count = 0;
        for (int tries = 0; count < CONNECTIONS && tries < PATIENCE_S * 1000; tries++) {
            count = take_requests(handles, count);
            usleep(1000);
        }
        CHECK_INT(count, CONNECTIONS);
        produce("t", 100, 0);
        for (int i = 0; i < CONNECTIONS; i++) {
            CHECK_INT(pb_request_reply(it.broker, handles[i], (const uint8_t *)"ok", 2), 0);
        }
        for (int i = 0; i < CONNECTIONS; i++) {
            CHECK(mini_client_receive(&clients[i]));
            CHECK_INT(clients[i].answer_length, 6);
        }
        finish();
    }
}

static pb_event take_request(void)
{
    pb_event event = {0};
    for (int tries = 0; tries < PATIENCE_S * 1000; tries++) {
        if (pb_broker_take_events(it.broker, &event, 1) == 1) {
            if (event.kind == PB_EVENT_REQUEST)
                return event;
            pb_notice_release(event.handle);
        }
        usleep(1000);
    }
    CHECK(false);
    return event;
}

static void answer_in_parts(uint64_t request, size_t length, size_t part)
{
    static uint8_t bytes[4096];
    for (size_t at = 0; at < length;) {
        const size_t count = length - at < part ? length - at : part;
        for (size_t i = 0; i < count; i++)
            bytes[i] = (uint8_t)((at + i) * 7);
        CHECK_INT(pb_request_reply_part(it.broker, request, bytes, count), 0);
        at += count;
    }
}

/* A large one is sent from where it is, and both kinds keep the order of the connection's answers. */
TEST(answers_come_in_parts)
{
    static const uint8_t api_versions_0[] = {0, 0, 0, 14, 0, 18, 0, 0, 0, 0, 0, 9, 0, 4, 'm', 'i', 'n', 'i'};
    static const size_t lengths[] = {1, 4096, 65536, 65537, 3 << 20};
    for (int b = 0; b < 2; b++) {
        begin(backends[b]);
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            mini_client_send_raw(&clients[0], api_versions_0, sizeof api_versions_0);
            mini_client_send_raw(&clients[0], api_versions_0, sizeof api_versions_0);
            const uint64_t first = take_request().handle;
            answer_in_parts(first, lengths[i], 4000);
            CHECK_INT(pb_request_reply(it.broker, first, (const uint8_t *)"end", 3), 0);
            CHECK(mini_client_receive(&clients[0]));
            CHECK_INT(clients[0].answer_length, 4 + lengths[i] + 3); /* the correlation id before it */
            for (size_t at = 0; at < lengths[i]; at++)
                CHECK(clients[0].answer[4 + at] == (uint8_t)(at * 7));
            CHECK(memcmp(clients[0].answer + 4 + lengths[i], "end", 3) == 0);
            CHECK_INT(pb_request_reply(it.broker, take_request().handle, (const uint8_t *)"ok", 2), 0);
            CHECK(mini_client_receive(&clients[0]));
            CHECK_INT(clients[0].answer_length, 4 + 2);
        }
        /* One that is not ended is freed with its connection. */
        mini_client_send_raw(&clients[1], api_versions_0, sizeof api_versions_0);
        const uint64_t unfinished = take_request().handle;
        answer_in_parts(unfinished, 1 << 20, 4000);
        pb_request_close(it.broker, unfinished);
        CHECK(!mini_client_receive(&clients[1]));
        finish();
    }
}

/* A Produce behind a request that waits, as a JoinGroup does for the group's other members, who are to be heard. */
TEST(large_requests_that_may_not_begin_yet_take_no_memory)
{
    enum { WAITING = 8, VALUE_BYTES = 200000 };
    static const uint8_t api_versions_0[] = {0, 0, 0, 14, 0, 18, 0, 0, 0, 0, 0, 9, 0, 4, 'm', 'i', 'n', 'i'};
    for (int b = 0; b < 2; b++) {
        begin(backends[b]);
        size_t length = mini_batch(batch, sizeof batch, 1, VALUE_BYTES);
        pb_writer frame;
        mini_encode_produce(&frame, 1, PRODUCE_VERSION, 1, "t", 0, batch, length);
        for (int i = 0; i < WAITING; i++) {
            int room = 1 << 20; /* for what the broker leaves in the socket */
            CHECK_INT(setsockopt(clients[i].fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
            mini_client_send_raw(&clients[i], api_versions_0, sizeof api_versions_0);
            mini_client_send_raw(&clients[i], frame.data, frame.length);
        }
        pb_writer_free(&frame);
        usleep(300000); /* as much of them comes as is taken */
        produce("t", 100, 0);
        pb_event event;
        for (int answered = 0; answered < WAITING;) {
            if (pb_broker_take_events(it.broker, &event, 1) != 1)
                usleep(1000);
            else if (event.kind == PB_EVENT_NOTICE)
                pb_notice_release(event.handle);
            else if (++answered > 0)
                CHECK_INT(pb_request_reply(it.broker, event.handle, (const uint8_t *)"ok", 2), 0);
        }
        for (int i = 0; i < WAITING; i++) {
            pb_produce_response produced;
            CHECK(mini_client_receive(&clients[i]));
            CHECK_INT(clients[i].answer_length, 6);
            mini_client_receive_produce(&clients[i], PRODUCE_VERSION, &produced);
            CHECK_INT(answer_of(&produced)->error_code, 0);
        }
        finish();
    }
}

static void *send_produces(void *argument)
{
    enum { PRODUCES = 100, VALUE_BYTES = 50000 };
    static uint8_t large[VALUE_BYTES + 200];
    size_t length = mini_batch(large, sizeof large, 1, VALUE_BYTES);
    for (int32_t i = 0; i < PRODUCES; i++)
        mini_client_send_produce(argument, PRODUCE_VERSION, 1, "unknown", 0, large, length);
    return NULL;
}

TEST(answers_that_nobody_reads_keep_no_requests)
{
    enum { BATCHES = 10, ANSWER_BYTES = 8 << 20 }; /* more than the sockets take */
    for (int b = 0; b < 2; b++) {
        begin(backends[b]);
        for (int i = 0; i < BATCHES; i++)
            produce("t", LARGE_BYTES, 0);
        /* Of this answer nothing is read. */
        int small = 4096;
        CHECK_INT(setsockopt(clients[0].fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
        mini_client_send_fetch_of(&clients[0], 12, "t", 0, 0, ANSWER_BYTES);
        pthread_t sender;
        CHECK_INT(pthread_create(&sender, NULL, send_produces, &clients[0]), 0);
        usleep(300000);
        produce("t", 100, 0);
        CHECK_INT(shutdown(clients[0].fd, SHUT_RDWR), 0);
        CHECK_INT(pthread_join(sender, NULL), 0);
        finish();
    }
}

TEST(batches_that_are_rewritten_take_what_they_need)
{
    enum { PRODUCES = 40 };
    for (int b = 0; b < 2; b++) {
        memset(&it, 0, sizeof it);
        it.config = default_config();
        it.config.compression = PB_COMPRESSION_ZSTD;
        it.config.max_message_bytes = INT32_MAX;
        it.buffer_budget_bytes = BUDGET_BYTES;
        open_broker(&it, backends[b], 1);
        start_serving(&it);
        mini_client client;
        open_client(&client);
        size_t length = mini_batch(batch, sizeof batch, 1, 300);
        pb_writer frames;
        pb_writer_init(&frames, 1 << 20);
        for (int32_t i = 0; i < PRODUCES; i++) {
            pb_writer frame;
            mini_encode_produce(&frame, i, PRODUCE_VERSION, 1, "t", 0, batch, length);
            pb_write_raw(&frames, frame.data, frame.length);
            pb_writer_free(&frame);
        }
        mini_client_send_raw(&client, frames.data, frames.length);
        pb_writer_free(&frames);
        for (int i = 0; i < PRODUCES; i++) {
            pb_produce_response produced;
            mini_client_receive_produce(&client, PRODUCE_VERSION, &produced);
            CHECK_INT(answer_of(&produced)->error_code, 0);
            CHECK_INT(answer_of(&produced)->base_offset, i);
        }
        mini_client_close(&client);
        stop(&it);
    }
}

/* A batch of one record that no codec makes smaller. */
static size_t make_noise(size_t value_bytes)
{
    size_t length = mini_batch(batch, sizeof batch, 1, value_bytes);
    uint64_t noise = 88172645463325252u;
    for (size_t i = length - 1 - value_bytes; i < length - 1; i++) {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        batch[i] = (uint8_t)noise;
    }
    pb_batch_header header;
    CHECK_INT(pb_batch_parse(batch, length, &header), 0);
    pb_batch_write(batch, &header);
    return length;
}

TEST(batches_that_were_rewritten_wait_for_followers_without_their_memory)
{
    enum { VALUE_BYTES = 45000 };
    static const int32_t replicas[] = {1, 2};
    for (int b = 0; b < 2; b++) {
        memset(&it, 0, sizeof it);
        it.config = default_config();
        it.config.compression = PB_COMPRESSION_ZSTD;
        it.buffer_budget_bytes = BUDGET_BYTES;
        open_broker(&it, backends[b], 1);
        const pb_partition_leadership leadership = {
            .leader_epoch = 1, .replicas = replicas, .isr = replicas, .replica_count = 2, .isr_count = 2};
        start_serving(&it);
        CHECK_INT(pb_partition_lead_replicated(it.partition, &leadership), 0);
        size_t length = make_noise(VALUE_BYTES);
        for (int i = 0; i < CONNECTIONS; i++) {
            pb_partition_state state = {0};
            open_client(&clients[i]);
            mini_client_send_produce(&clients[i], PRODUCE_VERSION, -1, "t", 0, batch, length);
            for (int tries = 0; state.log_end_offset <= i && tries < PATIENCE_S * 100; tries++) {
                usleep(10000); /* as long as it takes to look whether it waits for followers alone */
                pb_partitions_state(&it.partition, 1, &state);
            }
            CHECK_INT(state.log_end_offset, i + 1);
        }
        produce("t", LARGE_BYTES / 2, 0);
        finish();
    }
}

/* Producers send ahead. Those over their quota are not heard for a while, and what they have sent waits with them. */
TEST(throttled_clients_that_have_sent_ahead_leave_their_memory)
{
    static const pb_client_quota nobody = {.client_id_length = -1};
    pb_client_quota quota = {.client_id = "mini", .client_id_length = 4, .produce_bytes_per_second = 1};
    for (int b = 0; b < 2; b++) {
        begin(backends[b]);
        CHECK_INT(pb_broker_set_client_quotas(it.broker, &quota, 1, &nobody, 1, 1000), 0);
        size_t length = mini_batch(batch, sizeof batch, 1, 1000);
        pb_writer frame, frames;
        mini_encode_produce(&frame, 1, PRODUCE_VERSION, 1, "t", 0, batch, length);
        pb_writer_init(&frames, 1 << 20);
        pb_write_raw(&frames, frame.data, frame.length);
        pb_write_raw(&frames, frame.data, frame.length);
        for (int i = 0; i < CONNECTIONS; i++)
            mini_client_send_raw(&clients[i], frames.data, frames.length);
        for (int i = 0; i < CONNECTIONS; i++) {
            pb_produce_response produced;
            mini_client_receive_produce(&clients[i], PRODUCE_VERSION, &produced);
            CHECK_INT(answer_of(&produced)->error_code, 0);
            CHECK(produced.throttle_time_ms > PATIENCE_S * 1000);
        }
        CHECK_INT(pb_broker_set_client_quotas(it.broker, &nobody, 0, &nobody, 1, 1000), 0);
        produce("t", LARGE_BYTES / 2, 0);
        pb_writer_free(&frames);
        pb_writer_free(&frame);
        finish();
    }
}

CHECK_MAIN()
