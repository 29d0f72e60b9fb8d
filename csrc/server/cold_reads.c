/* The threads that read history. See cold_reads.h. */
#include "server/cold_reads.h"

#include <stdlib.h>
#include <string.h>

#include "log/segment.h"

enum {
    AHEAD_BYTES = 3 << 20,               /* of one reader */
    AHEAD_RUNNING = PB_COLD_THREADS / 2, /* so that what is due finds a thread */
    AHEAD_WAITING = 64,
    FOLLOWED_BYTES = 32 * 1024, /* less comes at the tail, where there is nothing ahead */
    WARM_BYTES = 16 << 20,      /* who finds so much in a row in memory is not read ahead of any more */
    CACHE_MIN_BYTES = 32 << 20,
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

static enum pb_step step(void *argument)
{
    pb_crew_thread *self = argument;
    pb_cold_reads *reads = self->owner;
    bool is_ahead, stopping;
    pb_cold_read *read = take(self, &is_ahead, &stopping);
    if (read == NULL) /* what is still to be read ahead, others are at */
        return stopping ? PB_STEP_END : PB_STEP_IDLE;
    pb_io *io = reads->io;
    io->ops->thread_read_mode(io, PB_READ_EXACT);
    bool more = read->piece(read);
    io->ops->thread_read_mode(io, PB_READ_USUAL);
    put_back(reads, read, more, is_ahead);
    return PB_STEP_AGAIN;
}

/* ---- drop behind ---- */

/* What was brought in of one piece of a file, known by name, as it need not be kept open for this. */
typedef struct brought {
    pb_link link;         /* by age */
    struct brought *next; /* of those with the same hash */
    uint32_t hash;
    int64_t position;
    int64_t end_position;
    char path[];
} brought;

/* The path of a slice's file; false when the log has been closed. */
static bool path_of(pb_partition *partition, const pb_log_slice *slice, char *path)
{
    pthread_mutex_lock(&partition->lock);
    bool known = partition->log != NULL &&
                 pb_segment_path(path, slice->segment->directory, slice->segment->base_offset, PB_FILE_LOG, "") == 0;
    pthread_mutex_unlock(&partition->lock);
    return known;
}

static uint32_t hash_of(const char *path, int64_t piece)
{
    uint32_t hash = 2166136261u ^ (uint32_t)piece; /* FNV-1a */
    for (; *path != '\0'; path++)
        hash = (hash ^ (uint8_t)*path) * 16777619u;
    return hash;
}

/* Where the piece is linked, or would be. The lock is held. */
static brought **find_brought(pb_cold_reads *reads, const char *path, int64_t position, uint32_t hash)
{
    brought **at = &reads->pieces[hash % PB_COLD_BUCKETS];
    while (*at != NULL && ((*at)->hash != hash || strcmp((*at)->path, path) != 0 ||
                           (*at)->position / PB_COLD_PIECE_BYTES != position / PB_COLD_PIECE_BYTES))
        at = &(*at)->next;
    return at;
}

/* The range lies in one piece. What is remembered already counts once, and is new again. */
static void remember(pb_cold_reads *reads, pb_partition *partition, const pb_log_slice *slice, int64_t position,
                     int64_t length)
{
    char path[PB_LOG_PATH_BYTES];
    if (!path_of(partition, slice, path))
        return;
    uint32_t hash = hash_of(path, position / PB_COLD_PIECE_BYTES);
    int64_t end_position = position + length;
    pthread_mutex_lock(&reads->lock);
    brought **at = find_brought(reads, path, position, hash);
    brought *one = *at;
    if (one != NULL) {
        reads->brought_bytes -= one->end_position - one->position;
        pb_list_remove(&one->link);
        position = one->position < position ? one->position : position;
        end_position = one->end_position > end_position ? one->end_position : end_position;
    } else if ((one = calloc(1, sizeof *one + strlen(path) + 1)) != NULL) {
        one->hash = hash;
        memcpy(one->path, path, strlen(path) + 1);
        *at = one;
    }
    if (one != NULL) { /* without memory the kernel has to drop it */
        one->position = position;
        one->end_position = end_position;
        reads->brought_bytes += end_position - position;
        pb_list_push_back(&reads->brought, &one->link);
    }
    pthread_mutex_unlock(&reads->lock);
}

static brought *take_oldest(pb_cold_reads *reads, int64_t above_bytes)
{
    pthread_mutex_lock(&reads->lock);
    pb_link *link = reads->brought_bytes > above_bytes ? pb_list_pop_front(&reads->brought) : NULL;
    brought *one = link == NULL ? NULL : PB_CONTAINER(link, brought, link);
    if (one != NULL) {
        brought **at = find_brought(reads, one->path, one->position, one->hash);
        PB_ASSERT(*at == one);
        *at = one->next;
        reads->brought_bytes -= one->end_position - one->position;
    }
    pthread_mutex_unlock(&reads->lock);
    return one;
}

/* Before `length` more come, so that nobody else's pages have to make room. */
static void make_room(pb_cold_reads *reads, int64_t length)
{
    brought *oldest;
    while ((oldest = take_oldest(reads, reads->cache_bytes - length)) != NULL) {
        int64_t dropped_bytes = oldest->end_position - oldest->position;
        int file = reads->io->ops->file_open(reads->io, oldest->path, PB_OPEN_READ);
        if (file >= 0) { /* else it was deleted, and its pages are gone already */
            (void)reads->io->ops->file_drop(reads->io, file, oldest->position, dropped_bytes);
            (void)reads->io->ops->file_close(reads->io, file);
            atomic_fetch_add_explicit(&reads->dropped_bytes, dropped_bytes, memory_order_relaxed);
        }
        free(oldest);
    }
}

/* ---- bringing in ---- */

/* A place among those that are being read; pages are found in the page cache as soon as their read has begun. */
static pb_cold_reading *begin_reading(pb_cold_reads *reads, const pb_segment *segment, int64_t position, int64_t length)
{
    for (;;) { /* there is one for each thread */
        for (int i = 0; i < PB_COLD_THREADS; i++) {
            pb_cold_reading *reading = &reads->reading[i];
            const pb_segment *nobody = NULL;
            if (!atomic_compare_exchange_strong(&reading->segment, &nobody, segment))
                continue;
            atomic_store(&reading->end_position, position + length);
            atomic_store(&reading->position, position);
            return reading;
        }
    }
}

/* Taken by the next, it is the whole file until he says what. */
static void end_reading(pb_cold_reading *reading)
{
    atomic_store(&reading->position, 0);
    atomic_store(&reading->end_position, INT64_MAX);
    atomic_store(&reading->segment, NULL);
}

/* No lock: every fetch asks, and a thread that reads history may be off its CPU. */
static bool is_being_read(pb_cold_reads *reads, const pb_segment *segment, int64_t position, int64_t length)
{
    bool found = false;
    for (int i = 0; i < PB_COLD_THREADS && !found; i++) {
        pb_cold_reading *reading = &reads->reading[i];
        found = atomic_load(&reading->segment) == segment && atomic_load(&reading->position) < position + length &&
                position < atomic_load(&reading->end_position);
    }
    return found;
}

bool pb_cold_reads_resident(pb_cold_reads *reads, const pb_segment *segment, int file, int64_t position, int64_t length)
{
    /* In this order: a read that begins in between is one of pages that were not there. Where nothing can be found out,
     * all is taken to be. */
    return reads->io->ops->file_resident(reads->io, file, position, length) != 0 &&
           !is_being_read(reads, segment, position, length);
}

/* *found: it was in memory. */
static int bring_in(pb_cold_reads *reads, pb_partition *partition, const pb_log_slice *slice, int64_t position,
                    int64_t length, bool *found)
{
    *found = reads->io->ops->file_resident(reads->io, slice->file, position, length) == 1 &&
             !is_being_read(reads, slice->segment, position, length);
    if (*found)
        return 0;
    make_room(reads, length);
    pb_cold_reading *reading = begin_reading(reads, slice->segment, position, length);
    int result = reads->io->ops->file_bring_in(reads->io, slice->file, position, length);
    end_reading(reading);
    if (result != 0)
        return result;
    atomic_fetch_add_explicit(&reads->read_bytes, length, memory_order_relaxed);
    remember(reads, partition, slice, position, length);
    return 0;
}

int pb_cold_reads_bring_in(pb_cold_reads *reads, pb_partition *partition, const pb_log_slice *slice, int64_t position,
                           int64_t length)
{
    bool found;
    return bring_in(reads, partition, slice, position, length, &found);
}

/* ---- read ahead ---- */

typedef struct ahead_read {
    pb_cold_read read;
    pb_cold_reads *reads;
    pb_partition *partition; /* retained */
    pb_log_slice slice;      /* what is to be read; pinned */
    pb_cold_stream *stream;  /* for which it is read; it may be another one's by now */
} ahead_read;

/* Forget a stream whose reader finds in memory whatever it comes to: to look ahead of it, for ever, would cost more
 * than the one wait after which it is followed again. */
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
    int64_t length = pb_cold_piece_bytes(slice->position, slice->length);
    bool found;
    int result = bring_in(ahead->reads, ahead->partition, slice, slice->position, length, &found);
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
    end_position -= end_position % PB_COLD_PIECE_BYTES;
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
    reads->cache_bytes = cache_bytes > CACHE_MIN_BYTES ? cache_bytes : CACHE_MIN_BYTES;
    pthread_mutex_init(&reads->lock, NULL);
    pb_list_init(&reads->due);
    pb_list_init(&reads->ahead);
    for (int i = 0; i < PB_COLD_THREADS; i++)
        end_reading(&reads->reading[i]);
    pb_list_init(&reads->brought);
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
    pb_link *link;
    while ((link = pb_list_pop_front(&reads->brought)) != NULL)
        free(PB_CONTAINER(link, brought, link));
    pthread_mutex_destroy(&reads->lock);
}
