/* join: how fast all members of the groups come to one settled generation. heartbeat: settled members' heartbeats. */
#include "client/members.h"
#include "modes/modes.h"

#include <stdio.h>
#include <unistd.h>

/* Joining has no time bound but the patience of whoever waits: it ends when all are settled. */
static const double JOIN_PATIENCE_SECONDS = 120;

static struct pbl_members *join(struct pbl_engine *engine, const struct pbl_options *options, struct pbl_stats *stats)
{
    struct pbl_members *members = pbl_members_new(options, pbl_now_ns() ^ (uint64_t)getpid() << 40);
    struct pbl_workload workload = pbl_members_join(members);
    struct pbl_options joining = *options;
    joining.warmup_seconds = 0;
    joining.rate = 0;
    joining.interval_seconds = 0;
    joining.seconds = JOIN_PATIENCE_SECONDS;
    pbl_engine_open(engine, options);
    engine->options = &joining;
    pbl_engine_run(engine, &workload, stats);
    engine->options = options;
    if (!workload.finished(members))
        pbl_fail("the members did not settle within %.0f s", JOIN_PATIENCE_SECONDS);
    return members;
}

bool pbl_join_mode(const struct pbl_options *options)
{
    struct pbl_engine engine;
    struct pbl_stats stats = {0};
    struct pbl_members *members = join(&engine, options, &stats);
    pbl_engine_close(&engine);
    char extra[64];
    snprintf(extra, sizeof extra, ",\"joins\":%llu", (unsigned long long)pbl_members_join_count(members));
    pbl_stats_print(&stats, options, extra);
    pbl_members_free(members);
    return !pbl_stats_failed(&stats);
}

bool pbl_heartbeat_mode(const struct pbl_options *options)
{
    struct pbl_engine engine;
    struct pbl_stats joining = {0}, stats = {0};
    struct pbl_members *members = join(&engine, options, &joining);
    if (pbl_stats_failed(&joining))
        pbl_fail("some members could not join");
    struct pbl_workload workload = pbl_members_heartbeat(members);
    pbl_engine_run(&engine, &workload, &stats);
    pbl_engine_close(&engine);
    pbl_stats_print(&stats, options, "");
    pbl_members_free(members);
    return !pbl_stats_failed(&stats);
}
