/* pybroker.h: events to Python and answers from it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/convert.h"
#include "server/produce/verify.h"
#include "server/slow_path.h"

_Static_assert(sizeof(pb_event) == 72, "Python unpacks events of 72 bytes");

_Static_assert(sizeof(pb_verified_partition) == sizeof(pb_produce_unverified) &&
                   offsetof(pb_verified_partition, partition) == offsetof(pb_produce_unverified, partition),
               "the boundary's partitions are the Produce's");

int32_t pb_broker_event_fd(const pb_broker *broker)
{
    return broker->events.event_fd;
}

static uint64_t address(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

static void fill_request(pb_event *out, const pb_request *request)
{
    out->kind = PB_EVENT_REQUEST;
    out->handle = address(request);
    out->connection_id = request->connection->id;
    out->offset = request->chunk != NULL;
    out->body = address(request->body);
    out->body_length = request->body_length;
    out->client_id = address(request->header.client_id.data);
    out->client_id_length =
        pb_slice_is_null(request->header.client_id) ? UINT32_MAX : (uint32_t)request->header.client_id.length;
    out->api_key = request->header.request_api_key;
    out->api_version = request->header.request_api_version;
    out->correlation_id = request->header.correlation_id;
    out->listener = request->connection->listener;
}

static void fill_verification(pb_event *out, const pb_request *request)
{
    const pb_produce_verification *verification = pb_produce_verification_of(request);
    out->kind = PB_EVENT_VERIFY;
    out->handle = address(request);
    out->offset = verification->producer_id;
    out->api_key = verification->producer_epoch;
    out->api_version = request->header.request_api_version;
    out->client_id = address(verification->transactional_id.data);
    out->client_id_length = (uint32_t)verification->transactional_id.length;
    out->body = address(verification->partitions);
    out->body_length = (uint32_t)verification->count;
}

static void fill(pb_broker *broker, pb_event *out, pb_event_node *node)
{
    memset(out, 0, sizeof *out);
    out->error = node->error;
    out->offset = node->offset;
    out->handle = node->ticket;
    switch (node->kind) {
    case PB_NODE_REQUEST:
        fill_request(out, PB_CONTAINER(node, pb_request, event));
        return; /* the request is Python's now */
    case PB_NODE_VERIFY:
        fill_verification(out, PB_CONTAINER(node, pb_request, event));
        return; /* as above */
    case PB_NODE_APPENDED:
        out->kind = PB_EVENT_APPENDED;
        free(node);
        return;
    case PB_NODE_OFFLINE:
        out->kind = PB_EVENT_OFFLINE;
        free(node);
        return;
    case PB_NODE_CAUGHT_UP:
        out->kind = PB_EVENT_CAUGHT_UP;
        free(node);
        return;
    case PB_NODE_FOLLOWER:
        out->kind = PB_EVENT_FOLLOWER;
        free(node);
        return;
    case PB_NODE_NOTICE: {
        pb_notice *notice = PB_CONTAINER(node, pb_notice, event);
        pb_events_claim_notice(&broker->events, notice);
        out->kind = PB_EVENT_NOTICE;
        out->handle = address(notice);
        out->body = address(notice->text);
        out->body_length = (uint32_t)strlen(notice->text);
        out->client_id = address(notice->peer);
        out->client_id_length = (uint32_t)strlen(notice->peer);
        out->connection_id = (int64_t)address(notice->kind);
        out->repeated = notice->repeated;
        return;
    }
    }
}

int32_t pb_broker_take_events(pb_broker *broker, pb_event *out, int32_t capacity)
{
    int32_t count = 0;
    pb_event_node *node;
    while (count < capacity && (node = pb_events_next(&broker->events)) != NULL)
        fill(broker, &out[count++], node);
    return count;
}

static pb_request *request_of(uint64_t handle)
{
    PB_ASSERT(handle != 0);
    return (pb_request *)(uintptr_t)handle; /* NOLINT(performance-no-int-to-ptr): handles are addresses by contract */
}

void pb_request_taken(pb_broker *broker, uint64_t request)
{
    (void)broker;
    pb_slow_path_taken(request_of(request));
}

void pb_request_mute(pb_broker *broker, uint64_t request, int32_t ms)
{
    (void)broker;
    pb_slow_path_mute(request_of(request), ms);
}

int32_t pb_request_reply_part(pb_broker *broker, uint64_t request, const uint8_t *bytes, size_t length)
{
    (void)broker;
    return pb_slow_path_append(request_of(request), bytes, length);
}

int32_t pb_request_reply(pb_broker *broker, uint64_t request, const uint8_t *body, size_t length)
{
    (void)broker;
    if (request_of(request)->reply != NULL) { /* this ends what came in parts */
        const int result = pb_slow_path_append(request_of(request), body, length);
        pb_slow_path_answer(request_of(request), NULL, 0, result != 0);
        return result;
    }
    uint8_t *copy = malloc(length > 0 ? length : 1);
    if (copy != NULL && length > 0)
        memcpy(copy, body, length);
    pb_slow_path_answer(request_of(request), copy, length, copy == NULL);
    return copy != NULL ? 0 : -ENOMEM;
}

void pb_request_close(pb_broker *broker, uint64_t request)
{
    (void)broker;
    pb_slow_path_answer(request_of(request), NULL, 0, true);
}

void pb_request_verified(pb_broker *broker, uint64_t request, const int16_t *errors, int32_t count)
{
    (void)broker;
    pb_produce_verified(request_of(request), errors, count);
}

int32_t pb_request_client_host(pb_broker *broker, uint64_t request, char *out, size_t capacity)
{
    (void)broker;
    int length = snprintf(out, capacity, "%s", request_of(request)->connection->host);
    return length >= 0 && (size_t)length < capacity ? length : -ENOSPC;
}

void pb_notice_release(uint64_t notice)
{
    pb_notice_free(
        (pb_notice *)(uintptr_t)notice); /* NOLINT(performance-no-int-to-ptr): handles are addresses by contract */
}
