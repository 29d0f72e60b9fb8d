/* Tail: on each of `connections` partitions one producer on schedule and one consumer at the end of the log. Times the
 * way of a batch: from the moment it was due to be sent until its consumer has it. Producers' own latency stands
 * beside. Each partition must have no other producer. */
#include "client/admin.h"
#include "client/fetch_cursor.h"
#include "client/produce_body.h"
#include "modes/modes.h"

#include <stdio.h>
#include <stdlib.h>

enum { REMEMBERED_BATCHES = 1 << 16 };

struct stream {
    struct pbl_cursor cursor;
    struct pbl_produce_body body;
    uint64_t *due_ns;        /* of the batch number n at n % REMEMBERED_BATCHES */
    uint64_t sent_count;     /* batches */
    uint64_t received_count; /* batches */
};

struct tail {
    const struct pbl_options *options;
    struct stream *streams;
    uint32_t stream_count;
    struct pbl_stats stats; /* its latency is that of the way */
    struct pbl_latencies produce;
};

/* Producers are the first connections, consumers those behind them. */
static bool next(void *context, struct pbl_connection *connection, struct pbl_request *request)
{
    struct tail *tail = context;
    uint32_t index = connection->index % tail->stream_count;
    struct stream *stream = &tail->streams[index];
    if (connection->index >= tail->stream_count) {
        *request = pbl_cursor_request(&stream->cursor, index);
        return true;
    }
    if (stream->sent_count - stream->received_count == REMEMBERED_BATCHES)
        pbl_fail("the consumer of partition %u is %d batches behind", index, REMEMBERED_BATCHES);
    stream->due_ns[stream->sent_count++ % REMEMBERED_BATCHES] = connection->due_ns;
    *request = pbl_produce_request(tail->options, &stream->body);
    return true;
}

static int16_t consumed(struct tail *tail, struct stream *stream, struct pbl_reader *body)
{
    struct pbl_slice records;
    int16_t code = pbl_cursor_answer(&stream->cursor, body, &records);
    if (code != 0)
        return code;
    uint64_t now = pbl_now_ns();
    uint64_t count = (uint64_t)(stream->cursor.offset - stream->cursor.start_offset) / stream->body.record_count;
    if (count > stream->sent_count) {
        body->failed = true; /* not ours */
        return 0;
    }
    for (; stream->received_count < count; stream->received_count++)
        pbl_stats_record_latency(&tail->stats, now, now - stream->due_ns[stream->received_count % REMEMBERED_BATCHES]);
    return 0;
}

static int16_t answer(void *context, struct pbl_connection *connection, struct pbl_in_flight *in_flight,
                      struct pbl_reader *body)
{
    struct tail *tail = context;
    if (connection->index >= tail->stream_count)
        return consumed(tail, &tail->streams[connection->index - tail->stream_count], body);
    int16_t code = pbl_produce_answer(in_flight, body);
    uint64_t now = pbl_now_ns();
    if (now >= tail->stats.counting_ns)
        pbl_latencies_record(&tail->produce, now, now - in_flight->start_ns);
    return code;
}

static void set_up(struct tail *tail)
{
    const struct pbl_options *options = tail->options;
    struct pbl_client client;
    pbl_client_open(&client, options);
    pbl_admin_create_topics(&client, options, 1, false);
    tail->streams = calloc(tail->stream_count, sizeof *tail->streams);
    if (!tail->streams)
        pbl_fail("out of memory");
    for (uint32_t i = 0; i < tail->stream_count; i++) {
        struct stream *stream = &tail->streams[i];
        stream->due_ns = calloc(REMEMBERED_BATCHES, sizeof *stream->due_ns);
        if (!stream->due_ns)
            pbl_fail("out of memory");
        stream->cursor.start_offset = pbl_admin_list_offset(&client, options->topic, (int32_t)i, -1);
        stream->cursor.offset = stream->cursor.start_offset;
        pbl_cursor_encode(&stream->cursor, options, (int32_t)i);
        pbl_produce_encode(&stream->body, options, &(struct pbl_batch_source){.partition = i, .seed = i + 1});
    }
    pbl_client_close(&client);
}

bool pbl_tail_mode(const struct pbl_options *options)
{
    if (options->rate == 0)
        pbl_fail("tail wants --rate, batches per second over all partitions");
    struct pbl_options doubled = *options;
    doubled.partition_count = options->connection_count;
    doubled.connection_count = 2 * options->connection_count;
    doubled.in_flight_count = 1;
    struct tail *tail = calloc(1, sizeof *tail);
    if (!tail)
        pbl_fail("out of memory");
    tail->options = &doubled;
    tail->stream_count = options->connection_count;
    set_up(tail);
    struct pbl_engine engine;
    const struct pbl_workload workload = {
        .context = tail, .times_itself = true, .paced_count = tail->stream_count, .next = next, .answer = answer};
    pbl_engine_open(&engine, &doubled);
    pbl_engine_run(&engine, &workload, &tail->stats);
    pbl_engine_close(&engine);
    char *extra = NULL;
    size_t extra_bytes;
    FILE *out = open_memstream(&extra, &extra_bytes);
    if (!out)
        pbl_fail("out of memory");
    pbl_latencies_finish(&tail->produce, out, "produce_", pbl_stats_stalls(&tail->stats));
    fclose(out);
    pbl_stats_print(&tail->stats, &doubled, extra);
    free(extra);
    bool good = !pbl_stats_failed(&tail->stats) && tail->stats.latency.all.count > 0;
    for (uint32_t i = 0; i < tail->stream_count; i++) {
        pbl_buffer_free(&tail->streams[i].cursor.body);
        pbl_buffer_free(&tail->streams[i].body.bytes);
        free(tail->streams[i].due_ns);
    }
    free(tail->streams);
    free(tail);
    return good;
}
