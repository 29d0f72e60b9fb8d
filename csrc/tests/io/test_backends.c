/* One set of cases over the real backends: what io.h promises about loops and sockets holds on each of them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/io/loop_rig.h"

enum { HEAD_BYTES = 1000, TAIL_BYTES = 500 };

static void rig_open(rig *it, const char *backend)
{
    rig_open_loop(it, backend);
    int pair[2];
    bool non_blocking = strcmp(backend, "epoll") == 0; /* as its accept makes them */
    CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    it->socket.fd = pair[0];
    CHECK_INT(fcntl(pair[0], F_SETFL, fcntl(pair[0], F_GETFL) | (non_blocking ? O_NONBLOCK : 0)), 0);
    it->peer = pair[1];
    CHECK_INT(it->io->ops->socket_attach(it->loop, &it->socket), 0);
}

static void rig_close(rig *it)
{
    it->io->ops->socket_shutdown(it->loop, &it->socket);
    for (int turn = 0; it->socket.receive.active || it->socket.transmit.active; turn++) {
        CHECK(turn < TURN_LIMIT);
        (void)it->io->ops->loop_turn(it->loop, TURN_NS);
    }
    close(it->peer);
    rig_close_loop(it);
}

#define FOR_EACH_BACKEND(it) \
    for (int backend = 0; backend < BACKENDS && (rig_open(&(it), backends[backend]), true); backend++, rig_close(&(it)))

TEST(bytes_arrive_before_and_after_the_receive_is_started)
{
    rig it;
    char buffer[16];
    FOR_EACH_BACKEND(it)
    {
        CHECK_INT(write(it.peer, "abc", 3), 3);
        it.io->ops->socket_recv(it.loop, &it.socket, buffer, sizeof buffer);
        CHECK_INT(it.received, 0); /* never inside the start */
        turn_until(&it, &it.received, 1);
        CHECK_INT(it.receive_result, 3);
        it.io->ops->socket_recv(it.loop, &it.socket, buffer, 2);
        (void)it.io->ops->loop_turn(it.loop, 0);
        CHECK_INT(it.received, 1);
        CHECK_INT(write(it.peer, "defgh", 5), 5);
        turn_until(&it, &it.received, 2);
        CHECK_INT(it.receive_result, 2);
        it.io->ops->socket_recv(it.loop, &it.socket, buffer, sizeof buffer);
        turn_until(&it, &it.received, 3);
        CHECK_INT(it.receive_result, 3);
        CHECK_MEM(buffer, "fgh", 3);
    }
}

TEST(a_hang_up_that_comes_with_the_last_bytes_is_seen)
{
    rig it;
    char buffer[16];
    for (int whole = 0; whole < 2; whole++)
        FOR_EACH_BACKEND(it)
        {
            CHECK_INT(write(it.peer, "abc", 3), 3);
            CHECK_INT(shutdown(it.peer, SHUT_WR), 0);
            it.io->ops->socket_recv(it.loop, &it.socket, buffer, whole ? 3 : sizeof buffer);
            turn_until(&it, &it.received, 1);
            CHECK_INT(it.receive_result, 3);
            it.io->ops->socket_recv(it.loop, &it.socket, buffer, sizeof buffer);
            turn_until(&it, &it.received, 2);
            CHECK_INT(it.receive_result, 0);
        }
}

TEST(waiting_without_a_buffer_says_when_there_is_something)
{
    rig it;
    char buffer[4];
    FOR_EACH_BACKEND(it)
    {
        it.io->ops->socket_recv(it.loop, &it.socket, NULL, 0);
        (void)it.io->ops->loop_turn(it.loop, 0);
        CHECK_INT(it.received, 0);
        CHECK_INT(write(it.peer, "x", 1), 1);
        turn_until(&it, &it.received, 1);
        CHECK(it.receive_result > 0);
        it.io->ops->socket_recv(it.loop, &it.socket, buffer, sizeof buffer);
        turn_until(&it, &it.received, 2);
        CHECK_INT(it.receive_result, 1);
    }
}

TEST(a_cancelled_receive_ends_and_the_next_one_works)
{
    rig it;
    char buffer[4];
    FOR_EACH_BACKEND(it)
    {
        it.io->ops->socket_cancel(it.loop, &it.socket); /* nothing started: nothing happens */
        it.io->ops->socket_recv(it.loop, &it.socket, buffer, sizeof buffer);
        (void)it.io->ops->loop_turn(it.loop, 0);
        it.io->ops->socket_cancel(it.loop, &it.socket);
        turn_until(&it, &it.received, 1);
        CHECK_INT(it.receive_result, -ECANCELED);
        it.io->ops->socket_recv(it.loop, &it.socket, buffer, sizeof buffer);
        CHECK_INT(write(it.peer, "ok", 2), 2);
        turn_until(&it, &it.received, 2);
        CHECK_INT(it.receive_result, 2);
    }
}

static uint8_t large[8 << 20];

