/*
 * The part of a file that is in memory: asking, bringing in, and reading only what is there. Shared by the real
 * backends; any thread; no state but what the kernel was found to have, and each thread's way of reading.
 *
 * A page is in the page cache as soon as its read has begun, so being there is not enough: sendfile would wait for it.
 */
#include "io/linux/posix.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "io/linux/compat.h"

enum {
    SAMPLE_BYTES = 256 * 1024, /* reads come in large pieces, so one byte tells of many */
    SCRATCH_BYTES = 64 * 1024, /* small enough to stay in the CPU's cache */
    SCRATCH_USES = 16,
    MINCORE_PAGES = 256,
};

static _Thread_local enum pb_read_mode read_mode;
static atomic_int found_residency = -1;

/* ---- which way ---- */

static pb_residency probe(void)
{
    struct pb_cachestat_range range = {0, PB_POSIX_PAGE_BYTES};
    struct pb_cachestat found;
    /* Without a file to ask about, a kernel that has the call says so by a bad descriptor. A filter may refuse it. */
    bool known = syscall(SYS_cachestat, -1, &range, &found, 0) < 0 && errno == EBADF;
    return known ? PB_RESIDENCY_CACHESTAT : PB_RESIDENCY_MINCORE;
}

pb_residency pb_posix_residency(void)
{
    int residency = atomic_load_explicit(&found_residency, memory_order_relaxed);
    if (residency < 0) {
        residency = (int)probe();
        atomic_store_explicit(&found_residency, residency, memory_order_relaxed);
    }
    return (pb_residency)residency;
}

void pb_posix_force_residency(pb_residency residency)
{
    atomic_store_explicit(&found_residency, (int)residency, memory_order_relaxed);
}

/* ---- asking ---- */

static int resident_by_mincore(int file, int64_t position, int64_t length)
{
    int64_t begin = position - position % PB_POSIX_PAGE_BYTES;
    size_t mapped_bytes = (size_t)(position + length - begin);
    void *mapping = mmap(NULL, mapped_bytes, PROT_READ, MAP_SHARED, file, begin);
    if (mapping == MAP_FAILED)
        return -errno;
    int result = 1;
    for (size_t at = 0; at < mapped_bytes && result == 1; at += (size_t)MINCORE_PAGES * PB_POSIX_PAGE_BYTES) {
        unsigned char pages[MINCORE_PAGES];
        size_t left = mapped_bytes - at;
        size_t part = left < sizeof pages * PB_POSIX_PAGE_BYTES ? left : sizeof pages * PB_POSIX_PAGE_BYTES;
        if (mincore((char *)mapping + at, part, pages) < 0)
            result = -errno;
        for (size_t i = 0; result == 1 && i < (part + PB_POSIX_PAGE_BYTES - 1) / PB_POSIX_PAGE_BYTES; i++)
            result = pages[i] & 1;
    }
    munmap(mapping, mapped_bytes);
    return result;
}

/* 1 it is in memory, 0 it is not, < 0 the file system does not tell. */
static int byte_resident(int file, int64_t position)
{
    char byte;
    struct iovec iov = {&byte, 1};
    int64_t got = RETRY(preadv2(file, &iov, 1, position, RWF_NOWAIT));
    return got == -EAGAIN ? 0 : got < 0 ? (int)got : 1;
}

/* Are all its pages in the page cache, whether they have been read or not? 1, 0, or -errno. */
static int present(int file, int64_t position, int64_t length)
{
    struct pb_cachestat_range range = {(uint64_t)position, (uint64_t)length};
    struct pb_cachestat found;
    if (syscall(SYS_cachestat, file, &range, &found, 0) < 0)
        return -errno;
    int64_t pages = (position + length - 1) / PB_POSIX_PAGE_BYTES - position / PB_POSIX_PAGE_BYTES + 1;
    return found.cached_pages >= (uint64_t)pages;
}

static int resident_by_cachestat(int file, int64_t position, int64_t length)
{
    int result = present(file, position, length);
    /* From the end: the last ones come last. */
    for (int64_t at = position + length - 1; at >= position && result == 1; at -= SAMPLE_BYTES)
        result = byte_resident(file, at);
    return result;
}

int pb_posix_file_resident(pb_io *io, int file, int64_t position, int64_t length)
{
    (void)io;
    PB_ASSERT(position >= 0);
    if (length <= 0)
        return 1;
    int result = -ENOSYS;
    if (pb_posix_residency() == PB_RESIDENCY_CACHESTAT)
        result = resident_by_cachestat(file, position, length);
    return result >= 0 ? result : resident_by_mincore(file, position, length);
}

