/* See engine.h. */
#include "client/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IOVEC_COUNT = 32, EVENT_COUNT = 256, READ_BYTES = 64 * 1024 };
static volatile sig_atomic_t interrupted; /* by a signal that ends the run, not the program */
static const uint64_t POLL_NS = 5000000, DRAIN_NS = 30000000000ull;

/* The bounds of one run. */
struct run {
    struct pbl_engine *engine;
    const struct pbl_workload *workload;
    uint64_t end_ns;
    uint64_t interval_ns;  /* open loop: between two requests of one connection */
    uint32_t paced_count;  /* open loop: the first so many connections keep to it */
    uint64_t queued_bytes; /* payload handed to connections */
    uint64_t in_flight;    /* over all connections */
    uint64_t last_done_ns;
    uint64_t arrived_ns; /* a probe: when the kernel had what is being parsed; 0: nobody asked */
    bool stopping;
    bool out_of_time; /* and so stopping */
};

uint64_t pbl_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void pbl_engine_open(struct pbl_engine *engine, const struct pbl_options *options)
{
    *engine = (struct pbl_engine){.options = options, .epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    engine->connections = calloc(options->connection_count, sizeof *engine->connections);
    if (engine->epoll_fd < 0 || !engine->connections)
        pbl_fail("cannot set up %u connections: %s", options->connection_count, strerror(errno));
    int stamped = options->priority > 0;
    for (uint32_t i = 0; i < options->connection_count; i++) {
        struct pbl_connection *connection = &engine->connections[i];
        connection->index = i;
        connection->fd = pbl_connect(options);
        connection->ring = calloc(options->in_flight_count, sizeof *connection->ring);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
        if (!connection->ring ||
            setsockopt(connection->fd, SOL_SOCKET, SO_TIMESTAMPNS, &stamped, sizeof stamped) != 0 ||
            fcntl(connection->fd, F_SETFL, O_NONBLOCK) != 0 ||
            epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0)
            pbl_fail("cannot set up connection %u: %s", i, strerror(errno));
    }
}

void pbl_engine_close(struct pbl_engine *engine)
{
    for (uint32_t i = 0; i < engine->options->connection_count; i++) {
        close(engine->connections[i].fd);
        free(engine->connections[i].ring);
        pbl_buffer_free(&engine->connections[i].input);
    }
    free(engine->connections);
    close(engine->epoll_fd);
}

static struct pbl_in_flight *slot(const struct run *run, const struct pbl_connection *connection, uint64_t number)
{
    return &connection->ring[number % run->engine->options->in_flight_count];
}

static void end_request(struct run *run, struct pbl_in_flight *in_flight, int16_t code, bool malformed)
{
    struct pbl_stats *stats = run->engine->stats;
    uint64_t now = run->arrived_ns ? run->arrived_ns : pbl_now_ns();
    run->in_flight--;
    if (malformed)
        stats->malformed_count++;
    else if (code != 0)
        pbl_stats_count_error(stats, code);
    if (now < stats->counting_ns)
        return;
    /* A fetch that waited for nothing while the run ended is none of its time. */
    if (now <= run->end_ns || in_flight->request.payload_bytes > 0)
        run->last_done_ns = now;
    if (malformed || code != 0) /* what failed is no throughput */
        return;
    stats->request_count++;
    stats->record_count += in_flight->request.record_count;
    stats->payload_bytes += in_flight->request.payload_bytes;
    stats->interval.request_count++;
    stats->interval.record_count += in_flight->request.record_count;
    stats->interval.payload_bytes += in_flight->request.payload_bytes;
    stats->wire_bytes += in_flight->request.body_bytes + PBL_FRAME_HEAD_BYTES;
    if (!run->workload->times_itself)
        pbl_stats_record_latency(stats, now, now > in_flight->start_ns ? now - in_flight->start_ns : 0);
}

static void watch_writable(struct run *run, struct pbl_connection *connection, bool wanted)
{
    if (connection->wants_writable == wanted)
        return;
    struct epoll_event event = {.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(run->engine->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event) != 0)
        pbl_fail("epoll_ctl: %s", strerror(errno));
    connection->wants_writable = wanted;
}

static int gather(const struct run *run, const struct pbl_connection *connection, struct iovec *parts)
{
    int count = 0;
    size_t left = run->engine->options->call_bytes ? run->engine->options->call_bytes : SIZE_MAX;
    for (uint64_t number = connection->sent; number < connection->queued && count + 2 <= IOVEC_COUNT && left > 0;
         number++) {
        struct pbl_in_flight *in_flight = slot(run, connection, number);
        size_t skip = in_flight->sent_bytes;
        if (skip < PBL_FRAME_HEAD_BYTES) {
            parts[count++] = (struct iovec){in_flight->head + skip, PBL_FRAME_HEAD_BYTES - skip};
            left -= left < PBL_FRAME_HEAD_BYTES - skip ? left : PBL_FRAME_HEAD_BYTES - skip;
            skip = 0;
        } else {
            skip -= PBL_FRAME_HEAD_BYTES;
        }
        size_t size = in_flight->request.body_bytes - skip < left ? in_flight->request.body_bytes - skip : left;
        parts[count++] = (struct iovec){(void *)(in_flight->request.body + skip), size};
        left -= size;
    }
    return count;
}

/* Note `size` more bytes as sent; a request without an answer ends with its last byte. */
static void advance(struct run *run, struct pbl_connection *connection, size_t size)
{
    while (size > 0) {
        struct pbl_in_flight *in_flight = slot(run, connection, connection->sent);
        size_t left = PBL_FRAME_HEAD_BYTES + in_flight->request.body_bytes - in_flight->sent_bytes;
        size_t now = size < left ? size : left;
        in_flight->sent_bytes += now;
        size -= now;
        if (now < left)
            return;
        connection->sent++;
        if (in_flight->request.unanswered) {
            connection->ended++;
            end_request(run, in_flight, 0, false);
        }
    }
}

static void flush(struct run *run, struct pbl_connection *connection)
{
    while (connection->sent < connection->queued) {
        struct iovec parts[IOVEC_COUNT];
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)gather(run, connection, parts)};
        ssize_t sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0)
            pbl_fail("the broker closed connection %u: %s", connection->index, strerror(errno));
        advance(run, connection, (size_t)sent);
    }
    /* Without answers nothing but room in the socket says when to go on. */
    bool unanswered = connection->queued > 0 && slot(run, connection, connection->queued - 1)->request.unanswered;
    watch_writable(run, connection, connection->sent < connection->queued || (unanswered && !run->stopping));
}

