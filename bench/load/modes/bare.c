/* A server that does nothing: it takes Produce requests whole and answers them well, and writes and checks nothing.
 *
 * The cost of a load against it is the floor of every broker on this machine: the network, waking up, the load
 * generator. One thread, one epoll set, until a signal ends it. It answers what `pbload produce` asks, in the versions
 * that asks for; any other request, or a malformed one, ends it with a message.
 */
#include "client/client.h"
#include "modes/modes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENT_COUNT = 256, READ_BYTES = 1 << 20, BACKLOG_COUNT = 1024 };

struct peer {
    int fd;
    struct pbl_buffer input;
    struct pbl_buffer output;
};

static void put_slice(struct pbl_buffer *out, struct pbl_slice text, bool compact)
{
    if (compact)
        pbl_put_uvarint(out, text.size + 1);
    else
        pbl_put_i16(out, (int16_t)text.size);
    pbl_put_bytes(out, text.data, text.size);
}

/* Produce v9 to v12: one topic, one partition; the offset is always 0. */
static void produce(struct pbl_reader *request, struct pbl_buffer *out)
{
    pbl_skip_tags(request);         /* of the header */
    pbl_get_compact_bytes(request); /* transactional id */
    pbl_get_i16(request);           /* acks */
    pbl_get_i32(request);           /* timeout */
    int32_t topic_count = pbl_get_compact_array_count(request);
    struct pbl_slice name = pbl_get_compact_bytes(request);
    int32_t partition_count = pbl_get_compact_array_count(request);
    int32_t partition = pbl_get_i32(request);
    pbl_get_compact_bytes(request); /* records */
    if (topic_count != 1 || partition_count != 1)
        request->failed = true;
    pbl_put_uvarint(out, 0); /* no tags in the header */
    pbl_put_uvarint(out, 2); /* one topic */
    put_slice(out, name, true);
    pbl_put_uvarint(out, 2); /* one partition */
    pbl_put_i32(out, partition);
    pbl_put_i16(out, 0);     /* no error */
    pbl_put_i64(out, 0);     /* base offset */
    pbl_put_i64(out, -1);    /* log append time */
    pbl_put_i64(out, 0);     /* log start offset */
    pbl_put_uvarint(out, 1); /* no record errors */
    pbl_put_uvarint(out, 0); /* no message */
    pbl_put_uvarint(out, 0); /* no tags: partition, topic */
    pbl_put_uvarint(out, 0);
    pbl_put_i32(out, 0);     /* throttle time */
    pbl_put_uvarint(out, 0); /* no tags */
}

/* CreateTopics v2 of one topic, which is as good as created. */
static void create_topic(struct pbl_reader *request, struct pbl_buffer *out)
{
    if (pbl_get_array_count(request) != 1)
        request->failed = true;
    struct pbl_slice name = pbl_get_string(request);
    pbl_put_i32(out, 0); /* throttle time */
    pbl_put_i32(out, 1);
    put_slice(out, name, false);
    pbl_put_i16(out, 0);       /* no error */
    pbl_put_string(out, NULL); /* no message */
}

/* ListOffsets v2 of one partition, which is empty. */
static void list_offsets(struct pbl_reader *request, struct pbl_buffer *out)
{
    pbl_get_i32(request); /* replica id */
    pbl_get_i8(request);  /* isolation level */
    if (pbl_get_array_count(request) != 1)
        request->failed = true;
    struct pbl_slice name = pbl_get_string(request);
    if (pbl_get_array_count(request) != 1)
        request->failed = true;
    int32_t partition = pbl_get_i32(request);
    pbl_put_i32(out, 0); /* throttle time */
    pbl_put_i32(out, 1);
    put_slice(out, name, false);
    pbl_put_i32(out, 1);
    pbl_put_i32(out, partition);
    pbl_put_i16(out, 0);  /* no error */
    pbl_put_i64(out, -1); /* timestamp */
    pbl_put_i64(out, 0);  /* offset */
}

