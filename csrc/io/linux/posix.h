/*
 * Shared by the io_uring and epoll backends: blocking calls on files and names, clocks, threads, listening sockets.
 * Plain system calls; every function follows the contracts of io.h.
 */
#ifndef PB_IO_LINUX_POSIX_H
#define PB_IO_LINUX_POSIX_H

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "io/io.h"

enum { PB_POSIX_PAGE_BYTES = 4096 }; /* of the page cache */

/* Run a system call until it is not interrupted; its result or -errno. */
#define RETRY(call)                                        \
    ({                                                     \
        int64_t retry_result;                              \
        do                                                 \
            retry_result = (int64_t)(call);                \
        while (retry_result < 0 && errno == EINTR);        \
        retry_result < 0 ? -(int64_t)errno : retry_result; \
    })

/* Wakes a loop that may sleep: one write per sleep, none when nobody waits. */
typedef struct pb_wakeup {
    int event_fd;
    atomic_bool sleeping; /* the loop is about to wait or waits */
    atomic_bool woken;    /* a wake came since the last turn */
} pb_wakeup;

int pb_wakeup_open(pb_wakeup *wakeup);
void pb_wakeup_close(pb_wakeup *wakeup);
void pb_wakeup_signal(pb_wakeup *wakeup);
/* Before waiting: false when a wake came and the loop must not sleep. */
bool pb_wakeup_prepare(pb_wakeup *wakeup);
void pb_wakeup_finish(pb_wakeup *wakeup);

/* Try a sendfile operation now: bytes sent, -EAGAIN, or another -errno. Handles sockets in either blocking mode. */
int64_t pb_posix_sendfile(const pb_op *op, bool socket_blocks);

/* Operations that have finished and whose owners do not know yet. Owner: a loop. */
typedef struct pb_finished {
    pb_link urgent;
    pb_link patient; /* those of patient sockets, in their order */
} pb_finished;

static inline void pb_finished_init(pb_finished *finished)
{
    pb_list_init(&finished->urgent);
    pb_list_init(&finished->patient);
}

static inline bool pb_finished_empty(const pb_finished *finished)
{
    return pb_list_empty(&finished->urgent) && pb_list_empty(&finished->patient);
}

static inline void pb_finished_put(pb_finished *finished, pb_op *op, int64_t result)
{
    PB_ASSERT(op->active);
    PB_ASSERT(pb_list_empty(&op->link));
    op->result = result;
    bool patient = op->socket != NULL && op->socket->patient;
    pb_list_push_back(patient ? &finished->patient : &finished->urgent, &op->link);
}

/* Tell the owners of at most `limit` operations of `list`; what finishes meanwhile waits for the next turn. The count.
 */
static inline int pb_finished_deliver_some(pb_link *list, int limit)
{
    pb_link batch;
    int taken = pb_list_take_some(&batch, list, limit);
    for (pb_link *link; (link = pb_list_pop_front(&batch)) != NULL;) {
        pb_op *op = PB_CONTAINER(link, pb_op, link);
        op->active = false;
        op->done(op, op->result);
    }
    return taken;
}

/* A thousand members of a group that come or go at once must not hold up producers and consumers. So a turn serves a
 * few patient sockets, and one where somebody else waits for the turn's end. */
#define PB_PATIENT_PER_TURN 4
#define PB_PATIENT_BESIDE_URGENT 1

/* Deliver all urgent operations and the first patient ones. The count. */
static inline int pb_finished_deliver(pb_finished *finished)
{
    int delivered = pb_finished_deliver_some(&finished->urgent, INT_MAX);
    int limit = delivered > 0 ? PB_PATIENT_BESIDE_URGENT : PB_PATIENT_PER_TURN;
    return delivered + pb_finished_deliver_some(&finished->patient, limit);
}

