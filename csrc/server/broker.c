/* Putting the data plane together and taking it apart. Called by Python's threads through abi/. */
#include "server/broker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/crc32c.h"
#include "server/request.h"

#define PARTING_NS 1000000000LL /* for clients to go once they have their answers, */
#define ANSWERS_NS 5000000000LL /* and for the answers */
#define PARTING_LOOK_NS 1000000LL

/* Append what has gathered in this turn: one write per partition. Then the syncs that are writes begin. */
static void write_turn(pb_reactor *reactor)
{
    pb_server_reactor *home = pb_server_reactor_of(reactor);
    for (uint32_t i = 0; i < home->turn_count; i++) {
        pb_partition_pump(home->turn[i], reactor);
        pb_partition_release(home->turn[i]);
    }
    home->turn_count = 0;
    reactor->again = pb_flush_groups_start(reactor);
}

void pb_server_reactor_queue(pb_server_reactor *home, pb_partition *partition)
{
    if (home->turn_count == home->turn_capacity) {
        uint32_t capacity = home->turn_capacity != 0 ? home->turn_capacity * 2 : 64;
        pb_partition **turn = realloc(home->turn, capacity * sizeof *turn);
        if (turn == NULL) { /* not remembered, so written now */
            pb_partition_pump(partition, &home->reactor);
            home->reactor.again = true; /* its sync may begin at the end of a turn */
            return;
        }
        home->turn = turn;
        home->turn_capacity = capacity;
    }
    pb_partition_retain(partition);
    home->turn[home->turn_count++] = partition;
    home->reactor.again = true; /* a frame that was held is taken after this turn's writes */
}

static void pump(pb_task *task, pb_reactor *reactor)
{
    pb_partition *partition = PB_CONTAINER(task, pb_partition, pump);
    pb_partition_pump(partition, reactor);
    pb_partition_release(partition);
}

void pb_server_pump(pb_partition *partition)
{
    pb_broker *broker = partition->owner;
    pb_partition_retain(partition);
    partition->pump.run = pump;
    pb_reactor_post(&broker->reactors[0].reactor, &partition->pump);
}

static int make_reactor(pb_broker *broker, int index, pb_failure *failure)
{
    pb_server_reactor *home = &broker->reactors[index];
    home->broker = broker;
    pb_list_init(&home->free_requests);
    pb_reactor_options options = {
        .io = broker->io,
        .pool = &broker->pool,
        .id = index,
        .spin_ns = broker->settings.spin_ns,
        .idle_close_ns = broker->settings.idle_close_ns,
        .turn_end = write_turn,
        .owner = home,
    };
    int result = pb_codec_create(&home->codec);
    if (result < 0)
        return pb_fail(failure, result, "cannot set up the compression codecs");
    result = pb_reactor_init(&home->reactor, &options, failure);
    home->reactor.flush_groups = home->flush_groups;
    return result;
}

static int check_settings(const pb_broker_settings *settings, pb_failure *failure)
{
    if (settings->reactor_count < 1 || settings->reactor_count > PB_MAX_REACTORS)
        return pb_fail(failure, -EINVAL, "pybroker.reactors must be 1 to %d, not %d", PB_MAX_REACTORS,
                       settings->reactor_count);
    if (settings->buffer_budget_bytes < (int64_t)PB_CHUNK_UNIT_BYTES)
        return pb_fail(failure, -EINVAL, "pybroker.buffer.budget.bytes must be at least %d", PB_CHUNK_UNIT_BYTES);
    return 0;
}

