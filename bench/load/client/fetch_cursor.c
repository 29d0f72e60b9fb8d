/* See fetch_cursor.h. */
#include "client/fetch_cursor.h"

enum { BATCH_HEADER_BYTES = 61, MAGIC_POSITION = 16, LAST_OFFSET_DELTA_POSITION = 23 };

void pbl_cursor_encode(struct pbl_cursor *cursor, const struct pbl_options *options, int32_t partition)
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

struct pbl_request pbl_cursor_request(struct pbl_cursor *cursor, uint32_t tag)
{
    pbl_set_i64(cursor->body.data + cursor->offset_position, cursor->offset);
    return (struct pbl_request){
        .api = PBL_API_FETCH, .version = 12, .body = cursor->body.data, .body_bytes = cursor->body.size, .tag = tag};
}

/* Walk whole batches (the last may be cut off, as Kafka allows); gives false when the log has a hole or is no log. */
static bool walk_batches(struct pbl_cursor *cursor, struct pbl_slice records)
{
    size_t at = 0;
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
    }
    return true;
}

int16_t pbl_cursor_answer(struct pbl_cursor *cursor, struct pbl_reader *body, struct pbl_slice *records)
{
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
    *records = pbl_get_compact_bytes(body);
    if (code != 0 || partition_code != 0)
        return code ? code : partition_code;
    if (!body->failed && !walk_batches(cursor, *records))
        body->failed = true;
    return 0;
}
