/* Inside the simulated machine: shared by its disk, its network and its threads. One thread only. */
#ifndef PB_IO_SIM_MACHINE_H
#define PB_IO_SIM_MACHINE_H

#include "io/sim/sim.h"

#define PB_SIM_PATH_BYTES 512
#define PB_SIM_HANDLES 4096
#define PB_SIM_THREADS 64
#define PB_SIM_SECTOR_BYTES 512
#define PB_SIM_PAGE_BYTES 4096

/* True for files on tmpfs: a kill leaves them, a power cut takes all of them. */
#define PB_SIM_TMPFS "/dev/shm"

typedef struct sim_range {
    int64_t position;
    int64_t end;
} sim_range;

/* A file's bytes as written and as a power cut would find them. Counted by names, handles and stores. */
typedef struct sim_file {
    int references;
    size_t ring_bytes; /* of a store: `data` is a mapping with the ring twice; 0: plain memory */
    uint8_t *data;
    int64_t size;
    int64_t capacity;
    int64_t modified_ms;
    uint8_t *durable; /* as long as it was at the last sync */
    int64_t durable_size;
    sim_range *unflushed; /* written past the page cache since the last sync or flush */
    size_t unflushed_count;
    uint8_t *pages; /* 1: it is in memory. Only where pages are counted */
    size_t page_count;
} sim_file;

/* One name; `durable` is what the directory said at its last sync (NULL: nothing). A rename takes place for both of its
 * names or for neither: those that hang together since the last sync have one `group` (0: none). */
typedef struct sim_name {
    char path[PB_SIM_PATH_BYTES];
    sim_file *file;
    sim_file *durable;
    uint32_t group;
    bool is_directory;
} sim_name;

typedef struct sim_disk {
    sim_name *names;
    size_t name_count;
    uint32_t group_count;              /* given out */
    sim_file *handles[PB_SIM_HANDLES]; /* index = handle */
    bool direct[PB_SIM_HANDLES];       /* opened with PB_OPEN_DIRECT */
    sim_file *stores[PB_SIM_HANDLES];  /* mapped */
} sim_disk;

/* One direction of a connection. */
typedef struct sim_pipe {
    uint8_t *data;
    size_t start; /* of what has not been pulled */
    size_t length;
    size_t capacity;
    bool closed; /* by the writing side */
} sim_pipe;

typedef struct sim_connection {
    sim_pipe to_broker;
    sim_pipe to_client;
    bool accepted;
    bool broker_open;
    bool client_open;
    bool shut;         /* by the broker, both ways */
    int outgoing_port; /* what it was made for by the broker; 0: a client made it */
    bool answered;
    bool refused;
} sim_connection;

typedef struct sim_network {
    sim_connection *connections[PB_SIM_HANDLES]; /* index = client = the broker's fd - PB_SIM_HANDLES */
    int connection_count;
    int listener_port; /* 0: nobody listens */
    bool listener_shut;
} sim_network;

struct pb_thread {
    struct sim_machine *machine;
    pb_step_fn step;
    void *context;
    int64_t wake_at_ns;
    bool awake;
    bool ended;
};

struct pb_loop {
    struct sim_machine *machine;
    pb_link pending;   /* started, by order of start */
    pb_thread *thread; /* the one that turned it last */
    int64_t wait_until_ns;
    bool woken;
    bool stirred; /* an operation was put off by choice */
};

typedef struct sim_machine {
    pb_io io;
    uint64_t random;
    int64_t now_ns;
    uint8_t boot_id[PB_BOOT_ID_BYTES];
    pb_sim_faults faults;
    sim_disk disk;
    sim_network network;
    pb_thread *threads[PB_SIM_THREADS];
    int thread_count;
    pb_thread *running;
    enum pb_read_mode read_mode; /* set by a step and set back before it ends */
    bool counts_pages;
} sim_machine;

static inline sim_machine *sim_of(pb_io *io)
{
    return PB_CONTAINER(io, sim_machine, io);
}

uint64_t sim_random(sim_machine *machine);
/* True with a chance out of a million. */
bool sim_chance(sim_machine *machine, uint32_t per_million);
/* The thread that runs may not wait for the disk, and now would have to. */
bool sim_would_wait(sim_machine *machine);

