/* Produce: batches made before the clock starts, one request body per partition, shared by all connections. */
#include "admin.h"
#include "modes.h"
#include "produce_body.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct produce {
    const struct pbl_options *options;
    struct pbl_buffer *bodies; /* by partition */
    size_t payload_bytes;      /* of one batch, before compression */
    uint32_t record_count;     /* of one batch */
    uint32_t *next_partition;  /* by connection */
};

static bool next(void *context, struct pbl_connection *connection, struct pbl_request *request)
{
    struct produce *produce = context;
    uint32_t *partition = &produce->next_partition[connection->index];
    *request = pbl_produce_request(produce->options, &produce->bodies[*partition], produce->payload_bytes, *partition);
    *partition = (*partition + 1) % produce->options->partition_count;
    return true;
}

static int16_t answer(void *context, struct pbl_connection *connection, struct pbl_in_flight *in_flight,
                      struct pbl_reader *body)
{
    (void)context;
    (void)connection;
    return pbl_produce_answer(in_flight, body);
}

bool pbl_produce_mode(const struct pbl_options *options)
{
    struct produce produce = {.options = options};
    struct pbl_client client;
    pbl_client_open(&client, options);
    pbl_admin_create_topics(&client, options, 1, false);
    pbl_client_close(&client);
    produce.bodies = calloc(options->partition_count, sizeof *produce.bodies);
    produce.next_partition = calloc(options->connection_count, sizeof *produce.next_partition);
    if (!produce.bodies || !produce.next_partition)
        pbl_fail("out of memory");
    for (uint32_t i = 0; i < options->partition_count; i++)
        produce.record_count = pbl_produce_encode(&produce.bodies[i], options, i, &produce.payload_bytes);
    for (uint32_t i = 0; i < options->connection_count; i++)
        produce.next_partition[i] = i % options->partition_count;

    struct pbl_engine engine;
    struct pbl_stats stats = {0};
    pbl_engine_open(&engine, options);
    pbl_engine_run(&engine, &(struct pbl_workload){.context = &produce, .next = next, .answer = answer}, &stats);
    pbl_engine_close(&engine);
    char extra[128];
    snprintf(extra, sizeof extra, ",\"records\":%" PRIu64 ",\"batch_bytes\":%u,\"record_bytes\":%u",
             stats.request_count * produce.record_count, options->shape.batch_bytes, options->shape.record_bytes);
    pbl_stats_print(&stats, options, extra);
    for (uint32_t i = 0; i < options->partition_count; i++)
        pbl_buffer_free(&produce.bodies[i]);
    free(produce.bodies);
    free(produce.next_partition);
    return !pbl_stats_failed(&stats);
}
