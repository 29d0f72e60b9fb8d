/* Replaying tail rings into segments: on the simulated machine, after kills. */
#include <errno.h>
#include <stdlib.h>

#include "io/sim/sim.h"
#include "log/engine/ring_replay.h"
#include "tests/check.h"

enum { RING_BYTES = 4 * PB_DIRECT_BLOCK_BYTES, START = 5000 };

static const char LOG_DIRECTORY[] = "/data/topic-3";
static const char SEGMENT[] = "/data/topic-3/00000000000000000100.log";

typedef struct rig {
    pb_io *io;
    pb_ring_pool *pool;
    pb_tail_ring *ring;
    char path[128];
    int file;
} rig;

static uint8_t byte_at(int64_t position)
{
    return (uint8_t)(1 + position % 251);
}

static int make_file(pb_io *io, const char *path, int64_t length)
{
    int file = io->ops->file_open(io, path, PB_OPEN_WRITE | PB_OPEN_CREATE);
    CHECK(file >= 0);
    for (int64_t p = 0; p < length; p++) {
        uint8_t byte = byte_at(p);
        CHECK_INT(io->ops->file_write(io, file, &(struct iovec){&byte, 1}, 1, p), 1);
    }
    return file;
}

/* A segment of START bytes, and a ring with `gathered` more. */
static void rig_open(rig *it, int64_t gathered)
{
    *it = (rig){0};
    CHECK_INT(pb_io_sim_open(3, &it->io), 0);
    CHECK_INT(it->io->ops->directory_make(it->io, "/data"), 0);
    CHECK_INT(it->io->ops->directory_make(it->io, LOG_DIRECTORY), 0);
    pb_ring_pool_options options = {
        .io = it->io, .directory = "/dev/shm/rings", .budget_bytes = INT64_C(1) << 20, .ring_bytes = RING_BYTES};
    pb_failure failure;
    CHECK_INT(pb_ring_pool_open(&options, &it->pool, &failure), 0);
    pb_ring_identity identity = {.topic = "topic", .partition = 3};
    const uint8_t id[PB_RING_UUID_BYTES] = {5};
    CHECK_INT(pb_ring_pool_add_log_dir(it->pool, "/data", id), 0);
    CHECK_INT(pb_ring_pool_take(it->pool, LOG_DIRECTORY, &identity, &it->ring), 0);
    snprintf(it->path, sizeof(it->path), "%s", it->ring->path);
    it->file = make_file(it->io, SEGMENT, START);
    pb_tail_ring_begin(it->ring, &identity, 100, START);
    for (int64_t p = START; p < START + gathered; p++)
        *pb_tail_ring_at(it->ring, p) = byte_at(p);
    pb_tail_ring_publish(it->ring, START + gathered);
}

static void put(pb_io *io, int file, int64_t position, const void *bytes, size_t length)
{
    struct iovec iov = {(void *)(uintptr_t)bytes, length};
    CHECK_INT(io->ops->file_write(io, file, &iov, 1, position), (int64_t)length);
}

static pb_io *rig_kill(rig *it)
{
    pb_io *found;
    CHECK_INT(it->io->ops->file_close(it->io, it->file), 0);
    CHECK_INT(pb_sim_crash(it->io, PB_SIM_KILL, 4, &found), 0);
    pb_ring_pool_give(it->pool, it->ring);
    pb_ring_pool_close(it->pool);
    it->io->ops->close(it->io);
    return found;
}

static int replay_found(pb_io *io, const char *path, bool look, int64_t *moved)
{
    pb_ring_content content;
    pb_failure failure = {0};
    CHECK_INT(pb_ring_inspect(io, path, &content, &failure), 0);
    CHECK(content.sealed);
    int rc = pb_ring_replay(io, path, &content, LOG_DIRECTORY, look, moved, &failure);
    CHECK(rc == 0 || strstr(failure.text, SEGMENT) != NULL);
    return rc;
}