/* What the peer reads, on a thread of its own. */
static void *read_all(void *argument)
{
    rig *it = argument;
    static uint8_t got[sizeof large];
    size_t done = 0;
    while (done < sizeof large) {
        ssize_t part = read(it->peer, got + done, sizeof large - done);
        CHECK(part > 0);
        done += (size_t)part;
    }
    CHECK_MEM(got, large, sizeof large);
    return NULL;
}

static void fill_large(void)
{
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (uint8_t)(i * 31 + (i >> 12));
}

TEST(sends_larger_than_the_socket_go_on_where_they_stopped)
{
    rig it;
    fill_large();
    FOR_EACH_BACKEND(it)
    {
        pthread_t reader;
        CHECK_INT(pthread_create(&reader, NULL, read_all, &it), 0);
        size_t done = 0;
        while (done < sizeof large) {
            size_t half = (sizeof large - done) / 2;
            struct iovec iov[2] = {{large + done, half}, {large + done + half, sizeof large - done - half}};
            int before = it.sent;
            it.io->ops->socket_send(it.loop, &it.socket, half > 0 ? iov : iov + 1, half > 0 ? 2 : 1);
            turn_until(&it, &it.sent, before + 1);
            CHECK(it.send_result > 0 || it.send_result == -EAGAIN);
            done += it.send_result > 0 ? (size_t)it.send_result : 0;
        }
        CHECK_INT(pthread_join(reader, NULL), 0);
    }
}

#define TEMPORARY_PATH "/tmp/pb-backend-XXXXXX"

static int temporary_file(rig *it, char *path)
{
    memcpy(path, TEMPORARY_PATH, sizeof TEMPORARY_PATH);
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    int file = it->io->ops->file_open(it->io, path, PB_OPEN_WRITE);
    CHECK(file >= 0);
    return file;
}

/* Something in the place of a file, at `path`, which is made of TEMPORARY_PATH. */
static void put_in_place(char *path, const char *what)
{
    memcpy(path, TEMPORARY_PATH, sizeof TEMPORARY_PATH);
    CHECK(mkdtemp(path) != NULL);
    if (strcmp(what, "directory") == 0)
        return;
    CHECK_INT(rmdir(path), 0);
    if (strcmp(what, "fifo") == 0) {
        CHECK_INT(mkfifo(path, 0600), 0);
    } else if (strcmp(what, "socket") == 0) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        memcpy(address.sun_path, path, sizeof TEMPORARY_PATH);
        CHECK_INT(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
        close(fd);
    } else if (strcmp(what, "device") == 0) {
        CHECK_INT(symlink("/dev/null", path), 0);
    } else {
        CHECK_INT(symlink(path, path), 0); /* a loop */
    }
}

TEST(only_a_regular_file_is_opened_and_nothing_is_waited_for)
{
    static const struct {
        const char *what;
        int result;
    } kinds[] = {
        {"directory", -EISDIR},   {"fifo", -EMEDIUMTYPE}, {"socket", -EMEDIUMTYPE},
        {"device", -EMEDIUMTYPE}, {"loop", -ELOOP},
    };
    static const int ways[] = {PB_OPEN_READ, PB_OPEN_WRITE, PB_OPEN_WRITE | PB_OPEN_CREATE, PB_OPEN_EXACT};
    rig it;
    char path[sizeof TEMPORARY_PATH];
    FOR_EACH_BACKEND(it)
    {
        for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
            put_in_place(path, kinds[kind].what);
            for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
                CHECK_INT(it.io->ops->file_open(it.io, path, ways[way]), kinds[kind].result);
            it.io->ops->thread_read_mode(it.io, PB_READ_RESIDENT);
            CHECK_INT(it.io->ops->file_open(it.io, path, PB_OPEN_READ), kinds[kind].result);
            it.io->ops->thread_read_mode(it.io, PB_READ_USUAL);
            CHECK_INT(remove(path), 0);
        }
        char link[sizeof path + sizeof "-link"];
        int file = temporary_file(&it, path);
        CHECK_INT(it.io->ops->file_close(it.io, file), 0);
        snprintf(link, sizeof link, "%s-link", path);
        CHECK_INT(symlink(path, link), 0);
        file = it.io->ops->file_open(it.io, link, PB_OPEN_WRITE);
        CHECK(file >= 0);
        CHECK_INT(fcntl(file, F_GETFL) & O_NONBLOCK, 0);
        CHECK_INT(it.io->ops->file_close(it.io, file), 0);
        CHECK_INT(unlink(link) + unlink(path), 0);
    }
}

