/*
 * Reading segments again, to find damage before somebody needs them: every batch's length, offsets and CRC, and that
 * the entries of the indexes point where they should. A background thread does it in small steps, beside anything else;
 * what is found goes back to the caller, one finding per step.
 *
 * A pass reads the sealed segments. A pass of `opened` reads instead the batches that the active segment had when the
 * log was opened, which the start has trusted (`unchecked_bytes` of the segment). It leaves out the indexes, which
 * still change.
 *
 * Damaged batches become a hole of their segment (damage.h), so that readers are told from then on. Offset and time
 * index are built again from the batches. A transaction index is only reported: it is built again when the log is
 * opened and finds it unreadable.
 */
#ifndef PB_LOG_CHANGE_SCRUB_H
#define PB_LOG_CHANGE_SCRUB_H

#include "log/log.h"

typedef enum pb_scrub_finding {
    PB_SCRUB_NOTHING,
    PB_SCRUB_BATCHES,
    PB_SCRUB_OFFSET_INDEX,
    PB_SCRUB_TIME_INDEX,
    PB_SCRUB_TRANSACTION_INDEX,
} pb_scrub_finding;

/* How far a pass over one log has come. Zeroed: it begins. Owner: the caller, between steps. */
typedef struct pb_scrub_cursor {
    int64_t segment_base;
    int64_t position;
    int64_t next_offset;
    int64_t last_index_offset; /* of the offset index's entry checked last; -1: none yet */
    uint32_t entries[3];       /* of the offset, time and transaction index: checked so far */
    bool begun;                /* the segment has been; else the rest means nothing yet */
    bool with_indexes;         /* they are in their files, and no fault of them has been found */
    bool opened;               /* the pass reads what the active segment had when the log was opened */
} pb_scrub_cursor;

typedef struct pb_scrub_result {
    pb_scrub_finding finding;
    bool known;  /* a hole that was there before */
    bool mended; /* the index has been built again */
    bool done;   /* nothing is left for the pass to read */
    int64_t read_bytes;
    int64_t segment_base; /* of the finding */
    int64_t position;     /* in the .log; or of the entry in its index */
    int64_t end_position;
    int64_t offset;     /* batches: offsets from here on */
    int64_t end_offset; /* and below this one cannot be read */
} pb_scrub_result;

/* One step: about `max_bytes` of one segment, or up to the first finding. Blocking, without the lock. 0 or -errno;
 * after -EIO, the disk cannot be read there, the next step goes on behind that place. */
int pb_log_scrub(pb_log *log, const pb_log_guard *guard, pb_scrub_cursor *cursor, int64_t max_bytes,
                 pb_scrub_result *result, pb_failure *failure);

/* Build offset and time index of a sealed segment anew and put them in the places of its own. Takes the maintenance
 * token. Blocking. 0, -EBUSY, -ESTALE (the segment is no part of the log any more), -errno. */
int pb_log_rebuild_indexes(pb_log *log, const pb_log_guard *guard, pb_segment *segment);

#endif
