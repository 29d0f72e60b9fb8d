/* History in memory; see history.h. */
#include "log/history.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/segment.h"

enum {
    PINNED_SHARE = 2, /* of the capacity, what clients that read slowly may keep from making room */
    GROWTH = 2,       /* for each byte that was dropped too soon, so many more are kept */
};

/* ---- life ---- */

static int64_t least_bytes(const pb_history *history)
{
    return history->capacity_bytes < PB_HISTORY_LEAST_BYTES ? history->capacity_bytes : PB_HISTORY_LEAST_BYTES;
}

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

/* The same for all pieces between two multiples of PB_PIECE_BYTES. Two multiplications by odd numbers (the golden
 * ratio's bits, then another), of which the upper bits count. */
static uint64_t key_of(const pb_segment *segment, int64_t position)
{
    uint64_t key = (uint64_t)(uintptr_t)segment * 0x9e3779b97f4a7c15u + (uint64_t)(position / PB_PIECE_BYTES);
    return key * 0xd1342543de82ef95u;
}

static pb_piece **bucket_of(pb_history *history, const pb_segment *segment, int64_t position)
{
    return &history->buckets[(key_of(segment, position) >> 32) % PB_HISTORY_BUCKETS];
}

static pb_ghost *ghost_of(pb_history *history, uint64_t key)
{
    return &history->ghosts[(key >> 32) % PB_HISTORY_GHOSTS];
}

static void hold(pb_history *history, pb_segment *segment, pb_piece *piece)
{
    pb_piece **bucket = bucket_of(history, segment, piece->position);
    piece->next = *bucket;
    *bucket = piece;
    pb_list_push_back(&segment->history.pieces, &piece->segment_link);
    history->held_bytes += (int64_t)piece->buffer_bytes;
}

static void let_go(pb_history *history, pb_piece *piece)
{
    PB_ASSERT(piece->pins == 0);
    pb_piece **at = bucket_of(history, piece->segment, piece->position);
    while (*at != piece)
        at = &(*at)->next;
    *at = piece->next;
    pb_list_remove(&piece->link);
    pb_list_remove(&piece->segment_link);
    history->held_bytes -= (int64_t)piece->buffer_bytes;
    pb_piece_buffers_give(&history->buffers, piece->buffer, piece->buffer_bytes);
    free(piece);
}

