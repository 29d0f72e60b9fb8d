/*
 * The receiving side of a connection: bytes into chunks, frames to the handler, and memory for both. Reactor thread
 * only.
 *
 * It adapts to the traffic. Small frames are read greedily, many per call. A large frame is received to its exact end
 * in a chunk of its own, so its bytes stay where they are until they are written. A connection with nothing buffered
 * waits without memory, so ten thousand idle ones cost little.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "net/connection_parts.h"
#include "net/pressure.h"

#define FRAME_HEADER_BYTES 4
#define GREEDY_BYTES PB_CHUNK_UNIT_BYTES
#define LARGE_FRAME_BYTES (32 * 1024)
#define HUGE_FRAME_BYTES (256 * 1024)  /* beside such ones small requests hurry */
#define RECEIVE_MAX_BYTES (128 * 1024) /* a turn takes no more from one connection: others wait */
#define SHARED_NS 20000000             /* for so long a second connection counts as waiting for the reactor */
/* Frames up to here get a chunk of their size at once; memory for larger ones grows with the bytes that have really
 * come. */
#define EXACT_FRAME_BYTES (1024 * 1024)
#define FEED_NS 5000000LL
/* But a client gets no more ahead of its bytes than this many times what it has sent. */
#define AHEAD 16
#define LITTLE_BYTES 4096 /* read at once from a client that is not known yet, while memory is short */

static void drop_chunk(pb_connection *connection)
{
    if (connection->chunk != NULL)
        pb_chunk_release(connection->chunk);
    connection->chunk = NULL;
    connection->start = 0;
    connection->end = 0;
}

/* Nothing is received into memory that is not there, or has no room by intent: wait until something comes. */
static bool has_no_buffer(const pb_connection *connection)
{
    return connection->chunk == NULL || connection->chunk->fitted;
}

uint32_t pb_receive_frame_bytes(const pb_connection *connection)
{
    if (connection->end - connection->start < FRAME_HEADER_BYTES)
        return 0;
    uint32_t length;
    memcpy(&length, connection->chunk->data + connection->start, sizeof length);
    return be32toh(length) + FRAME_HEADER_BYTES;
}

static uint32_t exact_frame_bytes(const pb_connection *connection)
{
    uint32_t bytes = connection->handler->exact_frame_bytes;
    return bytes > EXACT_FRAME_BYTES ? bytes : EXACT_FRAME_BYTES;
}

static bool is_starved(const pb_connection *connection)
{
    return connection->starved_link.next != &connection->starved_link;
}

/* Wait for memory: it is asked for again soon, on behalf of all that wait. */
static void starve(pb_connection *connection)
{
    pb_reactor *reactor = connection->reactor;
    PB_ASSERT(!is_starved(connection));
    pb_list_push_back(&reactor->starved, &connection->starved_link);
    connection->starved_since_ns = reactor->now_ns;
    atomic_fetch_add_explicit(&connection->pool->starved, 1, memory_order_relaxed);
    if (connection->handler->starved != NULL)
        connection->handler->starved(connection);
    if (!pb_timer_is_set(&reactor->feed) &&
        pb_timer_set(&reactor->timers, &reactor->feed, reactor->now_ns + FEED_NS) < 0)
        pb_connection_kill(connection); /* nobody would feed it */
}

void pb_receive_unstarve(pb_connection *connection)
{
    if (!is_starved(connection))
        return;
    pb_list_remove(&connection->starved_link);
    atomic_fetch_sub_explicit(&connection->pool->starved, 1, memory_order_relaxed);
}

/* Bytes that are buffered and not yet parsed go on in that chunk. */
static void take_over(pb_connection *connection, pb_chunk *chunk)
{
    uint32_t have = connection->end - connection->start;
    PB_ASSERT(have == 0 || connection->chunk != NULL);
    if (have > 0)
        memcpy(chunk->data, connection->chunk->data + connection->start, have);
    drop_chunk(connection);
    connection->chunk = chunk;
    connection->end = have;
}

void pb_receive_drop(pb_connection *connection)
{
    PB_ASSERT(connection->start == connection->end && !connection->socket.receive.active);
    drop_chunk(connection);
}

