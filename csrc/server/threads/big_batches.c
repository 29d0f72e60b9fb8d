/* The threads that validate large batches. See big_batches.h. */
#include "server/threads/big_batches.h"

#include <errno.h>
#include <string.h>

#include "base/counter.h"

/* A batch that is begun is counted with this, until its codec can tell how much it holds. */
#define FIRST_BYTES (512 * 1024)

/* ---- the queue ---- */

/* Begin as many batches as there is memory for. The lock is held. */
static void begin_waiting(pb_big_batches *batches)
{
    while (!pb_list_empty(&batches->waiting) && batches->held_bytes < batches->memory_bytes) {
        pb_link *link = pb_list_pop_front(&batches->waiting);
        pb_big_batch *batch = PB_CONTAINER(link, pb_big_batch, link);
        batch->number = batches->begun_count++;
        batch->held_bytes = FIRST_BYTES;
        batches->held_bytes += FIRST_BYTES;
        pb_list_push_back(&batches->due, link);
    }
}

/* The batch that was begun longest ago. The lock is held. */
static pb_big_batch *oldest(const pb_big_batches *batches)
{
    pb_big_batch *found = NULL;
    for (pb_link *link = batches->due.next; link != &batches->due; link = link->next) {
        pb_big_batch *batch = PB_CONTAINER(link, pb_big_batch, link);
        if (found == NULL || batch->number < found->number)
            found = batch;
    }
    return found;
}

/* The batch whose turn it is; NULL: there is none. The lock is held. */
static pb_big_batch *next_batch(pb_big_batches *batches)
{
    begin_waiting(batches);
    pb_big_batch *batch = NULL;
    if (batches->held_bytes >= batches->memory_bytes)
        batch = oldest(batches);
    else if (!pb_list_empty(&batches->due))
        batch = PB_CONTAINER(batches->due.next, pb_big_batch, link);
    if (batch != NULL)
        pb_list_remove(&batch->link);
    return batch;
}

/* A thread to wake if there is more to do than this thread's own next turn. The lock is held. */
static pb_thread *pick_helper(pb_big_batches *batches)
{
    bool more = !pb_list_empty(&batches->due) && batches->due.next->next != &batches->due;
    return more ? pb_crew_pick_sleeper(&batches->crew) : NULL;
}

/* ---- one slice ---- */

static int begin(pb_big_batch *batch)
{
    int result = pb_codec_create(&batch->codec);
    if (result != 0)
        return pb_fail(&batch->verdict.failure, result, "cannot set up a codec for a large batch");
    return pb_validate_begin(&batch->validator, &batch->rules->validation, batch->produce_version, batch->now_ms,
                             batch->codec, batch->bytes, batch->length, SIZE_MAX, &batch->verdict.validation,
                             &batch->verdict.failure);
}

/* Validate some of it. -EAGAIN: there is more to do. */
static int validate(pb_big_batch *batch)
{
    const pb_validation_rules *rules = &batch->rules->validation;
    int result = batch->codec == NULL ? begin(batch) : 0;
    if (result == 0)
        result = pb_validate_step(&batch->validator, PB_BIG_SLICE_BYTES, &batch->verdict.failure);
    if (result != 0 || !batch->verdict.validation.needs_recompression)
        return result;
    batch->stage = PB_BIG_VALIDATED;
    pb_recompress_begin(&batch->recompression, batch->codec, batch->bytes, batch->verdict.validation.size_bytes,
                        rules->target_compression, batch->rules->compression_level, rules->max_message_bytes,
                        &batch->recompressed);
    return -EAGAIN;
}

/* Do the next part of the work. -EAGAIN: there is more. */
static int run_slice(pb_big_batch *batch)
{
    if (atomic_load_explicit(&batch->cancelled, memory_order_relaxed))
        return -ECANCELED;
    if (batch->stage == PB_BIG_NEW)
        return validate(batch);
    return pb_recompress_step(&batch->recompression, PB_BIG_REPACKED_SLICE_BYTES, &batch->verdict.failure);
}

/* After a slice, what the batch holds is known. The helper that is returned is to be woken. */
static pb_thread *put_back(pb_big_batches *batches, pb_big_batch *batch, int64_t held_bytes, bool more)
{
    pthread_mutex_lock(&batches->lock);
    batches->held_bytes += held_bytes - batch->held_bytes;
    batch->held_bytes = held_bytes;
    PB_ASSERT(batches->held_bytes >= 0);
    if (more)
        pb_list_push_back(&batches->due, &batch->link);
    begin_waiting(batches);
    pb_thread *helper = pick_helper(batches);
    pthread_mutex_unlock(&batches->lock);
    return helper;
}

