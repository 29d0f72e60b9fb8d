/* One job per partition that is due; the partition is retained until the job has run. */
#include "server/upkeep.h"

#include <stdlib.h>

typedef struct upkeep_job {
    pb_job job;
    pb_partition *partition;
} upkeep_job;

static void tend(pb_job *job)
{
    upkeep_job *upkeep = PB_CONTAINER(job, upkeep_job, job);
    pb_partition_tend(upkeep->partition);
    pb_partition_release(upkeep->partition);
    free(upkeep);
}

void pb_upkeep_submit(pb_partition *partition)
{
    pb_broker *broker = partition->owner;
    upkeep_job *upkeep = malloc(sizeof *upkeep);
    if (upkeep == NULL) { /* done here rather than never */
        pb_partition_tend(partition);
        return;
    }
    pb_partition_retain(partition);
    upkeep->job.run = tend;
    upkeep->partition = partition;
    pb_worker_submit(&broker->upkeep, &upkeep->job);
}
