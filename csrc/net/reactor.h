/*
 * A reactor: one thread, one loop, its connections for life.
 *
 * A turn: wait for completions -> deliver them -> run what other threads sent -> fire timers -> the owner's end of turn
 * (where appends are written, coalesced) -> start sends. Tasks that other threads sent are run a few at a time: a
 * thousand answers of a group must not delay a produce that came meanwhile. A turn also starts only a few sends while
 * the loop makes durable writes: the next write must not wait for all answers to the last. A reactor never waits for
 * Python, for a sync, for a cold read, or for a lock that someone holds across I/O.
 */
#ifndef PB_NET_REACTOR_H
#define PB_NET_REACTOR_H

#include "base/counter.h"
#include "base/histogram.h"
#include "base/mailbox.h"
#include "io/io.h"
#include "net/pool.h"
#include "net/timers.h"

#define PB_REACTOR_HURRY_NS 20000000LL
#define PB_DISK_WAIT_NS 10000000LL
#define PB_DISCARD_BYTES (16 * 1024)
#define PB_CONTROL_CROWD 16      /* within that time */
#define PB_FLUSHES_BESIDE_DISK 8 /* connections that send in one turn while a durable write is under way */

typedef struct pb_reactor pb_reactor;

/* Work sent to a reactor. Owner: the sender until it runs; `run` may free it. */
typedef struct pb_task {
    pb_node node;
    void (*run)(struct pb_task *task, pb_reactor *reactor);
} pb_task;

/* The options that a reactor is made with. The owner's hooks run on the reactor's thread. */
typedef struct pb_reactor_options {
    pb_io *io;
    pb_pool *pool;
    int id;
    int64_t spin_ns;
    int64_t idle_close_ns; /* close connections without traffic for this long; 0 = never */
    void (*turn_end)(pb_reactor *reactor);
    void *owner;
} pb_reactor_options;

/* Counters are written by the reactor's thread and read by others. */
typedef struct pb_reactor_counters {
    _Atomic int64_t bytes_in;
    _Atomic int64_t bytes_out;
    _Atomic int64_t turns;
    _Atomic int64_t writes; /* into logs: files and tail rings */
    _Atomic int64_t written_bytes;
    _Atomic int64_t slow_closed; /* connections closed because they held memory others waited for */
    pb_histogram turn_us;        /* from the first thing heard to the end of the turn's work */
    pb_histogram sync_us;        /* durable writes that it made */
    pb_histogram shared_sync_us; /* its writes of several partitions that shared a flush */
    pb_histogram commit_appends; /* appends that one of either let end in a partition */
} pb_reactor_counters;

struct pb_reactor {
    pb_reactor_options options;
    pb_io *io;
    pb_loop *loop;
    pb_thread *thread;
    pb_mailbox inbox;
    pb_node *tasks; /* taken from the inbox and not yet run, oldest first */
    pb_timers timers;
    pb_link connections;  /* all of them */
    pb_link flush;        /* have something to send */
    pb_link starved;      /* wait for buffer memory */
    pb_timer sweep;       /* idle and slow connections */
    pb_task press;        /* sweep now: some reactor's connections lack memory */
    atomic_bool pressed;  /* it has been posted */
    int64_t swept_ns;     /* when it looked at its connections last */
    int64_t told_round;   /* of the pool, in which it has told of its slow connections last */
    int64_t slow_told_ns; /* when one that was closed was told of last, */
    int64_t slow_untold;  /* and how many were closed since */
    pb_timer feed;        /* set while somebody is starved */
    bool again;           /* something is left for the next turn: do not sleep before it */
    int64_t now_ns;       /* at the start of this turn */
    int64_t woken_ns;     /* when this turn's work began; 0: it has not yet */
    int64_t wall_ms;
    int spin_credit; /* > 0: spinning has paid off lately */
    int spin_probe;
    int64_t waited_bytes;    /* sent and received when it last came to wait */
    const void *last_heard;  /* the connection that was heard last; only compared */
    int64_t shared_until_ns; /* several connections have been heard shortly before */
    int64_t tail_until_ns;   /* a connection that reads no history has been heard shortly before */
    int64_t disk_until_ns;   /* answers have been waiting for a disk shortly before: no spinning, */
    bool disk_alone;         /* unless it was one answer at a time */
    int rounds;              /* of durable writes, of so many logs, that it has begun or is going to begin */
    int64_t huge_until_ns;   /* a huge request has come shortly before */
    int64_t data_until_ns;   /* the owner's: somebody produces or consumes */
    int64_t crowd_since_ns;  /* see pb_reactor_notice_control */
    int crowd;
    int64_t hurried_until_ns;            /* see pb_reactor_hurry */
    bool goes_first;                     /* before ordinary threads */
    bool never_first;                    /* the system does not let it */
    int64_t first_since_ns;              /* from then on it is watched how busy it is while it goes first */
    int64_t first_cpu_ns;                /* the CPU time it had taken then */
    int64_t rests_until_ns;              /* it has been too busy */
    struct pb_flush_group *flush_groups; /* the owner's, for durable writes; NULL: none */
    int holds;                           /* operations on the loop besides connections': listeners, writes in flight */
    bool left;                           /* its connections were told to leave */
    _Atomic int64_t owing;               /* while leaving: connections that have answers to give */
    atomic_bool leaving;                 /* they are to be */
    atomic_bool stopping;
    uint8_t discarded[PB_DISCARD_BYTES]; /* what leaving connections still receive; nobody reads it */
    pb_reactor_counters counters;
};

