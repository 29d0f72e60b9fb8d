/* See members.h. JoinGroup v5, SyncGroup v3, Heartbeat v3: the last versions before the flexible ones. */
#include "client/members.h"

#include "client/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ERROR_REBALANCE_IN_PROGRESS = 27,
    ERROR_MEMBER_ID_REQUIRED = 79,
    NAME_BYTES = 256,
    ASSIGNMENT_BYTES = 40,
};
static const uint64_t HEARTBEAT_PAUSE_NS = 100000000;

enum state { JOINING, SYNCING, STABLE };

struct member {
    enum state state;
    uint32_t group;
    char id[NAME_BYTES];
    int32_t generation;
    uint64_t heartbeat_due_ns;
    struct pbl_buffer body;        /* of the request in flight */
    struct pbl_buffer assignments; /* the leader's: int32 count, then member ids and bytes; empty for others */
};

struct group {
    char id[NAME_BYTES];
    uint32_t member_count;
    int32_t full_generation; /* that holds all members; -1 while there is none */
    uint32_t stable_count;   /* members STABLE in full_generation */
};

struct pbl_members {
    const struct pbl_options *options;
    struct member *members; /* by connection */
    struct group *groups;
    uint64_t join_count;
    uint8_t subscription[128];
    size_t subscription_bytes;
};

static void make_subscription(struct pbl_members *members)
{
    struct pbl_buffer body = {0};
    pbl_put_i16(&body, 0); /* ConsumerProtocolSubscription v0 */
    pbl_put_i32(&body, 1);
    pbl_put_string(&body, "pbload");
    pbl_put_i32(&body, -1); /* user data */
    memcpy(members->subscription, body.data, body.size);
    members->subscription_bytes = body.size;
    pbl_buffer_free(&body);
}

struct pbl_members *pbl_members_new(const struct pbl_options *options, uint64_t suffix)
{
    struct pbl_members *members = calloc(1, sizeof *members);
    if (!members)
        pbl_fail("out of memory");
    members->options = options;
    members->members = calloc(options->connection_count, sizeof *members->members);
    members->groups = calloc(options->group_count, sizeof *members->groups);
    if (!members->members || !members->groups)
        pbl_fail("out of memory");
    make_subscription(members);
    struct pbl_client client;
    pbl_client_open(&client, options);
    for (uint32_t i = 0; i < options->group_count; i++) {
        struct group *group = &members->groups[i];
        group->full_generation = -1;
        snprintf(group->id, sizeof group->id, "%s-%llx-%u", options->group, (unsigned long long)suffix, i);
        pbl_admin_wait_for_coordinator(&client, group->id);
    }
    pbl_client_close(&client);
    for (uint32_t i = 0; i < options->connection_count; i++) {
        members->members[i].group = i % options->group_count;
        members->groups[members->members[i].group].member_count++;
    }
    return members;
}

void pbl_members_free(struct pbl_members *members)
{
    for (uint32_t i = 0; i < members->options->connection_count; i++) {
        pbl_buffer_free(&members->members[i].body);
        pbl_buffer_free(&members->members[i].assignments);
    }
    free(members->members);
    free(members->groups);
    free(members);
}

uint64_t pbl_members_join_count(const struct pbl_members *members)
{
    return members->join_count;
}

static void encode_join(struct pbl_members *members, struct member *member)
{
    struct pbl_buffer *body = &member->body;
    pbl_put_string(body, members->groups[member->group].id);
    pbl_put_i32(body, (int32_t)members->options->timeout_ms); /* session timeout */
    pbl_put_i32(body, (int32_t)members->options->timeout_ms); /* rebalance timeout */
    pbl_put_string(body, member->id);
    pbl_put_string(body, NULL); /* group instance id */
    pbl_put_string(body, "consumer");
    pbl_put_i32(body, 1);
    pbl_put_string(body, "range");
    pbl_put_i32_bytes(body, members->subscription, members->subscription_bytes);
}

static void encode_sync(struct pbl_members *members, struct member *member)
{
    struct pbl_buffer *body = &member->body;
    pbl_put_string(body, members->groups[member->group].id);
    pbl_put_i32(body, member->generation);
    pbl_put_string(body, member->id);
    pbl_put_string(body, NULL); /* group instance id */
    if (member->assignments.size > 0)
        pbl_put_bytes(body, member->assignments.data, member->assignments.size);
    else
        pbl_put_i32(body, 0);
}

static void encode_heartbeat(struct pbl_members *members, struct member *member)
{
    struct pbl_buffer *body = &member->body;
    pbl_put_string(body, members->groups[member->group].id);
    pbl_put_i32(body, member->generation);
    pbl_put_string(body, member->id);
    pbl_put_string(body, NULL); /* group instance id */
}

static bool next_join(void *context, struct pbl_connection *connection, struct pbl_request *request)
{
    struct pbl_members *members = context;
    struct member *member = &members->members[connection->index];
    if (connection->queued != connection->ended)
        return false;
    if (member->state == STABLE && pbl_now_ns() < member->heartbeat_due_ns)
        return false;
    member->body.size = 0;
    pbl_put_client_id(&member->body, false);
    switch (member->state) {
    case JOINING:
        encode_join(members, member);
        *request = (struct pbl_request){.api = PBL_API_JOIN_GROUP, .version = 5};
        break;
    case SYNCING:
        encode_sync(members, member);
        *request = (struct pbl_request){.api = PBL_API_SYNC_GROUP, .version = 3};
        break;
    case STABLE:
        encode_heartbeat(members, member);
        *request = (struct pbl_request){.api = PBL_API_HEARTBEAT, .version = 3};
        break;
    }
    request->body = member->body.data;
    request->body_bytes = member->body.size;
    return true;
}

