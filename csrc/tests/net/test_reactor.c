/* When a reactor goes before ordinary threads, and how many answers it starts in a turn, on the simulated machine. */
#include <errno.h>

#include "tests/net/echo_server.h"

enum { MILLISECOND = 1000000 };

static int first_calls, back_calls, first_result;

static int note_first(pb_io *io, bool first)
{
    (void)io;
    *(first ? &first_calls : &back_calls) += 1;
    return first ? first_result : 0;
}

/* The server's I/O table from now on, and the one below it. */
static pb_io_ops watched_ops;
static const pb_io_ops *usual_ops;

static void start_watched(echo_server *server)
{
    first_calls = back_calls = first_result = 0;
    echo_start(server, 3, 64 << 20, 8 << 20);
    usual_ops = server->io->ops;
    watched_ops = *usual_ops;
    watched_ops.thread_go_first = note_first;
    server->io->ops = &watched_ops;
}

static void exchange(echo_server *server, int client, uint32_t bytes)
{
    echo_send(server, client, bytes, 0, UINT32_MAX);
    echo_expect(server, client, bytes);
}

TEST(small_frames_beside_huge_ones_hurry)
{
    echo_server server;
    start_watched(&server);
    int huge = pb_sim_connect(server.io, server.port), small = pb_sim_connect(server.io, server.port);
    exchange(&server, small, 100);
    exchange(&server, huge, 1 << 20);
    exchange(&server, huge, 1 << 20);
    CHECK_INT(first_calls, 0); /* each kind by itself */
    exchange(&server, small, 100);
    exchange(&server, small, 100);
    CHECK_INT(first_calls, 1);
    CHECK_INT(back_calls, 0);
    echo_run(&server, 2000LL * MILLISECOND);
    CHECK_INT(back_calls, 1);
    exchange(&server, small, 100);
    CHECK_INT(first_calls, 1);
    echo_stop(&server);
}

/* A reactor that is let go first all the time, for two seconds of turns. */
static void hurry_long(int64_t (*cpu_ns)(pb_io *))
{
    echo_server server;
    start_watched(&server);
    watched_ops.thread_cpu_ns = cpu_ns;
    int client = pb_sim_connect(server.io, server.port);
    server.reactor.hurried_until_ns = INT64_MAX;
    for (int i = 0; i < 200; i++) {
        exchange(&server, client, 100);
        echo_run(&server, 10LL * MILLISECOND);
    }
    echo_stop(&server);
}

static int64_t always_busy(pb_io *io)
{
    return io->ops->monotonic_ns(io);
}

static int64_t half_busy(pb_io *io)
{
    return io->ops->monotonic_ns(io) / 2;
}

TEST(who_is_always_busy_goes_first_for_a_part_of_the_time)
{
    hurry_long(always_busy);
    CHECK(first_calls > 10 && back_calls >= first_calls - 1);
}

TEST(who_is_not_busy_goes_first_as_long_as_it_hurries)
{
    hurry_long(half_busy);
    CHECK_INT(first_calls, 1);
}

TEST(a_system_that_does_not_let_it_is_asked_once)
{
    echo_server server;
    start_watched(&server);
    first_result = -EPERM;
    int huge = pb_sim_connect(server.io, server.port), small = pb_sim_connect(server.io, server.port);
    for (int i = 0; i < 3; i++) {
        exchange(&server, huge, 1 << 20);
        exchange(&server, small, 100);
        exchange(&server, small, 100);
        echo_run(&server, 2000LL * MILLISECOND);
    }
    CHECK_INT(first_calls, 1);
    CHECK_INT(back_calls, 0);
    echo_stop(&server);
}

TEST(a_crowd_counts_only_while_somebody_produces_or_consumes)
{
    echo_server server;
    start_watched(&server);
    pb_reactor *reactor = &server.reactor;
    for (int i = 0; i < 3 * PB_CONTROL_CROWD; i++)
        pb_reactor_notice_control(reactor);
    CHECK(reactor->hurried_until_ns <= reactor->now_ns);
    reactor->data_until_ns = reactor->now_ns + PB_REACTOR_HURRY_NS;
    reactor->crowd_since_ns = reactor->now_ns - PB_REACTOR_HURRY_NS - 1;
    for (int i = 0; i < PB_CONTROL_CROWD - 1; i++)
        pb_reactor_notice_control(reactor);
    CHECK(reactor->hurried_until_ns <= reactor->now_ns);
    pb_reactor_notice_control(reactor);
    CHECK_INT(reactor->hurried_until_ns, reactor->now_ns + PB_REACTOR_HURRY_NS);
    echo_stop(&server);
}

