/* History in memory: what is found, what makes room, what stays while it is sent, and what is read when the disk says
 * no.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "log/read/history.h"
#include "log/segment/segment.h"
#include "tests/log/log_fixture.h"

#define MIB (1 << 20)

enum { SEGMENT_BYTES = 12 * MIB + 5000, CAPACITY_BYTES = 8 * MIB, THREADS = 6 };

static const pb_io_ops *real;
static atomic_int direct_reads, usual_reads, brought_in, dropped;
static atomic_int direct_error; /* of opening, or of every read */
static atomic_bool fails_when_read;

static int64_t watched_read(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    bool direct = (fcntl(file, F_GETFL) & O_DIRECT) != 0;
    atomic_fetch_add(direct ? &direct_reads : &usual_reads, 1);
    int error = fails_when_read && direct ? direct_error : 0;
    return error != 0 ? error : real->file_read(io, file, buffer, length, position);
}

static int watched_reopen(pb_io *io, int file)
{
    bool fails = !fails_when_read && direct_error != 0;
    return fails ? direct_error : real->file_reopen_direct(io, file);
}

static int watched_bring_in(pb_io *io, int file, int64_t position, int64_t length)
{
    atomic_fetch_add(&brought_in, 1);
    return real->file_bring_in(io, file, position, length);
}

static int watched_drop(pb_io *io, int file, int64_t position, int64_t length)
{
    atomic_fetch_add(&dropped, 1);
    return real->file_drop(io, file, position, length);
}

typedef struct held {
    pb_io *io;
    pb_io_ops ops;
    char directory[64];
    pb_segment *segment;
    pb_history history;
} held;

static uint8_t byte_at(int64_t position)
{
    return (uint8_t)(position / 4096 * 7 + position);
}

static void begin(held *it)
{
    memset(it, 0, sizeof *it);
    direct_reads = usual_reads = brought_in = dropped = direct_error = 0;
    fails_when_read = false;
    CHECK_INT(pb_io_epoll_open(&it->io, NULL), 0);
    real = it->io->ops;
    it->ops = *real;
    it->ops.file_read = watched_read;
    it->ops.file_reopen_direct = watched_reopen;
    it->ops.file_bring_in = watched_bring_in;
    it->ops.file_drop = watched_drop;
    it->io->ops = &it->ops;
    strcpy(it->directory, "/tmp/pb-history-XXXXXX");
    CHECK(mkdtemp(it->directory) != NULL);
    it->segment = pb_segment_new(it->io, it->directory, 0);
    CHECK(it->segment != NULL);
    char path[PB_LOG_PATH_BYTES];
    CHECK_INT(pb_segment_path(path, it->directory, 0, PB_FILE_LOG, ""), 0);
    it->segment->file = real->file_open(it->io, path, PB_OPEN_WRITE | PB_OPEN_CREATE);
    uint8_t *bytes = malloc(SEGMENT_BYTES);
    CHECK(it->segment->file >= 0 && bytes != NULL);
    for (int64_t i = 0; i < SEGMENT_BYTES; i++)
        bytes[i] = byte_at(i);
    struct iovec iov = {bytes, SEGMENT_BYTES};
    CHECK_INT(pb_io_write_all(it->io, it->segment->file, &iov, 1, 0), 0);
    free(bytes);
    pb_history_init(&it->history, it->io, CAPACITY_BYTES);
}

static void end(held *it)
{
    char path[PB_LOG_PATH_BYTES];
    CHECK_INT(pb_segment_path(path, it->directory, 0, PB_FILE_LOG, ""), 0);
    CHECK_INT(unlink(path), 0);
    CHECK_INT(rmdir(it->directory), 0);
    pb_history_destroy(&it->history);
    if (it->segment != NULL)
        pb_segment_release(it->segment); /* outlives it */
    it->io->ops = real;
    real->close(it->io);
}

static int bring_in(held *it, int64_t position, int64_t length)
{
    pb_history_file file = {it->segment->file, true, 0};
    return pb_history_bring_in(&it->history, it->segment, &file, position, length);
}