static void check_segment(pb_io *io, int64_t length)
{
    int file = io->ops->file_open(io, SEGMENT, PB_OPEN_READ);
    CHECK_INT(io->ops->file_size(io, file), length);
    uint8_t *bytes = malloc((size_t)length);
    CHECK_INT(pb_io_read_all(io, file, bytes, (size_t)length, 0), 0);
    for (int64_t p = 0; p < length; p++)
        if (bytes[p] != byte_at(p))
            check_fail(__FILE__, __LINE__, "position %lld has %d", (long long)p, bytes[p]);
    free(bytes);
    CHECK_INT(io->ops->file_close(io, file), 0);
}

TEST(what_had_gathered_is_in_the_segment_afterwards_and_again)
{
    for (int64_t gathered = 1; gathered <= RING_BYTES; gathered += 1021) {
        rig it;
        int64_t moved;
        rig_open(&it, gathered);
        pb_io *io = rig_kill(&it);
        CHECK_INT(replay_found(io, it.path, true, &moved), 0);
        CHECK_INT(moved, gathered);
        CHECK_INT(io->ops->path_size(io, SEGMENT), START); /* looking changes nothing */
        CHECK_INT(replay_found(io, it.path, false, &moved), 0);
        CHECK_INT(moved, gathered);
        check_segment(io, START + gathered);
        CHECK_INT(replay_found(io, it.path, false, &moved), 0);
        CHECK_INT(moved, 0);
        check_segment(io, START + gathered);
        /* It is durable, as what a stop in order leaves is. */
        pb_io *cut;
        CHECK_INT(io->ops->directory_sync(io, LOG_DIRECTORY), 0);
        CHECK_INT(pb_sim_crash(io, PB_SIM_POWER_CUT, 5, &cut), 0);
        check_segment(cut, START + gathered);
        cut->ops->close(cut);
        io->ops->close(io);
    }
}

static const pb_io_ops *usual;

static int fail_to_sync(pb_io *io, int file)
{
    return usual->file_size(io, file) == START + 9000 ? -EIO : usual->file_sync(io, file);
}

/* The disk has the length, and none of the bytes. */
static int drop_what_is_lost(pb_io *io, int file, int64_t position, int64_t length)
{
    static const uint8_t zeros[9000];
    CHECK_INT(position, 0);
    CHECK_INT(length, 0);
    put(io, file, START, zeros, sizeof(zeros));
    return 0;
}

/* The ring is all there is of them: it must not be taken for one whose log has everything. */
TEST(what_a_failed_sync_lost_comes_in_once_more)
{
    rig it;
    int64_t moved;
    rig_open(&it, 9000);
    pb_io *io = rig_kill(&it);
    usual = io->ops;
    pb_io_ops failing = *usual;
    failing.file_sync = fail_to_sync;
    failing.file_drop = drop_what_is_lost;
    io->ops = &failing;
    CHECK_INT(replay_found(io, it.path, false, &moved), -EIO);
    CHECK_INT(moved, 0);
    io->ops = usual;
    CHECK_INT(replay_found(io, it.path, false, &moved), 0);
    CHECK_INT(moved, 9000);
    check_segment(io, START + 9000);
    io->ops->close(io);
}

/* The flusher had written blocks up to some byte, with zeros behind it, and extents of zeros ahead. */
TEST(a_flush_that_was_under_way_changes_nothing)
{
    static const uint8_t zeros[4096];
    for (int64_t flushed = 0; flushed <= 9000; flushed += 300) {
        for (int ahead = 0; ahead < 3; ahead++) {
            rig it;
            int64_t moved;
            rig_open(&it, 9000);
            for (int64_t p = START; p < START + flushed; p++)
                put(it.io, it.file, p, (uint8_t[]){byte_at(p)}, 1);
            int64_t end = START + flushed;
            if (ahead > 0)
                put(it.io, it.file, end, zeros, (size_t)((4096 - end % 4096) % 4096));
            if (ahead > 1)
                CHECK_INT(it.io->ops->file_truncate(it.io, it.file, 100000), 0);
            pb_io *io = rig_kill(&it);
            CHECK_INT(replay_found(io, it.path, false, &moved), 0);
            CHECK_INT(moved, 9000 - flushed);
            /* When nothing was missing the file is left as it is: recovery cuts zeros off. */
            if (moved > 0)
                check_segment(io, START + 9000);
            io->ops->close(io);
        }
    }
}