TEST(a_connection_that_comes_while_somebody_produces_or_consumes_is_the_first_of_many)
{
    echo_server server;
    start_watched(&server);
    exchange(&server, pb_sim_connect(server.io, server.port), 100);
    CHECK_INT(first_calls, 0);
    server.reactor.data_until_ns = INT64_MAX;
    exchange(&server, pb_sim_connect(server.io, server.port), 100);
    CHECK_INT(first_calls, 1);
    echo_stop(&server);
}

static int sends_of_turn, most_sends;

static void count_send(pb_loop *loop, pb_socket *socket, struct iovec *iov, int count)
{
    sends_of_turn++;
    most_sends = sends_of_turn > most_sends ? sends_of_turn : most_sends;
    usual_ops->socket_send(loop, socket, iov, count);
}

static int count_turn(pb_loop *loop, int64_t wait_ns)
{
    sends_of_turn = 0;
    return usual_ops->loop_turn(loop, wait_ns);
}

/* The most answers that were started in a turn, of many that became ready at once. */
static int answer_many(int64_t disk_until_ns, bool starts_durable_writes)
{
    enum { CLIENTS = 30 };
    echo_server server;
    start_watched(&server);
    watched_ops.socket_send = count_send;
    watched_ops.loop_turn = count_turn;
    watched_ops.starts_durable_writes = starts_durable_writes;
    server.slow = true;
    int clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = pb_sim_connect(server.io, server.port);
        echo_send(&server, clients[i], 100, 0, UINT32_MAX);
    }
    echo_run(&server, 100LL * MILLISECOND);
    CHECK_INT(server.requests, CLIENTS);
    server.reactor.disk_until_ns = disk_until_ns;
    sends_of_turn = most_sends = 0;
    echo_release(&server);
    usual_ops->loop_wake(server.reactor.loop);
    for (int i = 0; i < CLIENTS; i++)
        echo_expect(&server, clients[i], 100);
    echo_stop(&server);
    return most_sends;
}

TEST(beside_the_writes_of_its_loop_it_starts_a_few_answers_in_a_turn)
{
    CHECK_INT(answer_many(INT64_MAX, true), 8);
    CHECK_INT(answer_many(INT64_MAX, false), 30);
    CHECK_INT(answer_many(0, true), 30);
}

static pb_io *watched_io;
static int spin_turns;

/* Turns that nobody waits in take 10 us. */
static int spin_turn(pb_loop *loop, int64_t wait_ns)
{
    if (wait_ns == 0) {
        spin_turns++;
        usual_ops->nap(watched_io, 10000);
    }
    return usual_ops->loop_turn(loop, wait_ns);
}

/* How many turns it spins for after an exchange, if it may for 50 us and it has paid off. */
static int spin_after(bool beside_disk, bool alone)
{
    echo_server server;
    start_watched(&server);
    watched_ops.loop_turn = spin_turn;
    watched_io = server.io;
    int client = pb_sim_connect(server.io, server.port);
    exchange(&server, client, 100);
    echo_run(&server, MILLISECOND);
    server.reactor.options.spin_ns = 50000;
    server.reactor.spin_credit = 1;
    server.reactor.disk_until_ns = beside_disk ? INT64_MAX : 0;
    server.reactor.disk_alone = alone;
    spin_turns = 0;
    usual_ops->loop_wake(server.reactor.loop);
    echo_run(&server, MILLISECOND);
    int turns = spin_turns;
    server.reactor.options.spin_ns = 0;
    echo_stop(&server);
    return turns;
}

TEST(it_spins_beside_a_disk_only_for_a_lone_write_and_longer_then)
{
    int usual = spin_after(false, true);
    CHECK(usual >= 5 && usual < 10);
    CHECK_INT(spin_after(false, false), usual);
    int alone = spin_after(true, true);
    CHECK(alone >= 15 && alone < 20);
    CHECK(spin_after(true, false) < 5);
}

CHECK_MAIN()
