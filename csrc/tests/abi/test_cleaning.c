/* A pass of the log cleaner over a partition in service. */
#include <errno.h>

#include "server/broker.h"
#include "tests/abi/serving.h"

static const pb_io_ops *usual_ops;
static pb_partition *_Atomic cut_one; /* when a pass has looked at its ends, and synced it */

static void cutting_yield(pb_io *io, bool yield)
{
    pb_partition *partition = cut_one;
    usual_ops->thread_yield_disk(io, yield);
    if (!yield || partition == NULL)
        return;
    cut_one = NULL;
    pb_log_guard guard = pb_partition_guard(partition);
    CHECK_INT(pb_log_truncate(partition->log, &guard, 1, NULL), 0);
}

static int clean(served *it, int64_t *end_offset)
{
    pb_clean_options options = {.upper_offset = INT64_MAX,
                                .now_ms = 1,
                                .map_bytes = 1 << 20,
                                .io_buffer_bytes = 1 << 16,
                                .load_factor_percent = 90,
                                .compression = -1,
                                .compression_level = INT32_MIN};
    pb_clean_result result;
    pb_native_failure failure = {0};
    int rc = pb_partition_clean(it->partition, &options, &result, &failure);
    *end_offset = result.end_offset;
    return rc;
}

static void produce_one(mini_client *client)
{
    uint8_t batch[4096];
    pb_produce_response produced;
    size_t length = mini_batch(batch, sizeof batch, 1, 100);
    mini_client_send_produce(client, 9, 1, "t", 0, batch, length);
    mini_client_receive_produce(client, 9, &produced);
    CHECK_INT(produced.responses[0].partition_responses[0].error_code, 0);
}

/* As a follower is, whose leader has changed. */
TEST(a_partition_that_is_cut_before_a_pass_is_cleaned_another_time)
{
    static pb_io_ops cutting;
    served it = {.config = default_config()};
    mini_client client;
    pb_native_failure failure = {0};
    open_broker(&it, "epoll", 1);
    usual_ops = it.broker->io->ops;
    cutting = *usual_ops;
    cutting.thread_yield_disk = cutting_yield;
    it.broker->io->ops = &cutting;
    start_serving(&it);
    mini_client_open(&client, it.port);
    for (int i = 0; i < 3; i++)
        produce_one(&client);
    mini_client_close(&client);
    CHECK_INT(pb_partition_roll(it.partition, &failure), 0);
    cut_one = it.partition;
    int64_t end_offset;
    CHECK_INT(clean(&it, &end_offset), -EAGAIN);
    CHECK(cut_one == NULL);
    CHECK_INT(end_offset, 0);
    /* What is known of the watermark is above the end now, and does not count. */
    CHECK_INT(pb_partition_roll(it.partition, &failure), 0);
    CHECK_INT(clean(&it, &end_offset), 0);
    CHECK_INT(end_offset, 1);
    pb_broker_end_requests(it.broker);
    pb_broker_stop(it.broker);
    end(&it, 0);
}

/* ---- failures half way ---- */

static bool has_no_room;   /* for another name, until the log is told to have failed */
static bool has_no_handle; /* for a segment that is to be written to */

static int full_rename(pb_io *io, const char *from, const char *to)
{
    bool swaps = strstr(to, ".log.deleted") != NULL;
    return swaps && has_no_room ? -ENOSPC : usual_ops->rename(io, from, to);
}

static int full_open(pb_io *io, const char *path, int flags)
{
    bool goes_on = (flags & PB_OPEN_WRITE) != 0 && strstr(path, ".log") != NULL;
    return goes_on && has_no_handle ? -EMFILE : usual_ops->file_open(io, path, flags);
}

/* With records to clean and to cut off, on a disk that will be full. */
static void serve_full(served *it)
{
    static pb_io_ops full;
    mini_client client;
    pb_native_failure failure = {0};
    *it = (served){.config = default_config()};
    open_broker(it, "epoll", 1);
    usual_ops = it->broker->io->ops;
    full = *usual_ops;
    full.rename = full_rename;
    full.file_open = full_open;
    it->broker->io->ops = &full;
    has_no_room = has_no_handle = false;
    start_serving(it);
    mini_client_open(&client, it->port);
    for (int i = 0; i < 3; i++) {
        produce_one(&client);
        CHECK_INT(pb_partition_roll(it->partition, &failure), 0);
    }
    mini_client_close(&client);
    has_no_room = true;
}

/* Whoever hears of it opens the log again, until there is room: nothing is wrong with the disk. */
static void end_told(served *it)
{
    pb_event event;
    CHECK(pb_log_failed(it->partition->log));
    CHECK(take_event(it, &event));
    CHECK_INT(event.kind, PB_EVENT_OFFLINE);
    CHECK_INT(event.offset, PB_OFFLINE_SYNC);
    CHECK_INT(event.error, -EAGAIN);
    CHECK(!take_event(it, &event));
    pb_broker_end_requests(it->broker);
    pb_broker_stop(it->broker);
    end(it, 0);
}

TEST(a_swap_that_finds_no_room_half_way_is_told)
{
    served it;
    int64_t end_offset;
    serve_full(&it);
    CHECK_INT(clean(&it, &end_offset), -ENOSPC);
    end_told(&it);
}

TEST(a_cut_that_finds_no_file_handle_half_way_is_told)
{
    served it;
    pb_native_failure failure = {0};
    serve_full(&it);
    has_no_handle = true;
    CHECK_INT(pb_partition_truncate(it.partition, 1, &failure), -EMFILE);
    end_told(&it);
}

CHECK_MAIN()
