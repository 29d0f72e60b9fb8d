/* Followers that come into the ISR while the load does not end, and how long the high watermark waits for them. The
 * clock is the test's. */
#include "replica/partition.h"
#include "tests/log/log_fixture.h"
#include "wire/generated/kafka_errors.h"

enum { LEADER = 1, FOLLOWER = 2, SECOND_MS = 1000 };

static int64_t now_ns;
static int told; /* how often, of the follower */

static int64_t told_time(pb_io *io)
{
    (void)io;
    return now_ns;
}

static void on_caught_up(pb_partition *partition, int32_t replica_id)
{
    (void)partition;
    CHECK_INT(replica_id, FOLLOWER);
    told++;
}

typedef struct rig {
    fixture f;
    pb_io_ops ops;
    pb_partition *partition;
} rig;

/* The leader alone is in sync. */
static int lead(rig *it, int32_t joining)
{
    static const int32_t replicas[] = {LEADER, FOLLOWER};
    const pb_leadership leadership = {.leader_epoch = 1,
                                      .replicas = replicas,
                                      .isr = replicas,
                                      .joining = &joining,
                                      .replica_count = 2,
                                      .isr_count = 1,
                                      .joining_count = joining != 0};
    return pb_partition_start_leading_replicas(it->partition, LEADER, &leadership);
}

static void begin(rig *it)
{
    now_ns = INT64_C(1000000000000);
    told = 0;
    fixture_start(&it->f);
    it->ops = *it->f.io->ops;
    it->ops.monotonic_ns = told_time;
    it->f.io->ops = &it->ops;
    const pb_partition_rules rules = {.min_insync_replicas = 1};
    it->partition = pb_partition_create(it->f.io, "t", FIXTURE_TOPIC_ID, 0, it->f.log, &rules);
    it->partition->caught_up = on_caught_up;
    CHECK_INT(lead(it, 0), 0);
}

static void finish(rig *it)
{
    pb_partition_stop_leading(it->partition, PB_KAFKA_NOT_LEADER_OR_FOLLOWER);
    CHECK(pb_partition_take_log(it->partition) == it->f.log);
    pb_partition_release(it->partition);
    fixture_free(&it->f);
}

static void pass_ms(int64_t ms)
{
    now_ns += ms * 1000000;
}

/* One record, as with acks=1: the high watermark after it. */
static int64_t write_record(rig *it)
{
    CHECK(log_append(&it->f, (batch_spec){.value_length = 10, .leader_epoch = 1}) >= 0);
    pb_partition_look_again(it->partition);
    return it->partition->high_watermark;
}

/* The high watermark that the follower is answered. */
static int64_t fetch_at(rig *it, int64_t offset)
{
    const pb_replica_fetch fetch = {.replica_id = FOLLOWER,
                                    .leader_epoch = 1,
                                    .last_fetched_epoch = -1,
                                    .broker_epoch = -1,
                                    .offset = offset,
                                    .now_ns = now_ns};
    pb_partition_ends ends;
    pb_epoch_end diverging;
    CHECK_INT(pb_partition_enter_replica(it->partition, &fetch, true, &ends, &diverging), 0);
    pb_partition_leave(it->partition);
    return ends.high_watermark;
}

/* It fetches what there was at its fetch before, of which the first one says nothing: both times the high watermark has
 * moved on, as the leader's end does. */
static void keep_up(rig *it)
{
    CHECK_INT(write_record(it), 1);
    CHECK_INT(fetch_at(it, 0), 1);
    CHECK_INT(told, 0);
    pass_ms(10);
    CHECK_INT(write_record(it), 2);
    CHECK_INT(fetch_at(it, 1), 2);
    CHECK_INT(told, 1);
}

TEST(a_follower_that_keeps_up_with_a_load_that_does_not_end_joins)
{
    rig it;
    begin(&it);
    keep_up(&it);
    CHECK_INT(lead(&it, FOLLOWER), PB_KAFKA_INELIGIBLE_REPLICA);
    pass_ms(10);
    CHECK_INT(write_record(&it), 2); /* also after the refusal it is waited for, */
    CHECK_INT(fetch_at(&it, 2), 2);  /* and so it gets there */
    CHECK_INT(told, 2);
    CHECK_INT(write_record(&it), 2);
    CHECK_INT(lead(&it, FOLLOWER), 0);
    pass_ms(10 * SECOND_MS);
    CHECK_INT(write_record(&it), 2);
    CHECK_INT(fetch_at(&it, 3), 3);
    CHECK_INT(told, 2);
    finish(&it);
}

TEST(one_that_is_refused_and_stays_away_is_waited_for_a_second)
{
    rig it;
    begin(&it);
    keep_up(&it);
    CHECK_INT(lead(&it, FOLLOWER), PB_KAFKA_INELIGIBLE_REPLICA);
    pass_ms(SECOND_MS - 1);
    CHECK_INT(write_record(&it), 2);
    pass_ms(1);
    CHECK_INT(write_record(&it), 4);
    finish(&it);
}

/* Its broker is fenced, for one. */
TEST(one_that_may_not_join_is_not_waited_for_and_told_of_again_after_a_second)
{
    rig it;
    begin(&it);
    keep_up(&it);
    CHECK_INT(write_record(&it), 2);
    CHECK_INT(lead(&it, 0), 0);
    CHECK_INT(it.partition->high_watermark, 3); /* nothing has to be written for that */
    for (int64_t end = 3; end < 100; end++) {
        pass_ms(10);
        CHECK_INT(fetch_at(&it, end - 1), end);
        CHECK_INT(write_record(&it), end + 1);
    }
    CHECK_INT(told, 1);
    pass_ms(30);
    CHECK_INT(fetch_at(&it, 99), 100);
    CHECK_INT(told, 2);
    finish(&it);
}

TEST(one_whose_fetches_are_further_apart_than_the_wait_is_not_waited_for)
{
    rig it;
    begin(&it);
    for (int64_t end = 1; end < 10; end++) {
        CHECK_INT(write_record(&it), end);
        CHECK_INT(fetch_at(&it, end - 1), end);
        pass_ms(SECOND_MS);
    }
    CHECK_INT(told, 0);
    CHECK_INT(fetch_at(&it, 9), 9); /* but at the high watermark it is told of, as ever */
    CHECK_INT(told, 1);
    finish(&it);
}

TEST(one_that_falls_behind_is_not_told_of)
{
    rig it;
    begin(&it);
    for (int64_t end = 2; end < 100; end += 2) {
        (void)write_record(&it);
        CHECK_INT(write_record(&it), end);
        CHECK_INT(fetch_at(&it, end / 2 - 1), end);
        pass_ms(10);
    }
    CHECK_INT(told, 0);
    finish(&it);
}

CHECK_MAIN()
