/* The witness of stalls (stalls.h): a thread on each CPU, before all others, sleeps for moments. Where it wakes late,
 * that CPU ran nothing: the kernel was busy with a call that it does not interrupt, or a host had taken the CPU away.
 *
 * Prints a line when it watches, then one for each time that a thread was late, until a signal or its parent's end.
 */
#define _GNU_SOURCE
#include "client/client.h"
#include "client/engine.h"
#include "modes/modes.h"
#include "stats/stalls.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static const uint64_t SLEEP_NS = 500000;

/* From all CPUs together since the machine started, as the kernel counts it; 0 where it counts nothing. */
static uint64_t stolen_ns(void)
{
    FILE *file = fopen("/proc/stat", "r");
    if (!file)
        return 0;
    uint64_t ticks = 0;
    if (fscanf(file, "cpu %*u %*u %*u %*u %*u %*u %*u %" SCNu64, &ticks) != 1)
        ticks = 0;
    fclose(file);
    return ticks * (1000000000ull / (uint64_t)sysconf(_SC_CLK_TCK));
}

static void *watch(void *argument)
{
    unsigned cpu = (unsigned)(uintptr_t)argument;
    for (;;) {
        uint64_t due_ns = pbl_now_ns() + SLEEP_NS;
        nanosleep(&(struct timespec){.tv_nsec = (long)SLEEP_NS}, NULL);
        uint64_t back_ns = pbl_now_ns();
        if (back_ns < due_ns + PBL_LATE_MIN_NS)
            continue;
        printf("late %u %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", cpu, due_ns, back_ns, stolen_ns());
        fflush(stdout);
    }
    return NULL;
}

/* False: there is no such CPU, or none for us. */
static bool start_on(unsigned cpu)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    struct sched_param first = {.sched_priority = sched_get_priority_max(SCHED_FIFO)};
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
    pthread_attr_setschedparam(&attributes, &first);
    pthread_attr_setaffinity_np(&attributes, sizeof only, &only);
    pthread_t thread;
    int error = pthread_create(&thread, &attributes, watch, (void *)(uintptr_t)cpu);
    pthread_attr_destroy(&attributes);
    if (error && error != EINVAL)
        pbl_fail("cannot watch CPU %u before all other threads: %s; it wants to be root", cpu, strerror(error));
    return error == 0;
}

bool pbl_witness_mode(const struct pbl_options *options)
{
    (void)options;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsigned watched_count = 0, cpu_count = (unsigned)sysconf(_SC_NPROCESSORS_CONF);
    flockfile(stdout); /* nobody was late before this line */
    for (unsigned cpu = 0; cpu < cpu_count && cpu < CPU_SETSIZE; cpu++)
        watched_count += start_on(cpu);
    printf("watches %u CPUs, %" PRIu64 " stolen\n", watched_count, stolen_ns());
    fflush(stdout);
    funlockfile(stdout);
    for (;;)
        pause();
}
