/*
 * The log cleaner: one pass over one log, on a background thread, while appends, reads and retention go on.
 *
 * A pass reads the dirty part and makes a map of its keys (map.h). Then it reads the log from its beginning up to
 * the end of the map, and writes the records that stay (filter.h) into new segments (output.h). Each of
 * these takes the places of one or several old ones (swap.c). The maintenance token is held for a swap only; a
 * truncation, or retention that took sources away, ends the pass. Which log, when, and up to where is Python's
 * decision.
 */
#ifndef PB_LOG_CLEAN_CLEAN_H
#define PB_LOG_CLEAN_CLEAN_H

#include <stdatomic.h>

#include "log/clean/throttle.h"
#include "log/log.h"

/* See pb_clean_options in pybroker.h. */
typedef struct pb_clean_settings {
    int64_t first_dirty_offset;
    int64_t upper_offset; /* at most the last stable offset, */
    uint32_t cut_count;   /* as it was when the log had been cut so often: of another one it says nothing */
    bool syncs;           /* the pass syncs what it goes by: nobody else syncs the log. Else that has been done */
    int64_t now_ms;
    int64_t delete_retention_ms;
    int64_t map_bytes;
    int64_t io_buffer_bytes;
    int64_t read_block_bytes; /* read at once, ahead; at least io_buffer_bytes are */
    int32_t load_factor_percent;
    int32_t compression; /* -1: as each batch has it */
    int32_t level;       /* of that codec, resolved */
} pb_clean_settings;

/* See pb_clean_result in pybroker.h. */
typedef struct pb_clean_stats {
    int64_t end_offset;
    int64_t map_read_bytes;
    int64_t map_read_records;
    int64_t map_entries;
    int64_t read_bytes;
    int64_t read_records;
    int64_t written_bytes;
    int64_t kept_records;
    int64_t invalid_records;
    int64_t removed_bytes;
    int64_t source_segments;
    int64_t cleaned_segments;
    bool map_full;
} pb_clean_stats;

/* Clean once. Blocking, without the lock. Returns 0, -EBUSY (a pass is under way), -ECANCELED, -EAGAIN, a Kafka code or
 * -errno. -EAGAIN means that segments went away meanwhile, or that the log was cut or is not durable. `stats` is filled
 * in any case. */
int pb_log_clean(pb_log *log, const pb_log_guard *guard, const pb_clean_settings *settings, pb_clean_throttle *throttle,
                 pb_clean_stats *stats, pb_failure *failure);

/* The smallest timestamp of the first batches of the sealed segments that overlap
 * [from_offset, upper_offset); -1: none has one. Blocking, without the lock. */
int pb_log_first_timestamp(pb_log *log, const pb_log_guard *guard, int64_t from_offset, int64_t upper_offset,
                           int64_t *timestamp_ms, pb_failure *failure);

typedef enum pb_clean_stage { PB_CLEAN_STAGE_IDLE, PB_CLEAN_STAGE_MAPPING, PB_CLEAN_STAGE_REWRITING } pb_clean_stage;

/* A log's pass as others see it: read and cancelled at any time, from any thread. */
typedef struct pb_clean_control {
    atomic_bool running;
    atomic_bool cancelled; /* set by others; cleared when a pass begins */
    atomic_int stage;
    _Atomic int64_t done_bytes;
    _Atomic int64_t total_bytes;
    _Atomic int64_t map_entries;
} pb_clean_control;

pb_clean_control *pb_log_clean_control(pb_log *log); /* [any] lives as long as the log */

#endif
