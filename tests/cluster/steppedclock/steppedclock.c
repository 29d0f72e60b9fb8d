/*
 * steppedclock: a library to preload, in which the time of day is what the machine's clock says plus an offset.
 *
 *     LD_PRELOAD=.../steppedclock.so STEPPEDCLOCK_FILE=<path> <program>
 *
 * The file holds one int64_t: the offset in nanoseconds. Whoever writes it steps the clock of all processes that have
 * it mapped, as an administrator or a bad time server would; clocks that only run forward are left alone, as they are
 * then. Without the file the program ends: a test that steps no clock would show nothing.
 *
 * Any thread. A deadline on the stepped clock that the kernel keeps (CLOCK_REALTIME in a timed wait) is not moved;
 * neither Python, nor the data plane, nor a JVM waits like that.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SECOND_NS = 1000000000 };

typedef int clock_function(clockid_t, struct timespec *);
typedef void *symbol_function(void *, const char *);

static const volatile int64_t *offset_ns; /* NULL until the constructor has run */
static clock_function *real_clock_gettime;
static symbol_function *real_dlsym;

static void die(const char *what)
{
    fprintf(stderr, "steppedclock: %s: %s\n", what, strerror(errno));
    _exit(127);
}

/* The C library's own dlsym, under the version that its architecture began with. */
static void find_dlsym(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    for (size_t i = 0; i < sizeof versions / sizeof *versions && real_dlsym == NULL; i++)
        *(void **)&real_dlsym = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (real_dlsym == NULL)
        die("this C library has no dlsym");
}

static void find_clock(void)
{
    if (real_dlsym == NULL)
        find_dlsym();
    *(void **)&real_clock_gettime = real_dlsym(RTLD_NEXT, "clock_gettime");
    if (real_clock_gettime == NULL)
        die("this C library has no clock_gettime");
}

__attribute__((constructor)) static void map_offset(void)
{
    const char *path = getenv("STEPPEDCLOCK_FILE");
    int file = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        die("STEPPEDCLOCK_FILE");
    void *mapped = mmap(NULL, sizeof *offset_ns, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        die("cannot map STEPPEDCLOCK_FILE");
    close(file);
    offset_ns = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (real_clock_gettime == NULL)
        find_clock();
    int result = real_clock_gettime(clock, now);
    if (result == 0 && offset_ns != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t time_ns = (int64_t)now->tv_sec * SECOND_NS + now->tv_nsec + *offset_ns;
        now->tv_sec = (time_t)(time_ns / SECOND_NS);
        now->tv_nsec = (long)(time_ns % SECOND_NS);
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec time;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &time) != 0)
        return -1;
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    if (result != NULL)
        *result = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *now, int base)
{
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, now) == 0 ? base : 0;
}

/* A JVM looks clock_gettime up in the C library itself, past what was preloaded. The last line has to be a tail call:
 * RTLD_NEXT is about whoever called. */
void *dlsym(void *restrict handle, const char *restrict name)
{
    if (real_dlsym == NULL)
        find_dlsym();
    if (handle != RTLD_NEXT && strcmp(name, "clock_gettime") == 0)
        return (void *)(uintptr_t)clock_gettime;
    return real_dlsym(handle, name);
}
