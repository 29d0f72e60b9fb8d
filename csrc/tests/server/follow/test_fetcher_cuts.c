/* A follower's log that is not its leader's: where it is cut, and where it begins anew. */
#include "tests/server/follow/fetch_answers.h"

TEST(a_log_is_cut_where_the_leaders_epoch_ends)
{
    leader_rig it;
    start_with(&it, 10);
    answer_divergence(&it, 1, 6); /* the leader's epoch 1 is shorter */
    leader_settle(&it);
    leader_take_events(&it);
    CHECK_INT(it.event_count, 2); /* below the high watermark of 10 that we were told, and that a checkpoint may tell */
    CHECK_INT(it.events[0].what, PB_TELL_CUT);
    CHECK_INT(it.events[0].offset, 6);
    CHECK_INT(it.events[0].tag, 40);
    CHECK_INT(it.events[1].what, PB_TELL_CHECKPOINT);
    CHECK_INT(leader_ends(&it, 0).high_watermark, 6);
    leader_follow(&it, 0, 1);
    expect_at(&it, 6, 1);
    answer_records(&it, 6, 1, 2, 6);
    expect_at(&it, 8, 1);
    leader_stop(&it);
}

/* Apache Kafka's leaders say a high watermark once, also to those that they send back, and nobody writes any more. */
TEST(who_was_sent_back_takes_the_high_watermark_when_its_log_is_let_be)
{
    leader_rig it;
    start_behind(&it, 10, 2);
    answer_divergence_at(&it, 1, 8, 7);
    expect_at(&it, 8, 1);
    CHECK_INT(leader_ends(&it, 0).high_watermark, 2); /* it may be sent back further */
    answer_divergence_at(&it, 1, 6, 5);
    expect_at(&it, 6, 1);
    CHECK_INT(leader_ends(&it, 0).high_watermark, 2);
    leader_answer(&it, NULL, 0);
    expect_as_before(&it);
    CHECK_INT(leader_ends(&it, 0).high_watermark, 5);
    leader_answer(&it, NULL, 0);
    expect_as_before(&it);
    leader_stop(&it);
}

TEST(a_kept_high_watermark_ends_with_its_leader_epoch)
{
    leader_rig it;
    start_behind(&it, 10, 2);
    answer_divergence_at(&it, 1, 8, 7);
    expect_at(&it, 8, 1);
    leader_follow(&it, 0, 2);
    leader_answer(&it, NULL, 0);
    expect_at(&it, 8, 1);
    leader_answer(&it, NULL, 0);
    expect_as_before(&it);
    CHECK_INT(leader_ends(&it, 0).high_watermark, 2);
    leader_stop(&it);
}

TEST(an_epoch_that_only_the_follower_has_goes_step_by_step)
{
    leader_rig it;
    start_with(&it, 4);
    answer_records(&it, 4, 3, 4, 4); /* a later epoch than followed: not taken */
    leader_settle(&it);
    CHECK_INT(leader_ends(&it, 0).log_end_offset, 4);
    leader_expect_fetch(&it);
    leader_follow(&it, 0, 6);
    leader_answer(&it, NULL, 0);
    expect_at(&it, 4, 1);
    answer_records(&it, 4, 3, 4, 4);
    expect_at(&it, 8, 3);
    answer_records(&it, 8, 5, 2, 4);
    expect_at(&it, 10, 5);
    /* KIP-279: the leader has 1 (0..9) and 4; of our 3 and 5 it knows nothing, and its 4 we have not got. */
    answer_divergence(&it, 4, 12);
    expect_at(&it, 8, 3);
    answer_divergence(&it, 1, 9);
    expect_at(&it, 4, 1);
    leader_take_events(&it);
    CHECK_INT(it.event_count, 0); /* nothing below the high watermark has gone */
    answer_records(&it, 4, 1, 5, 9);
    expect_at(&it, 9, 1);
    leader_stop(&it);
}

TEST(an_epoch_that_a_leader_wrote_nothing_in_is_forgotten)
{
    leader_rig it;
    start_with(&it, 3);
    leader_quiesce(&it, it.partitions[0]);
    pb_partition_stop_following(it.partitions[0]);
    pb_partition_start_leading(it.partitions[0], 2);
    leader_follow(&it, 0, 3);
    leader_answer(&it, NULL, 0);
    expect_at(&it, 3, 2);
    answer_divergence(&it, 1, 3);
    expect_at(&it, 3, 1);
    leader_take_events(&it);
    CHECK_INT(it.event_count, 0);
    leader_stop(&it);
}

