/* The reactor's thread: turns, spinning, sweeping. See reactor.h for the order of a turn. */
#include "net/reactor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "net/connection.h"
#include "net/pressure.h"

#define SWEEP_NS 1000000000LL
#define PRESS_NS 5000000LL
#define TASKS_PER_TURN 16
#define TASKS_IN_A_HURRY 4
#define SPIN_CREDIT_MAX 16
#define SPIN_PROBE_EVERY 64
#define DISK_SPINS 3           /* times as long, for a lone durable write */
#define BULK_BYTES (32 * 1024) /* in one turn */
#define FIRST_WATCH_NS 100000000LL
#define FIRST_REST_NS 25000000LL

/* Those that find no memory again go to the end of the list, so they are taken off it first. Connections that hold
 * nothing come before those that hold a part of a frame and want room for the rest. */
static void feed(pb_timer *timer)
{
    pb_reactor *reactor = PB_CONTAINER(timer, pb_reactor, feed);
    pb_link batch, *next;
    pb_list_take(&batch, &reactor->starved);
    for (pb_link *link = batch.next; link != &batch; link = next) {
        next = link->next;
        pb_connection *connection = PB_CONTAINER(link, pb_connection, starved_link);
        if (connection->chunk == NULL)
            pb_connection_feed(connection);
    }
    while (!pb_list_empty(&batch))
        pb_connection_feed(PB_CONTAINER(batch.next, pb_connection, starved_link));
}

static void sweep(pb_timer *timer)
{
    pb_reactor *reactor = PB_CONTAINER(timer, pb_reactor, sweep);
    pb_pressure_sweep(reactor);
    int64_t next_ns = reactor->now_ns + SWEEP_NS;
    if (pb_pool_is_tight(reactor->options.pool)) /* in step with the other reactors */
        next_ns = (reactor->now_ns / PB_POOL_ROUND_NS + 1) * PB_POOL_ROUND_NS;
    int result = pb_timer_set(&reactor->timers, timer, next_ns);
    PB_ASSERT(result == 0); /* its own slot has just become free */
}

static void pressed(pb_task *task, pb_reactor *reactor)
{
    PB_ASSERT(task == &reactor->press);
    atomic_store(&reactor->pressed, false);
    if (reactor->thread == NULL || reactor->now_ns - reactor->swept_ns < PRESS_NS)
        return; /* it has ended, or has only just looked */
    pb_pressure_sweep(reactor);
    int result =
        pb_timer_set(&reactor->timers, &reactor->sweep, (reactor->now_ns / PB_POOL_ROUND_NS + 1) * PB_POOL_ROUND_NS);
    PB_ASSERT(result == 0); /* it is set already */
}

void pb_reactor_press(pb_reactor *reactor)
{
    if (!atomic_exchange(&reactor->pressed, true))
        pb_reactor_post(reactor, &reactor->press);
}

int pb_reactor_init(pb_reactor *reactor, const pb_reactor_options *options, pb_failure *failure)
{
    memset(reactor, 0, sizeof *reactor);
    reactor->options = *options;
    reactor->io = options->io;
    pb_mailbox_init(&reactor->inbox);
    pb_timers_init(&reactor->timers);
    pb_list_init(&reactor->connections);
    pb_list_init(&reactor->flush);
    pb_list_init(&reactor->starved);
    atomic_init(&reactor->leaving, false);
    atomic_init(&reactor->stopping, false);
    reactor->sweep.fire = sweep;
    reactor->press.run = pressed;
    atomic_init(&reactor->pressed, false);
    reactor->feed.fire = feed;
    reactor->now_ns = reactor->io->ops->monotonic_ns(reactor->io);
    int result = pb_timer_set(&reactor->timers, &reactor->sweep, reactor->now_ns + SWEEP_NS);
    if (result < 0)
        return pb_fail(failure, result, "cannot set up a reactor");
    return reactor->io->ops->loop_open(reactor->io, &reactor->loop, failure);
}

int pb_reactor_start(pb_reactor *reactor, pb_failure *failure)
{
    char name[32];
    snprintf(name, sizeof name, "pb-reactor-%d", reactor->options.id);
    int result =
        reactor->io->ops->thread_start(reactor->io, name, PB_RANK_URGENT, pb_reactor_step, reactor, &reactor->thread);
    return result < 0 ? pb_fail(failure, result, "cannot start reactor thread %d", reactor->options.id) : 0;
}

void pb_reactor_leave(pb_reactor *reactor)
{
    if (atomic_exchange(&reactor->leaving, true))
        return;
    atomic_fetch_add(&reactor->owing, 1); /* until it has been told, nobody knows what it owes */
    reactor->io->ops->loop_wake(reactor->loop);
}

