/*
 * Looking after logs as they grow: on a background thread of its own, so that a cold read never waits behind a sync.
 */
#ifndef PB_SERVER_UPKEEP_H
#define PB_SERVER_UPKEEP_H

#include "server/broker.h"

/* A partition's `upkeep_due`; its owner is the broker. */
void pb_upkeep_submit(pb_partition *partition);

#endif