int pb_reactor_init(pb_reactor *reactor, const pb_reactor_options *options, pb_failure *failure);
int pb_reactor_start(pb_reactor *reactor, pb_failure *failure);
/* Any thread: take no more requests, answer those under way and let the connections go as their clients do. Those that
 * stay are closed by stop. */
void pb_reactor_leave(pb_reactor *reactor);
/* Ask the thread to close its connections and end, and wait for it. Blocking; not from a reactor. */
void pb_reactor_stop(pb_reactor *reactor);
/* After stop: run what was sent too late, on the caller's thread; such tasks may only let go of what they hold. */
void pb_reactor_drain(pb_reactor *reactor);
void pb_reactor_destroy(pb_reactor *reactor);
/* Any thread: run `task` on the reactor. */
void pb_reactor_post(pb_reactor *reactor, pb_task *task);
/* Any thread: connections lack memory, so take back at once what others do not need. */
void pb_reactor_press(pb_reactor *reactor);
/* One turn of the reactor given: the thread's body, also called by the simulation. */
enum pb_step pb_reactor_step(void *argument);

/* On its thread: for a while small requests may find all CPUs taken by what came with them, a huge request's copying or
 * the control plane and its clients. The reactor goes before those, where the system lets it. Not always: to break into
 * a client at each of its wakes makes a fetch cost 1.5 times as much. */
static inline void pb_reactor_hurry(pb_reactor *reactor)
{
    reactor->hurried_until_ns = reactor->now_ns + PB_REACTOR_HURRY_NS;
}

/* On its thread: somebody waits for a disk, and for as long as most of that takes the CPU is left to others. `alone`:
 * it is a durable append that nothing else is written beside. */
static inline void pb_reactor_awaits_disk(pb_reactor *reactor, bool alone)
{
    reactor->disk_until_ns = reactor->now_ns + PB_DISK_WAIT_NS;
    reactor->disk_alone = alone;
}

/* On its thread: a connection has come. Often a thousand others follow, and who opens them has the CPUs between one and
 * the next. */
static inline void pb_reactor_notice_opening(pb_reactor *reactor)
{
    if (reactor->now_ns < reactor->data_until_ns)
        pb_reactor_hurry(reactor);
}

/* On its thread: a connection has gone, or a request that Python serves has come or been answered. Many at once keep
 * the CPUs busy, and whoever produces or consumes meanwhile waits for one. */
static inline void pb_reactor_notice_control(pb_reactor *reactor)
{
    if (reactor->now_ns - reactor->crowd_since_ns > PB_REACTOR_HURRY_NS) {
        reactor->crowd_since_ns = reactor->now_ns;
        reactor->crowd = 0;
    }
    if (++reactor->crowd >= PB_CONTROL_CROWD && reactor->now_ns < reactor->data_until_ns)
        pb_reactor_hurry(reactor);
}

#endif
