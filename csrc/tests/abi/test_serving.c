/* The data plane from socket to file and back, through pybroker.h alone, on both real backends. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "record/batch.h"
#include "tests/abi/serving.h"
#include "wire/generated/apis.h"
#include "wire/generated/fetch_request.h"
#include "wire/generated/request_header.h"

static uint8_t batch[1 << 20];

TEST(what_is_produced_is_fetched_byte_for_byte)
{
    for (int b = 0; b < 2; b++)
        for (int reactors = 1; reactors <= 2; reactors++) {
            served it;
            serve(&it, backends[b], reactors);
            mini_client client;
            mini_client_open(&client, it.port);
            int64_t next = 0;
            for (int round = 0; round < 20; round++) {
                size_t length = mini_batch(batch, sizeof batch, 1 + round * 10, 1000);
                pb_produce_response produced;
                mini_client_send_produce(&client, 9, -1, "t", 0, batch, length);
                mini_client_receive_produce(&client, 9, &produced);
                CHECK_INT(answer_of(&produced)->error_code, 0);
                CHECK_INT(answer_of(&produced)->base_offset, next);
                pb_fetch_response fetched;
                mini_client_send_fetch(&client, 12, "t", 0, next, 1, 1000);
                mini_client_receive_fetch(&client, 12, &fetched);
                pb_slice records = fetched.responses[0].partitions[0].records;
                CHECK_INT(records.length, (int64_t)length);
                /* Base offset and leader epoch are the broker's; all from the magic on is as it was sent. */
                CHECK(memcmp((const uint8_t *)records.data + 16, batch + 16, length - 16) == 0);
                next += 1 + round * 10;
            }
            mini_client_close(&client);
            stop(&it);
        }
}

TEST(pipelined_produces_are_answered_in_order)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        mini_client client;
        mini_client_open(&client, it.port);
        size_t length = mini_batch(batch, sizeof batch, 3, 300);
        for (int i = 0; i < 500; i++)
            mini_client_send_produce(&client, 9, 1, "t", 0, batch, length);
        for (int i = 0; i < 500; i++) {
            pb_produce_response produced;
            mini_client_receive_produce(&client, 9, &produced);
            CHECK_INT(answer_of(&produced)->error_code, 0);
            CHECK_INT(answer_of(&produced)->base_offset, (int64_t)i * 3);
        }
        mini_client_close(&client);
        stop(&it);
    }
}

TEST(a_client_that_sends_no_more_gets_what_it_asked_for)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        for (int round = 0; round < 20; round++) {
            mini_client client;
            mini_client_open(&client, it.port);
            size_t length = mini_batch(batch, sizeof batch, 1, 300);
            for (int i = 0; i < 10; i++)
                mini_client_send_produce(&client, 9, 1, "t", 0, batch, length);
            mini_client_send_fetch(&client, 12, "t", 0, 10 * (round + 1), 1, 50); /* waits at the end of the log */
            CHECK_INT(shutdown(client.fd, SHUT_WR), 0);
            for (int i = 0; i < 10; i++) {
                pb_produce_response produced;
                mini_client_receive_produce(&client, 9, &produced);
                CHECK_INT(answer_of(&produced)->base_offset, 10 * round + i);
            }
            pb_fetch_response fetched;
            mini_client_receive_fetch(&client, 12, &fetched);
            CHECK_INT(fetched.responses[0].partitions[0].error_code, 0);
            uint8_t byte;
            CHECK_INT(read(client.fd, &byte, 1), 0);
            mini_client_close(&client);
        }
        stop(&it);
    }
}

TEST(a_fetch_waits_for_a_produce_from_another_connection)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 2);
        mini_client reader, writer;
        mini_client_open(&reader, it.port);
        mini_client_open(&writer, it.port);
        for (int i = 0; i < 50; i++) {
            mini_client_send_fetch(&reader, 12, "t", 0, i, 1, 30000);
            size_t length = mini_batch(batch, sizeof batch, 1, 10);
            mini_client_send_produce(&writer, 9, 1, "t", 0, batch, length);
            pb_fetch_response fetched;
            mini_client_receive_fetch(&reader, 12, &fetched);
            CHECK_INT(fetched.responses[0].partitions[0].records.length, (int64_t)length);
            pb_produce_response produced;
            mini_client_receive_produce(&writer, 9, &produced);
        }
        /* A reader that leaves while it waits holds nothing back. */
        mini_client_send_fetch(&reader, 12, "t", 0, 50, 1, 30000);
        mini_client_close(&reader);
        mini_client_close(&writer);
        stop(&it);
    }
}

