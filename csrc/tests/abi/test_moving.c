/* Partitions that are refused, whose files fail, and that move to another directory while they are served. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pybroker.h"
#include "tests/check.h"
#include "tests/support/mini_client.h"
#include "wire/generated/kafka_errors.h"

enum { TAG = 42, RECORD_BYTES = 2000 };

/* A broker with one topic `t` of one partition in `<directory>/t-0`. */
typedef struct served {
    char directory[64];
    pb_broker *broker;
    pb_partition *partition;
    mini_client client;
    int32_t port;
} served;

static const uint8_t topic_id[16] = {7};
static uint8_t batch[1 << 16];

static void run(const char *format, const char *directory)
{
    char command[512];
    /* NOLINTNEXTLINE(clang-diagnostic-format-nonliteral): literals of this file */
    snprintf(command, sizeof command, format, directory, directory);
    CHECK_INT(system(command), 0);
}

static void serve(served *it)
{
    memset(it, 0, sizeof *it);
    strcpy(it->directory, "/tmp/pb-moving-XXXXXX");
    CHECK(mkdtemp(it->directory) != NULL);
    pb_broker_options options = {
        .backend = "epoll",
        .node_id = 1,
        .reactor_count = 1,
        .buffer_budget_bytes = 64 << 20,
        .max_request_bytes = 100 << 20,
        .max_connections = 100,
        .connections_max_idle_ms = 600000,
        .fetch_session_slots = 100,
        .fetch_max_bytes = 55 << 20,
    };
    pb_native_failure failure = {0};
    CHECK_INT(pb_broker_open(&options, &it->broker, &failure), 0);
    pb_api_range apis[] = {{0, 3, 13}, {1, 4, 18}};
    CHECK_INT(pb_broker_serve_apis(it->broker, apis, 2), 0);
    char path[128];
    snprintf(path, sizeof path, "%s/t-0", it->directory);
    pb_partition_options partition = {
        .topic = "t",
        .topic_id = topic_id,
        .directory = path,
        .clean = 1,
        .log_start_offset = -1,
        .tag = TAG,
        .config = {.segment_bytes = 20000,
                   .segment_ms = 7LL * 24 * 3600 * 1000,
                   .segment_index_bytes = 10 << 20,
                   .index_interval_bytes = 100,
                   .producer_expiration_ms = 86400000,
                   .flush_messages = INT64_MAX,
                   .flush_ms = INT64_MAX,
                   .timestamp_before_max_ms = INT64_MAX,
                   .timestamp_after_max_ms = INT64_MAX,
                   .max_message_bytes = 1 << 20,
                   .min_insync_replicas = 1,
                   .compression = -1,
                   .compression_level = INT32_MIN},
    };
    pb_partition_recovery recovery;
    CHECK_INT(pb_partition_open(it->broker, &partition, &it->partition, &recovery, &failure), 0);
    CHECK_INT(pb_partition_lead(it->partition, 0), 0);
    CHECK_INT(pb_broker_listen(it->broker, "PLAINTEXT", "127.0.0.1", 0, &it->port, &failure), 0);
    CHECK_INT(pb_broker_start(it->broker, &failure), 0);
    mini_client_open(&it->client, it->port);
}

static void stop(served *it, int clean)
{
    pb_native_failure failure = {0};
    mini_client_close(&it->client);
    pb_broker_stop(it->broker);
    CHECK_INT(pb_partition_resign(it->partition, 0), 0);
    CHECK_INT(pb_partition_close(it->partition, clean, &failure), 0);
    pb_broker_close(it->broker);
    run("rm -r %s", it->directory);
}

/* The error code of one produce. */
static int produce(served *it)
{
    pb_produce_response produced;
    size_t length = mini_batch(batch, sizeof batch, 1, RECORD_BYTES);
    mini_client_send_produce(&it->client, 9, 1, "t", 0, batch, length);
    mini_client_receive_produce(&it->client, 9, &produced);
    return produced.responses[0].partition_responses[0].error_code;
}

/* The error code of one fetch; *length gets the bytes that came. */
static int fetch(served *it, int64_t offset, int32_t *length)
{
    pb_fetch_response fetched;
    mini_client_send_fetch(&it->client, 12, "t", 0, offset, 1, 100);
    mini_client_receive_fetch(&it->client, 12, &fetched);
    *length = fetched.responses[0].partitions[0].records.length;
    return fetched.responses[0].partitions[0].error_code;
}