void pb_reactor_stop(pb_reactor *reactor)
{
    if (reactor->thread == NULL)
        return;
    atomic_store(&reactor->stopping, true);
    reactor->io->ops->loop_wake(reactor->loop);
    reactor->io->ops->thread_join(reactor->thread);
    reactor->thread = NULL;
}

/* Whether nothing that was sent here waits to be run. */
static bool is_inbox_empty(const pb_reactor *reactor)
{
    return reactor->tasks == NULL && pb_mailbox_empty(&reactor->inbox);
}

void pb_reactor_destroy(pb_reactor *reactor)
{
    PB_ASSERT(pb_list_empty(&reactor->connections));
    PB_ASSERT(is_inbox_empty(reactor));
    reactor->io->ops->loop_close(reactor->loop);
    pb_timers_destroy(&reactor->timers);
}

void pb_reactor_post(pb_reactor *reactor, pb_task *task)
{
    if (pb_mailbox_put(&reactor->inbox, &task->node))
        reactor->io->ops->loop_wake(reactor->loop);
}

static void run_inbox(pb_reactor *reactor)
{
    if (reactor->tasks == NULL)
        reactor->tasks = pb_mailbox_take(&reactor->inbox);
    int limit = reactor->goes_first ? TASKS_IN_A_HURRY : TASKS_PER_TURN;
    for (int i = 0; i < limit && reactor->tasks != NULL; i++) {
        pb_task *task = PB_CONTAINER(reactor->tasks, pb_task, node);
        reactor->tasks = reactor->tasks->next; /* before it runs: it may free the task */
        task->run(task, reactor);
    }
}

void pb_reactor_drain(pb_reactor *reactor)
{
    PB_ASSERT(reactor->thread == NULL);
    while (!is_inbox_empty(reactor))
        run_inbox(reactor);
}

/* A send takes some 4 us, and all of a turn are one call. A round of durable writes brings many answers, and a loop
 * that makes the rounds must not be away until all are sent. A kernel worker needs the CPU to end the next write. Then
 * this thread needs it to begin another with the requests that came meanwhile. Otherwise one request that came early
 * keeps the disk until 63 others have been answered and have come again. */
static void flush_connections(pb_reactor *reactor)
{
    pb_link batch, *link;
    if (reactor->io->ops->starts_durable_writes && reactor->now_ns < reactor->disk_until_ns)
        (void)pb_list_take_some(&batch, &reactor->flush, PB_FLUSHES_BESIDE_DISK);
    else
        pb_list_take(&batch, &reactor->flush);
    while ((link = pb_list_pop_front(&batch)) != NULL)
        pb_connection_flush(PB_CONTAINER(link, pb_connection, flush_link));
}

static int64_t traffic_bytes(const pb_reactor *reactor)
{
    return pb_counter_read(&reactor->counters.bytes_in) + pb_counter_read(&reactor->counters.bytes_out);
}

/* Has this turn moved much for one of several? Then a wake-up costs little beside the copying, and others use the time
 * to bring more to do. The next one comes so soon that all of the wait would be spun. */
static bool is_bulk(pb_reactor *reactor)
{
    int64_t before_bytes = reactor->waited_bytes;
    reactor->waited_bytes = traffic_bytes(reactor);
    return reactor->waited_bytes - before_bytes >= BULK_BYTES && reactor->now_ns < reactor->shared_until_ns;
}

/* Wait by spinning while that has paid off lately: waking an idle CPU costs more than a short spin. A disk takes longer
 * than that, and while a thread waits for it, others can use the CPU. But a lone producer waits for the disk and then
 * for the wake-up, and there are no others. A thread that goes first does not spin either: the system stops a thread of
 * that kind that has not waited for long. True: something came. */
static bool spin(pb_reactor *reactor, int64_t now_ns)
{
    bool beside_disk = reactor->now_ns < reactor->disk_until_ns;
    if (reactor->options.spin_ns == 0 || reactor->goes_first || (beside_disk && !reactor->disk_alone))
        return false;
    bool probe = reactor->spin_credit <= 0 && ++reactor->spin_probe >= SPIN_PROBE_EVERY;
    if (reactor->spin_credit <= 0 && !probe)
        return false;
    reactor->spin_probe = 0;
    int64_t until = now_ns + reactor->options.spin_ns * (beside_disk ? DISK_SPINS : 1);
    do {
        int delivered = reactor->io->ops->loop_turn(reactor->loop, 0);
        if (delivered > 0 || !is_inbox_empty(reactor)) {
            reactor->spin_credit =
                reactor->spin_credit + 2 < SPIN_CREDIT_MAX ? reactor->spin_credit + 2 : SPIN_CREDIT_MAX;
            return true;
        }
    } while (reactor->io->ops->monotonic_ns(reactor->io) < until);
    reactor->spin_credit -= probe ? 0 : 1;
    return false;
}

