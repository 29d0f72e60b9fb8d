/* Receive memory is for bytes that have come, and when it runs out, the slowest connection goes. */
#include "tests/net/echo_server.h"

enum { KIB = 1024, MIB = 1 << 20, UNIT = PB_CHUNK_UNIT_BYTES, CROWD = 1024, MAX_FRAME = 100 << 20 };
#define MS 1000000LL

static int crowd[CROWD];

static int64_t now_ns(echo_server *server)
{
    return server->io->ops->monotonic_ns(server->io);
}

/* Send a frame and wait for its answer: how long it took. */
static int64_t ask(echo_server *server, int client, uint32_t length)
{
    int64_t before = now_ns(server);
    echo_send(server, client, length, 0, UINT32_MAX);
    echo_expect(server, client, length);
    return now_ns(server) - before;
}

/* `count` connections that announce a frame and send its bytes up to `end`. */
static void open_crowd(echo_server *server, int count, uint32_t length, uint32_t end)
{
    for (int i = 0; i < count; i++) {
        crowd[i] = pb_sim_connect(server->io, server->port);
        echo_send(server, crowd[i], length, 0, end);
    }
}

TEST(announced_bytes_take_no_memory_from_others)
{
    static const uint32_t announced[] = {50000, MIB - 4, 90 * MIB};
    for (size_t i = 0; i < sizeof announced / sizeof announced[0]; i++) {
        echo_server server;
        echo_start(&server, i, 64 * MIB, MAX_FRAME);
        int client = pb_sim_connect(server.io, server.port);
        open_crowd(&server, CROWD, announced[i], 8);
        while (server.open < CROWD + 1)
            echo_run(&server, MS);
        for (int k = 0; k < 20; k++) {
            CHECK(ask(&server, client, 256 * KIB) < 20 * MS);
            CHECK(ask(&server, client, 100) < 5 * MS);
        }
        echo_run(&server, 2000 * MS);
        CHECK_INT(server.open, CROWD + 1);
        CHECK(ask(&server, client, 256 * KIB) < 20 * MS);
        CHECK_INT(server.complaints, 0);
        CHECK(pb_pool_used_bytes(&server.pool) <= 50 * MIB);
        echo_stop(&server);
    }
}

TEST(a_byte_now_and_then_takes_no_memory_from_others)
{
    static const uint32_t announced[] = {50000, MIB - 4, 90 * MIB};
    for (size_t i = 0; i < sizeof announced / sizeof announced[0]; i++) {
        echo_server server;
        echo_start(&server, i, 2 * MIB, MAX_FRAME);
        int client = pb_sim_connect(server.io, server.port);
        open_crowd(&server, 200, announced[i], 8);
        for (uint32_t second = 0; second < 8; second++) {
            for (int k = 0; k < 200; k++)
                echo_send(&server, crowd[k], announced[i], 8 + second, 9 + second);
            for (int k = 0; k < 10; k++)
                CHECK(ask(&server, client, 1000) < 20 * MS);
            echo_run(&server, 1000 * MS);
        }
        CHECK_INT(server.complaints, 0);
        CHECK(pb_pool_used_bytes(&server.pool) <= 2 * MIB);
        echo_stop(&server);
    }
}

TEST(bytes_that_were_sent_and_stay_unfinished_cost_the_slowest)
{
    static const uint32_t announced[] = {60000, 100000, MIB - 4, 90 * MIB};
    for (size_t i = 0; i < sizeof announced / sizeof announced[0]; i++) {
        echo_server server;
        echo_start(&server, i, 4 * MIB, MAX_FRAME);
        int client = pb_sim_connect(server.io, server.port);
        open_crowd(&server, 90, announced[i], announced[i] > 96000 ? 96000 : 59000); /* 5 to 8 MiB */
        echo_run(&server, 1000 * MS);
        for (int k = 0; k < 50; k++) {
            CHECK(ask(&server, client, 1000) < 200 * MS);
            echo_run(&server, 100 * MS);
        }
        for (int k = 0; k < 10; k++)
            CHECK(ask(&server, client, 200 * KIB) < 1000 * MS);
        int64_t closed = pb_counter_read(&server.reactor.counters.slow_closed);
        CHECK(closed > 5);
        CHECK(server.complaints > 0 && server.complaints < closed); /* of most nobody is told one by one */
        CHECK(!echo_is_closed(&server, client));
        echo_stop(&server);
    }
}

TEST(the_slowest_goes_first_and_no_more_than_it_takes)
{
    enum { SLOW = 5, SLOWEST = 2 }; /* four, and one with the overdraft */
    static const uint32_t sent[SLOW] = {45000, 60000, 34000, 58000, 55000};
    echo_server server;
    echo_start(&server, 3, 4 * UNIT + UNIT / 2, MAX_FRAME);
    for (int i = 0; i < SLOW; i++) {
        crowd[i] = pb_sim_connect(server.io, server.port);
        echo_send(&server, crowd[i], 65000, 0, sent[i]);
    }
    echo_run(&server, 2000 * MS);
    CHECK_INT(server.complaints, 0); /* nobody wants their memory */
    int client = pb_sim_connect(server.io, server.port);
    CHECK(ask(&server, client, 1000) < 300 * MS);
    CHECK_INT(server.complaints, 1);
    CHECK_INT(pb_counter_read(&server.reactor.counters.slow_closed), 1);
    for (int i = 0; i < SLOW; i++)
        CHECK_INT(echo_is_closed(&server, crowd[i]), i == SLOWEST);
    echo_stop(&server);
}

enum { PIPELINE = 64 }; /* so many requests the server takes before it holds the next one */