/* A sessionless Fetch v12 of t-0 from each of the offsets, in one request. */
static void send_repeated_fetch(mini_client *reader, const int64_t *offsets, int32_t count)
{
    pb_writer writer;
    pb_writer_init(&writer, 1 << 16);
    pb_write_int32(&writer, 0);
    pb_request_header header = {.request_api_key = PB_API_FETCH, .request_api_version = 12};
    pb_request_header_write(&writer, pb_request_header_version(pb_api_find(PB_API_FETCH), 12), &header);
    pb_fetch_request_fetch_partition asked[8];
    CHECK(count <= 8);
    for (int32_t i = 0; i < count; i++) {
        pb_fetch_request_fetch_partition_init(&asked[i]);
        asked[i].fetch_offset = offsets[i];
        asked[i].partition_max_bytes = 1 << 20;
    }
    pb_fetch_request_fetch_topic topics[] = {
        {.topic = pb_slice_of_text("t"), .partitions = asked, .partitions_count = 1},
        {.topic = pb_slice_of_text("t"), .partitions = asked + 1, .partitions_count = count - 1},
    };
    pb_fetch_request request;
    pb_fetch_request_init(&request);
    request.max_bytes = 8 << 20;
    request.session_epoch = -1;
    request.topics = topics;
    request.topics_count = 2;
    CHECK_INT(pb_fetch_request_write(&writer, 12, &request), 0);
    pb_writer_patch_int32(&writer, 0, (int32_t)(writer.length - 4));
    mini_client_send_raw(reader, writer.data, writer.length);
    pb_writer_free(&writer);
}

/* As Kafka, which keeps them in a map. */
TEST(a_partition_that_a_fetch_names_again_is_answered_once_and_as_named_last)
{
    served it;
    serve(&it, "epoll", 1);
    mini_client reader;
    mini_client_open(&reader, it.port);
    for (int i = 0; i < 5; i++) {
        size_t length = mini_batch(batch, sizeof batch, 1, 10);
        mini_client_send_produce(&reader, 9, 1, "t", 0, batch, length);
        pb_produce_response produced;
        mini_client_receive_produce(&reader, 9, &produced);
    }
    const int64_t offsets[] = {0, 1, 2, 9, 3};
    send_repeated_fetch(&reader, offsets, 5);
    pb_fetch_response fetched;
    mini_client_receive_fetch(&reader, 12, &fetched);
    CHECK_INT(fetched.responses_count, 1);
    CHECK_INT(fetched.responses[0].partitions_count, 1);
    const pb_fetch_response_partition_data *answer = &fetched.responses[0].partitions[0];
    CHECK_INT(answer->error_code, 0);
    pb_batch_header first;
    CHECK_INT(pb_batch_parse(answer->records.data, (size_t)answer->records.length, &first), 0);
    CHECK_INT(first.base_offset, 3);
    mini_client_close(&reader);
    stop(&it);
}

TEST(errors_are_kafkas)
{
    served it;
    serve(&it, "epoll", 1);
    mini_client client;
    mini_client_open(&client, it.port);
    pb_produce_response produced;
    size_t length = mini_batch(batch, sizeof batch, 1, 10);
    mini_client_send_produce(&client, 9, 1, "absent", 0, batch, length);
    mini_client_receive_produce(&client, 9, &produced);
    CHECK_INT(answer_of(&produced)->error_code, PB_KAFKA_UNKNOWN_TOPIC_OR_PARTITION);
    batch[length - 1] ^= 1;
    mini_client_send_produce(&client, 9, 1, "t", 0, batch, length);
    mini_client_receive_produce(&client, 9, &produced);
    CHECK_INT(answer_of(&produced)->error_code, PB_KAFKA_CORRUPT_MESSAGE);
    pb_fetch_response fetched;
    mini_client_send_fetch(&client, 12, "t", 0, 5, 1, 30000);
    mini_client_receive_fetch(&client, 12, &fetched);
    CHECK_INT(fetched.responses[0].partitions[0].error_code, PB_KAFKA_OFFSET_OUT_OF_RANGE);
    mini_client_close(&client);
    stop(&it);
}

