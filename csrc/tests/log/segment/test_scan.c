/* Reading past the page cache what is not in it: the bytes are the same wherever a read begins. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/sim/sim.h"
#include "log/segment/scan.h"
#include "tests/check.h"

enum { BLOCK = PB_DIRECT_BLOCK_BYTES, CAPACITY = 4 * BLOCK, FILE_BYTES = 20 * BLOCK + 123, ALWAYS = 1000000 };

typedef struct fixture {
    pb_io *io;
    int file;
    int direct;
    uint8_t *written;
    uint8_t *buffer;
    pb_scan scan;
} fixture;

static void init(fixture *it)
{
    CHECK_INT(pb_io_sim_open(1, &it->io), 0);
    CHECK_INT(it->io->ops->directory_make(it->io, "/data"), 0);
    it->file = it->io->ops->file_open(it->io, "/data/log", PB_OPEN_WRITE | PB_OPEN_CREATE);
    it->direct = it->io->ops->file_open(it->io, "/data/log", PB_OPEN_READ | PB_OPEN_DIRECT);
    CHECK(it->file >= 0 && it->direct >= 0);
    it->written = malloc(FILE_BYTES);
    it->buffer = aligned_alloc(BLOCK, CAPACITY);
    CHECK(it->written != NULL && it->buffer != NULL);
    for (int i = 0; i < FILE_BYTES; i++)
        it->written[i] = (uint8_t)(i * 131 + i / BLOCK);
    struct iovec whole = {it->written, FILE_BYTES};
    CHECK_INT(it->io->ops->file_write(it->io, it->file, &whole, 1, 0), FILE_BYTES);
    pb_scan_init(&it->scan, it->io, it->file, FILE_BYTES, it->buffer, CAPACITY);
    pb_scan_past_cache(&it->scan, it->direct);
}

static void be_cold(fixture *it, uint32_t chance)
{
    pb_sim_set_faults(it->io, &(pb_sim_faults){.cold_read = chance});
}

static void destroy(fixture *it)
{
    it->io->ops->close(it->io);
    free(it->written);
    free(it->buffer);
}

static void check_bytes(fixture *it, int64_t position, size_t wanted)
{
    const uint8_t *bytes;
    size_t length;
    size_t left = (size_t)(FILE_BYTES - position);
    size_t most = left < CAPACITY - BLOCK ? left : CAPACITY - BLOCK;
    CHECK_INT(pb_scan_bytes(&it->scan, position, wanted, &bytes, &length), 0);
    CHECK_INT(length, wanted < most ? wanted : most);
    CHECK(memcmp(bytes, it->written + position, length) == 0);
}

TEST(bytes_past_the_page_cache_are_the_file_s)
{
    fixture it;
    init(&it);
    for (uint32_t chance = 0; chance <= ALWAYS; chance += ALWAYS / 2) {
        be_cold(&it, chance);
        for (int64_t position = 0; position < FILE_BYTES; position += 1 + position % 777)
            check_bytes(&it, position, 1 + (size_t)(position * 37 % (2 * CAPACITY)));
        check_bytes(&it, FILE_BYTES - 1, 1);
        check_bytes(&it, BLOCK - 1, CAPACITY);
        check_bytes(&it, FILE_BYTES, 1);
    }
    destroy(&it);
}

static const pb_io_ops *usual;
static int direct_file;
static int refused_count;

static int64_t refuse_direct(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    if (file != direct_file)
        return usual->file_read(io, file, buffer, length, position);
    refused_count++;
    return -EINVAL;
}

TEST(what_cannot_be_read_past_the_page_cache_is_read_through_it)
{
    fixture it;
    init(&it);
    be_cold(&it, ALWAYS);
    usual = it.io->ops;
    pb_io_ops refusing = *usual;
    refusing.file_read = refuse_direct;
    direct_file = it.direct;
    it.io->ops = &refusing;
    check_bytes(&it, 5 * BLOCK + 1, 3 * BLOCK);
    CHECK_INT(refused_count, 1);
    it.io->ops = usual;
    destroy(&it);
}

TEST(a_file_that_has_become_shorter_is_told)
{
    fixture it;
    init(&it);
    be_cold(&it, ALWAYS);
    const uint8_t *bytes;
    size_t length;
    for (int64_t size = 6 * BLOCK; size > 5 * BLOCK; size -= 1000) {
        CHECK_INT(it.io->ops->file_truncate(it.io, it.file, size), 0);
        CHECK_INT(pb_scan_bytes(&it.scan, 5 * BLOCK + 7, 2 * BLOCK, &bytes, &length), -ENODATA);
    }
    destroy(&it);
}

CHECK_MAIN()