TEST(a_leader_that_ends_below_has_the_log_cut_there)
{
    leader_rig it;
    start_with(&it, 10);
    answer_error(&it, PB_KAFKA_OFFSET_OUT_OF_RANGE);
    CHECK_INT(leader_request(&it), PB_API_LIST_OFFSETS);
    CHECK_INT(it.offsets.replica_id, 1);
    CHECK_INT(it.offsets.topics[0].partitions[0].timestamp, -1);
    CHECK_INT(it.offsets.topics[0].partitions[0].current_leader_epoch, 1);
    leader_answer_offset(&it, 0, 7);
    leader_settle(&it);
    leader_take_events(&it);
    CHECK_INT(it.events[0].what, PB_TELL_CUT);
    leader_follow(&it, 0, 1);
    expect_at(&it, 7, 1);
    leader_stop(&it);
}

TEST(a_leader_that_begins_above_has_the_log_begin_anew)
{
    leader_rig it;
    start_with(&it, 10);
    answer_error(&it, PB_KAFKA_OFFSET_OUT_OF_RANGE);
    CHECK_INT(leader_request(&it), PB_API_LIST_OFFSETS);
    leader_answer_offset(&it, 0, 90);
    CHECK_INT(leader_request(&it), PB_API_LIST_OFFSETS);
    CHECK_INT(it.offsets.topics[0].partitions[0].timestamp, -2);
    leader_answer_offset(&it, 0, 60);
    expect_at(&it, 60, -1);
    pb_partition_ends ends = leader_ends(&it, 0);
    CHECK_INT(ends.log_start_offset, 60);
    CHECK_INT(ends.high_watermark, 60);
    CHECK_INT(ends.size_bytes, 0);
    leader_take_events(&it);
    CHECK_INT(it.event_count, 1);
    CHECK_INT(it.events[0].what, PB_TELL_RESTARTED);
    CHECK_INT(it.events[0].offset, 60);
    answer_records(&it, 60, 1, 5, 65);
    expect_at(&it, 65, 1);
    CHECK_INT(leader_ends(&it, 0).high_watermark, 65);
    leader_stop(&it);
}

/* Records up to 62 were deleted, and the batch that 62 lies in has five from 60 on. */
static void answer_from_inside(leader_rig *it)
{
    pb_fetch_response_partition_data data = leader_data(0, 67);
    size_t length = leader_batches(records, 0, sizeof records, 60, 1, 1, 5);
    length = leader_batches(records, length, sizeof records, 65, 1, 1, 2);
    data.log_start_offset = 62;
    data.records = (pb_slice){records, (int32_t)length};
    leader_answer(it, &data, 1);
}

TEST(a_leader_that_begins_inside_of_a_batch_has_the_log_begin_with_it)
{
    for (int durable = 0; durable < 2; durable++) {
        leader_rig it;
        leader_start(&it, 3, durable);
        leader_follow(&it, 0, 1);
        expect_at(&it, 0, -1);
        answer_records(&it, 0, 1, 10, 10);
        expect_at(&it, 10, 1);
        answer_error(&it, PB_KAFKA_OFFSET_OUT_OF_RANGE);
        CHECK_INT(leader_request(&it), PB_API_LIST_OFFSETS);
        leader_answer_offset(&it, 0, 67);
        CHECK_INT(leader_request(&it), PB_API_LIST_OFFSETS);
        leader_answer_offset(&it, 0, 62);
        expect_at(&it, 62, -1);
        answer_from_inside(&it);
        leader_settle(&it);
        CHECK_INT(atomic_load(&it.partitions[0]->following.state), PB_FOLLOWING_STANDS);
        leader_take_events(&it);
        CHECK_INT(it.event_count, 2);
        CHECK_INT(it.events[0].what, PB_TELL_RESTARTED);
        CHECK_INT(it.events[0].offset, 62);
        CHECK_INT(it.events[1].what, PB_TELL_CHECKPOINT);
        CHECK_INT(leader_ends(&it, 0).recovery_point, 60); /* what the checkpoint will say */
        CHECK_INT(leader_ends(&it, 0).log_end_offset, 62);
        leader_follow(&it, 0, 1);
        expect_at(&it, 62, -1);
        CHECK_INT(leader_named(&it, 0)->log_start_offset, 62);
        answer_from_inside(&it);
        expect_at(&it, 67, 1);
        CHECK_INT(leader_ends(&it, 0).log_start_offset, 62);
        CHECK_INT(leader_ends(&it, 0).high_watermark, 67);
        leader_take_events(&it);
        CHECK_INT(it.event_count, 2);
        answer_records(&it, 65, 1, 3, 68); /* no longer empty: what it has is passed over */
        expect_at(&it, 68, 1);
        leader_stop(&it);
    }
}

