/* See produce_body.h. */
#include "client/produce_body.h"

/* Versions 9 to 12 are alike: one topic by name, one partition, one batch. */
void pbl_produce_encode(struct pbl_produce_body *body, const struct pbl_options *options,
                        struct pbl_batch_source *source)
{
    struct pbl_buffer batch = {0}, *bytes = &body->bytes;
    body->partition = source->partition;
    body->record_count = pbl_batch_append(&batch, &options->shape, source, &body->payload_bytes);
    pbl_put_client_id(bytes, true);
    pbl_put_compact_string(bytes, NULL); /* transactional id */
    pbl_put_i16(bytes, options->acks);
    pbl_put_i32(bytes, (int32_t)options->timeout_ms);
    pbl_put_uvarint(bytes, 2); /* one topic */
    pbl_put_compact_string(bytes, options->topic);
    pbl_put_uvarint(bytes, 2); /* one partition */
    pbl_put_i32(bytes, (int32_t)source->partition);
    pbl_put_uvarint(bytes, batch.size + 1);
    pbl_put_bytes(bytes, batch.data, batch.size);
    pbl_put_bytes(bytes, "\0\0\0", 3); /* no tags: partition, topic, request */
    pbl_buffer_free(&batch);
}

struct pbl_request pbl_produce_request(const struct pbl_options *options, const struct pbl_produce_body *body)
{
    return (struct pbl_request){.api = PBL_API_PRODUCE,
                                .version = (int16_t)options->produce_version,
                                .unanswered = options->acks == 0,
                                .body = body->bytes.data,
                                .body_bytes = body->bytes.size,
                                .payload_bytes = body->payload_bytes,
                                .record_count = body->record_count,
                                .tag = body->partition};
}

int16_t pbl_produce_answer(const struct pbl_in_flight *in_flight, struct pbl_reader *body)
{
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
