/* Reads, writes and syncs of a nameless file, timed; see scratch.h. */
#include "measure/scratch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_MAX_BYTES (64LL << 20)
#define DROP_LAG 8 /* writes that old, counted in `pace_bytes`, are clean by now on any disk that keeps up */

struct pb_scratch {
    pb_io *io;
    int file;
    int direct; /* -1: the file system does not go past the page cache */
    char directory[4096];
};

/* A file that never had a name is gone with the process. Where the file system has none, it loses its name at once. */
static int open_files(pb_scratch *scratch)
{
    pb_io *io = scratch->io;
    char path[sizeof scratch->directory + 64];
    scratch->file = io->ops->file_make_unnamed(io, scratch->directory);
    if (scratch->file >= 0) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", scratch->file);
        scratch->direct = io->ops->file_open(io, path, PB_OPEN_WRITE | PB_OPEN_DIRECT);
        return 0;
    }
    uint64_t number = 0;
    int result = io->ops->random(io, &number, sizeof number);
    snprintf(path, sizeof path, "%s/.pybroker-scratch-%016" PRIx64, scratch->directory, number);
    if (result == 0)
        result = scratch->file = io->ops->file_open(io, path, PB_OPEN_WRITE | PB_OPEN_CREATE | PB_OPEN_EXCLUSIVE);
    if (result < 0)
        return result;
    scratch->direct = io->ops->file_open(io, path, PB_OPEN_WRITE | PB_OPEN_DIRECT);
    return io->ops->unlink(io, path);
}

static void close_files(pb_scratch *scratch)
{
    pb_io *io = scratch->io;
    if (scratch->file >= 0)
        (void)io->ops->file_close(io, scratch->file);
    if (scratch->direct >= 0)
        (void)io->ops->file_close(io, scratch->direct);
}

int pb_scratch_create(pb_io *io, const char *directory, pb_scratch **out, pb_failure *failure)
{
    pb_scratch *scratch = calloc(1, sizeof *scratch);
    if (scratch == NULL)
        return pb_fail(failure, -ENOMEM, "measuring %s", directory);
    scratch->io = io;
    scratch->file = scratch->direct = -1;
    snprintf(scratch->directory, sizeof scratch->directory, "%s", directory);
    int result = open_files(scratch);
    if (result < 0) {
        pb_scratch_destroy(scratch);
        return pb_fail(failure, result, "cannot make a file without a name in %s", directory);
    }
    *out = scratch;
    return 0;
}

void pb_scratch_destroy(pb_scratch *scratch)
{
    close_files(scratch);
    free(scratch);
}

int pb_scratch_file(const pb_scratch *scratch)
{
    return scratch->file;
}

int pb_scratch_drop(pb_scratch *scratch, pb_failure *failure)
{
    pb_io *io = scratch->io;
    int result = io->ops->file_sync(io, scratch->file);
    if (result == 0)
        result = io->ops->file_drop(io, scratch->file, 0, 0);
    return result < 0 ? pb_fail(failure, result, "writing back a file in %s", scratch->directory) : 0;
}

/* Bytes that no device compresses away; xorshift64. */
static void fill(uint8_t *block, int64_t length)
{
    uint64_t state = 0x9e3779b97f4a7c15ULL;
    for (int64_t i = 0; i + (int64_t)sizeof state <= length; i += (int64_t)sizeof state) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(block + i, &state, sizeof state);
    }
}

static int write_block(pb_scratch *scratch, const pb_scratch_run *run, int file, uint8_t *block, int64_t position)
{
    pb_io *io = scratch->io;
    struct iovec iov = {block, (size_t)run->block_bytes};
    if (run->operation != PB_SCRATCH_WRITE_DURABLE)
        return pb_io_write_all(io, file, &iov, 1, position);
    int64_t wrote = io->ops->file_write_durable(io, file, &iov, 1, position);
    return wrote == run->block_bytes ? 0 : wrote < 0 ? (int)wrote : -EIO;
}

