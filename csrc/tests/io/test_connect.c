/* Connections that a loop makes itself, on the real backends: found, made, refused, given up. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/io/loop_rig.h"

static pb_address local(rig *it, int port)
{
    pb_address address;
    pb_failure failure = {0};
    CHECK_INT(it->io->ops->address_find(it->io, "127.0.0.1", port, &address, 1, &failure), 1);
    return address;
}

/* A listening socket, blocking. */
static int listen_on(rig *it, int *port)
{
    pb_failure failure = {0};
    int listener = it->io->ops->socket_listen(it->io, "127.0.0.1", 0, port, &failure);
    CHECK(listener >= 0);
    CHECK_INT(fcntl(listener, F_SETFL, 0), 0);
    return listener;
}

TEST(a_connection_is_made_and_moves_bytes_both_ways)
{
    for (int backend = 0; backend < BACKENDS; backend++) {
        rig it;
        rig_open_loop(&it, backends[backend]);
        int port = 0, listener = listen_on(&it, &port);
        pb_address address = local(&it, port);
        CHECK_INT(it.io->ops->socket_connect(it.loop, &it.socket, &address), 0);
        CHECK_INT(it.sent, 0); /* never inside the start */
        turn_until(&it, &it.sent, 1);
        CHECK_INT(it.send_result, 0);
        CHECK_INT(it.io->ops->socket_attach(it.loop, &it.socket), 0);
        int peer = accept(listener, NULL, NULL);
        CHECK(peer >= 0);
        struct iovec iov = {(char[]){"ping"}, 4};
        it.io->ops->socket_send(it.loop, &it.socket, &iov, 1);
        turn_until(&it, &it.sent, 2);
        CHECK_INT(it.send_result, 4);
        char got[8];
        CHECK_INT(read(peer, got, sizeof got), 4);
        CHECK_INT(write(peer, "pong!", 5), 5);
        it.io->ops->socket_recv(it.loop, &it.socket, got, sizeof got);
        turn_until(&it, &it.received, 1);
        CHECK_INT(it.receive_result, 5);
        CHECK_MEM(got, "pong!", 5);
        close(peer);
        it.io->ops->socket_recv(it.loop, &it.socket, got, sizeof got);
        turn_until(&it, &it.received, 2);
        CHECK_INT(it.receive_result, 0);
        rig_close_loop(&it);
        close(listener);
    }
}

TEST(a_port_where_nobody_listens_refuses)
{
    for (int backend = 0; backend < BACKENDS; backend++) {
        rig it;
        rig_open_loop(&it, backends[backend]);
        int port = 0, listener = listen_on(&it, &port);
        close(listener);
        pb_address address = local(&it, port);
        CHECK_INT(it.io->ops->socket_connect(it.loop, &it.socket, &address), 0);
        turn_until(&it, &it.sent, 1);
        CHECK_INT(it.send_result, -ECONNREFUSED);
        rig_close_loop(&it);
    }
}

/* A listener whose queue is full leaves those that come later unanswered. */
TEST(connecting_can_be_given_up)
{
    for (int backend = 0; backend < BACKENDS; backend++) {
        rig it;
        rig_open_loop(&it, backends[backend]);
        int full = socket(AF_INET, SOCK_STREAM, 0), first = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof name;
        CHECK_INT(bind(full, (struct sockaddr *)&name, sizeof name), 0);
        CHECK_INT(listen(full, 0), 0);
        CHECK_INT(getsockname(full, (struct sockaddr *)&name, &length), 0);
        CHECK_INT(connect(first, (struct sockaddr *)&name, length), 0);
        pb_address address = local(&it, ntohs(name.sin_port));
        CHECK_INT(it.io->ops->socket_connect(it.loop, &it.socket, &address), 0);
        (void)it.io->ops->loop_turn(it.loop, 0);
        CHECK_INT(it.sent, 0);
        it.io->ops->socket_shutdown(it.loop, &it.socket);
        turn_until(&it, &it.sent, 1);
        CHECK(it.send_result < 0);
        rig_close_loop(&it);
        close(first);
        close(full);
    }
}

TEST(hosts_are_found_by_name_and_in_digits)
{
    rig it;
    for (int backend = 0; backend < BACKENDS; backend++) {
        rig_open_loop(&it, backends[backend]);
        pb_address found[4];
        pb_failure failure = {0};
        CHECK(it.io->ops->address_find(it.io, "localhost", 9092, found, 4, &failure) >= 1);
        CHECK_INT(it.io->ops->address_find(it.io, "::1", 9092, found, 4, &failure), 1);
        CHECK_INT(pb_posix_sockaddr(&found[0])->sa_family, AF_INET6);
        CHECK_INT(it.io->ops->address_find(it.io, "no such host.", 9092, found, 4, &failure), -EHOSTUNREACH);
        CHECK(strstr(failure.text, "no such host.") != NULL);
        it.io->ops->loop_close(it.loop);
        it.io->ops->close(it.io);
    }
}

CHECK_MAIN()
