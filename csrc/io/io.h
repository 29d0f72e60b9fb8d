/*
 * The one table of operations through which the data plane touches the machine: files, directories, sockets, clocks,
 * randomness, threads. Three implementations stand behind it: io_uring, epoll and sim (seeded faults, virtual time).
 * Nothing above this layer makes a system call for I/O.
 *
 * Two kinds of calls:
 *  - blocking calls on files and directories, from any thread. Reactors use only those that do not wait for a disk: a
 *    buffered write, a read of resident pages, open/rename/unlink.
 *  - operations on a loop (sockets, large writes). A loop belongs to one thread. An operation is started with a pb_op
 * that the caller owns and keeps alive; its `done` runs inside pb_loop_turn on the loop's thread, never inside the
 * start call.
 *
 * Results: >= 0 a count or a handle, < 0 -errno. Handles are small ints; only the backend that made one understands it.
 */
#ifndef PB_IO_IO_H
#define PB_IO_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/error.h"
#include "base/list.h"

typedef struct pb_io pb_io;
typedef struct pb_loop pb_loop;
typedef struct pb_thread pb_thread;
typedef struct pb_op pb_op;
typedef struct pb_socket pb_socket;

/* The result of an operation that has been started and not finished. Never a value of -errno or a count. */
#define PB_IO_PENDING INT64_MIN
/* Wait for ever in pb_loop_turn. */
#define PB_IO_FOREVER INT64_MAX
/* More iovecs than this are never given to one call. */
#define PB_IO_MAX_IOVECS 1024

/* One started operation. Owner: the caller, from start until `done` has been called. The rest is the backend's. */
struct pb_op {
    void (*done)(pb_op *op, int64_t result);
    int64_t result;
    pb_link link;      /* epoll, sim: finished operations that wait for delivery */
    struct iovec *iov; /* send, sendfile, write: the caller's array, alive until done */
    int iov_count;
    int tail_count;   /* sendfile: so many of them follow the file's bytes */
    int64_t position; /* write, sendfile */
    size_t length;    /* recv, sendfile */
    void *buffer;     /* recv */
    int file;         /* write, sendfile */
    uint8_t kind;     /* the backend's */
    bool active;      /* started and not delivered */
    bool beside;      /* write: worth a worker, if the backend has them: others wait for this thread */
    bool direct;      /* write: of a PB_OPEN_DIRECT file, begun at once and ended later; where starts_durable_writes */
    bool durable;     /* such a write: as file_write_durable */
    pb_socket *socket;
    pb_loop *loop;
};

/* One connected or listening socket on one loop. Owner: the caller. At most one recv/accept and one send/sendfile at a
 * time. */
struct pb_socket {
    int fd;
    bool readable; /* epoll: the last edge has not been drained */
    bool ended;    /* epoll: the peer has hung up, which makes no further edge */
    bool writable;
    bool watched;
    bool closed;
    bool patient;          /* the caller's: what finishes here may wait a while when much else has finished */
    struct msghdr message; /* io_uring: a send of several iovecs */
    pb_op receive;         /* recv or accept; the caller sets .done */
    pb_op transmit;        /* send, sendfile or connect; the caller sets .done */
};

#define PB_ADDRESS_WORDS 4

/* Where to connect to. Only the backend that resolved the address understands its words. */
typedef struct pb_address {
    uint64_t words[PB_ADDRESS_WORDS];
    uint32_t length;
} pb_address;

/* The answer of a thread's step: run me again at once, or sleep until pb_thread_wake (or the deadline it set). */
enum pb_step { PB_STEP_AGAIN, PB_STEP_IDLE, PB_STEP_END };
typedef enum pb_step (*pb_step_fn)(void *context);

/* The order in which threads get a CPU. A wish: a kernel may refuse it. */
enum pb_thread_rank {
    PB_RANK_USUAL,
    PB_RANK_URGENT, /* works in short bursts that others wait for: let in as soon as it wakes */
    PB_RANK_FIRST,  /* the same, with so little to do that it goes before all ordinary threads */
    PB_RANK_BEHIND, /* gets on with what others leave, and a tenth of a CPU where they leave nothing */
};

enum pb_open_flags {
    PB_OPEN_READ = 0,
    PB_OPEN_WRITE = 1, /* read and write */
    PB_OPEN_CREATE = 2,
    PB_OPEN_EXCLUSIVE = 4, /* with CREATE: it must not exist */
    PB_OPEN_TRUNCATE = 8,
    PB_OPEN_DIRECT = 16, /* past the page cache; -EINVAL where the file system cannot */
    PB_OPEN_EXACT = 32,  /* all its reads are as with PB_READ_EXACT */
};

