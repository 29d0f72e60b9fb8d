/* One partition's Produce request, v9 to v12, with one batch: made once, sent any number of times. */
#ifndef PBL_PRODUCE_BODY_H
#define PBL_PRODUCE_BODY_H

#include "engine.h"

/* Make the body; gives the records of its batch, and their bytes before compression in *payload_bytes. */
uint32_t pbl_produce_encode(struct pbl_buffer *body, const struct pbl_options *options, uint32_t partition,
                            size_t *payload_bytes);
/* A request with it; its tag is the partition. */
struct pbl_request pbl_produce_request(const struct pbl_options *options, const struct pbl_buffer *body,
                                       size_t payload_bytes, uint32_t partition);
/* Judge the answer: a Kafka error code; `body` is left failed when it is no answer to this request. */
int16_t pbl_produce_answer(const struct pbl_in_flight *in_flight, struct pbl_reader *body);

#endif
