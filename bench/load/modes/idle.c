/* Idle connections: each asks for ApiVersions once, then stays silent until the time is over; all must still be open.
 */
#include "client/engine.h"
#include "modes/modes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

struct idle {
    struct pbl_buffer body;
    uint64_t asked_count;
    uint64_t answered_count;
    uint32_t connection_count;
};

static bool next(void *context, struct pbl_connection *connection, struct pbl_request *request)
{
    struct idle *idle = context;
    if (connection->queued > 0)
        return false;
    idle->asked_count++;
    *request =
        (struct pbl_request){.api = PBL_API_API_VERSIONS, .body = idle->body.data, .body_bytes = idle->body.size};
    return true;
}

static int16_t answer(void *context, struct pbl_connection *connection, struct pbl_in_flight *in_flight,
                      struct pbl_reader *body)
{
    struct idle *idle = context;
    (void)connection;
    (void)in_flight;
    idle->answered_count++;
    return pbl_get_i16(body);
}

static bool finished(void *context)
{
    struct idle *idle = context;
    return idle->answered_count == idle->connection_count;
}

static uint32_t count_open(const struct pbl_engine *engine, uint32_t connection_count)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < connection_count; i++) {
        char byte;
        ssize_t got = recv(engine->connections[i].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        open += got < 0 && errno == EAGAIN;
    }
    return open;
}

bool pbl_idle_mode(const struct pbl_options *options)
{
    struct idle idle = {.connection_count = options->connection_count};
    pbl_put_client_id(&idle.body, false);
    struct pbl_engine engine;
    struct pbl_stats stats = {0};
    struct pbl_workload workload = {.context = &idle, .next = next, .answer = answer, .finished = finished};
    pbl_engine_open(&engine, options);
    pbl_engine_run(&engine, &workload, &stats);
    fprintf(stderr, "pbload: %u idle connections are open\n", options->connection_count);
    struct timespec pause = {.tv_sec = (time_t)options->seconds,
                             .tv_nsec = (long)((options->seconds - (double)(time_t)options->seconds) * 1e9)};
    while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
        continue;
    uint32_t open = count_open(&engine, options->connection_count);
    pbl_engine_close(&engine);
    char extra[64];
    snprintf(extra, sizeof extra, ",\"open_connections\":%u", open);
    pbl_stats_print(&stats, options, extra);
    pbl_buffer_free(&idle.body);
    return !pbl_stats_failed(&stats) && open == options->connection_count;
}
