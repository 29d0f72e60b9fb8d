/* Following a leader, rule by rule: a follower of the real code, and a leader that the test plays. */
#include <errno.h>

#include "tests/server/follow/fetch_answers.h"

TEST(a_session_names_what_has_changed_and_no_more)
{
    leader_rig it;
    leader_start(&it, 1, false);
    leader_follow(&it, 0, 5);
    leader_follow(&it, 1, 6);
    leader_expect_fetch(&it);
    CHECK_INT(it.fetch.session_id, 0);
    CHECK_INT(it.fetch.session_epoch, 0);
    CHECK_INT(it.fetch.max_wait_ms, 500);
    CHECK_INT(it.fetch.min_bytes, 1);
    const pb_fetch_request_fetch_partition *named = leader_named(&it, 0);
    CHECK(named != NULL && leader_named(&it, 1) != NULL && leader_named(&it, 2) == NULL);
    CHECK_INT(named->current_leader_epoch, 5);
    CHECK_INT(named->fetch_offset, 0);
    CHECK_INT(named->last_fetched_epoch, -1);
    CHECK_INT(named->log_start_offset, 0);
    CHECK_INT(named->partition_max_bytes, 1 << 19);
    answer_records(&it, 0, 4, 3, 2);
    leader_expect_fetch(&it);
    CHECK_INT(it.fetch.session_id, LEADER_SESSION);
    CHECK_INT(it.fetch.session_epoch, 1);
    CHECK(leader_named(&it, 1) == NULL);
    named = leader_named(&it, 0);
    CHECK(named != NULL);
    CHECK_INT(named->fetch_offset, 3);
    CHECK_INT(named->last_fetched_epoch, 4);
    CHECK_INT(leader_ends(&it, 0).high_watermark, 2);
    leader_answer(&it, NULL, 0);
    leader_expect_fetch(&it);
    CHECK_INT(it.fetch.session_epoch, 2);
    CHECK_INT(it.fetch.topics_count, 0);
    leader_unfollow(&it, 1);
    leader_answer(&it, NULL, 0);
    leader_expect_fetch(&it);
    CHECK(leader_forgets(&it, 1) && !leader_forgets(&it, 0));
    leader_answer(&it, NULL, 0);
    leader_stop(&it);
}

TEST(high_watermark_and_log_start_follow_the_leaders)
{
    leader_rig it;
    start_with(&it, 10);
    CHECK_INT(leader_ends(&it, 0).high_watermark, 10);
    pb_fetch_response_partition_data data = leader_data(0, 50); /* beyond what we have */
    data.log_start_offset = 4;
    leader_answer(&it, &data, 1);
    leader_expect_fetch(&it);
    CHECK_INT(leader_named(&it, 0)->log_start_offset, 4);
    CHECK_INT(leader_ends(&it, 0).high_watermark, 10);
    CHECK_INT(leader_ends(&it, 0).log_start_offset, 4);
    data = leader_data(0, 7);   /* it never goes back */
    data.log_start_offset = 30; /* no further than the high watermark */
    leader_answer(&it, &data, 1);
    leader_expect_fetch(&it);
    CHECK_INT(leader_ends(&it, 0).high_watermark, 10);
    CHECK_INT(leader_ends(&it, 0).log_start_offset, 10);
    leader_stop(&it);
}

TEST(version_18_tells_the_high_watermark)
{
    leader_rig it;
    leader_start(&it, 2, false);
    pb_fetcher_end(it.fetcher);
    leader_open_fetcher(&it, 18);
    leader_follow(&it, 0, 1);
    expect_at(&it, 0, -1);
    CHECK_INT(leader_named(&it, 0)->high_watermark, 0);
    answer_records(&it, 0, 1, 5, 3);
    expect_at(&it, 5, 1);
    CHECK_INT(leader_named(&it, 0)->high_watermark, 3);
    pb_fetch_response_partition_data data = leader_data(0, 5);
    leader_answer(&it, &data, 1);
    expect_at(&it, 5, 1);
    CHECK_INT(leader_named(&it, 0)->high_watermark, 5);
    leader_stop(&it);
}

