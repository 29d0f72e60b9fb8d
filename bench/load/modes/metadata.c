/* Metadata v12 of all topics, after creating --topics of them. */
#include "client/admin.h"
#include "client/engine.h"
#include "modes/modes.h"

struct metadata {
    const struct pbl_options *options;
    struct pbl_buffer body;
};

static bool next(void *context, struct pbl_connection *connection, struct pbl_request *request)
{
    struct metadata *metadata = context;
    (void)connection;
    *request = (struct pbl_request){
        .api = PBL_API_METADATA, .version = 12, .body = metadata->body.data, .body_bytes = metadata->body.size};
    return true;
}

static int16_t answer(void *context, struct pbl_connection *connection, struct pbl_in_flight *in_flight,
                      struct pbl_reader *body)
{
    struct metadata *metadata = context;
    (void)connection;
    in_flight->request.payload_bytes = (uint64_t)(body->end - body->at);
    pbl_skip_tags(body); /* of the header */
    pbl_get_i32(body);   /* throttle time */
    int32_t brokers = pbl_get_compact_array_count(body);
    for (int32_t i = 0; i < brokers; i++) {
        pbl_get_i32(body);           /* node id */
        pbl_get_compact_bytes(body); /* host */
        pbl_get_i32(body);           /* port */
        pbl_get_compact_bytes(body); /* rack */
        pbl_skip_tags(body);
    }
    pbl_get_compact_bytes(body); /* cluster id */
    pbl_get_i32(body);           /* controller id */
    int32_t topics = pbl_get_compact_array_count(body);
    int16_t code = pbl_get_i16(body); /* of the first topic */
    if (topics < (int32_t)metadata->options->topic_count)
        body->failed = true;
    return code;
}

bool pbl_metadata_mode(const struct pbl_options *options)
{
    struct metadata metadata = {.options = options};
    struct pbl_client client;
    pbl_client_open(&client, options);
    pbl_admin_create_topics(&client, options, options->topic_count, true);
    pbl_client_close(&client);
    pbl_put_client_id(&metadata.body, true);
    pbl_put_uvarint(&metadata.body, 0);         /* null: all topics */
    pbl_put_bytes(&metadata.body, "\0\0\0", 3); /* no auto-creation, no authorised operations, no tags */

    struct pbl_engine engine;
    struct pbl_stats stats = {0};
    pbl_engine_open(&engine, options);
    pbl_engine_run(&engine, &(struct pbl_workload){.context = &metadata, .next = next, .answer = answer}, &stats);
    pbl_engine_close(&engine);
    pbl_stats_print(&stats, options, "");
    pbl_buffer_free(&metadata.body);
    return !pbl_stats_failed(&stats);
}