TEST(garbage_closes_the_connection_and_is_noticed)
{
    const struct {
        const char *bytes;
        size_t length;
    } cases[] = {{"GET / HTTP/1.1\r\n\r\n", 18},
                 {"\xff\xff\xff\xff", 4},
                 {"\0\0\0\2\0\0", 6},
                 {"\0\0\0\x0a\x7f\0\0\0\0\0\0\0\xff\xff", 14}};
    served it;
    serve(&it, "io_uring", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mini_client client;
        mini_client_open(&client, it.port);
        mini_client_send_raw(&client, cases[i].bytes, cases[i].length);
        CHECK(!mini_client_receive(&client));
        mini_client_close(&client);
        pb_event event;
        CHECK_INT(pb_broker_take_events(it.broker, &event, 1), 1);
        CHECK_INT(event.kind, PB_EVENT_NOTICE);
        pb_notice_release(event.handle);
    }
    stop(&it);
}

static int64_t connections_of(served *it)
{
    pb_broker_stats stats;
    pb_broker_stats_read(it->broker, &stats);
    return stats.connections;
}

/* Whether a client that connects now gets an answer; one that is refused finds its connection closed. */
static bool is_let_in(served *it, mini_client *client)
{
    size_t length = mini_batch(batch, sizeof batch, 1, 10);
    mini_client_open(client, it->port);
    mini_client_send_produce(client, 9, 1, "t", 0, batch, length);
    return mini_client_receive(client);
}

TEST(the_limit_on_connections_changes_while_it_serves)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        mini_client first, second, third;
        pb_broker_limit_connections(it.broker, 1);
        CHECK(is_let_in(&it, &first));
        CHECK(!is_let_in(&it, &second));
        pb_broker_limit_connections(it.broker, 2);
        CHECK(is_let_in(&it, &third));
        CHECK_INT(connections_of(&it), 2);
        mini_client_close(&first);
        mini_client_close(&second);
        mini_client_close(&third);
        stop(&it);
    }
}

TEST(a_client_that_sends_and_leaves_is_served_and_forgotten)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        size_t length = mini_batch(batch, sizeof batch, 1, 10);
        for (int i = 0; i < 5; i++) {
            mini_client client;
            mini_client_open(&client, it.port);
            mini_client_send_produce(&client, 9, 0, "t", 0, batch, length);
            mini_client_close(&client);
        }
        pb_partition_state state = {0};
        for (int i = 0; i < 6000 && (connections_of(&it) > 0 || state.high_watermark < 5); i++) {
            usleep(10000);
            pb_partitions_state(&it.partition, 1, &state);
        }
        CHECK_INT(connections_of(&it), 0);
        CHECK_INT(state.high_watermark, 5);
        stop(&it);
    }
}

TEST(unanswered_produces_do_not_wait_for_each_other)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        mini_client client;
        mini_client_open(&client, it.port);
        size_t length = mini_batch(batch, sizeof batch, 1, 10);
        for (int i = 0; i < 2000; i++)
            mini_client_send_produce(&client, 9, 0, "t", 0, batch, length);
        mini_client_send_produce(&client, 9, 1, "t", 0, batch, length);
        pb_partition_state state;
        for (int i = 0; i < 200; i++) { /* two seconds; held produces once waited a second for each hundred */
            usleep(10000);
            pb_partitions_state(&it.partition, 1, &state);
            if (state.high_watermark == 2001)
                break;
        }
        CHECK_INT(state.high_watermark, 2001);
        pb_produce_response produced;
        mini_client_receive_produce(&client, 9, &produced);
        CHECK_INT(answer_of(&produced)->base_offset, 2000);
        mini_client_close(&client);
        stop(&it);
    }
}

