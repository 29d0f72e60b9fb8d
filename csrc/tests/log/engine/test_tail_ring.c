/* Tail rings and their pool; what a kill at any moment leaves in a ring's file. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log/engine/ring_header.h"
#include "log/engine/tail_ring.h"
#include "tests/check.h"

enum { RING_BYTES = 16 * PB_DIRECT_BLOCK_BYTES };

static char directory[64];

static pb_ring_pool *open_pool(pb_io *io, int rings)
{
    snprintf(directory, sizeof(directory), "/dev/shm/pybroker-ring-test-%d", (int)getpid());
    pb_ring_pool_options options = {
        .io = io,
        .directory = directory,
        .budget_bytes = rings * (int64_t)(PB_STORE_HEAD_BYTES + RING_BYTES) + 1,
        .ring_bytes = RING_BYTES,
        .session_id = {0xab, 0xcd},
    };
    pb_ring_pool *pool;
    pb_failure failure = {0};
    int rc = pb_ring_pool_open(&options, &pool, &failure);
    if (rc != 0)
        check_fail(__FILE__, __LINE__, "%s", failure.text);
    return pool;
}

static const uint8_t LOG_DIR_ID[PB_RING_UUID_BYTES] = {1};

static int take(pb_ring_pool *pool, pb_tail_ring **out)
{
    pb_ring_identity identity = {0};
    CHECK_INT(pb_ring_pool_add_log_dir(pool, "/data/one", LOG_DIR_ID), 0);
    int rc = pb_ring_pool_take(pool, "/data/one/topic-3", &identity, out);
    CHECK(rc != 0 || memcmp(identity.directory_id, LOG_DIR_ID, sizeof(LOG_DIR_ID)) == 0);
    return rc;
}

static pb_ring_identity identity_of(int32_t partition)
{
    pb_ring_identity identity = {.topic = "topic", .partition = partition};
    identity.directory_id[0] = 1;
    identity.topic_id[0] = 2;
    return identity;
}

/* What the file of a ring says; its bytes go to `bytes` when that is not NULL. */
static int parse_file(pb_io *io, const char *path, pb_ring_content *content, uint8_t *bytes)
{
    uint8_t head[PB_STORE_HEAD_BYTES];
    int file = io->ops->file_open(io, path, PB_OPEN_READ);
    if (file < 0)
        return file;
    int64_t size = io->ops->file_size(io, file);
    CHECK_INT(pb_io_read_all(io, file, head, sizeof(head), RING_BYTES), 0);
    if (bytes != NULL)
        CHECK_INT(pb_io_read_all(io, file, bytes, RING_BYTES, 0), 0);
    CHECK_INT(io->ops->file_close(io, file), 0);
    return pb_ring_header_parse(head, size, content);
}

TEST(a_ring_tells_whose_bytes_it_holds)
{
    pb_io *io;
    pb_tail_ring *ring;
    pb_ring_content content;
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    pb_ring_pool *pool = open_pool(io, 1);
    CHECK_INT(take(pool, &ring), 0);
    CHECK_INT(parse_file(io, ring->path, &content, NULL), 0);
    CHECK(!content.sealed);
    pb_ring_identity identity = identity_of(3);
    pb_tail_ring_begin(ring, &identity, 1000, 5000);
    CHECK_INT(pb_tail_ring_free_bytes(ring), RING_BYTES - (5000 - 4096));
    memset(pb_tail_ring_at(ring, 5000), 'a', RING_BYTES - 904); /* across the end */
    pb_tail_ring_publish(ring, 5000 + RING_BYTES - 904);
    CHECK_INT(*pb_tail_ring_at(ring, RING_BYTES), 'a');
    CHECK_INT(pb_tail_ring_free_bytes(ring), 0);
    pb_tail_ring_advance(ring, 8192);
    CHECK_INT(pb_tail_ring_free_bytes(ring), 4096);
    CHECK_INT(parse_file(io, ring->path, &content, NULL), 0);
    CHECK(content.sealed);
    CHECK_INT(content.segment_base, 1000);
    CHECK_INT(content.start_position, 8192);
    CHECK_INT(content.end_position, 4096 + RING_BYTES);
    CHECK_STR(content.identity.topic, "topic");
    CHECK_INT(content.identity.partition, 3);
    CHECK_INT(content.session_id[1], 0xcd);
    pb_ring_pool_give(pool, ring);
    CHECK_INT(parse_file(io, ring->path, &content, NULL), 0);
    CHECK(!content.sealed);
    pb_ring_pool_close(pool);
    CHECK(access(directory, F_OK) != 0);
    io->ops->close(io);
}

