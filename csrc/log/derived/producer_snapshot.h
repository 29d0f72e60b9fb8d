/*
 * Producer snapshots: the producer state map below an offset, in a file named by that offset (.snapshot).
 * Format of Kafka's version 1, big-endian: version int16, CRC32C uint32 of the rest, entry count int32, then 46 bytes
 * per producer. These are id int64, epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp
 * int64, coordinator epoch int32, current transaction's first offset int64.
 */
#ifndef PB_LOG_DERIVED_PRODUCER_SNAPSHOT_H
#define PB_LOG_DERIVED_PRODUCER_SNAPSHOT_H

#include <stddef.h>

#include "io/io.h"
#include "log/derived/producer_state.h"

/* The snapshot's bytes; allocates (free()); NULL without memory. [lock] */
uint8_t *pb_producer_snapshot_format(const pb_producers *producers, size_t *length);
/* Read a snapshot's bytes into the empty map, leaving out what has expired. 0, -EBADMSG when damaged (map empty),
 * -ENOMEM. */
int pb_producer_snapshot_parse(pb_producers *producers, const uint8_t *bytes, size_t length, int64_t now_ms,
                               int64_t expiration_ms);
/* Write `<directory>/<offset>.snapshot`. One that a power cut takes is built again from an older one, so syncing is a
 * choice. */
int pb_producer_snapshot_write(pb_io *io, const char *directory, int64_t offset, const uint8_t *bytes, size_t length,
                               bool sync);
/* Load that file into the empty map. 0, -EBADMSG when damaged, or -errno. */
int pb_producer_snapshot_load(pb_io *io, const char *directory, int64_t offset, pb_producers *producers, int64_t now_ms,
                              int64_t expiration_ms);

#endif
