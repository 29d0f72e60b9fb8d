/* Partitions that are refused, whose files fail, and that move to another directory while they are served. */
#include <errno.h>
#include <pthread.h>

#include "log/state.h"
#include "server/broker.h"
#include "tests/abi/serving.h"

enum { TAG = 42, RECORD_BYTES = 2000 };

static const uint8_t topic_id[16] = {7};
static uint8_t batch[1 << 16];

static void run(const char *format, const char *directory)
{
    char command[512];
    /* NOLINTNEXTLINE(clang-diagnostic-format-nonliteral): literals of this file */
    snprintf(command, sizeof command, format, directory, directory);
    CHECK_INT(system(command), 0);
}

/* Ten batches a segment. */
static void begin(served *it, mini_client *client)
{
    pb_partition_config config = default_config();
    config.segment_bytes = 20000;
    config.index_interval_bytes = 100;
    serve_with(it, "epoll", 1, &config);
    mini_client_open(client, it->port);
}

static void finish(served *it, mini_client *client, int clean)
{
    mini_client_close(client);
    pb_broker_end_requests(it->broker);
    pb_broker_stop(it->broker);
    end(it, clean);
}

/* The error code of one produce. */
static int produce(mini_client *client)
{
    pb_produce_response produced;
    size_t length = mini_batch(batch, sizeof batch, 1, RECORD_BYTES);
    mini_client_send_produce(client, 9, 1, "t", 0, batch, length);
    mini_client_receive_produce(client, 9, &produced);
    return produced.responses[0].partition_responses[0].error_code;
}

/* The error code of one fetch; *length gets the bytes that came. */
static int fetch(mini_client *client, int64_t offset, int32_t *length)
{
    pb_fetch_response fetched;
    mini_client_send_fetch(client, 12, "t", 0, offset, 1, 100);
    mini_client_receive_fetch(client, 12, &fetched);
    *length = fetched.responses[0].partitions[0].records.length;
    return fetched.responses[0].partitions[0].error_code;
}

