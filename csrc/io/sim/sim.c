/* The simulated machine's clock, threads and loops, and its table of operations. See sim.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/sim/machine.h"

#define START_WALL_MS 1700000000000LL
#define SOON_NS 20000
#define STEP_NS 1000 /* what a step takes, so that time moves under load too */

enum kind { KIND_RECV, KIND_ACCEPT, KIND_SEND, KIND_SENDFILE, KIND_CONNECT, KIND_WRITE, KIND_FLUSH };

static const pb_io_ops sim_ops;

uint64_t sim_random(sim_machine *machine)
{
    uint64_t z = (machine->random += 0x9e3779b97f4a7c15u); /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

bool sim_chance(sim_machine *machine, uint32_t per_million)
{
    return per_million > 0 && sim_random(machine) % 1000000 < per_million;
}

bool sim_would_wait(sim_machine *machine)
{
    return machine->read_mode == PB_READ_RESIDENT && sim_chance(machine, machine->faults.cold_read);
}

int pb_io_sim_open(uint64_t seed, pb_io **out)
{
    sim_machine *machine = calloc(1, sizeof *machine);
    if (machine == NULL)
        return -ENOMEM;
    machine->io.ops = &sim_ops;
    machine->random = seed;
    for (int i = 0; i < PB_BOOT_ID_BYTES; i++)
        machine->boot_id[i] = (uint8_t)((seed + 1) >> i % 8 * 8) ^ (uint8_t)i;
    *out = &machine->io;
    return 0;
}

void pb_sim_set_faults(pb_io *io, const pb_sim_faults *faults)
{
    sim_of(io)->faults = *faults;
}

int pb_sim_crash(pb_io *io, enum pb_sim_crash crash, uint64_t seed, pb_io **out)
{
    int result = pb_io_sim_open(seed, out);
    if (result < 0)
        return result;
    sim_of(*out)->now_ns = sim_of(io)->now_ns;
    if (crash == PB_SIM_KILL)
        memcpy(sim_of(*out)->boot_id, sim_of(io)->boot_id, PB_BOOT_ID_BYTES);
    sim_disk_copy(sim_of(*out), sim_of(io), crash);
    return 0;
}

static void sim_close(pb_io *io)
{
    sim_machine *machine = sim_of(io);
    PB_ASSERT(machine->thread_count == 0);
    sim_disk_free(&machine->disk);
    sim_network_free(&machine->network);
    free(machine);
}

static int64_t sim_monotonic_ns(pb_io *io)
{
    return sim_of(io)->now_ns;
}

static int64_t sim_wall_ms(pb_io *io)
{
    return START_WALL_MS + sim_of(io)->now_ns / 1000000;
}

static int sim_fill_random(pb_io *io, void *buffer, size_t length)
{
    uint8_t *bytes = buffer;
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)sim_random(sim_of(io));
    return 0;
}

/* ---- threads ---- */

static int sim_thread_start(pb_io *io, const char *name, enum pb_thread_rank rank, pb_step_fn step, void *context,
                            pb_thread **out)
{
    (void)name;
    (void)rank;
    sim_machine *machine = sim_of(io);
    PB_ASSERT(machine->thread_count < PB_SIM_THREADS);
    pb_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL)
        return -ENOMEM;
    thread->machine = machine;
    thread->step = step;
    thread->context = context;
    thread->awake = true;
    thread->wake_at_ns = PB_IO_FOREVER;
    machine->threads[machine->thread_count++] = thread;
    *out = thread;
    return 0;
}

static void sim_thread_wake(pb_thread *thread)
{
    thread->awake = true;
}

static void sim_thread_sleep_until(pb_thread *thread, int64_t ns)
{
    thread->wake_at_ns = ns;
}

static void run_step(sim_machine *machine, pb_thread *thread)
{
    thread->awake = false;
    thread->wake_at_ns = PB_IO_FOREVER;
    pb_thread *outer = machine->running;
    machine->running = thread;
    enum pb_step next = thread->step(thread->context);
    machine->running = outer;
    PB_ASSERT(machine->read_mode == PB_READ_USUAL);
    machine->now_ns += STEP_NS;
    thread->ended = next == PB_STEP_END;
    /* A loop that found nothing to deliver has set when it wants to be run again; any other AGAIN is at once. */
    if (next == PB_STEP_AGAIN && thread->wake_at_ns == PB_IO_FOREVER)
        thread->awake = true;
}

