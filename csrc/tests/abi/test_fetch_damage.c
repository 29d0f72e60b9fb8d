/*
 * Damage that a Fetch meets at run time: the batch is answered CORRUPT_MESSAGE, all others are served, and the
 * partition stays online. On both real backends, with the files changed under the running broker.
 */
#include <errno.h>
#include <fcntl.h>

#include "log/state.h"
#include "record/batch.h"
#include "server/broker.h"
#include "tests/abi/serving.h"

enum { BATCHES = 40, RECORD_BYTES = 3000, SEGMENT_BYTES = 40000, NOTHING = -1 };

static uint8_t batch[1 << 16];
static int64_t batch_bytes; /* of each */
static int sealed_batches;  /* in the first segment, which begins with offset 0 */

static void produce(mini_client *client)
{
    pb_produce_response produced;
    size_t length = mini_batch(batch, sizeof batch, 1, RECORD_BYTES);
    batch_bytes = (int64_t)length;
    mini_client_send_produce(client, 9, 1, "t", 0, batch, length);
    mini_client_receive_produce(client, 9, &produced);
    CHECK_INT(answer_of(&produced)->error_code, 0);
}

/* Through `ops`, a copy of the usual ones; NULL: through these. */
static void begin_with(served *it, mini_client *client, const char *backend, const pb_io_ops *ops)
{
    memset(it, 0, sizeof *it);
    it->config = default_config();
    it->config.segment_bytes = SEGMENT_BYTES;
    it->config.index_interval_bytes = 5000;
    open_broker(it, backend, 1);
    if (ops != NULL)
        it->broker->io->ops = ops;
    start_serving(it);
    mini_client_open(client, it->port);
    for (int i = 0; i < BATCHES; i++)
        produce(client);
    pb_partition_segment segments[16];
    CHECK(pb_partition_segments(it->partition, segments, 16) >= 3);
    sealed_batches = (int)segments[0].end_offset;
    CHECK_INT(segments[0].size_bytes, sealed_batches * batch_bytes);
    pb_native_failure failure = {0};
    CHECK_INT(pb_partition_upkeep(it->partition, 1, 0, &failure), 0); /* the indexes are in their files */
}

static void begin(served *it, mini_client *client, const char *backend)
{
    begin_with(it, client, backend, NULL);
}

/* Nothing but notices has been heard of, and the partition goes on. */
static void finish(served *it, mini_client *client)
{
    pb_event event;
    pb_native_failure failure = {0};
    produce(client);
    CHECK_INT(pb_partition_upkeep(it->partition, 2, 0, &failure), 0);
    while (take_event(it, &event)) {
        CHECK_INT(event.kind, PB_EVENT_NOTICE);
        pb_notice_release(event.handle);
    }
    mini_client_close(client);
    pb_broker_end_requests(it->broker);
    pb_broker_stop(it->broker);
    end(it, 1);
}

