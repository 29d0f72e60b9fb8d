/*
 * What the backends do where the kernel, or a seccomp filter, refuses system calls that newer kernels have. Each case
 * runs in a child, which bears its filter to the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/io.h"
#include "io/linux/compat.h"
#include "tests/check.h"

/* From now on this process gets `error` for the system call. */
static void refuse(long call, int error)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    CHECK_INT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_INT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

/* Run `body` where the call is refused. */
static void with_refused(long call, int error, void (*body)(void))
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        refuse(call, error);
        body();
        _Exit(0);
    }
    int status = 0;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
}

static void io_uring_says_why(const char *words)
{
    pb_io *io = NULL;
    pb_failure failure = {0};
    CHECK(pb_io_open("io_uring", &io, &failure) < 0);
    if (strstr(failure.text, words) == NULL)
        check_fail(__FILE__, __LINE__, "\"%s\" does not say \"%s\"", failure.text, words);
    CHECK_INT(pb_io_open("auto", &io, &failure), 0);
    CHECK_STR(io->ops->name, "epoll");
    pb_loop *loop = NULL;
    CHECK_INT(io->ops->loop_open(io, &loop, &failure), 0);
    io->ops->loop_wake(loop);
    CHECK_INT(io->ops->loop_turn(loop, PB_IO_FOREVER), 0);
    io->ops->loop_close(loop);
    io->ops->close(io);
}

static void forbidden(void)
{
    io_uring_says_why("forbidden, by kernel.io_uring_disabled or by a seccomp filter: Operation not permitted");
}

static void hidden(void)
{
    io_uring_says_why("no io_uring, or a seccomp filter hides it");
}

static void too_old(void)
{
    io_uring_says_why("lacks what Linux 6.1 brought");
}

static void without_memory(void)
{
    io_uring_says_why("ulimit -l");
}

TEST(epoll_serves_where_any_call_of_io_uring_is_refused)
{
    with_refused(SYS_io_uring_setup, EPERM, forbidden);
    with_refused(SYS_io_uring_setup, ENOSYS, hidden);
    with_refused(SYS_io_uring_setup, EINVAL, too_old);
    with_refused(SYS_io_uring_setup, ENOMEM, without_memory);
    with_refused(SYS_io_uring_register, EPERM, forbidden);
    with_refused(SYS_io_uring_enter, EPERM, forbidden);
}

/* What a reader is told of a page that was just written, and of one that was dropped. */
static void residency(void)
{
    pb_io *io = NULL;
    pb_failure failure = {0};
    CHECK_INT(pb_io_open("epoll", &io, &failure), 0);
    char path[] = "/tmp/pybroker-test-XXXXXX";
    int file = mkstemp(path);
    CHECK(file >= 0);
    CHECK_INT(unlink(path), 0);
    char page[4096] = {1};
    struct iovec iov = {page, sizeof page};
    CHECK_INT(pb_io_write_all(io, file, &iov, 1, 0), 0);
    CHECK_INT(io->ops->file_resident(io, file, 0, sizeof page), 1);
    CHECK_INT(io->ops->file_sync(io, file), 0);
    CHECK_INT(io->ops->file_drop(io, file, 0, sizeof page), 0);
    struct statfs file_system;
    CHECK_INT(fstatfs(file, &file_system), 0);
    bool stays = file_system.f_type == TMPFS_MAGIC; /* what lies in memory only cannot be dropped */
    CHECK_INT(io->ops->file_resident(io, file, 0, sizeof page), stays ? 1 : 0);
    CHECK_INT(close(file), 0);
    io->ops->close(io);
}

TEST(residency_is_known_without_cachestat)
{
    residency();
    with_refused(SYS_cachestat, ENOSYS, residency);
    with_refused(SYS_cachestat, EPERM, residency);
}

CHECK_MAIN()
