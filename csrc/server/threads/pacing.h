/*
 * Starting writeback as logs grow, and making the files of their next segments: on a background thread of its own,
 * because it may wait for the disk.
 */
#ifndef PB_SERVER_THREADS_PACING_H
#define PB_SERVER_THREADS_PACING_H

#include "server/broker.h"

/* A partition's `pacing_due`; its owner is the broker. */
void pb_pacing_submit(pb_partition *partition);

#endif