TEST(files_know_when_they_were_modified)
{
    static const struct timespec past[2] = {{1600000000, 123456789}, {1600000000, 123456789}};
    rig it;
    char path[sizeof TEMPORARY_PATH];
    FOR_EACH_BACKEND(it)
    {
        int file = temporary_file(&it, path);
        CHECK_INT(utimensat(AT_FDCWD, path, past, 0), 0);
        CHECK_INT(it.io->ops->file_modified_ms(it.io, file), 1600000000123);
        struct iovec iov = {large, 1};
        CHECK_INT(pb_io_write_all(it.io, file, &iov, 1, 0), 0);
        CHECK(it.io->ops->file_modified_ms(it.io, file) > 1600000000123);
        CHECK_INT(it.io->ops->file_close(it.io, file), 0);
        CHECK_INT(unlink(path), 0);
    }
}

TEST(a_file_system_knows_what_lies_on_it)
{
    rig it;
    char directory[] = "/tmp/pb-io-test-XXXXXX", link[64];
    CHECK(mkdtemp(directory) != NULL);
    snprintf(link, sizeof link, "%s/proc", directory);
    CHECK_INT(symlink("/proc", link), 0);
    FOR_EACH_BACKEND(it)
    {
        int filesystem = it.io->ops->filesystem_open(it.io, "/tmp");
        CHECK(filesystem >= 0 || filesystem == -ENOSYS);
        if (filesystem < 0)
            continue;
        CHECK_INT(it.io->ops->filesystem_holds(it.io, filesystem, directory), 1);
        CHECK_INT(it.io->ops->filesystem_holds(it.io, filesystem, link), 0);
        CHECK_INT(it.io->ops->filesystem_holds(it.io, filesystem, "/nowhere/at/all"), -ENOENT);
        CHECK_INT(it.io->ops->file_close(it.io, filesystem), 0);
    }
    CHECK_INT(unlink(link), 0);
    CHECK_INT(rmdir(directory), 0);
}

TEST(files_leave_by_sendfile_between_head_and_tail_and_end_where_they_end)
{
    rig it;
    char path[64];
    fill_large();
    FOR_EACH_BACKEND(it)
    {
        int file = temporary_file(&it, path);
        struct iovec iov = {large, sizeof large};
        CHECK_INT(pb_io_write_all(it.io, file, &iov, 1, 0), 0);
        pthread_t reader;
        CHECK_INT(pthread_create(&reader, NULL, read_all, &it), 0);
        for (size_t done = 0; done < sizeof large;) {
            int before = it.sent;
            size_t at = done < HEAD_BYTES ? HEAD_BYTES : done, file_end = sizeof large - TAIL_BYTES;
            struct iovec parts[2] = {{large + done, at - done}, {large + file_end, TAIL_BYTES}};
            if (at < file_end) {
                int first = at > done ? 0 : 1;
                it.io->ops->socket_sendfile(it.loop, &it.socket, parts + first, 2 - first, 1, file, (int64_t)at,
                                            file_end - at);
            } else {
                parts[1] = (struct iovec){large + done, sizeof large - done};
                it.io->ops->socket_send(it.loop, &it.socket, &parts[1], 1);
            }
            turn_until(&it, &it.sent, before + 1);
            CHECK(it.send_result > 0);
            done += (size_t)it.send_result;
        }
        CHECK_INT(pthread_join(reader, NULL), 0);
        int before = it.sent;
        it.io->ops->socket_sendfile(it.loop, &it.socket, NULL, 0, 0, file, sizeof large, 100); /* behind its end */
        turn_until(&it, &it.sent, before + 1);
        CHECK_INT(it.send_result, 0);
        CHECK_INT(it.io->ops->file_close(it.io, file), 0);
        CHECK_INT(unlink(path), 0);
    }
}

TEST(ranges_of_any_length_leave_byte_for_byte_from_anywhere_in_a_file)
{
    enum { EDGE_BYTES = 16 };
    static const size_t lengths[] = {33000, 1, 65049, 4095, 61440, 4096, 65536, 4097, 40000, 65537, 8191, 8192, 100000};
    rig it;
    char path[64];
    fill_large();
    FOR_EACH_BACKEND(it)
    {
        int file = temporary_file(&it, path);
        struct iovec iov = {large, sizeof large};
        CHECK_INT(pb_io_write_all(it.io, file, &iov, 1, 0), 0);
        pthread_t reader;
        CHECK_INT(pthread_create(&reader, NULL, read_all, &it), 0);
        size_t done = 0;
        for (size_t i = 0; done < sizeof large; i++) {
            int before = it.sent;
            size_t length = lengths[i % (sizeof lengths / sizeof lengths[0])];
            struct iovec parts[2] = {{large + done, EDGE_BYTES}, {large + done + EDGE_BYTES + length, EDGE_BYTES}};
            if (sizeof large - done >= length + 2 * EDGE_BYTES) {
                it.io->ops->socket_sendfile(it.loop, &it.socket, parts, 2, 1, file, (int64_t)done + EDGE_BYTES, length);
            } else {
                parts[0].iov_len = sizeof large - done;
                it.io->ops->socket_send(it.loop, &it.socket, parts, 1);
            }
            turn_until(&it, &it.sent, before + 1);
            CHECK(it.send_result > 0); /* it may be less than all, and the next begins there */
            done += (size_t)it.send_result;
        }
        CHECK_INT(pthread_join(reader, NULL), 0);
        CHECK_INT(it.io->ops->file_close(it.io, file), 0);
        CHECK_INT(unlink(path), 0);
    }
}

