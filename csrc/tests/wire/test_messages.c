/* The generated codecs: hand-made frames, defaults, gaps, versions that cannot hold a value, every cut of a frame. */
#include "tests/check.h"
#include "wire/generated/apis.h"
#include "wire/generated/fetch_request.h"
#include "wire/generated/fetch_response.h"
#include "wire/generated/kafka_errors.h"
#include "wire/generated/produce_request.h"
#include "wire/generated/produce_response.h"
#include "wire/generated/request_header.h"
#include "wire/generated/response_header.h"

#define ARENA_BYTES (1 << 20)

/* Produce v3: no transactional id, acks -1, 30 s, topic "t", partition 2 with records "rec". */
static const uint8_t produce_v3[] = {
    0xff, 0xff, 0xff, 0xff, 0, 0, 0x75, 0x30, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 'r', 'e', 'c',
};

TEST(a_produce_request_is_read_without_copies)
{
    pb_arena arena;
    pb_arena_init(&arena, ARENA_BYTES);
    pb_reader reader = pb_reader_of(produce_v3, sizeof(produce_v3));
    pb_produce_request request;
    CHECK_INT(pb_produce_request_read(&reader, 3, &arena, &request), 0);
    CHECK_INT(pb_reader_left(&reader), 0);
    CHECK(pb_slice_is_null(request.transactional_id));
    CHECK_INT(request.acks, -1);
    CHECK_INT(request.timeout_ms, 30000);
    CHECK_INT(request.topic_data_count, 1);
    CHECK(pb_slice_equal(request.topic_data[0].name, pb_slice_of_text("t")));
    CHECK_INT(request.topic_data[0].partition_data_count, 1);
    CHECK_INT(request.topic_data[0].partition_data[0].index, 2);
    const pb_slice records = request.topic_data[0].partition_data[0].records;
    CHECK_INT(records.length, 3);
    CHECK(records.data == produce_v3 + sizeof(produce_v3) - 3);

    pb_writer writer;
    pb_writer_init(&writer, ARENA_BYTES);
    CHECK_INT(pb_produce_request_write(&writer, 3, &request), 0);
    CHECK_INT(writer.length, sizeof(produce_v3));
    CHECK_MEM(writer.data, produce_v3, sizeof(produce_v3));
    pb_writer_free(&writer);
    pb_arena_free(&arena);
}

TEST(every_cut_of_a_request_is_malformed)
{
    pb_arena arena;
    pb_arena_init(&arena, ARENA_BYTES);
    for (size_t length = 0; length < sizeof(produce_v3); length++) {
        pb_reader reader = pb_reader_of(produce_v3, length);
        pb_produce_request request;
        CHECK_INT(pb_produce_request_read(&reader, 3, &arena, &request), -EBADMSG);
        pb_arena_reset(&arena);
    }
    pb_arena_free(&arena);
}