static void check_bytes(const uint8_t *bytes, int64_t position, int64_t length)
{
    for (int64_t i = 0; i < length; i++)
        CHECK_INT(bytes[i], byte_at(position + i));
}

TEST(what_was_read_is_found_and_nothing_else)
{
    held it;
    uint8_t buffer[10000];
    begin(&it);
    CHECK(!pb_history_may_hold(it.segment));
    CHECK(!pb_history_holds(it.segment, 0, 1));
    CHECK_INT(pb_history_copy(it.segment, buffer, 100, 0), 0);
    CHECK(pb_history_pin(it.segment, 0) == NULL);
    CHECK_INT(bring_in(&it, MIB + 5000, 3000), 0);
    CHECK_INT(bring_in(&it, MIB + 8000, MIB - 8000), 0); /* goes on where that ended */
    CHECK_INT(bring_in(&it, 2 * MIB, 1), 0);
    CHECK(pb_history_may_hold(it.segment));
    CHECK(pb_history_holds(it.segment, MIB + 5000, MIB - 4999));
    CHECK(!pb_history_holds(it.segment, MIB + 4999, 2));
    CHECK(!pb_history_holds(it.segment, 2 * MIB, 2));
    CHECK_INT(pb_history_copy(it.segment, buffer, sizeof buffer, MIB + 6000), sizeof buffer);
    check_bytes(buffer, MIB + 6000, sizeof buffer);
    CHECK_INT(pb_history_copy(it.segment, buffer, sizeof buffer, 2 * MIB - 100), 101);
    check_bytes(buffer, 2 * MIB - 100, 101);
    CHECK_INT(pb_history_copy(it.segment, buffer, 1, MIB + 4999), 0);
    CHECK_INT(atomic_load(&it.history.read_bytes), MIB - 5000 + 1);
    CHECK(direct_reads > 0 && usual_reads == 0 && brought_in == 0);
    end(&it);
}

TEST(what_is_here_is_not_read_again)
{
    held it;
    begin(&it);
    CHECK_INT(bring_in(&it, 100000, 200000), 0);
    int reads = direct_reads;
    CHECK_INT(bring_in(&it, 150000, 150000), 0);
    CHECK_INT(direct_reads, reads);
    CHECK_INT(bring_in(&it, 100000, 300000), 0); /* the rest of it */
    CHECK_INT(atomic_load(&it.history.read_bytes), 300000);
    CHECK(pb_history_holds(it.segment, 100000, 300000));
    end(&it);
}

/* All pieces from the first on are dropped from the page cache, and every second one is then in it. */
static void hold_every_other_piece(held *it)
{
    uint8_t *bytes = malloc(MIB);
    CHECK_INT(real->file_sync(it->io, it->segment->file), 0);
    CHECK_INT(posix_fadvise(it->segment->file, 0, 0, POSIX_FADV_RANDOM), 0);
    CHECK_INT(posix_fadvise(it->segment->file, 0, 0, POSIX_FADV_DONTNEED), 0);
    for (int64_t position = 0; position < 6 * MIB; position += MIB) {
        if (position / MIB % 2 == 0)
            CHECK_INT(pb_io_read_all(it->io, it->segment->file, bytes, MIB, position), 0);
        else
            CHECK_INT(bring_in(it, position, MIB), 0);
    }
    free(bytes);
}

TEST(what_lies_here_and_in_the_page_cache_by_turns_is_read_without_a_disk)
{
    static const int64_t begins[] = {0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB / 2, 2 * MIB - 4096};
    static const int64_t lengths[] = {1, 4096, MIB, MIB + 1, 2 * MIB, 5 * MIB / 2, 4 * MIB};
    static uint8_t buffer[4 * MIB];
    held it;
    begin(&it);
    hold_every_other_piece(&it);
    real->thread_read_mode(it.io, PB_READ_RESIDENT);
    for (size_t i = 0; i < sizeof begins / sizeof begins[0]; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof lengths[0]; k++) {
            int file = it.segment->file;
            CHECK_INT(pb_tail_read(it.segment, file, buffer, (size_t)lengths[k], begins[i]), 0);
            CHECK(buffer[0] == byte_at(begins[i]) && buffer[lengths[k] - 1] == byte_at(begins[i] + lengths[k] - 1));
        }
    CHECK_INT(pb_tail_read(it.segment, it.segment->file, buffer, MIB, 6 * MIB), -EAGAIN);
    real->thread_read_mode(it.io, PB_READ_USUAL);
    end(&it);
}