TEST(a_partition_in_error_has_no_ends)
{
    served it;
    serve(&it, "epoll", 1);
    mini_client client;
    mini_client_open(&client, it.port);
    pb_fetch_response fetched;
    mini_client_send_fetch(&client, 12, "t", 0, 5, 1, 30000);
    mini_client_receive_fetch(&client, 12, &fetched);
    const pb_fetch_response_partition_data *data = &fetched.responses[0].partitions[0];
    CHECK_INT(data->error_code, PB_KAFKA_OFFSET_OUT_OF_RANGE);
    CHECK_INT(data->high_watermark, -1);
    CHECK_INT(data->log_start_offset, -1);
    CHECK_INT(data->last_stable_offset, -1);
    mini_client_close(&client);
    stop(&it);
}

/* As if memory had been short: nothing of the partition's segment stays in the page cache. False: the end of it does,
 * as on tmpfs, or where a socket holds on to it. */
static bool forget_pages(const served *it)
{
    char path[160];
    snprintf(path, sizeof path, "%s/t-0/00000000000000000000.log", it->directory);
    int file = open(path, O_RDONLY);
    CHECK(file >= 0);
    CHECK_INT(fdatasync(file), 0);
    CHECK_INT(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
    struct stat status;
    CHECK_INT(fstat(file, &status), 0);
    const size_t page_bytes = 4096;
    size_t page_count = ((size_t)status.st_size + page_bytes - 1) / page_bytes;
    void *pages = mmap(NULL, page_count * page_bytes, PROT_READ, MAP_SHARED, file, 0);
    unsigned char *resident = malloc(page_count);
    CHECK(pages != MAP_FAILED && resident != NULL);
    CHECK_INT(mincore(pages, page_count * page_bytes, resident), 0);
    bool gone = (resident[page_count - 1] & 1) == 0;
    free(resident);
    munmap(pages, page_count * page_bytes);
    close(file);
    return gone;
}

static int64_t cold_reads(const served *it)
{
    pb_broker_stats stats;
    pb_broker_stats_read(it->broker, &stats);
    return stats.cold_reads;
}

enum { HISTORY_BATCHES = 12 };

/* Batches of 900 KB, each of another byte. */
static void produce_history(mini_client *client, uint8_t *sent, size_t *length)
{
    for (int i = 0; i < HISTORY_BATCHES; i++) {
        pb_produce_response produced;
        *length = mini_batch(batch, sizeof batch, 9, 100000);
        batch[*length / 2] = (uint8_t)i;
        pb_batch_header header;
        CHECK_INT(pb_batch_parse(batch, *length, &header), 0);
        pb_batch_write(batch, &header);
        memcpy(sent + (size_t)i * *length, batch, *length);
        mini_client_send_produce(client, 9, 1, "t", 0, batch, *length);
        mini_client_receive_produce(client, 9, &produced);
        CHECK_INT(answer_of(&produced)->error_code, 0);
    }
}

static void check_history(mini_client *client, const uint8_t *sent, size_t length, int index)
{
    pb_fetch_response fetched;
    mini_client_receive_fetch(client, 12, &fetched);
    const pb_fetch_response_partition_data *data = &fetched.responses[0].partitions[0];
    CHECK_INT(data->error_code, 0);
    CHECK(data->records.length >= (int64_t)length);
    CHECK(memcmp((const uint8_t *)data->records.data + 16, sent + (size_t)index * length + 16, length - 16) == 0);
}

TEST(history_that_is_not_in_memory_is_fetched_byte_for_byte)
{
    static uint8_t sent[HISTORY_BATCHES << 20];
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        mini_client client;
        size_t length;
        mini_client_open(&client, it.port);
        produce_history(&client, sent, &length);
        bool is_cold = forget_pages(&it);
        for (int i = 0; i < HISTORY_BATCHES; i++) {
            mini_client_send_fetch(&client, 12, "t", 0, 9 * (int64_t)i, 1, 1000);
            check_history(&client, sent, length, i);
        }
        CHECK(cold_reads(&it) > 0 || !is_cold);
        mini_client_close(&client);
        stop(&it);
    }
}

/* Into the page cache, and no more than that. */
static void read_elsewhere(const served *it, int64_t position, size_t length)
{
    char path[160];
    snprintf(path, sizeof path, "%s/t-0/00000000000000000000.log", it->directory);
    int file = open(path, O_RDONLY);
    uint8_t *bytes = malloc(length);
    CHECK(file >= 0 && bytes != NULL);
    CHECK_INT(posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM), 0);
    CHECK_INT(pread(file, bytes, length, position), (int64_t)length);
    free(bytes);
    close(file);
}

