/*
 * Where a segment's bytes are read: most in its file, the newest of a hot log's active segment in a ring of memory.
 *
 * The view of that ring is part of the segment. The log's writer publishes through it what the ring holds; readers copy
 * without a lock and look afterwards whether what they copied was there all the time. So no reader ever makes a
 * producer wait. The memory stays mapped as long as the broker has segments.
 */
#ifndef PB_LOG_ENGINE_TAIL_H
#define PB_LOG_ENGINE_TAIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pb_segment pb_segment;

/*
 * The part of a segment that lies in a ring. Below `sealed_position` the file has it and never changes; from
 * `kept_position` on the ring has it; kept <= sealed. Changed by whoever may change what the ring holds: attached and
 * detached under the partition's lock, `kept_position` by the holder of the write token, `sealed_position` by who
 * flushes. Read anywhere.
 */
typedef struct pb_tail_view {
    _Atomic(const uint8_t *) memory; /* mapped twice in a row; NULL: all is in the file */
    _Atomic uint64_t generation;     /* another one for each attachment */
    _Atomic int64_t kept_position;
    _Atomic int64_t sealed_position;
    size_t ring_bytes; /* set before `memory` */
} pb_tail_view;

/* From now on the ring has everything from `position` on, which is a multiple of the block. [lock] */
void pb_tail_attach(pb_segment *segment, const uint8_t *memory, size_t ring_bytes, int64_t position);
/* All is in the file. [lock] */
void pb_tail_detach(pb_segment *segment);
/* Bytes below `position` are about to be overwritten. */
void pb_tail_forget(pb_segment *segment, int64_t position);
/* The file has everything below `position`. */
void pb_tail_seal(pb_segment *segment, int64_t position);

/* Has it a ring? [any] */
bool pb_tail_is_attached(const pb_segment *segment);
/* Is some of [.., end) not to be read from the file, because the file has not got it for good? [any] */
bool pb_tail_holds(const pb_segment *segment, int64_t end);
/* How many bytes of a segment of that size the file has for good. [any] */
int64_t pb_tail_settled_bytes(const pb_segment *segment, int64_t size_bytes);
/* How much of [position, ..) must be read from the file: it has left the ring, or there is none. [any] */
int64_t pb_tail_file_bytes(const pb_segment *segment, int64_t position, int64_t length);

/* `length` written bytes at `position`, from wherever they are; `file` is the segment's. The caller holds a reference
 * on the segment. 0, -ENODATA or another -errno. Bytes that have left the ring are read from the history in memory or
 * from the disk, which may wait. [any] */
int pb_tail_read(pb_segment *segment, int file, void *buffer, size_t length, int64_t position);
/* The same from the ring alone. false: some of it was not there. [any] */
bool pb_tail_copy(const pb_segment *segment, void *buffer, size_t length, int64_t position);

#endif
