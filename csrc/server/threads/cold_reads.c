/* The threads that read history. See cold_reads.h. */
#include "server/threads/cold_reads.h"

#include <stdlib.h>
#include <string.h>

#include "log/segment/segment.h"

enum {
    AHEAD_BYTES = 3 << 20,               /* of one reader */
    AHEAD_RUNNING = PB_COLD_THREADS / 2, /* so that what is due finds a thread */
    AHEAD_WAITING = 64,
    FOLLOWED_BYTES = 32 * 1024, /* less comes at the tail, where there is nothing ahead */
    WARM_BYTES = 16 << 20,      /* who finds so much in a row in memory is not read ahead of any more */
};

/* ---- the queue ---- */

static void wake_one(pb_cold_reads *reads)
{
    pthread_mutex_lock(&reads->lock);
    pb_thread *sleeper = pb_crew_pick_sleeper(&reads->crew);
    pthread_mutex_unlock(&reads->lock);
    if (sleeper != NULL)
        reads->io->ops->thread_wake(sleeper);
}

void pb_cold_reads_submit(pb_cold_reads *reads, pb_cold_read *read)
{
    pthread_mutex_lock(&reads->lock);
    PB_ASSERT(reads->running);
    pb_list_push_back(&reads->due, &read->link);
    pthread_mutex_unlock(&reads->lock);
    wake_one(reads);
}

/* The next read; NULL: there is none. */
static pb_cold_read *take(pb_crew_thread *self, bool *is_ahead, bool *stopping)
{
    pb_cold_reads *reads = self->owner;
    pthread_mutex_lock(&reads->lock);
    pb_link *link = pb_list_pop_front(&reads->due);
    *is_ahead = false;
    if (link == NULL && reads->ahead_running < AHEAD_RUNNING) {
        link = pb_list_pop_front(&reads->ahead);
        *is_ahead = link != NULL;
        reads->ahead_running += link != NULL;
    }
    self->idle = link == NULL;
    *stopping = reads->stopping;
    pthread_mutex_unlock(&reads->lock);
    return link == NULL ? NULL : PB_CONTAINER(link, pb_cold_read, link);
}

static void put_back(pb_cold_reads *reads, pb_cold_read *read, bool more, bool is_ahead)
{
    pthread_mutex_lock(&reads->lock);
    reads->ahead_running -= is_ahead;
    reads->ahead_count -= is_ahead && !more;
    if (more)
        pb_list_push_back(is_ahead ? &reads->ahead : &reads->due, &read->link);
    pthread_mutex_unlock(&reads->lock);
}

/* With nothing to read. */
static enum pb_step give_back(pb_crew_thread *self)
{
    pb_cold_reads *reads = self->owner;
    int64_t due_ns = pb_history_trim(&reads->history);
    if (due_ns == 0)
        return PB_STEP_AGAIN;
    if (due_ns != PB_IO_FOREVER)
        reads->io->ops->thread_sleep_until(self->thread, due_ns);
    return PB_STEP_IDLE;
}

static enum pb_step step(void *argument)
{
    pb_crew_thread *self = argument;
    pb_cold_reads *reads = self->owner;
    bool is_ahead, stopping;
    pb_cold_read *read = take(self, &is_ahead, &stopping);
    if (read == NULL) /* what is still to be read ahead, others are at */
        return stopping ? PB_STEP_END : give_back(self);
    pb_io *io = reads->io;
    io->ops->thread_read_mode(io, PB_READ_EXACT);
    bool more = read->piece(read);
    io->ops->thread_read_mode(io, PB_READ_USUAL);
    put_back(reads, read, more, is_ahead);
    return PB_STEP_AGAIN;
}

/* ---- bringing in ---- */

bool pb_cold_reads_in_page_cache(pb_cold_reads *reads, const pb_log_slice *slice, int64_t position, int64_t length)
{
    /* In this order: a read that begins in between is one of pages that were not there. Where nothing can be found out,
     * all is taken to be. */
    return reads->io->ops->file_resident(reads->io, slice->file, position, length) != 0 &&
           !pb_history_is_reading(slice->segment, position, length);
}

