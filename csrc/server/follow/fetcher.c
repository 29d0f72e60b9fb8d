/* The partitions that follow with a fetcher, and the time of each request. See fetcher.h. */
#include "server/follow/fetcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATIENCE_NS = 10000000, /* for the writes of one answer, before others are fetched without those partitions */
    REST_NS = 50000000,     /* of those that are throttled */
    SYNC_LOOK_NS = 2000000, /* how often it is looked whether what somebody else has appended is durable */
};

/* A request of another thread. Owner: the task. */
typedef struct command {
    pb_task task;
    pb_fetcher *fetcher;     /* retained */
    pb_partition *partition; /* retained; NULL: it is about the epoch */
    uint64_t ticket;
    int64_t replica_epoch;
    int32_t leader_epoch;
    bool drops;
} command;

/* ---- one partition ---- */

static bool differs(const pb_followed *follower)
{
    const pb_fetch_position *now = &follower->now, *sent = &follower->sent;
    bool tells_watermark = pb_fetcher_of(follower)->settings.fetch_version >= PB_FETCH_WATERMARK_VERSION;
    return !follower->in_session || follower->sent_ticket != follower->ticket || now->offset != sent->offset ||
           now->log_start_offset != sent->log_start_offset || now->leader_epoch != sent->leader_epoch ||
           now->last_epoch != sent->last_epoch || (tells_watermark && now->high_watermark != sent->high_watermark);
}

static int state_of(enum pb_followed_step step)
{
    if (step == PB_FOLLOW_READY)
        return PB_FOLLOWING_FETCHES;
    return step == PB_FOLLOW_STOPPED ? PB_FOLLOWING_STANDS : PB_FOLLOWING_WAITS;
}

static bool is_busy(enum pb_followed_step step)
{
    return step == PB_FOLLOW_WRITING || step == PB_FOLLOW_CUTTING;
}

void pb_followed_move(pb_followed *follower, enum pb_followed_step step)
{
    pb_fetcher *fetcher = pb_fetcher_of(follower);
    fetcher->ready_count += (step == PB_FOLLOW_READY) - (follower->step == PB_FOLLOW_READY);
    fetcher->busy_count += is_busy(step) - is_busy(follower->step);
    PB_ASSERT(fetcher->ready_count >= 0 && fetcher->busy_count >= 0);
    follower->step = step;
    pb_list_remove(&follower->link);
    pb_list_remove(&follower->asking_link);
    if (step == PB_FOLLOW_ASKING)
        pb_list_push_back(&fetcher->asking, &follower->asking_link);
    if (step == PB_FOLLOW_READY && differs(follower))
        pb_list_push_back(&fetcher->changed, &follower->link);
    else if (step != PB_FOLLOW_READY && follower->in_session)
        pb_list_push_back(&fetcher->absent, &follower->link);
    if (follower->partition != NULL)
        atomic_store_explicit(&follower->partition->following.state, state_of(step), memory_order_relaxed);
}

void pb_followed_collect(pb_followed *follower)
{
    if (follower->step == PB_FOLLOW_GONE && follower->references == 0 && !follower->in_session)
        pb_followed_free(follower);
}

bool pb_followed_unref(pb_followed *follower, uint64_t ticket)
{
    PB_ASSERT(follower->references > 0);
    follower->references--;
    bool same = follower->step != PB_FOLLOW_GONE && follower->ticket == ticket;
    pb_followed_collect(follower);
    return same;
}

void pb_followed_quit(pb_followed *follower)
{
    pb_fetcher *fetcher = pb_fetcher_of(follower);
    pb_timer_cancel(&fetcher->home->reactor.timers, &follower->timer);
    pb_partition *partition = follower->partition;
    follower->partition = NULL;
    pb_list_remove(&follower->told_link);
    pb_followed_move(follower, PB_FOLLOW_GONE);
    if (partition != NULL) {
        pb_counter_add(&fetcher->counters.partitions, -1);
        pb_partition_release(partition);
    }
    pb_followed_collect(follower);
}

static void time_is_up(pb_timer *timer)
{
    pb_followed *follower = PB_CONTAINER(timer, pb_followed, timer);
    pb_fetcher *fetcher = pb_fetcher_of(follower);
    if (follower->step == PB_FOLLOW_CUTTING)
        pb_followed_cut(follower, &follower->cut);
    else
        pb_followed_settle(follower);
    pb_fetcher_go_on(fetcher);
}

void pb_followed_time(pb_followed *follower, int64_t delay_ns)
{
    pb_reactor *reactor = &pb_fetcher_of(follower)->home->reactor;
    follower->timer.fire = time_is_up;
    if (pb_timer_set(&reactor->timers, &follower->timer, reactor->now_ns + delay_ns) < 0)
        pb_followed_stop(follower);
}

void pb_followed_delay(pb_followed *follower, int64_t delay_ns)
{
    pb_followed_move(follower, PB_FOLLOW_DELAYED);
    pb_followed_time(follower, delay_ns);
}

/* Others have had what there is for all that are throttled: those in sync go on, or they would leave the ISR (KIP-73).
 */
