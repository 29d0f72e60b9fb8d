/* A reading position of one partition and its Fetch v12 request: by name, without a session. */
#ifndef PBL_FETCH_CURSOR_H
#define PBL_FETCH_CURSOR_H

#include "client/engine.h"

/* Its body is patched in place, so it has at most one request in flight. */
struct pbl_cursor {
    struct pbl_buffer body;
    size_t offset_position; /* of the fetch offset within the body */
    int64_t offset;
    int64_t start_offset;
    int64_t end_offset;
};

/* Make the body. */
void pbl_cursor_encode(struct pbl_cursor *cursor, const struct pbl_options *options, int32_t partition);
/* The next request, from cursor->offset on. */
struct pbl_request pbl_cursor_request(struct pbl_cursor *cursor, uint32_t tag);
/* Take the answer and step over its whole batches; *records are all bytes that came, cut off or not. Gives a Kafka
 * error code; `body` is left failed when the log has a hole or is no log. */
int16_t pbl_cursor_answer(struct pbl_cursor *cursor, struct pbl_reader *body, struct pbl_slice *records);

#endif