static int runnable(sim_machine *machine, pb_thread **out)
{
    int count = 0;
    for (int i = 0; i < machine->thread_count; i++) {
        pb_thread *thread = machine->threads[i];
        if (!thread->ended && (thread->awake || thread->wake_at_ns <= machine->now_ns))
            out[count++] = thread;
    }
    return count;
}

bool pb_sim_step(pb_io *io)
{
    sim_machine *machine = sim_of(io);
    pb_thread *ready[PB_SIM_THREADS];
    int count = runnable(machine, ready);
    if (count > 0) {
        run_step(machine, ready[sim_random(machine) % (uint64_t)count]);
        return true;
    }
    int64_t next = PB_IO_FOREVER;
    for (int i = 0; i < machine->thread_count; i++)
        if (!machine->threads[i]->ended && machine->threads[i]->wake_at_ns < next)
            next = machine->threads[i]->wake_at_ns;
    if (next != PB_IO_FOREVER && next > machine->now_ns)
        machine->now_ns = next;
    return false;
}

void pb_sim_settle(pb_io *io)
{
    while (pb_sim_step(io))
        ;
}

static void sim_thread_join(pb_thread *thread)
{
    sim_machine *machine = thread->machine;
    while (!thread->ended) {
        thread->awake = true;
        (void)pb_sim_step(&machine->io);
    }
    int kept = 0;
    for (int i = 0; i < machine->thread_count; i++)
        if (machine->threads[i] != thread)
            machine->threads[kept++] = machine->threads[i];
    machine->thread_count = kept;
    free(thread);
}

/* ---- loops ---- */

static int sim_loop_open(pb_io *io, pb_loop **out, pb_failure *failure)
{
    pb_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL)
        return pb_fail(failure, -ENOMEM, "cannot allocate a simulated loop");
    loop->machine = sim_of(io);
    pb_list_init(&loop->pending);
    *out = loop;
    return 0;
}

static void sim_loop_close(pb_loop *loop)
{
    PB_ASSERT(pb_list_empty(&loop->pending));
    free(loop);
}

/* The memory goes in an attempt of its own: a short count is always possible. */
static int64_t sendfile_try(sim_machine *machine, pb_op *op)
{
    if (op->iov_count > op->tail_count)
        return sim_send_try(machine, op->socket->fd, op->iov, op->iov_count - op->tail_count);
    uint8_t part[4096];
    size_t length = op->length < sizeof part ? op->length : sizeof part;
    int64_t got = sim_file_read(&machine->io, op->file, part, length, op->position);
    if (got <= 0)
        return got;
    struct iovec iov = {part, (size_t)got};
    return sim_send_try(machine, op->socket->fd, &iov, 1);
}

static int64_t attempt(sim_machine *machine, pb_op *op)
{
    if (op->result == -ECANCELED)
        return -ECANCELED;
    switch (op->kind) {
    case KIND_RECV:
        return sim_recv_try(machine, op->socket->fd, op->buffer, op->length);
    case KIND_ACCEPT:
        return sim_accept_try(machine);
    case KIND_SEND:
        return sim_send_try(machine, op->socket->fd, op->iov, op->iov_count);
    case KIND_SENDFILE:
        return sendfile_try(machine, op);
    case KIND_CONNECT:
        return sim_connect_try(machine, op->socket->fd);
    case KIND_FLUSH:
        return sim_device_flush(&machine->io, op->file);
    default:
        return (op->durable ? sim_file_write_durable : sim_file_write)(&machine->io, op->file, op->iov, op->iov_count,
                                                                       op->position);
    }
}

/* Finish what can be finished, each operation with a chance of being later, so that orders vary. */
static int deliver(pb_loop *loop)
{
    pb_link batch, *link;
    int delivered = 0;
    loop->stirred = false;
    pb_list_take(&batch, &loop->pending);
    while ((link = pb_list_pop_front(&batch)) != NULL) {
        pb_op *op = PB_CONTAINER(link, pb_op, link);
        bool later = sim_random(loop->machine) % 4 == 0;
        int64_t result = later ? -EAGAIN : attempt(loop->machine, op);
        loop->stirred = loop->stirred || later;
        if (result == -EAGAIN) {
            pb_list_push_back(&loop->pending, &op->link);
            continue;
        }
        op->active = false;
        delivered++;
        op->done(op, result);
    }
    return delivered;
}

