/* Between the files of a partition: what append.c does for partition.c. */
#ifndef PB_REPLICA_APPEND_H
#define PB_REPLICA_APPEND_H

#include "replica/partition.h"

/* A partition is being made: who is told when a write of it goes on or ends. */
void pb_partition_prepare_writes(pb_partition *partition);

#endif
