/* Listening, connecting, tuning and naming sockets of the real backends. Any thread. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/linux/posix.h"

#define BACKLOG 4096
#define CONGESTION_NAME_BYTES 16

static int bound_port_of(int fd)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        return -errno;
    if (address.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
    return ntohs(((struct sockaddr_in *)&address)->sin_port);
}

/* Nothing is lost on the loopback device, but BBR, the default of many machines, paces even there with a timer per
 * packet, which more than doubles what a fetch costs. A socket that has begun with it goes on pacing whatever it is
 * told later, and it begins as its listener does. So accepted sockets of other machines get the usual algorithm back.
 * Cubic may be closed to us; Reno is open to everyone. */
static void set_unpaced(int fd)
{
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", strlen("cubic")) < 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", strlen("reno"));
}

static int try_listen(const struct addrinfo *address)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int one = 1, zero = 0;
    set_unpaced(fd);
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        (address->ai_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero) < 0) ||
        bind(fd, address->ai_addr, address->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

/* The addresses for sockets of streams, to be freed with freeaddrinfo: 0 or what gai_strerror has words for. */
static int look_up(const char *host, int port, int flags, struct addrinfo **addresses)
{
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    return getaddrinfo(host, service, &hints, addresses);
}

int pb_posix_socket_listen(pb_io *io, const char *host, int port, int *bound_port, pb_failure *failure)
{
    (void)io;
    struct addrinfo *addresses = NULL;
    int error = look_up(host[0] != '\0' ? host : NULL, port, AI_PASSIVE, &addresses);
    if (error != 0)
        return pb_fail(failure, -EINVAL, "cannot look up the listener host '%s' (%s)", host, gai_strerror(error));
    int fd = -EADDRNOTAVAIL;
    /* An empty host means every address: an IPv6 socket that also takes IPv4 comes first where the machine has IPv6. */
    for (int pass = 0; pass < 2 && fd < 0; pass++)
        for (const struct addrinfo *it = addresses; it != NULL && fd < 0; it = it->ai_next)
            if ((it->ai_family == AF_INET6) == (pass == (host[0] != '\0')))
                fd = try_listen(it);
    freeaddrinfo(addresses);
    if (fd < 0)
        return pb_fail(failure, fd, "cannot listen on %s:%d", host[0] != '\0' ? host : "*", port);
    *bound_port = bound_port_of(fd);
    return fd;
}

int pb_io_connect(const char *host, int port, pb_failure *failure)
{
    struct addrinfo *addresses = NULL;
    int error = look_up(host, port, 0, &addresses);
    if (error != 0)
        return pb_fail(failure, -EINVAL, "cannot look up the host '%s' (%s)", host, gai_strerror(error));
    int fd = -EADDRNOTAVAIL;
    for (const struct addrinfo *it = addresses; it != NULL && fd < 0; it = it->ai_next) {
        fd = socket(it->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            fd = -errno;
        } else if (connect(fd, it->ai_addr, it->ai_addrlen) < 0) {
            error = errno;
            close(fd);
            fd = -error;
        }
    }
    freeaddrinfo(addresses);
    return fd < 0 ? pb_fail(failure, fd, "cannot connect to %s:%d", host, port) : fd;
}

int pb_posix_socket_peer(pb_io *io, int fd, char *text, size_t size)
{
    (void)io;
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getpeername(fd, (struct sockaddr *)&address, &length) < 0)
        return -errno;
    if (address.ss_family == AF_INET6) {
        const struct in6_addr *v6 = &((struct sockaddr_in6 *)&address)->sin6_addr;
        if (IN6_IS_ADDR_V4MAPPED(v6))
            return inet_ntop(AF_INET, &v6->s6_addr[12], text, (socklen_t)size) != NULL ? 0 : -errno;
        return inet_ntop(AF_INET6, v6, text, (socklen_t)size) != NULL ? 0 : -errno;
    }
    return inet_ntop(AF_INET, &((struct sockaddr_in *)&address)->sin_addr, text, (socklen_t)size) != NULL ? 0 : -errno;
}

static bool is_loopback(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    if (address->ss_family != AF_INET6)
        return false;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == IN_LOOPBACKNET);
}

int pb_posix_address_find(pb_io *io, const char *host, int port, pb_address *out, int capacity, pb_failure *failure)
{
    (void)io;
    struct addrinfo *addresses = NULL;
    int error = look_up(host, port, 0, &addresses);
    if (error != 0)
        return pb_fail(failure, -EHOSTUNREACH, "cannot look up the host '%s' (%s)", host, gai_strerror(error));
    int count = 0;
    for (const struct addrinfo *it = addresses; it != NULL && count < capacity; it = it->ai_next) {
        pb_address *address = &out[count];
        if (it->ai_addrlen > sizeof address->words)
            continue;
        memset(address, 0, sizeof *address);
        memcpy(address->words, it->ai_addr, it->ai_addrlen);
        address->length = it->ai_addrlen;
        count++;
    }
    freeaddrinfo(addresses);
    return count > 0 ? count : pb_fail(failure, -EHOSTUNREACH, "the host '%s' has no address", host);
}

const struct sockaddr *pb_posix_sockaddr(const pb_address *address)
{
    return (const struct sockaddr *)address->words;
}

int pb_posix_socket_make(const pb_address *address, int flags)
{
    PB_ASSERT(address->length > 0 && address->length <= sizeof address->words);
    struct sockaddr_storage peer = {0};
    memcpy(&peer, address->words, address->length);
    int fd = socket(peer.ss_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0)
        return -errno;
    if (is_loopback(&peer)) /* before it begins */
        set_unpaced(fd);
    return fd;
}

/* How the kernel would have it for a socket of its own accord. */
static int default_congestion(char *name, socklen_t size)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int result = getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) < 0 ? -errno : 0;
    close(fd);
    return result;
}

/* Sockets start as their listener is: see set_unpaced. */
void pb_posix_tune_socket(int fd)
{
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char name[CONGESTION_NAME_BYTES] = "";
    if (getpeername(fd, (struct sockaddr *)&address, &length) == 0 && is_loopback(&address))
        set_unpaced(fd);
    else if (default_congestion(name, sizeof name) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strnlen(name, sizeof name));
}
