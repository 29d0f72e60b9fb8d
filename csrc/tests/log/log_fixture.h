/*
 * What the log's tests share: a directory of their own, batches with real records, and a log that is driven as a
 * partition would drive it. Header only; each test executable has its own copy.
 */
#ifndef PB_TESTS_LOG_LOG_FIXTURE_H
#define PB_TESTS_LOG_LOG_FIXTURE_H

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log/log.h"
#include "log/state.h"
#include "record/batch.h"
#include "record/bytes.h"
#include "tests/check.h"

#define UNUSED __attribute__((unused))

typedef struct fixture {
    pb_io *io;
    char directory[64];
    pb_log_options options;
    pb_log *log;
    pb_log_recovery recovery;
    pthread_mutex_t mutex;
    pb_log_guard guard;
} fixture;

static const uint8_t FIXTURE_TOPIC_ID[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static UNUSED void fixture_lock(void *context)
{
    pthread_mutex_lock(context);
}

static UNUSED void fixture_unlock(void *context)
{
    pthread_mutex_unlock(context);
}

static UNUSED void fixture_remove(const char *directory)
{
    DIR *dir = opendir(directory);
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        unlink(path);
    }
    if (dir != NULL)
        closedir(dir);
    rmdir(directory);
}

/* Syncs cost milliseconds here and no test cuts the power: they are only counted. */
static UNUSED int fixture_sync_count;

static UNUSED int fixture_file_sync(pb_io *io, int file)
{
    (void)io;
    __atomic_add_fetch(&fixture_sync_count, 1, __ATOMIC_RELAXED);
    return file >= 0 ? 0 : -EBADF;
}

static UNUSED int fixture_directory_sync(pb_io *io, const char *path)
{
    (void)io;
    __atomic_add_fetch(&fixture_sync_count, 1, __ATOMIC_RELAXED);
    return access(path, F_OK) == 0 ? 0 : -errno;
}

/* What fixture_init has given the newest io: for operations of tests that go on to the usual ones. */
static UNUSED const pb_io_ops *fixture_ops;

/* A file_open that makes no segments. */
static UNUSED int fixture_refuse_creation(pb_io *io, const char *path, int flags)
{
    return flags & PB_OPEN_CREATE && strstr(path, ".log") != NULL ? -EMFILE : fixture_ops->file_open(io, path, flags);
}

/* A log that is not open yet; settings as Kafka's defaults but for a small index interval. */
static UNUSED void fixture_init(fixture *f)
{
    memset(f, 0, sizeof(*f));
    CHECK_INT(pb_io_open("epoll", &f->io, NULL), 0);
    static pb_io_ops unsynced;
    unsynced = *f->io->ops;
    unsynced.file_sync = fixture_file_sync;
    unsynced.directory_sync = fixture_directory_sync;
    fixture_ops = f->io->ops = &unsynced;
    strcpy(f->directory, "/tmp/pb-log-test-XXXXXX");
    CHECK(mkdtemp(f->directory) != NULL);
    f->options = (pb_log_options){
        .io = f->io,
        .directory = f->directory,
        .topic_id = FIXTURE_TOPIC_ID,
        .config =
            {
                .segment_bytes = 1 << 30,
                .segment_ms = INT64_C(604800000),
                .segment_index_bytes = 10 << 20,
                .index_interval_bytes = 4096,
                .producer_expiration_ms = 86400000,
                .flush_messages = INT64_MAX,
                .flush_ms = INT64_MAX,
            },
        .clean = true,
        .log_start_offset = -1,
        .leader_epoch = -1,
        .gap_offset = -1,
    };
    pthread_mutex_init(&f->mutex, NULL);
    f->guard = (pb_log_guard){fixture_lock, fixture_unlock, &f->mutex};
}

static UNUSED void fixture_open(fixture *f)
{
    pb_failure failure;
    int rc = pb_log_open(&f->options, &f->log, &f->recovery, &failure);
    if (rc != 0)
        check_fail(__FILE__, __LINE__, "open: %d %s", rc, failure.text);
}