/* A direct read holds a lock of the file until the disk has answered, and a buffered append on a reactor needs that
 * lock exclusively. Where a ring takes what is appended, nobody waits for the file. Pages that the kernel reads ahead
 * would have to be dropped again when the file is written there. */
static pb_history_file file_of(const pb_log_slice *slice)
{
    return (pb_history_file){
        .file = slice->file,
        .direct = slice->sealed || pb_tail_is_attached(slice->segment),
        .large_before = slice->sealed ? slice->ahead_position : 0,
    };
}

/* *found: it was in memory. */
static int bring_in(pb_cold_reads *reads, const pb_log_slice *slice, int64_t position, int64_t length, bool *found)
{
    *found = pb_history_holds(slice->segment, position, length) ||
             (reads->io->ops->file_resident(reads->io, slice->file, position, length) == 1 &&
              !pb_history_is_reading(slice->segment, position, length));
    if (*found)
        return 0;
    pb_history_file file = file_of(slice);
    return pb_history_bring_in(&reads->history, slice->segment, &file, position, length);
}

int pb_cold_reads_bring_in(pb_cold_reads *reads, const pb_log_slice *slice, int64_t position, int64_t length)
{
    bool found;
    return bring_in(reads, slice, position, length, &found);
}

/* ---- read ahead ---- */

typedef struct ahead_read {
    pb_cold_read read;
    pb_cold_reads *reads;
    pb_partition *partition; /* retained */
    pb_log_slice slice;      /* what is to be read; pinned */
    pb_cold_stream *stream;  /* for which it is read; it may be another one's by now */
} ahead_read;

/* Forgets a stream whose reader finds everything in memory. To look ahead of it for ever would cost more than the one
 * wait after which it is followed again. */
static void note_found(pb_cold_reads *reads, const ahead_read *ahead, int64_t length, bool found)
{
    pb_cold_stream *stream = ahead->stream;
    pthread_mutex_lock(&reads->lock);
    if (stream->partition == ahead->partition && stream->segment_base == ahead->slice.segment->base_offset) {
        stream->found_bytes = found ? stream->found_bytes + length : 0;
        if (stream->found_bytes >= WARM_BYTES)
            *stream = (pb_cold_stream){0};
    }
    pthread_mutex_unlock(&reads->lock);
}

static bool ahead_piece(pb_cold_read *read)
{
    ahead_read *ahead = PB_CONTAINER(read, ahead_read, read);
    pb_log_slice *slice = &ahead->slice;
    int64_t length = pb_piece_part(slice->position, slice->length);
    bool found;
    int result = bring_in(ahead->reads, slice, slice->position, length, &found);
    note_found(ahead->reads, ahead, length, found);
    slice->position += length;
    slice->length -= length;
    if (result == 0 && slice->length > 0) /* who comes here meets the same error */
        return true;
    pb_segment_release(slice->segment);
    pb_partition_release(ahead->partition);
    free(ahead);
    return false;
}

/* The stream that this slice goes on with; else, if it is to be followed from now on, one that is made of it. */
static pb_cold_stream *find_stream(pb_cold_reads *reads, const pb_partition *partition, const pb_log_slice *slice,
                                   bool make)
{
    pb_cold_stream *oldest = &reads->streams[0];
    int64_t segment_base = slice->segment->base_offset;
    for (int i = 0; i < PB_COLD_STREAMS; i++) {
        pb_cold_stream *stream = &reads->streams[i];
        /* A batch that was cut off at the end comes again. */
        if (stream->partition == partition && stream->segment_base == segment_base &&
            slice->position <= stream->next_position && slice->position + slice->length > stream->next_position)
            return stream;
        if (stream->used < oldest->used)
            oldest = stream;
    }
    if (make) {
        int64_t end_position = slice->position + slice->length;
        *oldest = (pb_cold_stream){
            .partition = partition,
            .segment_base = segment_base,
            .next_position = end_position,
            .ahead_position = end_position,
            .used = ++reads->use_count,
        };
    }
    return NULL;
}

