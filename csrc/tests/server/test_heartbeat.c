/* Heartbeats that the data plane gives, on the simulated machine: when, for how long, and over which connection. */
#include "server/heartbeat.h"

#include "tests/sim/sim_broker.h"

enum { STEP_LIMIT = 4000000, FRAME_BYTES = 24 };
#define SECOND_NS 1000000000LL
#define LIMIT_S 6

typedef struct rig {
    pb_io *io;
    pb_broker *broker;
    pb_heartbeat *heartbeat;
    int peer; /* the controller's end */
    uint8_t frame[FRAME_BYTES];
} rig;

static void run(rig *it, int64_t ns)
{
    int64_t until = it->io->ops->monotonic_ns(it->io) + ns;
    for (int step = 0; it->io->ops->monotonic_ns(it->io) < until; step++) {
        CHECK(step < STEP_LIMIT);
        (void)pb_sim_step(it->io);
    }
}

static void feed(rig *it, uint8_t first)
{
    for (size_t i = 0; i < sizeof it->frame; i++)
        it->frame[i] = (uint8_t)(first + i);
    CHECK_INT(pb_heartbeat_take(it->heartbeat, it->frame, sizeof it->frame), 0);
}

/* How many heartbeats have come, each whole and the one that was fed last. */
static int heard(rig *it)
{
    uint8_t got[FRAME_BYTES * 64];
    size_t have = 0;
    for (;;) {
        int64_t part = pb_sim_client_receive(it->io, it->peer, got + have, sizeof got - have);
        CHECK(part >= 0);
        if (part == 0)
            break;
        have += (size_t)part;
    }
    CHECK_INT(have % FRAME_BYTES, 0);
    for (size_t i = 0; i < have; i++)
        CHECK_INT(got[i], it->frame[i % FRAME_BYTES]);
    return (int)(have / FRAME_BYTES);
}

/* The controller's end of the next connection, as soon as it is called: the machine's time leaps from timer to timer.
 */
static int next_call(rig *it)
{
    int port = 0, peer = -1;
    for (int step = 0; (peer = pb_sim_next_outgoing(it->io, &port)) < 0; step++) {
        CHECK(step < STEP_LIMIT);
        (void)pb_sim_step(it->io);
    }
    CHECK_INT(port, 9093);
    return peer;
}

static void begin(rig *it, uint64_t seed)
{
    memset(it, 0, sizeof *it);
    CHECK_INT(pb_io_sim_open(seed, &it->io), 0);
    it->broker = sim_make_broker(it->io);
    pb_failure failure = {0};
    CHECK_INT(pb_broker_run(it->broker, &failure), 0);
    pb_address address;
    CHECK_INT(it->io->ops->address_find(it->io, "controller", 9093, &address, 1, &failure), 1);
    CHECK_INT(pb_heartbeat_create(it->broker, &address, SECOND_NS, LIMIT_S * SECOND_NS, &it->heartbeat), 0);
    it->peer = next_call(it);
}

static void end(rig *it)
{
    pb_heartbeat_end(it->heartbeat);
    pb_broker_halt(it->broker);
    pb_broker_destroy(it->broker);
}

TEST(it_speaks_while_python_is_late_and_no_longer_than_it_may)
{
    rig it;
    begin(&it, 1);
    pb_sim_answer_outgoing(it.io, it.peer, true);
    run(&it, 3 * SECOND_NS);
    CHECK_INT(heard(&it), 0); /* nothing was ever said */
    for (uint8_t i = 0; i < 10; i++) {
        feed(&it, i);
        run(&it, SECOND_NS);
    }
    CHECK_INT(heard(&it), 0); /* Python speaks for itself */
    run(&it, 2 * SECOND_NS);
    int count = heard(&it);
    CHECK(count >= 1 && count <= 2);
    run(&it, 3 * SECOND_NS);
    count += heard(&it);
    CHECK(count >= 4 && count <= 5);
    run(&it, 20 * SECOND_NS);
    CHECK(heard(&it) <= 1); /* a dead control loop is not covered up for */
    run(&it, 20 * SECOND_NS);
    CHECK_INT(heard(&it), 0);
    feed(&it, 99);
    run(&it, 3 * SECOND_NS);
    CHECK(heard(&it) >= 1);
    CHECK(pb_counter_read(&it.heartbeat->sent_count) >= 5);
    end(&it);
}

TEST(answers_are_thrown_away)
{
    rig it;
    begin(&it, 2);
    pb_sim_answer_outgoing(it.io, it.peer, true);
    static const uint8_t answer[] = {0, 0, 0, 4, 1, 2, 3, 4};
    for (int i = 0; i < 100; i++)
        pb_sim_client_send(it.io, it.peer, answer, sizeof answer);
    feed(&it, 7);
    run(&it, 3 * SECOND_NS);
    CHECK(heard(&it) >= 1);
    CHECK_INT(pb_sim_client_unread(it.io, it.peer), 0);
    end(&it);
}

TEST(a_connection_that_breaks_or_is_not_answered_is_made_again)
{
    rig it;
    begin(&it, 3);
    pb_sim_answer_outgoing(it.io, it.peer, true);
    feed(&it, 1);
    run(&it, SECOND_NS / 2);
    pb_sim_client_close(it.io, it.peer);
    it.peer = next_call(&it);
    pb_sim_answer_outgoing(it.io, it.peer, false);
    int unanswered = it.peer = next_call(&it);
    run(&it, 3 * SECOND_NS); /* given up, and called anew */
    it.peer = next_call(&it);
    CHECK(it.peer != unanswered);
    pb_sim_answer_outgoing(it.io, it.peer, true);
    feed(&it, 2);
    run(&it, 3 * SECOND_NS);
    CHECK(heard(&it) >= 1);
    end(&it);
}

TEST(it_ends_in_whatever_it_is_doing)
{
    for (int how = 0; how < 4; how++) {
        rig it;
        begin(&it, 10 + (uint64_t)how);
        if (how > 0)
            pb_sim_answer_outgoing(it.io, it.peer, true);
        if (how > 1) {
            feed(&it, 5);
            run(&it, 3 * SECOND_NS);
        }
        if (how == 3) {
            pb_broker_leave(it.broker);
            feed(&it, 6);
        }
        end(&it);
    }
}

CHECK_MAIN()
