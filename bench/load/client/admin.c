/* See admin.h. */
#include "client/admin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ERROR_TOPIC_ALREADY_EXISTS = 36,
    CREATE_BATCH_COUNT = 200,
    ATTEMPT_COUNT = 600,
    ATTEMPT_PAUSE_US = 50000,
    NAME_BYTES = 256,
};

static void put_configs(struct pbl_buffer *body, const char *configs)
{
    size_t count_position = body->size;
    int32_t count = 0;
    pbl_put_i32(body, 0);
    char *copy = configs ? strdup(configs) : NULL, *rest = copy, *pair;
    while (rest && (pair = strsep(&rest, ",")) != NULL) {
        char *value = strchr(pair, '=');
        if (!value)
            pbl_fail("--topic-config has '%s'; it wants key=value", pair);
        *value++ = '\0';
        pbl_put_string(body, pair);
        pbl_put_string(body, value);
        count++;
    }
    free(copy);
    pbl_set_i32(body->data + count_position, count);
}

static void topic_name(char out[NAME_BYTES], const struct pbl_options *options, uint32_t index, bool numbered)
{
    if (numbered)
        snprintf(out, NAME_BYTES, "%s-%u", options->topic, index);
    else
        snprintf(out, NAME_BYTES, "%s", options->topic);
}

/* CreateTopics v2, the oldest Apache Kafka 4 serves. */
static void create_some(struct pbl_client *client, const struct pbl_options *options, uint32_t first, uint32_t count,
                        bool numbered)
{
    struct pbl_buffer body = {0};
    char name[NAME_BYTES];
    pbl_put_client_id(&body, false);
    pbl_put_i32(&body, (int32_t)count);
    for (uint32_t i = first; i < first + count; i++) {
        topic_name(name, options, i, numbered);
        pbl_put_string(&body, name);
        pbl_put_i32(&body, (int32_t)options->partition_count);
        pbl_put_i16(&body, 1);
        pbl_put_i32(&body, 0); /* no manual assignment */
        put_configs(&body, options->topic_config);
    }
    pbl_put_i32(&body, 60000);
    pbl_put_i8(&body, 0); /* not validate-only */
    struct pbl_reader answer = pbl_client_call(client, PBL_API_CREATE_TOPICS, 2, &body);
    pbl_get_i32(&answer); /* throttle time */
    int32_t answered = pbl_get_array_count(&answer);
    for (int32_t i = 0; i < answered; i++) {
        struct pbl_slice topic = pbl_get_string(&answer);
        int16_t code = pbl_get_i16(&answer);
        struct pbl_slice message = pbl_get_string(&answer);
        if (code != 0 && code != ERROR_TOPIC_ALREADY_EXISTS)
            pbl_fail("CreateTopics of %.*s gave error %d: %.*s", (int)topic.size, (const char *)topic.data, code,
                     (int)message.size, (const char *)message.data);
    }
    if (answer.failed || answered != (int32_t)count)
        pbl_fail("the answer to CreateTopics is malformed");
    pbl_buffer_free(&body);
}

int64_t pbl_admin_list_offset(struct pbl_client *client, const char *topic, int32_t partition, int64_t timestamp)
{
    struct pbl_buffer body = {0};
    pbl_put_client_id(&body, false);
    pbl_put_i32(&body, -1); /* replica id */
    pbl_put_i8(&body, 0);   /* read uncommitted */
    pbl_put_i32(&body, 1);
    pbl_put_string(&body, topic);
    pbl_put_i32(&body, 1);
    pbl_put_i32(&body, partition);
    pbl_put_i64(&body, timestamp);
    int16_t code = 0;
    for (int attempt = 0; attempt < ATTEMPT_COUNT; attempt++) {
        struct pbl_reader answer = pbl_client_call(client, PBL_API_LIST_OFFSETS, 2, &body);
        pbl_get_i32(&answer); /* throttle time */
        pbl_get_array_count(&answer);
        pbl_get_string(&answer);
        pbl_get_array_count(&answer);
        pbl_get_i32(&answer); /* partition */
        code = pbl_get_i16(&answer);
        pbl_get_i64(&answer); /* timestamp */
        int64_t offset = pbl_get_i64(&answer);
        if (answer.failed)
            pbl_fail("the answer to ListOffsets is malformed");
        if (code == 0) {
            pbl_buffer_free(&body);
            return offset;
        }
        usleep(ATTEMPT_PAUSE_US);
    }
    pbl_fail("%s-%d has no leader that answers ListOffsets: error %d", topic, partition, code);
}

void pbl_admin_create_topics(struct pbl_client *client, const struct pbl_options *options, uint32_t count,
                             bool numbered)
{
    for (uint32_t first = 0; first < count; first += CREATE_BATCH_COUNT) {
        uint32_t some = count - first < CREATE_BATCH_COUNT ? count - first : CREATE_BATCH_COUNT;
        create_some(client, options, first, some, numbered);
    }
    char name[NAME_BYTES];
    for (uint32_t ends = 0; ends < 2; ends++) {
        topic_name(name, options, ends ? count - 1 : 0, numbered);
        for (uint32_t partition = 0; partition < options->partition_count; partition++)
            pbl_admin_list_offset(client, name, (int32_t)partition, -1);
    }
}

/* FindCoordinator v1: 0 when the coordinator is known. */
static int16_t find_coordinator(struct pbl_client *client, const char *group)
{
    struct pbl_buffer body = {0};
    pbl_put_client_id(&body, false);
    pbl_put_string(&body, group);
    pbl_put_i8(&body, 0); /* a group */
    struct pbl_reader answer = pbl_client_call(client, PBL_API_FIND_COORDINATOR, 1, &body);
    pbl_get_i32(&answer); /* throttle time */
    int16_t code = pbl_get_i16(&answer);
    if (answer.failed)
        pbl_fail("the answer to FindCoordinator is malformed");
    pbl_buffer_free(&body);
    return code;
}

/* Heartbeat v0 of nobody: UNKNOWN_MEMBER_ID (25) says that the coordinator has loaded the group's partition. */
static int16_t probe_coordinator(struct pbl_client *client, const char *group)
{
    struct pbl_buffer body = {0};
    pbl_put_client_id(&body, false);
    pbl_put_string(&body, group);
    pbl_put_i32(&body, 0);
    pbl_put_string(&body, "nobody");
    struct pbl_reader answer = pbl_client_call(client, PBL_API_HEARTBEAT, 0, &body);
    int16_t code = pbl_get_i16(&answer);
    if (answer.failed)
        pbl_fail("the answer to Heartbeat is malformed");
    pbl_buffer_free(&body);
    return code == 25 ? 0 : code;
}

void pbl_admin_wait_for_coordinator(struct pbl_client *client, const char *group)
{
    int16_t code = 0;
    for (int attempt = 0; attempt < ATTEMPT_COUNT; attempt++) {
        code = find_coordinator(client, group);
        if (code == 0)
            code = probe_coordinator(client, group);
        if (code == 0)
            return;
        usleep(ATTEMPT_PAUSE_US);
    }
    pbl_fail("group %s has no coordinator that answers: error %d", group, code);
}