bool pb_receive_fit(pb_connection *connection)
{
    uint32_t have = connection->end - connection->start;
    PB_ASSERT(have > 0 && !connection->socket.receive.active);
    pb_chunk *fitting = pb_pool_take_fitting(connection->pool, have);
    if (fitting == NULL)
        return false;
    take_over(connection, fitting);
    return true;
}

/* The size to which the memory grows for a frame that has come in part. */
static uint32_t grown_bytes(uint32_t have, uint32_t frame, uint32_t exact)
{
    uint32_t larger = have < UINT32_MAX / 4 ? have * 4 : UINT32_MAX;
    if (have <= exact / AHEAD)
        larger = have * AHEAD;
    else if (have <= exact / 4)
        larger = exact;
    return larger < frame ? larger : frame;
}

/* How many bytes, from `start` on, the chunk of the next receive has to hold. */
static uint32_t bytes_needed(const pb_connection *connection, uint32_t frame)
{
    uint32_t have = connection->end - connection->start;
    if (have == 0) {
        uint32_t last = connection->last_frame_bytes;
        bool expects_large = last > LARGE_FRAME_BYTES && last <= exact_frame_bytes(connection);
        return expects_large && !pb_pool_is_tight(connection->pool) ? last : GREEDY_BYTES;
    }
    if (frame == 0)
        return have + FRAME_HEADER_BYTES;
    uint32_t exact = exact_frame_bytes(connection);
    bool is_earned = have >= frame / AHEAD || connection->handler->exact_frame_bytes > 0;
    if (frame <= exact && is_earned)
        return frame;
    if (connection->end < connection->chunk->capacity && !connection->chunk->fitted)
        return have + 1;
    return grown_bytes(have, frame, exact);
}

/* How much the next receive may take: no more than `room`. */
static uint32_t bound_room(const pb_connection *connection, uint32_t room, uint32_t frame)
{
    uint32_t have = connection->end - connection->start;
    uint32_t most = RECEIVE_MAX_BYTES;
    if (connection->chunk->overdraft) {
        /* Bytes behind the frame would keep an overdraft from others, if the frame makes its client wait. */
        most = (frame > 0 ? frame : FRAME_HEADER_BYTES) - have;
    } else if (pb_pool_is_tight(connection->pool)) { /* and what comes behind it now would keep memory from others */
        uint32_t usual = connection->last_frame_bytes > LITTLE_BYTES ? connection->last_frame_bytes : LITTLE_BYTES;
        most = frame > 0 ? frame - have : usual;
    }
    most = most < RECEIVE_MAX_BYTES ? most : RECEIVE_MAX_BYTES;
    return room < most ? room : most;
}

/* A chunk with room for `bytes` that starts with what is buffered and not yet parsed, of a frame that is so large if it
 * is known. False: starved. */
static bool move_to_new_chunk(pb_connection *connection, uint32_t frame, uint32_t bytes, bool overdraft)
{
    PB_ASSERT(bytes >= connection->end - connection->start);
    bool large = bytes > PB_CHUNK_UNIT_BYTES || frame > PB_CHUNK_UNIT_BYTES;
    pb_chunk *chunk = pb_pool_exchange(connection->pool, bytes, large, overdraft, connection->chunk);
    if (chunk == NULL) {
        starve(connection);
        return false;
    }
    if (frame > 0 && !chunk->overdraft && pb_pool_has_starved(connection->pool))
        atomic_store_explicit(&connection->pool->fed_ns, connection->reactor->now_ns, memory_order_relaxed);
    take_over(connection, chunk);
    return true;
}

/* Make sure the next receive has somewhere to put the bytes; how many it may take, or 0 when starved. */
static uint32_t make_room(pb_connection *connection, bool overdraft)
{
    if (connection->chunk != NULL && connection->start == connection->end) {
        if (atomic_load_explicit(&connection->chunk->references, memory_order_acquire) == 1) {
            connection->start = 0;
            connection->end = 0;
        } else {
            drop_chunk(connection);
        }
    }
    uint32_t frame = connection->chunk != NULL ? pb_receive_frame_bytes(connection) : 0;
    uint32_t have = connection->end - connection->start;
    uint32_t need = bytes_needed(connection, frame);
    bool fits = connection->chunk != NULL && connection->chunk->capacity - connection->start >= need;
    if (!fits && !move_to_new_chunk(connection, frame, need > GREEDY_BYTES ? need : GREEDY_BYTES, overdraft))
        return 0;
    uint32_t room = connection->chunk->capacity - connection->end;
    if (frame > LARGE_FRAME_BYTES && frame - have < room)
        room = frame - have;
    else if (have == 0 && need > GREEDY_BYTES)
        room = need < room ? need : room;
    return bound_room(connection, room, frame);
}