/* ---- reading only what is there ---- */

enum pb_read_mode pb_posix_read_mode(void)
{
    return read_mode;
}

void pb_posix_thread_read_mode(pb_io *io, enum pb_read_mode mode)
{
    (void)io;
    read_mode = mode;
}

/* The kernel's own read-ahead may be far larger than what is wanted, goes on from any page that it has marked, and so
 * begins inside of sendfile. */
void pb_posix_read_exactly(int file)
{
    (void)posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
}

int pb_posix_open_cached(const char *path, int mode)
{
    struct open_how how = {.flags = (uint64_t)mode, .resolve = RESOLVE_CACHED};
    int file = (int)RETRY(syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
    /* Before Linux 5.12, or refused by a filter: the directory entry is all that might have to be waited for. */
    if (file == -ENOSYS || file == -EINVAL || file == -EPERM)
        return (int)RETRY(open(path, mode));
    return file;
}

int64_t pb_posix_read_cached(int file, void *buffer, size_t length, int64_t position)
{
    /* A read that does not wait begins to read ahead all the same, so pages that are not there are left alone. */
    int there = -ENOSYS;
    if (pb_posix_residency() == PB_RESIDENCY_CACHESTAT)
        there = present(file, position, (int64_t)length);
    if (there == 1) {
        struct iovec iov = {buffer, length};
        int64_t got = RETRY(preadv2(file, &iov, 1, position, RWF_NOWAIT));
        if (got != -EOPNOTSUPP)
            return got;
    }
    if (there == 0 || resident_by_mincore(file, position, (int64_t)length) == 0)
        return -EAGAIN;
    return RETRY(pread(file, buffer, length, position));
}

/* ---- bringing in ---- */

/* Have a range read without waiting for it, wait for its end, and look whether it is all there. Nothing is copied, and
 * the thread is back from the kernel in between, so others get its CPU. 1 it is all in memory, else 0. */
static int read_aside(int file, int64_t position, int64_t length)
{
    char last;
    if (posix_fadvise(file, position, length, POSIX_FADV_WILLNEED) != 0 ||
        RETRY(pread(file, &last, 1, position + length - 1)) != 1)
        return 0;
    /* Pages of a read that failed are present, and not found by this. */
    return resident_by_mincore(file, position, length) == 1;
}

/* Pages of this size come by a mapping that asks for them. MADV_RANDOM: and for nothing besides. True: all is in
 * memory, though in usual pages where the file system has no others, or the memory none at hand. */
static bool read_large(int file, int64_t position, int64_t length)
{
    if (position % PB_LARGE_PAGE_BYTES != 0 || length % PB_LARGE_PAGE_BYTES != 0)
        return false;
    size_t bytes = (size_t)length;
    void *mapping = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, position);
    if (mapping == MAP_FAILED)
        return false;
    bool read = madvise(mapping, bytes, MADV_HUGEPAGE) == 0 && madvise(mapping, bytes, MADV_RANDOM) == 0 &&
                madvise(mapping, bytes, PB_MADV_POPULATE_READ) == 0;
    munmap(mapping, bytes);
    return read;
}

/* Each byte is read: what is not there is brought, and what cannot be read is an error. */
static int read_through(int file, int64_t position, int64_t length)
{
    static _Thread_local uint8_t scratch[SCRATCH_BYTES];
    while (length > 0) {
        struct iovec iov[SCRATCH_USES];
        int count = 0;
        for (int64_t left = length; left > 0 && count < SCRATCH_USES; left -= SCRATCH_BYTES)
            iov[count++] = (struct iovec){scratch, left < SCRATCH_BYTES ? (size_t)left : SCRATCH_BYTES};
        int64_t got = RETRY(preadv(file, iov, count, position));
        if (got <= 0)
            return got < 0 ? (int)got : -ENODATA;
        position += got;
        length -= got;
    }
    return 0;
}

int pb_posix_file_bring_in(pb_io *io, int file, int64_t position, int64_t length)
{
    (void)io;
    PB_ASSERT(position >= 0 && length >= 0);
    if (length == 0)
        return 0;
    pb_posix_read_exactly(file);
    if (read_large(file, position, length) || read_aside(file, position, length))
        return 0;
    return read_through(file, position, length);
}