static void read_leader_part(struct pbl_members *members, struct member *member, struct pbl_reader *body)
{
    static const uint8_t ASSIGNMENT[ASSIGNMENT_BYTES];
    struct group *group = &members->groups[member->group];
    int32_t count = pbl_get_array_count(body);
    member->assignments.size = 0;
    if (count == 0)
        return;
    pbl_put_i32(&member->assignments, count);
    for (int32_t i = 0; i < count && !body->failed; i++) {
        struct pbl_slice id = pbl_get_string(body);
        pbl_get_string(body);    /* group instance id */
        pbl_get_i32_bytes(body); /* subscription */
        pbl_put_i16(&member->assignments, (int16_t)id.size);
        pbl_put_bytes(&member->assignments, id.data, id.size);
        pbl_put_i32_bytes(&member->assignments, ASSIGNMENT, sizeof ASSIGNMENT);
    }
    if ((uint32_t)count == group->member_count) {
        group->full_generation = member->generation;
        group->stable_count = 0;
    }
}

static int16_t answer_join(struct pbl_members *members, struct member *member, struct pbl_reader *body)
{
    pbl_get_i32(body); /* throttle time */
    int16_t code = pbl_get_i16(body);
    member->generation = pbl_get_i32(body);
    pbl_get_string(body); /* protocol name */
    pbl_get_string(body); /* leader */
    struct pbl_slice id = pbl_get_string(body);
    if (code != 0 && code != ERROR_MEMBER_ID_REQUIRED)
        return code == ERROR_REBALANCE_IN_PROGRESS ? 0 : code;
    if (body->failed || id.size == 0 || id.size >= sizeof member->id) {
        body->failed = true;
        return 0;
    }
    memcpy(member->id, id.data, id.size);
    member->id[id.size] = '\0';
    if (code == ERROR_MEMBER_ID_REQUIRED)
        return 0; /* KIP-394: join again, with that id */
    members->join_count++;
    read_leader_part(members, member, body);
    member->state = SYNCING;
    return 0;
}

static int16_t answer_sync(struct pbl_members *members, struct member *member, struct pbl_reader *body)
{
    struct group *group = &members->groups[member->group];
    pbl_get_i32(body); /* throttle time */
    int16_t code = pbl_get_i16(body);
    struct pbl_slice assignment = pbl_get_i32_bytes(body);
    member->state = code == 0 ? STABLE : JOINING;
    member->heartbeat_due_ns = pbl_now_ns() + HEARTBEAT_PAUSE_NS;
    if (code == 0 && assignment.size != ASSIGNMENT_BYTES)
        body->failed = true;
    if (code == 0 && member->generation == group->full_generation)
        group->stable_count++;
    return code == ERROR_REBALANCE_IN_PROGRESS ? 0 : code;
}

static int16_t answer_heartbeat(struct pbl_members *members, struct member *member, struct pbl_reader *body)
{
    struct group *group = &members->groups[member->group];
    pbl_get_i32(body); /* throttle time */
    int16_t code = pbl_get_i16(body);
    member->heartbeat_due_ns = pbl_now_ns() + HEARTBEAT_PAUSE_NS;
    if (code != ERROR_REBALANCE_IN_PROGRESS)
        return code;
    if (member->generation == group->full_generation)
        group->stable_count--;
    member->state = JOINING;
    return 0;
}

static int16_t answer(void *context, struct pbl_connection *connection, struct pbl_in_flight *in_flight,
                      struct pbl_reader *body)
{
    struct pbl_members *members = context;
    struct member *member = &members->members[connection->index];
    if (in_flight->request.api == PBL_API_JOIN_GROUP)
        return answer_join(members, member, body);
    if (in_flight->request.api == PBL_API_SYNC_GROUP)
        return answer_sync(members, member, body);
    return answer_heartbeat(members, member, body);
}

static bool all_settled(void *context)
{
    struct pbl_members *members = context;
    for (uint32_t i = 0; i < members->options->group_count; i++) {
        const struct group *group = &members->groups[i];
        if (group->member_count > 0 && (group->full_generation < 0 || group->stable_count < group->member_count))
            return false;
    }
    return true;
}

struct pbl_workload pbl_members_join(struct pbl_members *members)
{
    return (struct pbl_workload){
        .context = members, .polls = true, .next = next_join, .answer = answer, .finished = all_settled};
}

static bool next_heartbeat(void *context, struct pbl_connection *connection, struct pbl_request *request)
{
    struct pbl_members *members = context;
    struct member *member = &members->members[connection->index];
    if (connection->queued == connection->ended) {
        member->body.size = 0;
        pbl_put_client_id(&member->body, false);
        encode_heartbeat(members, member);
    }
    *request = (struct pbl_request){
        .api = PBL_API_HEARTBEAT, .version = 3, .body = member->body.data, .body_bytes = member->body.size};
    return true;
}

/* A settled group must stay settled: here even REBALANCE_IN_PROGRESS is an error. */
static int16_t answer_settled(void *context, struct pbl_connection *connection, struct pbl_in_flight *in_flight,
                              struct pbl_reader *body)
{
    (void)context;
    (void)connection;
    (void)in_flight;
    pbl_get_i32(body); /* throttle time */
    return pbl_get_i16(body);
}

struct pbl_workload pbl_members_heartbeat(struct pbl_members *members)
{
    return (struct pbl_workload){.context = members, .next = next_heartbeat, .answer = answer_settled};
}
