/*
 * Clients over their quota (KIP-13, KIP-219): the answer comes at once and says how long they have to wait, and for so
 * long nothing more is taken from their connection. The request's reactor thread.
 */
#ifndef PB_SERVER_QUOTA_THROTTLE_H
#define PB_SERVER_QUOTA_THROTTLE_H

#include "server/request.h"

/* Is anybody's rate limited at all? */
static inline bool pb_throttle_is_on(const pb_request *request)
{
    return pb_client_quotas_is_on(&request->home->broker->client_quotas);
}

/* Called when the request's bytes are produced, or so many bytes are about to be sent to a consumer: the throttle time
 * of the answer. Above 0, a consumer is to be sent nothing. */
int32_t pb_throttle_produce(pb_request *request);
int32_t pb_throttle_fetch(pb_request *request, int64_t bytes);

#endif