/* A client with a request that waits for the answers to earlier ones, and holds memory meanwhile. */
static int open_held(echo_server *server, uint32_t held_bytes)
{
    int client = pb_sim_connect(server->io, server->port);
    server->slow = true;
    for (int i = 0; i < PIPELINE; i++)
        echo_send(server, client, 100, 0, UINT32_MAX);
    int requests = server->requests;
    echo_run(server, 10 * MS);
    CHECK_INT(server->requests, requests + PIPELINE);
    echo_send(server, client, held_bytes, 0, UINT32_MAX);
    echo_run(server, 10 * MS);
    CHECK_INT(server->requests, requests + PIPELINE);
    server->slow = false;
    return client;
}

TEST(a_client_that_waits_for_an_answer_is_not_closed_beside_slow_ones)
{
    enum { HELD_BYTES = 20000 };
    echo_server server;
    echo_start(&server, 6, 4 * MIB, MAX_FRAME);
    int held = open_held(&server, HELD_BYTES);
    int client = pb_sim_connect(server.io, server.port);
    open_crowd(&server, 90, 60000, 59000);
    echo_run(&server, 1000 * MS);
    for (int k = 0; k < 20; k++) {
        CHECK(ask(&server, client, 1000) < 200 * MS);
        echo_run(&server, 100 * MS);
    }
    CHECK(pb_counter_read(&server.reactor.counters.slow_closed) > 5);
    echo_release(&server);
    for (int i = 0; i < PIPELINE; i++)
        echo_expect(&server, held, 100);
    echo_expect(&server, held, HELD_BYTES);
    echo_stop(&server);
}

TEST(a_slow_client_is_left_alone_while_nobody_starves)
{
    echo_server server;
    echo_start(&server, 4, 4 * MIB, MAX_FRAME);
    int slow = pb_sim_connect(server.io, server.port), client = pb_sim_connect(server.io, server.port);
    echo_send(&server, slow, 300, 0, 1);
    for (uint32_t i = 1; i < 304; i++) {
        echo_send(&server, slow, 300, i, i + 1);
        echo_run(&server, 200 * MS);
        CHECK(ask(&server, client, 200 * KIB) < 20 * MS);
    }
    echo_expect(&server, slow, 300);
    CHECK_INT(server.complaints, 0);
    echo_stop(&server);
}

TEST(a_part_of_a_frame_is_kept_without_room)
{
    echo_server server;
    echo_start(&server, 5, 4 * MIB, MAX_FRAME);
    int client = pb_sim_connect(server.io, server.port);
    for (int i = 0; i < 200; i++) {
        crowd[i] = pb_sim_connect(server.io, server.port);
        echo_send(&server, crowd[i], 2 * MIB, 0, 3000); /* a part of a frame that nothing of follows */
    }
    echo_run(&server, 1500 * MS);
    CHECK(pb_pool_used_bytes(&server.pool) <= 3 * MIB + 200 * 3008);
    CHECK(ask(&server, client, 50000) < 20 * MS);
    CHECK_INT(server.complaints, 0);
    echo_stop(&server);
}

TEST(the_pool_names_the_slowest_of_all_reactors)
{
    pb_pool pool;
    pb_pool_init(&pool, 64 * UNIT);
    int64_t now = 50 * PB_POOL_ROUND_NS;
    pb_pool_tell_slow(&pool, now, 3 * UNIT, 500, false);
    pb_pool_tell_slow(&pool, now + 1, 5 * UNIT, 300, false);
    CHECK_INT(pb_pool_slowest(&pool, now + PB_POOL_ROUND_NS), -1); /* nobody starves */
    atomic_store(&pool.starved, 1);
    CHECK_INT(pb_pool_slowest(&pool, now + PB_POOL_ROUND_NS), -1); /* memory is there */
    pb_chunk *most = pb_pool_take(&pool, 40 * UNIT, false);
    CHECK_INT(pb_pool_slowest(&pool, now), -1); /* the round is not over */
    CHECK_INT(pb_pool_slowest(&pool, now + PB_POOL_ROUND_NS), 300);
    CHECK_INT(pb_pool_slowest(&pool, now + 2 * PB_POOL_ROUND_NS), -1); /* it is too long ago */
    now += 2 * PB_POOL_ROUND_NS;
    pb_pool_tell_slow(&pool, now, 7 * UNIT, 1, false);
    CHECK_INT(pb_pool_slowest(&pool, now + PB_POOL_ROUND_NS), -1); /* they hold too little to matter, */
    pb_pool_tell_slow(&pool, now, UNIT / 2, 2, true);
    CHECK_INT(pb_pool_slowest(&pool, now + PB_POOL_ROUND_NS), 1); /* but for the one overdraft that there is */
    atomic_store(&pool.starved, 0);
    pb_chunk_release(most);
    pb_pool_destroy(&pool);
}

TEST(small_chunks_find_memory_beside_large_ones)
{
    enum { UNITS = 64 };
    pb_pool pool;
    pb_pool_init(&pool, (int64_t)UNITS * UNIT);
    pb_chunk *chunks[UNITS];
    int count = 0;
    while ((chunks[count] = pb_pool_exchange(&pool, 2 * UNIT, true, false, NULL)) != NULL)
        count++;
    CHECK_INT(count, UNITS / 4 * 3 / 2);
    for (int i = 0; i < UNITS / 4; i++)
        CHECK((chunks[count++] = pb_pool_exchange(&pool, UNIT, false, false, NULL)) != NULL);
    CHECK(pb_pool_exchange(&pool, UNIT, false, false, NULL) == NULL);
    while (count > 0)
        pb_chunk_release(chunks[--count]);
    pb_pool_destroy(&pool);
}

CHECK_MAIN()