/* How a thread reads files. */
enum pb_read_mode {
    PB_READ_USUAL,
    PB_READ_EXACT,    /* no more is read than asked for. From then on that holds for all reads of the handle */
    PB_READ_RESIDENT, /* only what is in memory: file_read, and file_open for reading, give -EAGAIN instead of waiting
                       */
};

/* Position, length and memory of reads and writes of a PB_OPEN_DIRECT file are multiples of this. */
#define PB_DIRECT_BLOCK_BYTES 4096
#define PB_LARGE_PAGE_BYTES (2 << 20) /* of x86-64, and of ARM64 with pages of 4 KiB */

/* The last bytes of a store's file, which are mapped once. */
#define PB_STORE_HEAD_BYTES 4096

/*
 * A store: a file on tmpfs, mapped. Its memory is its file's contents at once; it survives the process, and is gone
 * with the machine. All of it has its pages, large ones where the kernel has them, so that no access can fail. The ring
 * comes first in the file: large pages have to begin at a multiple of their size. Owner: the caller, from store_create
 * to store_close.
 */
typedef struct pb_store {
    uint8_t *head;     /* PB_STORE_HEAD_BYTES */
    uint8_t *ring;     /* what lies before it, twice in a row: any ring_bytes from any place on are contiguous */
    size_t ring_bytes; /* a multiple of the page */
    uint64_t device;   /* what the file is known by, whatever its name becomes */
    uint64_t inode;
} pb_store;

#define PB_BOOT_ID_BYTES 16

#define PB_ZEROS_BYTES (256 << 10)

/* Called once per directory entry (not . or ..); a non-zero return stops the walk and is its result. */
typedef int (*pb_directory_visit)(void *context, const char *name, bool is_directory);