void pb_history_destroy(pb_history *history)
{
    pb_link *link;
    while (!pb_list_empty(&history->pieces))
        let_go(history, PB_CONTAINER(history->pieces.next, pb_piece, link));
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
    pthread_mutex_lock(&history->lock);
    while (!pb_list_empty(&segment->history.pieces))
        let_go(history, PB_CONTAINER(segment->history.pieces.next, pb_piece, segment_link));
    pb_list_remove(&segment->history.link);
    pthread_mutex_unlock(&history->lock);
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

/* Where what is here from `position` on ends, up to `end_position`. The lock is held. */
static int64_t held_end(pb_history *history, const pb_segment *segment, int64_t position, int64_t end_position)
{
    pb_piece *piece;
    while (position < end_position && (piece = find(history, segment, position)) != NULL)
        position = piece->end_position;
    return position < end_position ? position : end_position;
}

bool pb_history_may_hold(pb_segment *segment)
{
    return atomic_load(&segment->history.history) != NULL;
}

bool pb_history_holds(pb_segment *segment, int64_t position, int64_t length)
{
    pb_history *history = atomic_load(&segment->history.history);
    if (history == NULL)
        return false;
    pthread_mutex_lock(&history->lock);
    bool holds = held_end(history, segment, position, position + length) == position + length;
    pthread_mutex_unlock(&history->lock);
    return holds;
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
    pb_history *history = atomic_load(&segment->history.history);
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

/* ---- bringing in ---- */

/* The oldest that nobody is about to send; `too_soon`: somebody might have come to it still. false: there is none. The
 * lock is held. */
static bool drop_oldest(pb_history *history, bool too_soon)
{
    for (pb_link *link = history->pieces.next; link != &history->pieces; link = link->next) {
        pb_piece *piece = PB_CONTAINER(link, pb_piece, link);
        if (piece->pins > 0)
            continue;
        atomic_fetch_add_explicit(&history->dropped_bytes, piece->end_position - piece->position, memory_order_relaxed);
        uint64_t key = key_of(piece->segment, piece->position);
        if (too_soon)
            *ghost_of(history, key) =
                (pb_ghost){key, atomic_load_explicit(&history->dropped_bytes, memory_order_relaxed)};
        let_go(history, piece);
        return true;
    }
    return false;
}

/* `bytes` more come, from there. The lock is held. */
static void make_room(pb_history *history, const pb_segment *segment, int64_t position, int64_t bytes)
{
    /* One buffer less than all there are, as a piece may take more than it holds. */
    int64_t most_bytes = history->capacity_bytes - PB_PIECE_BYTES;
    uint64_t key = key_of(segment, position);
    pb_ghost *ghost = ghost_of(history, key);
    if (ghost->key == key && ghost->dropped_bytes > 0) {
        int64_t since_bytes =
            atomic_load_explicit(&history->dropped_bytes, memory_order_relaxed) - ghost->dropped_bytes;
        if (history->target_bytes + since_bytes <= most_bytes) /* with so much more it would be here still */
            history->target_bytes += GROWTH * bytes;
        *ghost = (pb_ghost){0};
    }
    if (history->target_bytes > most_bytes)
        history->target_bytes = most_bytes;
    while ((history->held_bytes - history->pinned_bytes + bytes > history->target_bytes ||
            history->held_bytes + bytes > most_bytes) &&
           drop_oldest(history, true))
        ;
}

/* Memory for [position, position + length), of which the file's blocks are read. NULL: there is none. The lock is held.
 */
static pb_piece *make(pb_history *history, pb_segment *segment, int64_t position, int64_t length)
{
    pb_piece *piece = calloc(1, sizeof *piece);
    if (piece == NULL)
        return NULL;
    size_t bytes = (size_t)(position % PB_DIRECT_BLOCK_BYTES + length);
    make_room(history, segment, position, (int64_t)bytes);
    piece->buffer = pb_piece_buffers_take(&history->buffers, bytes, &piece->buffer_bytes);
    if (piece->buffer == NULL) {
        free(piece);
        return NULL;
    }
    piece->history = history;
    piece->segment = segment;
    piece->position = position;
    piece->end_position = position + length;
    piece->reading = true;
    pb_list_init(&piece->link);
    if (atomic_load(&segment->history.history) == NULL) {
        pb_list_init(&segment->history.pieces);
        pb_list_push_back(&history->views, &segment->history.link);
        atomic_store(&segment->history.history, history);
    }
    hold(history, segment, piece);
    return piece;
}

/* Somebody is reading what begins there. The lock is held. */
static bool is_being_read(pb_history *history, const pb_segment *segment, int64_t position)
{
    bool found = false;
    for (pb_piece *piece = *bucket_of(history, segment, position); piece != NULL && !found; piece = piece->next)
        found = piece->segment == segment && piece->reading && piece->position <= position &&
                position < piece->end_position;
    return found;
}

/* What is here already, or will be soon, is left out. NULL with *length 0: that was all. */
static pb_piece *begin(pb_history *history, pb_segment *segment, int64_t *position, int64_t *length)
{
    int64_t end_position = *position + *length;
    pthread_mutex_lock(&history->lock);
    *position = held_end(history, segment, *position, end_position);
    while (*position < end_position && is_being_read(history, segment, *position)) {
        pthread_cond_wait(&history->read, &history->lock);
        *position = held_end(history, segment, *position, end_position);
    }
    *length = end_position - *position;
    pb_piece *piece = *length > 0 ? make(history, segment, *position, *length) : NULL;
    pthread_mutex_unlock(&history->lock);
    return piece;
}

static void finish(pb_history *history, pb_piece *piece, bool is_read)
{
    pthread_mutex_lock(&history->lock);
    piece->reading = false;
    if (is_read)
        use(history, piece);
    else
        let_go(history, piece);
    pthread_cond_broadcast(&history->read);
    pthread_mutex_unlock(&history->lock);
}

static int read_piece(pb_history *history, pb_segment *segment, const pb_piece *piece, int file)
{
    const pb_io_ops *ops = history->io->ops;
    int64_t head = piece->position % PB_DIRECT_BLOCK_BYTES;
    int64_t length = piece->end_position - piece->position;
    int direct = pb_segment_open_direct(segment);
    int rc = direct < 0 ? direct
                        : pb_io_read_blocks(history->io, direct, piece->buffer, (size_t)(head + length),
                                            piece->position - head);
    if (direct >= 0)
        (void)ops->file_close(history->io, direct);
    if (rc == 0)
        return 0;
    /* Where that cannot be done, the usual way can, or says what is wrong. */
    rc = pb_io_read_all(history->io, file, piece->buffer + head, (size_t)length, piece->position);
    (void)ops->file_drop(history->io, file, piece->position, length);
    return rc;
}

int pb_history_bring_in(pb_history *history, pb_segment *segment, int file, int64_t position, int64_t length)
{
    PB_ASSERT(length > 0 && length <= pb_piece_part(position, length));
    pb_piece *piece = begin(history, segment, &position, &length);
    if (length == 0)
        return 0;
    if (piece == NULL)
        return history->io->ops->file_bring_in(history->io, file, position, length);
    int rc = read_piece(history, segment, piece, file);
    finish(history, piece, rc == 0);
    if (rc == 0)
        atomic_fetch_add_explicit(&history->read_bytes, length, memory_order_relaxed);
    return rc;
}

/* ---- giving back ---- */

int64_t pb_history_trim(pb_history *history)
{
    int64_t now_ns = history->io->ops->monotonic_ns(history->io);
    int64_t due_ns = PB_IO_FOREVER;
    pthread_mutex_lock(&history->lock);
    if (!pb_list_empty(&history->pieces)) {
        pb_piece *oldest = PB_CONTAINER(history->pieces.next, pb_piece, link);
        due_ns = (oldest->pins > 0 ? now_ns : oldest->used_ns) + PB_HISTORY_IDLE_NS;
        if (due_ns <= now_ns)
            (void)drop_oldest(history, false);
    } else {
        history->target_bytes = least_bytes(history);
    }
    uint8_t *spare =
        due_ns <= now_ns || due_ns == PB_IO_FOREVER ? pb_piece_buffers_take_spare(&history->buffers) : NULL;
    pthread_mutex_unlock(&history->lock);
    if (spare == NULL)
        return due_ns <= now_ns ? 0 : due_ns;
    pb_piece_buffers_clean(spare);
    pthread_mutex_lock(&history->lock);
    pb_piece_buffers_give_clean(&history->buffers, spare);
    pthread_mutex_unlock(&history->lock);
    return 0;
}