/* The next event has to be about the log. */
static pb_event next_offline(served *it)
{
    pb_event event;
    int32_t count = 0;
    for (int i = 0; i < 500 && count == 0; i++) {
        count = pb_broker_take_events(it->broker, &event, 1);
        if (count == 0)
            usleep(10000);
    }
    CHECK_INT(count, 1);
    CHECK_INT(event.kind, PB_EVENT_OFFLINE);
    CHECK_INT((int64_t)event.handle, TAG);
    return event;
}

TEST(a_refused_partition_answers_with_its_error)
{
    served it;
    serve(&it);
    int32_t length;
    pb_partition *refusing = NULL, *other = NULL;
    CHECK_INT(produce(&it), 0);
    CHECK_INT(pb_partition_refuse(it.broker, "t", topic_id, 0, PB_KAFKA_KAFKA_STORAGE_ERROR, &refusing), 0);
    CHECK_INT(produce(&it), PB_KAFKA_KAFKA_STORAGE_ERROR);
    CHECK_INT(fetch(&it, 0, &length), PB_KAFKA_KAFKA_STORAGE_ERROR);
    static const uint8_t another_id[16] = {8};
    CHECK_INT(pb_partition_refuse(it.broker, "t", another_id, 1, PB_KAFKA_KAFKA_STORAGE_ERROR, &other), -EEXIST);
    CHECK_INT(pb_partition_refuse(it.broker, "t", topic_id, 1, 0, &other), -EINVAL);
    /* The one that can be served again takes its place back. */
    CHECK_INT(pb_partition_lead(it.partition, 1), 0);
    CHECK_INT(produce(&it), 0);
    CHECK_INT(pb_partition_close(refusing, 0, NULL), 0);
    CHECK_INT(produce(&it), 0);
    stop(&it, 1);
}

TEST(a_file_that_was_cut_is_told_once_and_never_sent)
{
    served it;
    serve(&it);
    for (int i = 0; i < 30; i++)
        CHECK_INT(produce(&it), 0);
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_check_files(it.partition, &failure), 0);
    run("truncate -s 3000 %s/t-0/00000000000000000000.log", it.directory);
    int32_t length;
    for (int i = 0; i < 3; i++) {
        CHECK_INT(fetch(&it, 3, &length), PB_KAFKA_KAFKA_STORAGE_ERROR);
        CHECK_INT(length, 0);
    }
    pb_event event = next_offline(&it);
    CHECK_INT(event.offset, PB_OFFLINE_READ);
    CHECK_INT(event.error, -ENODATA);
    CHECK_INT(pb_broker_take_events(it.broker, &event, 1), 0);
    CHECK_INT(pb_partition_check_files(it.partition, &failure), -ESTALE);
    CHECK(strstr(failure.text, "/t-0/00000000000000000000.log has 3000 bytes instead of ") != NULL);
    /* What lies elsewhere is served. */
    CHECK_INT(fetch(&it, 25, &length), 0);
    CHECK(length > RECORD_BYTES);
    CHECK_INT(pb_partition_upkeep(it.partition, 1, 0, &failure), -ESTALE);
    CHECK_INT(produce(&it), PB_KAFKA_KAFKA_STORAGE_ERROR);
    stop(&it, 0);
}

TEST(a_file_that_was_removed_is_named)
{
    served it;
    serve(&it);
    for (int i = 0; i < 30; i++)
        CHECK_INT(produce(&it), 0);
    run("rm %s/t-0/00000000000000000000.log", it.directory);
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_check_files(it.partition, &failure), -ESTALE);
    CHECK(strstr(failure.text, "/t-0/00000000000000000000.log is gone") != NULL);
    stop(&it, 0);
}

