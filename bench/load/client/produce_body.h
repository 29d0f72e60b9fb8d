/* One partition's Produce request, v9 to v12, with one batch: made once, sent any number of times. */
#ifndef PBL_PRODUCE_BODY_H
#define PBL_PRODUCE_BODY_H

#include "client/engine.h"

/* A request's body and what its batch holds. */
struct pbl_produce_body {
    struct pbl_buffer bytes;
    size_t payload_bytes; /* of the batch, before compression */
    uint32_t record_count;
    uint32_t partition;
};

/* Make the body from the next records of the source, which has the partition. */
void pbl_produce_encode(struct pbl_produce_body *body, const struct pbl_options *options,
                        struct pbl_batch_source *source);
/* A request with it; its tag is the partition. */
struct pbl_request pbl_produce_request(const struct pbl_options *options, const struct pbl_produce_body *body);
/* Judge the answer: a Kafka error code; `body` is left failed when it is no answer to this request. */
int16_t pbl_produce_answer(const struct pbl_in_flight *in_flight, struct pbl_reader *body);

#endif
