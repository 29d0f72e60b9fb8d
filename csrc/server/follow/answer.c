/*
 * Handles an answer to a Fetch. The batches stay in the chunk that they came in until they are written.
 *
 * Each is checked before it is appended: whole, magic 2, its CRC, in order, and of no later epoch than the one that is
 * followed. A later epoch would come from a deposed leader that leads again, and is not ours. Batches before an unsound
 * one are taken.
 */
#include <errno.h>
#include <stdlib.h>

#include "record/batch.h"
#include "server/follow/fetcher.h"
#include "wire/generated/kafka_errors.h"

#define ANSWER_ARENA_BYTES (256u << 20)
#define ANSWER_KEPT_BYTES (1u << 20)
#define ANSWERS_KEPT 2

/* One answer with records on their way into logs. Owner: itself, until all are; then the fetcher, to use it again. */
typedef struct pb_fetch_answer {
    pb_link link;
    pb_fetcher *fetcher; /* retained while in use */
    pb_chunk *chunk;     /* retained */
    pb_arena arena;
    int pending; /* writings */
} pb_fetch_answer;

/* The batches for one partition. Owner: the answer's arena. */
typedef struct writing {
    pb_task task; /* home from another thread */
    pb_fetch_answer *answer;
    pb_followed *follower; /* referenced */
    uint64_t ticket;
    atomic_int left; /* batches that are not written yet, and one while they are queued */
    atomic_bool failed;
} writing;

/* One batch. Owner: the answer's arena. */
typedef struct fetched_batch {
    pb_partition_append_op op;
    writing *writing;
} fetched_batch;

typedef pb_fetch_response_partition_data partition_data;

static pb_fetch_answer *take_answer(pb_fetcher *fetcher, pb_chunk *chunk)
{
    pb_link *link = pb_list_pop_front(&fetcher->answers);
    pb_fetch_answer *answer = link != NULL ? PB_CONTAINER(link, pb_fetch_answer, link) : NULL;
    if (answer == NULL) {
        answer = calloc(1, sizeof *answer);
        if (answer == NULL)
            return NULL;
        pb_arena_init(&answer->arena, ANSWER_ARENA_BYTES);
        pb_list_init(&answer->link);
    } else {
        fetcher->answer_count--;
    }
    pb_fetcher_retain(fetcher);
    pb_chunk_retain(chunk);
    answer->fetcher = fetcher;
    answer->chunk = chunk;
    answer->pending = 1; /* so that it stays until all of it has been looked at */
    return answer;
}

static void free_answer(pb_fetch_answer *answer)
{
    pb_arena_free(&answer->arena);
    free(answer);
}

/* One of its writings, or the look at it, has ended. */
static void drop_answer(pb_fetch_answer *answer)
{
    PB_ASSERT(answer->pending > 0);
    if (--answer->pending > 0)
        return;
    pb_fetcher *fetcher = answer->fetcher;
    pb_chunk_release(answer->chunk);
    if (fetcher->answer_count < ANSWERS_KEPT) {
        pb_arena_trim(&answer->arena, ANSWER_KEPT_BYTES);
        pb_list_push_back(&fetcher->answers, &answer->link);
        fetcher->answer_count++;
    } else {
        free_answer(answer);
    }
    pb_fetcher_release(fetcher);
}

void pb_fetcher_free_answers(pb_fetcher *fetcher)
{
    pb_link *link;
    while ((link = pb_list_pop_front(&fetcher->answers)) != NULL)
        free_answer(PB_CONTAINER(link, pb_fetch_answer, link));
}

/* ---- written ---- */

/* All of it is in the log, or never will be. */
static void finish(writing *it)
{
    pb_fetch_answer *answer = it->answer;
    pb_fetcher *fetcher = answer->fetcher;
    pb_followed *follower = it->follower;
    bool failed = atomic_load(&it->failed);
    pb_fetcher_retain(fetcher); /* the answer may be what keeps it */
    if (pb_followed_unref(follower, it->ticket)) {
        if (failed)
            pb_followed_stop(follower);
        else if (follower->step == PB_FOLLOW_WRITING)
            pb_followed_settle(follower);
    }
    drop_answer(answer);
    pb_fetcher_go_on(fetcher);
    pb_fetcher_release(fetcher);
}