int64_t pb_posix_monotonic_ns(pb_io *io);
int64_t pb_posix_wall_ms(pb_io *io);
int pb_posix_random(pb_io *io, void *buffer, size_t length);
int pb_posix_file_open(pb_io *io, const char *path, int flags);
int pb_posix_file_reopen_direct(pb_io *io, int file);
int pb_posix_file_make_unnamed(pb_io *io, const char *directory);
int pb_posix_file_name(pb_io *io, int file, const char *path);
int pb_posix_file_close(pb_io *io, int file);
int64_t pb_posix_file_read(pb_io *io, int file, void *buffer, size_t length, int64_t position);
int64_t pb_posix_file_write(pb_io *io, int file, const struct iovec *iov, int count, int64_t position);
int64_t pb_posix_file_write_durable(pb_io *io, int file, const struct iovec *iov, int count, int64_t position);
int pb_posix_file_sync(pb_io *io, int file);
uint64_t pb_posix_file_flush_device(pb_io *io, int file);
/* Is the kernel this one, or a later one? */
bool pb_posix_kernel_is(int wanted_major, int wanted_minor);
int pb_posix_file_truncate(pb_io *io, int file, int64_t size);
int pb_posix_file_allocate(pb_io *io, int file, int64_t position, int64_t length);
int pb_posix_file_release_ahead(pb_io *io, int file);
int64_t pb_posix_file_size(pb_io *io, int file);
int64_t pb_posix_file_modified_ms(pb_io *io, int file);
int64_t pb_posix_path_size(pb_io *io, const char *path);
int64_t pb_posix_path_free_bytes(pb_io *io, const char *path);
int pb_posix_file_writeback(pb_io *io, int file, int64_t position, int64_t length);
int pb_posix_file_drop(pb_io *io, int file, int64_t position, int64_t length);
int pb_posix_file_resident(pb_io *io, int file, int64_t position, int64_t length);
int pb_posix_file_bring_in(pb_io *io, int file, int64_t position, int64_t length);
void pb_posix_thread_read_mode(pb_io *io, enum pb_read_mode mode);
int pb_posix_open_cached(const char *path, int mode);
int64_t pb_posix_read_cached(int file, void *buffer, size_t length, int64_t position);
/* The calling thread's. */
enum pb_read_mode pb_posix_read_mode(void);
/* From now on the kernel reads no more of it than is asked for. */
void pb_posix_read_exactly(int file);

/* How it is found out what is in memory. */
typedef enum pb_residency {
    PB_RESIDENCY_CACHESTAT, /* and a few reads that do not wait, which tell pages that are still being read */
    PB_RESIDENCY_MINCORE,   /* for kernels without cachestat, and file systems without such reads */
} pb_residency;
/* The best way that this kernel has; asked once. */
pb_residency pb_posix_residency(void);
/* For tests: as if the kernel had no better way. */
void pb_posix_force_residency(pb_residency residency);
int pb_posix_rename(pb_io *io, const char *from, const char *to);
int pb_posix_unlink(pb_io *io, const char *path);
#define PB_DRAIN_BYTES (1 << 20)
int pb_posix_path_drain(pb_io *io, const char *path, int64_t piece_bytes, int64_t *taken_bytes);
int pb_posix_directory_make(pb_io *io, const char *path);
int pb_posix_directory_remove(pb_io *io, const char *path);
int pb_posix_filesystem_open(pb_io *io, const char *path);
int pb_posix_filesystem_sync(pb_io *io, int filesystem);
int pb_posix_filesystem_holds(pb_io *io, int filesystem, const char *path);
int pb_posix_directory_sync(pb_io *io, const char *path);
int pb_posix_directory_list(pb_io *io, const char *path, pb_directory_visit visit, void *context);
int pb_posix_store_directory(pb_io *io, const char *path, pb_failure *failure);
const uint8_t *pb_posix_zeros(pb_io *io);
int pb_posix_store_create(pb_io *io, const char *path, size_t ring_bytes, pb_store *out);
void pb_posix_store_close(pb_io *io, pb_store *store);
bool pb_posix_store_stands(pb_io *io, const char *path, const pb_store *store);
int pb_posix_boot_id(pb_io *io, uint8_t id[PB_BOOT_ID_BYTES]);
int pb_posix_thread_start(pb_io *io, const char *name, enum pb_thread_rank rank, pb_step_fn step, void *context,
                          pb_thread **out);
