/* Produce: batches made before the clock starts, so many for each partition, shared by all connections, which go round
 * the partitions. */
#include "client/admin.h"
#include "client/produce_body.h"
#include "modes/modes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct produce {
    const struct pbl_options *options;
    struct pbl_produce_body *bodies; /* partition by partition, and again with the next batch of each */
    uint32_t body_count;
    uint32_t *next_body; /* by connection */
};

static bool next(void *context, struct pbl_connection *connection, struct pbl_request *request)
{
    struct produce *produce = context;
    uint32_t *number = &produce->next_body[connection->index];
    *request = pbl_produce_request(produce->options, &produce->bodies[*number]);
    *number = (*number + 1) % produce->body_count;
    return true;
}

static int16_t answer(void *context, struct pbl_connection *connection, struct pbl_in_flight *in_flight,
                      struct pbl_reader *body)
{
    (void)context;
    (void)connection;
    return pbl_produce_answer(in_flight, body);
}

/* Partitions without a key get no batch. */
static void encode(struct produce *produce, struct pbl_text *text, const struct pbl_keys *keys)
{
    const struct pbl_options *options = produce->options;
    struct pbl_batch_source *sources = calloc(options->partition_count, sizeof *sources);
    produce->bodies = calloc((size_t)options->partition_count * options->batch_count, sizeof *produce->bodies);
    if (!sources || !produce->bodies)
        pbl_fail("out of memory");
    for (uint32_t batch = 0; batch < options->batch_count; batch++) {
        for (uint32_t i = 0; i < options->partition_count; i++) {
            if (keys && keys->counts[i] == 0)
                continue;
            sources[i].text = text;
            sources[i].keys = keys;
            sources[i].partition = i;
            sources[i].seed = i + 1 + (uint64_t)batch * options->partition_count;
            pbl_produce_encode(&produce->bodies[produce->body_count++], options, &sources[i]);
        }
    }
    free(sources);
}

static void prepare(struct produce *produce)
{
    const struct pbl_options *options = produce->options;
    struct pbl_text text;
    struct pbl_keys keys;
    if (options->payload_file)
        pbl_text_open(&text, options->payload_file, options->shape.record_bytes, options->shape.batch_bytes);
    if (options->key_count)
        pbl_keys_open(&keys, options->key_count, options->partition_count);
    encode(produce, options->payload_file ? &text : NULL, options->key_count ? &keys : NULL);
    if (options->payload_file)
        pbl_text_close(&text);
    if (options->key_count)
        pbl_keys_close(&keys);
    produce->next_body = calloc(options->connection_count, sizeof *produce->next_body);
    if (!produce->next_body)
        pbl_fail("out of memory");
    for (uint32_t i = 0; i < options->connection_count; i++)
        produce->next_body[i] = i % produce->body_count;
}

bool pbl_produce_mode(const struct pbl_options *options)
{
    struct produce produce = {.options = options};
    prepare(&produce);
    struct pbl_client client;
    pbl_client_open(&client, options);
    pbl_admin_create_topics(&client, options, 1, false);
    pbl_client_close(&client);

    struct pbl_engine engine;
    struct pbl_stats stats = {0};
    pbl_engine_open(&engine, options);
    pbl_engine_run(&engine, &(struct pbl_workload){.context = &produce, .next = next, .answer = answer}, &stats);
    pbl_engine_close(&engine);
    char extra[128];
    snprintf(extra, sizeof extra, ",\"batch_bytes\":%u,\"record_bytes\":%u,\"codec\":\"%s\"",
             options->shape.batch_bytes, options->shape.record_bytes, pbl_codec_name(options->shape.codec));
    if (options->key_count)
        snprintf(extra + strlen(extra), sizeof extra - strlen(extra), ",\"keys\":%u", options->key_count);
    pbl_stats_print(&stats, options, extra);
    for (uint32_t i = 0; i < produce.body_count; i++)
        pbl_buffer_free(&produce.bodies[i].bytes);
    free(produce.bodies);
    free(produce.next_body);
    return !pbl_stats_failed(&stats);
}