TEST(what_has_lost_its_name_is_read_all_the_same)
{
    held it;
    char path[PB_LOG_PATH_BYTES];
    uint8_t buffer[100];
    begin(&it);
    CHECK_INT(pb_segment_path(path, it.directory, 0, PB_FILE_LOG, ""), 0);
    CHECK_INT(unlink(path), 0);
    int another = real->file_open(it.io, path, PB_OPEN_WRITE | PB_OPEN_CREATE); /* a log that has begun anew */
    CHECK(another >= 0);
    CHECK_INT(real->file_truncate(it.io, another, SEGMENT_BYTES), 0);
    CHECK_INT(real->file_close(it.io, another), 0);
    it.segment->directory = NULL; /* and this one's has been closed */
    CHECK_INT(bring_in(&it, MIB, MIB), 0);
    CHECK_INT(pb_history_copy(it.segment, buffer, sizeof buffer, MIB + 5), sizeof buffer);
    check_bytes(buffer, MIB + 5, sizeof buffer);
    CHECK(direct_reads > 0 && usual_reads == 0);
    end(&it);
}

static held *asked;

/* While this is read, its pages are in the page cache already. */
static int look_while_reading(pb_io *io, int file, int64_t position, int64_t length)
{
    pb_segment *segment = asked->segment;
    CHECK(pb_history_is_reading(segment, position, 1));
    CHECK(pb_history_is_reading(segment, position - 1, 2));
    CHECK(pb_history_is_reading(segment, position + length - 1, 3 * MIB));
    CHECK(pb_history_is_reading(segment, 0, SEGMENT_BYTES));
    CHECK(!pb_history_is_reading(segment, position - 5, 5));
    CHECK(!pb_history_is_reading(segment, position + length, 3 * MIB));
    CHECK(!pb_history_holds(segment, position, length));
    return watched_bring_in(io, file, position, length);
}

TEST(what_others_write_is_read_through_the_page_cache)
{
    held it;
    begin(&it);
    asked = &it;
    it.ops.file_bring_in = look_while_reading;
    pb_history_file file = {it.segment->file, false, 0};
    CHECK_INT(pb_history_bring_in(&it.history, it.segment, &file, 2 * MIB + 700, 9000), 0);
    CHECK(!pb_history_is_reading(it.segment, 0, SEGMENT_BYTES) && !pb_history_may_hold(it.segment));
    CHECK_INT(it.history.held_bytes, 0);
    CHECK(brought_in == 1 && direct_reads == 0);
    CHECK_INT(atomic_load(&it.history.read_bytes), 9000);
    end(&it);
}

TEST(the_end_of_a_file_need_not_be_a_whole_block)
{
    held it;
    begin(&it);
    CHECK_INT(bring_in(&it, 12 * MIB + 10, 4990), 0);
    CHECK(pb_history_holds(it.segment, 12 * MIB + 10, 4990));
    CHECK_INT(bring_in(&it, 11 * MIB + 100, MIB - 100), 0);
    CHECK_INT(bring_in(&it, 12 * MIB, 5001), -ENODATA); /* a file that ended too soon */
    CHECK(!pb_history_holds(it.segment, 12 * MIB, 1));
    end(&it);
}