/* Left over from this turn: tasks, and what was marked or appended while connections were flushed. */
static bool has_work(const pb_reactor *reactor)
{
    return reactor->again || reactor->tasks != NULL || reactor->flush.next != &reactor->flush;
}

/* The clock is read here in any case, so what a turn took costs no look of its own. */
static void count_turn(pb_reactor *reactor, int64_t ended_ns)
{
    if (reactor->woken_ns > 0)
        pb_histogram_add(&reactor->counters.turn_us, (ended_ns - reactor->woken_ns) / 1000);
    reactor->woken_ns = 0;
}

static void wait_and_deliver(pb_reactor *reactor)
{
    bool bulk = is_bulk(reactor);
    int64_t now = reactor->io->ops->monotonic_ns(reactor->io);
    count_turn(reactor, now);
    if (!has_work(reactor) && !bulk && spin(reactor, now))
        return;
    int64_t next = pb_timers_next(&reactor->timers);
    int64_t wait_ns = next == INT64_MAX ? PB_IO_FOREVER : next > now ? next - now : 0;
    if (has_work(reactor))
        wait_ns = 0;
    if (atomic_load(&reactor->stopping) && wait_ns > 10000000)
        wait_ns = 10000000;
    reactor->io->ops->loop_turn(reactor->loop, wait_ns);
}

static void leave(pb_reactor *reactor)
{
    reactor->left = true; /* who comes from now on leaves at once */
    pb_link *next;
    for (pb_link *link = reactor->connections.next; link != &reactor->connections; link = next) {
        next = link->next;
        pb_connection_leave(PB_CONTAINER(link, pb_connection, link));
    }
    atomic_fetch_sub(&reactor->owing, 1);
}

/* True when nothing is left that needs this thread. */
static bool wind_down(pb_reactor *reactor)
{
    pb_link *next;
    for (pb_link *link = reactor->connections.next; link != &reactor->connections; link = next) {
        next = link->next;
        pb_connection_kill(PB_CONTAINER(link, pb_connection, link));
    }
    return reactor->holds == 0 && pb_list_empty(&reactor->connections) && is_inbox_empty(reactor);
}

/* Linux stops threads that go first for 50 ms when they have taken 95 % of a second (sched_rt_runtime_us). One that is
 * as busy as that is an ordinary one for a part of the time, in which it is at worst a few ms late. */
static void rest_if_busy(pb_reactor *reactor)
{
    int64_t watched_ns = reactor->now_ns - reactor->first_since_ns;
    if (watched_ns < FIRST_WATCH_NS)
        return;
    int64_t cpu_ns = reactor->io->ops->thread_cpu_ns(reactor->io);
    if (reactor->goes_first && cpu_ns - reactor->first_cpu_ns > watched_ns / 5 * 4)
        reactor->rests_until_ns = reactor->now_ns + FIRST_REST_NS;
    reactor->first_since_ns = reactor->now_ns;
    reactor->first_cpu_ns = cpu_ns;
}

static void take_place(pb_reactor *reactor, bool first)
{
    if (first || reactor->goes_first)
        rest_if_busy(reactor);
    first = first && reactor->now_ns >= reactor->rests_until_ns;
    if (first == reactor->goes_first || (first && reactor->never_first))
        return;
    int result = reactor->io->ops->thread_go_first(reactor->io, first);
    if (result == 0)
        reactor->goes_first = first;
    else if (result != -EAGAIN)
        reactor->never_first = true;
}

enum pb_step pb_reactor_step(void *argument)
{
    pb_reactor *reactor = argument;
    wait_and_deliver(reactor);
    reactor->now_ns = reactor->io->ops->monotonic_ns(reactor->io);
    reactor->wall_ms = reactor->io->ops->wall_ms(reactor->io);
    if (reactor->woken_ns == 0)
        reactor->woken_ns = reactor->now_ns;
    pb_counter_add(&reactor->counters.turns, 1);
    take_place(reactor, reactor->now_ns < reactor->hurried_until_ns);
    run_inbox(reactor);
    pb_timers_fire(&reactor->timers, reactor->now_ns);
    if (atomic_load_explicit(&reactor->leaving, memory_order_relaxed) && !reactor->left)
        leave(reactor);
    reactor->options.turn_end(reactor);
    flush_connections(reactor);
    if (atomic_load_explicit(&reactor->stopping, memory_order_relaxed) && wind_down(reactor)) {
        take_place(reactor, false);
        return PB_STEP_END;
    }
    return PB_STEP_AGAIN;
}