/* The next event has to be about the log. */
static pb_event next_offline(served *it)
{
    pb_event event;
    int32_t count = 0;
    for (int i = 0; i < 500 && count == 0; i++) {
        count = take_event(it, &event);
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
    mini_client client;
    begin(&it, &client);
    int32_t length;
    pb_partition *refusing = NULL, *other = NULL;
    CHECK_INT(produce(&client), 0);
    CHECK_INT(pb_partition_refuse(it.broker, "t", topic_id, 0, PB_KAFKA_KAFKA_STORAGE_ERROR, &refusing), 0);
    CHECK_INT(produce(&client), PB_KAFKA_KAFKA_STORAGE_ERROR);
    CHECK_INT(fetch(&client, 0, &length), PB_KAFKA_KAFKA_STORAGE_ERROR);
    static const uint8_t another_id[16] = {8};
    CHECK_INT(pb_partition_refuse(it.broker, "t", another_id, 1, PB_KAFKA_KAFKA_STORAGE_ERROR, &other), -EEXIST);
    CHECK_INT(pb_partition_refuse(it.broker, "t", topic_id, 1, 0, &other), -EINVAL);
    /* The one that can be served again takes its place back. */
    CHECK_INT(pb_partition_lead(it.partition, 1), 0);
    CHECK_INT(produce(&client), 0);
    CHECK_INT(pb_partition_close(refusing, 0, NULL), 0);
    CHECK_INT(produce(&client), 0);
    finish(&it, &client, 1);
}

/* Requests that have found a partition in the registry ask it later, when its handle may be gone. */
TEST(who_has_found_a_partition_before_it_failed_is_told_the_same_as_others)
{
    served it;
    mini_client client;
    begin(&it, &client);
    int32_t length;
    CHECK_INT(produce(&client), 0);
    mini_client_send_fetch(&client, 12, "t", 0, 1, 1, 20000); /* waits for the next record */
    pb_broker_stats stats = {0};
    while (stats.delayed_fetches == 0)
        pb_broker_stats_read(it.broker, &stats);
    pb_partition *found = pb_registry_by_name(&it.broker->registry, "t", 1, 0), *refusing = NULL;
    CHECK(found == it.partition);
    CHECK_INT(pb_partition_refuse(it.broker, "t", topic_id, 0, PB_KAFKA_KAFKA_STORAGE_ERROR, &refusing), 0);
    pb_partition *found_later = pb_registry_by_name(&it.broker->registry, "t", 1, 0);
    CHECK(found_later == refusing);
    CHECK_INT(pb_partition_resign(it.partition, PB_KAFKA_KAFKA_STORAGE_ERROR), 0);
    CHECK_INT(pb_partition_close(it.partition, 0, NULL), 0);
    CHECK_INT(pb_partition_close(refusing, 0, NULL), 0);
    pb_partition *both[] = {found, found_later};
    for (int i = 0; i < 2; i++) {
        pb_partition_ends ends;
        pb_partition_rules rules;
        int32_t epoch;
        CHECK_INT(pb_partition_enter(both[i], -1, false, &ends), PB_KAFKA_KAFKA_STORAGE_ERROR);
        CHECK_INT(pb_partition_admit(both[i], &rules, &epoch), PB_KAFKA_KAFKA_STORAGE_ERROR);
        pb_partition_release(both[i]);
    }
    pb_fetch_response fetched;
    mini_client_receive_fetch(&client, 12, &fetched);
    CHECK_INT(fetched.responses[0].partitions[0].error_code, PB_KAFKA_KAFKA_STORAGE_ERROR);
    open_partition(&it, 0);
    CHECK_INT(fetch(&client, 0, &length), 0);
    finish(&it, &client, 1);
}

TEST(a_file_that_was_cut_is_told_once_and_never_sent)
{
    served it;
    mini_client client;
    begin(&it, &client);
    for (int i = 0; i < 8; i++)
        CHECK_INT(produce(&client), 0);
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_check_files(it.partition, &failure), 0);
    run("truncate -s 12000 %s/t-0/00000000000000000000.log", it.directory);
    int32_t length;
    for (int i = 0; i < 3; i++) {
        CHECK_INT(fetch(&client, 7, &length), PB_KAFKA_KAFKA_STORAGE_ERROR);
        CHECK_INT(length, 0);
    }
    pb_event event = next_offline(&it);
    CHECK_INT(event.offset, PB_OFFLINE_READ);
    CHECK_INT(event.error, -ENODATA);
    CHECK(!take_event(&it, &event));
    /* The look at the files seals the cut segment, and its missing end is damage from then on. */
    CHECK_INT(pb_partition_check_files(it.partition, &failure), 0);
    CHECK_INT(fetch(&client, 7, &length), PB_KAFKA_CORRUPT_MESSAGE);
    CHECK_INT(length, 0);
    /* Records elsewhere are served. */
    pb_fetch_response fetched;
    mini_client_send_fetch_of(&client, 12, "t", 0, 0, 1);
    mini_client_receive_fetch(&client, 12, &fetched);
    CHECK_INT(fetched.responses[0].partitions[0].error_code, 0);
    CHECK(fetched.responses[0].partitions[0].records.length > RECORD_BYTES);
    CHECK_INT(pb_partition_upkeep(it.partition, 1, 0, &failure), 0);
    int notice_count = 0; /* the cut, and the damage that a fetch has met */
    while (take_event(&it, &event)) {
        CHECK_INT(event.kind, PB_EVENT_NOTICE);
        pb_notice_release(event.handle);
        notice_count++;
    }
    CHECK_INT(notice_count, 2);
    CHECK_INT(produce(&client), 0);
    finish(&it, &client, 1);
}

enum finder { FOUND_BY_UPKEEP, FOUND_BY_SCRUB, FINDERS };

static void find_cut(served *it, enum finder by)
{
    pb_native_failure failure = {0};
    pb_partition_scrub_pass pass = {.opened = 1};
    if (by == FOUND_BY_UPKEEP) {
        CHECK_INT(pb_partition_upkeep(it->partition, 1, 0, &failure), 0);
        return;
    }
    CHECK_INT(pb_partition_scrub(it->partition, 1 << 20, &pass, &failure), 0);
    CHECK(pass.done && pass.finding == PB_SCRUB_KIND_NOTHING);
}

