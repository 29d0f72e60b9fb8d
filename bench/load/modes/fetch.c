/* Fetch: each request slot of each connection reads one partition from its start and wraps. */
#include "client/admin.h"
#include "client/fetch_cursor.h"
#include "modes/modes.h"

#include <stdlib.h>

struct fetch {
    const struct pbl_options *options;
    struct pbl_cursor *cursors; /* connection_count * in_flight_count */
};

static bool next(void *context, struct pbl_connection *connection, struct pbl_request *request)
{
    struct fetch *fetch = context;
    uint32_t depth = fetch->options->in_flight_count;
    uint32_t index = connection->index * depth + (uint32_t)(connection->queued % depth);
    *request = pbl_cursor_request(&fetch->cursors[index], index);
    return true;
}

static int16_t answer(void *context, struct pbl_connection *connection, struct pbl_in_flight *in_flight,
                      struct pbl_reader *body)
{
    struct fetch *fetch = context;
    struct pbl_cursor *cursor = &fetch->cursors[in_flight->request.tag];
    (void)connection;
    struct pbl_slice records;
    int64_t asked_offset = cursor->offset;
    int16_t code = pbl_cursor_answer(cursor, body, &records);
    if (code != 0)
        return code;
    if (!body->failed && cursor->offset == asked_offset) /* there is more, and nothing came */
        return PBL_EMPTY_ANSWER;
    in_flight->request.payload_bytes = records.size;
    if (cursor->offset >= cursor->end_offset)
        cursor->offset = cursor->start_offset;
    return 0;
}

static void set_up(struct fetch *fetch)
{
    const struct pbl_options *options = fetch->options;
    uint32_t count = options->connection_count * options->in_flight_count;
    struct pbl_client client;
    pbl_client_open(&client, options);
    fetch->cursors = calloc(count, sizeof *fetch->cursors);
    if (!fetch->cursors)
        pbl_fail("out of memory");
    for (uint32_t i = 0; i < count; i++) {
        struct pbl_cursor *cursor = &fetch->cursors[i];
        int32_t partition = (int32_t)(i % options->partition_count);
        cursor->start_offset = pbl_admin_list_offset(&client, options->topic, partition, -2);
        cursor->end_offset = pbl_admin_list_offset(&client, options->topic, partition, -1);
        cursor->offset = cursor->start_offset;
        if (cursor->end_offset <= cursor->start_offset)
            pbl_fail("%s-%d is empty: produce to it first", options->topic, partition);
        pbl_cursor_encode(cursor, options, partition);
    }
    pbl_client_close(&client);
}

bool pbl_fetch_mode(const struct pbl_options *options)
{
    struct fetch fetch = {.options = options};
    set_up(&fetch);
    struct pbl_engine engine;
    struct pbl_stats stats = {0};
    pbl_engine_open(&engine, options);
    pbl_engine_run(&engine, &(struct pbl_workload){.context = &fetch, .next = next, .answer = answer}, &stats);
    pbl_engine_close(&engine);
    pbl_stats_print(&stats, options, "");
    for (uint32_t i = 0; i < options->connection_count * options->in_flight_count; i++)
        pbl_buffer_free(&fetch.cursors[i].body);
    free(fetch.cursors);
    return !pbl_stats_failed(&stats);
}