/* One operation; *started_ns moves when only its last part is to be timed. */
static int operate(pb_scratch *scratch, const pb_scratch_run *run, uint8_t *block, int64_t position,
                   int64_t *started_ns)
{
    pb_io *io = scratch->io;
    int file = run->is_direct ? scratch->direct : scratch->file;
    if (run->operation == PB_SCRATCH_READ)
        return pb_io_read_all(io, file, block, (size_t)run->block_bytes, position);
    int result = write_block(scratch, run, file, block, position);
    if (result < 0 || run->operation == PB_SCRATCH_WRITE || run->operation == PB_SCRATCH_WRITE_DURABLE)
        return result;
    if (run->operation == PB_SCRATCH_SYNC)
        *started_ns = io->ops->monotonic_ns(io);
    return io->ops->file_sync(io, file);
}

/* As the engine `paced`, start writeback behind the writes; and drop what lies well behind. A hint that is refused
 * changes speed and nothing else. */
static void pace(pb_scratch *scratch, const pb_scratch_run *run, int64_t written_end)
{
    pb_io *io = scratch->io;
    int64_t begin = written_end - run->pace_bytes, old = begin - DROP_LAG * run->pace_bytes;
    (void)io->ops->file_writeback(io, scratch->file, begin, run->pace_bytes);
    if (old >= run->position)
        (void)io->ops->file_drop(io, scratch->file, old, run->pace_bytes);
}

/* The next of `count` blocks: the one behind, or any. */
static int64_t next_block(const pb_scratch_run *run, int64_t previous, int64_t count, uint64_t *state)
{
    if (!run->is_random)
        return previous + 1 < count ? previous + 1 : 0;
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int64_t)((*state >> 33) % (uint64_t)count);
}

static int operate_until_over(pb_scratch *scratch, const pb_scratch_run *run, uint8_t *block, pb_meter *meter)
{
    pb_io *io = scratch->io;
    const int64_t count = run->length / run->block_bytes;
    const int64_t counted = run->operation == PB_SCRATCH_SYNC ? 0 : run->block_bytes;
    uint64_t state = 1;
    int64_t at = run->is_random ? 0 : -1, now_ns;
    do {
        at = next_block(run, at, count, &state);
        int64_t position = run->position + at * run->block_bytes;
        int64_t started_ns = io->ops->monotonic_ns(io);
        int result = operate(scratch, run, block, position, &started_ns);
        if (result < 0)
            return result;
        now_ns = io->ops->monotonic_ns(io);
        pb_meter_add(meter, 1, counted, now_ns - started_ns);
        int64_t end = position + run->block_bytes;
        if (run->pace_bytes > 0 && (end - run->position) % run->pace_bytes == 0)
            pace(scratch, run, end);
    } while (!pb_meter_is_over(meter, now_ns));
    return run->syncs_at_end ? io->ops->file_sync(io, scratch->file) : 0;
}

static bool is_valid(const pb_scratch_run *run)
{
    return run->operation >= PB_SCRATCH_WRITE && run->operation <= PB_SCRATCH_READ && run->block_bytes > 0 &&
           run->block_bytes <= BLOCK_MAX_BYTES && run->position >= 0 && run->length > 0 &&
           run->length % run->block_bytes == 0 && run->pace_bytes >= 0 && run->pace_bytes % run->block_bytes == 0 &&
           (!run->is_direct || ((run->block_bytes | run->position) % PB_DIRECT_BLOCK_BYTES == 0));
}

int pb_scratch_measure(pb_scratch *scratch, const pb_scratch_run *run, pb_meter_result *out, pb_failure *failure)
{
    if (!is_valid(run))
        return pb_fail(failure, -EINVAL, "a run of blocks of %lld bytes from %lld over %lld cannot be measured",
                       (long long)run->block_bytes, (long long)run->position, (long long)run->length);
    if (run->is_direct && scratch->direct < 0)
        return pb_fail(failure, -EINVAL, "the file system of %s does not go past the page cache", scratch->directory);
    size_t block_bytes = (size_t)((run->block_bytes + PB_DIRECT_BLOCK_BYTES - 1) & -PB_DIRECT_BLOCK_BYTES);
    uint8_t *block = aligned_alloc(PB_DIRECT_BLOCK_BYTES, block_bytes);
    if (block == NULL)
        return pb_fail(failure, -ENOMEM, "measuring %s", scratch->directory);
    fill(block, (int64_t)block_bytes);
    pb_meter meter;
    pb_meter_start(&meter, scratch->io, &run->limits);
    int result = operate_until_over(scratch, run, block, &meter);
    pb_meter_finish(&meter, out);
    free(block);
    return result < 0 ? pb_fail(failure, result, "a file in %s failed while it was measured", scratch->directory) : 0;
}
