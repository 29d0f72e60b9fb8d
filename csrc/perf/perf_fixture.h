/* Helpers for the programs that measure the log: read a clock, open a log, make a batch, and append and write it.
 * Header only. A failure ends the program. */
#ifndef PB_PERF_PERF_FIXTURE_H
#define PB_PERF_PERF_FIXTURE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/varint.h"
#include "log/log.h"
#include "record/batch.h"
#include "record/codec.h"

#define PERF_UNUSED __attribute__((unused))

static PERF_UNUSED double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static PERF_UNUSED void must(int rc, const pb_failure *failure)
{
    if (rc == 0)
        return;
    fprintf(stderr, "failed: %d %s\n", rc, failure != NULL ? failure->text : "");
    exit(1);
}

static PERF_UNUSED pb_io *open_io(void)
{
    pb_io *io;
    pb_failure failure;
    must(pb_io_open("epoll", &io, &failure), &failure);
    return io;
}

/* Unlink the files of a directory, except those whose name begins with a dot. */
static PERF_UNUSED void empty(const char *directory)
{
    DIR *dir = opendir(directory);
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char path[1024];
        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    if (dir != NULL)
        closedir(dir);
}

/* Options of a log that rolls only by size, and neither syncs nor expires producers by itself. */
static PERF_UNUSED pb_log_options log_options(pb_io *io, const char *directory, int64_t segment_bytes)
{
    return (pb_log_options){
        .io = io,
        .directory = directory,
        .config = {.segment_bytes = segment_bytes,
                   .segment_ms = INT64_MAX / 2,
                   .segment_index_bytes = 10 << 20,
                   .index_interval_bytes = 4096,
                   .producer_expiration_ms = INT64_MAX / 2,
                   .flush_messages = INT64_MAX,
                   .flush_ms = INT64_MAX},
        .clean = true,
        .log_start_offset = -1,
        .gap_offset = -1,
    };
}

static PERF_UNUSED pb_log *open_log(pb_io *io, const char *directory, int64_t segment_bytes, bool compact, bool clean,
                                    pb_log_recovery *recovery)
{
    pb_log_options options = log_options(io, directory, segment_bytes);
    options.config.compact = compact;
    options.clean = clean;
    pb_failure failure;
    pb_log *log;
    must(pb_log_open(&options, &log, recovery, &failure), &failure);
    return log;
}

/* Append one batch and prepare its write. The caller makes `write` next, and then calls end_write. */
static PERF_UNUSED void append_and_begin(pb_log *log, pb_append *append, pb_log_write *write)
{
    pb_list_init(&append->link);
    must(pb_log_append(log, append), NULL);
    must(pb_log_write_begin(log, write) ? 0 : -1, NULL);
    must(pb_log_write_prepare(log, write), NULL);
}

/* Tell the log the `result` of a write: its bytes, or -errno. */
static PERF_UNUSED void end_write(pb_log *log, pb_log_write *write, int64_t result)
{
    pb_link finished;
    pb_list_init(&finished);
    pb_log_write_end(log, write, result, &finished);
}

/* Append one batch to a cold log and write it. */
static PERF_UNUSED void append_and_write(pb_io *io, pb_log *log, pb_append *append)
{
    pb_log_write write;
    append_and_begin(log, append, &write);
    must(pb_io_write_all(io, write.file, write.iov, write.iov_count, write.position), NULL);
    end_write(log, &write, write.length);
}

/* Encode one record of a batch at `at`; returns its end. */
static PERF_UNUSED uint8_t *put_record(uint8_t *at, int index, const char *key, const uint8_t *value,
                                       size_t value_bytes)
{
    size_t key_bytes = strlen(key);
    uint8_t front[64];
    uint8_t *end = front;
    *end++ = 0;
    end = pb_varlong_write(end, index);
    end = pb_varint_write(end, index);
    end = pb_varint_write(end, (int32_t)key_bytes);
    memcpy(end, key, key_bytes);
    end = pb_varint_write(end + key_bytes, (int32_t)value_bytes);
    size_t front_bytes = (size_t)(end - front);
    at = pb_varint_write(at, (int32_t)(front_bytes + value_bytes + 1));
    memcpy(at, front, front_bytes);
    memcpy(at + front_bytes, value, value_bytes);
    at += front_bytes + value_bytes;
    *at++ = 0;
    return at;
}

/* Compress `length` bytes of records and make a batch of them in `out`, which has room for `capacity` bytes. Returns
 * the length of the batch. */
static PERF_UNUSED uint32_t put_batch(pb_codec *codec, int compression, int record_count, int64_t timestamp_ms,
                                      const uint8_t *records, size_t length, uint8_t *out, size_t capacity)
{
    size_t compressed = 0;
    must(pb_compress(codec, compression, pb_compression_default_level(compression), records, length,
                     out + PB_BATCH_HEADER_BYTES, capacity - PB_BATCH_HEADER_BYTES, &compressed, NULL),
         NULL);
    pb_batch_header header = {.magic = PB_BATCH_MAGIC,
                              .size_bytes = (uint32_t)(PB_BATCH_HEADER_BYTES + compressed),
                              .attributes = (uint16_t)compression,
                              .last_offset_delta = record_count - 1,
                              .base_timestamp = timestamp_ms,
                              .max_timestamp = timestamp_ms + record_count - 1,
                              .producer_id = -1,
                              .producer_epoch = -1,
                              .base_sequence = -1,
                              .record_count = record_count,
                              .partition_leader_epoch = -1};
    pb_batch_write(out, &header);
    return header.size_bytes;
}

#endif
