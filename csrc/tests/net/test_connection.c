/* Connections on the simulated machine: fragments, pipelines, limits, and memory that does not suffice. */
#include "tests/net/echo_server.h"

enum { KIB = 1024, UNIT = PB_CHUNK_UNIT_BYTES };

static const uint32_t sizes[] = {
    0,         1,        3,        4,        100,      32 * KIB - 5, 32 * KIB - 4, 32 * KIB - 3,
    32 * KIB,  50000,    UNIT - 5, UNIT - 4, UNIT - 3, UNIT,         UNIT + 1,     2 * UNIT - 4,
    256 * KIB, 5 * UNIT, 7,        1,        1 << 20,  65,           3 << 20,      9};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

TEST(frames_of_all_sizes_come_whole_however_they_are_cut)
{
    for (uint64_t seed = 1; seed <= 2; seed++) {
        echo_server server;
        echo_start(&server, seed, 64 << 20, 4 << 20);
        pb_sim_faults faults = {.short_io = seed % 2 == 0 ? 900000 : 0};
        pb_sim_set_faults(server.io, &faults);
        int client = pb_sim_connect(server.io, server.port);
        for (int i = 0; i < SIZES; i++) { /* one at a time, in two pieces */
            uint32_t cut = (uint32_t)(seed * 977) % (sizes[i] + 4);
            echo_send(&server, client, sizes[i], 0, cut);
            echo_run(&server, 100000);
            echo_send(&server, client, sizes[i], cut, UINT32_MAX);
            echo_expect(&server, client, sizes[i]);
        }
        for (int i = 0; i < SIZES; i++) /* all at once */
            echo_send(&server, client, sizes[i], 0, UINT32_MAX);
        for (int i = 0; i < SIZES; i++)
            echo_expect(&server, client, sizes[i]);
        echo_stop(&server);
    }
}

TEST(a_long_pipeline_is_held_and_answered_in_order)
{
    echo_server server;
    echo_start(&server, 5, 1 << 20, 1 << 20);
    int client = pb_sim_connect(server.io, server.port);
    for (uint32_t i = 0; i < 1000; i++)
        echo_send(&server, client, i % 90, 0, UINT32_MAX);
    for (uint32_t i = 0; i < 1000; i++)
        echo_expect(&server, client, i % 90);
    echo_stop(&server);
}

TEST(a_size_out_of_range_closes_after_what_came_before_is_answered)
{
    static const uint32_t bad[] = {(1 << 20) + 1, INT32_MAX, 0x80000000u, 0xfffffffcu, 0xffffffffu};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        echo_server server;
        echo_start(&server, i, 1 << 20, 1 << 20);
        int client = pb_sim_connect(server.io, server.port);
        uint32_t size = htobe32(bad[i]);
        echo_send(&server, client, 10, 0, UINT32_MAX);
        pb_sim_client_send(server.io, client, &size, sizeof size);
        echo_expect(&server, client, 10);
        echo_run(&server, 10000000);
        CHECK(echo_is_closed(&server, client));
        CHECK_INT(server.complaints, 1);
        CHECK_INT(server.open, 0);
        echo_stop(&server);
    }
}

TEST(the_largest_size_kafka_allows_is_no_surprise)
{
    echo_server server;
    echo_start(&server, 6, UNIT, INT32_MAX);
    int client = pb_sim_connect(server.io, server.port);
    uint32_t size = htobe32(INT32_MAX);
    pb_sim_client_send(server.io, client, &size, sizeof size);
    static uint8_t some[3 * UNIT];
    pb_sim_client_send(server.io, client, some, sizeof some);
    echo_run(&server, 1000000000);
    CHECK_INT(server.open, 1);
    pb_sim_client_close(server.io, client);
    echo_run(&server, 1000000000);
    CHECK_INT(server.open, 0);
    echo_stop(&server);
}

TEST(connections_that_wait_for_each_others_memory_get_on)
{
    enum { CLIENTS = 12 };
    echo_server server;
    echo_start(&server, 7, 2 * UNIT, 1 << 20);
    int clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = pb_sim_connect(server.io, server.port);
        echo_send(&server, clients[i], 3 * UNIT, 0, UNIT / 2); /* each holds one and wants more than there is */
    }
    echo_run(&server, 100000000);
    for (int i = 0; i < CLIENTS; i++)
        echo_send(&server, clients[i], 3 * UNIT, UNIT / 2, UINT32_MAX);
    for (int i = 0; i < CLIENTS; i++)
        echo_expect(&server, clients[i], 3 * UNIT);
    CHECK_INT(server.complaints, 0);
    echo_stop(&server);
}