static void came_home(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    finish(PB_CONTAINER(task, writing, task));
}

/* So many of its parts are done. */
static void count_down(writing *it, int count, const pb_reactor *here)
{
    pb_reactor *home = &it->answer->fetcher->home->reactor; /* before: it may be gone afterwards */
    if (atomic_fetch_sub(&it->left, count) > count)
        return;
    if (here == home) {
        finish(it);
        return;
    }
    it->task.run = came_home;
    pb_reactor_post(home, &it->task);
}

static void appended(pb_partition_append_op *op, pb_reactor *here)
{
    fetched_batch *batch = PB_CONTAINER(op, fetched_batch, op);
    if (op->append.error != 0)
        atomic_store(&batch->writing->failed, true);
    count_down(batch->writing, 1, here);
}

/* ---- taken apart ---- */

/* The result of a partition's batches. */
typedef struct parting {
    pb_fetched fetched;
    writing *writing;
    int count;
    int64_t records;
    int64_t bytes;
    int64_t next_offset;
    int64_t first_base; /* where the first batch begins */
    bool is_corrupt;    /* what follows is no sound batch */
    bool overlaps;      /* or it is, and the first, and begins below our end */
} parting;

/* Its offsets can be reckoned with. */
static bool has_offsets(const pb_batch_header *header)
{
    return header->magic == PB_BATCH_MAGIC && header->last_offset_delta >= 0 && header->last_offset_delta < INT32_MAX &&
           header->base_offset >= 0 && header->base_offset <= INT64_MAX - INT32_MAX - 1;
}

static bool is_sound(const uint8_t *bytes, const pb_batch_header *header)
{
    return has_offsets(header) && header->record_count >= 0 && pb_batch_crc_matches(bytes, header->size_bytes);
}

static bool add_batch(parting *it, pb_fetch_answer *answer, const uint8_t *bytes, const pb_batch_header *header)
{
    fetched_batch *batch = pb_arena_alloc(&answer->arena, sizeof *batch);
    if (batch == NULL)
        return false; /* what was taken so far is appended, the rest is fetched again */
    batch->writing = it->writing;
    batch->op = (pb_partition_append_op){
        .append = {.bytes = (uint8_t *)(uintptr_t)bytes, /* a replica's are not changed */
                   .length = header->size_bytes,
                   .record_count = header->last_offset_delta + 1,
                   .max_timestamp_ms = header->max_timestamp,
                   .max_timestamp_offset_delta = -1,
                   .producer_id = header->producer_id,
                   .producer_epoch = header->producer_epoch,
                   .base_sequence = header->base_sequence,
                   .is_transactional = pb_batch_is_transactional(header),
                   .is_control = pb_batch_is_control(header),
                   .is_replica = true,
                   .now_ms = answer->fetcher->home->reactor.wall_ms},
        .done = appended,
    };
    pb_list_push_back(&it->fetched.appends, &batch->op.append.link);
    if (it->count == 0)
        it->first_base = header->base_offset;
    it->count++;
    it->records += batch->op.append.record_count;
    it->bytes += header->size_bytes;
    it->next_offset = pb_batch_last_offset(header) + 1;
    return true;
}

/* Where the next batch may begin. The leader's log may begin inside of one, where records were deleted, and so may ours
 * as long as it has nothing that counts. */
static int64_t least_base(const parting *it, const pb_followed *follower)
{
    int64_t end = follower->now.offset;
    bool is_empty = end == follower->now.log_start_offset || end == it->fetched.log_start_offset;
    return it->count == 0 && is_empty ? 0 : it->next_offset;
}