TEST(the_oldest_makes_room_unless_it_is_being_sent)
{
    held it;
    begin(&it);
    for (int i = 0; i < 6; i++)
        CHECK_INT(bring_in(&it, (int64_t)i * MIB, MIB), 0);
    pb_piece *sent = pb_history_pin(it.segment, 100);
    int64_t length = MIB;
    const uint8_t *bytes = pb_piece_bytes(sent, it.segment, 100, &length);
    CHECK(bytes != NULL);
    CHECK_INT(length, MIB - 100);
    uint8_t byte;
    CHECK_INT(pb_history_copy(it.segment, &byte, 1, MIB), 1); /* used: the next is the oldest now */
    for (int i = 6; i < 11; i++)
        CHECK_INT(bring_in(&it, (int64_t)i * MIB, MIB), 0);
    CHECK(it.history.held_bytes <= CAPACITY_BYTES);
    CHECK(pb_history_holds(it.segment, 0, 1) && pb_history_holds(it.segment, MIB, 1));
    CHECK(!pb_history_holds(it.segment, 2 * MIB, 1) && pb_history_holds(it.segment, 6 * MIB, 5 * MIB));
    check_bytes(bytes, 100, length);
    pb_history_unpin(sent);
    for (int i = 2; i < 9; i++)
        CHECK_INT(bring_in(&it, (int64_t)i * MIB, MIB), 0);
    CHECK(!pb_history_holds(it.segment, 0, 1));
    CHECK_INT(brought_in, 0);
    end(&it);
}

TEST(what_is_kept_too_long_by_one_is_given_back_by_others)
{
    held it;
    begin(&it);
    for (int i = 0; i < 3; i++)
        CHECK_INT(bring_in(&it, (int64_t)i * MIB, MIB), 0);
    pb_piece *sent = pb_history_pin(it.segment, 0);
    pb_list_remove(&sent->link);
    pb_list_push_front(&it.history.pieces, &sent->link); /* a client that takes for ever */
    for (pb_link *link = it.history.pieces.next; link != &it.history.pieces; link = link->next)
        PB_CONTAINER(link, pb_piece, link)->used_ns -= PB_HISTORY_IDLE_NS;
    while (pb_history_trim(&it.history) == 0)
        ;
    CHECK_INT(it.history.held_bytes, MIB);
    CHECK_INT(it.history.buffers.clean_count, 2);
    pb_history_unpin(sent);
    end(&it);
}

/* Of many that are as large as the memory's least part: how many of so many are there afterwards. */
static int go_through(held *it, int pieces)
{
    int found = 0;
    for (int i = 0; i < pieces; i++) {
        found += pb_history_holds(it->segment, (int64_t)i * MIB, MIB);
        CHECK_INT(bring_in(it, (int64_t)i * MIB, MIB), 0);
    }
    return found;
}

static int64_t now_ns, read_ns;

static int64_t told_ns(pb_io *io)
{
    CHECK(io != NULL);
    return now_ns;
}

static int64_t read_nothing(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    CHECK(io != NULL && file >= 0 && buffer != NULL && position >= 0);
    now_ns += read_ns;
    return (int64_t)length;
}

static int64_t brought_position, brought_length;

static int bring_nothing_in(pb_io *io, int file, int64_t position, int64_t length)
{
    CHECK(io != NULL && file >= 0 && position >= 0 && length > 0);
    atomic_fetch_add(&brought_in, 1);
    brought_position = position;
    brought_length = length;
    return 0;
}

/* A larger history, of a disk that takes so long for each piece. */
static void begin_with(held *it, int64_t piece_ns)
{
    begin(it);
    pb_history_destroy(&it->history);
    it->ops.file_read = read_nothing;
    it->ops.monotonic_ns = told_ns;
    now_ns = 1000000000;
    read_ns = piece_ns;
    pb_history_init(&it->history, it->io, 4LL * PB_HISTORY_LEAST_BYTES);
}

TEST(more_is_kept_when_what_was_dropped_is_wanted_again)
{
    enum { PIECES = 3 * PB_HISTORY_LEAST_BYTES / MIB };
    held it;
    begin_with(&it, 5000000);
    CHECK_INT(go_through(&it, PIECES), 0);
    CHECK_INT(it.history.target_bytes, PB_HISTORY_LEAST_BYTES);
    int found = 0;
    for (int round = 0; round < 4 && found < PIECES; round++)
        found = go_through(&it, PIECES);
    CHECK_INT(found, PIECES);
    CHECK(it.history.held_bytes < 4LL * PB_HISTORY_LEAST_BYTES);
    end(&it);
}

