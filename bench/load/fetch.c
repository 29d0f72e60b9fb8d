/* Fetch v12 by name, no session: each request slot of each connection reads one partition from its start and wraps. */
#include "admin.h"
#include "engine.h"
#include "modes.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH_HEADER_BYTES = 61, MAGIC_POSITION = 16, LAST_OFFSET_DELTA_POSITION = 23 };

/* One reading position. Its body is patched in place, so it has at most one request in flight. */
struct cursor {
    struct pbl_buffer body;
    size_t offset_position; /* of the fetch offset within the body */
    int64_t offset;
    int64_t start_offset;
    int64_t end_offset;
};

struct fetch {
    const struct pbl_options *options;
    struct cursor *cursors; /* connection_count * in_flight_count */
};

static void encode(const struct pbl_options *options, struct cursor *cursor, int32_t partition)
{
    struct pbl_buffer *body = &cursor->body;
    pbl_put_client_id(body, true);
    pbl_put_i32(body, -1);  /* replica id: a consumer */
    pbl_put_i32(body, 500); /* max wait ms */
    pbl_put_i32(body, 1);   /* min bytes */
    pbl_put_i32(body, (int32_t)options->max_bytes);
    pbl_put_i8(body, 0);   /* read uncommitted */
    pbl_put_i32(body, 0);  /* session id */
    pbl_put_i32(body, -1); /* session epoch: no session */
    pbl_put_uvarint(body, 2);
    pbl_put_compact_string(body, options->topic);
    pbl_put_uvarint(body, 2);
    pbl_put_i32(body, partition);
    pbl_put_i32(body, -1); /* current leader epoch: not known */
    cursor->offset_position = body->size;
    pbl_put_i64(body, cursor->offset);
    pbl_put_i32(body, -1); /* last fetched epoch */
    pbl_put_i64(body, -1); /* log start offset: only followers say */
    pbl_put_i32(body, (int32_t)options->max_bytes);
    pbl_put_bytes(body, "\0\0", 2);   /* no tags: partition, topic */
    pbl_put_uvarint(body, 1);         /* no forgotten topics */
    pbl_put_compact_string(body, ""); /* rack */
    pbl_put_uvarint(body, 0);         /* no tags: request */
}

static bool next(void *context, struct pbl_connection *connection, struct pbl_request *request)
{
    struct fetch *fetch = context;
    uint32_t depth = fetch->options->in_flight_count;
    uint32_t index = connection->index * depth + (uint32_t)(connection->queued % depth);
    struct cursor *cursor = &fetch->cursors[index];
    pbl_set_i64(cursor->body.data + cursor->offset_position, cursor->offset);
    *request = (struct pbl_request){
        .api = PBL_API_FETCH, .version = 12, .body = cursor->body.data, .body_bytes = cursor->body.size, .tag = index};
    return true;
}

/* Walk whole batches (the last may be cut off, as Kafka allows); gives false when the log has a hole or is no log. */
static bool walk_batches(struct cursor *cursor, struct pbl_slice records)
{
    size_t at = 0;
    bool any = false;
    while (records.size - at >= BATCH_HEADER_BYTES) {
        const uint8_t *batch = records.data + at;
        int64_t base_offset = pbl_load_i64(batch);
        int32_t length = pbl_load_i32(batch + 8);
        if (length < BATCH_HEADER_BYTES - 12 || batch[MAGIC_POSITION] != 2)
            return false;
        if ((size_t)length + 12 > records.size - at)
            break;
        int64_t end = base_offset + pbl_load_i32(batch + LAST_OFFSET_DELTA_POSITION) + 1;
        if (base_offset > cursor->offset || end <= cursor->offset)
            return false;
        cursor->offset = end;
        at += (size_t)length + 12;
        any = true;
    }
    return any;
}

static int16_t answer(void *context, struct pbl_connection *connection, struct pbl_in_flight *in_flight,
                      struct pbl_reader *body)
{
    struct fetch *fetch = context;
    struct cursor *cursor = &fetch->cursors[in_flight->request.tag];
    (void)connection;
    pbl_skip_tags(body); /* of the header */
    pbl_get_i32(body);   /* throttle time */
    int16_t code = pbl_get_i16(body);
    pbl_get_i32(body); /* session id */
    if (pbl_get_compact_array_count(body) != 1 && code == 0)
        body->failed = true;
    pbl_get_compact_bytes(body); /* topic */
    pbl_get_compact_array_count(body);
    pbl_get_i32(body); /* partition */
    int16_t partition_code = pbl_get_i16(body);
    pbl_get_i64(body); /* high watermark */
    pbl_get_i64(body); /* last stable offset */
    pbl_get_i64(body); /* log start offset */
    if (pbl_get_compact_array_count(body) != 0)
        body->failed = true; /* aborted transactions in a log that has none */
    pbl_get_i32(body);       /* preferred read replica */
    struct pbl_slice records = pbl_get_compact_bytes(body);
    if (code != 0 || partition_code != 0)
        return code ? code : partition_code;
    if (body->failed || !walk_batches(cursor, records))
        body->failed = true;
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
        struct cursor *cursor = &fetch->cursors[i];
        int32_t partition = (int32_t)(i % options->partition_count);
        cursor->start_offset = pbl_admin_list_offset(&client, options->topic, partition, -2);
        cursor->end_offset = pbl_admin_list_offset(&client, options->topic, partition, -1);
        cursor->offset = cursor->start_offset;
        if (cursor->end_offset <= cursor->start_offset)
            pbl_fail("%s-%d is empty: produce to it first", options->topic, partition);
        encode(options, cursor, partition);
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