/* The batches from the position on that are whole, sound and new. */
static void part(parting *it, pb_fetch_answer *answer, const pb_followed *follower, pb_slice records)
{
    const uint8_t *data = records.data;
    size_t length = records.length > 0 ? (size_t)records.length : 0, position = 0;
    it->next_offset = follower->now.offset;
    for (bool goes_on = true; goes_on && position < length;) {
        const uint8_t *bytes = data + position;
        pb_batch_header header;
        int result = pb_batch_next(data, length, &position, &header);
        if (result == 0 && header.size_bytes == 0)
            return; /* the answer had no room for all of it */
        bool is_old = result == 0 && has_offsets(&header) && pb_batch_last_offset(&header) < it->next_offset;
        if (is_old)
            continue;
        bool sound = result == 0 && is_sound(bytes, &header);
        it->is_corrupt = !sound || header.base_offset < least_base(it, follower);
        it->overlaps = sound && it->is_corrupt && it->count == 0;
        if (it->overlaps)
            it->first_base = header.base_offset;
        goes_on = !it->is_corrupt && header.partition_leader_epoch <= follower->leader_epoch &&
                  add_batch(it, answer, bytes, &header);
    }
}

static void complain_of_records(pb_followed *follower, int64_t offset)
{
    pb_followed_tell(follower, PB_TELL_CORRUPT, offset);
    pb_followed_delay(follower, pb_fetcher_of(follower)->settings.backoff_ns);
}

/* The first batch, which could not be queued, begins below our log. Is that empty, by what the leader says of its own?
 * Then a segment that begins there can take it. */
static bool begin_below(pb_followed *follower, const parting *it)
{
    const pb_follow_ends *ends = &it->fetched.ends;
    pb_follow_cut cut = {.kind = PB_CUT_RESTART, .offset = ends->log_end_offset, .base_offset = it->first_base};
    bool begins = it->first_base < cut.offset && ends->log_start_offset == cut.offset;
    if (begins)
        pb_followed_cut(follower, &cut);
    return begins;
}

/* Our log ends inside of the leader's first batch, so it differs, and no epoch has told. A leader forgets epochs below
 * the start of its log, and may begin lower again after a crash. Records that are not known to be committed make way.
 * */
static bool cut_overlap(pb_followed *follower, const parting *it)
{
    pb_follow_ends ends;
    pb_follow_cut cut = {.kind = PB_CUT_TO, .offset = it->first_base};
    if (!it->overlaps || !pb_partition_follow_ends(follower->partition, follower->ticket, &ends) ||
        it->first_base < ends.high_watermark)
        return false;
    pb_followed_cut(follower, &cut);
    return true;
}

/* Refuses the batches that could not be queued. */
static void refuse_rest(pb_followed *follower, int result)
{
    if (result == -ESTALE)
        pb_followed_quit(follower);
    else if (result == PB_KAFKA_KAFKA_STORAGE_ERROR)
        pb_followed_stop(follower);
    else if (result == PB_KAFKA_OFFSET_OUT_OF_RANGE)
        complain_of_records(follower, follower->now.offset);
    else
        pb_followed_delay(follower, pb_fetcher_of(follower)->settings.backoff_ns);
}

/* Takes the queued batches; returns the number of those that were not queued. */
static int count_queued(parting *it, pb_fetcher *fetcher)
{
    int refused = 0;
    for (const pb_link *link = it->fetched.appends.next; link != &it->fetched.appends; link = link->next) {
        const pb_append *append = PB_CONTAINER(link, const pb_append, link);
        it->records -= append->record_count;
        it->bytes -= append->length;
        refused++;
    }
    pb_counter_add(&fetcher->counters.batches, it->count - refused);
    pb_counter_add(&fetcher->counters.records, it->records);
    pb_counter_add(&fetcher->counters.record_bytes, it->bytes);
    return refused;
}