static void take_turn(pb_big_batches *batches, pb_big_batch *batch)
{
    int result = run_slice(batch);
    bool more = result == -EAGAIN;
    int64_t held_bytes = 0;
    if (more) {
        held_bytes = (int64_t)(pb_codec_memory_bytes(batch->codec) + batch->recompressed.capacity);
    } else {
        pb_codec_destroy(batch->codec);
        batch->codec = NULL;
        batch->verdict.result = result;
        if (result == 0)
            atomic_fetch_add(&batches->unpacked_bytes, batch->verdict.validation.unpacked_bytes);
        atomic_fetch_sub(&batches->in_progress, 1);
    }
    pb_thread *helper = put_back(batches, batch, held_bytes, more);
    if (helper != NULL)
        batches->io->ops->thread_wake(helper);
    if (!more)
        batch->done(batch);
}

/* ---- the threads ---- */

static enum pb_step step(void *argument)
{
    pb_crew_thread *self = argument;
    pb_big_batches *batches = self->owner;
    pthread_mutex_lock(&batches->lock);
    pb_big_batch *batch = next_batch(batches);
    self->idle = batch == NULL;
    bool stopping = batches->stopping;
    pthread_mutex_unlock(&batches->lock);
    if (batch == NULL)
        return stopping ? PB_STEP_END : PB_STEP_IDLE;
    take_turn(batches, batch);
    return PB_STEP_AGAIN;
}

/* With the first batch. Those that cannot be started are missed by nobody, unless there is none. The lock is held. */
static int start_threads(pb_big_batches *batches, pb_failure *failure)
{
    pb_crew *crew = &batches->crew;
    if (crew->thread_count > 0)
        return 0;
    pb_crew_options options = {
        .name = "pb-big-batches",
        .work = "large batches",
        .thread_count = batches->thread_count,
        .rank = PB_RANK_USUAL,
        .step = step,
        .owner = batches,
    };
    int result = pb_crew_start(crew, batches->io, &options, failure);
    if (result == 0 || crew->threads[0].thread != NULL)
        return 0;
    crew->thread_count = 0; /* the next batch tries again */
    return result;
}

int pb_big_batches_submit(pb_big_batches *batches, pb_big_batch *batch, pb_failure *failure)
{
    PB_ASSERT(batch->done != NULL && batch->rules != NULL);
    batch->stage = PB_BIG_NEW;
    batch->codec = NULL;
    batch->recompressed = (pb_recompressed){0};
    pb_thread *sleeper = NULL;
    pthread_mutex_lock(&batches->lock);
    PB_ASSERT(!batches->stopping);
    int result = start_threads(batches, failure);
    if (result == 0) {
        atomic_fetch_add(&batches->taken, 1);
        atomic_fetch_add(&batches->in_progress, 1);
        pb_list_push_back(&batches->waiting, &batch->link);
        sleeper = pb_crew_pick_sleeper(&batches->crew);
    }
    pthread_mutex_unlock(&batches->lock);
    if (sleeper != NULL)
        batches->io->ops->thread_wake(sleeper);
    return result;
}

/* ---- life ---- */

void pb_big_batches_init(pb_big_batches *batches, pb_io *io, int thread_count)
{
    memset(batches, 0, sizeof *batches);
    batches->io = io;
    batches->thread_count = thread_count < PB_CREW_THREADS_MAX ? thread_count : PB_CREW_THREADS_MAX;
    batches->memory_bytes = PB_BIG_MEMORY_BYTES;
    pthread_mutex_init(&batches->lock, NULL);
    pb_list_init(&batches->due);
    pb_list_init(&batches->waiting);
}

void pb_big_batches_stop(pb_big_batches *batches)
{
    pthread_mutex_lock(&batches->lock);
    batches->stopping = true;
    pthread_mutex_unlock(&batches->lock);
    pb_crew_stop(&batches->crew);
}

void pb_big_batches_destroy(pb_big_batches *batches)
{
    PB_ASSERT(pb_list_empty(&batches->due) && pb_list_empty(&batches->waiting) && batches->held_bytes == 0);
    pthread_mutex_destroy(&batches->lock);
}
