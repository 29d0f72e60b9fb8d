/* Connections give memory back while it is short, and the slowest are closed. See pressure.h. */
#include "net/pressure.h"

#include <stdio.h>

#include "net/connection_parts.h"

#define BUFFER_IDLE_NS 2000000000LL
#define PAUSE_NS 20000000LL    /* a frame that comes without such a pause keeps its room for the rest */
#define LITTLE_BYTES 4096      /* are moved to memory of their size at once, */
#define SOME_BYTES (32 * 1024) /* and such as these if they are not to be taken soon */
#define UNSENT_SHARE 8         /* room that is so much larger than what has come is taken back */
/* A connection is slow when it has held memory for this long, and neither keeps this pace nor will reach the end of its
 * frame within that time. */
#define SLOW_AFTER_NS 250000000LL
#define SLOW_BYTES_PER_S (256 * 1024)
#define FRAME_NS 5000000000LL
#define LAST_BYTES_PER_S INT32_MAX /* no client is faster */
#define CLOSED_PER_SWEEP 64
#define TOLD_EVERY_NS 1000000000LL
#define FREED_SHARE 8 /* such a part of the budget is freed in a round */

typedef struct slow_one {
    pb_connection *connection;
    int64_t bytes_per_second;
} slow_one;

/* Slow connections of one reactor, found in one sweep. */
typedef struct slow_ones {
    int64_t limit_bytes_per_second;     /* those that are no faster may be closed; -1: none */
    slow_one slowest[CLOSED_PER_SWEEP]; /* of these, the slowest first */
    int count;
    int64_t bytes; /* that all of them hold, but for those that were closed */
    int64_t bytes_per_second;
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

/* Connections wait for each other's memory, and none of them gets any. */
static bool is_stuck(const pb_pool *pool, int64_t now_ns)
{
    return now_ns - atomic_load_explicit(&pool->fed_ns, memory_order_relaxed) >= SLOW_AFTER_NS;
}

/* The next frame is held because this side has not answered an earlier one, or keeps its client within a quota. */
static bool is_held_by_us(const pb_connection *connection)
{
    if (!connection->held || pb_list_empty(&connection->responses))
        return connection->held;
    return pb_timer_is_set(&connection->mute) || !PB_CONTAINER(connection->responses.next, pb_response, link)->ready;
}

/* Bytes per second since it began to hold memory, SLOW_AFTER_NS ago or longer. */
static int64_t pace_of(const pb_connection *connection)
{
    int64_t age_ns = connection->reactor->now_ns - connection->unfinished_since_ns;
    PB_ASSERT(connection->unfinished_since_ns > 0 && age_ns >= SLOW_AFTER_NS);
    return (int64_t)buffered_bytes(connection) * 1000 / (age_ns / 1000000);
}

/* The pace by which slow connections are compared; -1: it is not slow. One that has nothing buffered is not. One that
 * waits for memory, or for an answer of ours, is only slow when nothing gets on, and the latter comes last. */
static int64_t slow_pace(const pb_connection *connection)
{
    int64_t now_ns = connection->reactor->now_ns;
    if (connection->chunk == NULL || connection->unfinished_since_ns == 0 ||
        now_ns - connection->unfinished_since_ns < SLOW_AFTER_NS || connection->handler->pool != NULL)
        return -1;
    int64_t frame = pb_receive_frame_bytes(connection), pace = pace_of(connection);
    if (is_held_by_us(connection))
        return is_stuck(connection->pool, now_ns) ? LAST_BYTES_PER_S : -1;
    if (!connection->socket.receive.active && !connection->held)
        return now_ns - connection->starved_since_ns >= SLOW_AFTER_NS && is_stuck(connection->pool, now_ns) ? pace : -1;
    return pace < SLOW_BYTES_PER_S || pace < frame / (FRAME_NS / 1000000000) ? pace : -1;
}

/* One of many that are closed is told of, with the number of the others. */
static void tell_closed(pb_connection *connection)
{
    pb_reactor *reactor = connection->reactor;
    reactor->slow_untold++;
    if (reactor->slow_told_ns != 0 && reactor->now_ns - reactor->slow_told_ns < TOLD_EVERY_NS)
        return;
    char what[256];
    snprintf(what, sizeof what,
             "it has sent %u bytes of a request of %u, at %lld bytes per second, and others wait for the memory "
             "(pybroker.buffer.budget.bytes); %lld such connections were closed since the last such message",
             buffered_bytes(connection), pb_receive_frame_bytes(connection), (long long)pace_of(connection),
             (long long)reactor->slow_untold);
    reactor->slow_told_ns = reactor->now_ns;
    reactor->slow_untold = 0;
    connection->handler->malformed(connection, what);
}

static void close_slow(pb_connection *connection)
{
    pb_counter_add(&connection->reactor->counters.slow_closed, 1);
    tell_closed(connection);
    pb_connection_kill(connection);
}

/* It stays for now. */
static void count_slow(slow_ones *slow, const slow_one *one)
{
    const pb_chunk *chunk = one->connection->chunk;
    slow->bytes += chunk->capacity;
    slow->has_overdraft = slow->has_overdraft || chunk->overdraft;
    if (one->bytes_per_second < slow->bytes_per_second)
        slow->bytes_per_second = one->bytes_per_second;
}

/* Put it where it belongs among the slowest; one that falls out at their end is counted. */
static void judge(pb_connection *connection, slow_ones *slow)
{
    slow_one one = {connection, slow_pace(connection)};
    if (one.bytes_per_second < 0 || connection->chunk->capacity <= LITTLE_BYTES)
        return; /* it gets on, or its end would help nobody */
    if (one.bytes_per_second <= slow->limit_bytes_per_second) {
        int at = slow->count;
        while (at > 0 && slow->slowest[at - 1].bytes_per_second > one.bytes_per_second)
            at--;
        slow_one last = at < CLOSED_PER_SWEEP ? slow->slowest[CLOSED_PER_SWEEP - 1] : one;
        bool was_full = slow->count == CLOSED_PER_SWEEP;
        slow->count += was_full ? 0 : 1;
        for (int i = slow->count - 1; i > at; i--)
            slow->slowest[i] = slow->slowest[i - 1];
        if (at < CLOSED_PER_SWEEP)
            slow->slowest[at] = one;
        if (!was_full)
            return;
        one = last;
    }
    count_slow(slow, &one);
}

/* Close the slowest until so much comes back, but the first one at least. */
static void close_slowest(slow_ones *slow, int64_t wanted_bytes)
{
    for (int i = 0; i < slow->count; i++) {
        const slow_one *one = &slow->slowest[i];
        if (i > 0 && wanted_bytes <= 0) {
            count_slow(slow, one);
            continue;
        }
        wanted_bytes -= one->connection->chunk->capacity;
        close_slow(one->connection);
    }
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
    if (connection->socket.receive.active && has_idle_room(connection, idle_ns))
        pb_connection_io(connection)->ops->socket_cancel(reactor->loop, &connection->socket);
    else
        pb_pressure_spare(connection);
}

/* How much has to come back when connections starve although nothing unsent is held any more. */
static int64_t wanted_bytes(pb_pool *pool)
{
    int64_t over_bytes = pb_pool_used_bytes(pool) - pb_pool_large_bytes(pool);
    int64_t least_bytes = pool->budget_bytes / FREED_SHARE;
    return over_bytes > least_bytes ? over_bytes : least_bytes;
}

void pb_pressure_sweep(pb_reactor *reactor)
{
    pb_pool *pool = reactor->options.pool;
    int64_t round = reactor->now_ns / PB_POOL_ROUND_NS;
    bool is_first = reactor->swept_ns / PB_POOL_ROUND_NS < round; /* in this round */
    slow_ones slow = {.limit_bytes_per_second = is_first ? pb_pool_slowest(pool, reactor->now_ns) : -1,
                      .bytes_per_second = INT64_MAX};
    reactor->swept_ns = reactor->now_ns;
    pb_link *next;
    for (pb_link *link = reactor->connections.next; link != &reactor->connections; link = next) {
        next = link->next;
        look_at(PB_CONTAINER(link, pb_connection, link), &slow);
    }
    close_slowest(&slow, wanted_bytes(pool));
    if (slow.bytes == 0 || reactor->told_round == round || !pb_pool_has_starved(pool))
        return; /* a connection that starves for a moment costs nobody anything */
    reactor->told_round = round;
    pb_pool_tell_slow(pool, reactor->now_ns, slow.bytes, slow.bytes_per_second, slow.has_overdraft);
}