int pb_broker_create(pb_io *io, const pb_broker_settings *settings, pb_broker **out, pb_failure *failure)
{
    int result = check_settings(settings, failure);
    pb_broker *broker = result == 0 ? calloc(1, sizeof *broker) : NULL;
    if (broker == NULL) {
        io->ops->close(io);
        return result != 0 ? result : pb_fail(failure, -ENOMEM, "cannot allocate the broker");
    }
    broker->io = io;
    broker->settings = *settings;
    pb_dispatch_init(&broker->handler, settings->max_request_bytes);
    pb_pool_init(&broker->pool, settings->buffer_budget_bytes);
    pb_pool_init(&broker->fetched, PB_FETCHED_BYTES);
    pb_cold_reads_init(&broker->cold_reads, broker->io, settings->history_cache_bytes);
    pb_big_batches_init(&broker->big_batches, broker->io, settings->reactor_count);
    pb_worker_init(&broker->pacing, broker->io, "pb-pacing");
    pb_worker_init(&broker->lookups, broker->io, "pb-lookup");
    pb_worker_init(&broker->cuts, broker->io, "pb-cut");
    pb_syncer_init(&broker->syncer, broker->io);
    pb_flusher_init(&broker->flusher, broker->io);
    broker->flusher.events = &broker->events;
    pb_ping_init(&broker->ping);
    pb_racks_init(&broker->racks);
    pb_quota_init(&broker->leader_quota);
    pb_quota_init(&broker->follower_quota);
    for (int i = 0; i < PB_API_KEYS; i++)
        broker->apis[i].max_version = -1;
    uint64_t seed;
    if (pb_registry_init(&broker->registry) < 0 || pb_events_init(&broker->events) < 0 ||
        io->ops->random(io, &seed, sizeof seed) < 0 ||
        pb_fetch_sessions_init(&broker->sessions, settings->fetch_session_slots, seed) < 0)
        return pb_fail(failure, -ENOMEM,
                       "cannot allocate the broker's tables"); /* at start, before anything is open: the process ends */
    pb_client_quotas_init(&broker->client_quotas, ~seed);
    for (int i = 0; i < settings->reactor_count; i++)
        if ((result = make_reactor(broker, i, failure)) < 0)
            return result;
    broker->events.io = io;
    *out = broker;
    return 0;
}

int pb_broker_set_apis(pb_broker *broker, int16_t api_key, int16_t min_version, int16_t max_version)
{
    const pb_api_info *info = pb_api_find(api_key);
    if (broker->started || info == NULL || api_key >= PB_API_KEYS || min_version < info->min_version ||
        max_version > info->max_version || min_version > max_version)
        return -EINVAL;
    for (int i = 0; i < broker->settings.reactor_count; i++) {
        pb_server_reactor *home = &broker->reactors[i];
        if (home->histograms[api_key] == NULL)
            home->histograms[api_key] = calloc(PB_STAGES, sizeof **home->histograms);
        if (home->histograms[api_key] == NULL)
            return -ENOMEM;
    }
    broker->apis[api_key].min_version = min_version;
    broker->apis[api_key].max_version = max_version;
    return 0;
}

int pb_broker_run(pb_broker *broker, pb_failure *failure)
{
    PB_ASSERT(!broker->started);
    broker->started = true;
    int result = pb_cold_reads_start(&broker->cold_reads, failure);
    if (result == 0)
        result = pb_worker_start(&broker->pacing, failure);
    if (result == 0)
        result = pb_worker_start(&broker->lookups, failure);
    if (result == 0)
        result = pb_worker_start(&broker->cuts, failure);
    if (result == 0)
        result = pb_syncer_start(&broker->syncer, failure);
    if (result == 0)
        result = pb_flusher_start(&broker->flusher, failure);
    if (result < 0)
        return result;
    for (int i = 0; i < broker->listener_count; i++)
        pb_listener_start(&broker->listeners[i]);
    for (int i = 0; i < broker->settings.reactor_count; i++)
        if ((result = pb_reactor_start(&broker->reactors[i].reactor, failure)) < 0)
            return result;
    return 0;
}

static void close_listeners(pb_task *task, pb_reactor *reactor)
{
    (void)reactor;
    pb_broker *broker = PB_CONTAINER(task, pb_broker, close_listeners);
    for (int i = 0; i < broker->listener_count; i++)
        pb_listener_stop(&broker->listeners[i]);
}

