/* What connections give back while receive memory is short, and who is closed. See pressure.h. */
#include "net/pressure.h"

#include <stdio.h>

#include "net/connection_parts.h"

#define BUFFER_IDLE_NS 2000000000LL
#define PAUSE_NS 20000000LL    /* a frame that comes without such a pause keeps its room for the rest */
#define LITTLE_BYTES 4096      /* are moved to memory of their size at once, */
#define SOME_BYTES (32 * 1024) /* and such as these if they are not to be taken soon */
#define UNSENT_SHARE 8         /* room that is so much larger than what has come is taken back */
/* A connection is slow when it has held memory for this long and is on the way neither to this pace, nor to the end of
 * its frame within that time. */
#define SLOW_AFTER_NS 250000000LL
#define SLOW_BYTES_PER_S (256 * 1024)
#define FRAME_NS 5000000000LL
#define CLOSED_PER_SWEEP 16

/* Slow connections of one reactor, found in one sweep. */
typedef struct slow_ones {
    int64_t limit_bytes_per_second; /* those that are no faster are closed; -1: none */
    int64_t wanted_bytes;           /* until so much comes back */
    int closed;
    int64_t bytes;
    int64_t bytes_per_second; /* of the slowest that is left */
    bool has_overdraft;
} slow_ones;

static uint32_t buffered_bytes(const pb_connection *connection)
{
    return connection->end - connection->start;
}

void pb_pressure_spare(pb_connection *connection)
{
    const pb_chunk *chunk = connection->chunk;
    uint32_t have = buffered_bytes(connection);
    if (chunk == NULL || connection->socket.receive.active || connection->closing)
        return;
    if (have == 0) {
        if (pb_timer_is_set(&connection->mute))
            pb_receive_drop(connection);
    } else if (have <= (connection->held ? SOME_BYTES : LITTLE_BYTES) && chunk->capacity >= PB_CHUNK_UNIT_BYTES &&
               !chunk->overdraft && pb_pool_is_tight(connection->pool)) {
        (void)pb_receive_fit(connection);
    }
}

/* Is most of the connection's memory room for bytes that do not come? */
static bool has_idle_room(const pb_connection *connection, int64_t idle_ns)
{
    uint32_t have = buffered_bytes(connection);
    if (connection->chunk == NULL || connection->chunk->fitted || connection->chunk->overdraft)
        return false;
    if (have == 0)
        return idle_ns > BUFFER_IDLE_NS || pb_pool_is_tight(connection->pool);
    return idle_ns > PAUSE_NS && have <= connection->chunk->capacity / UNSENT_SHARE &&
           pb_pool_is_tight(connection->pool);
}

/* Bytes per second since it began to hold memory; -1: it is not slow. A client that was told to wait for memory, or has
 * nothing buffered, is not. */
static int64_t slow_pace(const pb_connection *connection)
{
    int64_t age_ns = connection->reactor->now_ns - connection->unfinished_since_ns;
    bool waits_for_client = connection->socket.receive.active || connection->held;
    if (connection->chunk == NULL || connection->unfinished_since_ns == 0 || age_ns < SLOW_AFTER_NS ||
        !waits_for_client || connection->handler->pool != NULL)
        return -1;
    int64_t have = buffered_bytes(connection), frame = pb_receive_frame_bytes(connection);
    int64_t pace = have * 1000 / (age_ns / 1000000);
    return pace < SLOW_BYTES_PER_S || pace < frame / (FRAME_NS / 1000000000) ? pace : -1;
}

static void close_slow(pb_connection *connection, int64_t pace)
{
    char what[200];
    snprintf(what, sizeof what,
             "it has sent %u bytes of a request of %u, at %lld bytes per second, and others wait for the memory "
             "(pybroker.buffer.budget.bytes)",
             buffered_bytes(connection), pb_receive_frame_bytes(connection), (long long)pace);
    pb_counter_add(&connection->reactor->counters.slow_closed, 1);
    connection->handler->malformed(connection, what);
    pb_connection_kill(connection);
}

static void judge(pb_connection *connection, slow_ones *slow)
{
    int64_t pace = slow_pace(connection);
    if (pace < 0 || connection->chunk->capacity <= LITTLE_BYTES)
        return; /* it gets on, or its end would help nobody */
    int64_t bytes = connection->chunk->capacity;
    if (pace <= slow->limit_bytes_per_second && slow->wanted_bytes > 0 && slow->closed < CLOSED_PER_SWEEP) {
        slow->closed++;
        slow->wanted_bytes -= bytes;
        close_slow(connection, pace);
        return;
    }
    slow->bytes += bytes;
    slow->has_overdraft = slow->has_overdraft || connection->chunk->overdraft;
    if (pace < slow->bytes_per_second)
        slow->bytes_per_second = pace;
}

static void look_at(pb_connection *connection, slow_ones *slow)
{
    if (connection->closing || connection->leaving || connection->connecting)
        return;
    pb_reactor *reactor = connection->reactor;
    int64_t idle_ns = reactor->now_ns - connection->last_active_ns;
    if (reactor->options.idle_close_ns > 0 && idle_ns > reactor->options.idle_close_ns) {
        pb_connection_kill(connection);
        return;
    }
    judge(connection, slow);
    if (connection->closing)
        return;
    if (connection->socket.receive.active && has_idle_room(connection, idle_ns))
        pb_connection_io(connection)->ops->socket_cancel(reactor->loop, &connection->socket);
    else
        pb_pressure_spare(connection);
}

void pb_pressure_sweep(pb_reactor *reactor)
{
    pb_pool *pool = reactor->options.pool;
    int64_t over_bytes = pb_pool_used_bytes(pool) - pb_pool_large_bytes(pool);
    int64_t round = reactor->now_ns / PB_POOL_ROUND_NS;
    bool is_first = reactor->swept_ns / PB_POOL_ROUND_NS < round; /* in this round */
    slow_ones slow = {.limit_bytes_per_second = is_first ? pb_pool_slowest(pool, reactor->now_ns) : -1,
                      .wanted_bytes = over_bytes > 0 ? over_bytes : 1, /* at least the slowest goes */
                      .bytes_per_second = INT64_MAX};
    reactor->swept_ns = reactor->now_ns;
    pb_link *next;
    for (pb_link *link = reactor->connections.next; link != &reactor->connections; link = next) {
        next = link->next;
        look_at(PB_CONTAINER(link, pb_connection, link), &slow);
    }
    if (slow.bytes == 0 || reactor->told_round == round || !pb_pool_has_starved(pool))
        return; /* a connection that starves for a moment costs nobody anything */
    reactor->told_round = round;
    pb_pool_tell_slow(pool, reactor->now_ns, slow.bytes, slow.bytes_per_second, slow.has_overdraft);
}
