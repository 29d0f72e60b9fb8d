/* See produce_body.h. */
#include "produce_body.h"

/* Versions 9 to 12 are alike: one topic by name, one partition, one batch. */
uint32_t pbl_produce_encode(struct pbl_buffer *body, const struct pbl_options *options, uint32_t partition,
                            size_t *payload_bytes)
{
    struct pbl_buffer batch = {0};
    uint32_t record_count = pbl_batch_append(&batch, &options->shape, partition + 1, payload_bytes);
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
    return record_count;
}

struct pbl_request pbl_produce_request(const struct pbl_options *options, const struct pbl_buffer *body,
                                       size_t payload_bytes, uint32_t partition)
{
    return (struct pbl_request){.api = PBL_API_PRODUCE,
                                .version = (int16_t)options->produce_version,
                                .unanswered = options->acks == 0,
                                .body = body->data,
                                .body_bytes = body->size,
                                .payload_bytes = payload_bytes,
                                .tag = partition};
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
