/* File descriptors: logs and clients share them, neither takes the last one, and a listener outlives a shortage. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "io/descriptors.h"
#include "tests/abi/serving.h"

enum { VERSION = 9, PATIENCE_MS = 5000 };

static uint8_t batch[1024];

/* Is the client served? Else the broker has closed its connection. */
static bool is_served(mini_client *client)
{
    size_t length = mini_batch(batch, sizeof batch, 1, 10);
    mini_client_send_produce(client, VERSION, 1, "t", 0, batch, length);
    return mini_client_receive(client);
}

/* Take notices for `ms`, until one begins with `start`. How many others there were, and the text of the one. */
static int notices_until(const served *it, const char *start, int ms, char *text, size_t size)
{
    text[0] = '\0';
    int others = 0;
    for (int waited = 0; waited < ms; waited++) {
        pb_event event;
        while (take_event(it, &event)) {
            CHECK_INT(event.kind, PB_EVENT_NOTICE);
            CHECK_INT(event.repeated, 0); /* it was told once */
            snprintf(text, size, "%.*s", (int)event.body_length, (const char *)event.body);
            pb_notice_release(event.handle);
            if (strncmp(text, start, strlen(start)) == 0)
                return others;
            others++;
        }
        usleep(1000);
    }
    text[0] = '\0';
    return others;
}

TEST(files_and_connections_leave_each_other_a_reserve)
{
    enum { LIMIT = 100, KEPT = 20, RESERVE = 15 };
    CHECK_INT(pb_descriptors_for_logs(), INT32_MAX);
    pb_descriptors_limit(LIMIT, KEPT, RESERVE);
    int files = 0, connections = 0;
    while (pb_descriptors_take_file(false))
        files++;
    CHECK_INT(files, LIMIT - KEPT - RESERVE);
    CHECK(pb_descriptors_for_logs() < files);
    while (pb_descriptors_take_connection())
        connections++;
    CHECK_INT(connections, RESERVE);
    for (; files > 0; files--)
        pb_descriptors_give_file();
    while (pb_descriptors_take_connection())
        connections++;
    CHECK_INT(connections, LIMIT - KEPT - RESERVE);
    while (pb_descriptors_take_file(true))
        files++;
    CHECK(files < RESERVE || RESERVE < 16);
    CHECK(pb_descriptors_for_logs() <= RESERVE);
    while (pb_descriptors_take_file(false))
        files++;
    CHECK_INT(files, RESERVE);
    for (; files > 0; files--)
        pb_descriptors_give_file();
    for (; connections > 0; connections--)
        pb_descriptors_give_connection();
    pb_descriptors_limit(0, 0, 0);
    CHECK(pb_descriptors_take_connection());
    pb_descriptors_give_connection();
}

TEST(extra_files_go_first)
{
    pb_descriptors_limit(200, 20, 20);
    int extra = 0, others = 0;
    while (pb_descriptors_take_file(true))
        extra++;
    while (pb_descriptors_take_file(false))
        others++;
    CHECK_INT(extra + others, 160);
    CHECK_INT(others, 10);
    for (int i = 0; i < extra + others; i++)
        pb_descriptors_give_file();
    pb_descriptors_limit(0, 0, 0);
}

TEST(logs_are_not_opened_with_the_clients_descriptors)
{
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        pb_process_limit_descriptors(60, 20, 20); /* 20 files, of which one is open */
        CHECK_INT(pb_process_log_descriptors(), 10);
        pb_partition *more[32];
        int count = 0, result = 0;
        while (result == 0 && count < 32) {
            char path[128];
            snprintf(path, sizeof path, "%s/u-%d", it.directory, count);
            uint8_t id[16] = {9};
            pb_partition_options options = {.topic = "u",
                                            .topic_id = id,
                                            .partition = count,
                                            .directory = path,
                                            .clean = 1,
                                            .log_start_offset = -1,
                                            .high_watermark = -1,
                                            .config = it.config};
            pb_partition_recovery recovery;
            pb_native_failure failure = {0};
            result = pb_partition_open(it.broker, &options, &more[count], &recovery, &failure);
            count += result == 0;
        }
        CHECK_INT(result, -EMFILE);
        CHECK(count >= 10 && count < 20); /* to open one takes another one for a moment */
        mini_client client;
        mini_client_open(&client, it.port);
        CHECK(is_served(&client));
        mini_client_close(&client);
        pb_process_limit_descriptors(0, 0, 0);
        while (count > 0) {
            pb_native_failure failure = {0};
            CHECK_INT(pb_partition_close(more[--count], 1, &failure), 0);
        }
        stop(&it);
    }
}