TEST(nothing_more_is_kept_of_what_will_never_fit)
{
    held it;
    begin_with(&it, 5000000);
    for (int round = 0; round < 5; round++)
        CHECK_INT(go_through(&it, 5 * PB_HISTORY_LEAST_BYTES / MIB), 0);
    CHECK_INT(it.history.target_bytes, PB_HISTORY_LEAST_BYTES);
    end(&it);
}

TEST(what_is_quickly_read_again_and_again_is_the_page_caches)
{
    held it;
    begin_with(&it, 1000000);
    for (int round = 0; round < 2; round++)
        CHECK_INT(go_through(&it, 2 * PB_HISTORY_LEAST_BYTES / MIB), 0);
    CHECK_INT(brought_in, 0);
    it.ops.file_bring_in = bring_nothing_in;
    (void)go_through(&it, 2 * PB_HISTORY_LEAST_BYTES / MIB); /* the third time: the page cache has what is not here */
    CHECK(brought_in >= PB_HISTORY_LEAST_BYTES / MIB / 2);
    CHECK_INT(it.history.target_bytes, PB_HISTORY_LEAST_BYTES);
    end(&it);
}

/* Three times through so much, on a quick disk; then how many pieces the page cache has had. */
static int go_through_thrice(held *it, int pieces)
{
    begin_with(it, 1000000);
    it->ops.file_bring_in = bring_nothing_in;
    for (int round = 0; round < 3; round++)
        (void)go_through(it, pieces);
    return brought_in;
}

TEST(the_page_cache_holds_more_but_not_all)
{
    enum { CAPACITY = 4 * PB_HISTORY_LEAST_BYTES / MIB };
    held it;
    CHECK_INT(go_through_thrice(&it, 3 * CAPACITY), 3 * CAPACITY - PB_HISTORY_LEAST_BYTES / MIB); /* what is not here */
    end(&it);
    CHECK_INT(go_through_thrice(&it, 5 * CAPACITY), 0);
    end(&it);
}

/* While a large page is read, all of it is in the page cache already. Then a neighbour's part of it cannot be read. */
static int fail_where_large(pb_io *io, int file, int64_t position, int64_t length)
{
    if (length != PB_LARGE_PAGE_BYTES)
        return bring_nothing_in(io, file, position, length);
    CHECK(pb_history_is_reading(asked->segment, position, 1));
    CHECK(pb_history_is_reading(asked->segment, position + length - 1, 1));
    CHECK(!pb_history_is_reading(asked->segment, position - 1, 1));
    CHECK(!pb_history_is_reading(asked->segment, position + length, 1));
    return -EIO;
}

TEST(what_cannot_be_read_beside_it_is_no_error)
{
    held it;
    begin(&it);
    asked = &it;
    it.ops.file_bring_in = fail_where_large;
    pb_history_file file = {it.segment->file, false, 6 * MIB};
    CHECK_INT(pb_history_bring_in(&it.history, it.segment, &file, 3 * MIB + 100, 700), 0);
    CHECK_INT(brought_position, 3 * MIB + 100);
    CHECK_INT(brought_length, 700);
    CHECK_INT(dropped, 1);
    CHECK_INT(atomic_load(&it.history.read_bytes), 700);
    CHECK(!pb_history_is_reading(it.segment, 0, SEGMENT_BYTES));
    end(&it);
}

TEST(what_the_page_cache_gets_lies_in_large_pages_where_it_may)
{
    held it;
    begin(&it);
    it.ops.file_bring_in = bring_nothing_in;
    pb_history_file file = {it.segment->file, false, 6 * MIB};
    static const int64_t positions[][4] = {
        {3 * MIB, MIB, 2 * MIB, 2 * MIB},
        {4 * MIB + 5000, 700, 4 * MIB, 2 * MIB},
        {6 * MIB, MIB, 6 * MIB, MIB},
        {7 * MIB + 5000, 700, 7 * MIB + 5000, 700},
    };
    for (size_t i = 0; i < sizeof positions / sizeof positions[0]; i++) {
        const int64_t *one = positions[i];
        CHECK_INT(pb_history_bring_in(&it.history, it.segment, &file, one[0], one[1]), 0);
        CHECK_INT(brought_position, one[2]);
        CHECK_INT(brought_length, one[3]);
    }
    end(&it);
}

