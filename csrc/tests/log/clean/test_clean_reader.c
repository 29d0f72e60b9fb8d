/* The cleaner's reader gives every batch of a file, however they lie in its blocks and however the blocks are read. */
#include <fcntl.h>
#include <stdatomic.h>

#include "log/clean/reader.h"
#include "tests/log/log_fixture.h"

#define LOG_NAME "00000000000000000000.log"

enum { BLOCK = 16 << 10, BATCHES = 60 };

typedef struct reading {
    fixture f;
    pb_io_ops ops; /* the real ones but for what a test replaces */
    int file;
    int64_t size_bytes;
    int64_t positions[BATCHES + 1];
    pb_clean_reader reader;
} reading;

static pb_failure failure;
static atomic_int direct_reads;
static _Atomic int64_t failing_position; /* reads of it fail; -1: none */

static int cold(pb_io *io, int file, int64_t position, int64_t length)
{
    (void)io;
    return file < 0 || position < 0 || length < 0;
}

static int warm(pb_io *io, int file, int64_t position, int64_t length)
{
    return !cold(io, file, position, length);
}

static int64_t watched_read(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    if ((fcntl(file, F_GETFL) & O_DIRECT) != 0)
        direct_reads++;
    int64_t failing = failing_position;
    bool fails = failing >= position && failing < position + (int64_t)length;
    return fails ? -EIO : fixture_ops->file_read(io, file, buffer, length, position);
}

/* From a few bytes to several blocks, so that batches begin and end everywhere in them. */
static int value_length(int i)
{
    return i % 20 == 19 ? 5 * BLOCK : i * 131 % 3000;
}

static void start(reading *it)
{
    fixture_start(&it->f);
    for (int i = 0; i < BATCHES; i++) {
        it->positions[i] = pb_log_size_bytes(it->f.log);
        CHECK(log_append(&it->f, (batch_spec){.record_count = 1, .value_length = value_length(i), .timestamp = 1}) >=
              0);
    }
    it->size_bytes = it->positions[BATCHES] = pb_log_size_bytes(it->f.log);
    it->file = pb_segment_open(pb_log_active(it->f.log), PB_FILE_LOG);
    CHECK(it->file >= 0);
    it->ops = *fixture_ops;
    it->ops.file_read = watched_read;
    it->ops.file_resident = cold;
    it->f.io->ops = &it->ops;
    failing_position = -1;
    direct_reads = 0;
    CHECK_INT(pb_clean_reader_init(&it->reader, it->f.io, BLOCK), 0);
}

static void end(reading *it)
{
    pb_clean_reader_clear(&it->reader);
    CHECK_INT(it->ops.file_close(it->f.io, it->file), 0);
    fixture_free(&it->f);
}

static void begin(reading *it, int first, bool direct)
{
    int past_cache = direct ? pb_segment_open_direct(pb_log_active(it->f.log), PB_OPEN_READ) : -EINVAL;
    CHECK_INT(past_cache >= 0, direct);
    pb_clean_reader_begin(&it->reader, it->file, past_cache, it->positions[first], it->size_bytes, !direct);
}

/* What comes next are batches `first` to `last`. */
static void check_batches(reading *it, int first, int last)
{
    const uint8_t *batch;
    pb_batch_header header;
    for (int i = first; i < last; i++) {
        CHECK_INT(it->reader.position, it->positions[i]);
        CHECK_INT(pb_clean_reader_next(&it->reader, &batch, &header, &failure), 0);
        CHECK(batch != NULL);
        CHECK_INT(header.base_offset, i);
        CHECK_INT(header.size_bytes, it->positions[i + 1] - it->positions[i]);
    }
}

static void check_end(reading *it)
{
    const uint8_t *batch;
    pb_batch_header header;
    CHECK_INT(pb_clean_reader_next(&it->reader, &batch, &header, &failure), 0);
    CHECK(batch == NULL);
}

static void read_from_everywhere(bool direct)
{
    static reading it;
    start(&it);
    int64_t read_bytes = 0;
    for (int first = 0; first <= BATCHES; first++) {
        begin(&it, first, direct);
        check_batches(&it, first, BATCHES);
        check_end(&it);
        read_bytes += it.size_bytes - it.positions[first];
        CHECK_INT(it.reader.read_bytes, read_bytes);
    }
    CHECK_INT(direct_reads > 0, direct);
    end(&it);
}

TEST(every_batch_is_read_past_the_page_cache)
{
    read_from_everywhere(true);
}

TEST(every_batch_is_read_where_the_file_system_has_no_direct_reads)
{
    read_from_everywhere(false);
}

TEST(what_is_in_memory_is_read_from_there)
{
    static reading it;
    start(&it);
    it.ops.file_resident = warm;
    begin(&it, 0, true);
    check_batches(&it, 0, BATCHES);
    CHECK_INT(direct_reads, 0);
    end(&it);
}

TEST(a_file_may_be_left_while_it_is_read)
{
    static reading it;
    start(&it);
    for (int first = 0; first < BATCHES; first += 7) {
        begin(&it, first, true);
        check_batches(&it, first, first + 1);
    }
    end(&it);
}

static int no_thread(pb_io *io, const char *name, enum pb_thread_rank rank, pb_step_fn step, void *context,
                     pb_thread **out)
{
    (void)rank;
    return io == NULL || name == NULL || step == NULL || context == NULL || out == NULL ? -EINVAL : -EAGAIN;
}

TEST(without_a_thread_it_goes_on)
{
    static reading it;
    start(&it);
    it.ops.thread_start = no_thread;
    begin(&it, 0, true);
    check_batches(&it, 0, BATCHES);
    end(&it);
}

/* The first batch that cannot be had is told of, and not one before it. */
static void fail_at(int failing)
{
    static reading it;
    const uint8_t *batch;
    pb_batch_header header;
    start(&it);
    failing_position = it.positions[failing] + 10;
    int64_t block = failing_position / BLOCK * BLOCK;
    int first = failing;
    while (it.positions[first] > block)
        first--;
    if (it.positions[first + 1] <= block)
        first++;
    begin(&it, 0, true);
    check_batches(&it, 0, first);
    CHECK_INT(pb_clean_reader_next(&it.reader, &batch, &header, &failure), -EIO);
    CHECK(batch == NULL);
    failing_position = -1;
    begin(&it, 0, true);
    check_batches(&it, 0, BATCHES);
    end(&it);
}

TEST(a_read_that_fails_is_told_where_its_bytes_are_wanted)
{
    for (int failing = 0; failing < BATCHES; failing++)
        fail_at(failing);
}

TEST(a_file_that_is_shorter_than_it_was_is_no_endless_read)
{
    static reading it;
    const uint8_t *batch;
    pb_batch_header header;
    start(&it);
    char path[128];
    snprintf(path, sizeof(path), "%s/" LOG_NAME, it.f.directory);
    CHECK_INT(truncate(path, it.positions[10] + 5), 0);
    begin(&it, 10, true);
    CHECK_INT(pb_clean_reader_next(&it.reader, &batch, &header, &failure), -ENODATA);
    CHECK_INT(truncate(path, it.size_bytes), 0);
    end(&it);
}

CHECK_MAIN()
