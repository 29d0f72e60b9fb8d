/*
 * A connection's two directions. Reactor thread only; see connection.h for the life of one.
 *
 * Receiving adapts to the traffic: small frames are read greedily, many per call; a large frame is received to its
 * exact end in a chunk of its own, so its bytes stay where they are until they are written. A connection with nothing
 * buffered waits without memory, so ten thousand idle ones cost little.
 */
#include "net/connection.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_HEADER_BYTES 4
#define GREEDY_BYTES PB_CHUNK_UNIT_BYTES
#define LARGE_FRAME_BYTES (32 * 1024)
#define HUGE_FRAME_BYTES (256 * 1024)  /* beside such ones small requests hurry */
#define RECEIVE_MAX_BYTES (128 * 1024) /* a turn takes no more from one connection: others wait */
#define SENDFILE_MAX_BYTES (1024 * 1024)
#define YIELD_BYTES (16 * 1024)
#define LARGE_RANGE_BYTES (256 * 1024)
#define SHARED_NS 20000000  /* for so long a second connection counts as waiting for the reactor */
#define RESIDENT_NS 5000000 /* for so long what was in memory is taken to be there still */
#define BUFFER_IDLE_NS 2000000000LL
/* Frames up to here get a chunk of their size at once; memory for larger ones grows with the bytes that have really
 * come. */
#define EXACT_FRAME_BYTES (1024 * 1024)
#define FEED_NS 5000000LL
/* Whoever has been quiet for so long has read all that it was sent. (What it was seen at may be a sweep too early.) */
#define QUIET_NS 2000000000LL
/* While others wait for memory, an unfinished frame must come at least this fast after a first while. */
#define STALL_NS 2000000000LL
#define STALL_BYTES_PER_S (32 * 1024)

static void receive(pb_connection *connection);
static void parse(pb_connection *connection);
static void settle(pb_connection *connection);
static void hurry_responses(pb_connection *connection);
static void mark(pb_connection *connection);

static pb_io *io_of(pb_connection *connection)
{
    return connection->reactor->io;
}

static void drop_chunk(pb_connection *connection)
{
    if (connection->chunk != NULL)
        pb_chunk_release(connection->chunk);
    connection->chunk = NULL;
    connection->start = 0;
    connection->end = 0;
}

/* Bytes of the frame at `start` including its size field, or 0 while the size field itself is not there. */
static uint32_t frame_bytes(const pb_connection *connection)
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
    atomic_fetch_add_explicit(&connection->pool->starved, 1, memory_order_relaxed);
    if (connection->handler->starved != NULL)
        connection->handler->starved(connection);
    if (!pb_timer_is_set(&reactor->feed) &&
        pb_timer_set(&reactor->timers, &reactor->feed, reactor->now_ns + FEED_NS) < 0)
        pb_connection_kill(connection); /* nobody would feed it */
}

static void unstarve(pb_connection *connection)
{
    if (!is_starved(connection))
        return;
    pb_list_remove(&connection->starved_link);
    atomic_fetch_sub_explicit(&connection->pool->starved, 1, memory_order_relaxed);
}

/* A chunk with room for `bytes` that starts with what is buffered and not yet parsed. False: starved. */
static bool move_to_new_chunk(pb_connection *connection, uint32_t bytes, bool overdraft)
{
    PB_ASSERT(bytes >= connection->end - connection->start);
    pb_chunk *chunk = pb_pool_exchange(connection->pool, bytes, overdraft, connection->chunk);
    if (chunk == NULL) {
        starve(connection);
        return false;
    }
    uint32_t have = connection->end - connection->start;
    PB_ASSERT(have == 0 || connection->chunk != NULL);
    if (have > 0)
        memcpy(chunk->data, connection->chunk->data + connection->start, have);
    drop_chunk(connection);
    connection->chunk = chunk;
    connection->end = have;
    return true;
}