static void stop_accepting(pb_broker *broker)
{
    if (atomic_exchange(&broker->closing, true))
        return;
    broker->close_listeners.run = close_listeners;
    pb_reactor_post(&broker->reactors[0].reactor, &broker->close_listeners);
}

void pb_broker_leave(pb_broker *broker)
{
    if (!broker->started || atomic_load(&broker->closing))
        return;
    broker->left_ns = broker->io->ops->monotonic_ns(broker->io);
    stop_accepting(broker);
    for (int i = 0; i < broker->settings.reactor_count; i++)
        pb_reactor_leave(&broker->reactors[i].reactor);
}

static bool is_owing(const pb_broker *broker)
{
    for (int i = 0; i < broker->settings.reactor_count; i++)
        if (atomic_load_explicit(&broker->reactors[i].reactor.owing, memory_order_relaxed) > 0)
            return true;
    return false;
}

/* With all reactors at work: what is under way on one may need another. Clients that do not go are not waited for, nor
 * for long those that do not take their answers. */
static void await_parting(pb_broker *broker)
{
    int64_t now_ns = broker->io->ops->monotonic_ns(broker->io);
    int64_t owed_until_ns = broker->left_ns + ANSWERS_NS;
    int64_t until_ns = broker->left_ns + PARTING_NS;
    while (broker->left_ns > 0 && atomic_load(&broker->connections) > 0 && now_ns < until_ns) {
        broker->io->ops->nap(broker->io, PARTING_LOOK_NS);
        now_ns = broker->io->ops->monotonic_ns(broker->io);
        if (now_ns < owed_until_ns && is_owing(broker))
            until_ns = now_ns + PARTING_NS;
    }
}

/* Reactor 0 first: it accepts for the others. A request that Python has not answered keeps its connection, and so its
 * reactor. */
void pb_broker_halt(pb_broker *broker)
{
    if (!broker->started)
        return;
    stop_accepting(broker);
    await_parting(broker);
    for (int i = 0; i < broker->settings.reactor_count; i++)
        pb_reactor_stop(&broker->reactors[i].reactor);
    pb_cold_reads_stop(&broker->cold_reads);
    pb_big_batches_stop(&broker->big_batches);
    pb_worker_stop(&broker->pacing);
    pb_worker_stop(&broker->lookups);
    pb_worker_stop(&broker->cuts);
    pb_syncer_stop(&broker->syncer);
    pb_flusher_stop(&broker->flusher);
    atomic_store(&broker->halted, true);
    for (int i = 0; i < broker->settings.reactor_count; i++)
        pb_reactor_drain(&broker->reactors[i].reactor);
}

void pb_broker_destroy(pb_broker *broker)
{
    for (int i = 0; i < broker->settings.reactor_count; i++) {
        pb_server_reactor *home = &broker->reactors[i];
        pb_reactor_drain(&home->reactor);
        pb_flush_groups_close(&home->reactor);
        pb_reactor_destroy(&home->reactor);
        pb_request_recycle_all(home);
        pb_codec_destroy(home->codec);
        pb_recompressed_trim(&home->recompressed, 0);
        free(home->turn);
        for (int api = 0; api < PB_API_KEYS; api++)
            free(home->histograms[api]);
    }
    pb_cold_reads_destroy(&broker->cold_reads);
    pb_big_batches_destroy(&broker->big_batches);
    pb_syncer_destroy(&broker->syncer);
    pb_flusher_destroy(&broker->flusher);
    pb_fetch_sessions_destroy(&broker->sessions);
    pb_events_destroy(&broker->events);
    pb_registry_destroy(&broker->registry);
    pb_pool_destroy(&broker->pool);
    pb_pool_destroy(&broker->fetched);
    pb_ping_destroy(&broker->ping);
    pb_racks_destroy(&broker->racks);
    pb_client_quotas_destroy(&broker->client_quotas);
    pb_quota_destroy(&broker->leader_quota);
    pb_quota_destroy(&broker->follower_quota);
    if (broker->rings != NULL)
        pb_ring_pool_close(broker->rings);
    broker->io->ops->close(broker->io);
    free(broker);
}