TEST(a_roll_looks_at_what_it_seals)
{
    served it;
    serve(&it);
    CHECK_INT(produce(&it), 0);
    run("truncate -s 100 %s/t-0/00000000000000000000.log", it.directory);
    int error = 0;
    for (int i = 0; i < 30 && error == 0; i++) {
        error = produce(&it);
        /* The write behind the cut has made the file as long as it was, with a hole. */
        run("truncate -s 100 %s/t-0/00000000000000000000.log", it.directory);
    }
    CHECK_INT(error, PB_KAFKA_KAFKA_STORAGE_ERROR);
    pb_event event = next_offline(&it);
    CHECK_INT(event.offset, PB_OFFLINE_WRITE);
    CHECK_INT(event.error, -ESTALE);
    stop(&it, 0);
}

typedef struct load {
    served *it;
    int produced;
    _Atomic int stop;
} load;

static void *produce_on(void *context)
{
    load *loading = context;
    served own = *loading->it;
    mini_client_open(&own.client, own.port);
    static uint8_t bytes[4096];
    size_t length = mini_batch(bytes, sizeof bytes, 1, RECORD_BYTES);
    while (!loading->stop) {
        pb_produce_response produced;
        mini_client_send_produce(&own.client, 9, 1, "t", 0, bytes, length);
        mini_client_receive_produce(&own.client, 9, &produced);
        CHECK_INT(produced.responses[0].partition_responses[0].error_code, 0);
        CHECK_INT(produced.responses[0].partition_responses[0].base_offset, loading->produced);
        loading->produced++;
    }
    mini_client_close(&own.client);
    return NULL;
}

/* Copy `from` to `to` while writes are held, and go on there. */
static void move(served *it, const char *from, const char *to)
{
    pb_native_failure failure = {0};
    while (pb_partition_hold(it->partition, &failure) == -EBUSY)
        usleep(1000);
    char command[512], path[128];
    snprintf(path, sizeof path, "%s/%s", it->directory, to);
    CHECK_INT(pb_partition_relocate(it->partition, path, &failure), -ENOENT);
    snprintf(command, sizeof command, "cp -r %s/%s %s", it->directory, from, path);
    CHECK_INT(system(command), 0);
    CHECK_INT(pb_partition_relocate(it->partition, path, &failure), 0);
    snprintf(command, sizeof command, "mv %s/%s %s/%s-delete", it->directory, from, it->directory, from);
    CHECK_INT(system(command), 0);
    pb_partition_unhold(it->partition);
}

TEST(a_partition_moves_while_it_is_served)
{
    served it;
    serve(&it);
    load loading = {.it = &it};
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, produce_on, &loading), 0);
    const char *names[] = {"t-0", "moved", "again"};
    for (int i = 0; i < 2; i++) {
        usleep(50000);
        move(&it, names[i], names[i + 1]);
    }
    usleep(50000);
    loading.stop = 1;
    CHECK_INT(pthread_join(thread, NULL), 0);
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_sync(it.partition, &failure), 0);
    CHECK_INT(pb_partition_upkeep(it.partition, 1, 0, &failure), 0);
    int64_t offset = 0;
    while (offset < loading.produced) {
        int32_t length;
        CHECK_INT(fetch(&it, offset, &length), 0);
        CHECK(length >= RECORD_BYTES);
        offset += length / RECORD_BYTES;
    }
    CHECK_INT(offset, loading.produced);
    stop(&it, 1);
}

TEST(what_is_appended_while_a_log_is_held_is_written_after)
{
    served it;
    serve(&it);
    CHECK_INT(produce(&it), 0);
    CHECK_INT(pb_partition_hold(it.partition, NULL), 0);
    CHECK_INT(pb_partition_upkeep(it.partition, 1, 0, NULL), -EBUSY); /* of the purge */
    size_t length = mini_batch(batch, sizeof batch, 1, RECORD_BYTES);
    mini_client_send_produce(&it.client, 9, 1, "t", 0, batch, length);
    pb_partition_state state = {0};
    for (int i = 0; i < 500 && state.log_end_offset < 2; i++) {
        usleep(10000);
        pb_partitions_state(&it.partition, 1, &state);
    }
    CHECK_INT(state.log_end_offset, 2);
    CHECK_INT(state.high_watermark, 1);
    pb_partition_unhold(it.partition);
    pb_produce_response produced;
    mini_client_receive_produce(&it.client, 9, &produced);
    CHECK_INT(produced.responses[0].partition_responses[0].error_code, 0);
    CHECK_INT(produced.responses[0].partition_responses[0].base_offset, 1);
    stop(&it, 1);
}

CHECK_MAIN()