/* How many bytes, from `start` on, the chunk of the next receive has to hold. */
static uint32_t bytes_needed(const pb_connection *connection, uint32_t frame, bool overdraft)
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
    if (frame <= exact || overdraft ||
        connection->chunk->overdraft) /* an overdraft is granted once: it must do for the whole frame */
        return frame;
    if (connection->end < connection->chunk->capacity)
        return have + 1;
    uint32_t larger = have <= exact / 4 ? exact : have < UINT32_MAX / 4 ? have * 4 : UINT32_MAX;
    return larger < frame ? larger : frame;
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
    uint32_t frame = connection->chunk != NULL ? frame_bytes(connection) : 0;
    uint32_t have = connection->end - connection->start;
    uint32_t need = bytes_needed(connection, frame, overdraft);
    bool fits = connection->chunk != NULL && connection->chunk->capacity - connection->start >= need;
    if (!fits && !move_to_new_chunk(connection, need > GREEDY_BYTES ? need : GREEDY_BYTES, overdraft))
        return 0;
    uint32_t room = connection->chunk->capacity - connection->end;
    if (frame > LARGE_FRAME_BYTES && frame - have < room)
        room = frame - have;
    else if (have == 0 && need > GREEDY_BYTES)
        room = need;
    return room < RECEIVE_MAX_BYTES ? room : RECEIVE_MAX_BYTES;
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
 * the client. What it waits for may be others, who need the memory to be heard. */
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
    uint32_t bytes = frame_bytes(connection);
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

static void parse(pb_connection *connection)
{
    if (connection->delivering)
        return;
    connection->delivering = true;
    while (connection->chunk != NULL && !connection->closing && !connection->held && take_frame(connection))
        ;
    connection->delivering = false;
    if (connection->start == connection->end || connection->held)
        connection->unfinished_since_ns = 0;
    else if (connection->unfinished_since_ns == 0)
        connection->unfinished_since_ns = connection->reactor->now_ns;
    receive(connection);
}

/* With memory short, a connection that has nothing buffered waits without a buffer. */
static void spare_buffer(pb_connection *connection)
{
    if (connection->chunk != NULL && connection->start == connection->end && pb_pool_is_tight(connection->pool))
        drop_chunk(connection);
}