TEST(an_offset_that_the_leader_has_by_now_is_asked_for_again)
{
    leader_rig it;
    start_with(&it, 10);
    answer_error(&it, PB_KAFKA_OFFSET_OUT_OF_RANGE);
    CHECK_INT(leader_request(&it), PB_API_LIST_OFFSETS);
    leader_answer_offset(&it, PB_KAFKA_NOT_LEADER_OR_FOLLOWER, -1);
    expect_as_before(&it);
    answer_error(&it, PB_KAFKA_OFFSET_OUT_OF_RANGE);
    CHECK_INT(leader_request(&it), PB_API_LIST_OFFSETS);
    leader_answer_offset(&it, 0, 10);
    CHECK_INT(leader_request(&it), PB_API_LIST_OFFSETS);
    leader_answer_offset(&it, 0, 0);
    expect_as_before(&it);
    CHECK_INT(leader_ends(&it, 0).log_end_offset, 10);
    leader_stop(&it);
}

TEST(an_error_of_one_partition_holds_no_other_up)
{
    static const int16_t errors[] = {PB_KAFKA_NOT_LEADER_OR_FOLLOWER, PB_KAFKA_FENCED_LEADER_EPOCH,
                                     PB_KAFKA_UNKNOWN_LEADER_EPOCH, PB_KAFKA_UNKNOWN_TOPIC_ID,
                                     PB_KAFKA_KAFKA_STORAGE_ERROR};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        leader_rig it;
        leader_start(&it, i, false);
        leader_follow(&it, 0, 1);
        leader_follow(&it, 1, 1);
        leader_expect_fetch(&it);
        answer_error(&it, errors[i]);
        leader_expect_fetch(&it); /* at once, for the other one */
        CHECK(leader_forgets(&it, 0) && leader_named(&it, 0) == NULL);
        leader_run(&it, 2 * LEADER_BACKOFF_MS * 1000000LL);
        leader_answer(&it, NULL, 0);
        expect_at(&it, 0, -1);
        answer_records(&it, 0, 1, 2, 2);
        expect_at(&it, 2, 1);
        leader_stop(&it);
    }
}

/* What `spoil` makes of the second of three batches is not taken; what comes before it is. */
static void refuse_spoiled(void (*spoil)(uint8_t *batch, size_t size))
{
    leader_rig it;
    start_with(&it, 5);
    pb_fetch_response_partition_data data = leader_data(0, 8);
    size_t first = leader_batches(records, 0, sizeof records, 5, 1, 1, 1);
    size_t length = leader_batches(records, first, sizeof records, 6, 1, 2, 1);
    spoil(records + first, length - first);
    data.records = (pb_slice){records, (int32_t)length};
    int64_t before_ns = it.io->ops->monotonic_ns(it.io);
    leader_answer(&it, &data, 1);
    expect_at(&it, 6, 1);
    CHECK(it.io->ops->monotonic_ns(it.io) - before_ns >= LEADER_BACKOFF_MS * 1000000LL);
    leader_take_events(&it);
    CHECK_INT(it.event_count, 1);
    CHECK_INT(it.events[0].what, PB_TELL_CORRUPT);
    CHECK_INT(it.events[0].offset, 6);
    answer_records(&it, 6, 1, 2, 8);
    expect_at(&it, 8, 1);
    leader_stop(&it);
}

static void flip_a_bit(uint8_t *batch, size_t size)
{
    (void)size;
    batch[PB_BATCH_HEADER_BYTES + 3] ^= 4;
}

static void set_old_magic(uint8_t *batch, size_t size)
{
    (void)size;
    batch[PB_BATCH_MAGIC_POSITION] = 1;
}

static void set_offset_back(uint8_t *batch, size_t size)
{
    (void)size;
    pb_batch_header header;
    CHECK_INT(pb_batch_parse(batch, size, &header), 0);
    header.last_offset_delta = 3; /* from 4 to 7: half of it we have */
    header.base_offset = 4;
    pb_batch_write(batch, &header);
}

static void set_silly_length(uint8_t *batch, size_t size)
{
    (void)size;
    batch[8] = batch[9] = batch[10] = 0;
    batch[11] = 5;
}

