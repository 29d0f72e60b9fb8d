/* History in memory; see history.h. */
#include "log/read/history.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/segment/segment.h"

_Static_assert(PB_LARGE_PAGE_BYTES % PB_PIECE_BYTES == 0, "a piece lies in one large page");

enum {
    PINNED_SHARE = 2,        /* of the capacity, what clients that read slowly may keep from making room */
    GROWTH = 2,              /* for each byte that was dropped too soon, so many more are kept */
    SLOW_PIECE_NS = 4000000, /* where a piece takes less, to read it again costs less than fresh memory to keep it in */
    KEPT_TIMES = 2,          /* what has to be read more often is the page cache's */
    PAGE_CACHE_FACTOR = 4,   /* so much more than there may be here the page cache is taken to hold */
    SPARE_FACTOR = 2,        /* so much more than is kept may lie ready to be used again */
    LAST_READS = 8,          /* of which the usual time is told */
    SMALL_BYTES = 256 << 10, /* a buffer up to here comes from the heap */
};

/* One buffer less than all there are, as a piece may take more than it holds. */
static int64_t most_bytes(const pb_history *history)
{
    return history->capacity_bytes - PB_PIECE_BYTES;
}

static int64_t least_bytes(const pb_history *history)
{
    return most_bytes(history) < PB_HISTORY_LEAST_BYTES ? most_bytes(history) : PB_HISTORY_LEAST_BYTES;
}

/* ---- the table ---- */

/* The same for all pieces between two multiples of PB_PIECE_BYTES. Multiplications by odd numbers (the golden ratio's
 * bits, then another), of which the upper bits count. */
static uint64_t key_of(const pb_segment *segment, int64_t position)
{
    uint64_t key = ((uint64_t)(uintptr_t)segment ^ (uint64_t)segment->base_offset) * 0x9e3779b97f4a7c15u;
    return (key + (uint64_t)(position / PB_PIECE_BYTES)) * 0xd1342543de82ef95u;
}

static pb_piece **bucket_of(pb_history *history, const pb_segment *segment, int64_t position)
{
    return &history->buckets[(key_of(segment, position) >> 32) % PB_HISTORY_BUCKETS];
}

static pb_ghost *ghost_of(pb_history *history, uint64_t key)
{
    return &history->ghosts[(key >> 32) % PB_HISTORY_GHOSTS];
}

static void hold(pb_history *history, pb_piece *piece)
{
    pb_history_view *view = &piece->segment->history;
    pb_piece **bucket = bucket_of(history, piece->segment, piece->position);
    if (atomic_load(&view->history) == NULL) {
        pb_list_init(&view->pieces);
        pb_list_push_back(&history->views, &view->link);
        atomic_store(&view->history, history);
    }
    piece->next = *bucket;
    *bucket = piece;
    pb_list_push_back(&view->pieces, &piece->segment_link);
    atomic_fetch_add(&view->piece_count, 1);
    history->held_bytes += (int64_t)piece->buffer_bytes;
}

/* Its memory goes with it, for the most part when free_all is called: that may take a while, and here the lock is held.
 */
static void let_go(pb_history *history, pb_piece *piece, pb_link *to_free)
{
    PB_ASSERT(piece->pins == 0);
    pb_piece **at = bucket_of(history, piece->segment, piece->position);
    while (*at != piece)
        at = &(*at)->next;
    *at = piece->next;
    pb_list_remove(&piece->link);
    pb_list_remove(&piece->segment_link);
    atomic_fetch_sub(&piece->segment->history.piece_count, 1);
    history->held_bytes -= (int64_t)piece->buffer_bytes;
    if (piece->buffer_bytes > SMALL_BYTES) {
        pb_piece_buffers_give(&history->buffers, piece->buffer);
        piece->buffer = NULL;
    }
    pb_list_push_back(to_free, &piece->link);
}

static void free_piece(pb_piece *piece)
{
    free(piece->buffer);
    free(piece);
}

/* Without the lock, which a reactor may want. */
static void free_all(pb_link *to_free)
{
    pb_link *link;
    while ((link = pb_list_pop_front(to_free)) != NULL)
        free_piece(PB_CONTAINER(link, pb_piece, link));
}

/* ---- life ---- */

void pb_history_init(pb_history *history, pb_io *io, int64_t capacity_bytes)
{
    memset(history, 0, sizeof *history);
    history->io = io;
    history->capacity_bytes = capacity_bytes;
    history->target_bytes = least_bytes(history);
    pthread_mutex_init(&history->lock, NULL);
    pthread_cond_init(&history->read, NULL);
    pb_list_init(&history->views);
    pb_list_init(&history->pieces);
    pb_piece_buffers_init(&history->buffers, capacity_bytes);
}

