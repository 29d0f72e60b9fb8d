/*
 * Reads segments without a log. A walk goes over the batches of a .log file whatever its state, and reports the faults
 * of each batch. It compares the entries of the segment's offset and time index with the batches. For tools that look
 * at the files of a stopped broker; nothing is written.
 *
 * One walk belongs to one thread and goes over the segments of a partition in order. Its knowledge at the end of one
 * file (the offset due next, leader epoch, producers) holds at the start of the next. Memory is bounded: a buffer, a
 * table of recent producers, and, where records are looked into, the largest batch whose CRC is right. Where bytes are
 * no batch the walk goes on at the next place that has one with a right CRC.
 *
 * Fails with -errno only: reading, memory. Blocks that the disk cannot read (EIO) are told of as garbage, and the walk
 * goes on behind them.
 */
#ifndef PB_LOG_WALK_WALK_H
#define PB_LOG_WALK_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "io/io.h"

/* The subjects of a row. More than one may be set where it is about a batch. */
enum pb_log_walk_flags {
    PB_LOG_WALK_CRC = 1,            /* the CRC is not that of the bytes */
    PB_LOG_WALK_HEADER = 2,         /* record count, deltas, compression or timestamp that no broker writes */
    PB_LOG_WALK_GAP = 4,            /* offsets are missing between the batch before and this one */
    PB_LOG_WALK_BACK = 8,           /* the base offset is below the one due */
    PB_LOG_WALK_EPOCH = 16,         /* another leader epoch than the batch before, or the first batch */
    PB_LOG_WALK_CONTROL = 32,       /* a control batch */
    PB_LOG_WALK_TRANSACTIONAL = 64, /* of a transaction, and the walk does not know that one is open. May repeat */
    PB_LOG_WALK_SEQUENCE = 128,     /* the producer's sequence does not go on. Told only of recent producers */
    PB_LOG_WALK_OLD_MAGIC = 256,    /* a message of magic 0 or 1 */
    PB_LOG_WALK_RECORDS = 512,      /* the records contradict the header, or cannot be decompressed */
    PB_LOG_WALK_GARBAGE = 1024,     /* no batch: `size_bytes` from `position` */
    PB_LOG_WALK_ZEROS = 2048,       /* with GARBAGE: they are all zero */
    PB_LOG_WALK_INDEX = 4096,       /* no batch: entry `number` of the offset index is wrong */
    PB_LOG_WALK_TIME = 8192,        /* no batch: entry `number` of the time index is wrong */
    PB_LOG_WALK_UNREADABLE = 32768, /* with GARBAGE: the disk does not give out all of it */
    PB_LOG_WALK_EVERY = 16384,      /* only in `wanted`: a row for every batch */
    PB_LOG_WALK_INNER = 65536,      /* with TIME: it names the right batch, by another of its records than the last */
};

/* One file to walk over. Memory that pointers point at stays valid until the walk got to the file's end. */
typedef struct pb_log_walk_file {
    const char *path;
    int64_t base_offset;  /* of the file's name */
    const uint8_t *index; /* whole entries of the .index file; NULL, 0: not looked at */
    size_t index_length;
    const uint8_t *time_index; /* the same of the .timeindex file */
    size_t time_index_length;
    uint32_t wanted;    /* a batch gets a row when it has one of these flags; those that are no batch always do */
    int32_t deep_every; /* look into the records of every n-th batch; 0: of none */
} pb_log_walk_file;

/* A batch or a finding. Fields that it does not have are 0. */
typedef struct pb_log_walk_row {
    int64_t position; /* INDEX: as the entry says */
    int64_t size_bytes;
    int64_t base_offset; /* INDEX, TIME: the entry's offset */
    int64_t
        expected_offset; /* the one due here; -1: any. INDEX, TIME: last offset of the batch it should name, or -1 */
    int64_t base_timestamp;
    int64_t max_timestamp; /* TIME: as the entry says */
    int64_t producer_id;
    uint32_t flags;
    int32_t leader_epoch;
    int32_t last_offset_delta;
    int32_t base_sequence;
    int32_t record_count;
    uint32_t crc;
    int32_t expected_sequence; /* SEQUENCE */
    int32_t coordinator_epoch; /* CONTROL: of a transaction marker */
    int32_t number;            /* INDEX, TIME */
    int16_t control_type;      /* CONTROL: 0 abort, 1 commit, other kinds of control records; -1 not readable */
    int16_t producer_epoch;
    uint16_t attributes;
    int16_t magic;
} pb_log_walk_row;

enum { PB_LOG_WALK_CODECS = 5, PB_LOG_WALK_SIZE_BUCKETS = 224 };

/* Sums over all files of the walk so far. Batches with a wrong CRC and garbage are in none but `damaged_bytes`. */
typedef struct pb_log_walk_totals {
    int64_t bytes;
    int64_t damaged_bytes;
    int64_t batches;
    int64_t records; /* as headers say */
    int64_t control_batches;
    int64_t transactional_batches;
    int64_t old_magic_messages;
    int64_t min_timestamp; /* of headers; -1: none */
    int64_t max_timestamp;
    int64_t file_max_timestamp; /* of the file walked last; -1: none */
    int64_t file_first_offset;  /* base offset of its first batch; -1: it has none */
    int64_t end_offset;         /* behind the last batch; -1: there was none */
    int64_t codec_batches[PB_LOG_WALK_CODECS];
    int64_t codec_bytes[PB_LOG_WALK_CODECS];
    /* Where records were looked into. */
    int64_t deep_batches;
    int64_t deep_records;
    int64_t null_keys;
    int64_t stored_bytes; /* of the records, as they lie in the file */
    int64_t plain_bytes;  /* the same, decompressed */
    /* Batches by size: as pb_histogram_bucket, of bytes. */
    int64_t sizes[PB_LOG_WALK_SIZE_BUCKETS];
} pb_log_walk_totals;

typedef struct pb_log_walk pb_log_walk;

/* `io` outlives the walk. -ENOMEM. */
int pb_log_walk_create(pb_io *io, pb_log_walk **out);
void pb_log_walk_destroy(pb_log_walk *walk);
/* Begin a file; one that was not walked to its end is left. 0 or -errno. */
int pb_log_walk_begin(pb_log_walk *walk, const pb_log_walk_file *file);
/* Up to `capacity` rows; fewer than that: the file is at its end. The count or -errno. */
int pb_log_walk_next(pb_log_walk *walk, pb_log_walk_row *rows, int32_t capacity);
void pb_log_walk_sum(const pb_log_walk *walk, pb_log_walk_totals *out);

#endif
