/* Connections that a reactor makes, on the simulated machine: frames come whole, and every end is told once. */
#include <errno.h>

#include "tests/net/echo_server.h"

/* One connection of a reactor's own: it sends frames of `length` and counts what comes back. */
typedef struct caller {
    echo_server rig; /* its reactor and machine; nobody calls its listener */
    pb_connection_handler handler;
    pb_connection *connection; /* NULL: closed */
    int opened;
    int closed;
    int error; /* why it could not be connected */
    int frames;
    uint32_t last_length;
    bool last_is_whole;
    pb_response request;
    pb_output output;
    uint8_t bytes[64];
    int sent;
} caller;

static void sent_or_not(pb_response *response, bool sent)
{
    PB_CONTAINER(response, caller, request)->sent += sent;
}

static void opened(pb_connection *connection)
{
    caller *it = connection->owner;
    it->opened++;
    it->output = (pb_output){.data = it->bytes, .length = sizeof it->bytes};
    it->request.released = sent_or_not;
    pb_connection_expect(connection, &it->request);
    it->request.outputs = &it->output;
    it->request.output_count = 1;
    pb_connection_respond(connection, &it->request);
}

static enum pb_frame_verdict answered(pb_connection *connection, pb_chunk *chunk, const uint8_t *frame, uint32_t length)
{
    caller *it = connection->owner;
    (void)chunk;
    it->frames++;
    it->last_length = length;
    it->last_is_whole = true;
    for (uint32_t i = 0; i < length; i++)
        it->last_is_whole = it->last_is_whole && frame[i] == (uint8_t)(i * 7 + length);
    return PB_FRAME_TAKEN;
}

static void closed(pb_connection *connection)
{
    caller *it = connection->owner;
    it->error = connection->error;
    it->connection = NULL;
    it->closed++;
}

static void malformed(pb_connection *connection, const char *what)
{
    (void)connection;
    (void)what;
}

static void call(caller *it, uint64_t seed, uint32_t exact_bytes)
{
    memset(it, 0, sizeof *it);
    echo_start(&it->rig, seed, 64 << 20, 1 << 20);
    it->handler = (pb_connection_handler){.opened = opened,
                                          .frame = answered,
                                          .malformed = malformed,
                                          .closed = closed,
                                          .max_frame_bytes = INT32_MAX,
                                          .exact_frame_bytes = exact_bytes};
    pb_address address;
    pb_failure failure = {0};
    pb_io *io = it->rig.io;
    CHECK_INT(io->ops->address_find(io, "leader", 9092, &address, 1, &failure), 1);
    it->connection = pb_connection_connect(&it->rig.reactor, &address, &it->handler, it, 1);
    CHECK(it->connection != NULL);
    echo_run(&it->rig, 1000000);
    CHECK_INT(it->opened, 0);
}

/* The other end of it, accepted or refused. */
static int answer(caller *it, bool accept)
{
    int port = 0, peer = pb_sim_next_outgoing(it->rig.io, &port);
    CHECK(peer >= 0);
    CHECK_INT(port, 9092);
    pb_sim_answer_outgoing(it->rig.io, peer, accept);
    CHECK_INT(pb_sim_next_outgoing(it->rig.io, &port), -1);
    echo_run(&it->rig, 1000000);
    return peer;
}

TEST(a_request_leaves_and_answers_of_all_sizes_come_whole)
{
    static const uint32_t sizes[] = {0, 5, 40000, 1 << 20, (1 << 20) + 100, 3 << 20, 70000, 12};
    for (uint64_t seed = 1; seed <= 4; seed++) {
        caller it;
        call(&it, seed, seed % 2 == 0 ? 2 << 20 : 0);
        pb_sim_faults faults = {.short_io = seed > 2 ? 900000 : 0};
        pb_sim_set_faults(it.rig.io, &faults);
        int peer = answer(&it, true);
        CHECK_INT(it.opened, 1);
        uint8_t got[sizeof it.bytes];
        size_t have = 0;
        for (int step = 0; have < sizeof got; step++) {
            CHECK(step < ECHO_STEP_LIMIT);
            (void)pb_sim_step(it.rig.io);
            have += (size_t)pb_sim_client_receive(it.rig.io, peer, got + have, sizeof got - have);
        }
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            echo_send(&it.rig, peer, sizes[i], 0, UINT32_MAX);
            for (int step = 0; it.frames == (int)i; step++) {
                CHECK(step < ECHO_STEP_LIMIT);
                (void)pb_sim_step(it.rig.io);
            }
            CHECK_INT(it.last_length, sizes[i]);
            CHECK(it.last_is_whole);
        }
        CHECK_INT(it.sent, 1);
        pb_sim_client_close(it.rig.io, peer);
        echo_run(&it.rig, 1000000);
        CHECK_INT(it.closed, 1);
        CHECK_INT(it.error, 0);
        echo_stop(&it.rig);
    }
}

TEST(a_refusal_is_told_with_its_reason)
{
    caller it;
    call(&it, 7, 0);
    (void)answer(&it, false);
    CHECK_INT(it.opened, 0);
    CHECK_INT(it.closed, 1);
    CHECK_INT(it.error, -ECONNREFUSED);
    echo_stop(&it.rig);
}

TEST(connecting_ends_when_it_is_killed_or_its_reactor_leaves_or_stops)
{
    for (int how = 0; how < 3; how++) {
        caller it;
        call(&it, 11 + (uint64_t)how, 0);
        if (how == 0)
            pb_connection_kill(it.connection);
        else if (how == 1)
            pb_reactor_leave(&it.rig.reactor);
        if (how < 2)
            echo_run(&it.rig, 1000000);
        else
            echo_stop(&it.rig);
        CHECK_INT(it.opened, 0);
        CHECK_INT(it.closed, 1);
        CHECK(it.error < 0);
        if (how < 2)
            echo_stop(&it.rig);
    }
}

CHECK_MAIN()