static void fail_frame(pb_connection *connection, const char *what)
{
    connection->handler->malformed(connection, what);
    pb_connection_kill(connection);
}

/* Small requests that come while another connection sends huge ones. */
static void notice_mixture(pb_reactor *reactor, uint32_t frame_bytes)
{
    if (frame_bytes >= HUGE_FRAME_BYTES)
        reactor->huge_until_ns = reactor->now_ns + SHARED_NS;
    else if (reactor->now_ns < reactor->huge_until_ns)
        pb_reactor_hurry(reactor);
}

/* A frame of which a part has come and that finds no room behind it: as long as it would be held, the rest stays with
 * the client. It may wait for other connections, which need the memory to be heard. */
static bool must_wait(pb_connection *connection, uint32_t bytes)
{
    const pb_chunk *chunk = connection->chunk;
    const uint8_t *frame = chunk->data + connection->start + FRAME_HEADER_BYTES;
    return bytes > chunk->capacity - connection->start && connection->handler->may_begin != NULL &&
           !connection->handler->may_begin(connection, frame, connection->end - connection->start - FRAME_HEADER_BYTES);
}

/* One step of the frame loop: true when there may be another frame to take. */
static bool take_frame(pb_connection *connection)
{
    uint32_t bytes = pb_receive_frame_bytes(connection);
    if (connection->end - connection->start < FRAME_HEADER_BYTES)
        return false;
    uint32_t length = bytes - FRAME_HEADER_BYTES;
    if (length > connection->handler->max_frame_bytes) {
        if (!pb_list_empty(&connection->responses)) { /* what came before is answered first */
            connection->held = true;
            return false;
        }
        fail_frame(connection,
                   length > INT32_MAX ? "a negative request size" : "a request larger than socket.request.max.bytes");
        return false;
    }
    if (connection->end - connection->start < bytes) {
        connection->held = must_wait(connection, bytes);
        return false;
    }
    notice_mixture(connection->reactor, bytes);
    const uint8_t *frame = connection->chunk->data + connection->start + FRAME_HEADER_BYTES;
    switch (connection->handler->frame(connection, connection->chunk, frame, length)) {
    case PB_FRAME_HOLD:
        connection->held = true;
        return false;
    case PB_FRAME_REFUSE:
        pb_connection_kill(connection);
        return false;
    case PB_FRAME_TAKEN:
        break;
    }
    connection->start += bytes;
    connection->last_frame_bytes = bytes;
    connection->unfinished_since_ns = 0;
    return !connection->closing;
}

void pb_receive_frames(pb_connection *connection)
{
    if (connection->delivering)
        return;
    connection->delivering = true;
    while (connection->chunk != NULL && !connection->closing && !connection->held && take_frame(connection))
        ;
    connection->delivering = false;
    if (connection->start == connection->end)
        connection->unfinished_since_ns = 0;
    else if (connection->unfinished_since_ns == 0)
        connection->unfinished_since_ns = connection->reactor->now_ns;
    pb_pressure_spare(connection);
    pb_receive(connection);
}

/* With memory short, a connection that has nothing buffered waits without a buffer. */
static void spare_buffer(pb_connection *connection)
{
    if (connection->chunk != NULL && connection->start == connection->end && pb_pool_is_tight(connection->pool))
        drop_chunk(connection);
}