/* Makes a log of eight batches whose active segment was opened with them and is cut since. */
static void begin_cut(served *it, mini_client *client)
{
    pb_native_failure failure = {0};
    begin(it, client);
    for (int i = 0; i < 8; i++)
        CHECK_INT(produce(client), 0);
    CHECK_INT(pb_partition_resign(it->partition, 0), 0);
    CHECK_INT(pb_partition_close(it->partition, 1, &failure), 0);
    open_partition(it, 1);
    CHECK_INT(produce(client), 0);
    run("truncate -s 12000 %s/t-0/00000000000000000000.log", it->directory);
}

TEST(a_cut_of_the_active_segment_goes_one_way_whoever_finds_it)
{
    for (enum finder by = 0; by < FINDERS; by++) {
        served it;
        mini_client client;
        begin_cut(&it, &client);
        find_cut(&it, by);
        find_cut(&it, by);
        pb_event event = next_offline(&it);
        CHECK_INT(event.offset, PB_OFFLINE_READ);
        CHECK_INT(event.error, -ENODATA);
        CHECK(!take_event(&it, &event));
        pb_native_failure failure = {0};
        CHECK_INT(pb_partition_check_files(it.partition, &failure), 0);
        /* A kill from now on leaves the log as it is: recovery begins in the new segment. */
        pb_partition_state state;
        pb_partitions_state(&it.partition, 1, &state);
        CHECK_INT(state.recovery_point, 9);
        CHECK_INT(produce(&client), 0);
        finish(&it, &client, 1);
    }
}

TEST(a_cut_log_that_cannot_begin_a_segment_says_so)
{
    served it;
    mini_client client;
    begin_cut(&it, &client);
    pthread_mutex_lock(&it.partition->lock);
    it.partition->log->broken = true;
    pthread_mutex_unlock(&it.partition->lock);
    pb_native_failure failure = {0};
    for (int i = 0; i < 2; i++)
        CHECK_INT(pb_partition_check_files(it.partition, &failure), -ENODATA);
    CHECK(strstr(failure.text, "/t-0/00000000000000000000.log has 12000 bytes instead of ") != NULL);
    pthread_mutex_lock(&it.partition->lock);
    it.partition->log->broken = false;
    pthread_mutex_unlock(&it.partition->lock);
    CHECK_INT(pb_partition_check_files(it.partition, &failure), 0);
    finish(&it, &client, 1);
}

static const pb_io_ops *usual_ops;
static pb_partition *_Atomic cut_one; /* before a read of its files */
static _Atomic int reads_left;

static void cut_before_read(void)
{
    pb_partition *partition = cut_one;
    if (partition == NULL || atomic_fetch_sub(&reads_left, 1) != 0)
        return;
    cut_one = NULL;
    pb_log_guard guard = pb_partition_guard(partition);
    CHECK_INT(pb_log_truncate(partition->log, &guard, 2, NULL), 0);
}

static int64_t cutting_read(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    cut_before_read();
    return usual_ops->file_read(io, file, buffer, length, position);
}

static int cutting_bring_in(pb_io *io, int file, int64_t position, int64_t length)
{
    cut_before_read();
    return usual_ops->file_bring_in(io, file, position, length);
}

static int nothing_resident(pb_io *io, int file, int64_t position, int64_t length)
{
    int rc = usual_ops->file_resident(io, file, position, length);
    return rc < 0 ? rc : 0;
}

