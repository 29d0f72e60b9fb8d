/*
 * Helpers for tests of a follower, on top of fetch_leader.h: answer a Fetch in the leader's place, and check the
 * follower's next Fetch. Header only.
 */
#ifndef PB_TESTS_SERVER_FOLLOW_FETCH_ANSWERS_H
#define PB_TESTS_SERVER_FOLLOW_FETCH_ANSWERS_H

#include "tests/server/follow/fetch_leader.h"

static uint8_t records[4 << 20];

/* Answer the last Fetch: partition 0 gets `count` batches of one record each, from offset `base` on, of `epoch`. */
static LEADER_UNUSED void answer_records(leader_rig *it, int64_t base, int32_t epoch, int count, int64_t high_watermark)
{
    pb_fetch_response_partition_data data = leader_data(0, high_watermark);
    data.records = (pb_slice){records, (int32_t)leader_batches(records, 0, sizeof records, base, epoch, count, 1)};
    leader_answer(it, &data, 1);
}

/* Answer the last Fetch with an error for partition 0. */
static LEADER_UNUSED void answer_error(leader_rig *it, int16_t error)
{
    pb_fetch_response_partition_data data = leader_data(0, -1);
    data.error_code = error;
    leader_answer(it, &data, 1);
}

/* Answer the last Fetch: partition 0 diverges, and in the leader's log `epoch` ends at `end_offset`. */
static LEADER_UNUSED void answer_divergence_at(leader_rig *it, int32_t epoch, int64_t end_offset,
                                               int64_t high_watermark)
{
    pb_fetch_response_partition_data data = leader_data(0, high_watermark);
    data.diverging_epoch = (pb_fetch_response_epoch_end_offset){.epoch = epoch, .end_offset = end_offset};
    leader_answer(it, &data, 1);
}

static LEADER_UNUSED void answer_divergence(leader_rig *it, int32_t epoch, int64_t end_offset)
{
    answer_divergence_at(it, epoch, end_offset, 0);
}

/* Check that the next Fetch asks for partition 0 at `offset`, and has `last_epoch` as its last fetched epoch. */
static LEADER_UNUSED void expect_at(leader_rig *it, int64_t offset, int32_t last_epoch)
{
    leader_expect_fetch(it);
    const pb_fetch_request_fetch_partition *named = leader_named(it, 0);
    CHECK(named != NULL);
    CHECK_INT(named->fetch_offset, offset);
    CHECK_INT(named->last_fetched_epoch, last_epoch);
}

/* Check that the next Fetch does not name partition 0, so that the session asks for it as before. */
static LEADER_UNUSED void expect_as_before(leader_rig *it)
{
    leader_expect_fetch(it);
    CHECK(it->fetch.session_epoch > 0 && leader_named(it, 0) == NULL && !leader_forgets(it, 0));
}

/* Start a follower and let it fetch `count` records of epoch 1, the leader's epoch. Records below `high_watermark` are
 * committed. Its next Fetch waits for an answer then. */
static LEADER_UNUSED void start_behind(leader_rig *it, int count, int64_t high_watermark)
{
    leader_start(it, 3, false);
    leader_follow(it, 0, 1);
    expect_at(it, 0, -1);
    answer_records(it, 0, 1, count, high_watermark);
    expect_at(it, count, 1);
}

/* The same with all of these records committed. */
static LEADER_UNUSED void start_with(leader_rig *it, int count)
{
    start_behind(it, count, count);
}

#endif
