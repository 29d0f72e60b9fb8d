/*
 * The sending side of a connection: responses in their order, gathered from memory, files and history. Reactor thread
 * only.
 */
#include <errno.h>

#include "net/connection_parts.h"

#define SENDFILE_MAX_BYTES (1024 * 1024)
#define YIELD_BYTES (16 * 1024)
#define RESIDENT_NS 5000000 /* for so long what was in memory is taken to be there still */

static pb_response *head(pb_connection *connection)
{
    if (pb_list_empty(&connection->responses))
        return NULL;
    return PB_CONTAINER(connection->responses.next, pb_response, link);
}

static void release_head(pb_connection *connection, bool sent)
{
    pb_response *response = head(connection);
    PB_ASSERT(response != NULL && response->ready);
    pb_list_remove(&response->link);
    PB_ASSERT(connection->response_count > 0);
    connection->response_count--;
    connection->reads_in_bulk = response->yields || response->is_behind;
    response->released(response, sent);
}

/* Gathers the outputs of a response that lie in memory, from `first` on. Returns the output at which that ended, a file
 * range or one that finds no place; their count when there is none. */
static int gather_outputs(pb_connection *connection, const pb_response *response, int first, int *count)
{
    for (int i = first; i < response->output_count; i++) {
        const pb_output *output = &response->outputs[i];
        if (output->length == 0)
            continue;
        if (output->data == NULL || *count == PB_SEND_IOVECS)
            return i;
        connection->iov[(*count)++] = (struct iovec){(void *)(uintptr_t)output->data, (size_t)output->length};
    }
    return response->output_count;
}

/* Gather memory from ready responses until a file range or the end. The response whose file range follows at once, or
 * NULL. */
static pb_response *gather(pb_connection *connection, int *count)
{
    *count = 0;
    for (pb_link *link = connection->responses.next; link != &connection->responses; link = link->next) {
        pb_response *response = PB_CONTAINER(link, pb_response, link);
        if (!response->ready)
            return NULL;
        int end = gather_outputs(connection, response, response->next_output, count);
        if (end < response->output_count)
            return response->outputs[end].data == NULL ? response : NULL;
    }
    return NULL;
}

/* Count `bytes` as sent; responses that are through are released. */
static void advance(pb_connection *connection, int64_t bytes)
{
    pb_response *response;
    while ((response = head(connection)) != NULL && response->ready) {
        while (response->next_output < response->output_count) {
            pb_output *output = &response->outputs[response->next_output];
            int64_t part = bytes < output->length ? bytes : output->length;
            output->length -= part;
            output->position += part;
            if (output->data != NULL)
                output->data += part;
            bytes -= part;
            if (output->length > 0)
                return;
            response->next_output++;
        }
        release_head(connection, true);
    }
    PB_ASSERT(bytes == 0);
}

/* How much of the next output, a file range, is sent at a time. A sendfile cannot be left, and what it wakes may take
 * the CPU before it is through: a large one would be felt by all at the tail. */
static int64_t file_part(const pb_connection *connection, const pb_response *response, const pb_output *output)
{
    bool yields = response->yields && connection->reactor->now_ns < connection->reactor->tail_until_ns;
    int64_t most = yields ? YIELD_BYTES : SENDFILE_MAX_BYTES;
    if (connection->brought_bytes > 0 && connection->brought_bytes < most)
        most = connection->brought_bytes;
    return output->length < most ? output->length : most;
}

/* sendfile waits for what is not in memory, and with it would the reactor. A client that reads slowly may leave time
 * enough for it to be forgotten again. */
static enum pb_part_place find_part(pb_connection *connection, pb_response *response, const pb_output *output,
                                    int64_t *length, const uint8_t **bytes)
{
    bool brought = connection->brought_bytes > 0;
    connection->brought_bytes = 0;
    if (connection->handler->place == NULL || connection->reactor->now_ns < response->resident_ns + RESIDENT_NS)
        return PB_PART_IN_FILE;
    return connection->handler->place(response, output, brought, length, bytes);
}

static void send_memory(pb_connection *connection, int count)
{
    connection->transport->send(pb_connection_io(connection), connection->reactor->loop, &connection->socket,
                                connection->iov, count);
}

/* Sends the gathered memory, the file range that follows it, and the memory behind that. */
static void transmit_file(pb_connection *connection, pb_response *response, int count)
{
    int next = response->next_output;
    while (response->outputs[next].length == 0 || response->outputs[next].data != NULL)
        next++;
    PB_ASSERT(next < response->output_count);
    const pb_output *output = &response->outputs[next];
    int64_t length = file_part(connection, response, output);
    const uint8_t *bytes = NULL;
    enum pb_part_place place = find_part(connection, response, output, &length, &bytes);
    connection->bringing = place == PB_PART_AWAITED;
    if (place == PB_PART_AWAITED) { /* what lies in memory does not wait for it */
        if (count > 0)
            send_memory(connection, count);
        return;
    }
    int all_count = count;
    if (place == PB_PART_IN_MEMORY)
        connection->iov[all_count++] = (struct iovec){(void *)(uintptr_t)bytes, (size_t)length};
    int before_count = all_count;
    if (length == output->length)
        (void)gather_outputs(connection, response, next + 1, &all_count);
    if (place == PB_PART_IN_MEMORY)
        send_memory(connection, all_count);
    else
        connection->transport->send_file(pb_connection_io(connection), connection->reactor->loop, &connection->socket,
                                         connection->iov, all_count, all_count - before_count, output->file,
                                         output->position, (size_t)length);
}

void pb_send(pb_connection *connection)
{
    if (connection->closing || connection->socket.transmit.active || connection->bringing)
        return;
    advance(connection, 0); /* releases responses that have nothing to send */
    int count;
    pb_response *response = gather(connection, &count);
    if (response != NULL && count < PB_SEND_IOVECS)
        transmit_file(connection, response, count);
    else if (count > 0)
        send_memory(connection, count);
}

void pb_sent(pb_op *op, int64_t result)
{
    pb_connection *connection = PB_CONTAINER(op, pb_connection, socket.transmit);
    if (connection->closing) {
        pb_connection_mark(connection);
        return;
    }
    if (result == -EAGAIN || result == -EINTR) {
        pb_send(connection);
        return;
    }
    if (result <= 0) { /* 0 from a file: it is shorter than promised, so the frame cannot be finished */
        if (result == 0)
            connection->handler->malformed(connection, "a segment that ended inside a response");
        pb_connection_kill(connection);
        return;
    }
    connection->last_active_ns = connection->reactor->now_ns;
    pb_counter_add(&connection->reactor->counters.bytes_out, result);
    advance(connection, result);
    pb_send(connection);
    if (connection->held || connection->leaving || connection->ended) /* and may wait for just this answer */
        pb_connection_mark(connection);
}

void pb_send_hurry(pb_connection *connection)
{
    for (pb_link *link = connection->responses.next; link != &connection->responses; link = link->next) {
        pb_response *response = PB_CONTAINER(link, pb_response, link);
        if (response->ready || response->hurried || response->hurry == NULL)
            continue;
        response->hurried = true;
        response->hurry(response);
    }
}

bool pb_send_drop(pb_connection *connection)
{
    pb_response *response;
    while ((response = head(connection)) != NULL && response->ready)
        release_head(connection, false);
    return response == NULL;
}