void pb_history_destroy(pb_history *history)
{
    pb_link to_free, *link;
    pb_list_init(&to_free);
    while (!pb_list_empty(&history->pieces))
        let_go(history, PB_CONTAINER(history->pieces.next, pb_piece, link), &to_free);
    free_all(&to_free);
    while ((link = pb_list_pop_front(&history->views)) != NULL)
        atomic_store(&PB_CONTAINER(link, pb_history_view, link)->history, NULL);
    PB_ASSERT(history->held_bytes == 0 && history->pinned_bytes == 0);
    pb_piece_buffers_destroy(&history->buffers);
    pthread_cond_destroy(&history->read);
    pthread_mutex_destroy(&history->lock);
}

void pb_history_forget(pb_segment *segment)
{
    pb_history *history = atomic_load(&segment->history.history);
    if (history == NULL)
        return;
    pb_link to_free;
    pb_list_init(&to_free);
    pthread_mutex_lock(&history->lock);
    while (!pb_list_empty(&segment->history.pieces))
        let_go(history, PB_CONTAINER(segment->history.pieces.next, pb_piece, segment_link), &to_free);
    pb_list_remove(&segment->history.link);
    pthread_mutex_unlock(&history->lock);
    free_all(&to_free);
}

/* ---- finding ---- */

/* The piece that holds `position` and most of what follows. The lock is held. */
static pb_piece *find(pb_history *history, const pb_segment *segment, int64_t position)
{
    pb_piece *best = NULL;
    for (pb_piece *piece = *bucket_of(history, segment, position); piece != NULL; piece = piece->next)
        if (piece->segment == segment && !piece->reading && piece->position <= position &&
            position < piece->end_position && (best == NULL || piece->end_position > best->end_position))
            best = piece;
    return best;
}

static void use(pb_history *history, pb_piece *piece)
{
    piece->used_ns = history->io->ops->monotonic_ns(history->io);
    pb_list_remove(&piece->link);
    pb_list_push_back(&history->pieces, &piece->link);
}

/* Where what is here from `position` on ends, up to `end_position`: somebody comes to it. The lock is held. */
static int64_t held_end(pb_history *history, const pb_segment *segment, int64_t position, int64_t end_position)
{
    pb_piece *piece;
    while (position < end_position && (piece = find(history, segment, position)) != NULL) {
        use(history, piece);
        position = piece->end_position;
    }
    return position < end_position ? position : end_position;
}

/* Where to look; NULL: there is nothing, as mostly, and nobody has to be kept from anything. */
static pb_history *history_of(pb_segment *segment)
{
    return pb_history_may_hold(segment) ? atomic_load(&segment->history.history) : NULL;
}

int64_t pb_history_held_end(pb_segment *segment, int64_t position, int64_t end_position)
{
    pb_history *history = history_of(segment);
    if (history == NULL)
        return position;
    pthread_mutex_lock(&history->lock);
    int64_t end = held_end(history, segment, position, end_position);
    pthread_mutex_unlock(&history->lock);
    return end;
}

bool pb_history_holds(pb_segment *segment, int64_t position, int64_t length)
{
    return pb_history_held_end(segment, position, position + length) == position + length;
}

static int64_t large_floor(int64_t position)
{
    return position - position % PB_LARGE_PAGE_BYTES;
}

/* Has, or reads, the piece some of this? */
static bool covers(const pb_piece *piece, int64_t position, int64_t end_position)
{
    int64_t from = piece->large ? large_floor(piece->position) : piece->position;
    int64_t to = piece->large ? from + PB_LARGE_PAGE_BYTES : piece->end_position;
    return from < end_position && position < to;
}

/* Is there a piece with some of this, or one that is being read? The lock is held. */
static bool meets(pb_history *history, const pb_segment *segment, int64_t position, int64_t length, bool only_reading)
{
    bool found = false;
    int64_t end_position = position + length;
    int64_t last = large_floor(end_position - 1) + PB_LARGE_PAGE_BYTES; /* a neighbour may be reading all of the page */
    for (int64_t at = large_floor(position); at < last && !found; at += PB_PIECE_BYTES)
        for (pb_piece *piece = *bucket_of(history, segment, at); piece != NULL && !found; piece = piece->next)
            found =
                piece->segment == segment && (piece->reading || !only_reading) && covers(piece, position, end_position);
    return found;
}