static void answer(struct pbl_reader request, struct pbl_buffer *out)
{
    size_t start = out->size;
    int16_t key = pbl_get_i16(&request);
    int16_t version = pbl_get_i16(&request);
    pbl_put_i32(out, 0); /* the length, once it is known */
    pbl_put_i32(out, pbl_get_i32(&request));
    pbl_get_string(&request); /* client id */
    if (key == PBL_API_PRODUCE && version >= 9 && version <= 12)
        produce(&request, out);
    else if (key == PBL_API_CREATE_TOPICS && version == 2)
        create_topic(&request, out);
    else if (key == PBL_API_LIST_OFFSETS && version == 2)
        list_offsets(&request, out);
    else
        pbl_fail("the bare server has no answer to API %d version %d", key, version);
    if (request.failed)
        pbl_fail("the bare server got a malformed request of API %d", key);
    pbl_set_i32(out->data + start, (int32_t)(out->size - start - 4));
}

/* Answers are small: a client that does not read them is none of ours, so sending may block. */
static void send_all(struct peer *peer)
{
    for (size_t sent = 0; sent < peer->output.size;) {
        ssize_t now = send(peer->fd, peer->output.data + sent, peer->output.size - sent, MSG_NOSIGNAL);
        if (now < 0 && errno != EINTR)
            break; /* gone: receiving will tell */
        sent += now > 0 ? (size_t)now : 0;
    }
    peer->output.size = 0;
}

/* Take what has come and answer what is whole; false when the client has gone. */
static bool serve(struct peer *peer)
{
    struct pbl_buffer *input = &peer->input;
    pbl_buffer_reserve(input, READ_BYTES);
    ssize_t got = recv(peer->fd, input->data + input->size, input->capacity - input->size, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got <= 0)
        return false;
    input->size += (size_t)got;
    size_t position = 0;
    while (input->size - position >= 4) {
        int32_t size = pbl_load_i32(input->data + position);
        if (size < 8 || size > PBL_FRAME_LIMIT_BYTES)
            pbl_fail("the bare server got a frame of %d bytes", size);
        if (input->size - position - 4 < (size_t)size)
            break;
        const uint8_t *frame = input->data + position + 4;
        answer((struct pbl_reader){.at = frame, .end = frame + size}, &peer->output);
        position += 4 + (size_t)size;
    }
    input->size -= position;
    memmove(input->data, input->data + position, input->size);
    send_all(peer);
    return true;
}

static int listen_on(const struct pbl_options *options)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(options->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (inet_pton(AF_INET, options->host, &address.sin_addr) != 1)
        pbl_fail("--host is '%s'; the bare server wants an IPv4 address", options->host);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, BACKLOG_COUNT) != 0)
        pbl_fail("cannot listen on %s:%u: %s", options->host, options->port, strerror(errno));
    return fd;
}

static void watch(int epoll_fd, int fd, struct peer *peer)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = peer};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        pbl_fail("epoll_ctl: %s", strerror(errno));
}

static void take_connection(int epoll_fd, int listener)
{
    int on = 1;
    struct peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        pbl_fail("out of memory");
    peer->fd = accept(listener, NULL, NULL);
    if (peer->fd < 0 || setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        pbl_fail("cannot accept a connection: %s", strerror(errno));
    watch(epoll_fd, peer->fd, peer);
}

static void drop(struct peer *peer)
{
    close(peer->fd);
    pbl_buffer_free(&peer->input);
    pbl_buffer_free(&peer->output);
    free(peer);
}

bool pbl_bare_mode(const struct pbl_options *options)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC), listener = listen_on(options);
    if (epoll_fd < 0)
        pbl_fail("epoll_create1: %s", strerror(errno));
    watch(epoll_fd, listener, NULL);
    printf("pbload: the bare server listens on %s:%u\n", options->host, options->port);
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENT_COUNT];
        int count = epoll_wait(epoll_fd, events, EVENT_COUNT, -1);
        if (count < 0 && errno != EINTR)
            pbl_fail("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            struct peer *peer = events[i].data.ptr;
            if (!peer)
                take_connection(epoll_fd, listener);
            else if (!serve(peer))
                drop(peer);
        }
    }
}