/* As a follower is that clients read from. false: the answer was there before so many reads. */
static bool fetch_while_cut(bool cold, int read_index)
{
    static pb_io_ops cutting;
    served it = {.config = default_config()};
    mini_client client;
    it.config.segment_bytes = 20000;
    it.config.index_interval_bytes = 100;
    open_broker(&it, "epoll", 1);
    usual_ops = it.broker->io->ops;
    cutting = *usual_ops;
    cutting.file_read = cutting_read;
    cutting.file_bring_in = cutting_bring_in;
    if (cold)
        cutting.file_resident = nothing_resident;
    it.broker->io->ops = &cutting;
    start_serving(&it);
    mini_client_open(&client, it.port);
    for (int i = 0; i < 30; i++)
        CHECK_INT(produce(&client), 0);
    reads_left = read_index;
    cut_one = it.partition;
    int32_t length;
    int error = fetch(&client, 4, &length);
    CHECK(error == 0 || error == PB_KAFKA_OFFSET_OUT_OF_RANGE);
    bool met = cut_one == NULL;
    cut_one = NULL;
    pb_event event;
    CHECK(!take_event(&it, &event));
    finish(&it, &client, 0);
    return met;
}

TEST(a_cut_beside_a_fetch_is_no_failure)
{
    for (int cold = 0; cold < 2; cold++) {
        int read_index = 0;
        while (fetch_while_cut(cold, read_index))
            read_index++;
        CHECK(read_index > 0);
    }
}

TEST(a_file_that_was_removed_is_named)
{
    served it;
    mini_client client;
    begin(&it, &client);
    for (int i = 0; i < 30; i++)
        CHECK_INT(produce(&client), 0);
    run("rm %s/t-0/00000000000000000000.log", it.directory);
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_check_files(it.partition, &failure), -ESTALE);
    CHECK(strstr(failure.text, "/t-0/00000000000000000000.log is gone") != NULL);
    finish(&it, &client, 0);
}

TEST(a_roll_looks_at_what_it_seals)
{
    served it;
    mini_client client;
    begin(&it, &client);
    CHECK_INT(produce(&client), 0);
    run("truncate -s 100 %s/t-0/00000000000000000000.log", it.directory);
    int error = 0;
    for (int i = 0; i < 30 && error == 0; i++) {
        error = produce(&client);
        /* The write behind the cut has made the file as long as it was, with a hole. */
        run("truncate -s 100 %s/t-0/00000000000000000000.log", it.directory);
    }
    CHECK_INT(error, PB_KAFKA_KAFKA_STORAGE_ERROR);
    pb_event event = next_offline(&it);
    CHECK_INT(event.offset, PB_OFFLINE_WRITE);
    CHECK_INT(event.error, -ESTALE);
    finish(&it, &client, 0);
}

typedef struct load {
    served *it;
    int produced;
    _Atomic int stop;
} load;

static void *produce_on(void *context)
{
    load *loading = context;
    mini_client client;
    mini_client_open(&client, loading->it->port);
    static uint8_t bytes[4096];
    size_t length = mini_batch(bytes, sizeof bytes, 1, RECORD_BYTES);
    while (!loading->stop) {
        pb_produce_response produced;
        mini_client_send_produce(&client, 9, 1, "t", 0, bytes, length);
        mini_client_receive_produce(&client, 9, &produced);
        CHECK_INT(produced.responses[0].partition_responses[0].error_code, 0);
        CHECK_INT(produced.responses[0].partition_responses[0].base_offset, loading->produced);
        loading->produced++;
    }
    mini_client_close(&client);
    return NULL;
}

static int64_t cut_count_of(served *it)
{
    pb_partition_state state = {0};
    pb_partitions_state(&it->partition, 1, &state);
    return state.cut_count;
}

/* Copy `from` to `to` while writes are held, and go on there. */
static void move(served *it, const char *from, const char *to)
{
    pb_native_failure failure = {0};
    while (pb_partition_hold(it->partition, &failure) == -EBUSY)
        usleep(1000);
    char command[512], path[128];
    snprintf(path, sizeof path, "%s/%s", it->directory, to);
    CHECK_INT(pb_partition_relocate(it->partition, path, cut_count_of(it), 1, &failure), -ENOENT);
    snprintf(command, sizeof command, "cp -r %s/%s %s", it->directory, from, path);
    CHECK_INT(system(command), 0);
    CHECK_INT(pb_partition_relocate(it->partition, path, cut_count_of(it) + 1, 1, &failure), -ESTALE);
    CHECK_INT(pb_partition_relocate(it->partition, path, cut_count_of(it), 1, &failure), 0);
    snprintf(command, sizeof command, "mv %s/%s %s/%s-delete", it->directory, from, it->directory, from);
    CHECK_INT(system(command), 0);
    pb_partition_unhold(it->partition);
}