TEST(slow_readers_do_not_keep_all_of_it)
{
    held it;
    pb_piece *sent[12];
    int count = 0;
    begin(&it);
    for (int i = 0; i < 12; i++) {
        CHECK_INT(bring_in(&it, (int64_t)i * MIB, MIB), 0);
        sent[count] = pb_history_pin(it.segment, (int64_t)i * MIB);
        count += sent[count] != NULL;
    }
    CHECK_INT(count, CAPACITY_BYTES / MIB / 2);
    CHECK(pb_history_holds(it.segment, 11 * MIB, MIB));
    CHECK(pb_history_pin(it.segment, 5) == sent[0]); /* which takes nothing more */
    pb_history_unpin(sent[0]);
    for (int i = 0; i < count; i++)
        pb_history_unpin(sent[i]);
    CHECK_INT(it.history.pinned_bytes, 0);
    end(&it);
}

TEST(a_segment_that_is_gone_takes_its_pieces_with_it)
{
    held it;
    begin(&it);
    CHECK_INT(bring_in(&it, 0, MIB), 0);
    CHECK_INT(bring_in(&it, MIB, 1000), 0);
    pb_segment_release(it.segment);
    it.segment = NULL;
    CHECK_INT(it.history.held_bytes, 0);
    CHECK(pb_list_empty(&it.history.pieces) && pb_list_empty(&it.history.views));
    CHECK_INT(pb_history_trim(&it.history), 0); /* the memory of the large one */
    CHECK_INT(pb_history_trim(&it.history), PB_IO_FOREVER);
    CHECK_INT(it.history.buffers.clean_count, 1);
    end(&it);
}

TEST(where_a_file_cannot_be_read_past_the_page_cache_it_is_read_through_it)
{
    for (int when_read = 0; when_read < 2; when_read++) {
        held it;
        begin(&it);
        fails_when_read = when_read != 0;
        direct_error = -EINVAL;
        CHECK_INT(bring_in(&it, 5000, MIB - 5000), 0);
        CHECK(usual_reads > 0 && dropped == 1);
        CHECK_INT(direct_reads, when_read);
        uint8_t buffer[5000];
        CHECK_INT(pb_history_copy(it.segment, buffer, sizeof buffer, 5000), sizeof buffer);
        check_bytes(buffer, 5000, sizeof buffer);
        end(&it);
    }
}

enum { TOGETHER_ROUNDS = 24 }; /* each piece twice: from the third time on it is the page cache's */

typedef struct together {
    held *it;
    pthread_barrier_t *barrier;
} together;

static void *bring_all(void *context)
{
    together *one = context;
    held *it = one->it;
    for (int round = 0; round < TOGETHER_ROUNDS; round++) {
        pthread_barrier_wait(one->barrier);
        int64_t position = (int64_t)(round % 12) * MIB;
        CHECK_INT(bring_in(it, position, MIB), 0);
        pb_piece *piece = pb_history_pin(it->segment, position + 77);
        if (piece != NULL) {
            int64_t length = 300;
            check_bytes(pb_piece_bytes(piece, it->segment, position + 77, &length), position + 77, length);
            pb_history_unpin(piece);
        }
        (void)pb_history_trim(&it->history);
    }
    return NULL;
}

TEST(many_that_want_the_same_read_it_once)
{
    held it;
    begin(&it);
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    together one = {&it, &barrier};
    CHECK_INT(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, bring_all, &one), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK_INT(pthread_barrier_destroy(&barrier), 0);
    CHECK_INT(atomic_load(&it.history.read_bytes), (int64_t)TOGETHER_ROUNDS * MIB);
    CHECK_INT(usual_reads, 0);
    end(&it);
}

CHECK_MAIN()