/* Between two requests of this connection; 0: closed loop. */
static uint64_t interval_of(const struct run *run, const struct pbl_connection *connection)
{
    return connection->index < run->paced_count ? run->interval_ns : 0;
}

/* When the clock of a request starts that is handed over now. In an open loop it is when the request was due, so that
 * an answer that came late delays nothing unseen. A probe has a priority, so that its own waits for a CPU do not count.
 * It may still have been late itself. So only the delay of the previous answer after its due time is the broker's. */
static uint64_t start_of(const struct run *run, const struct pbl_connection *connection, uint64_t now)
{
    if (!interval_of(run, connection))
        return now;
    if (run->engine->options->priority == 0)
        return connection->due_ns;
    return connection->free_ns > connection->due_ns ? now - (connection->free_ns - connection->due_ns) : now;
}

static bool past_bounds(struct run *run, uint64_t now)
{
    uint64_t limit = run->engine->options->total_bytes;
    if (now >= run->end_ns && !run->stopping)
        run->out_of_time = true;
    if (run->out_of_time || interrupted || (limit && run->queued_bytes >= limit))
        run->stopping = true;
    return run->stopping;
}

/* Queue what this connection may send now, then send. */
static void fill(struct run *run, struct pbl_connection *connection)
{
    const struct pbl_options *options = run->engine->options;
    uint64_t now = pbl_now_ns(), last = connection->queued + options->in_flight_count;
    uint64_t interval_ns = interval_of(run, connection);
    while (connection->queued - connection->ended < options->in_flight_count && connection->queued < last) {
        if (past_bounds(run, now) || (interval_ns && connection->due_ns > now))
            break;
        struct pbl_in_flight *in_flight = slot(run, connection, connection->queued);
        struct pbl_request request = {0};
        if (!run->workload->next(run->workload->context, connection, &request))
            break;
        *in_flight = (struct pbl_in_flight){.request = request,
                                            .correlation_id = ++run->engine->correlation_id,
                                            .start_ns = start_of(run, connection, now)};
        pbl_frame_head(in_flight->head, request.api, request.version, in_flight->correlation_id, request.body_bytes);
        connection->due_ns += interval_ns;
        connection->queued++;
        run->in_flight++;
        run->queued_bytes += request.payload_bytes;
        if (request.unanswered)
            flush(run, connection);
    }
    if (connection->sent < connection->queued)
        flush(run, connection);
}