static UNUSED void fixture_close(fixture *f, bool clean)
{
    pb_failure failure;
    int rc = pb_log_close(f->log, clean, &failure);
    if (rc != 0)
        check_fail(__FILE__, __LINE__, "close: %d %s", rc, failure.text);
    f->log = NULL;
    f->options.clean = clean;
}

static UNUSED void fixture_free(fixture *f)
{
    if (f->log != NULL)
        fixture_close(f, false);
    f->io->ops->close(f->io);
    fixture_remove(f->directory);
    pthread_mutex_destroy(&f->mutex);
}

/* Open with the fixture's settings after init. */
static UNUSED void fixture_start(fixture *f)
{
    fixture_init(f);
    fixture_open(f);
}

static UNUSED uint8_t *put_varint(uint8_t *at, int64_t value)
{
    uint64_t bits = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    while (bits >= 0x80) {
        *at++ = (uint8_t)(bits | 0x80);
        bits >>= 7;
    }
    *at++ = (uint8_t)bits;
    return at;
}

/* One record: a key of eight bytes, or null for -1, and `value_length` bytes of 'v'. */
static UNUSED uint8_t *put_record(uint8_t *at, int32_t offset_delta, int64_t timestamp_delta, int64_t key,
                                  int value_length)
{
    uint8_t body[48];
    uint8_t *end = body;
    *end++ = 0;
    end = put_varint(end, timestamp_delta);
    end = put_varint(end, offset_delta);
    end = put_varint(end, key < 0 ? -1 : 8);
    if (key >= 0) {
        pb_be64_store(end, (uint64_t)key);
        end += 8;
    }
    end = put_varint(end, value_length);
    at = put_varint(at, (end - body) + value_length + 1);
    memcpy(at, body, (size_t)(end - body));
    at += end - body;
    memset(at, 'v', (size_t)value_length);
    at += value_length;
    *at++ = 0; /* no headers */
    return at;
}

/* How a batch is to be made; records' timestamps grow by one each. */
typedef struct batch_spec {
    int record_count;
    int value_length;
    int64_t timestamp;
    uint16_t attributes; /* besides those that the other fields ask for */
    int64_t producer_id; /* 0: none; ids of tests begin at 1 */
    int16_t producer_epoch;
    int32_t base_sequence;
    bool is_transactional;
    int marker; /* 1: abort, 2: commit */
    int32_t leader_epoch;
    bool keyed; /* a record's key is its timestamp; else it has none */
} batch_spec;

/* An append with its bytes, on the heap; free with append_free. */
static UNUSED pb_append *append_make(batch_spec spec)
{
    if (spec.record_count == 0)
        spec.record_count = 1;
    size_t capacity = PB_BATCH_HEADER_BYTES + 64 + (size_t)spec.record_count * ((size_t)spec.value_length + 40);
    pb_append *append = calloc(1, sizeof(*append));
    append->bytes = calloc(1, capacity);
    uint8_t *at = append->bytes + PB_BATCH_HEADER_BYTES;
    if (spec.marker != 0) {
        uint8_t key[4] = {0, 0, 0, spec.marker == 1 ? 0 : 1};
        uint8_t value[6] = {0, 0, 0, 0, 0, 7};
        at = put_varint(at, 1 + 1 + 1 + 1 + 4 + 1 + 6 + 1);
        *at++ = 0;
        *at++ = 0;
        *at++ = 0;
        at = put_varint(at, 4);
        memcpy(at, key, 4);
        at = put_varint(at + 4, 6);
        memcpy(at, value, 6);
        at += 6;
        *at++ = 0;
    } else {
        for (int i = 0; i < spec.record_count; i++)
            at = put_record(at, i, i, spec.keyed ? spec.timestamp + i : -1, spec.value_length);
    }
    pb_batch_header header = {
        .size_bytes = (uint32_t)(at - append->bytes),
        .partition_leader_epoch = -1,
        .attributes = (uint16_t)(spec.attributes | (spec.is_transactional || spec.marker ? PB_BATCH_TRANSACTIONAL : 0) |
                                 (spec.marker ? PB_BATCH_CONTROL : 0)),
        .last_offset_delta = spec.record_count - 1,
        .base_timestamp = spec.timestamp,
        .max_timestamp = spec.timestamp + spec.record_count - 1,
        .producer_id = spec.producer_id != 0 ? spec.producer_id : -1,
        .producer_epoch = spec.producer_id > 0 ? spec.producer_epoch : -1,
        .base_sequence = spec.producer_id > 0 && !spec.marker ? spec.base_sequence : -1,
        .record_count = spec.record_count,
        .magic = PB_BATCH_MAGIC,
    };
    pb_batch_write(append->bytes, &header);
    append->length = header.size_bytes;
    append->record_count = spec.record_count;
    append->max_timestamp_ms = header.max_timestamp;
    append->max_timestamp_offset_delta = -1;
    append->producer_id = header.producer_id;
    append->producer_epoch = header.producer_epoch;
    append->base_sequence = header.base_sequence;
    append->is_transactional = spec.is_transactional || spec.marker != 0;
    append->is_control = spec.marker != 0;
    append->now_ms = spec.timestamp;
    append->leader_epoch = spec.leader_epoch;
    pb_list_init(&append->link);
    return append;
}

