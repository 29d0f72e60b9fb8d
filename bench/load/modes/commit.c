/* OffsetCommit v8: each connection commits all partitions of one topic for a group of its own, as a consumer that
 * assigns its partitions itself does (generation -1, no member). */
#include "client/admin.h"
#include "client/engine.h"
#include "modes/modes.h"

#include <stdio.h>
#include <stdlib.h>

struct commit {
    const struct pbl_options *options;
    struct pbl_buffer *bodies; /* by connection */
};

static void encode(const struct pbl_options *options, struct pbl_buffer *body, const char *group)
{
    pbl_put_client_id(body, true);
    pbl_put_compact_string(body, group);
    pbl_put_i32(body, -1);              /* generation */
    pbl_put_compact_string(body, "");   /* member */
    pbl_put_compact_string(body, NULL); /* group instance */
    pbl_put_uvarint(body, 2);
    pbl_put_compact_string(body, options->topic);
    pbl_put_uvarint(body, options->partition_count + 1);
    for (uint32_t i = 0; i < options->partition_count; i++) {
        pbl_put_i32(body, (int32_t)i);
        pbl_put_i64(body, 1000 + i);
        pbl_put_i32(body, 0); /* leader epoch */
        pbl_put_compact_string(body, "");
        pbl_put_uvarint(body, 0);
    }
    pbl_put_bytes(body, "\0\0", 2); /* no tags: topic, request */
}

static bool next(void *context, struct pbl_connection *connection, struct pbl_request *request)
{
    struct commit *commit = context;
    *request = (struct pbl_request){.api = PBL_API_OFFSET_COMMIT,
                                    .version = 8,
                                    .body = commit->bodies[connection->index].data,
                                    .body_bytes = commit->bodies[connection->index].size};
    return true;
}

static int16_t answer(void *context, struct pbl_connection *connection, struct pbl_in_flight *in_flight,
                      struct pbl_reader *body)
{
    struct commit *commit = context;
    (void)connection;
    (void)in_flight;
    pbl_skip_tags(body); /* of the header */
    pbl_get_i32(body);   /* throttle time */
    int32_t topics = pbl_get_compact_array_count(body);
    pbl_get_compact_bytes(body); /* name */
    int32_t partitions = pbl_get_compact_array_count(body);
    if (topics != 1 || partitions != (int32_t)commit->options->partition_count)
        body->failed = true;
    int16_t first_code = 0;
    for (int32_t i = 0; i < partitions; i++) {
        pbl_get_i32(body); /* partition */
        int16_t code = pbl_get_i16(body);
        pbl_skip_tags(body);
        first_code = first_code ? first_code : code;
    }
    return first_code;
}

bool pbl_offset_commit_mode(const struct pbl_options *options)
{
    struct commit commit = {.options = options};
    struct pbl_client client;
    pbl_client_open(&client, options);
    pbl_admin_create_topics(&client, options, 1, false);
    commit.bodies = calloc(options->connection_count, sizeof *commit.bodies);
    if (!commit.bodies)
        pbl_fail("out of memory");
    for (uint32_t i = 0; i < options->connection_count; i++) {
        char group[256];
        snprintf(group, sizeof group, "%s-%u", options->group, i);
        pbl_admin_wait_for_coordinator(&client, group);
        encode(options, &commit.bodies[i], group);
    }
    pbl_client_close(&client);

    struct pbl_engine engine;
    struct pbl_stats stats = {0};
    pbl_engine_open(&engine, options);
    pbl_engine_run(&engine, &(struct pbl_workload){.context = &commit, .next = next, .answer = answer}, &stats);
    pbl_engine_close(&engine);
    pbl_stats_print(&stats, options, "");
    for (uint32_t i = 0; i < options->connection_count; i++)
        pbl_buffer_free(&commit.bodies[i]);
    free(commit.bodies);
    return !pbl_stats_failed(&stats);
}