TEST(head_file_and_tail_leave_at_once_where_there_is_room)
{
    rig it;
    char path[64], got[16];
    FOR_EACH_BACKEND(it)
    {
        int file = temporary_file(&it, path);
        struct iovec iov = {(char[]){"0123456789"}, 10}, parts[3] = {{"a", 1}, {"bc", 2}, {"yz", 2}};
        CHECK_INT(pb_io_write_all(it.io, file, &iov, 1, 0), 0);
        it.io->ops->socket_sendfile(it.loop, &it.socket, parts, 3, 1, file, 3, 4);
        turn_until(&it, &it.sent, 1);
        CHECK_INT(it.send_result, 9);
        CHECK_INT(read(it.peer, got, sizeof got), 9);
        CHECK_INT(memcmp(got, "abc3456yz", 9), 0);
        it.io->ops->socket_sendfile(it.loop, &it.socket, parts, 3, 1, file, 8, 4); /* its end comes before */
        turn_until(&it, &it.sent, 2);
        CHECK_INT(it.send_result, 5);
        CHECK_INT(read(it.peer, got, sizeof got), 5);
        CHECK_INT(memcmp(got, "abc89", 5), 0);
        CHECK_INT(it.io->ops->file_close(it.io, file), 0);
        CHECK_INT(unlink(path), 0);
    }
}

/* On a disk, so that its pages can be dropped; tmpfs keeps them. */
static int file_on_disk(rig *it, char *path, bool *droppable)
{
    struct statfs system;
    fill_large();
    int file = temporary_file(it, path);
    struct iovec iov = {large, sizeof large};
    CHECK_INT(pb_io_write_all(it->io, file, &iov, 1, 0), 0);
    CHECK_INT(it->io->ops->file_sync(it->io, file), 0);
    CHECK_INT(fstatfs(file, &system), 0);
    *droppable = system.f_type != TMPFS_MAGIC;
    return file;
}

static void check_cold(rig *it, int file)
{
    const pb_io_ops *ops = it->io->ops;
    static uint8_t got[sizeof large];
    CHECK_INT(ops->file_resident(it->io, file, 0, sizeof large), 1);
    CHECK_INT(ops->file_drop(it->io, file, 0, 0), 0); /* all: pages written together are kept together */
    CHECK_INT(ops->file_resident(it->io, file, 0, 1), 0);
    CHECK_INT(ops->file_bring_in(it->io, file, 0, 1 << 20), 0);
    CHECK_INT(ops->file_resident(it->io, file, 0, sizeof large), 0);
    CHECK_INT(ops->file_resident(it->io, file, 0, 1 << 20), 1);
    ops->thread_read_mode(it->io, PB_READ_RESIDENT);
    CHECK_INT(pb_io_read_all(it->io, file, got, 1 << 20, 0), 0);
    CHECK_INT(pb_io_read_all(it->io, file, got, 4096, 3 << 19), -EAGAIN);
    CHECK_INT(ops->file_resident(it->io, file, 3 << 19, 4096), 0); /* trying has not begun to read it */
    ops->thread_read_mode(it->io, PB_READ_USUAL);
    CHECK_INT(ops->file_bring_in(it->io, file, 3 << 19, 300000), 0);
    CHECK_INT(ops->file_resident(it->io, file, 3 << 19, 300000), 1);
    CHECK_INT(ops->file_resident(it->io, file, 1 << 20, 1 << 19), 0); /* no more than asked */
    CHECK_INT(ops->file_resident(it->io, file, (3 << 19) + 304 * 1024, 4096), 0);
    ops->thread_read_mode(it->io, PB_READ_RESIDENT);
    CHECK_INT(pb_io_read_all(it->io, file, got, 300000, 3 << 19), 0);
    CHECK_MEM(got, large + (3 << 19), 300000);
    CHECK_INT(pb_io_read_all(it->io, file, got, 300000, 5 << 18), -EAGAIN);
    ops->thread_read_mode(it->io, PB_READ_USUAL);
    CHECK_INT(ops->file_bring_in(it->io, file, PB_LARGE_PAGE_BYTES, PB_LARGE_PAGE_BYTES), 0); /* in one, maybe */
    CHECK_INT(ops->file_resident(it->io, file, PB_LARGE_PAGE_BYTES, PB_LARGE_PAGE_BYTES), 1);
    CHECK_INT(ops->file_resident(it->io, file, 2 * PB_LARGE_PAGE_BYTES, PB_DIRECT_BLOCK_BYTES), 0);
    CHECK_INT(pb_io_read_all(it->io, file, got, sizeof got, 0), 0);
    CHECK_MEM(got, large, sizeof large);
}