TEST(unfinished_frames_make_room_for_others)
{
    enum { LORIS = 20 };
    echo_server server;
    echo_start(&server, 8, 4 * UNIT, 1 << 20);
    int loris[LORIS];
    for (int i = 0; i < LORIS; i++) {
        loris[i] = pb_sim_connect(server.io, server.port);
        echo_send(&server, loris[i], 1000, 0, 10);
    }
    echo_run(&server, 10000000);
    int client = pb_sim_connect(server.io, server.port);
    for (int second = 0; second < 60; second++) { /* a byte now and then does not keep the memory */
        for (int i = 0; i < LORIS; i++)
            if (!echo_is_closed(&server, loris[i]))
                echo_send(&server, loris[i], 1000, (uint32_t)(10 + second), (uint32_t)(11 + second));
        echo_run(&server, 1000000000);
    }
    echo_send(&server, client, 100, 0, UINT32_MAX);
    echo_expect(&server, client, 100);
    CHECK_INT(server.complaints, 0); /* they hold so little that nobody has to go */
    CHECK(pb_pool_used_bytes(&server.pool) <= 4 * UNIT);
    echo_stop(&server);
}

TEST(a_frame_larger_than_the_budget_holds_nobody_up)
{
    echo_server server;
    echo_start(&server, 9, 4 * UNIT, 100 << 20);
    int huge = pb_sim_connect(server.io, server.port);
    echo_send(&server, huge, 40 * UNIT, 0, 6 * UNIT);
    echo_run(&server, 100000000);
    for (uint32_t i = 0; i < 20; i++) {
        int client = pb_sim_connect(server.io, server.port);
        int64_t before = server.io->ops->monotonic_ns(server.io);
        echo_send(&server, client, i, 0, UINT32_MAX);
        echo_expect(&server, client, i);
        CHECK(server.io->ops->monotonic_ns(server.io) - before < 100000000);
    }
    echo_send(&server, huge, 40 * UNIT, 6 * UNIT, UINT32_MAX);
    echo_expect(&server, huge, 40 * UNIT);
    echo_stop(&server);
}

TEST(announcing_a_huge_frame_takes_no_memory)
{
    echo_server server;
    echo_start(&server, 10, 64 << 20, 100 << 20);
    for (int i = 0; i < 50; i++)
        echo_send(&server, pb_sim_connect(server.io, server.port), 90 << 20, 0, 100);
    echo_run(&server, 100000000);
    CHECK(pb_pool_used_bytes(&server.pool) <= 50 * UNIT);
    echo_stop(&server);
}

TEST(idle_connections_give_their_buffers_back)
{
    echo_server server;
    echo_start(&server, 11, 64 << 20, 1 << 20);
    int clients[30];
    for (int i = 0; i < 30; i++) {
        clients[i] = pb_sim_connect(server.io, server.port);
        echo_send(&server, clients[i], 300 * KIB, 0, UINT32_MAX);
        echo_expect(&server, clients[i], 300 * KIB);
    }
    echo_run(&server, 5000000000);
    CHECK_INT(pb_pool_used_bytes(&server.pool), 0);
    echo_send(&server, clients[3], 5, 0, UINT32_MAX);
    echo_expect(&server, clients[3], 5);
    echo_stop(&server);
}

TEST(idle_buffers_go_to_those_that_starve)
{
    echo_server server;
    echo_start(&server, 12, 2 * UNIT, 1 << 20);
    for (int round = 0; round < 10; round++) {
        int clients[6];
        for (int i = 0; i < 6; i++) {
            clients[i] = pb_sim_connect(server.io, server.port);
            echo_send(&server, clients[i], 9, 0, UINT32_MAX);
        }
        for (int i = 0; i < 6; i++)
            echo_expect(&server, clients[i], 9);
    }
    CHECK_INT(server.complaints, 0);
    echo_stop(&server);
}

TEST(a_client_may_leave_at_any_moment)
{
    for (int moment = 0; moment < 40; moment++) {
        echo_server server;
        echo_start(&server, (uint64_t)moment, 4 * UNIT, 1 << 20);
        server.slow = moment % 2 == 0;
        pb_sim_faults faults = {.short_io = 500000};
        pb_sim_set_faults(server.io, &faults);
        int client = pb_sim_connect(server.io, server.port);
        for (uint32_t i = 0; i < 100; i++)
            echo_send(&server, client, i * 11, 0, UINT32_MAX);
        echo_send(&server, client, 2 * UNIT, 0, UNIT);
        for (int step = 0; step < moment; step++)
            (void)pb_sim_step(server.io);
        pb_sim_client_close(server.io, client);
        if (moment % 3 == 0)
            echo_run(&server, 50000000);
        echo_release(&server);
        server.slow = false;
        echo_run(&server, 3000000000);
        CHECK_INT(server.open, 0);
        echo_stop(&server);
    }
}