static void start_receive(pb_connection *connection, bool overdraft)
{
    if (has_no_buffer(connection) && !connection->polling) {
        connection->polling = true;
        connection->transport->receive(pb_connection_io(connection), connection->reactor->loop, &connection->socket,
                                       NULL, 0);
        return;
    }
    connection->polling = false;
    uint32_t room = make_room(connection, overdraft);
    if (room == 0)
        return;
    PB_ASSERT(connection->end + room <= connection->chunk->capacity);
    connection->transport->receive(pb_connection_io(connection), connection->reactor->loop, &connection->socket,
                                   connection->chunk->data + connection->end, room);
}

/* The client sends no more: nothing is left to do when all that it has sent is answered. */
static void finish(pb_connection *connection)
{
    if (connection->closing || connection->held || connection->delivering)
        return;
    drop_chunk(connection); /* at most a part of a frame */
    connection->unfinished_since_ns = 0;
    if (pb_list_empty(&connection->responses))
        pb_connection_kill(connection);
}

void pb_receive(pb_connection *connection)
{
    if (connection->ended) {
        finish(connection);
        return;
    }
    if (connection->closing || connection->held || connection->socket.receive.active || is_starved(connection))
        return;
    spare_buffer(connection);
    start_receive(connection, false);
}

void pb_receive_and_discard(pb_connection *connection)
{
    pb_reactor *reactor = connection->reactor;
    drop_chunk(connection);
    connection->polling = false;
    connection->transport->receive(pb_connection_io(connection), reactor->loop, &connection->socket, reactor->discarded,
                                   sizeof reactor->discarded);
}

static void discarded(pb_connection *connection, int64_t result)
{
    if (result > 0 || result == -EAGAIN || result == -EINTR || result == -ECANCELED) {
        pb_receive_and_discard(connection);
    } else if (result < 0) {
        pb_connection_kill(connection);
    } else {
        connection->ended = true;
        pb_connection_mark(connection);
    }
}

void pb_received(pb_op *op, int64_t result)
{
    pb_connection *connection = PB_CONTAINER(op, pb_connection, socket.receive);
    pb_reactor *reactor = connection->reactor;
    if (connection->closing) {
        pb_connection_mark(connection);
        return;
    }
    if (connection->leaving) {
        discarded(connection, result);
        return;
    }
    if (result == -EAGAIN || result == -EINTR) {
        pb_receive(connection);
        return;
    }
    if (result == -ECANCELED) { /* its buffer is taken away: wait without one */
        if (connection->start == connection->end)
            drop_chunk(connection);
        else
            (void)pb_receive_fit(connection);
        connection->polling = false;
        pb_receive(connection);
        return;
    }
    if (connection->polling && result > 0) { /* readable: now it is worth a buffer */
        start_receive(connection, false);
        return;
    }
    if (result == 0) {
        connection->ended = true;
        pb_connection_mark(connection);
        return;
    }
    if (result < 0) {
        pb_connection_kill(connection);
        return;
    }
    reactor->now_ns = reactor->io->ops->monotonic_ns(reactor->io);
    if (reactor->woken_ns == 0)
        reactor->woken_ns = reactor->now_ns;
    connection->last_active_ns = reactor->now_ns;
    if (reactor->last_heard != connection)
        reactor->shared_until_ns = reactor->now_ns + SHARED_NS;
    reactor->last_heard = connection;
    if (!connection->reads_in_bulk)
        reactor->tail_until_ns = reactor->now_ns + SHARED_NS;
    pb_counter_add(&reactor->counters.bytes_in, result);
    connection->end += (uint32_t)result;
    PB_ASSERT(connection->end <= connection->chunk->capacity);
    pb_receive_frames(connection);
}

/* ---- memory ---- */

void pb_receive_end(pb_connection *connection)
{
    drop_chunk(connection);
    pb_receive_unstarve(connection);
}

void pb_connection_feed(pb_connection *connection)
{
    pb_receive_unstarve(connection);
    if (connection->closing || connection->held || connection->socket.receive.active)
        return;
    connection->polling = has_no_buffer(connection); /* it was readable when it found no memory */
    int64_t since_ns = connection->starved_since_ns;
    start_receive(connection, true);
    if (is_starved(connection))
        connection->starved_since_ns = since_ns;
    else if (connection->unfinished_since_ns != 0) /* until now the client was kept waiting */
        connection->unfinished_since_ns += connection->reactor->now_ns - since_ns;
}