TEST(what_is_not_in_memory_is_known_and_brought_in)
{
    rig it;
    char path[sizeof TEMPORARY_PATH];
    for (pb_residency way = pb_posix_residency(); way <= PB_RESIDENCY_MINCORE; way++)
        FOR_EACH_BACKEND(it)
        {
            pb_residency best = pb_posix_residency();
            pb_posix_force_residency(way);
            bool droppable;
            int file = file_on_disk(&it, path, &droppable);
            if (droppable)
                check_cold(&it, file);
            CHECK_INT(it.io->ops->file_bring_in(it.io, file, sizeof large - 1, 2), -ENODATA);
            CHECK_INT(it.io->ops->file_bring_in(it.io, file, sizeof large, PB_LARGE_PAGE_BYTES), -ENODATA);
            CHECK_INT(it.io->ops->file_close(it.io, file), 0);
            it.io->ops->thread_read_mode(it.io, PB_READ_RESIDENT);
            file = it.io->ops->file_open(it.io, path, PB_OPEN_READ); /* its name has just been used */
            CHECK(file >= 0);
            CHECK_INT(it.io->ops->file_open(it.io, "/nowhere/at/all", PB_OPEN_READ), -ENOENT);
            it.io->ops->thread_read_mode(it.io, PB_READ_USUAL);
            CHECK_INT(it.io->ops->file_close(it.io, file), 0);
            CHECK_INT(unlink(path), 0);
            pb_posix_force_residency(best);
        }
}

TEST(a_peer_that_has_gone_is_an_error_not_a_signal)
{
    rig it;
    char path[64];
    FOR_EACH_BACKEND(it)
    {
        int file = temporary_file(&it, path);
        struct iovec iov = {large, 4096};
        CHECK_INT(pb_io_write_all(it.io, file, &iov, 1, 0), 0);
        close(it.peer);
        it.peer = dup(0);
        iov = (struct iovec){large, 4096};
        it.io->ops->socket_send(it.loop, &it.socket, &iov, 1);
        turn_until(&it, &it.sent, 1);
        CHECK(it.send_result < 0 && it.send_result != -EAGAIN);
        it.io->ops->socket_sendfile(it.loop, &it.socket, NULL, 0, 0, file, 0, 4096);
        turn_until(&it, &it.sent, 2);
        CHECK(it.send_result < 0 && it.send_result != -EAGAIN);
        CHECK_INT(it.io->ops->file_close(it.io, file), 0);
        CHECK_INT(unlink(path), 0);
    }
}

/* As it is between fork and exec: the child's copy keeps the connection open. */
TEST(a_socket_that_is_closed_is_left_alone_while_a_copy_of_it_is_open)
{
    rig it;
    FOR_EACH_BACKEND(it)
    {
        int pair[2];
        CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        pb_socket second = {.fd = pair[0]};
        CHECK_INT(it.io->ops->socket_attach(it.loop, &second), 0);
        int copy = dup(pair[0]);
        it.io->ops->socket_close(it.loop, &second);
        second.readable = false;
        CHECK_INT(write(pair[1], "x", 1), 1);
        (void)it.io->ops->loop_turn(it.loop, 0);
        CHECK(!second.readable);
        close(copy);
        close(pair[1]);
    }
}

TEST(a_shutdown_ends_what_is_started)
{
    rig it;
    char buffer[4];
    char path[64];
    for (int by_file = 0; by_file < 2; by_file++)
        FOR_EACH_BACKEND(it)
        {
            int file = temporary_file(&it, path);
            struct iovec iov = {large, sizeof large};
            CHECK_INT(pb_io_write_all(it.io, file, &iov, 1, 0), 0);
            it.io->ops->socket_recv(it.loop, &it.socket, buffer, sizeof buffer);
            do { /* until the socket is full: nobody reads */
                int before = it.sent;
                struct iovec all = {large, sizeof large};
                if (by_file)
                    it.io->ops->socket_sendfile(it.loop, &it.socket, NULL, 0, 0, file, 0, sizeof large);
                else
                    it.io->ops->socket_send(it.loop, &it.socket, &all, 1);
                for (int turn = 0; turn < 20 && it.sent == before; turn++)
                    (void)it.io->ops->loop_turn(it.loop, 1000000);
            } while (!it.socket.transmit.active);
            int before = it.sent;
            it.io->ops->socket_shutdown(it.loop, &it.socket);
            turn_until(&it, &it.received, 1);
            turn_until(&it, &it.sent, before + 1);
            CHECK(it.receive_result <= 0);
            CHECK_INT(it.io->ops->file_close(it.io, file), 0);
            CHECK_INT(unlink(path), 0);
        }
}

