/* Between the files of a partition: what access.c does for the others. The lock is held. */
#ifndef PB_REPLICA_ACCESS_H
#define PB_REPLICA_ACCESS_H

#include "replica/partition.h"

/* Why this partition does not serve, for a client; 0: it does. */
int pb_partition_refusal(const pb_partition *partition, bool from_follower);
/* Why this partition cannot be read, if it cannot, and its ends. */
int pb_partition_look(pb_partition *partition, int32_t expected_epoch, bool from_follower, pb_partition_ends *ends);

#endif
