/*
 * A mark: all that a log has below one offset, inside of a segment, is synced: batches, indexes, epochs, and a producer
 * snapshot of that offset. After an unclean stop recovery begins there, and not at the start of the segment that the
 * recovery point lies in, which it would have to read whole.
 *
 * It is the file `.pybroker_mark` of the log's directory, big-endian. Version int16, CRC32C uint32 of the rest, offset
 * int64, base offset of the segment int64, position int64. Then for each of the three indexes uint32, the number of
 * entries below it. Apache Kafka passes over it. Changes that Apache Kafka makes to such a log are noticed, because a
 * mark counts only with its snapshot, which Apache Kafka removes, and with the batches before it unchanged.
 */
#ifndef PB_LOG_RECOVER_MARK_H
#define PB_LOG_RECOVER_MARK_H

#include <stddef.h>

#include "log/derived/producer_state.h"
#include "log/log.h"

enum { PB_MARK_BYTES = 42, PB_MARK_INDEXES = 3 };

typedef struct pb_mark {
    int64_t offset;
    int64_t base_offset;                    /* of its segment */
    int64_t position;                       /* in its file: where the batch with `offset` first lies, or will */
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

/* The log's end as it is now, unless it is being changed in other ways than by appends. [lock] 0 or -ENOMEM. */
int pb_log_mark_begin(pb_log *log, pb_mark_plan *plan);
/* After a sync that began after the begin: set the mark, unless the log was cut meanwhile, or upkeep is under way.
 * Blocking. */
int pb_log_mark_finish(pb_log *log, const pb_log_guard *guard, const pb_mark_plan *plan, pb_failure *failure);
void pb_log_mark_release(pb_mark_plan *plan);

/* Something that the mark speaks of is about to change: it goes, if there is one, and durably. Maintenance token. 0 or
 * -errno. */
int pb_log_drop_mark(pb_log *log);

/* The state that recovery goes on from. Owner: recovery. */
typedef struct pb_resume {
    pb_mark mark;
    uint32_t segment; /* its index */
    int64_t first_timestamp_ms;
    int64_t indexed_position;
    pb_producers producers; /* below the mark */
} pb_resume;

/* Called when the log has its segments. Brings the mark's segment to its state at the mark, with its index entries
 * pending, and loads producers. Returns 1; 0 when no mark holds in a segment from `first` on, and then none is left; or
 * -errno. */
int pb_log_resume(pb_log *log, uint32_t first, uint8_t *buffer, size_t buffer_bytes, pb_resume *out);

#endif
