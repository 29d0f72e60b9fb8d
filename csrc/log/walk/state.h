/* The inside of a walk: shared by walk.c, batch.c and find.c, and by nobody else. */
#ifndef PB_LOG_WALK_STATE_H
#define PB_LOG_WALK_STATE_H

#include "log/segment/scan.h"
#include "log/walk/walk.h"
#include "record/batch.h"
#include "record/codec.h"

enum { PB_WALK_PRODUCERS = 4096 };

/* The walk's memory of a producer; another one with the same place in the table drives it out. */
typedef struct pb_walk_producer {
    int64_t id;
    int32_t last_sequence;
    int16_t epoch;
    bool used;
    bool in_transaction;
} pb_walk_producer;

struct pb_log_walk {
    pb_io *io;
    int file; /* -1: none */
    pb_log_walk_file options;
    pb_scan scan;
    uint8_t *buffer;
    pb_codec *codec; /* made when first needed, as is `batch` */
    uint8_t *batch;
    size_t batch_capacity;

    /* In this file. */
    int64_t position;
    size_t index_cursor; /* entries below were compared */
    size_t time_cursor;
    int64_t batch_number;
    int64_t max_timestamp_offset; /* the last offset of the first batch with totals.file_max_timestamp */
    pb_log_walk_row row;          /* the batch at hand, while `has_row` */
    bool has_row;
    bool row_counts; /* it is a batch with a right CRC */
    bool at_end;

    /* Over all files. */
    int64_t expected_offset; /* -1: not known */
    int32_t leader_epoch;
    bool epoch_known;
    bool after_damage; /* the offsets up to the next batch are those of what was damaged */
    int64_t lost_from; /* the first of them, until that batch was compared with the time index; -1: none */
    pb_walk_producer producers[PB_WALK_PRODUCERS];
    pb_log_walk_totals totals;
};

/* Is there a whole magic-2 batch with a right CRC at `position`, with an offset that this file may have? 1, 0 or
 * -errno. */
int pb_walk_is_batch(pb_log_walk *walk, int64_t position);
/* The first such place at or after `from`, or the file's end; *zeros: all bytes from `begin` to it are zero. 0 or
 * -errno. */
int pb_walk_find(pb_log_walk *walk, int64_t begin, int64_t from, int64_t *found, bool *zeros);
/* Fill walk->row for the batch of `header` at walk->position, whose bytes are there and whose CRC was compared; note
 * what it changes. 0 or -errno. */
int pb_walk_batch(pb_log_walk *walk, const pb_batch_header *header, bool crc_matches);

#endif