TEST(a_client_that_sends_no_more_is_answered_and_then_left)
{
    for (uint32_t count = 0; count <= 200; count += 100)
        for (uint64_t seed = 1; seed <= 4; seed++) {
            echo_server server;
            echo_start(&server, seed, 4 * UNIT, 1 << 20);
            server.slow = seed % 2 == 0; /* the end is seen while nothing is answered, and some is held */
            pb_sim_faults faults = {.short_io = seed > 2 ? 500000 : 0};
            pb_sim_set_faults(server.io, &faults);
            int client = pb_sim_connect(server.io, server.port);
            for (uint32_t i = 0; i < count; i++)
                echo_send(&server, client, i * 11, 0, UINT32_MAX);
            echo_send(&server, client, 2 * UNIT, 0, UNIT);
            pb_sim_client_end(server.io, client);
            if (server.slow) {
                echo_run(&server, 1000000000);
                CHECK_INT(server.open, count > 0);
                echo_release(&server);
                server.slow = false;
            }
            for (uint32_t i = 0; i < count; i++)
                echo_expect(&server, client, i * 11);
            echo_run(&server, 10000000);
            CHECK(echo_is_closed(&server, client));
            CHECK_INT(server.complaints, 0);
            echo_stop(&server);
        }
}

TEST(whoever_is_asked_to_leave_gets_its_answers_and_no_reset)
{
    enum { ASKED = 3, LATE = 5 };
    for (uint64_t seed = 1; seed <= 8; seed++) {
        echo_server server;
        echo_start(&server, seed, 4 * UNIT, 1 << 20);
        server.slow = true;
        pb_sim_faults faults = {.short_io = seed > 4 ? 500000 : 0};
        pb_sim_set_faults(server.io, &faults);
        int client = pb_sim_connect(server.io, server.port);
        int fresh = pb_sim_connect(server.io, server.port); /* it has sent nothing yet */
        for (uint32_t i = 0; i < ASKED; i++)
            echo_send(&server, client, 11 * i, 0, UINT32_MAX);
        if (seed % 2 == 0) /* a frame that is not whole when the end comes */
            echo_send(&server, client, 2 * UNIT, 0, UNIT);
        echo_run(&server, 10000000);
        CHECK_INT(server.requests, ASKED);
        pb_reactor_leave(&server.reactor);
        echo_run(&server, 10000000);
        for (uint32_t i = 0; i < LATE; i++)
            echo_send(&server, client, 2 * UNIT, 0, UINT32_MAX);
        echo_run(&server, 100000000);
        CHECK_INT(server.requests, ASKED);
        CHECK_INT(server.open, 2);
        CHECK(echo_is_closed(&server, fresh));
        pb_sim_client_close(server.io, fresh);
        echo_release(&server);
        for (uint32_t i = 0; i < ASKED; i++)
            echo_expect(&server, client, 11 * i);
        echo_run(&server, 100000000);
        CHECK(echo_is_closed(&server, client));
        CHECK_INT(pb_sim_client_unread(server.io, client), 0);
        CHECK_INT(server.open, 1); /* until the client has ended too */
        pb_sim_client_end(server.io, client);
        echo_run(&server, 10000000);
        CHECK_INT(server.open, 0);
        CHECK_INT(server.complaints, 0);
        echo_stop(&server);
    }
}

TEST(whoever_has_been_quiet_is_closed_when_all_are_to_leave)
{
    enum { IDLE = 20 };
    echo_server server;
    echo_start(&server, 11, 4 * UNIT, 1 << 20);
    int clients[IDLE];
    for (int i = 0; i < IDLE; i++) {
        clients[i] = pb_sim_connect(server.io, server.port);
        echo_send(&server, clients[i], 50, 0, UINT32_MAX);
        echo_expect(&server, clients[i], 50);
    }
    echo_run(&server, 4000000000);
    CHECK_INT(server.open, IDLE);
    pb_reactor_leave(&server.reactor);
    echo_run(&server, 10000000);
    CHECK_INT(server.open, 0); /* although none has ended */
    int late = pb_sim_connect(server.io, server.port);
    echo_run(&server, 10000000);
    CHECK(echo_is_closed(&server, late));
    echo_stop(&server);
}

