/*
 * Stores for the real backends: files on tmpfs, mapped with their ring twice in a row. Any thread; no state.
 *
 * All pages of a store are allocated and mapped when it is made. Writing to a page that tmpfs then had no room for
 * would be a SIGBUS. A fault in the middle of an append costs more than the append. Rings get large pages: a direct
 * write from them costs a third of the CPU, and the disk takes it in a few long pieces instead of hundreds.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "io/linux/compat.h"
#include "io/linux/posix.h"

_Static_assert(PB_ZEROS_BYTES <= PB_LARGE_PAGE_BYTES, "the zeros fit into one");

/* Records lie in it: nobody else may read, and nobody else may put files there. */
static int check_directory(int fd, const char *path, pb_failure *failure)
{
    struct stat status;
    struct statfs system;
    if (fstat(fd, &status) < 0 || fstatfs(fd, &system) < 0)
        return pb_fail(failure, -errno, "cannot look at the tail ring directory %s", path);
    if (system.f_type != TMPFS_MAGIC)
        return pb_fail(failure, -EINVAL,
                       "the tail ring directory %s is not on tmpfs: set pybroker.tail.ring.directory to one that is, "
                       "such as a directory in /dev/shm",
                       path);
    if (status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return pb_fail(
            failure, -EPERM,
            "the tail ring directory %s belongs to user %u and has mode %o: it must be the broker's own, and "
            "nobody else may write to it",
            path, (unsigned)status.st_uid, (unsigned)(status.st_mode & 07777));
    return 0;
}

int pb_posix_store_directory(pb_io *io, const char *path, pb_failure *failure)
{
    (void)io;
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return pb_fail(failure, -errno, "cannot make the tail ring directory %s", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return pb_fail(failure, -errno, "cannot open the tail ring directory %s", path);
    int result = check_directory(fd, path, failure);
    close(fd);
    return result;
}

/* Addresses for `length` bytes that begin at a multiple of a large page. NULL: there are none. */
static uint8_t *reserve_addresses(size_t length)
{
    uint8_t *base =
        mmap(NULL, length + PB_LARGE_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    size_t before = (PB_LARGE_PAGE_BYTES - (uintptr_t)base % PB_LARGE_PAGE_BYTES) % PB_LARGE_PAGE_BYTES;
    if (before > 0)
        munmap(base, before);
    munmap(base + before + length, PB_LARGE_PAGE_BYTES - before);
    return base + before;
}

/* Put large pages in place of what was populated. Where the kernel has none all is only slower. */
static void ask_for_large_pages(uint8_t *ring, size_t ring_bytes)
{
    size_t whole = ring_bytes - ring_bytes % PB_LARGE_PAGE_BYTES;
    if (whole > 0)
        (void)madvise(ring, whole, PB_MADV_COLLAPSE);
}

/* The ring, and then everything. */
static int map_store(int fd, size_t ring_bytes, pb_store *out)
{
    size_t all = ring_bytes + PB_STORE_HEAD_BYTES;
    struct stat status;
    if (fstat(fd, &status) < 0)
        return -errno;
    uint8_t *ring = reserve_addresses(ring_bytes + all);
    if (ring == NULL)
        return -ENOMEM;
    const int flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE;
    if (mmap(ring, ring_bytes, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED ||
        mmap(ring + ring_bytes, all, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED) {
        int result = -errno;
        munmap(ring, ring_bytes + all);
        return result;
    }
    ask_for_large_pages(ring, ring_bytes);
    if (ring_bytes % PB_LARGE_PAGE_BYTES == 0) /* or the second place is not one for them */
        ask_for_large_pages(ring + ring_bytes, ring_bytes);
    *out = (pb_store){.head = ring + 2 * ring_bytes,
                      .ring = ring,
                      .ring_bytes = ring_bytes,
                      .device = status.st_dev,
                      .inode = status.st_ino};
    return 0;
}

int pb_posix_store_create(pb_io *io, const char *path, size_t ring_bytes, pb_store *out)
{
    PB_ASSERT(ring_bytes > 0 && ring_bytes % PB_DIRECT_BLOCK_BYTES == 0);
    if (ring_bytes % (size_t)sysconf(_SC_PAGESIZE) != 0 || PB_STORE_HEAD_BYTES % sysconf(_SC_PAGESIZE) != 0)
        return -EOPNOTSUPP; /* pages larger than the head cannot be mapped like this */
    /* Nobody may open it to write: who cut it would take pages from under the process. */
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
    if (fd < 0)
        return -errno;
    int result = fallocate(fd, 0, 0, (off_t)(PB_STORE_HEAD_BYTES + ring_bytes)) < 0 ? -errno : 0;
    if (result == 0)
        result = map_store(fd, ring_bytes, out);
    close(fd);
    if (result != 0)
        (void)pb_posix_unlink(io, path);
    return result;
}

void pb_posix_store_close(pb_io *io, pb_store *store)
{
    (void)io;
    PB_ASSERT(store->head != NULL);
    munmap(store->ring, 2 * store->ring_bytes + PB_STORE_HEAD_BYTES);
    *store = (pb_store){0};
}

static const uint8_t *zeros; /* NULL: there was no memory */

static void make_zeros(void)
{
    uint8_t *page = reserve_addresses(PB_LARGE_PAGE_BYTES);
    if (page == NULL || mprotect(page, PB_LARGE_PAGE_BYTES, PROT_READ | PROT_WRITE) < 0)
        return;
    (void)madvise(page, PB_LARGE_PAGE_BYTES, MADV_HUGEPAGE);
    memset(page, 0, PB_LARGE_PAGE_BYTES); /* what was never written has no page of its own */
    zeros = page;
}

const uint8_t *pb_posix_zeros(pb_io *io)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)io;
    pthread_once(&once, make_zeros);
    return zeros;
}

bool pb_posix_store_stands(pb_io *io, const char *path, const pb_store *store)
{
    (void)io;
    struct stat status;
    return lstat(path, &status) == 0 && status.st_dev == store->device && status.st_ino == store->inode &&
           status.st_size == (off_t)(PB_STORE_HEAD_BYTES + store->ring_bytes);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int pb_posix_boot_id(pb_io *io, uint8_t id[PB_BOOT_ID_BYTES])
{
    char text[64];
    int fd = pb_posix_file_open(io, "/proc/sys/kernel/random/boot_id", PB_OPEN_READ);
    if (fd < 0)
        return fd;
    int64_t length = pb_posix_file_read(io, fd, text, sizeof text, 0);
    (void)pb_posix_file_close(io, fd);
    int digits = 0;
    for (int64_t i = 0; i < length && digits < 2 * PB_BOOT_ID_BYTES; i++) {
        int digit = hex_digit(text[i]);
        if (digit < 0)
            continue;
        uint8_t *byte = &id[digits / 2];
        *byte = (uint8_t)(digits % 2 == 0 ? digit << 4 : *byte | digit);
        digits++;
    }
    return length < 0 ? (int)length : digits == 2 * PB_BOOT_ID_BYTES ? 0 : -EBADMSG;
}