TEST(a_fetch_response_leaves_gaps_for_sendfile)
{
    pb_fetch_response_partition_data partitions[3];
    for (int i = 0; i < 3; i++) {
        pb_fetch_response_partition_data_init(&partitions[i]);
        partitions[i].partition_index = i;
        partitions[i].records = (pb_slice){NULL, i * 100};
    }
    pb_fetch_response_fetchable_topic_response topic;
    pb_fetch_response_fetchable_topic_response_init(&topic);
    topic.partitions = partitions;
    topic.partitions_count = 3;
    pb_fetch_response response;
    pb_fetch_response_init(&response);
    response.responses = &topic;
    response.responses_count = 1;

    pb_writer writer;
    pb_writer_init(&writer, ARENA_BYTES);
    CHECK_INT(pb_fetch_response_write(&writer, 17, &response), 0);
    CHECK_INT(writer.gap_count, 2);
    CHECK_INT(writer.gaps[0].length, 100);
    CHECK_INT(writer.gaps[1].length, 200);

    /* With the gaps filled it is a whole response. */
    static uint8_t whole[4096];
    size_t taken = 0, length = 0;
    for (size_t i = 0; i < writer.gap_count; i++) {
        memcpy(whole + length, writer.data + taken, writer.gaps[i].position - taken);
        length += writer.gaps[i].position - taken;
        memset(whole + length, 'r', (size_t)writer.gaps[i].length);
        length += (size_t)writer.gaps[i].length;
        taken = writer.gaps[i].position;
    }
    memcpy(whole + length, writer.data + taken, writer.length - taken);
    length += writer.length - taken;
    CHECK_INT(length, writer.length + writer.gap_bytes);

    pb_arena arena;
    pb_arena_init(&arena, ARENA_BYTES);
    pb_reader reader = pb_reader_of(whole, length);
    pb_fetch_response copy;
    CHECK_INT(pb_fetch_response_read(&reader, 17, &arena, &copy), 0);
    CHECK_INT(pb_reader_left(&reader), 0);
    CHECK_INT(copy.responses[0].partitions[2].records.length, 200);
    CHECK_INT(copy.responses[0].partitions[2].preferred_read_replica, -1);
    CHECK_INT(copy.responses[0].partitions[2].current_leader.leader_id, -1);
    CHECK_INT(copy.node_endpoints_count, 0);
    pb_arena_free(&arena);
    pb_writer_free(&writer);
}

TEST(a_value_that_the_version_lacks_is_refused)
{
    uint8_t memory[256];
    pb_writer writer;
    pb_writer_init_fixed(&writer, memory, sizeof(memory), NULL, 0);
    pb_fetch_request request;
    pb_fetch_request_init(&request);
    CHECK_INT(request.max_bytes, INT32_MAX);
    CHECK_INT(request.replica_state.replica_id, -1);
    CHECK_INT(pb_fetch_request_write(&writer, 14, &request), 0);
    pb_writer_reset(&writer);
    request.replica_state.replica_id = 3;
    CHECK_INT(pb_fetch_request_write(&writer, 14, &request), PB_KAFKA_UNSUPPORTED_VERSION);
    pb_writer_reset(&writer);
    CHECK_INT(pb_fetch_request_write(&writer, 15, &request), 0);
    pb_writer_reset(&writer);
    pb_fetch_request_init(&request);
    request.session_id = 9; /* ignorable: an old broker does without */
    CHECK_INT(pb_fetch_request_write(&writer, 6, &request), 0);
}

TEST(headers_and_api_table)
{
    static const uint8_t header_v2[] = {0, 1, 0, 17, 0, 0, 0, 9, 0, 2, 'm', 'e', 0};
    pb_reader reader = pb_reader_of(header_v2, sizeof(header_v2));
    pb_request_header header;
    const pb_api_info *fetch = pb_api_find(PB_API_FETCH);
    CHECK(fetch != NULL);
    CHECK_INT(pb_request_header_read(&reader, pb_request_header_version(fetch, 17), NULL, &header), 0);
    CHECK_INT(pb_reader_left(&reader), 0);
    CHECK_INT(header.correlation_id, 9);
    CHECK(pb_slice_equal(header.client_id, pb_slice_of_text("me")));

    CHECK_INT(fetch->min_version, 4);
    CHECK_INT(fetch->max_version, 18);
    CHECK_INT(pb_request_header_version(fetch, 11), 1);
    CHECK_INT(pb_response_header_version(fetch, 12), 1);
    CHECK_INT(pb_response_header_version(pb_api_find(PB_API_API_VERSIONS), 4), 0);
    CHECK_INT(pb_request_header_version(pb_api_find(PB_API_API_VERSIONS), 4), 2);
    CHECK(pb_api_find(4) == NULL); /* LeaderAndIsr is gone */
    CHECK(pb_api_find(-1) == NULL);
    CHECK(pb_api_find(INT16_MAX) == NULL);
    for (size_t i = 0; i < pb_api_count; i++)
        CHECK(pb_api_find(pb_apis[i].api_key) == &pb_apis[i]);
}

CHECK_MAIN()
