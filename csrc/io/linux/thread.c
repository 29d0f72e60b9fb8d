/*
 * Threads of the real backends: a body is a step that is run again and again; between steps the thread sleeps on a
 * gate.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "io/linux/compat.h"
#include "io/linux/posix.h"

#define URGENT_SLICE_NS 100000 /* the shortest that Linux allows */
#define BEHIND_NICE 10         /* more than the process has: a ninth of its weight */

/* Owner: whoever started it, until pb_posix_thread_join. `woken` and `wake_at_ns` are guarded by `mutex`. */
struct pb_thread {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t gate;
    pb_step_fn step;
    void *context;
    enum pb_thread_rank rank;
    int64_t wake_at_ns; /* PB_IO_FOREVER: only by a wake */
    bool woken;
};

static void wait_for_wake(pb_thread *thread)
{
    pthread_mutex_lock(&thread->mutex);
    while (!thread->woken) {
        if (thread->wake_at_ns == PB_IO_FOREVER) {
            pthread_cond_wait(&thread->gate, &thread->mutex);
            continue;
        }
        struct timespec until = {thread->wake_at_ns / 1000000000, thread->wake_at_ns % 1000000000};
        if (pthread_cond_timedwait(&thread->gate, &thread->mutex, &until) == ETIMEDOUT)
            break;
    }
    thread->woken = false;
    thread->wake_at_ns = PB_IO_FOREVER;
    pthread_mutex_unlock(&thread->mutex);
}

enum disk_class { DISK_CLASS_NONE = 0, DISK_CLASS_BEST_EFFORT = 2, DISK_CLASS_IDLE = 3 }; /* of ioprio_set(2) */

/* A wish: not every I/O scheduler looks at it. */
static void set_disk_class(enum disk_class class, int level)
{
    enum { WHO_PROCESS = 1, CLASS_SHIFT = 13 };
    (void)syscall(SYS_ioprio_set, WHO_PROCESS, 0, (int)class << CLASS_SHIFT | level);
}

/* A thread that goes before others on the CPU would by default do so on the disk. Beside one that writes without pause,
 * mq-deadline let nothing else through for a tenth of a second. Even the journal and the file system's own reads
 * waited, for which the same thread waits next. */
static void share_disk(void)
{
    enum { USUAL_LEVEL = 4 };
    set_disk_class(DISK_CLASS_BEST_EFFORT, USUAL_LEVEL);
}

/* A short slice gives the thread an early deadline, so the scheduler lets it in when it wakes although others are busy.
 * Needs no privilege. A kernel that refuses leaves latency to chance. More weight (a nice value of -10) does harm: the
 * thread breaks into clients on the same machine at every wake, and a fetch costs 1.5 times as much. */
static void shorten_slice(void)
{
    struct pb_sched_attr attributes = {0};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) < 0 || attributes.policy != SCHED_OTHER)
        return;
    attributes.runtime = URGENT_SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/* Less weight lets all others in at once when they wake. The idle class would too. But a thread that waits while it
 * holds a lock of ours, or of the file system, would keep others waiting for a second where the CPUs are busy.
 */
static void step_behind(void)
{
    id_t self = (id_t)gettid(); /* to Linux, of this thread alone */
    (void)setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + BEHIND_NICE);
}

/* A short slice does not help while others are owed more of the CPU, or are in the kernel. A thread that waits for a
 * disk 1,500 times a second was let in 3 to 10 ms late once in a hundred times. Without the right it is urgent. */
static void go_before(void)
{
    const struct sched_param lowest = {.sched_priority = 1};
    share_disk();
    if (sched_setscheduler(0, SCHED_RR, &lowest) < 0)
        shorten_slice();
}

static void *run(void *argument)
{
    pb_thread *thread = argument;
    if (thread->rank == PB_RANK_URGENT)
        shorten_slice();
    else if (thread->rank == PB_RANK_FIRST)
        go_before();
    else if (thread->rank == PB_RANK_BEHIND)
        step_behind();
    for (;;) {
        enum pb_step next = thread->step(thread->context);
        if (next == PB_STEP_END)
            return NULL;
        if (next == PB_STEP_IDLE)
            wait_for_wake(thread);
    }
}

int pb_posix_thread_start(pb_io *io, const char *name, enum pb_thread_rank rank, pb_step_fn step, void *context,
                          pb_thread **out)
{
    (void)io;
    pb_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL)
        return -ENOMEM;
    thread->step = step;
    thread->rank = rank;
    thread->context = context;
    thread->wake_at_ns = PB_IO_FOREVER;
    pthread_mutex_init(&thread->mutex, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&thread->gate, &attributes);
    pthread_condattr_destroy(&attributes);
    *out = thread; /* before it runs: the step may wake itself through it */
    int error = pthread_create(&thread->thread, NULL, run, thread);
    if (error != 0) {
        *out = NULL;
        free(thread);
        return -error;
    }
    char short_name[16]; /* the kernel keeps 15 characters */
    snprintf(short_name, sizeof short_name, "%s", name);
    pthread_setname_np(thread->thread, short_name);
    return 0;
}

void pb_posix_thread_wake(pb_thread *thread)
{
    pthread_mutex_lock(&thread->mutex);
    thread->woken = true;
    pthread_cond_signal(&thread->gate);
    pthread_mutex_unlock(&thread->mutex);
}

void pb_posix_thread_sleep_until(pb_thread *thread, int64_t ns)
{
    pthread_mutex_lock(&thread->mutex);
    thread->wake_at_ns = ns;
    pthread_mutex_unlock(&thread->mutex);
}

void pb_posix_thread_join(pb_thread *thread)
{
    int error = pthread_join(thread->thread, NULL);
    PB_ASSERT(error == 0);
    pthread_cond_destroy(&thread->gate);
    pthread_mutex_destroy(&thread->mutex);
    free(thread);
}

void pb_posix_nap(pb_io *io, int64_t ns)
{
    (void)io;
    struct timespec left = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&left, NULL);
}

void pb_posix_thread_yield_disk(pb_io *io, bool yield)
{
    (void)io;
    set_disk_class(yield ? DISK_CLASS_IDLE : DISK_CLASS_NONE, 0);
}

/* Threads of this process that go first. Each may hold a CPU for as long as it has work. */
static atomic_int first_count;

static int cpu_count(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) < 0 ? 1 : CPU_COUNT(&allowed);
}

int pb_posix_thread_go_first(pb_io *io, bool first)
{
    (void)io;
    if (!first) {
        const struct sched_param ordinary = {0};
        if (sched_setscheduler(0, SCHED_OTHER, &ordinary) < 0)
            return -errno;
        atomic_fetch_sub(&first_count, 1);
        shorten_slice();
        return 0;
    }
    int result = atomic_fetch_add(&first_count, 1) + 1 < cpu_count() ? 0 : -EAGAIN;
    if (result == 0)
        share_disk();
    const struct sched_param lowest = {.sched_priority = 1};
    if (result == 0 && sched_setscheduler(0, SCHED_RR, &lowest) < 0)
        result = -errno;
    if (result < 0)
        atomic_fetch_sub(&first_count, 1);
    return result;
}

int64_t pb_posix_thread_cpu_ns(pb_io *io)
{
    (void)io;
    struct timespec used = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * 1000000000LL + used.tv_nsec;
}
