/* pbload: a load generator for Kafka brokers. One process, one thread, pre-encoded pipelined requests.
 *
 * Prints one JSON line; the status is 0 only when every answer was good.
 */
#include "modes/modes.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static const struct {
    const char *name;
    bool (*run)(const struct pbl_options *options);
} MODES[] = {
    {"produce", pbl_produce_mode},     {"fetch", pbl_fetch_mode},   {"offset-commit", pbl_offset_commit_mode},
    {"heartbeat", pbl_heartbeat_mode}, {"join", pbl_join_mode},     {"metadata", pbl_metadata_mode},
    {"idle", pbl_idle_mode},           {"bare", pbl_bare_mode},     {"tail", pbl_tail_mode},
    {"witness", pbl_witness_mode},     {"stalls", pbl_stalls_mode},
};

/* A probe that waits for a CPU behind other load would count its own wait as the broker's. */
static bool take_priority(uint32_t priority)
{
    struct sched_param wanted = {.sched_priority = (int)priority};
    if (priority == 0 || sched_setscheduler(0, SCHED_FIFO, &wanted) == 0)
        return true;
    fprintf(stderr, "pbload: --priority %u was refused: %s; run it as root or leave the option out\n", priority,
            strerror(errno));
    return false;
}

/* PBLOAD_PARENT names the process that started the load: without it nobody reads the result, and nobody ends the load.
 */
static bool end_with_parent(void)
{
    const char *text = getenv("PBLOAD_PARENT");
    pid_t parent = text ? (pid_t)strtol(text, NULL, 10) : 0;
    if (parent <= 0)
        return true;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent || kill(parent, 0) == 0 || errno != ESRCH)
        return true;
    fprintf(stderr, "pbload: process %d, which started this one, is gone\n", (int)parent);
    return false;
}

int main(int argc, char **argv)
{
    struct pbl_options options;
    pbl_options_parse(&options, argc, argv);
    if (!end_with_parent())
        return 1;
    if (!take_priority(options.priority))
        return 2;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    signal(SIGPIPE, SIG_IGN);
    for (unsigned i = 0; i < sizeof MODES / sizeof MODES[0]; i++)
        if (strcmp(options.mode, MODES[i].name) == 0)
            return MODES[i].run(&options) ? 0 : 1;
    fprintf(stderr, "pbload: '%s' is no mode; see pbload --help\n", options.mode);
    return 2;
}