static void queue(parting *it, pb_fetch_answer *answer, pb_followed *follower)
{
    pb_fetcher *fetcher = answer->fetcher;
    writing *ours = it->writing;
    ours->answer = answer;
    ours->follower = follower;
    ours->ticket = follower->ticket;
    atomic_init(&ours->left, it->count + 1);
    atomic_init(&ours->failed, false);
    answer->pending++;
    follower->references++;
    pb_followed_move(follower, PB_FOLLOW_WRITING);
    int result = pb_partition_take_fetched(follower->partition, ours->ticket, &it->fetched);
    if (it->fetched.must_pump)
        pb_server_reactor_queue(fetcher->home, follower->partition);
    int refused = count_queued(it, fetcher);
    if (it->fetched.ends.is_throttled)
        pb_quota_take(&fetcher->broker->follower_quota, it->bytes, fetcher->home->reactor.now_ns);
    bool begins = result == PB_KAFKA_OFFSET_OUT_OF_RANGE && refused == it->count && begin_below(follower, it);
    if (result != 0 && !begins)
        refuse_rest(follower, result);
    else if (result == 0 && it->is_corrupt)
        complain_of_records(follower, it->next_offset);
    count_down(ours, refused + 1, &fetcher->home->reactor);
}

/* ---- partitions of an answer ---- */

/* No records: the leader's high watermark and log start may have moved. */
static void learn(pb_followed *follower, parting *it)
{
    int result = pb_partition_take_fetched(follower->partition, follower->ticket, &it->fetched);
    if (result != 0)
        refuse_rest(follower, result);
    else if (it->is_corrupt)
        complain_of_records(follower, it->next_offset);
    else if (!it->fetched.ends.is_settled)
        pb_followed_settle(follower);
    else
        pb_followed_take_ends(follower, &it->fetched.ends);
}

static void take_records(pb_followed *follower, pb_fetch_answer *answer, const partition_data *data)
{
    parting it = {.fetched = {.high_watermark = data->high_watermark, .log_start_offset = data->log_start_offset}};
    follower->soon_count = 0;
    pb_list_remove(&follower->told_link);
    pb_list_init(&it.fetched.appends);
    if (data->records.length > 0)
        it.writing = pb_arena_alloc(&answer->arena, sizeof *it.writing);
    if (it.writing != NULL)
        part(&it, answer, follower, data->records);
    if (it.count > 0)
        queue(&it, answer, follower);
    else if (!cut_overlap(follower, &it))
        learn(follower, &it);
}

/* Leaderships move, and not all brokers know it at once: until somebody says otherwise it goes on. */
static void ask_again(pb_followed *follower)
{
    int64_t backoff_ns = pb_fetcher_of(follower)->settings.backoff_ns;
    bool is_soon = follower->soon_count < PB_FETCHER_SOON_COUNT && PB_FETCHER_SOON_NS < backoff_ns;
    follower->soon_count += is_soon;
    pb_followed_delay(follower, is_soon ? PB_FETCHER_SOON_NS : backoff_ns);
}

static void take_error(pb_followed *follower, int error)
{
    switch (error) {
    case PB_KAFKA_NOT_LEADER_OR_FOLLOWER:
    case PB_KAFKA_UNKNOWN_LEADER_EPOCH:
    case PB_KAFKA_UNKNOWN_TOPIC_OR_PARTITION:
    case PB_KAFKA_UNKNOWN_TOPIC_ID:
        ask_again(follower);
        break;
    case PB_KAFKA_OFFSET_OUT_OF_RANGE:
        pb_followed_ask(follower);
        break;
    case PB_KAFKA_CORRUPT_MESSAGE:
        complain_of_records(follower, follower->now.offset);
        break;
    default:
        pb_followed_delay(follower, pb_fetcher_of(follower)->settings.backoff_ns);
    }
}

/* The high watermark of an answer that sends the follower back counts for the leader's log, not for ours before it is
 * cut. A leader of Apache Kafka does not say it again in the session before it moves, so it is kept. */
static void keep_watermark(pb_followed *follower, int64_t high_watermark)
{
    follower->told_watermark = high_watermark;
    pb_list_remove(&follower->told_link);
    pb_list_push_back(&pb_fetcher_of(follower)->told, &follower->told_link);
}

