/*
 * From C to Python: one queue of events and one eventfd in Python's loop.
 *
 * Any thread puts; Python takes in batches. The doorbell rings only when Python may be asleep. Notices (things to log)
 * are bounded and folded, per kind and peer. A flood of one complaint becomes some events with a count, and the first
 * notice of another kind is never folded into it.
 */
#ifndef PB_SERVER_EVENTS_H
#define PB_SERVER_EVENTS_H

#include <pthread.h>
#include <stdint.h>

#include "base/histogram.h"
#include "base/mailbox.h"
#include "io/io.h"

#define PB_NOTICE_TEXT_BYTES 480
#define PB_NOTICES_MAX 256       /* waiting; beyond it, one more for each kind that has none waiting */
#define PB_NOTICES_OF_PEER_MAX 8 /* waiting, of one kind */
#define PB_NOTICE_PEER_BYTES 46

enum pb_event_node_kind {
    PB_NODE_REQUEST,
    PB_NODE_APPENDED,
    PB_NODE_NOTICE,
    PB_NODE_OFFLINE,
    PB_NODE_CAUGHT_UP,
    PB_NODE_FOLLOWER,
    PB_NODE_VERIFY,
};

/* Embedded in, or made for, whatever the event is about; owned by the queue from put to take. */
typedef struct pb_event_node {
    pb_node node;
    enum pb_event_node_kind kind;
    int32_t error;
    uint64_t ticket;
    int64_t offset;
} pb_event_node;

/* The subject of a notice; the values are pybroker.h's pb_notice_kind. */
enum pb_notice_subject {
    PB_ABOUT_TROUBLE = 0, /* somebody should look at it */
    PB_ABOUT_SLOW_REQUEST = 1,
    PB_ABOUT_ROLL = 2,
    PB_ABOUT_THROTTLE = 3,
};

/* A line for the log, its subject in the event's `error`. Owner: the queue, then Python until pb_notice_free. */
typedef struct pb_notice {
    pb_event_node event;
    struct pb_notice *older, *newer; /* among those that wait; under `notices` */
    const char *kind;                /* its format, a literal: notices with the same one are of one kind */
    uint32_t repeated;               /* under `notices` while it waits */
    char peer[PB_NOTICE_PEER_BYTES]; /* the client's address that it is about; empty: about none */
    char text[PB_NOTICE_TEXT_BYTES];
} pb_notice;

typedef struct pb_events {
    pb_mailbox mailbox;
    int event_fd;
    atomic_bool rung;         /* the eventfd is readable or about to be */
    pb_node *taken;           /* Python's thread: taken from the mailbox, not yet handed out */
    pb_io *io;                /* for the time; NULL: nothing is timed */
    _Atomic int64_t rung_ns;  /* when the doorbell rang that Python has not heard yet; 0: it has */
    pb_histogram doorbell_us; /* Python's thread: from the ring to the first event taken */
    pthread_mutex_t notices;
    pb_notice *newest;    /* under `notices`: of those that wait, which may be folded into */
    int32_t notice_count; /* under `notices`: how many wait */
} pb_events;

int pb_events_init(pb_events *events);
void pb_events_destroy(pb_events *events);
void pb_events_put(pb_events *events, pb_event_node *node);
/* Python's thread: the next event, or NULL after clearing the eventfd. */
pb_event_node *pb_events_next(pb_events *events);
void pb_events_notice(pb_events *events, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same about something that need not be trouble. */
void pb_events_tell(pb_events *events, enum pb_notice_subject subject, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same about a client at the address `peer`, whose notices are bounded by themselves. */
void pb_events_notice_peer(pb_events *events, const char *peer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void pb_events_tell_peer(pb_events *events, enum pb_notice_subject subject, const char *peer, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Python's thread: this notice is being handed out, nothing is folded into it any more. */
void pb_events_claim_notice(pb_events *events, pb_notice *notice);
void pb_notice_free(pb_notice *notice);

#endif
