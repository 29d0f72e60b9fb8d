/* Giving a large file's blocks back before it is unlinked: what is cut, and when nothing is. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/linux/posix.h"
#include "tests/check.h"

enum { LARGE_BYTES = 20 << 20, SMALL_BYTES = 1 << 20 };

static pb_io *io;
static char directory[] = "/tmp/pybroker-test-drain-XXXXXX";
static char path[64];
static char other[64];
static int64_t taken_bytes;

static void set_up(void)
{
    pb_failure failure = {0};
    CHECK_INT(pb_io_open("epoll", &io, &failure), 0);
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/file", directory);
    snprintf(other, sizeof other, "%s/other", directory);
}

static void make_file(int64_t size)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(file >= 0);
    CHECK_INT(ftruncate(file, size), 0);
    close(file);
}

static void tear_down(void)
{
    CHECK_INT(unlink(path), 0);
    CHECK_INT(rmdir(directory), 0);
    memcpy(directory + sizeof directory - sizeof "XXXXXX", "XXXXXX", sizeof "XXXXXX");
    io->ops->close(io);
}

TEST(what_nobody_else_has_is_cut_until_little_is_left)
{
    set_up();
    make_file(LARGE_BYTES);
    CHECK_INT(io->ops->path_drain(io, path, SMALL_BYTES, &taken_bytes), 0);
    int64_t left = io->ops->path_size(io, path);
    CHECK(left > 0 && left <= SMALL_BYTES);
    tear_down();
}

TEST(larger_pieces_leave_one_of_them)
{
    enum { PIECE_BYTES = 8 << 20 };
    set_up();
    make_file(LARGE_BYTES);
    CHECK_INT(io->ops->path_drain(io, path, PIECE_BYTES, &taken_bytes), 0);
    CHECK_INT(io->ops->path_size(io, path), PIECE_BYTES);
    CHECK_INT(io->ops->path_drain(io, path, PIECE_BYTES, &taken_bytes), 0);
    CHECK_INT(io->ops->path_size(io, path), PIECE_BYTES);
    tear_down();
}

TEST(a_small_file_stays_as_it_is)
{
    set_up();
    make_file(SMALL_BYTES);
    CHECK_INT(io->ops->path_drain(io, path, SMALL_BYTES, &taken_bytes), 0);
    CHECK_INT(io->ops->path_size(io, path), SMALL_BYTES);
    tear_down();
}

TEST(a_file_that_somebody_reads_stays_whole)
{
    set_up();
    make_file(LARGE_BYTES);
    int reader = open(path, O_RDONLY);
    CHECK(reader >= 0);
    CHECK_INT(io->ops->path_drain(io, path, SMALL_BYTES, &taken_bytes), -EBUSY);
    CHECK_INT(io->ops->path_size(io, path), LARGE_BYTES);
    close(reader);
    CHECK_INT(io->ops->path_drain(io, path, SMALL_BYTES, &taken_bytes), 0);
    CHECK(io->ops->path_size(io, path) <= SMALL_BYTES);
    tear_down();
}

TEST(a_file_with_another_name_stays_whole)
{
    set_up();
    make_file(LARGE_BYTES);
    CHECK_INT(link(path, other), 0);
    CHECK_INT(io->ops->path_drain(io, path, SMALL_BYTES, &taken_bytes), -EBUSY);
    CHECK_INT(io->ops->path_size(io, other), LARGE_BYTES);
    CHECK_INT(unlink(other), 0);
    tear_down();
}

TEST(what_is_no_file_is_left_alone)
{
    set_up();
    CHECK_INT(io->ops->path_drain(io, path, SMALL_BYTES, &taken_bytes), -ENOENT);
    make_file(LARGE_BYTES);
    CHECK_INT(symlink(path, other), 0);
    CHECK_INT(io->ops->path_drain(io, other, SMALL_BYTES, &taken_bytes), -ELOOP);
    CHECK_INT(io->ops->path_drain(io, directory, SMALL_BYTES, &taken_bytes), -EISDIR);
    CHECK_INT(io->ops->path_size(io, path), LARGE_BYTES);
    CHECK_INT(unlink(other), 0);
    tear_down();
}

CHECK_MAIN()