TEST(a_log_that_somebody_has_gone_on_with_is_left_alone)
{
    static const uint8_t other[] = "other bytes";
    for (int how = 0; how < 6; how++) {
        rig it;
        int64_t moved;
        rig_open(&it, 9000);
        pb_ring_content content;
        if (how == 0)
            put(it.io, it.file, START, other, sizeof(other));
        else if (how == 1)
            put(it.io, it.file, START + 8000, other, sizeof(other));
        else if (how == 2)
            put(it.io, it.file, START + 9000 + 4096, other, sizeof(other));
        else if (how == 3)
            CHECK_INT(it.io->ops->file_truncate(it.io, it.file, START - 1), 0);
        else if (how == 4)
            CHECK_INT(it.io->ops->file_close(it.io, make_file(it.io, "/data/topic-3/00000000000000000101.log", 0)), 0);
        else
            CHECK_INT(it.io->ops->rename(it.io, SEGMENT, "/data/topic-3/other"), 0);
        pb_io *io = rig_kill(&it);
        int64_t before = io->ops->path_size(io, SEGMENT);
        CHECK_INT(replay_found(io, it.path, false, &moved), -ESTALE);
        CHECK_INT(moved, 0);
        CHECK_INT(io->ops->path_size(io, SEGMENT), before);
        CHECK_INT(pb_ring_inspect(io, it.path, &content, NULL), 0); /* the ring stays */
        io->ops->close(io);
    }
}

/* Everything was in the file, and another broker has gone on with it. */
TEST(a_ring_with_nothing_to_add_does_not_cut_what_follows)
{
    rig it;
    int64_t moved;
    rig_open(&it, 700);
    for (int64_t p = START; p < START + 3000; p++)
        put(it.io, it.file, p, (uint8_t[]){byte_at(p)}, 1);
    pb_io *io = rig_kill(&it);
    CHECK_INT(replay_found(io, it.path, false, &moved), 0);
    CHECK_INT(moved, 0);
    check_segment(io, START + 3000);
    io->ops->close(io);
}

/* A disk that fails and is back: the log is closed and opened again by the same broker. */
TEST(a_ring_that_was_left_is_replayed_when_its_log_is_opened_again)
{
    rig it;
    pb_failure failure = {0};
    pb_ring_pool_stats stats;
    const uint8_t topic_id[PB_RING_UUID_BYTES] = {0};
    const uint8_t other_id[PB_RING_UUID_BYTES] = {1};
    rig_open(&it, 9000);
    pb_ring_pool_leave(it.pool, it.ring);
    pb_ring_pool_stats_read(it.pool, &stats);
    CHECK_INT(stats.taken_count, 0);
    CHECK_INT(stats.ring_count, 1);
    CHECK_INT(pb_ring_pool_replay(it.pool, LOG_DIRECTORY, other_id, 3, &failure), 0);
    CHECK_INT(pb_ring_pool_replay(it.pool, LOG_DIRECTORY, topic_id, 4, &failure), 0);
    CHECK_INT(it.io->ops->path_size(it.io, SEGMENT), START);
    CHECK_INT(it.io->ops->file_truncate(it.io, it.file, START - 1), 0);
    CHECK_INT(pb_ring_pool_replay(it.pool, LOG_DIRECTORY, topic_id, 3, &failure), -ESTALE);
    put(it.io, it.file, START - 1, (uint8_t[]){byte_at(START - 1)}, 1);
    CHECK_INT(pb_ring_pool_replay(it.pool, LOG_DIRECTORY, topic_id, 3, &failure), 0);
    check_segment(it.io, START + 9000);
    CHECK_INT(pb_ring_pool_replay(it.pool, LOG_DIRECTORY, topic_id, 3, &failure), 0);
    CHECK_INT(it.io->ops->file_close(it.io, it.file), 0);
    pb_ring_pool_close(it.pool);
    CHECK_INT(it.io->ops->path_size(it.io, it.path), -ENOENT);
    it.io->ops->close(it.io);
}