static void set_largest_offset(uint8_t *batch, size_t size)
{
    (void)size;
    pb_batch_set_base_offset(batch, INT64_MAX);
}

static void set_last_offset(uint8_t *batch, size_t size, int64_t base_offset)
{
    pb_batch_header header;
    CHECK_INT(pb_batch_parse(batch, size, &header), 0);
    header.last_offset_delta = INT32_MAX;
    header.base_offset = base_offset;
    pb_batch_write(batch, &header);
}

static void set_largest_delta(uint8_t *batch, size_t size)
{
    set_last_offset(batch, size, 6);
}

static void set_offsets_that_wrap(uint8_t *batch, size_t size)
{
    set_last_offset(batch, size, INT64_MAX);
}

TEST(what_is_no_sound_batch_is_not_taken)
{
    refuse_spoiled(flip_a_bit);
    refuse_spoiled(set_old_magic);
    refuse_spoiled(set_offset_back);
    refuse_spoiled(set_silly_length);
    refuse_spoiled(set_largest_offset);
    refuse_spoiled(set_largest_delta);
    refuse_spoiled(set_offsets_that_wrap);
}

TEST(what_it_has_already_is_passed_over_and_a_cut_batch_comes_again)
{
    leader_rig it;
    start_with(&it, 5);
    pb_fetch_response_partition_data data = leader_data(0, 8);
    size_t length = leader_batches(records, 0, sizeof records, 3, 1, 5, 1);
    data.records = (pb_slice){records, (int32_t)length - 9};
    leader_answer(&it, &data, 1);
    expect_at(&it, 7, 1);
    leader_take_events(&it);
    CHECK_INT(it.event_count, 0);
    leader_stop(&it);
}

TEST(many_small_batches_and_large_answers_arrive_in_order)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        leader_rig it;
        leader_start(&it, seed, seed == 3);
        pb_sim_faults faults = {.short_io = 300000, .delayed_write = 500000};
        pb_sim_set_faults(it.io, &faults);
        leader_follow(&it, 0, 1);
        int64_t end = 0;
        for (int round = 0; round < 4; round++) {
            expect_at(&it, end, end > 0 ? 1 : -1);
            answer_records(&it, end, 1, 3000, end);
            end += 3000;
        }
        expect_at(&it, end, 1);
        CHECK_INT(leader_ends(&it, 0).log_end_offset, end);
        leader_stop(&it);
    }
}

TEST(with_durable_acks_a_fetch_tells_of_nothing_that_is_not_durable)
{
    leader_rig it;
    leader_start(&it, 5, true);
    pb_sim_faults faults = {.delayed_write = 500000};
    pb_sim_set_faults(it.io, &faults);
    leader_follow(&it, 0, 1);
    leader_follow(&it, 1, 1);
    int64_t next[2] = {0, 0};
    for (int round = 0; round < 40; round++) {
        leader_expect_fetch(&it);
        pb_fetch_response_partition_data data[2];
        int count = 0;
        size_t length = 0;
        for (int i = 0; i < 2; i++) {
            const pb_fetch_request_fetch_partition *named = leader_named(&it, i);
            if (named == NULL)
                continue;
            CHECK(named->fetch_offset <= leader_ends(&it, i).durable_offset);
            next[i] = named->fetch_offset;
            size_t before = length;
            length = leader_batches(records, length, sizeof records, next[i], 1, 1 + round % 3, 2);
            data[count] = leader_data(i, next[i]);
            data[count++].records = (pb_slice){records + before, (int32_t)(length - before)};
        }
        leader_answer(&it, data, count);
    }
    CHECK(next[0] > 10 && next[1] > 10);
    leader_stop(&it);
}

