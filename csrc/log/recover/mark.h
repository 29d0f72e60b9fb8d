/*
 * A mark shortens recovery after an unclean stop. It is an offset inside of a segment. The batches, index entries and
 * epochs below it are synced, and so is a producer snapshot of this offset. Recovery begins at the mark. Without a mark
 * it would read the whole segment that the recovery point lies in.
 *
 * The mark is the file `.pybroker_mark` in the log's directory. Its fields are big-endian: version int16, CRC32C of the
 * rest uint32, offset int64, base offset of the segment int64, position int64. Then it has a uint32 for each of the
 * three indexes, the number of entries below the mark.
 *
 * Apache Kafka ignores the file. If Apache Kafka has changed the log since, the mark is not used. A mark is valid only
 * with its snapshot, which Apache Kafka removes, and only if the batches before it are unchanged.
 */
#ifndef PB_LOG_RECOVER_MARK_H
#define PB_LOG_RECOVER_MARK_H

#include <stddef.h>

#include "log/derived/producer_state.h"
#include "log/log.h"

enum { PB_MARK_BYTES = 42, PB_MARK_INDEXES = 3 };

typedef struct pb_mark {
    int64_t offset;
    int64_t base_offset;                    /* of the mark's segment */
    int64_t position;                       /* in its .log file: of the batch that begins with `offset` */
    uint32_t entry_counts[PB_MARK_INDEXES]; /* of the indexes, in the order of pb_file_kind */
} pb_mark;

/* A mark that is being set. Owner: the caller, from begin to release. */
typedef struct pb_mark_plan {
    pb_mark mark;
    uint32_t cut_count;
    uint8_t *snapshot; /* NULL: nothing is to be marked */
    size_t snapshot_length;
} pb_mark_plan;

void pb_mark_format(const pb_mark *mark, uint8_t *bytes); /* PB_MARK_BYTES */
/* false: damaged, or of another version. */
bool pb_mark_parse(const uint8_t *bytes, size_t length, pb_mark *mark);

/* Plan a mark at the log's current end. If the log is in maintenance or has failed, nothing will be marked. [lock] 0 or
 * -ENOMEM. */
int pb_log_mark_begin(pb_log *log, pb_mark_plan *plan);
/* Set the planned mark. Call it after a sync that began after pb_log_mark_begin. -EBUSY: maintenance is under way, or
 * the log was cut since, or the sync has not reached the mark. Blocking. 0 or -errno. */
int pb_log_mark_finish(pb_log *log, const pb_log_guard *guard, const pb_mark_plan *plan, pb_failure *failure);
void pb_log_mark_release(pb_mark_plan *plan);

/* Remove the mark durably, if there is one, because something below it is about to change. Maintenance token. 0 or
 * -errno. */
int pb_log_drop_mark(pb_log *log);

/* The state of the log at the mark, from which recovery goes on. Owner: recovery. */
typedef struct pb_resume {
    pb_mark mark;
    uint32_t segment; /* its index */
    int64_t first_timestamp_ms;
    int64_t indexed_position;
    pb_producers producers; /* the producer state at the mark */
} pb_resume;

/* Use the mark, if it is valid and lies in a segment from index `first` on; call it when the log has its segments. It
 * sets the mark's segment to its state at the mark, with its index entries pending, and loads the producers. Returns 1.
 * If the mark cannot be used, removes it and returns 0. Or -errno. */
int pb_log_resume(pb_log *log, uint32_t first, uint8_t *buffer, size_t buffer_bytes, pb_resume *out);

#endif
