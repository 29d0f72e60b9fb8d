/* Produce: batches made before the clock starts, one request body per partition, shared by all connections. */
#include "admin.h"
#include "engine.h"
#include "modes.h"

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

/* Produce v9 to v12 are alike: one topic by name, one partition, one batch. */
static void encode(struct produce *produce, uint32_t partition)
{
    const struct pbl_options *options = produce->options;
    struct pbl_buffer batch = {0};
    struct pbl_buffer *body = &produce->bodies[partition];
    produce->record_count = pbl_batch_append(&batch, &options->shape, partition + 1, &produce->payload_bytes);
    pbl_put_client_id(body, true);
    pbl_put_compact_string(body, NULL); /* transactional id */
    pbl_put_i16(body, options->acks);
    pbl_put_i32(body, (int32_t)options->timeout_ms);
    pbl_put_uvarint(body, 2); /* one topic */
    pbl_put_compact_string(body, options->topic);
    pbl_put_uvarint(body, 2); /* one partition */
    pbl_put_i32(body, (int32_t)partition);
    pbl_put_uvarint(body, batch.size + 1);
    pbl_put_bytes(body, batch.data, batch.size);
    pbl_put_bytes(body, "\0\0\0", 3); /* no tags: partition, topic, request */
    pbl_buffer_free(&batch);
}

static bool next(void *context, struct pbl_connection *connection, struct pbl_request *request)
{
    struct produce *produce = context;
    uint32_t *partition = &produce->next_partition[connection->index];
    *request = (struct pbl_request){.api = PBL_API_PRODUCE,
                                    .version = (int16_t)produce->options->produce_version,
                                    .unanswered = produce->options->acks == 0,
                                    .body = produce->bodies[*partition].data,
                                    .body_bytes = produce->bodies[*partition].size,
                                    .payload_bytes = produce->payload_bytes,
                                    .tag = *partition};
    *partition = (*partition + 1) % produce->options->partition_count;
    return true;
}

static int16_t answer(void *context, struct pbl_connection *connection, struct pbl_in_flight *in_flight,
                      struct pbl_reader *body)
{
    (void)context;
    (void)connection;
    pbl_skip_tags(body); /* of the header */
    int32_t topics = pbl_get_compact_array_count(body);
    pbl_get_compact_bytes(body); /* name */
    int32_t partitions = pbl_get_compact_array_count(body);
    uint32_t partition = (uint32_t)pbl_get_i32(body);
    int16_t code = pbl_get_i16(body);
    int64_t base_offset = pbl_get_i64(body);
    if (topics != 1 || partitions != 1 || partition != in_flight->request.tag || (code == 0 && base_offset < 0))
        body->failed = true;
    return code;
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
        encode(&produce, i);
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