static bool lock_and_meet(pb_segment *segment, int64_t position, int64_t length, bool only_reading)
{
    pb_history *history = history_of(segment);
    if (history == NULL)
        return false;
    pthread_mutex_lock(&history->lock);
    bool found = meets(history, segment, position, length, only_reading);
    pthread_mutex_unlock(&history->lock);
    return found;
}

bool pb_history_meets(pb_segment *segment, int64_t position, int64_t length)
{
    return lock_and_meet(segment, position, length, false);
}

bool pb_history_is_reading(pb_segment *segment, int64_t position, int64_t length)
{
    return lock_and_meet(segment, position, length, true);
}

/* The lock is held. */
static void pin(pb_history *history, pb_piece *piece)
{
    use(history, piece);
    if (piece->pins++ == 0)
        history->pinned_bytes += (int64_t)piece->buffer_bytes;
}

void pb_history_unpin(pb_piece *piece)
{
    pb_history *history = piece->history;
    pthread_mutex_lock(&history->lock);
    PB_ASSERT(piece->pins > 0);
    if (--piece->pins == 0)
        history->pinned_bytes -= (int64_t)piece->buffer_bytes;
    pthread_mutex_unlock(&history->lock);
}

static pb_piece *find_and_pin(pb_segment *segment, int64_t position, int share)
{
    pb_history *history = history_of(segment);
    if (history == NULL)
        return NULL;
    pthread_mutex_lock(&history->lock);
    pb_piece *piece = find(history, segment, position);
    if (piece != NULL && piece->pins == 0 && history->pinned_bytes >= history->capacity_bytes / share)
        piece = NULL;
    if (piece != NULL)
        pin(history, piece);
    pthread_mutex_unlock(&history->lock);
    return piece;
}

pb_piece *pb_history_pin(pb_segment *segment, int64_t position)
{
    return find_and_pin(segment, position, PINNED_SHARE);
}

size_t pb_history_copy(pb_segment *segment, void *buffer, size_t length, int64_t position)
{
    size_t copied = 0;
    pb_piece *piece;
    while (copied < length && (piece = find_and_pin(segment, position, 1)) != NULL) { /* not for long */
        int64_t part = (int64_t)(length - copied);
        const uint8_t *bytes = pb_piece_bytes(piece, segment, position, &part);
        memcpy((uint8_t *)buffer + copied, bytes, (size_t)part);
        pb_history_unpin(piece);
        copied += (size_t)part;
        position += part;
    }
    return copied;
}

/* ---- making room ---- */

/* The oldest piece among those that nobody is about to send. NULL: there is none. The lock is held. */
static pb_piece *oldest(const pb_history *history)
{
    for (pb_link *link = history->pieces.next; link != &history->pieces; link = link->next) {
        pb_piece *piece = PB_CONTAINER(link, pb_piece, link);
        if (piece->pins == 0)
            return piece;
    }
    return NULL;
}

/* The lock is held. */
static void drop(pb_history *history, pb_piece *piece, pb_link *to_free)
{
    atomic_fetch_add_explicit(&history->dropped_bytes, piece->end_position - piece->position, memory_order_relaxed);
    let_go(history, piece, to_free);
}

/* Of a piece that is to be read: was it dropped lately, and would be here with all the memory there may be? Then more
 * is kept from now on. Or, where the disk is quick, would it be in the page cache? Then that shall have it if it
 * happens again: true. */
static bool look_back(pb_history *history, pb_piece *piece)
{
    uint64_t key = key_of(piece->segment, piece->position);
    pb_ghost *ghost = ghost_of(history, key);
    piece->times = 1;
    if (ghost->key != key || ghost->dropped_bytes == 0 || ghost->position >= piece->end_position ||
        ghost->end_position <= piece->position)
        return false;
    int64_t dropped_bytes = atomic_load_explicit(&history->dropped_bytes, memory_order_relaxed);
    bool is_slow = history->piece_ns > SLOW_PIECE_NS;
    int64_t memory_bytes = is_slow ? most_bytes(history) : PAGE_CACHE_FACTOR * most_bytes(history);
    bool is_missed = history->target_bytes + dropped_bytes - ghost->dropped_bytes <= memory_bytes;
    if (is_missed)
        piece->times = ghost->times + 1;
    if (is_missed && is_slow)
        history->target_bytes += GROWTH * (int64_t)piece->buffer_bytes;
    if (history->target_bytes > most_bytes(history))
        history->target_bytes = most_bytes(history);
    *ghost = (pb_ghost){0};
    return is_missed && !is_slow && piece->times > KEPT_TIMES;
}