/* Pending operations go on when a client does something (sim_stir); postponed and new ones go on soon. */
static int sim_loop_turn(pb_loop *loop, int64_t wait_ns)
{
    sim_machine *machine = loop->machine;
    loop->thread = machine->running;
    int delivered = deliver(loop);
    if (delivered == 0 && wait_ns > 0 && !loop->woken && machine->running != NULL) {
        int64_t until = wait_ns == PB_IO_FOREVER ? PB_IO_FOREVER : machine->now_ns + wait_ns;
        int64_t soon = machine->now_ns + SOON_NS;
        sim_thread_sleep_until(machine->running, loop->stirred && soon < until ? soon : until);
    }
    loop->woken = false;
    return delivered;
}

void sim_stir(sim_machine *machine)
{
    for (int i = 0; i < machine->thread_count; i++)
        machine->threads[i]->awake = true;
}

/* The thread that turns the loop; NULL: there is none, or it has ended. */
static pb_thread *thread_of(const pb_loop *loop)
{
    for (int i = 0; i < loop->machine->thread_count; i++)
        if (loop->machine->threads[i] == loop->thread)
            return loop->thread;
    return NULL;
}

static void sim_loop_wake(pb_loop *loop)
{
    pb_thread *thread = thread_of(loop);
    loop->woken = true;
    if (thread != NULL)
        thread->awake = true;
}

/* Something has changed for the loop after its turn: look again soon. */
static void stir_loop(pb_loop *loop)
{
    int64_t soon = loop->machine->now_ns + SOON_NS;
    pb_thread *thread = thread_of(loop);
    if (thread != NULL && thread->wake_at_ns > soon)
        thread->wake_at_ns = soon;
}

static void start(pb_loop *loop, pb_socket *socket, pb_op *op, enum kind kind)
{
    stir_loop(loop);
    PB_ASSERT(!op->active);
    op->kind = (uint8_t)kind;
    op->socket = socket;
    op->result = 0;
    op->active = true;
    pb_list_push_back(&loop->pending, &op->link);
}

static void sim_socket_accept(pb_loop *loop, pb_socket *listener)
{
    start(loop, listener, &listener->receive, KIND_ACCEPT);
}

static int sim_socket_connect(pb_loop *loop, pb_socket *socket, const pb_address *address)
{
    socket->fd = sim_connect_start(loop->machine, address);
    start(loop, socket, &socket->transmit, KIND_CONNECT);
    return 0;
}

static int sim_socket_attach(pb_loop *loop, pb_socket *socket)
{
    (void)loop;
    (void)socket;
    return 0;
}

static void sim_socket_recv(pb_loop *loop, pb_socket *socket, void *buffer, size_t length)
{
    socket->receive.buffer = buffer;
    socket->receive.length = length;
    start(loop, socket, &socket->receive, KIND_RECV);
}

static void sim_socket_cancel(pb_loop *loop, pb_socket *socket)
{
    stir_loop(loop);
    if (socket->receive.active)
        socket->receive.result = -ECANCELED;
}

static void sim_socket_send(pb_loop *loop, pb_socket *socket, struct iovec *iov, int count)
{
    socket->transmit.iov = iov;
    socket->transmit.iov_count = count;
    start(loop, socket, &socket->transmit, KIND_SEND);
}

static void sim_socket_sendfile(pb_loop *loop, pb_socket *socket, struct iovec *iov, int count, int tail_count,
                                int file, int64_t position, size_t length)
{
    socket->transmit.iov = iov;
    socket->transmit.iov_count = count;
    socket->transmit.tail_count = tail_count;
    socket->transmit.file = file;
    socket->transmit.position = position;
    socket->transmit.length = length;
    start(loop, socket, &socket->transmit, KIND_SENDFILE);
}

static void sim_socket_shutdown(pb_loop *loop, pb_socket *socket)
{
    stir_loop(loop);
    sim_socket_shut(loop->machine, socket->fd);
}

static void sim_socket_end(pb_loop *loop, pb_socket *socket)
{
    stir_loop(loop);
    sim_socket_finish(loop->machine, socket->fd);
}

static void sim_socket_close(pb_loop *loop, pb_socket *socket)
{
    PB_ASSERT(!socket->receive.active && !socket->transmit.active && !socket->closed);
    sim_socket_shut(loop->machine, socket->fd);
    socket->closed = true;
}

static int64_t sim_write_start(pb_loop *loop, pb_op *op, int file, struct iovec *iov, int count, int64_t position)
{
    sim_machine *machine = loop->machine;
    if (!op->direct && !sim_chance(machine, machine->faults.delayed_write))
        return sim_file_write(&machine->io, file, iov, count, position);
    op->file = file;
    op->iov = iov;
    op->iov_count = count;
    op->position = position;
    start(loop, NULL, op, KIND_WRITE);
    return PB_IO_PENDING;
}