typedef struct pb_io_ops {
    const char *name;           /* "io_uring", "epoll", "sim" */
    bool starts_durable_writes; /* write_start takes them, and does not wait for the disk; there is flush_start */
    void (*close)(pb_io *io);

    /* Clocks and randomness. */
    int64_t (*monotonic_ns)(pb_io *io);
    int64_t (*wall_ms)(pb_io *io);
    int (*random)(pb_io *io, void *buffer, size_t length);

    /* Files; blocking, any thread. Reads and writes may be short. */
    /* A regular file, or a symbolic link to one. Nothing else is opened or waited for: -EISDIR for a
     * directory, -EMEDIUMTYPE for a pipe, socket or device. */
    int (*file_open)(pb_io *io, const char *path, int flags);
    /* Makes a file in that directory without a name, for reading and writing. It is gone when it is closed, unless
     * file_name gave it a name, which is -EEXIST when the name is taken. -EOPNOTSUPP: the file system has no such
     * files. */
    int (*file_make_unnamed)(pb_io *io, const char *directory);
    int (*file_name)(pb_io *io, int file, const char *path);
    /* The same file once more, for reading past the page cache, whatever its name is by now. -errno: it cannot be done.
     */
    int (*file_reopen_direct)(pb_io *io, int file);
    int (*file_close)(pb_io *io, int file);
    int64_t (*file_read)(pb_io *io, int file, void *buffer, size_t length, int64_t position);
    int64_t (*file_write)(pb_io *io, int file, const struct iovec *iov, int count, int64_t position);
    /* As file_write, and durable when it returns: the bytes, and what is needed to read them. */
    int64_t (*file_write_durable)(pb_io *io, int file, const struct iovec *iov, int count, int64_t position);
    int (*file_sync)(pb_io *io, int file); /* data and what is needed to read it */
    /* The device that flush_start flushes with this PB_OPEN_DIRECT file: the same number for all that go together. 0:
     * each has to be synced by itself. */
    uint64_t (*file_flush_device)(pb_io *io, int file);
    int (*file_truncate)(pb_io *io, int file, int64_t size);
    int (*file_allocate)(pb_io *io, int file, int64_t position, int64_t length); /* keeps the size */
    int (*file_release_ahead)(pb_io *io, int file); /* blocks behind the end, which a crash has left */
    int64_t (*file_size)(pb_io *io, int file);
    int64_t (*file_modified_ms)(pb_io *io, int file);        /* wall clock of the last write or truncation */
    int64_t (*path_size)(pb_io *io, const char *path);       /* of the file that has this name now */
    int64_t (*path_free_bytes)(pb_io *io, const char *path); /* of its file system, for others than root */
    int (*file_writeback)(pb_io *io, int file, int64_t position, int64_t length); /* start it, do not wait */
    int (*file_drop)(pb_io *io, int file, int64_t position, int64_t length);      /* forget clean pages */
    int (*file_resident)(pb_io *io, int file, int64_t position,
                         int64_t length); /* 1 all in memory, 0 not, < 0 unknown */
    /* Read into memory what is not there, as with PB_READ_EXACT: 0 when all of it is, -ENODATA when the file ends
     * before. A range of whole PB_LARGE_PAGE_BYTES comes in such pages where the file system has them. But a kernel
     * that reads ahead that far then goes ahead of the reader or sender, to the end of the file. */
    int (*file_bring_in)(pb_io *io, int file, int64_t position, int64_t length);

    /* Names. */
    /* A file that takes the place of another one gets its mode. */
    int (*rename)(pb_io *io, const char *from, const char *to);
    int (*unlink)(pb_io *io, const char *path);
    int64_t drain_bytes; /* the smallest piece for path_drain */
    /* Before a large file is unlinked: give its blocks back piece by piece; one piece at most is left. In pieces of
     * drain_bytes it does so slowly that others hardly notice, in larger ones as fast as the disk lets it.
     * *taken_bytes: what others took of the file system meanwhile. -EBUSY: not while somebody has it open, or by
     * another name. May take seconds. */
    int (*path_drain)(pb_io *io, const char *path, int64_t piece_bytes, int64_t *taken_bytes);
    int (*directory_make)(pb_io *io, const char *path);
    int (*directory_remove)(pb_io *io, const char *path); /* must be empty */
    int (*directory_sync)(pb_io *io, const char *path);
    /* All files and names of the file system that `path`, a directory, lies on: open gives a handle, which sync takes
     * any number of times and file_close ends. A failure of anybody's write since the last sync of this handle, or
     * since it was opened, makes one sync of it fail. -ENOSYS: this kernel's does not tell. */
    int (*filesystem_open)(pb_io *io, const char *path);
    int (*filesystem_sync)(pb_io *io, int filesystem);
    int (*filesystem_holds)(pb_io *io, int filesystem, const char *path); /* 1: `path` lies on it, 0: on another one */
    int (*directory_list)(pb_io *io, const char *path, pb_directory_visit visit, void *context);

    /* Stores. The directory is made when it is missing; one that is not on tmpfs, or that others can write to, is
     * refused. A store's file must not exist: -EEXIST; -ENOSPC when there is no room for all of it. Closing leaves the
     * file. Reading the file of an ended process is for file_open. Blocking. */
    int (*store_directory)(pb_io *io, const char *path, pb_failure *failure);
    int (*store_create)(pb_io *io, const char *path, size_t ring_bytes, pb_store *out);
    void (*store_close)(pb_io *io, pb_store *store);
    /* Is the file at `path` the store's, and whole? Then a search for it after the end of this process finds it there.
     * */
    bool (*store_stands)(pb_io *io, const char *path, const pb_store *store);
    int (*boot_id)(pb_io *io, uint8_t id[PB_BOOT_ID_BYTES]); /* another one each time the machine starts */
    /* PB_ZEROS_BYTES of zeros to write to PB_OPEN_DIRECT files, in a large page where the kernel has them; everybody's,
     * for ever. NULL: no memory. */
    const uint8_t *(*zeros)(pb_io *io);

    /* Threads. The body is a step; real backends run it on a thread, sim steps all bodies in seeded order. */
    int (*thread_start)(pb_io *io, const char *name, enum pb_thread_rank rank, pb_step_fn step, void *context,
                        pb_thread **out);
    void (*thread_wake)(pb_thread *thread);                    /* any thread; a step that runs now is run once more */
    void (*thread_sleep_until)(pb_thread *thread, int64_t ns); /* by its own step, before returning IDLE */
    void (*thread_join)(pb_thread *thread);                    /* after its step returned END; frees it */
    void (*nap)(pb_io *io, int64_t ns);                        /* the caller, which may block, sleeps so long */
    void (*thread_yield_disk)(pb_io *io, bool yield);          /* the caller's reads and writes go after all others' */
    /* The caller runs before all ordinary threads, or like them again. -EPERM: the system does not let it. -EAGAIN: so
     * many do already that one more would leave ordinary threads no CPU. */
    int (*thread_go_first)(pb_io *io, bool first);
    int64_t (*thread_cpu_ns)(pb_io *io);                         /* CPU time that the caller has taken */
    void (*thread_read_mode)(pb_io *io, enum pb_read_mode mode); /* of the caller, from now on */

    /* Loops. */
    int (*loop_open)(pb_io *io, pb_loop **out, pb_failure *failure);
    void (*loop_close)(pb_loop *loop);
    int (*loop_turn)(pb_loop *loop, int64_t wait_ns); /* deliver what is finished; count delivered */
    void (*loop_wake)(pb_loop *loop);                 /* any thread: end the wait of the current or next turn */

    /* Sockets on a loop. */
    int (*socket_listen)(pb_io *io, const char *host, int port, int *bound_port, pb_failure *failure); /* -> fd */
    void (*socket_accept)(pb_loop *loop, pb_socket *listener); /* receive.done(fd of the peer) */
    /* Addresses of a host by its name or in digits, the one to try first first: their count, at least 1. Blocking, any
     * thread. */
    int (*address_find)(pb_io *io, const char *host, int port, pb_address *out, int capacity, pb_failure *failure);
    /* Set socket->fd and begin to connect it: transmit.done(0 or -errno) follows, which socket_shutdown brings about
     * soon. `address` stays until then. Or -errno at once: nothing was begun. */
    int (*socket_connect)(pb_loop *loop, pb_socket *socket, const pb_address *address);
    int (*socket_attach)(pb_loop *loop, pb_socket *socket);         /* socket->fd is set */
    int (*socket_peer)(pb_io *io, int fd, char *text, size_t size); /* the peer's address in digits */
    void (*socket_recv)(pb_loop *loop, pb_socket *socket, void *buffer, size_t length); /* NULL, 0: 1 when readable */
    void (*socket_cancel)(pb_loop *loop,
                          pb_socket *socket); /* an active recv finishes soon, with -ECANCELED or bytes */
    void (*socket_send)(pb_loop *loop, pb_socket *socket, struct iovec *iov, int count);
    /* Sends memory, which may be nothing (count 0), with the file's bytes before the last `tail_count` pieces: one
     * result for all. */
    void (*socket_sendfile)(pb_loop *loop, pb_socket *socket, struct iovec *iov, int count, int tail_count, int file,
                            int64_t position, size_t length);
    void (*socket_shutdown)(pb_loop *loop, pb_socket *socket); /* started operations finish soon, with an error */
    void (*socket_end)(pb_loop *loop, pb_socket *socket);   /* no more is sent; the peer reads its end after what was */
    void (*socket_close)(pb_loop *loop, pb_socket *socket); /* only when no operation is active */

    /* An append on a loop: finishes at once (returns its result) or later (PB_IO_PENDING, then op->done). */
    int64_t (*write_start)(pb_loop *loop, pb_op *op, int file, struct iovec *iov, int count, int64_t position);
    /* Makes written data durable: data that went past the page cache, by ended writes, into blocks that were written
     * and synced before. It covers this file and all files with its file_flush_device. op->done(0 or -errno) follows.
     * */
    void (*flush_start)(pb_loop *loop, pb_op *op, int file);
} pb_io_ops;