TEST(a_closed_socket_that_a_child_process_still_has_is_not_touched)
{
    for (int backend = 0; backend < BACKENDS; backend++) {
        rig it;
        rig_open(&it, backends[backend]);
        char byte = 1;
        it.io->ops->socket_recv(it.loop, &it.socket, &byte, 1);
        CHECK_INT(write(it.peer, &byte, 1), 1);
        turn_until(&it, &it.received, 1);
        int child = dup(it.socket.fd); /* as a fork would */
        CHECK(child >= 0);
        it.io->ops->socket_close(it.loop, &it.socket);
        memset(&it.socket, 0x55, sizeof it.socket); /* its memory is another's now */
        CHECK_INT(write(it.peer, &byte, 1), 1);
        (void)it.io->ops->loop_turn(it.loop, 1000000);
        const uint8_t *memory = (const uint8_t *)&it.socket;
        for (size_t i = 0; i < sizeof it.socket; i++)
            CHECK_INT(memory[i], 0x55);
        close(child);
        close(it.peer);
        it.io->ops->loop_close(it.loop);
        it.io->ops->close(it.io);
    }
}

static void *wake_later(void *argument)
{
    rig *it = argument;
    usleep(20000);
    it->io->ops->loop_wake(it->loop);
    return NULL;
}

static enum pb_step note_nice(void *context)
{
    *(int *)context = getpriority(PRIO_PROCESS, (id_t)gettid());
    return PB_STEP_END;
}

TEST(a_thread_that_steps_behind_has_less_weight)
{
    rig it;
    int ours = getpriority(PRIO_PROCESS, (id_t)gettid());
    FOR_EACH_BACKEND(it)
    {
        for (int rank = PB_RANK_USUAL; rank <= PB_RANK_BEHIND; rank++) {
            int nice = INT_MIN;
            pb_thread *thread;
            CHECK_INT(it.io->ops->thread_start(it.io, "pb-test", (enum pb_thread_rank)rank, note_nice, &nice, &thread),
                      0);
            it.io->ops->thread_join(thread);
            CHECK(nice == ours || rank == PB_RANK_BEHIND);
            CHECK(nice > ours || nice == 19 || rank != PB_RANK_BEHIND);
        }
    }
}

TEST(a_wake_ends_the_current_or_the_next_wait)
{
    rig it;
    FOR_EACH_BACKEND(it)
    {
        (void)it.io->ops->loop_turn(it.loop, 0);
        it.io->ops->loop_wake(it.loop);
        it.io->ops->loop_wake(it.loop);
        CHECK_INT(it.io->ops->loop_turn(it.loop, PB_IO_FOREVER), 0);
        for (int i = 0; i < 5; i++) {
            pthread_t waker;
            CHECK_INT(pthread_create(&waker, NULL, wake_later, &it), 0);
            CHECK_INT(it.io->ops->loop_turn(it.loop, PB_IO_FOREVER), 0);
            CHECK_INT(pthread_join(waker, NULL), 0);
        }
        int64_t before = it.io->ops->monotonic_ns(it.io);
        for (int turn = 0; turn < 3; turn++) /* the doorbell's own end may cut a wait short */
            CHECK_INT(it.io->ops->loop_turn(it.loop, 5000000), 0);
        CHECK(it.io->ops->monotonic_ns(it.io) - before >= 4000000);
    }
}

typedef struct pending_write {
    pb_op op;
    int64_t result;
    bool done;
} pending_write;

static void write_done(pb_op *op, int64_t result)
{
    pending_write *write = PB_CONTAINER(op, pending_write, op);
    write->result = result;
    write->done = true;
}

TEST(appends_of_any_size_are_written_at_once_or_later)
{
    static const size_t sizes[] = {1, 4096, 255 << 10, 256 << 10, 1 << 20};
    rig it;
    char path[64];
    fill_large();
    FOR_EACH_BACKEND(it)
    {
        int file = temporary_file(&it, path);
        int64_t position = 0;
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            struct iovec iov[2] = {{large, sizes[i]}, {large, 1}};
            pending_write write = {.op.done = write_done};
            int64_t result = it.io->ops->write_start(it.loop, &write.op, file, iov, 2, position);
            for (int turn = 0; result == PB_IO_PENDING && !write.done; turn++) {
                CHECK(turn < TURN_LIMIT);
                (void)it.io->ops->loop_turn(it.loop, 10000000);
            }
            CHECK_INT(result == PB_IO_PENDING ? write.result : result, sizes[i] + 1);
            position += (int64_t)sizes[i] + 1;
            CHECK_INT(it.io->ops->file_size(it.io, file), position);
        }
        CHECK_INT(it.io->ops->file_close(it.io, file), 0);
        CHECK_INT(unlink(path), 0);
    }
}

static void await_result(rig *it, const pending_write *write, int64_t result)
{
    for (int turn = 0; !write->done; turn++) {
        CHECK(turn < TURN_LIMIT);
        (void)it->io->ops->loop_turn(it->loop, 10000000);
    }
    CHECK_INT(write->result, result);
}