static void take_frame(struct run *run, struct pbl_connection *connection, const uint8_t *data, size_t size)
{
    if (connection->ended == connection->sent)
        pbl_fail("connection %u got an answer to nothing", connection->index);
    struct pbl_in_flight *in_flight = slot(run, connection, connection->ended);
    struct pbl_reader body = {.at = data, .end = data + size};
    int32_t echoed = pbl_get_i32(&body);
    if (body.failed || echoed != in_flight->correlation_id)
        pbl_fail("connection %u got correlation id %d where %d was due", connection->index, echoed,
                 in_flight->correlation_id);
    uint64_t asked_bytes = in_flight->request.payload_bytes;
    int16_t code = run->workload->answer(run->workload->context, connection, in_flight, &body);
    run->queued_bytes += in_flight->request.payload_bytes - asked_bytes; /* known only now */
    if (in_flight->request.api == PBL_API_FETCH)                         /* here the records are in the answer */
        in_flight->request.body_bytes = size + 4 - PBL_FRAME_HEAD_BYTES;
    connection->ended++;
    connection->free_ns = run->arrived_ns;
    end_request(run, in_flight, code, body.failed);
}

/* Parse whole frames in the input; gives how many bytes the next, unfinished one still lacks. */
static size_t take_frames(struct run *run, struct pbl_connection *connection)
{
    struct pbl_buffer *input = &connection->input;
    size_t missing = 4;
    while (input->size - connection->input_position >= 4) {
        const uint8_t *frame = input->data + connection->input_position;
        int32_t size = pbl_load_i32(frame);
        if (size < 4 || size > PBL_FRAME_LIMIT_BYTES)
            pbl_fail("connection %u got a frame of %d bytes", connection->index, size);
        size_t there = input->size - connection->input_position - 4;
        if (there < (size_t)size) {
            missing = (size_t)size - there;
            break;
        }
        take_frame(run, connection, frame + 4, (size_t)size);
        connection->input_position += 4 + (size_t)size;
    }
    if (connection->input_position > 0) {
        input->size -= connection->input_position;
        memmove(input->data, input->data + connection->input_position, input->size);
        connection->input_position = 0;
    }
    return missing;
}

/* The kernel's own note of when the bytes came, on our clock; now when it made none. */
static uint64_t arrival_of(struct msghdr *message)
{
    struct timespec wall, arrived;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t now = pbl_now_ns(); /* after it: a pause between the two makes the arrival late, never early */
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_TIMESTAMPNS)
            continue;
        memcpy(&arrived, CMSG_DATA(part), sizeof arrived);
        int64_t age_ns = (wall.tv_sec - arrived.tv_sec) * 1000000000ll + wall.tv_nsec - arrived.tv_nsec;
        return age_ns > 0 ? now - (uint64_t)age_ns : now;
    }
    return now;
}

/* recv, and for a probe when the bytes had come. */
static ssize_t receive_some(struct run *run, const struct pbl_connection *connection, void *data, size_t size)
{
    if (run->engine->options->priority == 0)
        return recv(connection->fd, data, size, MSG_DONTWAIT);
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct timespec))];
    } control;
    struct iovec part = {data, size};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(connection->fd, &message, MSG_DONTWAIT);
    if (got > 0)
        run->arrived_ns = arrival_of(&message);
    return got;
}

static void receive(struct run *run, struct pbl_connection *connection)
{
    struct pbl_buffer *input = &connection->input;
    size_t wanted = READ_BYTES;
    for (;;) {
        pbl_buffer_reserve(input, wanted);
        size_t room = input->capacity - input->size;
        if (run->engine->options->call_bytes && run->engine->options->call_bytes < room)
            room = run->engine->options->call_bytes;
        ssize_t got = receive_some(run, connection, input->data + input->size, room);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0)
            pbl_fail("the broker closed connection %u: %s", connection->index,
                     got < 0 ? strerror(errno) : "end of stream");
        input->size += (size_t)got;
        size_t missing = take_frames(run, connection);
        if ((size_t)got < room)
            return;
        wanted = missing > READ_BYTES ? missing : READ_BYTES;
    }
}