/* A backend instance, shared by all threads of a broker. */
struct pb_io {
    const pb_io_ops *ops;
};

/* Open a backend by name: "io_uring", "epoll", or "auto" (io_uring when the kernel lets us, else epoll). */
int pb_io_open(const char *name, pb_io **out, pb_failure *failure);
int pb_io_uring_open(pb_io **out, pb_failure *failure);
int pb_io_epoll_open(pb_io **out, pb_failure *failure);

/* A socket connected to a listening one, for a loop of a real backend. Blocking. */
int pb_io_connect(const char *host, int port, pb_failure *failure);

/* Write all of `iov` at `position` with the blocking call, going on after short writes. `iov` is used up. */
int pb_io_write_all(pb_io *io, int file, struct iovec *iov, int count, int64_t position);
/* The size of one read or write of a thread that works behind others. A kernel that does not preempt itself lets nobody
 * else have the CPU before the call ends, and half a MiB takes a millisecond. */
enum { PB_POLITE_BYTES = 64 << 10 };

/* Reads at least `length` bytes of a PB_OPEN_DIRECT file, up to the end of the block that the last one lies in. The
 * buffer has room for that. -ENODATA when the file ends before. */
int pb_io_read_blocks(pb_io *io, int file, void *buffer, size_t length, int64_t position);

/* Sync a file, and forget what is in memory of it if that fails: what could not be written is clean then, and the next
 * sync would call it durable. So after a failure readers get what the disk has. */
int pb_io_sync(pb_io *io, int file);

/* Read exactly `length` bytes; -ENODATA when the file ends before. */
int pb_io_read_all(pb_io *io, int file, void *buffer, size_t length, int64_t position);

#endif
