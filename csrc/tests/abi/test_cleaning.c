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

/* As a follower is, whose leader has changed. */
TEST(a_partition_that_is_cut_before_a_pass_is_cleaned_another_time)
{
    static uint8_t batch[4096];
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
    size_t length = mini_batch(batch, sizeof batch, 1, 100);
    for (int i = 0; i < 3; i++) {
        pb_produce_response produced;
        mini_client_send_produce(&client, 9, 1, "t", 0, batch, length);
        mini_client_receive_produce(&client, 9, &produced);
        CHECK_INT(produced.responses[0].partition_responses[0].error_code, 0);
    }
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

CHECK_MAIN()