static bool must_rest(const pb_followed *follower, const pb_follow_ends *ends)
{
    pb_fetcher *fetcher = pb_fetcher_of(follower);
    return ends->is_throttled && ends->lags &&
           pb_quota_is_exceeded(&fetcher->broker->follower_quota, fetcher->home->reactor.now_ns);
}

void pb_followed_take_ends(pb_followed *follower, const pb_follow_ends *ends)
{
    follower->now = (pb_fetch_position){
        .offset = ends->log_end_offset,
        .log_start_offset = ends->log_start_offset,
        .high_watermark = ends->high_watermark,
        .leader_epoch = follower->leader_epoch,
        .last_epoch = ends->last_epoch,
    };
    if (must_rest(follower, ends))
        pb_followed_delay(follower, REST_NS);
    else
        pb_followed_move(follower, PB_FOLLOW_READY);
}

void pb_followed_settle(pb_followed *follower)
{
    pb_follow_ends ends;
    if (!pb_partition_follow_ends(follower->partition, follower->ticket, &ends)) {
        pb_followed_quit(follower);
    } else if (!ends.is_settled) { /* by whoever led it before */
        pb_followed_move(follower, PB_FOLLOW_WRITING);
        pb_followed_time(follower, SYNC_LOOK_NS);
    } else if (ends.last_epoch < 0 && ends.log_end_offset > ends.high_watermark) {
        /* Nothing says where it differs from the leader's: what is committed is all that is known to be the same. */
        pb_follow_cut cut = {.kind = PB_CUT_TO, .offset = ends.high_watermark};
        pb_followed_cut(follower, &cut);
    } else {
        pb_followed_take_ends(follower, &ends);
    }
}

void pb_followed_tell(pb_followed *follower, enum pb_followed_tell what, int64_t offset)
{
    pb_events *events = &pb_fetcher_of(follower)->broker->events;
    pb_event_node *event = calloc(1, sizeof *event);
    if (event == NULL) {
        pb_events_notice(events, "%s-%d as a follower: event %d at offset %lld", follower->partition->topic,
                         follower->index, (int)what, (long long)offset);
        return;
    }
    event->kind = PB_NODE_FOLLOWER;
    event->ticket = follower->partition->tag;
    event->error = (int32_t)what;
    event->offset = offset;
    pb_events_put(events, event);
}

void pb_followed_stop(pb_followed *follower)
{
    pb_followed_move(follower, PB_FOLLOW_STOPPED);
    pb_followed_tell(follower, PB_TELL_STOPPED, follower->now.offset);
}

/* ---- the fetcher ---- */

static void forget(pb_followed *follower)
{
    follower->in_session = false;
    pb_followed_move(follower, follower->step);
    pb_followed_collect(follower);
}

void pb_fetcher_reset_session(pb_fetcher *fetcher)
{
    fetcher->session_id = 0;
    fetcher->session_epoch = 0;
    pb_followed_each(&fetcher->topics, forget);
}

static void patience_is_over(pb_timer *timer)
{
    pb_fetcher *fetcher = PB_CONTAINER(timer, pb_fetcher, patience);
    fetcher->impatient = true;
    pb_fetcher_go_on(fetcher);
}

/* Some partitions are busy: is it worth to wait for them? They come back within moments, as a rule, and the leader may
 * take its time to answer the others. */
static bool is_patient(pb_fetcher *fetcher)
{
    pb_reactor *reactor = &fetcher->home->reactor;
    if (fetcher->busy_count == 0 || fetcher->impatient)
        return false;
    fetcher->patience.fire = patience_is_over;
    return pb_timer_is_set(&fetcher->patience) ||
           pb_timer_set(&reactor->timers, &fetcher->patience, reactor->now_ns + PATIENCE_NS) == 0;
}

void pb_fetcher_go_on(pb_fetcher *fetcher)
{
    if (fetcher->handling || fetcher->expects != PB_EXPECTS_NOTHING || fetcher->sending)
        return;
    if (!fetcher->connected) {
        pb_fetcher_connect(fetcher);
    } else if (!pb_list_empty(&fetcher->asking)) {
        pb_fetcher_send_offsets(fetcher);
    } else if (!is_patient(fetcher) && pb_fetcher_send_fetch(fetcher)) {
        pb_timer_cancel(&fetcher->home->reactor.timers, &fetcher->patience);
        fetcher->impatient = false;
    }
}

static void close_here(pb_task *task, pb_reactor *reactor)
{
    pb_fetcher *fetcher = PB_CONTAINER(task, pb_fetcher, close);
    fetcher->closed = true;
    pb_followed_each(&fetcher->topics, pb_followed_quit);
    pb_fetcher_reset_session(fetcher);
    pb_timer_cancel(&reactor->timers, &fetcher->patience);
    pb_timer_cancel(&reactor->timers, &fetcher->retry);
    pb_fetcher_disconnect(fetcher);
    pb_fetcher_release(fetcher);
}

void pb_fetcher_end(pb_fetcher *fetcher)
{
    fetcher->close.run = close_here;
    pb_reactor_post(&fetcher->home->reactor, &fetcher->close);
}