TEST(a_client_that_does_not_go_is_cut_by_the_stop)
{
    for (int moment = 0; moment < 20; moment++) {
        echo_server server;
        echo_start(&server, (uint64_t)moment, 4 * UNIT, 1 << 20);
        server.slow = moment % 2 == 0;
        int client = pb_sim_connect(server.io, server.port);
        for (uint32_t i = 0; i < 100; i++)
            echo_send(&server, client, i * 11, 0, UINT32_MAX);
        echo_send(&server, client, 2 * UNIT, 0, UNIT);
        for (int step = 0; step < moment; step++)
            (void)pb_sim_step(server.io);
        pb_reactor_leave(&server.reactor);
        for (int step = 0; step < moment % 7; step++)
            (void)pb_sim_step(server.io);
        echo_stop(&server);
    }
}

TEST(a_client_that_does_not_read_holds_bounded_memory)
{
    echo_server server;
    echo_start(&server, 13, 4 * UNIT, 1 << 20);
    int client = pb_sim_connect(server.io, server.port);
    enum { REQUESTS = 40000 };
    for (uint32_t i = 0; i < REQUESTS; i++) /* answers fill the socket: 8 bytes each, 256 KiB of them */
        echo_send(&server, client, 4, 0, UINT32_MAX);
    echo_run(&server, 3000000000);
    CHECK(server.requests <= 64);
    CHECK(pb_pool_used_bytes(&server.pool) <= 3 * UNIT);
    static uint8_t answers[UNIT];
    int64_t got = 0;
    for (int step = 0; got < REQUESTS * ECHO_ANSWER_BYTES; step++) {
        CHECK(step < ECHO_STEP_LIMIT);
        got += pb_sim_client_receive(server.io, client, answers, sizeof answers);
        (void)pb_sim_step(server.io);
    }
    CHECK_INT(got, REQUESTS * ECHO_ANSWER_BYTES);
    echo_stop(&server);
}

/* ---- files ---- */

/* Frames of so many bytes are answered from a file. */
enum { FILE_BYTES = 2 << 20, OF_HISTORY = 4, OF_FILE = 5, OF_MORE = 6 };

static int answer_file;
static const pb_io_ops *real_ops;
static int64_t longest_sendfile;

static void note_sendfile(pb_loop *loop, pb_socket *socket, struct iovec *iov, int count, int tail_count, int file,
                          int64_t position, size_t length)
{
    longest_sendfile = (int64_t)length > longest_sendfile ? (int64_t)length : longest_sendfile;
    real_ops->socket_sendfile(loop, socket, iov, count, tail_count, file, position, length);
}

static enum pb_frame_verdict answer_from_file(pb_connection *connection, pb_chunk *chunk, const uint8_t *frame,
                                              uint32_t length)
{
    echo_server *server = connection->owner;
    if (length != OF_HISTORY && length != OF_FILE && length != OF_MORE)
        return echo_frame(connection, chunk, frame, length);
    server->slow = true;
    CHECK_INT(echo_frame(connection, chunk, frame, length), PB_FRAME_TAKEN);
    server->slow = false;
    echo_request *request = PB_CONTAINER(pb_list_pop_front(&server->kept), echo_request, link);
    request->output = (pb_output){.file = answer_file, .length = FILE_BYTES};
    request->response.outputs = &request->output;
    request->response.output_count = 1;
    request->response.yields = length == OF_HISTORY;
    request->response.is_behind = length == OF_MORE;
    pb_connection_respond(connection, &request->response);
    return PB_FRAME_TAKEN;
}

/* Ask for a file; how much of it was sent at once. */
static int64_t longest_part_of(echo_server *server, int client, uint32_t which)
{
    static uint8_t bytes[UNIT];
    longest_sendfile = 0;
    echo_send(server, client, which, 0, UINT32_MAX);
    int64_t got = 0;
    for (int step = 0; got < FILE_BYTES; step++) {
        CHECK(step < ECHO_STEP_LIMIT);
        int64_t part = pb_sim_client_receive(server->io, client, bytes, sizeof bytes);
        CHECK(part >= 0);
        got += part;
        (void)pb_sim_step(server->io);
    }
    CHECK_INT(got, FILE_BYTES);
    return longest_sendfile;
}

/* What the file's bytes are, where they are said to be in memory, and what is awaited. */
static uint8_t in_memory[FILE_BYTES];
static pb_connection *awaiting;
static int awaited_count;