TEST(a_partition_moves_while_it_is_served)
{
    served it;
    mini_client client;
    begin(&it, &client);
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
        CHECK_INT(fetch(&client, offset, &length), 0);
        CHECK(length >= RECORD_BYTES);
        offset += length / RECORD_BYTES;
    }
    CHECK_INT(offset, loading.produced);
    finish(&it, &client, 1);
}

static int64_t durable_offset(served *it)
{
    pb_partition_state state = {0};
    pb_partitions_state(&it->partition, 1, &state);
    return state.durable_offset;
}

static void *sync_it(void *context)
{
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_sync(context, &failure), 0);
    return NULL;
}

/* Only the copy was synced, and it is given up: nothing of it may count, nor a sync that was made of it. */
TEST(what_is_durable_stays_what_it_was_when_a_move_is_undone)
{
    served it;
    mini_client client;
    begin(&it, &client);
    char copy[128];
    snprintf(copy, sizeof copy, "%s/copy", it.directory);
    pb_native_failure failure = {0};
    CHECK_INT(produce(&client), 0);
    CHECK_INT(pb_partition_sync(it.partition, &failure), 0);
    for (int i = 0; i < 30; i++)
        CHECK_INT(produce(&client), 0);
    int64_t before = durable_offset(&it);
    CHECK(before < 31);
    pthread_t thread;
    for (int for_good = 0; for_good < 2; for_good++) {
        while (pb_partition_hold(it.partition, &failure) == -EBUSY)
            usleep(1000);
        run("cp -r %s/t-0 %s/copy", it.directory);
        CHECK_INT(pb_partition_relocate(it.partition, copy, cut_count_of(&it), 0, &failure), 0);
        CHECK_INT(durable_offset(&it), before);
        CHECK_INT(pthread_create(&thread, NULL, sync_it, it.partition), 0);
        usleep(50000);
        CHECK_INT(durable_offset(&it), before);
        if (for_good)
            CHECK_INT(pb_partition_relocate(it.partition, copy, cut_count_of(&it), 1, &failure), 0);
        else
            pb_partition_go_back(it.partition);
        CHECK_INT(durable_offset(&it), for_good ? 32 : before);
        pb_partition_unhold(it.partition);
        CHECK_INT(pthread_join(thread, NULL), 0);
        CHECK_INT(durable_offset(&it), 31 + for_good);
        if (!for_good)
            run("rm -r %s/copy", it.directory);
        before = durable_offset(&it);
        CHECK_INT(produce(&client), 0);
    }
    finish(&it, &client, 1);
}

TEST(what_is_appended_while_a_log_is_held_is_written_after)
{
    served it;
    mini_client client;
    begin(&it, &client);
    CHECK_INT(produce(&client), 0);
    CHECK_INT(pb_partition_hold(it.partition, NULL), 0);
    CHECK_INT(pb_partition_upkeep(it.partition, 1, 0, NULL), -EBUSY); /* of the purge */
    size_t length = mini_batch(batch, sizeof batch, 1, RECORD_BYTES);
    mini_client_send_produce(&client, 9, 1, "t", 0, batch, length);
    pb_partition_state state = {0};
    for (int i = 0; i < 500 && state.log_end_offset < 2; i++) {
        usleep(10000);
        pb_partitions_state(&it.partition, 1, &state);
    }
    CHECK_INT(state.log_end_offset, 2);
    CHECK_INT(state.high_watermark, 1);
    pb_partition_unhold(it.partition);
    pb_produce_response produced;
    mini_client_receive_produce(&client, 9, &produced);
    CHECK_INT(produced.responses[0].partition_responses[0].error_code, 0);
    CHECK_INT(produced.responses[0].partition_responses[0].base_offset, 1);
    finish(&it, &client, 1);
}

CHECK_MAIN()
