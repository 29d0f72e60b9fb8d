/* What programs that time the log share: clocks, a log in a directory of theirs, writing what was appended. Header
 * only; a failure ends the program. */
#ifndef PB_PERF_PERF_FIXTURE_H
#define PB_PERF_PERF_FIXTURE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "log/log.h"
#include "record/batch.h"

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

/* Unlink the files of a directory. */
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

/* Settings that leave everything to the program. */
static PERF_UNUSED pb_log *open_log(pb_io *io, const char *directory, int64_t segment_bytes, bool compact, bool clean,
                                    pb_log_recovery *recovery)
{
    pb_log_options options = {
        .io = io,
        .directory = directory,
        .config = {.segment_bytes = segment_bytes,
                   .segment_ms = INT64_MAX / 2,
                   .segment_index_bytes = 10 << 20,
                   .index_interval_bytes = 4096,
                   .producer_expiration_ms = INT64_MAX / 2,
                   .flush_messages = INT64_MAX,
                   .flush_ms = INT64_MAX,
                   .compact = compact},
        .clean = clean,
        .log_start_offset = -1,
    };
    pb_failure failure;
    pb_log *log;
    must(pb_log_open(&options, &log, recovery, &failure), &failure);
    return log;
}

/* Append one batch and write it. */
static PERF_UNUSED void append_and_write(pb_io *io, pb_log *log, pb_append *append)
{
    pb_log_write write;
    pb_link finished;
    pb_list_init(&append->link);
    pb_list_init(&finished);
    must(pb_log_append(log, append), NULL);
    must(pb_log_write_begin(log, &write) ? 0 : -1, NULL);
    must(pb_log_write_prepare(log, &write), NULL);
    must(pb_io_write_all(io, write.file, write.iov, write.iov_count, write.position), NULL);
    pb_log_write_end(log, &write, write.length, &finished);
}

#endif
