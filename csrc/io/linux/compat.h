/*
 * Kernel constants newer than the C library and liburing of Debian 12. Each is probed at run time before it is relied
 * on; a kernel that lacks one answers -ENOSYS or -EINVAL and the caller falls back.
 */
#ifndef PB_IO_LINUX_COMPAT_H
#define PB_IO_LINUX_COMPAT_H

#include <stdint.h>
#include <sys/syscall.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* Linux 6.5, the same number on every architecture */
#endif

#define PB_MADV_POPULATE_READ 22 /* Linux 5.14, madvise(2) */
#define PB_MADV_COLLAPSE 25      /* Linux 6.1 */

/* sched_setattr(2). For an ordinary thread `runtime` is its slice in ns since Linux 6.12; older kernels ignore it. */
struct pb_sched_attr {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime;
    uint64_t deadline;
    uint64_t period;
};

/* cachestat(2): the range asked for, and the pages found. */
struct pb_cachestat_range {
    uint64_t offset;
    uint64_t length;
};

struct pb_cachestat {
    uint64_t cached_pages;
    uint64_t dirty_pages;
    uint64_t writeback_pages;
    uint64_t evicted_pages;
    uint64_t recently_evicted_pages;
};

#endif