/* False: it is not to be kept here. The lock is held. */
static bool make_room(pb_history *history, pb_piece *piece, pb_link *to_free)
{
    int64_t bytes = (int64_t)piece->buffer_bytes;
    if (look_back(history, piece))
        return false;
    pb_piece *other;
    while ((history->held_bytes - history->pinned_bytes + bytes > history->target_bytes ||
            history->held_bytes + bytes > most_bytes(history)) &&
           (other = oldest(history)) != NULL) {
        uint64_t key = key_of(other->segment, other->position);
        pb_ghost ghost = {key, other->position, other->end_position, 0, other->times};
        drop(history, other, to_free);
        ghost.dropped_bytes = atomic_load_explicit(&history->dropped_bytes, memory_order_relaxed);
        *ghost_of(history, key) = ghost;
    }
    return true;
}

/* ---- bringing in ---- */

static size_t blocks_bytes(int64_t position, int64_t length)
{
    const size_t block = PB_DIRECT_BLOCK_BYTES;
    return ((size_t)(position % PB_DIRECT_BLOCK_BYTES + length) + block - 1) / block * block;
}

/* For [position, position + length), of which the file's blocks are read if it is read direct; if it is large, without
 * a buffer yet. NULL: there is no memory. */
static pb_piece *make(pb_history *history, pb_segment *segment, int64_t position, int64_t length, bool direct)
{
    pb_piece *piece = calloc(1, sizeof *piece);
    if (piece == NULL)
        return NULL;
    piece->history = history;
    piece->segment = segment;
    piece->position = position;
    piece->end_position = position + length;
    piece->reading = true;
    pb_list_init(&piece->link);
    if (direct)
        piece->buffer_bytes = blocks_bytes(position, length);
    if (piece->buffer_bytes > SMALL_BYTES)
        piece->buffer_bytes = PB_PIECE_BYTES;
    else if (direct && (piece->buffer = aligned_alloc(PB_DIRECT_BLOCK_BYTES, piece->buffer_bytes)) == NULL)
        piece->buffer_bytes = 0;
    return piece;
}

/* Leave out what is here already, or will be soon: the piece begins behind that. False: nothing is left of it. The lock
 * is held, and given up while somebody else reads. */
static bool shorten(pb_history *history, pb_piece *piece)
{
    for (;;) {
        piece->position = held_end(history, piece->segment, piece->position, piece->end_position);
        if (piece->position == piece->end_position || !meets(history, piece->segment, piece->position, 1, true))
            return piece->position < piece->end_position;
        pthread_cond_wait(&history->read, &history->lock);
    }
}

/* A buffer for it, or none. The lock is held. */
static void find_buffer(pb_history *history, pb_piece *piece, pb_link *to_free)
{
    if (piece->buffer_bytes == 0)
        return;
    bool has_room = make_room(history, piece, to_free);
    if (has_room && piece->buffer == NULL)
        piece->buffer = pb_piece_buffers_take(&history->buffers);
    if (has_room && piece->buffer != NULL)
        return;
    free(piece->buffer);
    piece->buffer = NULL;
    piece->buffer_bytes = 0;
}

/* Take it in, to be read, with a buffer or into the page cache. False: there is nothing to be read. */
static bool begin(pb_history *history, pb_piece *piece, int64_t large_before)
{
    pb_link to_free;
    pb_list_init(&to_free);
    pthread_mutex_lock(&history->lock);
    bool begins = shorten(history, piece);
    if (begins) {
        find_buffer(history, piece, &to_free);
        piece->large = piece->buffer == NULL && large_floor(piece->position) + PB_LARGE_PAGE_BYTES <= large_before;
        hold(history, piece);
    }
    pthread_mutex_unlock(&history->lock);
    free_all(&to_free);
    return begins;
}

static void finish(pb_history *history, pb_piece *piece, bool is_kept, int64_t took_ns)
{
    pb_link to_free;
    pb_list_init(&to_free);
    pthread_mutex_lock(&history->lock);
    piece->reading = false;
    if (is_kept && piece->buffer_bytes == PB_PIECE_BYTES)
        history->piece_ns += (took_ns - history->piece_ns) / LAST_READS;
    if (is_kept)
        use(history, piece);
    else
        let_go(history, piece, &to_free);
    pthread_cond_broadcast(&history->read);
    pthread_mutex_unlock(&history->lock);
    free_all(&to_free);
}