TEST(a_ring_whose_file_is_gone_or_another_one_is_not_used_again)
{
    pb_io *io;
    pb_tail_ring *ring, *again;
    pb_ring_pool_stats stats;
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    pb_ring_pool *pool = open_pool(io, 4);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(take(pool, &ring), 0);
        CHECK(pb_ring_pool_has(pool, ring));
        CHECK(access(ring->path, W_OK) != 0 || geteuid() == 0);
        CHECK_INT(unlink(ring->path), 0);
        CHECK(!pb_ring_pool_has(pool, ring));
        char *path = strdup(ring->path);
        if (i == 1)
            CHECK_INT(io->ops->file_close(io, io->ops->file_open(io, path, PB_OPEN_WRITE | PB_OPEN_CREATE)), 0);
        pb_ring_pool_give(pool, ring);
        CHECK_INT(pb_ring_pool_lost_count(pool), i + 1);
        pb_ring_pool_stats_read(pool, &stats);
        CHECK_INT(stats.ring_count, i + 1); /* its memory is kept for readers */
        CHECK_INT(access(path, F_OK), i == 1 ? 0 : -1);
        (void)unlink(path);
        free(path);
    }
    /* One that nobody has at the moment is looked at before it is handed out. */
    CHECK_INT(take(pool, &ring), 0);
    pb_ring_pool_give(pool, ring);
    CHECK_INT(unlink(ring->path), 0);
    CHECK_INT(take(pool, &again), 0);
    CHECK(pb_ring_pool_has(pool, again));
    CHECK_INT(pb_ring_pool_lost_count(pool), 3);
    pb_ring_pool_give(pool, again);
    pb_ring_pool_close(pool);
    CHECK(access(directory, F_OK) != 0);
    io->ops->close(io);
}

TEST(a_pool_keeps_to_its_budget_and_uses_rings_again)
{
    pb_io *io;
    pb_tail_ring *rings[3];
    pb_ring_pool_stats stats;
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    pb_ring_pool *pool = open_pool(io, 2);
    CHECK_INT(take(pool, &rings[0]), 0);
    CHECK_INT(take(pool, &rings[1]), 0);
    CHECK_INT(take(pool, &rings[2]), -EAGAIN);
    pb_ring_pool_give(pool, rings[0]);
    pb_ring_pool_stats_read(pool, &stats);
    CHECK_INT(stats.ring_count, 2);
    CHECK_INT(stats.taken_count, 1);
    CHECK_INT(stats.used_bytes, 2 * (PB_STORE_HEAD_BYTES + RING_BYTES));
    CHECK_INT(take(pool, &rings[2]), 0);
    CHECK(rings[2] == rings[0]);
    pb_tail_ring *none;
    pb_ring_identity identity;
    const uint8_t other[PB_RING_UUID_BYTES] = {2};
    CHECK_INT(pb_ring_pool_take(pool, "/data/one/more/topic-3", &identity, &none), -EXDEV);
    CHECK_INT(pb_ring_pool_take(pool, "/data/two/topic-3", &identity, &none), -EXDEV);
    CHECK_INT(pb_ring_pool_add_log_dir(pool, "/data/one", other), -EEXIST);
    pb_ring_pool_give(pool, rings[1]);
    pb_ring_pool_give(pool, rings[2]);
    pb_ring_pool_close(pool);
    io->ops->close(io);
}