TEST(connections_beyond_the_share_are_closed_and_told_of_once)
{
    enum { CLIENTS = 12, PLACES = 5, FILES = 30 };
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        mini_client clients[CLIENTS];
        pb_process_limit_descriptors(FILES + PLACES, 0, PLACES);
        int files = 0;
        while (pb_descriptors_take_file(false))
            files++;
        int taken = 0;
        for (int i = 0; i < CLIENTS; i++) {
            mini_client_open(&clients[i], it.port);
            taken += is_served(&clients[i]);
        }
        CHECK_INT(taken, PLACES);
        char text[512];
        CHECK_INT(notices_until(&it, "refusing connections: 5 are open", PATIENCE_MS, text, sizeof text), 0);
        CHECK(strstr(text, "LimitNOFILE") != NULL);
        CHECK_INT(notices_until(&it, "none", 50, text, sizeof text), 0);
        for (int i = 0; i < CLIENTS; i++)
            mini_client_close(&clients[i]);
        for (; files > 0; files--)
            pb_descriptors_give_file();
        pb_process_limit_descriptors(0, 0, 0);
        stop(&it);
    }
}

static void connect_to(int fd, int32_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK_INT(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
}

TEST(a_listener_that_finds_no_descriptor_tells_it_once_and_recovers)
{
    enum { CLIENTS = 3, SHORTAGE_MS = 1000 };
    for (int b = 0; b < 2; b++) {
        served it;
        serve(&it, backends[b], 1);
        mini_client first, clients[CLIENTS];
        mini_client_open(&first, it.port);
        CHECK(is_served(&first));
        pb_broker_stats before, after;
        int sockets[CLIENTS];
        for (int i = 0; i < CLIENTS; i++)
            CHECK((sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0);
        struct rlimit limit;
        CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
        int fds = dup(0);
        CHECK_INT(close(fds), 0);
        struct rlimit none = {.rlim_cur = (rlim_t)fds, .rlim_max = limit.rlim_max};
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
        for (int i = 0; i < CLIENTS; i++)
            connect_to(sockets[i], it.port);
        char text[512];
        CHECK_INT(notices_until(&it, "cannot accept connections", PATIENCE_MS, text, sizeof text), 0);
        CHECK(strstr(text, "LimitNOFILE") != NULL);
        pb_broker_stats_read(it.broker, &before);
        CHECK_INT(notices_until(&it, "none", SHORTAGE_MS, text, sizeof text), 0);
        pb_broker_stats_read(it.broker, &after);
        CHECK(after.turns - before.turns < 200); /* it does not spin */
        CHECK(is_served(&first));
        CHECK_INT(setrlimit(RLIMIT_NOFILE, &limit), 0);
        for (int i = 0; i < CLIENTS; i++) {
            mini_client_open(&clients[i], it.port);
            CHECK_INT(dup2(sockets[i], clients[i].fd), clients[i].fd);
            CHECK_INT(close(sockets[i]), 0);
            CHECK(is_served(&clients[i]));
        }
        CHECK_INT(notices_until(&it, "listener PLAINTEXT accepts connections again", PATIENCE_MS, text, sizeof text),
                  0);
        CHECK(text[0] != '\0');
        for (int i = 0; i < CLIENTS; i++)
            mini_client_close(&clients[i]);
        mini_client_close(&first);
        stop(&it);
    }
}

CHECK_MAIN()