/* The bytes that were read, or -errno. */
static int64_t read_piece(pb_history *history, const pb_piece *piece, int file)
{
    const pb_io_ops *ops = history->io->ops;
    int64_t head = piece->position % PB_DIRECT_BLOCK_BYTES;
    int64_t length = piece->end_position - piece->position;
    int rc = ops->file_reopen_direct(history->io, file);
    if (rc >= 0) {
        int direct = rc;
        rc = pb_io_read_blocks(history->io, direct, piece->buffer, (size_t)(head + length), piece->position - head);
        (void)ops->file_close(history->io, direct);
    }
    if (rc == 0)
        return length;
    /* Where that cannot be done, the usual way can, or says what is wrong. */
    rc = pb_io_read_all(history->io, file, piece->buffer + head, (size_t)length, piece->position);
    (void)ops->file_drop(history->io, file, piece->position, length);
    return rc == 0 ? length : rc;
}

/* The large page that it lies in, or itself: the bytes that were read, or -errno. */
static int64_t read_into_page_cache(pb_history *history, const pb_piece *piece, int file)
{
    pb_io *io = history->io;
    int64_t length = piece->end_position - piece->position;
    if (piece->large) {
        int64_t large_position = large_floor(piece->position);
        if (io->ops->file_bring_in(io, file, large_position, PB_LARGE_PAGE_BYTES) == 0)
            return PB_LARGE_PAGE_BYTES;
        /* Something else in it could not be read, and what was of it is in the way. */
        (void)io->ops->file_drop(io, file, large_position, PB_LARGE_PAGE_BYTES);
    }
    int rc = io->ops->file_bring_in(io, file, piece->position, length);
    return rc == 0 ? length : rc;
}

static int read_in(pb_history *history, pb_piece *piece, int file)
{
    pb_io *io = history->io;
    int64_t begun_ns = io->ops->monotonic_ns(io);
    bool is_kept = piece->buffer != NULL;
    int64_t result = is_kept ? read_piece(history, piece, file) : read_into_page_cache(history, piece, file);
    finish(history, piece, result > 0 && is_kept, io->ops->monotonic_ns(io) - begun_ns);
    if (result > 0)
        atomic_fetch_add_explicit(&history->read_bytes, result, memory_order_relaxed);
    return result > 0 ? 0 : (int)result;
}

int pb_history_bring_in(pb_history *history, pb_segment *segment, const pb_history_file *file, int64_t position,
                        int64_t length)
{
    PB_ASSERT(length > 0 && length == pb_piece_part(position, length));
    pb_piece *piece = make(history, segment, position, length, file->direct);
    if (piece == NULL)
        return history->io->ops->file_bring_in(history->io, file->file, position, length);
    if (begin(history, piece, file->large_before))
        return read_in(history, piece, file->file);
    free_piece(piece);
    return 0;
}

/* ---- giving back ---- */

/* Drop the oldest if nobody has come to it for long. When to look again; 0: it was dropped. The lock is held. */
static int64_t drop_idle(pb_history *history, int64_t now_ns, pb_link *to_free)
{
    pb_piece *piece = oldest(history);
    if (piece == NULL)
        return pb_list_empty(&history->pieces) ? PB_IO_FOREVER : now_ns + PB_HISTORY_IDLE_NS;
    if (piece->used_ns + PB_HISTORY_IDLE_NS > now_ns)
        return piece->used_ns + PB_HISTORY_IDLE_NS;
    drop(history, piece, to_free);
    return 0;
}

int64_t pb_history_trim(pb_history *history)
{
    pb_link to_free;
    pb_list_init(&to_free);
    pthread_mutex_lock(&history->lock);
    int64_t due_ns = drop_idle(history, history->io->ops->monotonic_ns(history->io), &to_free);
    if (due_ns == PB_IO_FOREVER)
        history->target_bytes = least_bytes(history);
    int64_t touched_bytes = history->held_bytes + (int64_t)history->buffers.spare_count * PB_PIECE_BYTES;
    bool is_idle = due_ns == 0 || due_ns == PB_IO_FOREVER;
    uint8_t *spare = is_idle || touched_bytes > SPARE_FACTOR * (history->target_bytes + history->pinned_bytes)
                         ? pb_piece_buffers_take_spare(&history->buffers)
                         : NULL;
    pthread_mutex_unlock(&history->lock);
    free_all(&to_free);
    if (spare == NULL)
        return due_ns;
    pb_piece_buffers_clean(spare);
    pthread_mutex_lock(&history->lock);
    pb_piece_buffers_give_clean(&history->buffers, spare);
    pthread_mutex_unlock(&history->lock);
    return 0;
}
