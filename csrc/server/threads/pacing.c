/* One job per partition that is due; the partition is retained until the job has run. */
#include "server/threads/pacing.h"

#include <stdlib.h>

typedef struct pacing_job {
    pb_job job;
    pb_partition *partition;
} pacing_job;

static void run(pb_job *job)
{
    pacing_job *pacing = PB_CONTAINER(job, pacing_job, job);
    pb_partition_pace(pacing->partition);
    pb_partition_release(pacing->partition);
    free(pacing);
}

void pb_pacing_submit(pb_partition *partition)
{
    pb_broker *broker = partition->owner;
    pacing_job *pacing = malloc(sizeof *pacing);
    if (pacing == NULL) {
        pb_partition_end_pacing(partition); /* it is due again with the next write */
        return;
    }
    pb_partition_retain(partition);
    pacing->job.run = run;
    pacing->partition = partition;
    pb_worker_submit(&broker->pacing, &pacing->job);
}