/* Durable by itself, or by a flush. */
static void write_directly(rig *it, int file, uint8_t *blocks, bool durable)
{
    enum { BLOCK = PB_DIRECT_BLOCK_BYTES };
    struct iovec iov[2] = {{blocks, BLOCK}, {blocks + BLOCK, BLOCK}};
    pending_write write = {.op = {.done = write_done, .direct = true, .durable = durable}};
    CHECK_INT(it->io->ops->write_start(it->loop, &write.op, file, iov, 2, BLOCK), PB_IO_PENDING);
    await_result(it, &write, 2 * BLOCK);
    if (durable)
        return;
    pending_write flush = {.op = {.done = write_done}};
    it->io->ops->flush_start(it->loop, &flush.op, file);
    CHECK(flush.op.active);
    await_result(it, &flush, 0);
}

TEST(a_direct_write_and_a_flush_are_started_and_end_later)
{
    enum { BLOCK = PB_DIRECT_BLOCK_BYTES };
    rig it;
    char path[64];
    uint8_t *blocks = aligned_alloc(BLOCK, 2 * BLOCK), found[BLOCK];
    memset(blocks, 'd', 2 * BLOCK);
    FOR_EACH_BACKEND(it)
    {
        int made = temporary_file(&it, path);
        CHECK_INT(it.io->ops->file_close(it.io, made), 0);
        int file = it.io->ops->file_open(it.io, path, PB_OPEN_WRITE | PB_OPEN_DIRECT);
        if (file >= 0 && it.io->ops->starts_durable_writes) {
            write_directly(&it, file, blocks, true);
            memset(blocks, 'f', 2 * BLOCK);
            write_directly(&it, file, blocks, false);
            CHECK_INT(it.io->ops->file_size(it.io, file), 3 * BLOCK);
            int plain = it.io->ops->file_open(it.io, path, PB_OPEN_READ);
            CHECK_INT(pb_io_read_all(it.io, plain, found, BLOCK, 2 * BLOCK), 0);
            CHECK_MEM(found, blocks, BLOCK);
            CHECK_INT(it.io->ops->file_close(it.io, plain), 0);
        }
        if (file >= 0)
            CHECK_INT(it.io->ops->file_close(it.io, file), 0);
        CHECK_INT(unlink(path), 0);
    }
    free(blocks);
}

TEST(files_of_an_unknown_file_system_are_flushed_one_by_one)
{
    rig it;
    char path[64];
    FOR_EACH_BACKEND(it)
    {
        int memory = (int)syscall(SYS_memfd_create, "tmpfs", 0);
        CHECK(memory >= 0);
        CHECK_INT(it.io->ops->file_flush_device(it.io, memory), 0);
        CHECK_INT(close(memory), 0);
        int file = temporary_file(&it, path);
        struct stat facts;
        CHECK_INT(fstat(file, &facts), 0);
        uint64_t device = it.io->ops->file_flush_device(it.io, file);
        CHECK(device == 0 || device == facts.st_dev);
        CHECK_INT(it.io->ops->file_close(it.io, file), 0);
        CHECK_INT(unlink(path), 0);
    }
}

static int accepted_count;
static int64_t accepted_fd;

static void accept_done(pb_op *op, int64_t result)
{
    (void)op;
    accepted_count++;
    accepted_fd = result;
}

TEST(a_listener_accepts_until_it_is_shut)
{
    rig it;
    pb_failure failure = {0};
    FOR_EACH_BACKEND(it)
    {
        int port = 0, taken = 0;
        pb_socket listener = {.receive.done = accept_done};
        listener.fd = it.io->ops->socket_listen(it.io, "127.0.0.1", 0, &port, &failure);
        CHECK(listener.fd >= 0 && port > 0);
        CHECK_INT(it.io->ops->socket_listen(it.io, "127.0.0.1", port, &taken, &failure), -EADDRINUSE);
        CHECK(it.io->ops->socket_listen(it.io, "no such host.", port, &taken, &failure) < 0);
        accepted_count = 0;
        it.io->ops->socket_accept(it.loop, &listener);
        for (int i = 0; i < 3; i++) {
            struct sockaddr_storage address;
            socklen_t length = sizeof address;
            CHECK_INT(getsockname(listener.fd, (struct sockaddr *)&address, &length), 0);
            int client = socket(AF_INET, SOCK_STREAM, 0);
            CHECK_INT(connect(client, (struct sockaddr *)&address, length), 0);
            turn_until(&it, &accepted_count, i + 1);
            CHECK(accepted_fd >= 0);
            char host[46];
            CHECK_INT(it.io->ops->socket_peer(it.io, (int)accepted_fd, host, sizeof host), 0);
            CHECK_STR(host, "127.0.0.1");
            close((int)accepted_fd);
            close(client);
            it.io->ops->socket_accept(it.loop, &listener);
        }
        it.io->ops->socket_shutdown(it.loop, &listener);
        turn_until(&it, &accepted_count, 4);
        CHECK(accepted_fd < 0);
        it.io->ops->socket_close(it.loop, &listener);
    }
}

