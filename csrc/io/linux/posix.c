/*
 * Blocking calls on files and names, clocks and randomness for the real backends. Any thread; no state.
 * -EINTR never leaves this file.
 */
#include "io/linux/posix.h"
#include "io/descriptors.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum {
    ONE_SEGMENT_BYTES = 64 * 1024, /* of a device that takes as much, as loopback and those that cut segments do */
};

int64_t pb_posix_monotonic_ns(pb_io *io)
{
    (void)io;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t pb_posix_wall_ms(pb_io *io)
{
    (void)io;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int pb_posix_random(pb_io *io, void *buffer, size_t length)
{
    (void)io;
    PB_ASSERT(length <= 256);
    int64_t got = RETRY(getrandom(buffer, length, 0));
    return got < 0 ? (int)got : 0;
}

/* The modes of new files, less what the umask takes away: records are for the broker's user and group. */
enum { FILE_MODE = 0640, DIRECTORY_MODE = 0750 };

/* Opening a pipe or a device waits for nothing then. io_uring would not wait for the disk either, so that of a regular
 * file is taken back. */
enum { OPEN_ANYTHING = O_NONBLOCK | O_NOCTTY };

static int open_anything(const char *path, int mode)
{
    int file = (int)RETRY(open(path, mode | OPEN_ANYTHING, FILE_MODE));
    struct stat status;
    /* Somebody has a lease on it for a moment, as pb_posix_path_drain: of a regular file that is waited for. */
    if (file == -EAGAIN && stat(path, &status) == 0 && S_ISREG(status.st_mode))
        file = (int)RETRY(open(path, mode, FILE_MODE));
    return file;
}

static int check_regular(int file, int mode)
{
    struct stat status;
    if (fstat(file, &status) < 0)
        return -errno;
    if (S_ISDIR(status.st_mode))
        return -EISDIR;
    if (!S_ISREG(status.st_mode))
        return -EMEDIUMTYPE;
    return fcntl(file, F_SETFL, mode & O_DIRECT) < 0 ? -errno : 0;
}

/* Files count as such until pb_posix_file_close: `file` is one, or why there is none. */
static int counted(int file)
{
    if (file < 0)
        pb_descriptors_give_file();
    return file;
}

static int open_regular(const char *path, int flags)
{
    int mode = (flags & PB_OPEN_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC;
    if (flags & PB_OPEN_CREATE)
        mode |= O_CREAT;
    if (flags & PB_OPEN_EXCLUSIVE)
        mode |= O_EXCL;
    if (flags & PB_OPEN_TRUNCATE)
        mode |= O_TRUNC;
    if (flags & PB_OPEN_DIRECT)
        mode |= O_DIRECT;
    bool cached = mode == (O_RDONLY | O_CLOEXEC) && pb_posix_read_mode() == PB_READ_RESIDENT;
    int file = cached ? pb_posix_open_cached(path, mode | OPEN_ANYTHING) : open_anything(path, mode);
    struct stat status;
    /* A socket; a disk that is gone says the same. */
    if (file == -ENXIO && stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return -EMEDIUMTYPE;
    if (file < 0)
        return file;
    int result = check_regular(file, mode);
    if (result < 0) {
        close(file);
        return result;
    }
    if (flags & PB_OPEN_EXACT)
        pb_posix_read_exactly(file);
    return file;
}

int pb_posix_file_open(pb_io *io, const char *path, int flags)
{
    (void)io;
    if (!pb_descriptors_take_file((flags & PB_OPEN_DIRECT) != 0))
        return -EMFILE;
    return counted(open_regular(path, flags));
}

int pb_posix_file_make_unnamed(pb_io *io, const char *directory)
{
    (void)io;
    if (!pb_descriptors_take_file(true))
        return -EMFILE;
    return counted((int)RETRY(open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, FILE_MODE)));
}

/* By which the kernel finds an open file, with or without another name. */
typedef struct handle_path {
    char text[32];
} handle_path;

static handle_path path_of(int file)
{
    handle_path path;
    snprintf(path.text, sizeof(path.text), "/proc/self/fd/%d", file);
    return path;
}

int pb_posix_file_reopen_direct(pb_io *io, int file)
{
    (void)io;
    if (!pb_descriptors_take_file(true))
        return -EMFILE;
    return counted((int)RETRY(open(path_of(file).text, O_RDONLY | O_DIRECT | O_CLOEXEC)));
}

int pb_posix_file_name(pb_io *io, int file, const char *path)
{
    handle_path unnamed = path_of(file);
    (void)io;
    return (int)RETRY(linkat(AT_FDCWD, unnamed.text, AT_FDCWD, path, AT_SYMLINK_FOLLOW));
}

int pb_posix_file_close(pb_io *io, int file)
{
    (void)io;
    PB_ASSERT(file >= 0);
    pb_descriptors_give_file();
    return close(file) < 0 && errno != EINTR ? -errno : 0;
}

int64_t pb_posix_file_read(pb_io *io, int file, void *buffer, size_t length, int64_t position)
{
    (void)io;
    enum pb_read_mode mode = pb_posix_read_mode();
    if (mode == PB_READ_RESIDENT)
        return pb_posix_read_cached(file, buffer, length, position);
    if (mode == PB_READ_EXACT)
        pb_posix_read_exactly(file);
    return RETRY(pread(file, buffer, length, position));
}

int64_t pb_posix_file_write(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    (void)io;
    PB_ASSERT(count > 0 && count <= PB_IO_MAX_IOVECS);
    return RETRY(pwritev(file, iov, count, position));
}

int64_t pb_posix_file_write_durable(pb_io *io, int file, const struct iovec *iov, int count, int64_t position)
{
    (void)io;
    PB_ASSERT(count > 0 && count <= PB_IO_MAX_IOVECS);
    return RETRY(pwritev2(file, iov, count, position, RWF_DSYNC));
}

int pb_posix_file_sync(pb_io *io, int file)
{
    (void)io;
    return (int)RETRY(fdatasync(file));
}

int pb_posix_file_truncate(pb_io *io, int file, int64_t size)
{
    (void)io;
    PB_ASSERT(size >= 0);
    return (int)RETRY(ftruncate(file, size));
}

int pb_posix_file_allocate(pb_io *io, int file, int64_t position, int64_t length)
{
    (void)io;
    return (int)RETRY(fallocate(file, FALLOC_FL_KEEP_SIZE, position, length));
}

/* Cutting a file at its end frees them, and would make it look written to. The blocks that a file system accounts for
 * do not tell whether there are any: XFS and ext2 account for more than that. */
int pb_posix_file_release_ahead(pb_io *io, int file)
{
    struct stat status;
    if (fstat(file, &status) < 0)
        return -errno;
    int result = pb_posix_file_truncate(io, file, status.st_size);
    const struct timespec times[2] = {status.st_atim, status.st_mtim};
    return result == 0 && futimens(file, times) < 0 ? -errno : result;
}

int64_t pb_posix_file_size(pb_io *io, int file)
{
    (void)io;
    struct stat status;
    return fstat(file, &status) < 0 ? -(int64_t)errno : status.st_size;
}

int64_t pb_posix_file_modified_ms(pb_io *io, int file)
{
    (void)io;
    struct stat status;
    if (fstat(file, &status) < 0)
        return -(int64_t)errno;
    /* A time before 1970 is no failure. */
    int64_t modified_ms = (int64_t)status.st_mtim.tv_sec * 1000 + status.st_mtim.tv_nsec / 1000000;
    return modified_ms < 0 ? 0 : modified_ms;
}

int64_t pb_posix_path_size(pb_io *io, const char *path)
{
    (void)io;
    struct stat status;
    return stat(path, &status) < 0 ? -(int64_t)errno : status.st_size;
}

int pb_posix_file_writeback(pb_io *io, int file, int64_t position, int64_t length)
{
    (void)io;
    return (int)RETRY(sync_file_range(file, position, length, SYNC_FILE_RANGE_WRITE));
}

int pb_posix_file_drop(pb_io *io, int file, int64_t position, int64_t length)
{
    (void)io;
    return -posix_fadvise(file, position, length, POSIX_FADV_DONTNEED);
}

/* A user who could read a checkpoint can read the next one. Without the right to say so it keeps its own mode. */
static void keep_mode(const char *from, const char *to)
{
    struct stat made;
    struct stat replaced;
    if (lstat(to, &replaced) < 0 || !S_ISREG(replaced.st_mode) || lstat(from, &made) < 0 || !S_ISREG(made.st_mode) ||
        (made.st_mode & 07777) == (replaced.st_mode & 07777))
        return;
    (void)chmod(from, replaced.st_mode & 07777);
}

int pb_posix_rename(pb_io *io, const char *from, const char *to)
{
    (void)io;
    keep_mode(from, to);
    return rename(from, to) < 0 ? -errno : 0;
}

int pb_posix_unlink(pb_io *io, const char *path)
{
    (void)io;
    return unlink(path) < 0 ? -errno : 0;
}

int pb_posix_directory_make(pb_io *io, const char *path)
{
    (void)io;
    return mkdir(path, DIRECTORY_MODE) < 0 ? -errno : 0;
}

int pb_posix_directory_remove(pb_io *io, const char *path)
{
    (void)io;
    return rmdir(path) < 0 ? -errno : 0;
}

int pb_posix_directory_sync(pb_io *io, const char *path)
{
    (void)io;
    int fd = (int)RETRY(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0)
        return fd;
    int result = (int)RETRY(fsync(fd));
    close(fd);
    return result;
}

bool pb_posix_kernel_is(int wanted_major, int wanted_minor)
{
    struct utsname name;
    int major = 0, minor = 0;
    if (uname(&name) < 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2)
        return false;
    return major > wanted_major || (major == wanted_major && minor >= wanted_minor);
}

int pb_posix_filesystem_open(pb_io *io, const char *path)
{
    (void)io;
    /* Before, syncfs forgets what the file system itself says, such as a failed flush. */
    if (!pb_posix_kernel_is(5, 17))
        return -ENOSYS;
    if (!pb_descriptors_take_file(false))
        return -EMFILE;
    return counted((int)RETRY(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
}

int pb_posix_filesystem_sync(pb_io *io, int filesystem)
{
    (void)io;
    return (int)RETRY(syncfs(filesystem));
}

int pb_posix_filesystem_holds(pb_io *io, int filesystem, const char *path)
{
    (void)io;
    struct stat ours, theirs;
    if (fstat(filesystem, &ours) < 0 || stat(path, &theirs) < 0)
        return -errno;
    return ours.st_dev == theirs.st_dev;
}

int pb_posix_directory_list(pb_io *io, const char *path, pb_directory_visit visit, void *context)
{
    (void)io;
    DIR *directory = opendir(path);
    if (directory == NULL)
        return -errno;
    int result = 0;
    while (result == 0) {
        errno = 0;
        struct dirent *entry = readdir(directory);
        if (entry == NULL) {
            result = -errno;
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        bool is_directory = entry->d_type == DT_DIR;
        if (entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK) {
            struct stat status;
            if (fstatat(dirfd(directory), entry->d_name, &status, 0) == 0)
                is_directory = S_ISDIR(status.st_mode);
        }
        result = visit(context, entry->d_name, is_directory);
    }
    closedir(directory);
    return result;
}

/* Bytes sent, all of them or not, or -errno. */
static int64_t send_part(int fd, struct iovec *iov, int count, bool *all)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += iov[i].iov_len;
    int64_t sent = bytes == 0 ? 0 : RETRY(sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
    *all = sent == (int64_t)bytes;
    return sent;
}

/* sendfile has no per-call "do not wait", so a blocking socket is made non-blocking around the call. */
static int64_t send_range(const pb_op *op, int64_t position, size_t length, bool socket_blocks)
{
    int fd = op->socket->fd, on = 1, off = 0;
    if (socket_blocks && ioctl(fd, FIONBIO, &on) < 0)
        return -errno;
    off_t offset = position;
    int64_t sent = RETRY(sendfile(fd, op->file, &offset, length));
    if (socket_blocks && ioctl(fd, FIONBIO, &off) < 0)
        return -errno;
    return sent;
}

/* The pieces to send: memory, a range of the file, memory. The buffers hold what was copied of the file. */
typedef struct send_plan {
    struct iovec before[PB_IO_MAX_IOVECS + 1];
    struct iovec after[PB_IO_MAX_IOVECS + 1];
    int before_count;
    int after_count;
    int64_t position;
    size_t length;
    uint8_t first_page[PB_POSIX_PAGE_BYTES];
    uint8_t last_page[PB_POSIX_PAGE_BYTES];
} send_plan;

static void plan_all(send_plan *plan, const pb_op *op)
{
    plan->before_count = op->iov_count - op->tail_count;
    plan->after_count = op->tail_count;
    memcpy(plan->before, op->iov, (size_t)plan->before_count * sizeof *op->iov);
    memcpy(plan->after, op->iov + plan->before_count, (size_t)plan->after_count * sizeof *op->iov);
    plan->position = op->position;
    plan->length = op->length;
}

/* TCP puts no more than 17 pieces of memory into a segment. A page of a file is one of them, and so is each piece that
 * was copied. So 64 KiB from anywhere in a file, with a header, would leave as two segments, and each wakes its reader.
 * On loopback the second one costs as much as all the rest. With the pages at both ends copied it leaves as one. */
static void copy_ends(send_plan *plan, const pb_op *op)
{
    int64_t begin = op->position, end = op->position + (int64_t)op->length;
    int64_t whole_begin = (begin + PB_POSIX_PAGE_BYTES - 1) / PB_POSIX_PAGE_BYTES * PB_POSIX_PAGE_BYTES;
    int64_t whole_end = end / PB_POSIX_PAGE_BYTES * PB_POSIX_PAGE_BYTES;
    size_t first_bytes = (size_t)(whole_begin - begin), last_bytes = (size_t)(end - whole_end);
    if (op->length > ONE_SEGMENT_BYTES || whole_begin >= whole_end ||
        (first_bytes > 0 && pread(op->file, plan->first_page, first_bytes, begin) != (ssize_t)first_bytes) ||
        (last_bytes > 0 && pread(op->file, plan->last_page, last_bytes, whole_end) != (ssize_t)last_bytes))
        return; /* sendfile meets the same error */
    plan->before[plan->before_count++] = (struct iovec){plan->first_page, first_bytes};
    memmove(plan->after + 1, plan->after, (size_t)plan->after_count * sizeof *plan->after);
    plan->after[0] = (struct iovec){plan->last_page, last_bytes};
    plan->after_count++;
    plan->position = whole_begin;
    plan->length = (size_t)(whole_end - whole_begin);
}

/* The first failure ends it; after something was sent it is told when it comes again with the rest. */
static int64_t send_parts(const pb_op *op, bool socket_blocks)
{
    send_plan plan;
    bool all;
    plan_all(&plan, op);
    copy_ends(&plan, op);
    int64_t head = send_part(op->socket->fd, plan.before, plan.before_count, &all);
    if (!all)
        return head;
    int64_t sent = send_range(op, plan.position, plan.length, socket_blocks);
    if (sent < 0)
        return head > 0 ? head : sent;
    int64_t tail = sent < (int64_t)plan.length ? 0 : send_part(op->socket->fd, plan.after, plan.after_count, &all);
    return head + sent + (tail > 0 ? tail : 0);
}

int64_t pb_posix_sendfile(const pb_op *op, bool socket_blocks)
{
    if (op->iov_count == 0)
        return send_range(op, op->position, op->length, socket_blocks);
    /* Corked, so that head, range and tail leave in as few packets as they fit in, and wake their reader once. */
    int fd = op->socket->fd, on = 1, off = 0;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    int64_t result = send_parts(op, socket_blocks);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
    return result;
}

int pb_wakeup_open(pb_wakeup *wakeup)
{
    wakeup->event_fd = eventfd(0, EFD_CLOEXEC);
    atomic_init(&wakeup->sleeping, false);
    atomic_init(&wakeup->woken, false);
    return wakeup->event_fd < 0 ? -errno : 0;
}

void pb_wakeup_close(pb_wakeup *wakeup)
{
    close(wakeup->event_fd);
}

void pb_wakeup_signal(pb_wakeup *wakeup)
{
    atomic_store(&wakeup->woken, true);
    if (atomic_exchange(&wakeup->sleeping, false)) {
        uint64_t one = 1;
        int64_t wrote = RETRY(write(wakeup->event_fd, &one, sizeof one));
        PB_ASSERT(wrote == sizeof one);
    }
}

bool pb_wakeup_prepare(pb_wakeup *wakeup)
{
    atomic_store(&wakeup->sleeping, true);
    if (!atomic_load(&wakeup->woken))
        return true;
    pb_wakeup_finish(wakeup);
    return false;
}

void pb_wakeup_finish(pb_wakeup *wakeup)
{
    atomic_store(&wakeup->sleeping, false);
    atomic_store(&wakeup->woken, false);
}