static void sim_flush_start(pb_loop *loop, pb_op *op, int file)
{
    op->file = file;
    start(loop, NULL, op, KIND_FLUSH);
}

/* Blocks are not counted here. */
static int sim_file_release_ahead(pb_io *io, int file)
{
    return sim_file_range(io, file, 0, 0);
}

static void sim_thread_read_mode(pb_io *io, enum pb_read_mode mode)
{
    sim_of(io)->read_mode = mode;
}

/* One thread runs at a time: time passes for all. */
static void sim_nap(pb_io *io, int64_t ns)
{
    sim_of(io)->now_ns += ns;
}

/* No one else is at the disk. */
static int sim_thread_go_first(pb_io *io, bool first)
{
    (void)io;
    (void)first;
    return 0;
}

/* A thread's work takes no time. */
static int64_t sim_thread_cpu_ns(pb_io *io)
{
    (void)io;
    return 0;
}

static void sim_thread_yield_disk(pb_io *io, bool yield)
{
    (void)io;
    (void)yield;
}

static const pb_io_ops sim_ops = {
    .name = "sim",
    .starts_durable_writes = true,
    .close = sim_close,
    .monotonic_ns = sim_monotonic_ns,
    .wall_ms = sim_wall_ms,
    .random = sim_fill_random,
    .file_open = sim_file_open,
    .file_reopen_direct = sim_file_reopen_direct,
    .file_make_unnamed = sim_file_make_unnamed,
    .file_name = sim_file_name,
    .file_close = sim_file_close,
    .file_read = sim_file_read,
    .file_write = sim_file_write,
    .file_write_durable = sim_file_write_durable,
    .file_sync = sim_file_sync,
    .file_flush_device = sim_file_flush_device,
    .file_truncate = sim_file_truncate,
    .file_allocate = sim_file_range,
    .file_release_ahead = sim_file_release_ahead,
    .file_size = sim_file_size,
    .file_modified_ms = sim_file_modified_ms,
    .path_size = sim_path_size,
    .path_free_bytes = sim_path_free_bytes,
    .file_writeback = sim_file_range,
    .file_drop = sim_file_drop,
    .file_resident = sim_file_resident,
    .file_bring_in = sim_file_bring_in,
    .rename = sim_rename,
    .unlink = sim_unlink,
    .drain_bytes = SIM_DRAIN_BYTES,
    .path_drain = sim_path_drain,
    .directory_make = sim_directory_make,
    .directory_remove = sim_directory_remove,
    .directory_sync = sim_directory_sync,
    .filesystem_open = sim_filesystem_open,
    .filesystem_sync = sim_filesystem_sync,
    .filesystem_holds = sim_filesystem_holds,
    .directory_list = sim_directory_list,
    .store_directory = sim_store_directory,
    .store_create = sim_store_create,
    .zeros = sim_zeros,
    .store_close = sim_store_close,
    .store_stands = sim_store_stands,
    .boot_id = sim_boot_id,
    .thread_start = sim_thread_start,
    .thread_wake = sim_thread_wake,
    .thread_sleep_until = sim_thread_sleep_until,
    .thread_join = sim_thread_join,
    .nap = sim_nap,
    .thread_yield_disk = sim_thread_yield_disk,
    .thread_go_first = sim_thread_go_first,
    .thread_cpu_ns = sim_thread_cpu_ns,
    .thread_read_mode = sim_thread_read_mode,
    .loop_open = sim_loop_open,
    .loop_close = sim_loop_close,
    .loop_turn = sim_loop_turn,
    .loop_wake = sim_loop_wake,
    .socket_listen = sim_listen,
    .socket_accept = sim_socket_accept,
    .address_find = sim_address_find,
    .socket_connect = sim_socket_connect,
    .socket_attach = sim_socket_attach,
    .socket_peer = sim_peer,
    .socket_recv = sim_socket_recv,
    .socket_cancel = sim_socket_cancel,
    .socket_send = sim_socket_send,
    .socket_sendfile = sim_socket_sendfile,
    .socket_shutdown = sim_socket_shutdown,
    .socket_end = sim_socket_end,
    .socket_close = sim_socket_close,
    .write_start = sim_write_start,
    .flush_start = sim_flush_start,
};