/* Those whose place the leader has just seen and said nothing of: their logs do not differ from its any more. */
static void take_kept_watermarks(pb_fetcher *fetcher)
{
    pb_link left, *link;
    pb_list_take(&left, &fetcher->told);
    while ((link = pb_list_pop_front(&left)) != NULL) {
        pb_followed *follower = PB_CONTAINER(link, pb_followed, told_link);
        bool was_seen = follower->step == PB_FOLLOW_READY && follower->in_session &&
                        follower->sent_ticket == follower->ticket && pb_list_empty(&follower->link);
        if (!was_seen) {
            pb_list_push_back(&fetcher->told, link);
            continue;
        }
        parting it = {.fetched = {.high_watermark = follower->told_watermark, .log_start_offset = -1}};
        pb_list_init(&it.fetched.appends);
        learn(follower, &it);
    }
}

static void take_partition(pb_followed *follower, pb_fetch_answer *answer, const partition_data *data)
{
    if (follower == NULL || !follower->in_session || follower->sent_ticket != follower->ticket ||
        follower->step != PB_FOLLOW_READY)
        return; /* it has changed since it was asked for */
    if (data->error_code != 0) {
        take_error(follower, data->error_code);
    } else if (data->diverging_epoch.epoch >= 0) {
        pb_follow_cut cut = {
            .kind = PB_CUT_DIVERGED, .epoch = data->diverging_epoch.epoch, .offset = data->diverging_epoch.end_offset};
        if (cut.offset < 0) {
            complain_of_records(follower, follower->now.offset);
        } else {
            keep_watermark(follower, data->high_watermark);
            pb_followed_cut(follower, &cut);
        }
    } else {
        take_records(follower, answer, data);
    }
}

/* 0: go on; 1: there is nothing in it; or -errno. */
static int take_session(pb_fetcher *fetcher, const pb_fetch_response *response)
{
    bool is_new = fetcher->session_epoch == 0;
    if (response->error_code != 0) {
        bool is_lost = response->error_code == PB_KAFKA_FETCH_SESSION_ID_NOT_FOUND ||
                       response->error_code == PB_KAFKA_INVALID_FETCH_SESSION_EPOCH ||
                       response->error_code == PB_KAFKA_FETCH_SESSION_TOPIC_ID_ERROR;
        pb_fetcher_reset_session(fetcher);
        return is_lost && !is_new ? 1 : -EREMOTEIO;
    }
    if (!is_new && response->session_id != fetcher->session_id)
        return -EBADMSG;
    fetcher->session_id = response->session_id;
    fetcher->session_epoch = fetcher->session_epoch < INT32_MAX ? fetcher->session_epoch + 1 : 1;
    return 0;
}

int pb_fetcher_take_fetch(pb_fetcher *fetcher, pb_chunk *chunk, const uint8_t *body, size_t length)
{
    pb_fetch_answer *answer = take_answer(fetcher, chunk);
    if (answer == NULL)
        return -ENOMEM;
    pb_reader reader = pb_reader_of(body, length);
    pb_fetch_response response;
    int result = pb_fetch_response_read(&reader, fetcher->settings.fetch_version, &answer->arena, &response);
    if (result == 0)
        result = take_session(fetcher, &response);
    for (int32_t i = 0; result == 0 && i < response.responses_count; i++) {
        const pb_fetch_response_fetchable_topic_response *topic = &response.responses[i];
        for (int32_t j = 0; j < topic->partitions_count; j++)
            take_partition(
                pb_followed_find(&fetcher->topics, topic->topic_id.bytes, topic->partitions[j].partition_index), answer,
                &topic->partitions[j]);
    }
    if (result == 0)
        take_kept_watermarks(fetcher);
    if (result == 0 && fetcher->session_id == 0) /* the leader keeps none: everything is named each time */
        pb_fetcher_reset_session(fetcher);
    drop_answer(answer);
    return result < 0 ? result : 0;
}