TEST(a_log_of_which_nothing_counts_begins_with_that_batch_too)
{
    for (int durable = 0; durable < 2; durable++) {
        leader_rig it;
        leader_start(&it, 3, durable);
        leader_follow(&it, 0, 1);
        expect_at(&it, 0, -1);
        answer_records(&it, 0, 1, 62, 40);
        expect_at(&it, 62, 1);
        answer_from_inside(&it);
        leader_settle(&it);
        leader_take_events(&it);
        CHECK_INT(leader_ends(&it, 0).log_start_offset, 62);
        CHECK_INT(it.event_count, durable);
        if (durable) { /* else there is no recovery point above */
            CHECK_INT(it.events[0].what, PB_TELL_CHECKPOINT);
            leader_follow(&it, 0, 1);
        }
        expect_at(&it, 62, -1);
        answer_from_inside(&it);
        expect_at(&it, 67, 1);
        leader_stop(&it);
    }
}

/* Our log begins no higher than its high watermark, whatever the leader says of its own. */
TEST(a_log_that_counts_begins_with_no_other_batch)
{
    leader_rig it;
    start_with(&it, 62);
    pb_fetch_response_partition_data data = leader_data(0, 40); /* less than where it says that it begins */
    data.log_start_offset = 62;
    data.records = (pb_slice){records, (int32_t)leader_batches(records, 0, sizeof records, 60, 1, 1, 5)};
    pb_partition *partition = it.partitions[0];
    partition->high_watermark = 40;
    partition->following.leader_high_watermark = 40;
    leader_answer(&it, &data, 1);
    expect_at(&it, 62, 1);
    CHECK_INT(leader_named(&it, 0)->log_start_offset, 40);
    leader_take_events(&it);
    CHECK_INT(it.event_count, 1);
    CHECK_INT(it.events[0].what, PB_TELL_CORRUPT);
    leader_stop(&it);
}

/* A follower whose log ends at 5, where 3 is known to be committed, and a leader whose batch of five begins at `base`.
 */
static void answer_across_the_end(leader_rig *it, int64_t base)
{
    start_behind(it, 5, 3);
    pb_fetch_response_partition_data data = leader_data(0, 8);
    data.records = (pb_slice){records, (int32_t)leader_batches(records, 0, sizeof records, base, 1, 1, 5)};
    leader_answer(it, &data, 1);
}

TEST(a_log_that_ends_inside_of_the_leaders_batch_gives_up_what_is_not_committed)
{
    leader_rig it;
    answer_across_the_end(&it, 3);
    expect_at(&it, 3, 1);
    CHECK_INT(leader_ends(&it, 0).log_end_offset, 3);
    pb_fetch_response_partition_data data = leader_data(0, 8);
    data.records = (pb_slice){records, (int32_t)leader_batches(records, 0, sizeof records, 3, 1, 1, 5)};
    leader_answer(&it, &data, 1);
    expect_at(&it, 8, 1);
    CHECK_INT(leader_ends(&it, 0).high_watermark, 8);
    leader_take_events(&it);
    CHECK_INT(it.event_count, 0);
    leader_stop(&it);
}

TEST(a_log_that_ends_inside_of_the_leaders_batch_keeps_what_is_committed)
{
    leader_rig it;
    answer_across_the_end(&it, 2);
    expect_as_before(&it);
    CHECK_INT(leader_ends(&it, 0).log_end_offset, 5);
    leader_take_events(&it);
    CHECK_INT(it.event_count, 1);
    CHECK_INT(it.events[0].what, PB_TELL_CORRUPT);
    leader_stop(&it);
}

CHECK_MAIN()