static UNUSED void append_free(pb_append *append)
{
    free(append->bytes);
    free(append);
}

/* One whole write: everything queued that goes with it. `result_limit` < 0: write it all; else only that many bytes. */
static UNUSED bool log_write_limited(fixture *f, int64_t result_limit, pb_link *finished)
{
    pb_log_write write;
    if (!pb_log_write_begin(f->log, &write))
        return false;
    int64_t result;
    while ((result = pb_log_write_prepare(f->log, &write)) == PB_LOG_WAITS)
        CHECK_INT(pb_log_write_unblock(f->log, &f->guard, &write), 0);
    if (result == 0 && pb_log_is_hot(f->log)) {
        result = pb_log_write_ring(f->log, &write);
    } else if (result == 0) {
        struct iovec iov[64];
        memcpy(iov, write.iov, sizeof(iov));
        int rc = pb_io_write_all(f->io, write.file, iov, write.iov_count, write.position);
        result = rc != 0 ? rc : write.length;
    }
    if (result_limit >= 0 && result > result_limit)
        result = result_limit;
    pb_log_write_end(f->log, &write, result, finished);
    return true;
}

static UNUSED void log_write(fixture *f)
{
    pb_link finished;
    pb_link *link;
    pb_list_init(&finished);
    while (log_write_limited(f, -1, &finished)) {
    }
    while ((link = pb_list_pop_front(&finished)) != NULL) {
        pb_append *append = PB_CONTAINER(link, pb_append, link);
        CHECK_INT(append->error, 0);
        append_free(append);
    }
}

/* Append and write one batch; its base offset, or -error. */
static UNUSED int64_t log_append(fixture *f, batch_spec spec)
{
    pb_append *append = append_make(spec);
    int rc = pb_log_append(f->log, append);
    int64_t base_offset = append->base_offset;
    if (rc != 0) {
        append_free(append);
        return rc == PB_LOG_DUPLICATE ? base_offset : -rc;
    }
    log_write(f);
    return base_offset;
}

static UNUSED bool file_exists(const fixture *f, const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", f->directory, name);
    return access(path, F_OK) == 0;
}

/* A whole file; free() it. */
static UNUSED uint8_t *file_load(const fixture *f, const char *name, size_t *length)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", f->directory, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        check_fail(__FILE__, __LINE__, "no file %s", path);
    struct stat info;
    CHECK_INT(fstat(fileno(file), &info), 0);
    *length = (size_t)info.st_size;
    uint8_t *bytes = malloc(*length + 1);
    CHECK_INT(fread(bytes, 1, *length, file), *length);
    fclose(file);
    return bytes;
}

static UNUSED void file_store(const fixture *f, const char *name, const void *bytes, size_t length)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", f->directory, name);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK_INT(fwrite(bytes, 1, length, file), length);
    CHECK_INT(fclose(file), 0);
}

#endif