void pb_posix_thread_wake(pb_thread *thread);
void pb_posix_thread_sleep_until(pb_thread *thread, int64_t ns);
void pb_posix_thread_join(pb_thread *thread);
void pb_posix_nap(pb_io *io, int64_t ns);
void pb_posix_thread_yield_disk(pb_io *io, bool yield);
int pb_posix_thread_go_first(pb_io *io, bool first);
int64_t pb_posix_thread_cpu_ns(pb_io *io);
int pb_posix_socket_listen(pb_io *io, const char *host, int port, int *bound_port, pb_failure *failure);
/* Set a connected socket up: small packets leave at once; to this machine without congestion control. */
void pb_posix_tune_socket(int fd);
int pb_posix_socket_peer(pb_io *io, int fd, char *text, size_t size);
int pb_posix_address_find(pb_io *io, const char *host, int port, pb_address *out, int capacity, pb_failure *failure);
/* A socket that can be connected to the address; `flags` of socket(2). */
int pb_posix_socket_make(const pb_address *address, int flags);
const struct sockaddr *pb_posix_sockaddr(const pb_address *address);

/* The shared part of a backend's table. */
#define PB_POSIX_OPS                                                                                                   \
    .monotonic_ns = pb_posix_monotonic_ns, .wall_ms = pb_posix_wall_ms, .random = pb_posix_random,                     \
    .file_open = pb_posix_file_open, .file_reopen_direct = pb_posix_file_reopen_direct,                                \
    .file_make_unnamed = pb_posix_file_make_unnamed, .file_name = pb_posix_file_name,                                  \
    .file_close = pb_posix_file_close, .file_read = pb_posix_file_read, .file_write = pb_posix_file_write,             \
    .file_write_durable = pb_posix_file_write_durable, .file_sync = pb_posix_file_sync,                                \
    .file_truncate = pb_posix_file_truncate, .file_allocate = pb_posix_file_allocate,                                  \
    .file_flush_device = pb_posix_file_flush_device, .file_release_ahead = pb_posix_file_release_ahead,                \
    .file_size = pb_posix_file_size, .file_modified_ms = pb_posix_file_modified_ms, .path_size = pb_posix_path_size,   \
    .path_free_bytes = pb_posix_path_free_bytes, .file_writeback = pb_posix_file_writeback,                            \
    .file_drop = pb_posix_file_drop, .file_resident = pb_posix_file_resident, .rename = pb_posix_rename,               \
    .unlink = pb_posix_unlink, .drain_bytes = PB_DRAIN_BYTES, .path_drain = pb_posix_path_drain,                       \
    .directory_make = pb_posix_directory_make, .directory_remove = pb_posix_directory_remove,                          \
    .filesystem_open = pb_posix_filesystem_open, .filesystem_sync = pb_posix_filesystem_sync,                          \
    .filesystem_holds = pb_posix_filesystem_holds, .directory_sync = pb_posix_directory_sync,                          \
    .directory_list = pb_posix_directory_list, .store_directory = pb_posix_store_directory,                            \
    .store_create = pb_posix_store_create, .store_close = pb_posix_store_close, .store_stands = pb_posix_store_stands, \
    .boot_id = pb_posix_boot_id, .zeros = pb_posix_zeros, .thread_start = pb_posix_thread_start,                       \
    .thread_wake = pb_posix_thread_wake, .thread_sleep_until = pb_posix_thread_sleep_until,                            \
    .thread_join = pb_posix_thread_join, .nap = pb_posix_nap, .thread_read_mode = pb_posix_thread_read_mode,           \
    .file_bring_in = pb_posix_file_bring_in, .thread_yield_disk = pb_posix_thread_yield_disk,                          \
    .thread_go_first = pb_posix_thread_go_first, .thread_cpu_ns = pb_posix_thread_cpu_ns,                              \
    .socket_listen = pb_posix_socket_listen, .socket_peer = pb_posix_socket_peer,                                      \
    .address_find = pb_posix_address_find

#endif