TEST(a_log_that_takes_no_more_stands_still_until_it_is_told_to_follow_again)
{
    leader_rig it;
    start_with(&it, 5);
    leader_follow(&it, 1, 1);
    pb_sim_faults faults = {.write_error = 1000000};
    pb_sim_set_faults(it.io, &faults);
    answer_records(&it, 5, 1, 3, 8);
    leader_expect_fetch(&it); /* for the other one */
    CHECK(leader_forgets(&it, 0) && leader_named(&it, 1) != NULL);
    leader_take_events(&it);
    CHECK_INT(it.events[0].what, PB_TELL_STOPPED);
    CHECK_INT(atomic_load(&it.partitions[0]->following.state), PB_FOLLOWING_STANDS);
    pb_sim_faults none = {0};
    pb_sim_set_faults(it.io, &none);
    leader_quiesce(&it, it.partitions[0]);
    pb_failure failure = {0};
    CHECK_INT(pb_partition_mend(it.partitions[0], &failure), 0);
    leader_answer(&it, NULL, 0);
    leader_expect_fetch(&it);
    CHECK(leader_named(&it, 0) == NULL);
    leader_follow(&it, 0, 1);
    leader_answer(&it, NULL, 0);
    leader_expect_fetch(&it);
    CHECK(leader_named(&it, 0)->fetch_offset >= 5);
    leader_stop(&it);
}

/* It may have been cleaned beyond what is known to be durable since it was opened. */
TEST(a_compacted_log_that_is_cut_waits_for_the_cleaners_checkpoint)
{
    leader_rig it;
    leader_start(&it, 5, false);
    pb_log_config config = sim_log_options(it.io, "", 1 << 20, false).config;
    config.compact = true;
    pb_log_configure(it.partitions[0]->log, &config);
    leader_follow(&it, 0, 1);
    expect_at(&it, 0, -1);
    answer_records(&it, 0, 1, 10, 4);
    expect_at(&it, 10, 1);
    CHECK_INT(leader_ends(&it, 0).durable_offset, 0);
    answer_divergence(&it, 1, 6);
    leader_settle(&it);
    leader_take_events(&it);
    CHECK_INT(it.event_count, 1);
    CHECK_INT(it.events[0].what, PB_TELL_CHECKPOINT);
    CHECK_INT(it.events[0].offset, 6);
    CHECK_INT(pb_log_cut_offset(it.partitions[0]->log), 6);
    leader_follow(&it, 0, 1);
    expect_at(&it, 6, 1);
    leader_stop(&it);
}

TEST(a_log_that_is_cut_below_what_was_durable_waits_until_it_is_told_to_follow_again)
{
    leader_rig it;
    leader_start(&it, 5, true);
    leader_follow(&it, 0, 1);
    expect_at(&it, 0, -1);
    answer_records(&it, 0, 1, 10, 4);
    expect_at(&it, 10, 1);
    CHECK_INT(leader_ends(&it, 0).durable_offset, 10);
    leader_follow(&it, 1, 1);
    answer_divergence(&it, 1, 6);
    leader_expect_fetch(&it); /* for the other one */
    leader_answer(&it, NULL, 0);
    leader_expect_fetch(&it);
    leader_quiesce(&it, it.partitions[0]);
    leader_settle(&it);
    leader_take_events(&it);
    CHECK_INT(it.event_count, 1);
    CHECK_INT(it.events[0].what, PB_TELL_CHECKPOINT);
    CHECK_INT(it.events[0].offset, 6);
    CHECK_INT(leader_ends(&it, 0).log_end_offset, 6);
    CHECK(leader_ends(&it, 0).recovery_point <= 6); /* what the checkpoint will say */
    CHECK_INT(atomic_load(&it.partitions[0]->following.state), PB_FOLLOWING_STANDS);
    leader_follow(&it, 0, 1);
    leader_answer(&it, NULL, 0);
    expect_at(&it, 6, 1);
    leader_stop(&it);
}

TEST(a_lost_session_begins_anew_at_once)
{
    static const int16_t errors[] = {PB_KAFKA_FETCH_SESSION_ID_NOT_FOUND, PB_KAFKA_INVALID_FETCH_SESSION_EPOCH};
    for (int i = 0; i < 2; i++) {
        leader_rig it;
        start_with(&it, 5);
        leader_answer_with(&it, errors[i], 0, NULL, 0);
        expect_at(&it, 5, 1);
        CHECK_INT(it.fetch.session_id, 0);
        CHECK_INT(it.fetch.session_epoch, 0);
        leader_answer_with(&it, 0, 0, NULL, 0); /* a leader that keeps no session */
        expect_at(&it, 5, 1);
        CHECK_INT(it.fetch.session_epoch, 0);
        leader_stop(&it);
    }
}