static void free_command(command *it)
{
    if (it->partition != NULL)
        pb_partition_release(it->partition);
    pb_fetcher_release(it->fetcher);
    free(it);
}

static void add_here(pb_task *task, pb_reactor *reactor)
{
    command *it = PB_CONTAINER(task, command, task);
    pb_fetcher *fetcher = it->fetcher;
    pb_followed *follower = fetcher->closed ? NULL : pb_followed_make(fetcher, it->partition);
    if (follower == NULL && !fetcher->closed)
        pb_events_notice(&fetcher->broker->events, "no memory to follow the leader of %s-%d", it->partition->topic,
                         it->partition->index);
    if (follower != NULL && follower->ticket <= it->ticket) {
        pb_timer_cancel(&reactor->timers, &follower->timer);
        if (follower->partition != NULL)
            pb_partition_release(follower->partition);
        else
            pb_counter_add(&fetcher->counters.partitions, 1);
        pb_partition_retain(it->partition);
        follower->partition = it->partition;
        follower->ticket = it->ticket;
        follower->leader_epoch = it->leader_epoch;
        follower->soon_count = 0;
        follower->asks_start = false;
        pb_list_remove(&follower->told_link);
        pb_followed_settle(follower);
        pb_fetcher_go_on(fetcher);
    }
    free_command(it);
}

static void drop_here(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    command *it = PB_CONTAINER(task, command, task);
    pb_fetcher *fetcher = it->fetcher;
    pb_followed *follower = pb_followed_find(&fetcher->topics, it->partition->topic_id, it->partition->index);
    if (follower != NULL && follower->partition == it->partition && follower->ticket <= it->ticket) {
        pb_followed_quit(follower);
        pb_fetcher_go_on(fetcher);
    }
    free_command(it);
}

static void change_epoch_here(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    command *it = PB_CONTAINER(task, command, task);
    it->fetcher->replica_epoch = it->replica_epoch;
    pb_fetcher_disconnect(it->fetcher);
    free_command(it);
}

static int post(pb_fetcher *fetcher, const command *what)
{
    command *it = malloc(sizeof *it);
    if (it == NULL)
        return -ENOMEM;
    *it = *what;
    it->fetcher = fetcher;
    pb_fetcher_retain(fetcher);
    if (it->partition != NULL)
        pb_partition_retain(it->partition);
    pb_reactor_post(&fetcher->home->reactor, &it->task);
    return 0;
}

int pb_fetcher_add(pb_fetcher *fetcher, pb_partition *partition, uint64_t ticket, int32_t leader_epoch)
{
    command it = {.task.run = add_here, .partition = partition, .ticket = ticket, .leader_epoch = leader_epoch};
    return post(fetcher, &it);
}

void pb_fetcher_drop(pb_fetcher *fetcher, pb_partition *partition, uint64_t ticket)
{
    command it = {.task.run = drop_here, .partition = partition, .ticket = ticket};
    (void)post(fetcher, &it); /* without memory the next fetch finds that the ticket has ended */
}

int pb_fetcher_change_epoch(pb_fetcher *fetcher, int64_t replica_epoch)
{
    command it = {.task.run = change_epoch_here, .replica_epoch = replica_epoch};
    return post(fetcher, &it);
}

int pb_fetcher_create(pb_broker *broker, const pb_fetcher_settings *settings, int64_t replica_epoch, pb_fetcher **out)
{
    pb_fetcher *fetcher = calloc(1, sizeof *fetcher);
    if (fetcher == NULL)
        return -ENOMEM;
    uint32_t turn = atomic_fetch_add(&broker->next_fetcher, 1);
    fetcher->broker = broker;
    fetcher->home = &broker->reactors[turn % (uint32_t)broker->settings.reactor_count];
    fetcher->settings = *settings;
    fetcher->replica_epoch = replica_epoch;
    atomic_init(&fetcher->references, 1);
    pb_writer_init(&fetcher->writer, PB_FETCHER_REQUEST_BYTES);
    pb_arena_init(&fetcher->arena, PB_FETCHER_REQUEST_BYTES);
    pb_list_init(&fetcher->changed);
    pb_list_init(&fetcher->absent);
    pb_list_init(&fetcher->asking);
    pb_list_init(&fetcher->told);
    pb_list_init(&fetcher->answers);
    pb_fetcher_init_link(fetcher);
    *out = fetcher;
    return 0;
}

void pb_fetcher_retain(pb_fetcher *fetcher)
{
    int before = atomic_fetch_add_explicit(&fetcher->references, 1, memory_order_relaxed);
    PB_ASSERT(before > 0);
}

void pb_fetcher_release(pb_fetcher *fetcher)
{
    int before = atomic_fetch_sub_explicit(&fetcher->references, 1, memory_order_acq_rel);
    PB_ASSERT(before > 0);
    if (before > 1)
        return;
    pb_fetcher_free_answers(fetcher);
    pb_followed_clear(&fetcher->topics);
    pb_writer_free(&fetcher->writer);
    pb_arena_free(&fetcher->arena);
    free(fetcher);
}
