/*
 * Appends by Python: coordinator records. A ticket goes in, an event with the base offset or an error comes back when
 * the batch is written. Any thread.
 */
#ifndef PB_SERVER_LOCAL_APPEND_H
#define PB_SERVER_LOCAL_APPEND_H

#include "server/broker.h"

/* `bytes` (one whole batch) are copied; `transaction_version` counts for a transaction marker. An error return means
 * that no event comes. One that comes too late for a broker that halts ends with -ESHUTDOWN. */
int pb_local_append(pb_broker *broker, pb_partition *partition, const uint8_t *bytes, size_t length,
                    int16_t transaction_version, uint64_t ticket);

#endif