TEST(what_lies_partly_here_partly_in_the_page_cache_is_sent_at_once)
{
    static uint8_t sent[HISTORY_BATCHES << 20];
    for (int b = 0; b < 2; b++) {
        served it;
        pb_partition_config config = default_config();
        config.segment_bytes = 8 << 20;
        serve_with(&it, backends[b], 1, &config);
        mini_client client;
        size_t length;
        mini_client_open(&client, it.port);
        produce_history(&client, sent, &length);
        CHECK(length < 1 << 20 && 2 * length > 1 << 20);
        bool is_cold = forget_pages(&it);
        read_elsewhere(&it, 1 << 20, 3 << 20);
        int64_t before = 0;
        for (int round = 0; round < 3; round++) { /* the batch that lies on both sides of the first MiB */
            before = cold_reads(&it);
            mini_client_send_fetch(&client, 12, "t", 0, 9, 1, 1000);
            check_history(&client, sent, length, 1);
            CHECK(round > 0 || before < cold_reads(&it) || !is_cold);
        }
        CHECK_INT(cold_reads(&it), before);
        mini_client_close(&client);
        stop(&it);
    }
}

enum { SMALL_BATCHES = 60, SMALL_RECORDS = 4 };

/* Batches of 4 KB to 122 KB, so that they leave in each of the ways there are; what was sent of each. */
static void produce_small(mini_client *client, uint8_t **sent, size_t *lengths)
{
    for (size_t i = 0; i < SMALL_BATCHES; i++) {
        pb_produce_response produced;
        lengths[i] = mini_batch(batch, sizeof batch, SMALL_RECORDS, 1000 + 500 * (int)i);
        batch[lengths[i] / 2] = (uint8_t)i;
        pb_batch_header header;
        CHECK_INT(pb_batch_parse(batch, lengths[i], &header), 0);
        pb_batch_write(batch, &header);
        sent[i] = malloc(lengths[i]);
        CHECK(sent[i] != NULL);
        memcpy(sent[i], batch, lengths[i]);
        mini_client_send_produce(client, 9, 1, "t", 0, batch, lengths[i]);
        mini_client_receive_produce(client, 9, &produced);
        CHECK_INT(answer_of(&produced)->error_code, 0);
    }
}

TEST(history_is_fetched_byte_for_byte_in_small_pieces_too)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        mini_client client;
        uint8_t *sent[SMALL_BATCHES];
        size_t lengths[SMALL_BATCHES];
        mini_client_open(&client, it.port);
        produce_small(&client, sent, lengths);
        bool is_cold = forget_pages(&it);
        for (int i = 0; i < 3 * SMALL_BATCHES; i++) { /* from the disk, then from memory */
            size_t one = (size_t)(i % SMALL_BATCHES);
            pb_fetch_response fetched;
            mini_client_send_fetch_of(&client, 12, "t", 0, SMALL_RECORDS * (int64_t)one, 64 << 10);
            mini_client_receive_fetch(&client, 12, &fetched);
            const pb_fetch_response_partition_data *data = &fetched.responses[0].partitions[0];
            CHECK_INT(data->error_code, 0);
            CHECK(data->records.length >= (int64_t)lengths[one]);
            CHECK(memcmp((const uint8_t *)data->records.data + 16, sent[one] + 16, lengths[one] - 16) == 0);
        }
        CHECK(cold_reads(&it) > 0 || !is_cold);
        for (size_t i = 0; i < SMALL_BATCHES; i++)
            free(sent[i]);
        mini_client_close(&client);
        stop(&it);
    }
}

/* Is a slow client sent what memory loses meanwhile, by way of the threads for it? */
static bool is_brought_again(served *it, mini_client *slow, const uint8_t *sent, size_t length)
{
    for (int i = 0; i < HISTORY_BATCHES; i++)
        mini_client_send_fetch(slow, 12, "t", 0, 9 * (int64_t)i, 1, 0);
    usleep(300000); /* until its socket is full, an answer half sent */
    int64_t before = cold_reads(it);
    bool is_cold = forget_pages(it);
    for (int i = 0; i < HISTORY_BATCHES; i++)
        check_history(slow, sent, length, i);
    return cold_reads(it) > before || !is_cold;
}

