/* Choosing a backend, the loops that every caller of short reads and writes needs, and the sync that may fail. Any
 * thread. */
#include "io/io.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

int pb_io_open(const char *name, pb_io **out, pb_failure *failure)
{
    /* sendfile to a peer that has gone has no MSG_NOSIGNAL: its error is the answer, not a signal. */
    signal(SIGPIPE, SIG_IGN);
    if (strcmp(name, "io_uring") == 0)
        return pb_io_uring_open(out, failure);
    if (strcmp(name, "epoll") == 0)
        return pb_io_epoll_open(out, failure);
    if (strcmp(name, "auto") != 0)
        return pb_fail(failure, -EINVAL, "unknown I/O backend '%s': use auto, io_uring or epoll", name);
    /* Containers and hardened kernels refuse io_uring; that is normal, not an error. */
    if (pb_io_uring_open(out, NULL) == 0)
        return 0;
    return pb_io_epoll_open(out, failure);
}

int pb_io_write_all(pb_io *io, int file, struct iovec *iov, int count, int64_t position)
{
    while (count > 0) {
        int batch = count < PB_IO_MAX_IOVECS ? count : PB_IO_MAX_IOVECS;
        int64_t wrote = io->ops->file_write(io, file, iov, batch, position);
        if (wrote < 0)
            return (int)wrote;
        if (wrote == 0)
            return -EIO;
        position += wrote;
        while (count > 0 && (size_t)wrote >= iov->iov_len) {
            wrote -= (int64_t)iov->iov_len;
            iov++;
            count--;
        }
        if (wrote > 0) {
            PB_ASSERT(count > 0);
            iov->iov_base = (char *)iov->iov_base + wrote;
            iov->iov_len -= (size_t)wrote;
        }
    }
    return 0;
}

int pb_io_sync(pb_io *io, int file)
{
    int rc = io->ops->file_sync(io, file);
    if (rc != 0)
        (void)io->ops->file_drop(io, file, 0, 0);
    return rc;
}

int pb_io_read_blocks(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    size_t blocks_bytes = (length + PB_DIRECT_BLOCK_BYTES - 1) / PB_DIRECT_BLOCK_BYTES * (size_t)PB_DIRECT_BLOCK_BYTES;
    PB_ASSERT((uintptr_t)buffer % PB_DIRECT_BLOCK_BYTES == 0 && position % PB_DIRECT_BLOCK_BYTES == 0);
    for (size_t got = 0; got < length;) {
        int64_t count = io->ops->file_read(io, file, (char *)buffer + got, blocks_bytes - got, position + (int64_t)got);
        if (count < 0)
            return (int)count;
        got += (size_t)count;
        /* Part of a block is read at the file's end only. */
        if (got < length && (count == 0 || got % PB_DIRECT_BLOCK_BYTES != 0))
            return -ENODATA;
    }
    return 0;
}

int pb_io_read_all(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    char *at = buffer;
    while (length > 0) {
        int64_t got = io->ops->file_read(io, file, at, length, position);
        if (got < 0)
            return (int)got;
        if (got == 0)
            return -ENODATA;
        PB_ASSERT((size_t)got <= length);
        at += got;
        position += got;
        length -= (size_t)got;
    }
    return 0;
}