TEST(a_ring_that_was_left_outlives_the_pool)
{
    rig it;
    int64_t moved;
    rig_open(&it, 9000);
    pb_ring_pool_leave(it.pool, it.ring);
    pb_ring_pool_close(it.pool);
    CHECK_INT(it.io->ops->file_close(it.io, it.file), 0);
    CHECK_INT(replay_found(it.io, it.path, false, &moved), 0);
    CHECK_INT(moved, 9000);
    it.io->ops->close(it.io);
}

TEST(a_ring_of_an_older_version_is_not_taken_for_an_empty_one)
{
    pb_io *io;
    pb_ring_content content;
    const char path[] = "/data/old.ring";
    static _Alignas(512) uint8_t head[PB_STORE_HEAD_BYTES];
    const uint8_t id[PB_RING_UUID_BYTES] = {5};
    CHECK_INT(pb_io_sim_open(3, &io), 0);
    CHECK_INT(io->ops->directory_make(io, "/data"), 0);
    int file = io->ops->file_open(io, path, PB_OPEN_WRITE | PB_OPEN_CREATE);
    CHECK_INT(io->ops->file_truncate(io, file, RING_BYTES + PB_STORE_HEAD_BYTES), 0);
    CHECK_INT(pb_ring_inspect(io, path, &content, NULL), -ENODATA);
    pb_ring_header *header = (pb_ring_header *)(void *)head;
    pb_ring_header_make(header, RING_BYTES, id, id);
    header->version = 1;
    CHECK_INT(io->ops->file_write(io, file, &(struct iovec){head, sizeof(head)}, 1, 0), sizeof(head));
    CHECK_INT(pb_ring_inspect(io, path, &content, NULL), -EPROTONOSUPPORT);
    CHECK_INT(io->ops->file_close(io, file), 0);
    io->ops->close(io);
}

static int64_t allowed_writes;
static int (*real_truncate)(pb_io *, int, int64_t);
static int64_t (*real_write)(pb_io *, int, const struct iovec *, int, int64_t);

static int64_t failing_write(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    struct iovec part = {iov->iov_base, iov->iov_len > 1000 ? 1000 : iov->iov_len};
    return allowed_writes-- > 0 ? real_write(io, file, count > 0 ? &part : iov, 1, position) : -EIO;
}

static int failing_truncate(pb_io *io, int file, int64_t size)
{
    return allowed_writes-- > 0 ? real_truncate(io, file, size) : -EIO;
}

TEST(a_replay_that_stops_half_way_is_done_again)
{
    for (int64_t writes = 0; writes < 12; writes++) {
        rig it;
        int64_t moved;
        rig_open(&it, 9000);
        CHECK_INT(it.io->ops->file_truncate(it.io, it.file, 20480), 0);
        pb_io *io = rig_kill(&it);
        const pb_io_ops *real = io->ops;
        pb_io_ops failing = *real;
        real_write = real->file_write;
        real_truncate = real->file_truncate;
        allowed_writes = writes;
        failing.file_write = failing_write;
        failing.file_truncate = failing_truncate;
        io->ops = &failing;
        int rc = replay_found(io, it.path, false, &moved);
        CHECK(rc == -EIO || (rc == 0 && writes > 9));
        io->ops = real;
        CHECK_INT(replay_found(io, it.path, false, &moved), 0);
        /* All bytes were written and only the cut is missing: that is recovery's. */
        if (writes < 9)
            check_segment(io, START + 9000);
        io->ops->close(io);
    }
}

CHECK_MAIN()