/* What comes instead of an answer, the connection ends, and on a new one all is asked for again. */
static void reconnect_after(void (*spoil)(leader_rig *it))
{
    leader_rig it;
    start_with(&it, 5);
    spoil(&it);
    leader_run(&it, 2LL * (LEADER_TIMEOUT_MS + 500) * 1000000);
    CHECK_INT(leader_frame(&it), -1);
    it.peer = -1;
    expect_at(&it, 5, 1);
    CHECK_INT(it.fetch.session_epoch, 0);
    answer_records(&it, 5, 1, 2, 7);
    expect_at(&it, 7, 1);
    leader_stop(&it);
}

static void hang_up(leader_rig *it)
{
    pb_sim_client_close(it->io, it->peer);
}

static void hang_up_half_way(leader_rig *it)
{
    uint32_t head[2] = {htobe32(5000), 0};
    pb_sim_client_send(it->io, it->peer, head, sizeof head);
    pb_sim_client_close(it->io, it->peer);
}

static void say_nothing(leader_rig *it)
{
    (void)it;
}

static void send_rubbish(leader_rig *it)
{
    pb_writer writer;
    leader_begin(it, &writer);
    for (int i = 0; i < 40; i++)
        pb_write_int8(&writer, (int8_t)0xff);
    leader_send(it, &writer);
}

static void answer_another(leader_rig *it)
{
    it->header.correlation_id += 5;
    leader_answer(it, NULL, 0);
}

static void answer_twice(leader_rig *it)
{
    pb_writer writer;
    leader_begin(it, &writer);
    leader_send(it, &writer);
}

static void answer_for_another_session(leader_rig *it)
{
    leader_answer_with(it, 0, LEADER_SESSION + 1, NULL, 0);
}

static void send_negative_size(leader_rig *it)
{
    uint32_t size = 0xffffffff;
    pb_sim_client_send(it->io, it->peer, &size, sizeof size);
}

TEST(a_leader_that_cannot_be_understood_is_asked_anew)
{
    reconnect_after(hang_up);
    reconnect_after(hang_up_half_way);
    reconnect_after(say_nothing);
    reconnect_after(send_rubbish);
    reconnect_after(answer_another);
    reconnect_after(answer_twice);
    reconnect_after(answer_for_another_session);
    reconnect_after(send_negative_size);
}

TEST(a_leader_that_refuses_is_tried_again_after_backoff)
{
    leader_rig it;
    leader_start(&it, 6, false);
    leader_follow(&it, 0, 1);
    int64_t last_ns = 0;
    for (int i = 0; i < 4; i++) {
        int port;
        for (int step = 0; (it.peer = pb_sim_next_outgoing(it.io, &port)) < 0; step++) {
            CHECK(step < LEADER_STEPS);
            (void)pb_sim_step(it.io);
        }
        int64_t now_ns = it.io->ops->monotonic_ns(it.io);
        CHECK(i == 0 || now_ns - last_ns >= LEADER_BACKOFF_MS * 1000000LL);
        last_ns = now_ns;
        pb_sim_answer_outgoing(it.io, it.peer, false);
    }
    it.peer = -1;
    expect_at(&it, 0, -1);
    leader_stop(&it);
}

TEST(an_answer_that_comes_after_the_ticket_has_ended_changes_nothing)
{
    leader_rig it;
    start_with(&it, 5);
    leader_unfollow(&it, 0);
    leader_settle(&it);
    answer_records(&it, 5, 1, 3, 8);
    leader_settle(&it);
    CHECK_INT(leader_ends(&it, 0).log_end_offset, 5);
    leader_follow(&it, 0, 2); /* the same place at another epoch: what was asked for at the old one is not its */
    leader_expect_fetch(&it);
    leader_follow(&it, 0, 3);
    leader_settle(&it);
    answer_records(&it, 5, 2, 3, 8);
    leader_expect_fetch(&it);
    CHECK_INT(leader_named(&it, 0)->current_leader_epoch, 3);
    CHECK_INT(leader_named(&it, 0)->fetch_offset, 5);
    CHECK(!leader_forgets(&it, 0));
    leader_stop(&it);
}

