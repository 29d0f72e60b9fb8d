/* See mini_client.h. Every surprise ends the test. */
#include "tests/support/mini_client.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/support/test_batch.h"
#include "wire/generated/apis.h"
#include "wire/generated/fetch_request.h"
#include "wire/generated/list_offsets_response.h"
#include "wire/generated/produce_request.h"
#include "wire/generated/request_header.h"
#include "wire/generated/response_header.h"

#define ARENA_BYTES (16u << 20)
#define FRAME_BYTES (64u << 20)

void mini_client_open(mini_client *client, int port)
{
    memset(client, 0, sizeof *client);
    client->produce_timeout_ms = 60000;
    pb_arena_init(&client->arena, ARENA_BYTES);
    client->fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(client->fd >= 0);
    CHECK(connect(client->fd, (struct sockaddr *)&address, sizeof address) == 0);
}

void mini_client_close(mini_client *client)
{
    close(client->fd);
    free(client->answer);
    pb_arena_free(&client->arena);
}

void mini_client_send_raw(mini_client *client, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    while (length > 0) {
        ssize_t sent = send(client->fd, at, length, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* the broker has closed: the next receive says so */
        at += sent;
        length -= (size_t)sent;
    }
}

static bool read_all(int fd, void *out, size_t length)
{
    uint8_t *at = out;
    while (length > 0) {
        ssize_t got = recv(fd, at, length, 0);
        if (got < 0 && errno == EINTR) /* with a time limit it is not begun again by itself */
            continue;
        if (got <= 0)
            return false;
        at += got;
        length -= (size_t)got;
    }
    return true;
}

bool mini_client_receive(mini_client *client)
{
    uint32_t size;
    if (!read_all(client->fd, &size, sizeof size))
        return false;
    size = be32toh(size);
    CHECK(size >= 4 && size < FRAME_BYTES);
    uint8_t *answer = realloc(client->answer, size);
    CHECK(answer != NULL);
    client->answer = answer;
    client->answer_length = size;
    return read_all(client->fd, client->answer, size);
}

size_t mini_batch(uint8_t *out, size_t capacity, int count, size_t value_bytes)
{
    size_t position = PB_BATCH_HEADER_BYTES;
    for (int i = 0; i < count; i++) {
        uint8_t head[TEST_RECORD_HEAD_BYTES];
        const size_t head_bytes = test_record_head(head, i, NULL, (int32_t)value_bytes);
        CHECK(position + head_bytes + value_bytes + 1 <= capacity);
        memcpy(out + position, head, head_bytes);
        memset(out + position + head_bytes, 'a' + i % 26, value_bytes);
        position += head_bytes + value_bytes;
        out[position++] = 0; /* no headers */
    }
    test_batch_write_header(out, position, 0, count);
    return position;
}

/* Begin a frame: the size is patched by finish. */
static void begin(pb_writer *writer, int32_t correlation_id, int16_t api_key, int16_t version)
{
    pb_writer_init(writer, FRAME_BYTES);
    pb_write_int32(writer, 0);
    pb_request_header header = {.request_api_key = api_key,
                                .request_api_version = version,
                                .correlation_id = correlation_id,
                                .client_id = pb_slice_of_text("mini")};
    pb_request_header_write(writer, pb_request_header_version(pb_api_find(api_key), version), &header);
}

static void finish(pb_writer *writer)
{
    CHECK_INT(writer->error, 0);
    pb_writer_patch_int32(writer, 0, (int32_t)(writer->length - 4));
}

static void encode_produce(pb_writer *writer, int32_t correlation_id, int16_t version, int16_t acks, const char *topic,
                           int32_t partition, const uint8_t *batch, size_t length, int32_t timeout_ms,
                           const char *transactional_id)
{
    begin(writer, correlation_id, PB_API_PRODUCE, version);
    pb_produce_request_partition_produce_data data = {.index = partition, .records = {batch, (int32_t)length}};
    pb_produce_request_topic_produce_data topic_data = {
        .name = pb_slice_of_text(topic), .partition_data = &data, .partition_data_count = 1};
    pb_produce_request request = {.transactional_id =
                                      transactional_id == NULL ? PB_NULL_SLICE : pb_slice_of_text(transactional_id),
                                  .acks = acks,
                                  .timeout_ms = timeout_ms,
                                  .topic_data = &topic_data,
                                  .topic_data_count = 1};
    CHECK_INT(pb_produce_request_write(writer, version, &request), 0);
    finish(writer);
}

void mini_encode_produce(pb_writer *writer, int32_t correlation_id, int16_t version, int16_t acks, const char *topic,
                         int32_t partition, const uint8_t *batch, size_t length)
{
    encode_produce(writer, correlation_id, version, acks, topic, partition, batch, length, 1000, NULL);
}

static void encode_fetch(pb_writer *writer, int32_t correlation_id, int16_t version, const char *topic,
                         int32_t partition, int64_t offset, int32_t min_bytes, int32_t max_wait_ms, int32_t max_bytes)
{
    begin(writer, correlation_id, PB_API_FETCH, version);
    pb_fetch_request_fetch_partition asked;
    pb_fetch_request_fetch_partition_init(&asked);
    asked.partition = partition;
    asked.fetch_offset = offset;
    asked.partition_max_bytes = max_bytes;
    pb_fetch_request_fetch_topic topic_data = {
        .topic = pb_slice_of_text(topic), .partitions = &asked, .partitions_count = 1};
    pb_fetch_request request;
    pb_fetch_request_init(&request);
    request.max_wait_ms = max_wait_ms;
    request.min_bytes = min_bytes;
    request.max_bytes = 8 << 20;
    request.session_epoch = -1;
    request.topics = &topic_data;
    request.topics_count = 1;
    CHECK_INT(pb_fetch_request_write(writer, version, &request), 0);
    finish(writer);
}

void mini_encode_fetch_request(pb_writer *writer, int32_t correlation_id, int16_t version,
                               const pb_fetch_request *request)
{
    begin(writer, correlation_id, PB_API_FETCH, version);
    CHECK_INT(pb_fetch_request_write(writer, version, request), 0);
    finish(writer);
}

void mini_encode_fetch(pb_writer *writer, int32_t correlation_id, int16_t version, const char *topic, int32_t partition,
                       int64_t offset, int32_t min_bytes, int32_t max_wait_ms)
{
    encode_fetch(writer, correlation_id, version, topic, partition, offset, min_bytes, max_wait_ms, 1 << 20);
}

mini_replica_fetch mini_replica(int32_t replica_id, const char *topic, const uint8_t *topic_id)
{
    return (mini_replica_fetch){.topic = topic,
                                .topic_id = topic_id,
                                .replica_id = replica_id,
                                .broker_epoch = -1,
                                .leader_epoch = -1,
                                .last_fetched_epoch = -1,
                                .known_high_watermark = INT64_MAX,
                                .session_epoch = -1};
}

void mini_encode_replica_fetch(pb_writer *writer, int32_t correlation_id, int16_t version,
                               const mini_replica_fetch *fetch)
{
    begin(writer, correlation_id, PB_API_FETCH, version);
    pb_fetch_request_fetch_partition asked;
    pb_fetch_request_fetch_partition_init(&asked);
    asked.partition = fetch->partition;
    asked.current_leader_epoch = fetch->leader_epoch;
    asked.fetch_offset = fetch->offset;
    asked.last_fetched_epoch = fetch->last_fetched_epoch;
    asked.log_start_offset = fetch->log_start_offset;
    asked.partition_max_bytes = 1 << 20;
    asked.high_watermark = fetch->known_high_watermark;
    pb_fetch_request_fetch_topic topic_data = {.partitions = &asked, .partitions_count = 1};
    if (version < 13)
        topic_data.topic = pb_slice_of_text(fetch->topic);
    else
        memcpy(topic_data.topic_id.bytes, fetch->topic_id, sizeof topic_data.topic_id.bytes);
    pb_fetch_request request;
    pb_fetch_request_init(&request);
    if (version < 15)
        request.replica_id = fetch->replica_id;
    else
        request.replica_state =
            (pb_fetch_request_replica_state){.replica_id = fetch->replica_id, .replica_epoch = fetch->broker_epoch};
    request.max_wait_ms = fetch->max_wait_ms;
    request.min_bytes = 1;
    request.max_bytes = 8 << 20;
    request.session_id = fetch->session_id;
    request.session_epoch = fetch->session_epoch;
    request.topics = &topic_data;
    request.topics_count = fetch->says_nothing ? 0 : 1;
    if (fetch->rack != NULL)
        request.rack_id = pb_slice_of_text(fetch->rack);
    CHECK_INT(pb_fetch_request_write(writer, version, &request), 0);
    finish(writer);
}

static pb_reader open_answer(const uint8_t *answer, size_t length, int16_t api_key, int16_t version, pb_arena *arena)
{
    pb_arena_reset(arena);
    pb_reader reader = pb_reader_of(answer, length);
    pb_response_header header;
    int16_t header_version = pb_response_header_version(pb_api_find(api_key), version);
    CHECK_INT(pb_response_header_read(&reader, header_version, arena, &header), 0);
    return reader;
}

void mini_write_offset(pb_writer *writer, int16_t version, pb_slice topic, int32_t partition, int16_t error,
                       int64_t offset)
{
    pb_list_offsets_response_list_offsets_partition_response data;
    pb_list_offsets_response_list_offsets_partition_response_init(&data);
    data.partition_index = partition;
    data.error_code = error;
    data.offset = offset;
    pb_list_offsets_response_list_offsets_topic_response of_topic;
    pb_list_offsets_response_list_offsets_topic_response_init(&of_topic);
    of_topic.name = topic;
    of_topic.partitions = &data;
    of_topic.partitions_count = 1;
    pb_list_offsets_response response;
    pb_list_offsets_response_init(&response);
    response.topics = &of_topic;
    response.topics_count = 1;
    CHECK_INT(pb_list_offsets_response_write(writer, version, &response), 0);
}

void mini_decode_produce(const uint8_t *answer, size_t length, int16_t version, pb_arena *arena,
                         pb_produce_response *out)
{
    pb_reader reader = open_answer(answer, length, PB_API_PRODUCE, version, arena);
    CHECK_INT(pb_produce_response_read(&reader, version, arena, out), 0);
    CHECK_INT(pb_reader_left(&reader), 0);
}

void mini_decode_fetch(const uint8_t *answer, size_t length, int16_t version, pb_arena *arena, pb_fetch_response *out)
{
    pb_reader reader = open_answer(answer, length, PB_API_FETCH, version, arena);
    CHECK_INT(pb_fetch_response_read(&reader, version, arena, out), 0);
    CHECK_INT(pb_reader_left(&reader), 0);
}

static void send_frame(mini_client *client, pb_writer *writer)
{
    mini_client_send_raw(client, writer->data, writer->length);
    pb_writer_free(writer);
}

void mini_client_send_body(mini_client *client, int16_t api_key, int16_t version, const pb_writer *body)
{
    pb_writer writer;
    begin(&writer, client->next_correlation_id++, api_key, version);
    pb_writer_patch_int32(&writer, 0, (int32_t)(writer.length - 4 + body->length));
    mini_client_send_raw(client, writer.data, writer.length);
    mini_client_send_raw(client, body->data, body->length);
    pb_writer_free(&writer);
}

void mini_client_send_produce(mini_client *client, int16_t version, int16_t acks, const char *topic, int32_t partition,
                              const uint8_t *batch, size_t length)
{
    pb_writer writer;
    encode_produce(&writer, client->next_correlation_id++, version, acks, topic, partition, batch, length,
                   client->produce_timeout_ms, client->transactional_id);
    send_frame(client, &writer);
}

void mini_client_send_fetch(mini_client *client, int16_t version, const char *topic, int32_t partition, int64_t offset,
                            int32_t min_bytes, int32_t max_wait_ms)
{
    pb_writer writer;
    mini_encode_fetch(&writer, client->next_correlation_id++, version, topic, partition, offset, min_bytes,
                      max_wait_ms);
    send_frame(client, &writer);
}

void mini_client_send_fetch_of(mini_client *client, int16_t version, const char *topic, int32_t partition,
                               int64_t offset, int32_t max_bytes)
{
    pb_writer writer;
    encode_fetch(&writer, client->next_correlation_id++, version, topic, partition, offset, 1, 1000, max_bytes);
    send_frame(client, &writer);
}

void mini_client_send_replica_fetch(mini_client *client, int16_t version, const mini_replica_fetch *fetch)
{
    pb_writer writer;
    mini_encode_replica_fetch(&writer, client->next_correlation_id++, version, fetch);
    send_frame(client, &writer);
}

void mini_client_receive_produce(mini_client *client, int16_t version, pb_produce_response *out)
{
    CHECK(mini_client_receive(client));
    mini_decode_produce(client->answer, client->answer_length, version, &client->arena, out);
}

void mini_client_receive_fetch(mini_client *client, int16_t version, pb_fetch_response *out)
{
    CHECK(mini_client_receive(client));
    mini_decode_fetch(client->answer, client->answer_length, version, &client->arena, out);
}
