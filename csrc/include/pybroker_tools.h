/*
 * The boundary's second half: what tools ask of C without a broker. The rules at the head of pybroker.h hold here too.
 */
#ifndef PYBROKER_TOOLS_H
#define PYBROKER_TOOLS_H

#include "pybroker.h"

/* ---- walking over segments, for tools and without a broker ------------------------------------------------------- */

/* Walks over the segments of a partition in order: batches, what is none, and what indexes say of them. One thread at a
 * time; rows and flags are as csrc/log/walk/walk.h tells. */
typedef struct pb_walk pb_walk;

enum pb_walk_flag {
    PB_WALK_CRC = 1,            /* the CRC is not that of the bytes */
    PB_WALK_HEADER = 2,         /* record count, deltas, compression or timestamp that no broker writes */
    PB_WALK_GAP = 4,            /* offsets are missing between the batch before and this one */
    PB_WALK_BACK = 8,           /* the base offset is below the one due */
    PB_WALK_EPOCH = 16,         /* another leader epoch than the batch before, or the first batch */
    PB_WALK_CONTROL = 32,       /* a control batch */
    PB_WALK_TRANSACTIONAL = 64, /* of a transaction that may begin here; one may be told of more than once */
    PB_WALK_SEQUENCE = 128,     /* the producer's sequence does not go on */
    PB_WALK_OLD_MAGIC = 256,    /* a message of magic 0 or 1 */
    PB_WALK_RECORDS = 512,      /* the records contradict the header, or cannot be decompressed */
    PB_WALK_GARBAGE = 1024,     /* no batch: `size_bytes` from `position` */
    PB_WALK_ZEROS = 2048,       /* with GARBAGE: all of it is zero */
    PB_WALK_INDEX = 4096,       /* no batch: entry `number` of the offset index is wrong */
    PB_WALK_TIME = 8192,        /* no batch: entry `number` of the time index is wrong */
    PB_WALK_UNREADABLE = 32768, /* with GARBAGE: the disk does not give out all of it */
    PB_WALK_EVERY = 16384,      /* only in `wanted`: a row for every batch */
    PB_WALK_INNER = 65536       /* with TIME: it names the right batch, by another of its records than the last */
};

/* One segment. Bytes pointed at stay valid until the walk is at the file's end. */
typedef struct pb_walk_file {
    const char *path;
    int64_t base_offset;  /* of the file's name */
    const uint8_t *index; /* whole entries of .index; NULL, 0: not compared */
    size_t index_length;
    const uint8_t *time_index; /* of .timeindex */
    size_t time_index_length;
    uint32_t wanted;    /* a batch gets a row when it has one of these flags; damage always does */
    int32_t deep_every; /* look into the records of every n-th batch; 0: of none */
} pb_walk_file;

/* 104 bytes, no padding inside, so that Python can unpack many at once with "<7qI4iI3i2hHh4x". */
typedef struct pb_walk_row {
    int64_t position;
    int64_t size_bytes;
    int64_t base_offset;     /* INDEX, TIME: the entry's */
    int64_t expected_offset; /* the one due here; -1: any. INDEX, TIME: the last offset of the batch it is about; -1:
                                none */
    int64_t base_timestamp;  /* TIME: the largest timestamp of that batch */
    int64_t max_timestamp;   /* TIME: the entry's */
    int64_t producer_id;
    uint32_t flags;
    int32_t leader_epoch;
    int32_t last_offset_delta;
    int32_t base_sequence;
    int32_t record_count;
    uint32_t crc;
    int32_t expected_sequence;
    int32_t coordinator_epoch; /* CONTROL: of a transaction marker */
    int32_t number;            /* INDEX, TIME: which entry */
    int16_t control_type;      /* CONTROL: 0 abort, 1 commit, others as Kafka numbers them; -1 not readable */
    int16_t producer_epoch;
    uint16_t attributes;
    int16_t magic;
    int32_t reserved;
} pb_walk_row;

/* Sums over all files so far; batches with a wrong CRC are only in damaged_bytes. */
typedef struct pb_walk_totals {
    int64_t bytes;
    int64_t damaged_bytes;
    int64_t batches;
    int64_t records;
    int64_t control_batches;
    int64_t transactional_batches;
    int64_t old_magic_messages;
    int64_t min_timestamp;
    int64_t max_timestamp;
    int64_t file_max_timestamp; /* of the last file */
    int64_t file_first_offset;  /* of the last file; -1: it has no batch */
    int64_t end_offset;         /* behind the last batch; -1: there is none */
    int64_t codec_batches[5];
    int64_t codec_bytes[5];
    int64_t deep_batches; /* this and what follows: of batches whose records were looked into */
    int64_t deep_records;
    int64_t null_keys;
    int64_t stored_bytes; /* records as they lie in the file */
    int64_t plain_bytes;  /* the same, decompressed */
    int64_t sizes[224];   /* batches by size in bytes, in buckets as those of base/histogram.h */
} pb_walk_totals;

int32_t pb_walk_open(pb_walk **out, pb_native_failure *failure);
/* Begin the next segment. Blocking. */
int32_t pb_walk_begin(pb_walk *walk, const pb_walk_file *file, pb_native_failure *failure);
/* Fill up to `capacity` rows; fewer: the file is at its end. The count or -errno. Blocking. */
int32_t pb_walk_next(pb_walk *walk, pb_walk_row *rows, int32_t capacity, pb_native_failure *failure);
void pb_walk_sum(const pb_walk *walk, pb_walk_totals *out);
void pb_walk_close(pb_walk *walk);