static enum pb_part_place place_somewhere(pb_response *response, const pb_output *output, bool brought, int64_t *length,
                                          const uint8_t **bytes)
{
    enum { TURN = 48 * KIB, PART = 5000 };
    CHECK(*length > 0 && *length <= output->length);
    switch (output->position / TURN % 3) {
    case 0:
        if (*length > PART)
            *length = PART;
        *bytes = in_memory + output->position;
        return PB_PART_IN_MEMORY;
    case 1:
        if (*length > TURN - output->position % TURN)
            *length = TURN - output->position % TURN;
        return PB_PART_IN_FILE;
    default:
        if (brought)
            return PB_PART_IN_FILE;
        awaiting = PB_CONTAINER(response, echo_request, response)->connection;
        awaited_count++;
        return PB_PART_AWAITED;
    }
}

TEST(parts_of_a_file_are_sent_from_where_they_are)
{
    echo_server server;
    echo_start(&server, 22, 4 * UNIT, 1 << 20);
    pb_io *io = server.io;
    server.handler.frame = answer_from_file;
    server.handler.place = place_somewhere;
    for (int i = 0; i < FILE_BYTES; i++)
        in_memory[i] = (uint8_t)(i / 251 + i);
    answer_file = io->ops->file_open(io, "/file", PB_OPEN_WRITE | PB_OPEN_CREATE);
    struct iovec iov = {in_memory, sizeof in_memory};
    CHECK_INT(pb_io_write_all(io, answer_file, &iov, 1, 0), 0);
    int reader = pb_sim_connect(io, server.port);
    echo_run(&server, 30000000); /* a clock that begins at 0 is no clock */
    echo_send(&server, reader, OF_HISTORY, 0, UINT32_MAX);
    static uint8_t got[FILE_BYTES];
    awaited_count = 0;
    for (int64_t count = 0, step = 0; count < FILE_BYTES; step++) {
        CHECK(step < ECHO_STEP_LIMIT);
        int64_t part = pb_sim_client_receive(io, reader, got + count, (size_t)(FILE_BYTES - count));
        CHECK(part >= 0);
        count += part;
        if (awaiting != NULL && step % 7 == 0) {
            pb_connection *connection = awaiting;
            awaiting = NULL;
            pb_connection_brought(connection, 20 * KIB);
        }
        (void)pb_sim_step(io);
    }
    CHECK_MEM(got, in_memory, FILE_BYTES);
    CHECK(awaited_count > FILE_BYTES / (3 * 48 * KIB));
    CHECK_INT(io->ops->file_close(io, answer_file), 0);
    echo_stop(&server);
}

TEST(history_is_sent_in_small_pieces_while_others_are_served)
{
    echo_server server;
    echo_start(&server, 21, 4 * UNIT, 1 << 20);
    real_ops = server.io->ops;
    pb_io_ops ops = *real_ops;
    ops.socket_sendfile = note_sendfile;
    server.io->ops = &ops;
    server.handler.frame = answer_from_file;
    answer_file = ops.file_open(server.io, "/file", PB_OPEN_WRITE | PB_OPEN_CREATE);
    CHECK(answer_file >= 0);
    static uint8_t zeros[FILE_BYTES];
    struct iovec iov = {zeros, sizeof zeros};
    CHECK_INT(pb_io_write_all(server.io, answer_file, &iov, 1, 0), 0);
    int reader = pb_sim_connect(server.io, server.port), other = pb_sim_connect(server.io, server.port);
    CHECK_INT(longest_part_of(&server, reader, OF_FILE), 1 << 20);
    CHECK_INT(longest_part_of(&server, reader, OF_HISTORY), 16 * KIB); /* until now it read something else */
    echo_run(&server, 30000000);
    CHECK_INT(longest_part_of(&server, reader, OF_HISTORY), 1 << 20); /* nobody else is there */
    echo_send(&server, other, 10, 0, UINT32_MAX);
    echo_expect(&server, other, 10);
    CHECK_INT(longest_part_of(&server, reader, OF_HISTORY), 16 * KIB);
    CHECK_INT(longest_part_of(&server, other, OF_MORE), 1 << 20);
    echo_run(&server, 30000000);
    CHECK_INT(longest_part_of(&server, other, OF_MORE), 1 << 20); /* who is behind does not count as served */
    CHECK_INT(longest_part_of(&server, reader, OF_HISTORY), 1 << 20);
    CHECK_INT(longest_part_of(&server, reader, OF_FILE), 1 << 20);
    CHECK_INT(ops.file_close(server.io, answer_file), 0);
    server.io->ops = real_ops;
    echo_stop(&server);
}

CHECK_MAIN()
