/* PB_ASSERT holds in every build, and a failed one ends the process by SIGABRT with a line that says where. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "tests/check.h"

/* Runs PB_ASSERT(value) in a child; its stderr goes to `output`. Returns the child's wait status. */
static int assert_in_child(int value, char *output, size_t capacity_bytes)
{
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        PB_ASSERT(value == 1);
        _exit(0);
    }
    close(ends[1]);
    size_t length_bytes = 0;
    ssize_t got = 0;
    while ((got = read(ends[0], output + length_bytes, capacity_bytes - 1 - length_bytes)) > 0) {
        length_bytes += (size_t)got;
    }
    output[length_bytes] = '\0';
    close(ends[0]);
    int status = 0;
    CHECK_INT(waitpid(child, &status, 0), child);
    return status;
}

TEST(a_true_condition_passes_silently)
{
    char output[512];
    CHECK_INT(assert_in_child(1, output, sizeof(output)), 0);
    CHECK_STR(output, "");
}

TEST(a_false_condition_aborts_and_says_where)
{
    char output[512];
    const int status = assert_in_child(0, output, sizeof(output));
    CHECK(WIFSIGNALED(status));
    CHECK_INT(WTERMSIG(status), SIGABRT);
    CHECK(strstr(output, "assertion failed: value == 1 (tests/base/test_assert.c:") != NULL);
}

CHECK_MAIN()