/* ---- measuring this machine, for tools --------------------------------------------------------------------------- */

/* Measures disk, CPU and loopback device on the I/O backend that a broker would take. The handle is of the thread that
 * opens and closes it; runs are blocking, and those over a file may run at once, on threads of their own. No broker may
 * run in a process that measures CRC32C. */
typedef struct pb_measure pb_measure;

/* When a run ends: by time, but not without any operation, by bytes (0: no bound), or when somebody sets *stop (NULL:
 * nobody does). */
typedef struct pb_measure_limits {
    int64_t budget_ns;
    int64_t max_bytes;
    const int32_t *stop;
} pb_measure_limits;

/* The result of a run. CPU time is of the thread that ran it. Latencies are of single operations, right to 3 %. */
typedef struct pb_measure_result {
    int64_t operations;
    int64_t bytes;
    int64_t elapsed_ns;
    int64_t cpu_ns;
    int64_t min_ns;
    int64_t p50_ns;
    int64_t p90_ns;
    int64_t p99_ns;
    int64_t p999_ns;
    int64_t max_ns;
} pb_measure_result;

int32_t pb_measure_open(const char *backend, pb_measure **out, pb_native_failure *failure);
void pb_measure_close(pb_measure *measure);
/* "io_uring" or "epoll". */
const char *pb_measure_backend(const pb_measure *measure);

/* Make the file that runs go over, without a name, in `directory`. Once. */
int32_t pb_measure_use_directory(pb_measure *measure, const char *directory, pb_native_failure *failure);
/* Write all of it back, then forget it in the page cache. Blocking. */
int32_t pb_measure_drop(pb_measure *measure, pb_native_failure *failure);

enum pb_measure_file_operation {
    PB_MEASURE_WRITE = 1,
    PB_MEASURE_WRITE_DURABLE = 2, /* each write is durable when it returns */
    PB_MEASURE_WRITE_SYNC = 3,    /* each write is followed by a sync, and timed with it */
    PB_MEASURE_SYNC = 4,          /* the same, but only the syncs are timed, and no bytes are counted */
    PB_MEASURE_READ = 5,
};

/* Over [position, position + length) of the file, again from the begin when the end is reached. */
typedef struct pb_measure_file_run {
    int32_t operation;
    int32_t is_direct;    /* past the page cache: -EINVAL where the file system refuses; blocks and positions are
                             multiples of 4096 */
    int32_t is_random;    /* blocks in no order */
    int32_t syncs_at_end; /* WRITE: a sync at the end counts into the time */
    int64_t block_bytes;
    int64_t position;
    int64_t length;     /* a multiple of block_bytes */
    int64_t pace_bytes; /* WRITE: after so many bytes writeback begins, and what is well behind is dropped; 0: never */
    pb_measure_limits limits;
} pb_measure_file_run;
int32_t pb_measure_file(pb_measure *measure, const pb_measure_file_run *run, pb_measure_result *out,
                        pb_native_failure *failure);

enum pb_measure_cpu_work { PB_MEASURE_CRC32C = 1, PB_MEASURE_COPY = 2, PB_MEASURE_COPY_CRC32C = 3 };
/* crc32c: an implementation's name, or NULL for the one in use. */
int32_t pb_measure_cpu(pb_measure *measure, int32_t work, const char *crc32c, int64_t block_bytes,
                       const pb_measure_limits *limits, pb_measure_result *out, pb_native_failure *failure);
/* Names of the implementations of CRC32C that this CPU runs, fastest first; NULL behind the last. */
const char *pb_measure_crc32c_name(int32_t index);

/* Start a server on 127.0.0.1 that receives frames and answers each with one of answer_bytes, which come from memory,
 * or by sendfile from the first file_bytes of the file. One at a time. */
int32_t pb_measure_serve(pb_measure *measure, int64_t answer_bytes, int64_t spin_us, int64_t file_bytes, int32_t *port,
                         pb_native_failure *failure);
/* End it; what its thread used, and how many frames it took. Blocking. */
void pb_measure_serve_end(pb_measure *measure, int64_t *cpu_ns, int64_t *frames);

/* Sends frames made beforehand to a server and times the answers. Frames have their four bytes of length in front.
 * Connection i sends frame i modulo frame_count. */
typedef struct pb_measure_exchange {
    const char *host;
    int32_t port;
    int32_t connection_count; /* at most 64 */
    int32_t in_flight;        /* on each; at most 64 */
    int32_t frame_count;
    const uint8_t *frames;
    int64_t frame_bytes;      /* of each */
    int64_t counter_position; /* in a frame, of a big-endian int64 that counts on; -1: none */
    int64_t counter_step;     /* request n of a connection has (n modulo counter_count) * counter_step there */
    int64_t counter_count;
    int64_t error_position; /* in an answer, behind its length, of an error code that ends the run unless it is 0; -1 */
    int64_t answer_min_bytes;
    int64_t spin_us;
    pb_measure_limits limits;
} pb_measure_exchange;
/* Operations are requests with their answers, bytes those of both directions. */
int32_t pb_measure_exchange_run(pb_measure *measure, const pb_measure_exchange *exchange, pb_measure_result *out,
                                pb_native_failure *failure);

#endif