/* Pages of a file come into memory, or leave it. */
void sim_pages_set(sim_machine *machine, sim_file *file, int64_t position, int64_t length, bool resident);
bool sim_pages_resident(const sim_file *file, int64_t position, int64_t length);

/* A client did something: every loop looks at its operations. */
void sim_stir(sim_machine *machine);

/* Disk. */
int sim_file_open(pb_io *io, const char *path, int flags);
int sim_file_reopen_direct(pb_io *io, int file);
int sim_file_make_unnamed(pb_io *io, const char *directory);
int sim_file_name(pb_io *io, int handle, const char *path);
int sim_file_close(pb_io *io, int handle);
int64_t sim_file_read(pb_io *io, int handle, void *buffer, size_t length, int64_t position);
int64_t sim_file_write(pb_io *io, int handle, const struct iovec *iov, int count, int64_t position);
int64_t sim_file_write_durable(pb_io *io, int handle, const struct iovec *iov, int count, int64_t position);
int sim_file_sync(pb_io *io, int handle);
uint64_t sim_file_flush_device(pb_io *io, int handle);
int sim_device_flush(pb_io *io, int handle);
int sim_file_truncate(pb_io *io, int handle, int64_t size);
int sim_file_range(pb_io *io, int handle, int64_t position, int64_t length);
int sim_file_drop(pb_io *io, int handle, int64_t position, int64_t length);
int sim_file_resident(pb_io *io, int handle, int64_t position, int64_t length);
int sim_file_bring_in(pb_io *io, int handle, int64_t position, int64_t length);
int64_t sim_file_size(pb_io *io, int handle);
int64_t sim_file_modified_ms(pb_io *io, int handle);
int64_t sim_path_size(pb_io *io, const char *path);
int64_t sim_path_free_bytes(pb_io *io, const char *path);
#define SIM_DRAIN_BYTES 256
int sim_path_drain(pb_io *io, const char *path, int64_t piece_bytes, int64_t *taken_bytes);
int sim_rename(pb_io *io, const char *from, const char *to);
int sim_unlink(pb_io *io, const char *path);
int sim_directory_make(pb_io *io, const char *path);
int sim_directory_remove(pb_io *io, const char *path);
int sim_directory_sync(pb_io *io, const char *path);
int sim_filesystem_open(pb_io *io, const char *path);
int sim_filesystem_sync(pb_io *io, int filesystem);
int sim_filesystem_holds(pb_io *io, int filesystem, const char *path);
int sim_directory_list(pb_io *io, const char *path, pb_directory_visit visit, void *context);
void sim_disk_copy(sim_machine *to, const sim_machine *from, enum pb_sim_crash crash);
void sim_disk_free(sim_disk *disk);

/* Stores. */
sim_name *sim_find_name(sim_disk *disk, const char *path);
sim_name *sim_add_name(sim_disk *disk, const char *path);
bool sim_exists(const sim_name *name);
void sim_drop_file(sim_file *file);
bool sim_on_tmpfs(const char *path);
int sim_store_directory(pb_io *io, const char *path, pb_failure *failure);
const uint8_t *sim_zeros(pb_io *io);
int sim_store_create(pb_io *io, const char *path, size_t ring_bytes, pb_store *out);
void sim_store_close(pb_io *io, pb_store *store);
bool sim_store_stands(pb_io *io, const char *path, const pb_store *store);
void sim_store_unmap(sim_file *file);
int sim_boot_id(pb_io *io, uint8_t id[PB_BOOT_ID_BYTES]);

/* Network. `try` moves bytes of a started operation: its result, or -EAGAIN. */
int sim_listen(pb_io *io, const char *host, int port, int *bound_port, pb_failure *failure);
int sim_peer(pb_io *io, int fd, char *text, size_t size);
int64_t sim_accept_try(sim_machine *machine);
int64_t sim_recv_try(sim_machine *machine, int fd, void *buffer, size_t length);
int64_t sim_send_try(sim_machine *machine, int fd, const struct iovec *iov, int count);
int sim_address_find(pb_io *io, const char *host, int port, pb_address *out, int capacity, pb_failure *failure);
int sim_connect_start(sim_machine *machine, const pb_address *address); /* the broker's fd */
int64_t sim_connect_try(sim_machine *machine, int fd);
void sim_socket_shut(sim_machine *machine, int fd);
void sim_socket_finish(sim_machine *machine, int fd);
void sim_network_free(sim_network *network);

#endif
