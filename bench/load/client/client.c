/* See client.h. */
#include "client/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void pbl_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("pbload: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void pbl_frame_head(uint8_t head[PBL_FRAME_HEAD_BYTES], enum pbl_api api, int16_t version, int32_t correlation_id,
                    size_t body_bytes)
{
    pbl_set_i32(head, (int32_t)(body_bytes + PBL_FRAME_HEAD_BYTES - 4));
    pbl_set_i32(head + 4, (int32_t)((uint32_t)api << 16 | (uint16_t)version));
    pbl_set_i32(head + 8, correlation_id);
}

void pbl_put_client_id(struct pbl_buffer *body, bool flexible)
{
    pbl_put_string(body, "pbload");
    if (flexible)
        pbl_put_uvarint(body, 0);
}

int pbl_connect(const struct pbl_options *options)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(options->port)};
    if (inet_pton(AF_INET, options->host, &address.sin_addr) != 1)
        pbl_fail("--host is '%s'; it wants an IPv4 address", options->host);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        pbl_fail("no socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        pbl_fail("cannot connect to %s:%u: %s", options->host, options->port, strerror(errno));
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

void pbl_client_open(struct pbl_client *client, const struct pbl_options *options)
{
    *client = (struct pbl_client){.fd = pbl_connect(options)};
}

void pbl_client_close(struct pbl_client *client)
{
    close(client->fd);
    pbl_buffer_free(&client->answer);
}

static void send_all(int fd, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            pbl_fail("the broker closed the set-up connection: %s", strerror(errno));
        data += sent;
        size -= (size_t)sent;
    }
}

static void receive_all(int fd, uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t got = recv(fd, data, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            pbl_fail("the broker closed the set-up connection: %s", got < 0 ? strerror(errno) : "end of stream");
        data += got;
        size -= (size_t)got;
    }
}

struct pbl_reader pbl_client_call(struct pbl_client *client, enum pbl_api api, int16_t version,
                                  const struct pbl_buffer *body)
{
    uint8_t head[PBL_FRAME_HEAD_BYTES];
    pbl_frame_head(head, api, version, ++client->correlation_id, body->size);
    send_all(client->fd, head, sizeof head);
    send_all(client->fd, body->data, body->size);
    receive_all(client->fd, head, 4);
    int32_t size = pbl_load_i32(head);
    if (size < 4 || size > PBL_FRAME_LIMIT_BYTES)
        pbl_fail("the broker's answer to api key %d has a length of %d", api, size);
    client->answer.size = 0;
    pbl_buffer_reserve(&client->answer, (size_t)size);
    receive_all(client->fd, client->answer.data, (size_t)size);
    client->answer.size = (size_t)size;
    struct pbl_reader reader = {.at = client->answer.data, .end = client->answer.data + size};
    int32_t echoed = pbl_get_i32(&reader);
    if (echoed != client->correlation_id)
        pbl_fail("the answer to api key %d has correlation id %d, not %d", api, echoed, client->correlation_id);
    return reader;
}
