/* Members of classic consumer groups, one per connection: join, sync, heartbeat, join again when the group rebalances.
 *
 * States of a member: JOINING -> SYNCING -> STABLE, and back to JOINING on REBALANCE_IN_PROGRESS. A member is settled
 * when it is STABLE in a generation that its group's leader saw with all members in it.
 */
#ifndef PBL_MEMBERS_H
#define PBL_MEMBERS_H

#include "client/engine.h"

struct pbl_members;

/* One member per connection, spread over --groups groups whose ids end in `suffix`. Waits for the coordinators. */
struct pbl_members *pbl_members_new(const struct pbl_options *options, uint64_t suffix);
void pbl_members_free(struct pbl_members *members);

/* The workload that brings all members to be settled, and then has finished. */
struct pbl_workload pbl_members_join(struct pbl_members *members);

/* The workload of settled members that send heartbeats in a closed loop or at --rate. */
struct pbl_workload pbl_members_heartbeat(struct pbl_members *members);

/* JoinGroup answers that made a generation, over all groups. */
uint64_t pbl_members_join_count(const struct pbl_members *members);

#endif
