/* Stores and direct writes: what io.h promises of them, on the real machine and on the simulated one. */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/io.h"
#include "io/sim/sim.h"
#include "tests/check.h"

enum { RING_BYTES = 4 * PB_DIRECT_BLOCK_BYTES };

static void make_path(char *path, size_t size)
{
    snprintf(path, size, "/dev/shm/pybroker-test-%d", (int)getpid());
}

static void check_store(pb_io *io)
{
    char directory[64];
    char path[96];
    make_path(directory, sizeof(directory));
    snprintf(path, sizeof(path), "%s/one", directory);
    pb_failure failure = {0};
    CHECK_INT(io->ops->store_directory(io, directory, &failure), 0);
    CHECK_INT(io->ops->store_directory(io, directory, &failure), 0); /* it is there */
    pb_store store;
    CHECK_INT(io->ops->store_create(io, path, RING_BYTES, &store), 0);
    CHECK_INT(store.ring_bytes, RING_BYTES);
    CHECK_INT(io->ops->store_create(io, path, RING_BYTES, &(pb_store){0}), -EEXIST);
    CHECK_INT(io->ops->path_size(io, path), PB_STORE_HEAD_BYTES + RING_BYTES);
    /* Across the ring's end memory goes on at its beginning. */
    memcpy(store.head, "head", 4);
    memcpy(store.ring + RING_BYTES - 3, "abcdef", 6);
    store.ring[5] = 'x';
    char found[4];
    /* The call keeps the compiler from what it takes for granted: that two addresses are two places. */
    int file = io->ops->file_open(io, path, PB_OPEN_READ);
    CHECK_MEM(store.ring, "def", 3);
    CHECK_INT(store.ring[RING_BYTES + 5], 'x');
    CHECK_INT(pb_io_read_all(io, file, found, 4, RING_BYTES), 0);
    CHECK_MEM(found, "head", 4);
    CHECK_INT(pb_io_read_all(io, file, found, 3, RING_BYTES - 3), 0);
    CHECK_MEM(found, "abc", 3);
    io->ops->store_close(io, &store);
    CHECK_INT(pb_io_read_all(io, file, found, 3, 0), 0); /* closing leaves the file */
    CHECK_MEM(found, "def", 3);
    CHECK_INT(io->ops->file_close(io, file), 0);
    CHECK_INT(io->ops->unlink(io, path), 0);
    CHECK_INT(io->ops->directory_remove(io, directory), 0);
}

static void check_unnamed(pb_io *io, const char *directory)
{
    char path[96];
    char found[3];
    struct iovec text = {(void *)(uintptr_t)"abc", 3};
    snprintf(path, sizeof(path), "%s/named-%d", directory, (int)getpid());
    int file = io->ops->file_make_unnamed(io, directory);
    CHECK(file >= 0);
    CHECK_INT(pb_io_write_all(io, file, &text, 1, 0), 0);
    CHECK_INT(io->ops->path_size(io, path), -ENOENT);
    CHECK_INT(io->ops->file_name(io, file, path), 0);
    CHECK_INT(io->ops->path_size(io, path), 3);
    CHECK_INT(io->ops->file_close(io, file), 0);
    file = io->ops->file_open(io, path, PB_OPEN_READ);
    CHECK_INT(pb_io_read_all(io, file, found, 3, 0), 0);
    CHECK_MEM(found, "abc", 3);
    CHECK_INT(io->ops->file_close(io, file), 0);
    file = io->ops->file_make_unnamed(io, directory);
    CHECK_INT(io->ops->file_name(io, file, path), -EEXIST);
    CHECK_INT(io->ops->file_close(io, file), 0);
    CHECK_INT(io->ops->path_size(io, path), 3);
    CHECK_INT(io->ops->unlink(io, path), 0);
    CHECK_INT(io->ops->file_make_unnamed(io, "/tmp/no such directory"), -ENOENT);
}

TEST(a_file_without_a_name_can_be_given_one)
{
    pb_io *io;
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    check_unnamed(io, "/tmp");
    io->ops->close(io);
    CHECK_INT(pb_io_sim_open(1, &io), 0);
    CHECK_INT(io->ops->directory_make(io, "/tmp"), 0);
    check_unnamed(io, "/tmp");
    io->ops->close(io);
}

TEST(a_store_lies_in_memory_twice_and_in_its_file)
{
    pb_io *io;
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    check_store(io);
    io->ops->close(io);
    CHECK_INT(pb_io_sim_open(1, &io), 0);
    check_store(io);
    io->ops->close(io);
}

