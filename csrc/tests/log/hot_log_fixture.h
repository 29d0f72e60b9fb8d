/* A log on real files whose newest bytes go through a ring on tmpfs. It remembers each batch, and reads it back. */
#ifndef PB_TESTS_LOG_HOT_LOG_FIXTURE_H
#define PB_TESTS_LOG_HOT_LOG_FIXTURE_H

#include "log/engine/tail_ring.h"
#include "tests/log/log_fixture.h"

enum { RING_BYTES = 64 << 10, MOST_BATCHES = 4096 };

typedef struct hot_fixture {
    fixture f;
    char rings[64];
    pb_ring_identity identity;
    /* Every batch that was appended, as it should be read. */
    uint8_t *bytes[MOST_BATCHES];
    uint32_t lengths[MOST_BATCHES];
    int count; /* batch i has offset i */
} hot_fixture;

static UNUSED void hot_open_within(hot_fixture *h, int64_t ring_bytes, int64_t budget_bytes)
{
    memset(h, 0, sizeof(*h));
    fixture_init(&h->f);
    strcpy(h->rings, "/dev/shm/pb-hot-test-XXXXXX");
    CHECK(mkdtemp(h->rings) != NULL);
    const pb_ring_pool_options options = {
        .io = h->f.io, .directory = h->rings, .budget_bytes = budget_bytes, .ring_bytes = ring_bytes};
    CHECK_INT(pb_ring_pool_open(&options, &h->f.options.rings, NULL), 0);
    const uint8_t directory_id[PB_RING_UUID_BYTES] = {7};
    CHECK_INT(pb_ring_pool_add_log_dir(h->f.options.rings, "/tmp", directory_id), 0);
    strcpy(h->identity.topic, "hot");
    h->f.options.ring_identity = &h->identity;
    h->f.options.config.index_interval_bytes = 10000;
    fixture_open(&h->f);
}

static UNUSED void hot_open(hot_fixture *h, int64_t ring_bytes)
{
    hot_open_within(h, ring_bytes, 1 << 20);
}

static UNUSED int count_files(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL)
        return 0;
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static UNUSED void hot_free(hot_fixture *h)
{
    pb_ring_pool *rings = h->f.options.rings;
    if (h->f.log != NULL)
        fixture_close(&h->f, false);
    pb_ring_pool_close(rings);
    CHECK_INT(count_files(h->rings), 0);
    fixture_free(&h->f);
    for (int i = 0; i < h->count; i++)
        free(h->bytes[i]);
}

static UNUSED void hot_append(hot_fixture *h, int value_length)
{
    CHECK(h->count < MOST_BATCHES);
    pb_append *append = append_make((batch_spec){.timestamp = 1000 + h->count, .value_length = value_length});
    memset(append->bytes + append->length - value_length, 'a' + h->count % 26, (size_t)value_length);
    uint8_t *copy = malloc(append->length);
    h->lengths[h->count] = append->length;
    CHECK_INT(pb_log_append(h->f.log, append), 0);
    memcpy(copy, append->bytes, append->length);
    CHECK_INT(append->base_offset, h->count);
    h->bytes[h->count++] = copy;
    log_write(&h->f);
}

/* Read from a batch on, and compare what comes. */
static UNUSED void hot_read(hot_fixture *h, int from, int64_t max_bytes)
{
    pb_log_slice slice;
    CHECK_INT(pb_log_read(h->f.log, &h->f.guard, from, max_bytes, h->count, true, &slice), 0);
    CHECK(slice.segment != NULL && slice.base_offset == from);
    uint8_t *buffer = malloc((size_t)slice.length);
    CHECK_INT(pb_tail_read(slice.segment, slice.file, buffer, (size_t)slice.length, slice.position), 0);
    int64_t at = 0;
    for (int i = from; at < slice.length; i++) {
        int64_t length = slice.length - at < h->lengths[i] ? slice.length - at : h->lengths[i];
        CHECK(i < h->count && memcmp(buffer + at, h->bytes[i], (size_t)length) == 0);
        at += length;
    }
    free(buffer);
    pb_segment_release(slice.segment);
}

static UNUSED void hot_read_all(hot_fixture *h)
{
    for (int i = 0; i < h->count; i++)
        hot_read(h, i, 1);
}

static UNUSED int64_t file_bytes(hot_fixture *h, const char *name)
{
    char path[256];
    struct stat status;
    snprintf(path, sizeof(path), "%s/%s", h->f.directory, name);
    CHECK_INT(stat(path, &status), 0);
    return status.st_size;
}

/* Closed, its file ends where its batches do, and they are all there when it is opened again. */
static UNUSED void hot_close_and_read_again(hot_fixture *h)
{
    int64_t size = pb_log_size_bytes(h->f.log);
    fixture_close(&h->f, true);
    CHECK_INT(file_bytes(h, "00000000000000000000.log"), size);
    fixture_open(&h->f);
    hot_read_all(h);
}

static UNUSED uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

#endif
