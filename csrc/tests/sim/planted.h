/* A simulation with a bug switched on. What finds it ends the process, so each run has a child of its own. Header only.
 */
#ifndef PB_TESTS_SIM_PLANTED_H
#define PB_TESTS_SIM_PLANTED_H

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"

/* Whether `play` of the bug fails; 0 is no bug. */
static inline bool planted_is_found(void (*play)(int planted), int planted)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, STDERR_FILENO);
        play(planted);
        _exit(0);
    }
    int status;
    CHECK_INT(waitpid(child, &status, 0), child);
    return status != 0;
}

/* All bugs up to `count` are found, in as many seeds as this is told. */
static inline void planted_are_found(void (*play)(int planted), int count, int seeds)
{
    for (int planted = 1; planted < count; planted++)
        if (!planted_is_found(play, planted))
            check_fail(__FILE__, __LINE__, "bug %d was not found in %d seeds", planted, seeds);
}

#endif