TEST(a_ring_begins_where_a_large_page_can)
{
    enum { LARGE = 2 << 20 };
    pb_io *io;
    pb_store store;
    char directory[64];
    char path[96];
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    make_path(directory, sizeof(directory));
    snprintf(path, sizeof(path), "%s/large", directory);
    CHECK_INT(io->ops->store_directory(io, directory, NULL), 0);
    CHECK_INT(io->ops->store_create(io, path, LARGE, &store), 0);
    CHECK_INT((uintptr_t)store.ring % LARGE, 0);
    store.ring[LARGE - 1] = 'x';
    store.head[0] = 'h';
    CHECK_INT(store.ring[(size_t)2 * LARGE - 1], 'x');
    CHECK_INT(store.ring[0], 0);
    io->ops->store_close(io, &store);
    CHECK_INT(io->ops->unlink(io, path), 0);
    CHECK_INT(io->ops->directory_remove(io, directory), 0);
    io->ops->close(io);
}

TEST(a_directory_that_is_not_on_tmpfs_or_is_open_to_others_is_refused)
{
    pb_io *io;
    pb_failure failure = {0};
    char directory[64];
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    CHECK_INT(io->ops->store_directory(io, "/proc", &failure), -EINVAL);
    CHECK(strstr(failure.text, "/proc is not on tmpfs") != NULL);
    CHECK_INT(io->ops->store_directory(io, "/dev/shm/pybroker-none/none", &failure), -ENOENT);
    make_path(directory, sizeof(directory));
    CHECK_INT(io->ops->store_directory(io, directory, &failure), 0);
    struct stat status;
    CHECK_INT(stat(directory, &status), 0);
    CHECK_INT(status.st_mode & 0777, 0700);
    CHECK_INT(chmod(directory, 0777), 0);
    CHECK_INT(io->ops->store_directory(io, directory, &failure), -EPERM);
    CHECK(strstr(failure.text, "nobody else may write") != NULL);
    CHECK_INT(io->ops->directory_remove(io, directory), 0);
    io->ops->close(io);
    CHECK_INT(pb_io_sim_open(1, &io), 0);
    CHECK_INT(io->ops->store_directory(io, "/data/rings", &failure), -EINVAL);
    io->ops->close(io);
}

TEST(a_boot_has_an_id)
{
    pb_io *io;
    uint8_t one[PB_BOOT_ID_BYTES], other[PB_BOOT_ID_BYTES];
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    CHECK_INT(io->ops->boot_id(io, one), 0);
    CHECK_INT(io->ops->boot_id(io, other), 0);
    CHECK_MEM(one, other, sizeof(one));
    memset(other, 0, sizeof(other));
    CHECK(memcmp(one, other, sizeof(one)) != 0);
    io->ops->close(io);
}

TEST(a_simulated_kill_keeps_stores_and_a_power_cut_drops_them)
{
    pb_io *io, *killed, *cut;
    pb_store store, fresh;
    uint8_t before[PB_BOOT_ID_BYTES], after[PB_BOOT_ID_BYTES];
    CHECK_INT(pb_io_sim_open(7, &io), 0);
    CHECK_INT(io->ops->store_directory(io, "/dev/shm/rings", NULL), 0);
    CHECK_INT(io->ops->store_create(io, "/dev/shm/rings/one", RING_BYTES, &store), 0);
    memcpy(store.ring + RING_BYTES - 2, "abcd", 4);
    CHECK_INT(pb_sim_crash(io, PB_SIM_KILL, 8, &killed), 0);
    CHECK_INT(pb_sim_crash(io, PB_SIM_POWER_CUT, 9, &cut), 0);
    memcpy(store.ring, "later", 5); /* nothing that the old instance does reaches the copies */
    CHECK_INT(io->ops->boot_id(io, before), 0);
    CHECK_INT(killed->ops->boot_id(killed, after), 0);
    CHECK_MEM(before, after, sizeof(before));
    CHECK_INT(cut->ops->boot_id(cut, after), 0);
    CHECK(memcmp(before, after, sizeof(before)) != 0);
    int file = killed->ops->file_open(killed, "/dev/shm/rings/one", PB_OPEN_READ);
    char found[2];
    CHECK_INT(pb_io_read_all(killed, file, found, 2, 0), 0);
    CHECK_MEM(found, "cd", 2);
    CHECK_INT(killed->ops->file_close(killed, file), 0);
    CHECK_INT(cut->ops->path_size(cut, "/dev/shm/rings/one"), -ENOENT);
    CHECK_INT(cut->ops->store_directory(cut, "/dev/shm/rings", NULL), 0);
    CHECK_INT(cut->ops->store_create(cut, "/dev/shm/rings/one", RING_BYTES, &fresh), 0);
    cut->ops->store_close(cut, &fresh);
    io->ops->store_close(io, &store);
    cut->ops->close(cut);
    killed->ops->close(killed);
    io->ops->close(io);
}