static void start_receive(pb_connection *connection, bool overdraft)
{
    bool idle = connection->chunk == NULL;
    if (idle && !connection->polling) {
        connection->polling = true;
        connection->transport->receive(io_of(connection), connection->reactor->loop, &connection->socket, NULL, 0);
        return;
    }
    connection->polling = false;
    uint32_t room = make_room(connection, overdraft);
    if (room == 0)
        return;
    PB_ASSERT(connection->end + room <= connection->chunk->capacity);
    connection->transport->receive(io_of(connection), connection->reactor->loop, &connection->socket,
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

static void receive(pb_connection *connection)
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

/* ---- leaving ---- */

static void settle_debt(pb_connection *connection)
{
    if (connection->owes)
        atomic_fetch_sub_explicit(&connection->reactor->owing, 1, memory_order_relaxed);
    connection->owes = false;
}

/* When all is answered, tell the client so. What it has sent meanwhile must not lie unread when the socket is closed:
 * the kernel would reset the connection, and what is on the way to the client would be lost. */
static void part(pb_connection *connection)
{
    PB_ASSERT(connection->leaving);
    if (connection->closing || !pb_list_empty(&connection->responses))
        return;
    settle_debt(connection);
    if (connection->ended) {
        pb_connection_kill(connection);
    } else if (!connection->parted) {
        connection->parted = true;
        io_of(connection)->ops->socket_end(connection->reactor->loop, &connection->socket);
    }
}

static void discard(pb_connection *connection)
{
    pb_reactor *reactor = connection->reactor;
    drop_chunk(connection);
    connection->polling = false;
    connection->transport->receive(io_of(connection), reactor->loop, &connection->socket, reactor->discarded,
                                   sizeof reactor->discarded);
}

static void discarded(pb_connection *connection, int64_t result)
{
    if (result > 0 || result == -EAGAIN || result == -EINTR || result == -ECANCELED) {
        discard(connection);
    } else if (result < 0) {
        pb_connection_kill(connection);
    } else {
        connection->ended = true;
        part(connection);
    }
}

void pb_connection_leave(pb_connection *connection)
{
    PB_ASSERT(!connection->delivering);
    if (connection->closing || connection->leaving)
        return;
    if (connection->connecting) {
        pb_connection_kill(connection);
        return;
    }
    if (pb_list_empty(&connection->responses) && connection->reactor->now_ns - connection->last_active_ns >= QUIET_NS) {
        pb_connection_kill(connection);
        return;
    }
    connection->leaving = true;
    connection->owes = true;
    atomic_fetch_add_explicit(&connection->reactor->owing, 1, memory_order_relaxed);
    connection->held = false;
    connection->unfinished_since_ns = 0;
    unstarve(connection);
    hurry_responses(connection);
    if (!connection->closing && !connection->socket.receive.active && !connection->ended)
        discard(connection);
    mark(connection);
}

static void received(pb_op *op, int64_t result)
{
    pb_connection *connection = PB_CONTAINER(op, pb_connection, socket.receive);
    pb_reactor *reactor = connection->reactor;
    if (connection->closing) {
        settle(connection);
        return;
    }
    if (connection->leaving) {
        discarded(connection, result);
        return;
    }
    if (result == -EAGAIN || result == -EINTR) {
        receive(connection);
        return;
    }
    if (result == -ECANCELED) { /* the sweep took its buffer away: wait without one */
        drop_chunk(connection);
        connection->polling = false;
        receive(connection);
        return;
    }
    if (connection->polling && result > 0) { /* readable: now it is worth a buffer */
        start_receive(connection, false);
        return;
    }
    if (result == 0) {
        connection->ended = true;
        finish(connection);
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
    parse(connection);
}

/* ---- sending ---- */

static pb_response *head(pb_connection *connection)
{
    if (pb_list_empty(&connection->responses))
        return NULL;
    return PB_CONTAINER(connection->responses.next, pb_response, link);
}

static void release_head(pb_connection *connection, bool sent)
{
    pb_response *response = head(connection);
    PB_ASSERT(response != NULL && response->ready);
    pb_list_remove(&response->link);
    PB_ASSERT(connection->response_count > 0);
    connection->response_count--;
    connection->reads_in_bulk = response->yields || response->is_large;
    response->released(response, sent);
}

/* Gather what lies in memory of a response's outputs, from `first` on: the output at which that ended, a file range or
 * one that finds no place; their count when there is none. */
static int gather_outputs(pb_connection *connection, const pb_response *response, int first, int *count)
{
    for (int i = first; i < response->output_count; i++) {
        const pb_output *output = &response->outputs[i];
        if (output->length == 0)
            continue;
        if (output->data == NULL || *count == PB_SEND_IOVECS)
            return i;
        connection->iov[(*count)++] = (struct iovec){(void *)(uintptr_t)output->data, (size_t)output->length};
    }
    return response->output_count;
}

/* Gather memory from ready responses until a file range or the end. The response whose file range follows at once, or
 * NULL. */
static pb_response *gather(pb_connection *connection, int *count)
{
    *count = 0;
    for (pb_link *link = connection->responses.next; link != &connection->responses; link = link->next) {
        pb_response *response = PB_CONTAINER(link, pb_response, link);
        if (!response->ready)
            return NULL;
        int end = gather_outputs(connection, response, response->next_output, count);
        if (end < response->output_count)
            return response->outputs[end].data == NULL ? response : NULL;
    }
    return NULL;
}

/* Count `bytes` as sent; responses that are through are released. */
static void advance(pb_connection *connection, int64_t bytes)
{
    pb_response *response;
    while ((response = head(connection)) != NULL && response->ready) {
        while (response->next_output < response->output_count) {
            pb_output *output = &response->outputs[response->next_output];
            int64_t part = bytes < output->length ? bytes : output->length;
            output->length -= part;
            output->position += part;
            if (output->data != NULL)
                output->data += part;
            bytes -= part;
            if (output->length > 0)
                return;
            response->next_output++;
        }
        release_head(connection, true);
    }
    PB_ASSERT(bytes == 0);
}

/* How much of the next output, a file range, is sent at a time. A sendfile cannot be left, and what it wakes may take
 * the CPU before it is through: a large one would be felt by all at the tail. */
static int64_t file_part(const pb_connection *connection, const pb_response *response, const pb_output *output)
{
    bool yields = response->yields && connection->reactor->now_ns < connection->reactor->tail_until_ns;
    int64_t most = yields ? YIELD_BYTES : SENDFILE_MAX_BYTES;
    if (connection->brought_bytes > 0 && connection->brought_bytes < most)
        most = connection->brought_bytes;
    return output->length < most ? output->length : most;
}

/* sendfile waits for what is not in memory, and with it would the reactor. A client that reads slowly may leave time
 * enough for it to be forgotten again. */
static enum pb_part_place find_part(pb_connection *connection, pb_response *response, const pb_output *output,
                                    int64_t *length, const uint8_t **bytes)
{
    bool brought = connection->brought_bytes > 0;
    connection->brought_bytes = 0;
    if (connection->handler->place == NULL || connection->reactor->now_ns < response->resident_ns + RESIDENT_NS)
        return PB_PART_IN_FILE;
    return connection->handler->place(response, output, brought, length, bytes);
}

static void send_memory(pb_connection *connection, int count)
{
    connection->transport->send(io_of(connection), connection->reactor->loop, &connection->socket, connection->iov,
                                count);
}

/* What was gathered, the file range that follows it, and what follows that. */
static void transmit_file(pb_connection *connection, pb_response *response, int count)
{
    int next = response->next_output;
    while (response->outputs[next].length == 0 || response->outputs[next].data != NULL)
        next++;
    PB_ASSERT(next < response->output_count);
    const pb_output *output = &response->outputs[next];
    response->is_large = response->is_large || output->length >= LARGE_RANGE_BYTES;
    int64_t length = file_part(connection, response, output);
    const uint8_t *bytes = NULL;
    enum pb_part_place place = find_part(connection, response, output, &length, &bytes);
    connection->bringing = place == PB_PART_AWAITED;
    if (place == PB_PART_AWAITED) { /* what lies in memory does not wait for it */
        if (count > 0)
            send_memory(connection, count);
        return;
    }
    int all_count = count;
    if (place == PB_PART_IN_MEMORY)
        connection->iov[all_count++] = (struct iovec){(void *)(uintptr_t)bytes, (size_t)length};
    int before_count = all_count;
    if (length == output->length)
        (void)gather_outputs(connection, response, next + 1, &all_count);
    if (place == PB_PART_IN_MEMORY)
        send_memory(connection, all_count);
    else
        connection->transport->send_file(io_of(connection), connection->reactor->loop, &connection->socket,
                                         connection->iov, all_count, all_count - before_count, output->file,
                                         output->position, (size_t)length);
}

static void transmit(pb_connection *connection)
{
    if (connection->closing || connection->socket.transmit.active || connection->bringing)
        return;
    advance(connection, 0); /* releases responses that have nothing to send */
    int count;
    pb_response *response = gather(connection, &count);
    if (response != NULL && count < PB_SEND_IOVECS)
        transmit_file(connection, response, count);
    else if (count > 0)
        send_memory(connection, count);
}

static void transmitted(pb_op *op, int64_t result)
{
    pb_connection *connection = PB_CONTAINER(op, pb_connection, socket.transmit);
    if (connection->closing) {
        settle(connection);
        return;
    }
    if (result == -EAGAIN || result == -EINTR) {
        transmit(connection);
        return;
    }
    if (result <= 0) { /* 0 from a file: it is shorter than promised, so the frame cannot be finished */
        if (result == 0)
            connection->handler->malformed(connection, "a segment that ended inside a response");
        pb_connection_kill(connection);
        return;
    }
    connection->last_active_ns = connection->reactor->now_ns;
    pb_counter_add(&connection->reactor->counters.bytes_out, result);
    advance(connection, result);
    transmit(connection);
    pb_connection_resume(connection);
    if (connection->leaving)
        part(connection);
    else if (connection->ended)
        finish(connection);
}

/* ---- life ---- */

static pb_connection *make(pb_reactor *reactor, const pb_connection_handler *handler, void *owner, int64_t id)
{
    pb_connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL)
        return NULL;
    connection->socket.receive.done = received;
    connection->socket.transmit.done = transmitted;
    connection->reactor = reactor;
    connection->transport = &pb_transport_plain;
    connection->handler = handler;
    connection->owner = owner;
    connection->id = id;
    connection->pool = handler->pool != NULL ? handler->pool : reactor->options.pool;
    connection->last_active_ns = reactor->now_ns;
    pb_list_init(&connection->flush_link);
    pb_list_init(&connection->starved_link);
    pb_list_init(&connection->responses);
    return connection;
}

pb_connection *pb_connection_open(pb_reactor *reactor, int fd, const pb_connection_handler *handler, void *owner,
                                  int64_t id, uint32_t listener)
{
    pb_connection *connection = make(reactor, handler, owner, id);
    pb_socket refused = {.fd = fd};
    if (connection == NULL) {
        reactor->io->ops->socket_close(reactor->loop, &refused);
        return NULL;
    }
    connection->socket.fd = fd;
    connection->socket.patient = true; /* until it shows what it is for */
    connection->listener = listener;
    if (reactor->io->ops->socket_peer(reactor->io, fd, connection->host, sizeof connection->host) < 0 ||
        reactor->io->ops->socket_attach(reactor->loop, &connection->socket) < 0) {
        reactor->io->ops->socket_close(reactor->loop, &connection->socket);
        free(connection);
        return NULL;
    }
    pb_list_push_back(&reactor->connections, &connection->link);
    pb_reactor_notice_opening(reactor);
    receive(connection);
    if (reactor->left)
        pb_connection_leave(connection);
    return connection;
}

static void connected(pb_op *op, int64_t result)
{
    pb_connection *connection = PB_CONTAINER(op, pb_connection, socket.transmit);
    pb_reactor *reactor = connection->reactor;
    connection->connecting = false;
    connection->socket.transmit.done = transmitted;
    connection->last_active_ns = reactor->now_ns;
    if (result == 0 && !connection->closing)
        result = reactor->io->ops->socket_peer(reactor->io, connection->socket.fd, connection->host,
                                               sizeof connection->host);
    if (result == 0 && !connection->closing)
        result = reactor->io->ops->socket_attach(reactor->loop, &connection->socket);
    connection->error = connection->closing ? -ECANCELED : (int)result;
    if (connection->error < 0) {
        connection->closing = true;
        settle(connection);
        return;
    }
    receive(connection);
    connection->handler->opened(connection);
}

pb_connection *pb_connection_connect(pb_reactor *reactor, const pb_address *address,
                                     const pb_connection_handler *handler, void *owner, int64_t id)
{
    pb_connection *connection = make(reactor, handler, owner, id);
    if (connection == NULL)
        return NULL;
    connection->address = *address;
    connection->connecting = true;
    connection->socket.transmit.done = connected;
    if (reactor->io->ops->socket_connect(reactor->loop, &connection->socket, &connection->address) < 0) {
        free(connection);
        return NULL;
    }
    pb_list_push_back(&reactor->connections, &connection->link);
    return connection;
}

/* Put it where the reactor looks at the end of the turn. */
static void mark(pb_connection *connection)
{
    if (pb_list_empty(&connection->flush_link))
        pb_list_push_back(&connection->reactor->flush, &connection->flush_link);
}

/* Nobody waits for these any more. */
static void hurry_responses(pb_connection *connection)
{
    for (pb_link *link = connection->responses.next; link != &connection->responses; link = link->next) {
        pb_response *response = PB_CONTAINER(link, pb_response, link);
        if (response->ready || response->hurried || response->hurry == NULL)
            continue;
        response->hurried = true;
        response->hurry(response);
    }
}

/* When closing: drop what is ready; end it when nothing holds it any more. */
static void settle(pb_connection *connection)
{
    PB_ASSERT(connection->closing);
    if (connection->socket.receive.active || connection->socket.transmit.active || connection->delivering ||
        connection->bringing)
        return;
    hurry_responses(connection);
    pb_response *response;
    while ((response = head(connection)) != NULL && response->ready)
        release_head(connection, false);
    if (response != NULL)
        return;
    drop_chunk(connection);
    unstarve(connection);
    pb_timer_cancel(&connection->reactor->timers, &connection->mute);
    pb_list_remove(&connection->link);
    pb_list_remove(&connection->flush_link);
    io_of(connection)->ops->socket_close(connection->reactor->loop, &connection->socket);
    connection->handler->closed(connection);
    free(connection);
}

void pb_connection_kill(pb_connection *connection)
{
    if (!connection->closing) {
        connection->closing = true;
        settle_debt(connection);
        pb_reactor_notice_control(connection->reactor);
        unstarve(connection);
        io_of(connection)->ops->socket_shutdown(connection->reactor->loop, &connection->socket);
    }
    mark(connection);
}

void pb_connection_resume(pb_connection *connection)
{
    if (connection->held)
        mark(connection);
}

static void unmute(pb_timer *timer)
{
    pb_connection_resume(PB_CONTAINER(timer, pb_connection, mute));
}

void pb_connection_mute(pb_connection *connection, int64_t until_ns)
{
    bool muted = pb_timer_is_set(&connection->mute);
    if (connection->closing || connection->leaving || (muted && connection->mute.deadline_ns >= until_ns))
        return;
    connection->mute.fire = unmute;
    if (pb_timer_set(&connection->reactor->timers, &connection->mute, until_ns) == 0)
        connection->held = true;
}

void pb_connection_expect(pb_connection *connection, pb_response *response)
{
    response->ready = false;
    response->hurried = false;
    response->hurry = NULL;
    response->yields = false;
    response->is_large = false;
    response->resident_ns = 0;
    response->outputs = NULL;
    response->output_count = 0;
    response->next_output = 0;
    pb_list_push_back(&connection->responses, &response->link);
    connection->response_count++;
}

void pb_connection_respond(pb_connection *connection, pb_response *response)
{
    PB_ASSERT(!response->ready);
    response->ready = true;
    mark(connection);
}

void pb_connection_brought(pb_connection *connection, int64_t result)
{
    PB_ASSERT(connection->bringing);
    connection->bringing = false;
    connection->brought_bytes = result;
    if (result < 0 && !connection->closing) { /* half of the answer is sent already */
        connection->handler->malformed(connection, "a segment that cannot be read any further");
        pb_connection_kill(connection);
    }
    mark(connection);
}

void pb_connection_flush(pb_connection *connection)
{
    if (connection->closing) {
        settle(connection);
        return;
    }
    transmit(connection);
    if (connection->leaving) {
        part(connection);
    } else if (connection->held && !connection->closing && !pb_timer_is_set(&connection->mute)) {
        connection->held = false;
        parse(connection);
    } else if (connection->ended) {
        finish(connection);
    }
}

void pb_connection_feed(pb_connection *connection)
{
    unstarve(connection);
    if (connection->closing || connection->held || connection->socket.receive.active)
        return;
    connection->polling = connection->chunk == NULL; /* it was readable when it found no memory */
    if (connection->unfinished_since_ns != 0)
        connection->unfinished_since_ns = connection->reactor->now_ns; /* until now it was we who kept it waiting */
    start_receive(connection, true);
}

/* Does it hold memory others wait for, for a frame that does not come? */
static bool is_stalled(const pb_connection *connection)
{
    int64_t since_ns = connection->unfinished_since_ns;
    int64_t age_ns = connection->reactor->now_ns - since_ns;
    if (since_ns == 0 || age_ns < STALL_NS || !connection->socket.receive.active ||
        atomic_load_explicit(&connection->pool->starved, memory_order_relaxed) == 0)
        return false;
    return connection->end - connection->start < age_ns / 1000000000 * STALL_BYTES_PER_S;
}

void pb_connection_sweep(pb_connection *connection)
{
    if (connection->closing) {
        settle(connection);
        return;
    }
    if (connection->leaving || connection->connecting)
        return;
    pb_reactor *reactor = connection->reactor;
    int64_t idle_ns = reactor->now_ns - connection->last_active_ns;
    bool is_empty = connection->chunk != NULL && connection->start == connection->end;
    if (reactor->options.idle_close_ns > 0 && idle_ns > reactor->options.idle_close_ns) {
        pb_connection_kill(connection);
    } else if (is_stalled(connection)) {
        fail_frame(connection, "an unfinished request that holds buffer memory others wait for");
    } else if (connection->socket.receive.active && is_empty &&
               (idle_ns > BUFFER_IDLE_NS || pb_pool_is_tight(connection->pool))) {
        io_of(connection)->ops->socket_cancel(reactor->loop, &connection->socket);
    } else if (pb_timer_is_set(&connection->mute) && is_empty && !connection->socket.receive.active) {
        drop_chunk(connection);
    }
}