static int open_segment(const served *it)
{
    char path[128];
    snprintf(path, sizeof path, "%s/t-0/%020d.log", it->directory, 0);
    int file = open(path, O_RDWR | O_CLOEXEC);
    CHECK(file >= 0 && fsync(file) == 0);
    CHECK_INT(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
    return file;
}

/* The error of a fetch, and in *end the offset behind the last whole batch that came; NOTHING: none did. */
static int fetch(mini_client *client, int64_t offset, int32_t max_bytes, int64_t *end)
{
    pb_fetch_response fetched;
    pb_batch_header header;
    mini_client_send_fetch_of(client, 12, "t", 0, offset, max_bytes);
    mini_client_receive_fetch(client, 12, &fetched);
    const pb_fetch_response_partition_data *data = &fetched.responses[0].partitions[0];
    size_t length = data->records.length > 0 ? (size_t)data->records.length : 0;
    const uint8_t *bytes = data->records.data;
    *end = NOTHING;
    for (size_t at = 0; at < length; at += header.size_bytes) {
        if (pb_batch_parse(bytes + at, length - at, &header) != 0 || header.size_bytes == 0)
            break;
        CHECK_INT(header.base_offset, *end == NOTHING ? offset : *end);
        CHECK(pb_batch_crc_matches(bytes + at, header.size_bytes));
        *end = header.base_offset + 1;
    }
    return data->error_code;
}

/* Offsets of [bad, bad_end) are damaged: all others are served, up to there, with one fetch or more. */
static void check_served(mini_client *client, int64_t bad, int64_t bad_end, int32_t max_bytes)
{
    int64_t end;
    for (int64_t offset = 0; offset < BATCHES; offset++) {
        bool is_bad = offset >= bad && offset < bad_end;
        int error = fetch(client, offset, max_bytes, &end);
        if (error != (is_bad ? PB_KAFKA_CORRUPT_MESSAGE : 0))
            check_fail(__FILE__, __LINE__, "offset %lld of %lld to %lld, %d bytes: error %d", (long long)offset,
                       (long long)bad, (long long)bad_end, max_bytes, error);
        CHECK(is_bad ? end == NOTHING : end > offset);
        CHECK(offset >= bad || end <= bad);
    }
}

TEST(a_sealed_file_that_is_cut_is_served_up_to_there_and_behind)
{
    static const int32_t sizes[] = {1, 20000, 1 << 20};
    for (int round = 0; round < 12; round++) {
        served it;
        mini_client client;
        begin(&it, &client, backends[round % 2]);
        /* At a batch, in its header, in its records, one byte short, and at nothing. */
        int64_t whole = round / 2 * 2;
        static const int64_t inside[] = {0, 1, 40, 1500};
        int64_t cut = round == 10   ? 0
                      : round == 11 ? sealed_batches * batch_bytes - 1
                                    : whole * batch_bytes + inside[round % 4];
        int file = open_segment(&it);
        CHECK_INT(ftruncate(file, cut), 0);
        close(file);
        check_served(&client, cut / batch_bytes, sealed_batches, sizes[round % 3]);
        check_served(&client, cut / batch_bytes, sealed_batches, sizes[(round + 1) % 3]);
        finish(&it, &client);
    }
}

/* ---- a disk that cannot read all ---- */

static const pb_io_ops *usual;
static _Atomic int64_t bad_begin, bad_end; /* of the first segment's file; none when they are equal */

static bool is_bad(int file, int64_t position, int64_t length)
{
    char link[64], path[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t got = readlink(link, path, sizeof path - 1);
    path[got > 0 ? got : 0] = '\0';
    return strstr(path, "/00000000000000000000.log") != NULL && position < bad_end && position + length > bad_begin;
}

static int64_t read_or_fail(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    return is_bad(file, position, (int64_t)length) ? -EIO : usual->file_read(io, file, buffer, length, position);
}

/* The page cache has nothing of it. */
static int resident_or_not(pb_io *io, int file, int64_t position, int64_t length)
{
    return is_bad(file, position, length) ? 0 : usual->file_resident(io, file, position, length);
}

static void begin_failing(served *it, mini_client *client, pb_io_ops *ops)
{
    pb_io *io;
    CHECK_INT(pb_io_epoll_open(&io, NULL), 0);
    usual = io->ops;
    *ops = *usual;
    io->ops->close(io);
    ops->file_read = read_or_fail;
    ops->file_resident = resident_or_not;
    bad_begin = bad_end = 0;
    begin_with(it, client, "epoll", ops);
    close(open_segment(it));
}

TEST(what_a_disk_cannot_read_of_a_sealed_file_is_damage)
{
    static const int32_t sizes[] = {1, 20000, 1 << 20};
    for (int round = 0; round < 9; round++) {
        served it;
        mini_client client;
        pb_io_ops ops;
        begin_failing(&it, &client, &ops);
        int64_t page = (round % 3 + 1) * 2 * PB_DIRECT_BLOCK_BYTES;
        bad_end = page + PB_DIRECT_BLOCK_BYTES;
        bad_begin = page;
        int64_t first = page / batch_bytes, last = (bad_end - 1) / batch_bytes;
        int64_t end;
        CHECK_INT(fetch(&client, 0, sizes[round / 3], &end), 0); /* what lies before it comes first */
        check_served(&client, first, last + 1, sizes[round / 3]);
        bad_begin = bad_end = 0;
        finish(&it, &client);
    }
}

static atomic_int reopen_error;

static int reopen_or_fail(pb_io *io, int file)
{
    int error = reopen_error;
    return error != 0 ? error : usual->file_reopen_direct(io, file);
}

/* All descriptors are taken: the disk cannot be asked, which says nothing about it. */
TEST(a_disk_that_cannot_be_asked_has_not_failed)
{
    static const int errors[] = {-EMFILE, -ENFILE, -ENOMEM};
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        served it;
        mini_client client;
        pb_io_ops ops;
        int64_t end;
        pb_event event = {0};
        begin_failing(&it, &client, &ops);
        ops.file_reopen_direct = reopen_or_fail;
        reopen_error = errors[i];
        bad_begin = 2 * PB_DIRECT_BLOCK_BYTES;
        bad_end = 3 * PB_DIRECT_BLOCK_BYTES;
        CHECK_INT(fetch(&client, bad_begin / batch_bytes + 1, 1, &end), PB_KAFKA_KAFKA_STORAGE_ERROR);
        CHECK_INT(fetch(&client, sealed_batches, 1, &end), 0);
        while (take_event(&it, &event))
            CHECK(event.kind != PB_EVENT_OFFLINE);
        reopen_error = 0;
        CHECK_INT(fetch(&client, bad_begin / batch_bytes + 1, 1, &end), PB_KAFKA_CORRUPT_MESSAGE);
        bad_begin = bad_end = 0;
        finish(&it, &client);
    }
}

TEST(a_disk_that_reads_nothing_has_failed)
{
    served it;
    mini_client client;
    pb_io_ops ops;
    int64_t end;
    pb_event event = {0};
    begin_failing(&it, &client, &ops);
    bad_end = INT64_MAX;
    CHECK_INT(fetch(&client, 3, 1, &end), PB_KAFKA_KAFKA_STORAGE_ERROR);
    CHECK_INT(fetch(&client, sealed_batches, 1, &end), 0);
    while (!take_event(&it, &event) || event.kind != PB_EVENT_OFFLINE)
        usleep(1000);
    CHECK_INT(event.offset, PB_OFFLINE_READ);
    CHECK_INT(event.error, -EIO);
    bad_end = 0;
    finish(&it, &client);
}

/* What a consumer meets that goes on where it was: the copy begins with it, and nobody has looked for it. */
TEST(a_batch_that_is_none_any_more_is_refused_and_all_others_are_served)
{
    /* The length, the magic, and all of it. */
    static const struct {
        int64_t at;
        size_t length;
        int byte;
    } holes[] = {{8, 4, 0}, {8, 4, 0xff}, {16, 1, 0xff}, {0, 61, 0}};
    for (int round = 0; round < 8; round++) {
        served it;
        mini_client client;
        int64_t end;
        begin(&it, &client, backends[round % 2]);
        int64_t bad = 3 + round;
        for (int64_t offset = 0; offset < bad; offset++) /* one after the other: where the next one begins is known */
            CHECK_INT(fetch(&client, offset, 1, &end), 0);
        CHECK_INT(end, bad);
        int file = open_segment(&it);
        uint8_t bytes[61];
        memset(bytes, holes[round / 2].byte, sizeof bytes);
        CHECK_INT(pwrite(file, bytes, holes[round / 2].length, bad * batch_bytes + holes[round / 2].at),
                  (int64_t)holes[round / 2].length);
        close(file);
        CHECK_INT(fetch(&client, bad, 1, &end), PB_KAFKA_CORRUPT_MESSAGE);
        CHECK_INT(fetch(&client, bad, 20000, &end), PB_KAFKA_CORRUPT_MESSAGE);
        check_served(&client, bad, bad + 1, 1);
        finish(&it, &client);
    }
}

/* The index is derived: without it the way to a batch is longer. */
TEST(an_index_that_is_taken_away_is_done_without)
{
    static const char *const commands[] = {"rm %s/t-0/%020d.index", "truncate -s 0 %s/t-0/%020d.index",
                                           "f=%s/t-0/%020d.index; rm $f && mkdir $f && touch $f/x"};
    for (int round = 0; round < 3; round++) {
        served it;
        mini_client client;
        char command[256];
        begin(&it, &client, backends[round % 2]);
        /* NOLINTNEXTLINE(clang-diagnostic-format-nonliteral): literals of this test */
        snprintf(command, sizeof command, commands[round], it.directory, 0);
        CHECK_INT(system(command), 0);
        for (int64_t offset = sealed_batches - 1; offset >= 0; offset--) {
            int64_t end;
            CHECK_INT(fetch(&client, offset, 1, &end), 0);
            CHECK_INT(end, offset + 1);
        }
        finish(&it, &client);
    }
}

CHECK_MAIN()