TEST(a_simulated_durable_write_survives_a_power_cut_alone)
{
    enum { BLOCK = PB_DIRECT_BLOCK_BYTES };
    uint8_t *bytes = aligned_alloc(BLOCK, 2 * BLOCK), found[BLOCK];
    for (uint64_t seed = 0; seed < 16; seed++) {
        pb_io *io, *cut;
        CHECK_INT(pb_io_sim_open(seed, &io), 0);
        int file = io->ops->file_open(io, "/data/log", PB_OPEN_WRITE | PB_OPEN_CREATE | PB_OPEN_DIRECT);
        CHECK_INT(io->ops->directory_make(io, "/data"), 0);
        CHECK_INT(io->ops->directory_sync(io, "/data"), 0);
        memset(bytes, 'd', BLOCK);
        memset(bytes + BLOCK, 'n', BLOCK);
        struct iovec later = {bytes + BLOCK, BLOCK}, durable = {bytes, BLOCK};
        CHECK_INT(io->ops->file_write(io, file, &later, 1, BLOCK), BLOCK);
        CHECK_INT(io->ops->file_write_durable(io, file, &durable, 1, 0), BLOCK);
        CHECK_INT(io->ops->file_write(io, file, &(struct iovec){bytes, 512}, 1, 0), -EINVAL);
        CHECK_INT(io->ops->file_write(io, file, &(struct iovec){bytes + 8, BLOCK}, 1, 0), -EINVAL);
        CHECK_INT(io->ops->file_write(io, file, &durable, 1, 512), -EINVAL);
        CHECK_INT(pb_sim_crash(io, PB_SIM_POWER_CUT, seed, &cut), 0);
        int after = cut->ops->file_open(cut, "/data/log", PB_OPEN_READ);
        CHECK_INT(pb_io_read_all(cut, after, found, BLOCK, 0), 0);
        CHECK_MEM(found, bytes, BLOCK);
        CHECK_INT(cut->ops->file_close(cut, after), 0);
        CHECK_INT(io->ops->file_close(io, file), 0);
        cut->ops->close(cut);
        io->ops->close(io);
    }
    free(bytes);
}

TEST(a_direct_file_takes_whole_blocks)
{
    enum { BLOCK = PB_DIRECT_BLOCK_BYTES };
    pb_io *io;
    char path[] = "/var/tmp/pybroker-direct-XXXXXX";
    int made = mkstemp(path);
    CHECK(made >= 0);
    close(made);
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    int file = io->ops->file_open(io, path, PB_OPEN_WRITE | PB_OPEN_DIRECT);
    if (file != -EINVAL) { /* the file system may refuse, which callers fall back from */
        uint8_t *bytes = aligned_alloc(BLOCK, 2 * BLOCK);
        memset(bytes, 'a', 2 * BLOCK);
        CHECK(file >= 0);
        CHECK_INT(io->ops->file_write(io, file, &(struct iovec){bytes, 2 * BLOCK}, 1, 0), 2 * BLOCK);
        CHECK_INT(io->ops->file_write_durable(io, file, &(struct iovec){bytes, BLOCK}, 1, 2 * BLOCK), BLOCK);
        CHECK_INT(io->ops->file_size(io, file), 3 * BLOCK);
        CHECK_INT(io->ops->file_close(io, file), 0);
        free(bytes);
    }
    unlink(path);
    io->ops->close(io);
}

TEST(blocks_behind_the_end_are_given_back)
{
    pb_io *io;
    char path[] = "/var/tmp/pybroker-ahead-XXXXXX";
    int made = mkstemp(path);
    CHECK(made >= 0);
    close(made);
    CHECK_INT(pb_io_open("epoll", &io, NULL), 0);
    int file = io->ops->file_open(io, path, PB_OPEN_WRITE);
    CHECK_INT(io->ops->file_write(io, file, &(struct iovec){"abc", 3}, 1, 0), 3);
    if (io->ops->file_allocate(io, file, 0, 8 << 20) == 0) {
        struct stat before, after;
        CHECK_INT(stat(path, &before), 0);
        CHECK(before.st_blocks * 512 >= 8 << 20);
        CHECK_INT(io->ops->file_release_ahead(io, file), 0);
        CHECK_INT(stat(path, &after), 0);
        CHECK(after.st_blocks * 512 <= 1 << 16);
        CHECK_INT(after.st_size, 3);
        CHECK_INT(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
        CHECK_INT(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    }
    CHECK_INT(io->ops->file_close(io, file), 0);
    unlink(path);
    io->ops->close(io);
}

CHECK_MAIN()