TEST(what_memory_loses_before_a_slow_client_takes_it_is_brought_in_again)
{
    static uint8_t sent[HISTORY_BATCHES << 20];
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        mini_client client, slow;
        size_t length;
        mini_client_open(&client, it.port);
        mini_client_open(&slow, it.port);
        int small = 64 << 10;
        CHECK_INT(setsockopt(slow.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
        produce_history(&client, sent, &length);
        /* A sendfile that was under way may have the kernel read all of the rest ahead. Where read_ahead_kb was 8192,
         * 20 attempts did not do in 3 of 9 runs. */
        bool again = false;
        for (int attempt = 0; attempt < 150 && !again; attempt++)
            again = is_brought_again(&it, &slow, sent, length);
        CHECK(again);
        mini_client_close(&slow);
        mini_client_close(&client);
        stop(&it);
    }
}

TEST(a_partition_closes_under_a_reader_that_does_not_read)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        mini_client writer, reader;
        mini_client_open(&writer, it.port);
        mini_client_open(&reader, it.port);
        size_t length = mini_batch(batch, sizeof batch, 9, 100000);
        for (int i = 0; i < 2; i++) {
            pb_produce_response produced;
            mini_client_send_produce(&writer, 9, 1, "t", 0, batch, length);
            mini_client_receive_produce(&writer, 9, &produced);
            CHECK_INT(answer_of(&produced)->error_code, 0);
        }
        for (int i = 0; i < 20; i++)
            mini_client_send_fetch(&reader, 12, "t", 0, 0, 1, 0);
        usleep(300000); /* until its socket is full, an answer half sent and a segment pinned */
        pb_native_failure failure = {0};
        CHECK_INT(pb_partition_resign(it.partition, 0), 0);
        CHECK_INT(pb_partition_close(it.partition, 1, &failure), 0);
        pb_fetch_response fetched;
        mini_client_receive_fetch(&reader, 12, &fetched);
        CHECK(fetched.responses[0].partitions[0].records.length > 0);
        mini_client_close(&reader);
        mini_client_close(&writer);
        open_partition(&it, 1);
        stop(&it);
    }
}

/* ---- a disk with less room than its reserve ---- */

static int16_t produce_record(mini_client *client, uint64_t number)
{
    pb_produce_response produced;
    size_t length = mini_batch(batch, sizeof batch, 1, 100 + (int)number);
    mini_client_send_produce(client, 9, 1, "t", 0, batch, length);
    mini_client_receive_produce(client, 9, &produced);
    return produced.responses[0].partition_responses[0].error_code;
}

TEST(below_the_reserve_producers_are_refused_and_nobody_else)
{
    for (int b = 0; b < 2; b++) {
        served it;
        mini_client client;
        pb_event event;
        serve(&it, backends[b], 1);
        mini_client_open(&client, it.port);
        CHECK_INT(produce_record(&client, 0), 0);
        pb_partitions_set_below_reserve(&it.partition, 1, 1);
        CHECK_INT(produce_record(&client, 1), PB_KAFKA_KAFKA_STORAGE_ERROR);
        CHECK_INT(pb_partition_configure(it.partition, &it.config), 0); /* it stays so with other settings */
        CHECK_INT(produce_record(&client, 1), PB_KAFKA_KAFKA_STORAGE_ERROR);
        /* Coordinators append, and markers end transactions. */
        size_t length = mini_batch(batch, sizeof batch, 1, 100);
        CHECK_INT(pb_partition_append(it.partition, batch, length, 5), 0);
        while (!take_event(&it, &event))
            usleep(1000);
        CHECK_INT(event.kind, PB_EVENT_APPENDED);
        CHECK_INT(event.error, 0);
        pb_partition_state state;
        pb_partitions_state(&it.partition, 1, &state);
        CHECK_INT(state.high_watermark, 2);
        pb_partitions_set_below_reserve(&it.partition, 1, 0);
        CHECK_INT(produce_record(&client, 1), 0);
        pb_partitions_state(&it.partition, 1, &state);
        CHECK_INT(state.high_watermark, 3);
        mini_client_close(&client);
        stop(&it);
    }
}

CHECK_MAIN()