/* A ring's bytes say which segment and position they are for. */
static uint8_t pattern(int64_t segment_base, int64_t position)
{
    return (uint8_t)((uint64_t)(segment_base * 131 + position) * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

/* Appends, flushes and rolls as fast as it can, from one segment and partition to the next, until it is killed. */
static _Noreturn void run_until_killed(pb_tail_ring *ring)
{
    for (int32_t round = 0;; round++) {
        pb_ring_identity identity = identity_of(round % 1000);
        int64_t base = round % 1000 * INT64_C(1000);
        int64_t end = round % 7 * 1000;
        pb_tail_ring_begin(ring, &identity, base, end);
        for (int step = 0; step < 5; step++) {
            int64_t length = 100 + (round + step) % 900;
            for (int64_t i = 0; i < length; i++)
                *pb_tail_ring_at(ring, end + i) = pattern(base, end + i);
            end += length;
            pb_tail_ring_publish(ring, end);
            if (step % 2 == 1)
                pb_tail_ring_advance(ring, end - length / 2);
        }
        pb_tail_ring_advance(ring, end);
    }
}

static void check_found(const pb_ring_content *content, const uint8_t *bytes)
{
    CHECK_INT(content->segment_base, content->identity.partition * INT64_C(1000));
    for (int64_t p = content->start_position; p < content->end_position; p++)
        if (bytes[p % RING_BYTES] != pattern(content->segment_base, p))
            check_fail(__FILE__, __LINE__, "segment %lld position %lld of [%lld, %lld) is another's",
                       (long long)content->segment_base, (long long)p, (long long)content->start_position,
                       (long long)content->end_position);
}

TEST(a_kill_at_any_moment_leaves_a_header_that_is_true_or_says_nothing)
{
    enum { KILLS = 60 };
    static uint8_t bytes[RING_BYTES];
    int sealed = 0;
    pb_io *io;
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    for (int kill_number = 0; kill_number < KILLS; kill_number++) {
        pb_tail_ring *ring;
        pb_ring_content content;
        pb_ring_pool *pool = open_pool(io, 1);
        CHECK_INT(take(pool, &ring), 0);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0)
            run_until_killed(ring);
        usleep((useconds_t)(200 + kill_number * 37 % 1500));
        CHECK_INT(kill(child, SIGKILL), 0);
        CHECK_INT(waitpid(child, NULL, 0), child);
        CHECK_INT(parse_file(io, ring->path, &content, bytes), 0);
        if (content.sealed)
            check_found(&content, bytes);
        sealed += content.sealed;
        pb_ring_pool_give(pool, ring);
        pb_ring_pool_close(pool);
    }
    CHECK(sealed > 0);
    io->ops->close(io);
}

TEST(a_header_that_is_not_whole_is_refused)
{
    _Alignas(512) uint8_t head[PB_STORE_HEAD_BYTES] = {0};
    const int64_t size = PB_STORE_HEAD_BYTES + RING_BYTES;
    const uint8_t id[16] = {9};
    pb_ring_content content;
    pb_ring_header *header = (pb_ring_header *)(void *)head;
    CHECK_INT(pb_ring_header_parse(head, size, &content), -ENODATA);
    CHECK_INT(pb_ring_header_parse(head, 100, &content), -ENODATA);
    pb_ring_header_make(header, RING_BYTES, id, id);
    CHECK_INT(pb_ring_header_parse(head, size, &content), 0);
    CHECK_INT(pb_ring_header_parse(head, size - 4096, &content), -EBADMSG);
    pb_tail_ring ring = {.store = {head, NULL, RING_BYTES}, .header = header};
    pb_ring_identity identity = identity_of(0);
    pb_tail_ring_begin(&ring, &identity, 5, 10);
    CHECK_INT(pb_ring_header_parse(head, size, &content), 0);
    CHECK(content.sealed);
    for (size_t i = 12; i < offsetof(pb_ring_header, identity) + sizeof(identity); i++) {
        head[i] ^= 0x40;
        CHECK_INT(pb_ring_header_parse(head, size, &content), -EBADMSG);
        head[i] ^= 0x40;
    }
    header->version = PB_RING_VERSION + 1;
    CHECK_INT(pb_ring_header_parse(head, size, &content), -EPROTONOSUPPORT);
    header->version = PB_RING_VERSION;
    atomic_store(&header->end_position, 10 + RING_BYTES + 1);
    CHECK_INT(pb_ring_header_parse(head, size, &content), -EBADMSG);
    atomic_store(&header->end_position, 9);
    CHECK_INT(pb_ring_header_parse(head, size, &content), -EBADMSG);
    atomic_store(&header->end_position, 10);
    atomic_store(&header->start_position, 9);
    CHECK_INT(pb_ring_header_parse(head, size, &content), -EBADMSG);
    head[0] = 'x';
    CHECK_INT(pb_ring_header_parse(head, size, &content), -EBADMSG);
}

CHECK_MAIN()
