/*
 * Followers whose log is not a beginning of the leader's: cut where it differs, or begun anew where nothing of it lies
 * in the leader's. The home reactor, but for the cutting, which a background thread does.
 *
 * A leader that answers OFFSET_OUT_OF_RANGE is asked where its log ends. Below ours: it was elected uncleanly, and ours
 * is cut there. Else it is asked where its log begins: above our end, ours begins anew there. Where that is inside of a
 * batch, what it sends first begins below; then ours begins anew once more, so that the batch can be appended whole.
 * These are Apache Kafka's rules.
 */
#include <errno.h>
#include <stdlib.h>

#include "server/follow/fetcher.h"
#include "wire/generated/list_offsets_response.h"

enum { BUSY_LOOK_NS = 5000000 };

/* A log that is cut. Owner: the job, then the task. */
typedef struct cutting {
    pb_job job;
    pb_task task;
    pb_fetcher *fetcher;     /* retained */
    pb_followed *follower;   /* referenced; its home reactor's alone */
    pb_partition *partition; /* retained */
    uint64_t ticket;
    pb_follow_cut cut;
    int result;
    pb_failure failure;
} cutting;

static void tell_result(pb_followed *follower, const pb_follow_cut *cut)
{
    if (cut->kind == PB_CUT_RESTART && cut->base_offset < cut->offset)
        return; /* it was empty before */
    if (cut->kind == PB_CUT_RESTART)
        pb_followed_tell(follower, PB_TELL_RESTARTED, cut->end_offset);
    else if (cut->below_watermark)
        pb_followed_tell(follower, PB_TELL_CUT, cut->end_offset);
}

/* Recovery trusts what lies below a recovery point, the cleaner what lies below where it came to, and a leader takes
 * what lies below the high watermark for committed. After a loss of power, or a kill, that must not be what comes now.
 */
static void await_checkpoint(pb_followed *follower, int64_t end_offset)
{
    pb_followed_move(follower, PB_FOLLOW_STOPPED);
    pb_followed_tell(follower, PB_TELL_CHECKPOINT, end_offset);
}

static void ended(pb_followed *follower, const cutting *it)
{
    if (it->result == -EBUSY) {
        pb_followed_time(follower, BUSY_LOOK_NS);
    } else if (it->result == -ESTALE) {
        pb_followed_quit(follower);
    } else if (it->result != 0) {
        pb_events_notice(&it->fetcher->broker->events, "cannot cut %s-%d as its leader's log asks for: %s",
                         it->partition->topic, it->partition->index, it->failure.text);
        pb_followed_stop(follower);
    } else {
        tell_result(follower, &it->cut);
        if (it->cut.below_checkpoints)
            await_checkpoint(follower, it->cut.end_offset);
        else
            pb_followed_settle(follower);
    }
}

static void came_home(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    cutting *it = PB_CONTAINER(task, cutting, task);
    if (pb_followed_unref(it->follower, it->ticket) && it->follower->step == PB_FOLLOW_CUTTING)
        ended(it->follower, it);
    pb_fetcher_go_on(it->fetcher);
    pb_partition_release(it->partition);
    pb_fetcher_release(it->fetcher);
    free(it);
}

static void run(pb_job *job)
{
    cutting *it = PB_CONTAINER(job, cutting, job);
    it->result = pb_partition_cut_follower(it->partition, it->ticket, &it->cut, &it->failure);
    pb_reactor_post(&it->fetcher->home->reactor, &it->task);
}

void pb_followed_cut(pb_followed *follower, const pb_follow_cut *cut)
{
    pb_fetcher *fetcher = pb_fetcher_of(follower);
    follower->cut = *cut;
    pb_followed_move(follower, PB_FOLLOW_CUTTING);
    if (atomic_load(&fetcher->broker->halted))
        return;
    cutting *it = calloc(1, sizeof *it);
    if (it == NULL) {
        pb_followed_time(follower, fetcher->settings.backoff_ns);
        return;
    }
    it->job.run = run;
    it->task.run = came_home;
    it->fetcher = fetcher;
    it->follower = follower;
    it->partition = follower->partition;
    it->ticket = follower->ticket;
    it->cut = *cut;
    follower->references++;
    pb_fetcher_retain(fetcher);
    pb_partition_retain(it->partition);
    pb_worker_submit(&fetcher->broker->cuts, &it->job);
}

/* ---- outside of the leader's log ---- */

void pb_followed_ask(pb_followed *follower)
{
    follower->asks_start = false;
    pb_followed_move(follower, PB_FOLLOW_ASKING);
}

static void take_offset(pb_followed *follower, int error, int64_t offset)
{
    int64_t end = follower->now.offset;
    pb_follow_cut cut = {
        .kind = follower->asks_start ? PB_CUT_RESTART : PB_CUT_TO, .offset = offset, .base_offset = offset};
    bool helps = error == 0 && offset >= 0 && (follower->asks_start ? offset > end : offset < end);
    if (helps) {
        pb_followed_cut(follower, &cut);
    } else if (error == 0 && offset >= 0 && !follower->asks_start) {
        follower->asks_start = true;
        pb_followed_move(follower, PB_FOLLOW_ASKING);
    } else { /* an error, or by now it lies in the leader's log */
        pb_followed_delay(follower, pb_fetcher_of(follower)->settings.backoff_ns);
    }
}

/* Those that were asked for, by topic name: few ask at a time. */
static pb_followed *find_asking(pb_fetcher *fetcher, pb_slice topic, int32_t index)
{
    for (pb_link *link = fetcher->asking.next; link != &fetcher->asking; link = link->next) {
        pb_followed *follower = PB_CONTAINER(link, pb_followed, asking_link);
        if (follower->index == index && follower->asks_start == fetcher->asks_start &&
            pb_slice_equal(topic, pb_slice_of_text(follower->topic->name)))
            return follower;
    }
    return NULL;
}

/* Those that were asked for and not answered would be asked for at once again. */
static void delay_unanswered(pb_fetcher *fetcher)
{
    pb_link *next;
    for (pb_link *link = fetcher->asking.next; link != &fetcher->asking; link = next) {
        next = link->next;
        pb_followed *follower = PB_CONTAINER(link, pb_followed, asking_link);
        if (follower->asks_start == fetcher->asks_start)
            pb_followed_delay(follower, fetcher->settings.backoff_ns);
    }
}

int pb_fetcher_take_offsets(pb_fetcher *fetcher, const uint8_t *body, size_t length)
{
    pb_reader reader = pb_reader_of(body, length);
    pb_list_offsets_response response;
    int result = pb_list_offsets_response_read(&reader, PB_LIST_OFFSETS_VERSION, &fetcher->arena, &response);
    if (result != 0)
        return result;
    for (int32_t i = 0; i < response.topics_count; i++) {
        const pb_list_offsets_response_list_offsets_topic_response *topic = &response.topics[i];
        for (int32_t j = 0; j < topic->partitions_count; j++) {
            pb_followed *follower = find_asking(fetcher, topic->name, topic->partitions[j].partition_index);
            if (follower != NULL)
                take_offset(follower, topic->partitions[j].error_code, topic->partitions[j].offset);
        }
    }
    delay_unanswered(fetcher);
    return 0;
}