/* Where to read ahead to from *position on; 0: not now. The lock is held. */
static int64_t plan_ahead(pb_cold_reads *reads, pb_cold_stream *stream, const pb_log_slice *slice, int64_t *position)
{
    stream->next_position = slice->position + slice->length;
    stream->used = ++reads->use_count;
    if (stream->ahead_position < stream->next_position)
        stream->ahead_position = stream->next_position;
    int64_t end_position = stream->next_position + AHEAD_BYTES;
    end_position -= end_position % PB_PIECE_BYTES;
    if (end_position > slice->ahead_position)
        end_position = slice->ahead_position;
    *position = stream->ahead_position;
    if (end_position <= *position || reads->ahead_count >= AHEAD_WAITING || !reads->running)
        return 0;
    stream->ahead_position = end_position;
    reads->ahead_count++;
    return end_position;
}

static void read_ahead(pb_cold_reads *reads, pb_partition *partition, const pb_log_slice *slice, pb_cold_stream *stream,
                       int64_t position, int64_t end_position)
{
    ahead_read *ahead = calloc(1, sizeof *ahead);
    if (ahead != NULL) {
        pb_partition_retain(partition);
        pb_segment_retain(slice->segment);
        ahead->read.piece = ahead_piece;
        ahead->reads = reads;
        ahead->partition = partition;
        ahead->slice = *slice;
        ahead->slice.position = position;
        ahead->slice.length = end_position - position;
        ahead->stream = stream;
    }
    pthread_mutex_lock(&reads->lock);
    if (ahead != NULL)
        pb_list_push_back(&reads->ahead, &ahead->read.link);
    else
        reads->ahead_count--;
    pthread_mutex_unlock(&reads->lock);
    wake_one(reads);
}

bool pb_cold_reads_follow(pb_cold_reads *reads, pb_partition *partition, const pb_log_slice *slice, bool was_cold)
{
    if (was_cold)
        atomic_store_explicit(&reads->used, true, memory_order_relaxed);
    else if (slice->length < FOLLOWED_BYTES || !atomic_load_explicit(&reads->used, memory_order_relaxed))
        return false;
    int64_t position = 0, end_position = 0;
    pthread_mutex_lock(&reads->lock);
    pb_cold_stream *stream = find_stream(reads, partition, slice, was_cold);
    if (stream != NULL)
        end_position = plan_ahead(reads, stream, slice, &position);
    pthread_mutex_unlock(&reads->lock);
    if (end_position > 0)
        read_ahead(reads, partition, slice, stream, position, end_position);
    return stream != NULL;
}

/* ---- life ---- */

void pb_cold_reads_init(pb_cold_reads *reads, pb_io *io, int64_t cache_bytes)
{
    memset(reads, 0, sizeof *reads);
    reads->io = io;
    pb_history_init(&reads->history, io, cache_bytes > PB_HISTORY_LEAST_BYTES ? cache_bytes : PB_HISTORY_LEAST_BYTES);
    pthread_mutex_init(&reads->lock, NULL);
    pb_list_init(&reads->due);
    pb_list_init(&reads->ahead);
}

int pb_cold_reads_start(pb_cold_reads *reads, pb_failure *failure)
{
    pthread_mutex_lock(&reads->lock);
    reads->running = true;
    pthread_mutex_unlock(&reads->lock);
    pb_crew_options options = {
        .name = "pb-cold-reads",
        .work = "cold reads",
        .thread_count = PB_COLD_THREADS,
        .rank = PB_RANK_BEHIND,
        .step = step,
        .owner = reads,
    };
    return pb_crew_start(&reads->crew, reads->io, &options, failure);
}

void pb_cold_reads_stop(pb_cold_reads *reads)
{
    pthread_mutex_lock(&reads->lock);
    reads->stopping = true;
    reads->running = false;
    pthread_mutex_unlock(&reads->lock);
    pb_crew_stop(&reads->crew);
}

void pb_cold_reads_destroy(pb_cold_reads *reads)
{
    PB_ASSERT(pb_list_empty(&reads->due) && pb_list_empty(&reads->ahead));
    pb_history_destroy(&reads->history);
    pthread_mutex_destroy(&reads->lock);
}