typedef struct congestion {
    char name[16];
} congestion;

static congestion congestion_of(int fd)
{
    congestion found = {""};
    socklen_t length = sizeof found.name;
    CHECK_INT(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, found.name, &length), 0);
    return found;
}

TEST(sockets_of_this_machine_begin_unpaced_and_others_as_usual)
{
    rig it;
    pb_failure failure = {0};
    int other = socket(AF_INET, SOCK_STREAM, 0);
    congestion usual = congestion_of(other);
    FOR_EACH_BACKEND(it)
    {
        int port = 0;
        int listener = it.io->ops->socket_listen(it.io, "127.0.0.1", 0, &port, &failure);
        CHECK(listener >= 0);
        CHECK(strcmp(congestion_of(listener).name, "bbr") != 0);
        int client = pb_io_connect("127.0.0.1", port, &failure);
        struct sockaddr_storage address;
        socklen_t length = sizeof address;
        CHECK_INT(fcntl(listener, F_SETFL, 0), 0);
        int accepted = accept(listener, (struct sockaddr *)&address, &length);
        CHECK(client >= 0 && accepted >= 0);
        CHECK_STR(congestion_of(accepted).name, congestion_of(listener).name);
        pb_posix_tune_socket(accepted);
        CHECK_STR(congestion_of(accepted).name, congestion_of(listener).name);
        close(accepted);
        close(client);
        close(listener);
    }
    CHECK_INT(setsockopt(other, IPPROTO_TCP, TCP_CONGESTION, "reno", 4), 0);
    pb_posix_tune_socket(other); /* whose peer is nobody's neighbour */
    CHECK_STR(congestion_of(other).name, usual.name);
    close(other);
}

enum { BEST_EFFORT = 2, CLASS_SHIFT = 13, WHO_PROCESS = 1 }; /* of ioprio_get(2) */

static int disk_class(void)
{
    return (int)syscall(SYS_ioprio_get, WHO_PROCESS, 0) >> CLASS_SHIFT;
}

TEST(a_thread_goes_first_and_back_where_it_may)
{
    pb_failure failure = {0};
    pb_io *io = NULL;
    CHECK_INT(pb_io_open("epoll", &io, &failure), 0);
    for (int i = 0; i < 100; i++) { /* each gives back what it took: there are fewer CPUs than that */
        int result = io->ops->thread_go_first(io, true);
        CHECK(result == 0 || result == -EPERM || result == -EAGAIN);
        CHECK_INT(sched_getscheduler(0), result == 0 ? SCHED_RR : SCHED_OTHER);
        if (result != 0)
            break;
        CHECK_INT(disk_class(), BEST_EFFORT); /* on the disk it stays where all others are */
        CHECK_INT(io->ops->thread_go_first(io, false), 0);
        CHECK_INT(sched_getscheduler(0), SCHED_OTHER);
    }
    io->ops->close(io);
}

enum { CROWD = 40 };

/* Sockets in the order in which they were heard of. */
static pb_socket *heard[CROWD + 1];
static int heard_count;

static void hear(pb_op *op, int64_t result)
{
    CHECK_INT(result, 1);
    heard[heard_count++] = PB_CONTAINER(op, pb_socket, receive);
}

TEST(patient_sockets_let_others_go_first)
{
    rig it;
    FOR_EACH_BACKEND(it)
    {
        pb_socket sockets[CROWD + 1] = {0};
        int peers[CROWD + 1];
        char byte;
        heard_count = 0;
        for (int i = 0; i <= CROWD; i++) { /* the last one is in a hurry, and its byte comes last */
            int pair[2];
            CHECK_INT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            peers[i] = pair[1];
            sockets[i].fd = pair[0];
            sockets[i].patient = i < CROWD;
            sockets[i].receive.done = hear;
            CHECK_INT(it.io->ops->socket_attach(it.loop, &sockets[i]), 0);
            it.io->ops->socket_recv(it.loop, &sockets[i], &byte, 1);
        }
        (void)it.io->ops->loop_turn(it.loop, 0);
        for (int i = 0; i <= CROWD; i++)
            CHECK_INT(write(peers[i], "x", 1), 1);
        int turns = 0;
        for (; heard_count <= CROWD; turns++) {
            CHECK(turns < TURN_LIMIT);
            (void)it.io->ops->loop_turn(it.loop, 10000000);
            if (turns == 0)
                CHECK_INT(heard_count, 1 + PB_PATIENT_BESIDE_URGENT);
        }
        CHECK(heard[0] == &sockets[CROWD]);
        CHECK(turns >= CROWD / PB_PATIENT_PER_TURN);
        for (int i = 0; i < CROWD; i++)
            CHECK(heard[i + 1] == &sockets[i]);
        for (int i = 0; i <= CROWD; i++) {
            it.io->ops->socket_close(it.loop, &sockets[i]);
            close(peers[i]);
        }
    }
}

CHECK_MAIN()