/* With the same topic id, while the leader takes its time: what it answers is to what the other log had asked for. */
TEST(an_answer_to_a_log_that_was_closed_is_not_for_the_one_opened_in_its_place)
{
    leader_rig it;
    start_with(&it, 100); /* the Fetch for offset 100 is under way */
    leader_unfollow(&it, 0);
    leader_replace_log(&it, 0, "/data/again-0");
    leader_follow(&it, 0, 1);
    answer_records(&it, 100, 1, 10, 110);
    expect_at(&it, 0, -1);
    leader_stop(&it);
}

TEST(a_partition_moves_to_another_fetcher)
{
    leader_rig it;
    start_with(&it, 5);
    pb_fetcher *first = it.fetcher;
    leader_unfollow(&it, 0);
    leader_open_fetcher(&it, 17);
    int peer = it.peer;
    it.peer = -1;
    leader_follow(&it, 0, 2);
    expect_at(&it, 5, 1);
    CHECK_INT(leader_named(&it, 0)->current_leader_epoch, 2);
    pb_sim_client_close(it.io, peer);
    pb_fetcher_end(first);
    answer_records(&it, 5, 2, 2, 7);
    expect_at(&it, 7, 2);
    leader_stop(&it);
}

TEST(another_broker_epoch_is_told_on_a_new_connection)
{
    leader_rig it;
    start_with(&it, 5);
    CHECK_INT(pb_fetcher_change_epoch(it.fetcher, 18), 0);
    leader_run(&it, 1000000);
    CHECK_INT(leader_frame(&it), -1);
    it.peer = -1;
    CHECK_INT(leader_request(&it), PB_API_FETCH);
    CHECK_INT(it.fetch.replica_state.replica_epoch, 18);
    CHECK_INT(leader_named(&it, 0)->fetch_offset, 5);
    leader_stop(&it);
}

TEST(a_throttled_partition_rests_while_it_lags_and_no_longer)
{
    enum { RATE = 20000 };
    leader_rig it;
    leader_start(&it, 8, false);
    it.partitions[0]->rules.follower_throttled = true;
    pb_quota_limit(&it.broker->follower_quota, RATE, it.io->ops->monotonic_ns(it.io));
    leader_follow(&it, 0, 1);
    leader_follow(&it, 1, 1);
    expect_at(&it, 0, -1);
    int64_t began_ns = it.io->ops->monotonic_ns(it.io);
    answer_records(&it, 0, 1, 2000, 5000); /* much more than a second's */
    leader_expect_fetch(&it);              /* for the other one, at once */
    CHECK(leader_forgets(&it, 0));
    leader_answer(&it, NULL, 0);
    for (;;) {
        leader_expect_fetch(&it);
        if (leader_named(&it, 0) != NULL)
            break;
        leader_run(&it, 100000000);
        leader_answer(&it, NULL, 0);
    }
    int64_t bytes = leader_ends(&it, 0).size_bytes;
    CHECK(bytes > 2 * RATE);
    CHECK(it.io->ops->monotonic_ns(it.io) - began_ns >= (bytes - RATE) / RATE * 1000000000LL);
    CHECK_INT(leader_named(&it, 0)->fetch_offset, 2000);
    answer_records(&it, 2000, 1, 3000, 5000); /* with that it has all that is committed: it may not rest */
    expect_at(&it, 5000, 1);
    leader_stop(&it);
}

TEST(ending_waits_for_nobody)
{
    for (int when = 0; when < 4; when++) { /* connecting, asking, answered, cutting */
        leader_rig it;
        leader_start(&it, 9, when % 2 == 0);
        pb_sim_faults faults = {.delayed_write = 900000};
        pb_sim_set_faults(it.io, &faults);
        leader_follow(&it, 0, 1);
        if (when > 0)
            expect_at(&it, 0, -1);
        if (when > 1)
            answer_records(&it, 0, 1, 5, 5);
        if (when > 2) {
            expect_at(&it, 5, 1);
            answer_divergence(&it, 1, 2);
        }
        for (int i = 0; i < 20; i++)
            (void)pb_sim_step(it.io);
        leader_stop(&it);
    }
}

CHECK_MAIN()
