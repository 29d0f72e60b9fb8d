/*
 * A walk checks the segments of a stopped broker, without opening a log and without writing. It reads the batches of a
 * .log file, even a damaged one, and reports the faults of each batch. It also compares the entries of the segment's
 * offset index and time index with the batches. Tools such as `pybroker log check` use it.
 *
 * A walk belongs to one thread and goes over the segments of a partition in order. Its knowledge at the end of a file
 * (the next offset, the leader epoch, the producers) still holds at the start of the next file. Its memory is bounded:
 * a buffer, a table of recent producers, and, if records are checked, the largest batch with a correct CRC. Bytes that
 * are no batch ("garbage") are skipped up to the next batch with a correct CRC.
 *
 * A walk fails only with -errno, when a file cannot be opened or memory is short. Disk blocks that cannot be read (EIO)
 * are reported as garbage, and the walk goes on behind them.
 */
#ifndef PB_LOG_WALK_WALK_H
#define PB_LOG_WALK_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "io/io.h"

/* The subject of a row: a batch (several flags may be set), garbage, or an index entry. */
enum pb_log_walk_flags {
    PB_LOG_WALK_CRC = 1,            /* the CRC is wrong */
    PB_LOG_WALK_HEADER = 2,         /* a record count, delta, compression or timestamp that no broker writes */
    PB_LOG_WALK_GAP = 4,            /* offsets are missing between the previous batch and this one */
    PB_LOG_WALK_BACK = 8,           /* the base offset is not above the previous batch */
    PB_LOG_WALK_EPOCH = 16,         /* the leader epoch differs from the previous batch, or this is the first batch */
    PB_LOG_WALK_CONTROL = 32,       /* a control batch */
    PB_LOG_WALK_TRANSACTIONAL = 64, /* the first batch of a transaction; may repeat if its producer was forgotten */
    PB_LOG_WALK_SEQUENCE = 128,     /* a gap in the producer's sequence; found only for recent producers */
    PB_LOG_WALK_OLD_MAGIC = 256,    /* a message of magic 0 or 1 */
    PB_LOG_WALK_RECORDS = 512,      /* the records contradict the header, or cannot be decompressed */
    PB_LOG_WALK_GARBAGE = 1024,     /* no batch: `size_bytes` of garbage at `position` */
    PB_LOG_WALK_ZEROS = 2048,       /* with GARBAGE: all of these bytes are zero */
    PB_LOG_WALK_INDEX = 4096,       /* no batch: entry `number` of the offset index is wrong */
    PB_LOG_WALK_TIME = 8192,        /* no batch: entry `number` of the time index is wrong */
    PB_LOG_WALK_UNREADABLE = 32768, /* with GARBAGE: the disk cannot read some of these bytes */
    PB_LOG_WALK_EVERY = 16384,      /* only in `wanted`: a row for every batch */
    PB_LOG_WALK_INNER = 65536,      /* with TIME: the batch is right, but the offset is not that of its last record */
};

/* One file to walk over. The memory that the pointers point at must stay valid until the walk reaches the file's end.
 */
typedef struct pb_log_walk_file {
    const char *path;
    int64_t base_offset;  /* from the file's name */
    const uint8_t *index; /* the entries of the .index file, without a partial one; NULL, 0: do not check them */
    size_t index_length;
    const uint8_t *time_index; /* the same for the .timeindex file */
    size_t time_index_length;
    uint32_t wanted;    /* a batch gets a row if it has one of these flags; garbage and index entries always get one */
    int32_t deep_every; /* decompress and check the records of every n-th batch; 0: of no batch */
} pb_log_walk_file;

/* A batch, garbage, or a wrong index entry. Fields that do not apply are 0. */
typedef struct pb_log_walk_row {
    int64_t position; /* INDEX: the entry's position */
    int64_t size_bytes;
    int64_t base_offset;     /* INDEX, TIME: the entry's offset */
    int64_t expected_offset; /* the next offset; -1: any. INDEX, TIME: the offset that would be right; -1: none */
    int64_t base_timestamp;
    int64_t max_timestamp; /* TIME: the entry's timestamp */
    int64_t producer_id;
    uint32_t flags;
    int32_t leader_epoch;
    int32_t last_offset_delta;
    int32_t base_sequence;
    int32_t record_count;
    uint32_t crc;
    int32_t expected_sequence; /* SEQUENCE */
    int32_t coordinator_epoch; /* CONTROL: of a transaction marker */
    int32_t number;            /* INDEX, TIME: the number of the entry */
    int16_t control_type;      /* CONTROL: Kafka's type: 0 abort, 1 commit, or another one; -1: not readable */
    int16_t producer_epoch;
    uint16_t attributes;
    int16_t magic;
} pb_log_walk_row;

enum { PB_LOG_WALK_CODECS = 5, PB_LOG_WALK_SIZE_BUCKETS = 224 };

/* Sums over all files of the walk so far. Batches with a wrong CRC, and garbage, count only in `damaged_bytes`. */
typedef struct pb_log_walk_totals {
    int64_t bytes;
    int64_t damaged_bytes;
    int64_t batches;
    int64_t records; /* by the record counts of headers */
    int64_t control_batches;
    int64_t transactional_batches;
    int64_t old_magic_messages;
    int64_t min_timestamp; /* in headers; -1: none */
    int64_t max_timestamp;
    int64_t file_max_timestamp; /* in the last file; -1: none */
    int64_t file_first_offset;  /* base offset of the first batch of the last file; -1: no batch */
    int64_t end_offset;         /* the offset behind the last batch; -1: no batch */
    int64_t codec_batches[PB_LOG_WALK_CODECS];
    int64_t codec_bytes[PB_LOG_WALK_CODECS];
    /* Sums over the batches whose records were checked (deep_every). */
    int64_t deep_batches;
    int64_t deep_records;
    int64_t null_keys;
    int64_t stored_bytes; /* of their records, as they are in the file */
    int64_t plain_bytes;  /* of their records, decompressed */
    /* How many batches have which size in bytes, by pb_histogram_bucket. */
    int64_t sizes[PB_LOG_WALK_SIZE_BUCKETS];
} pb_log_walk_totals;

typedef struct pb_log_walk pb_log_walk;

/* Make a walk. `io` must outlive it. 0 or -ENOMEM. */
int pb_log_walk_create(pb_io *io, pb_log_walk **out);
void pb_log_walk_destroy(pb_log_walk *walk);
/* Begin a file. If the walk is not at the end of the previous file, it leaves that file. 0 or -errno. */
int pb_log_walk_begin(pb_log_walk *walk, const pb_log_walk_file *file);
/* Go on, and write up to `capacity` rows. Returns how many rows, or -errno. Fewer rows than `capacity`: the file has
 * ended. */
int pb_log_walk_next(pb_log_walk *walk, pb_log_walk_row *rows, int32_t capacity);
void pb_log_walk_sum(const pb_log_walk *walk, pb_log_walk_totals *out);

#endif
