/* Set-up by blocking calls: topics, leaders, offsets, coordinators. Failures end the program with a message. */
#ifndef PBL_ADMIN_H
#define PBL_ADMIN_H

#include "client/client.h"

/* Create `count` topics (name, or name-0, name-1… when `numbered`) unless they exist, and wait until the partitions of
 * the first and the last have a leader that answers. */
void pbl_admin_create_topics(struct pbl_client *client, const struct pbl_options *options, uint32_t count,
                             bool numbered);

/* An offset by ListOffsets; timestamp -1 is the end, -2 the start. Waits while the leader is not known. */
int64_t pbl_admin_list_offset(struct pbl_client *client, const char *topic, int32_t partition, int64_t timestamp);

/* Wait until the group's coordinator is found and has loaded its partition. */
void pbl_admin_wait_for_coordinator(struct pbl_client *client, const char *group);

#endif