static uint64_t next_wake_ns(const struct run *run, uint64_t now)
{
    uint64_t wake = run->stopping ? now + DRAIN_NS : run->end_ns;
    if (run->workload->polls && wake > now + POLL_NS)
        wake = now + POLL_NS;
    if (pbl_interval_end_ns(&run->engine->stats->interval) < wake)
        wake = pbl_interval_end_ns(&run->engine->stats->interval);
    const struct pbl_options *options = run->engine->options;
    for (uint32_t i = 0; run->interval_ns && !run->stopping && i < run->paced_count; i++) {
        const struct pbl_connection *connection = &run->engine->connections[i];
        if (connection->queued - connection->ended < options->in_flight_count && connection->due_ns < wake)
            wake = connection->due_ns;
    }
    return wake;
}

static void wait_for_events(struct run *run)
{
    uint64_t now = pbl_now_ns(), wake = next_wake_ns(run, now);
    uint64_t left = wake > now ? wake - now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000ull), .tv_nsec = (long)(left % 1000000000ull)};
    struct epoll_event events[EVENT_COUNT];
    int count = epoll_pwait2(run->engine->epoll_fd, events, EVENT_COUNT, &timeout, NULL);
    if (count < 0 && errno != EINTR)
        pbl_fail("epoll_pwait2: %s", strerror(errno));
    pbl_interval_tick(&run->engine->stats->interval, pbl_now_ns());
    for (int i = 0; i < count; i++) {
        struct pbl_connection *connection = events[i].data.ptr;
        if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
            receive(run, connection);
        fill(run, connection);
        flush(run, connection);
    }
}

static void start_schedule(struct run *run, uint64_t now)
{
    const struct pbl_options *options = run->engine->options;
    run->paced_count = run->workload->paced_count ? run->workload->paced_count : options->connection_count;
    if (options->rate > 0)
        run->interval_ns = (uint64_t)(1e9 * run->paced_count / options->rate);
    for (uint32_t i = 0; i < run->paced_count; i++)
        run->engine->connections[i].due_ns = now + run->interval_ns * i / run->paced_count;
}

/* Sends the requests that an open loop still owes at the end. Without them, a broker that cannot keep up would look
 * good for requests that it was never sent. */
static uint64_t count_unsent(const struct run *run)
{
    uint64_t count = 0;
    for (uint32_t i = 0; run->interval_ns && i < run->paced_count; i++) {
        uint64_t due_ns = run->engine->connections[i].due_ns;
        if (due_ns < run->end_ns && run->out_of_time)
            count += (run->end_ns - due_ns + run->interval_ns - 1) / run->interval_ns;
    }
    return count;
}

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* The first signal ends the run early, and what was measured is told; a second one ends the program. */
static void end_early_on_signals(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void pbl_engine_run(struct pbl_engine *engine, const struct pbl_workload *workload, struct pbl_stats *stats)
{
    const struct pbl_options *options = engine->options;
    end_early_on_signals();
    uint64_t start = pbl_now_ns();
    engine->stats = stats;
    struct run run = {.engine = engine, .workload = workload};
    stats->counting_ns = start + (uint64_t)(options->warmup_seconds * 1e9);
    pbl_interval_start(&stats->interval, options->interval_seconds, stats->counting_ns, start);
    run.end_ns = options->seconds > 0 ? stats->counting_ns + (uint64_t)(options->seconds * 1e9) : UINT64_MAX / 2;
    run.last_done_ns = stats->counting_ns;
    pbl_stalls_begin(&stats->stalls, start);
    start_schedule(&run, start);
    uint64_t drain_end = 0;
    for (bool first = true;; first = false) {
        if (first || workload->polls || run.interval_ns)
            for (uint32_t i = 0; i < options->connection_count; i++)
                fill(&run, &engine->connections[i]);
        uint64_t now = pbl_now_ns();
        if (past_bounds(&run, now) || (workload->finished && workload->finished(workload->context)))
            run.stopping = true;
        if (run.stopping && drain_end == 0)
            drain_end = now + DRAIN_NS;
        if (run.stopping && run.in_flight == 0)
            break;
        if (run.stopping && now > drain_end)
            pbl_fail("%llu requests got no answer within 30 s after the run", (unsigned long long)run.in_flight);
        wait_for_events(&run);
    }
    pbl_interval_finish(&stats->interval, pbl_now_ns());
    stats->unsent_count = count_unsent(&run);
    stats->elapsed_seconds = (double)(run.last_done_ns - stats->counting_ns) / 1e9;
    pbl_stats_end(stats);
}
