/* The rounds of one reactor's hot logs on one disk, which share its flushes; see durable_write.c. */
#ifndef PB_REPLICA_FLUSH_GROUP_H
#define PB_REPLICA_FLUSH_GROUP_H

#include "net/reactor.h"

#define PB_FLUSH_GROUPS 8 /* of a reactor; on more disks than that each log flushes for itself */

/* Owner: the server's reactor. Only its thread. All zeros: unused. */
typedef struct pb_flush_group {
    uint64_t device; /* file_flush_device of its logs; 0: unused */
    pb_reactor *reactor;
    pb_link due;     /* partitions that wait for their next round */
    pb_link members; /* those of the shared round under way */
    pb_link alone;   /* those with a round under way that nobody shares */
    int64_t crowded_until_ns;
    int64_t began_ns;  /* the shared round */
    int writing_count; /* members whose writes have not ended */
    int member_count;
    int answers; /* that the last rounds let go, and that may not have gone out */
    int file;    /* pb_log_make_flush_file; < 0: none */
    int64_t file_made_ns;
    pb_op flush;
} pb_flush_group;

/* Begin what is due. At the end of the reactor's turn, when appends have been written. true: some of it waits for
 * answers, and the next turn shall come at once. */
bool pb_flush_groups_start(pb_reactor *reactor);
/* The reactor has ended. */
void pb_flush_groups_close(pb_reactor *reactor);

#endif
