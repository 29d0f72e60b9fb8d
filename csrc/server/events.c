/* The queue towards Python. Any thread puts; one takes. */
#include "server/events.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int pb_events_init(pb_events *events)
{
    memset(events, 0, sizeof *events);
    pb_mailbox_init(&events->mailbox);
    atomic_init(&events->rung, false);
    pthread_mutex_init(&events->notices, NULL);
    events->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return events->event_fd < 0 ? -errno : 0;
}

void pb_events_destroy(pb_events *events)
{
    pb_event_node *node;
    while ((node = pb_events_next(events)) != NULL) {
        /* The connections of requests are gone, so they must be too. */
        PB_ASSERT(node->kind != PB_NODE_REQUEST && node->kind != PB_NODE_VERIFY);
        free(node);
    }
    close(events->event_fd);
    pthread_mutex_destroy(&events->notices);
}

static void ring(pb_events *events)
{
    if (atomic_exchange(&events->rung, true))
        return;
    if (events->io != NULL)
        atomic_store_explicit(&events->rung_ns, events->io->ops->monotonic_ns(events->io), memory_order_relaxed);
    uint64_t one = 1;
    ssize_t wrote = write(events->event_fd, &one, sizeof one);
    PB_ASSERT(wrote == sizeof one);
}

void pb_events_put(pb_events *events, pb_event_node *node)
{
    if (pb_mailbox_put(&events->mailbox, &node->node))
        ring(events);
}

/* How long it took Python to come to the door. */
static void count_answer(pb_events *events)
{
    int64_t rung_ns = atomic_load_explicit(&events->rung_ns, memory_order_relaxed);
    if (rung_ns == 0)
        return;
    atomic_store_explicit(&events->rung_ns, 0, memory_order_relaxed);
    pb_histogram_add(&events->doorbell_us, (events->io->ops->monotonic_ns(events->io) - rung_ns) / 1000);
}

pb_event_node *pb_events_next(pb_events *events)
{
    count_answer(events);
    if (events->taken == NULL)
        events->taken = pb_mailbox_take(&events->mailbox);
    if (events->taken == NULL) {
        /* Even when nobody seems to have rung: whoever did may write after an earlier look here, which would leave the
         * descriptor readable for nothing and Python's loop turning. */
        uint64_t count;
        ssize_t got = read(events->event_fd, &count, sizeof count);
        PB_ASSERT(got == sizeof count || errno == EAGAIN);
        atomic_store(&events->rung, false);
        /* Whatever came between the take and the store has not rung: look once more, and ring for what the caller may
         * not take in this batch. */
        events->taken = pb_mailbox_take(&events->mailbox);
        if (events->taken != NULL)
            ring(events);
    }
    if (events->taken == NULL)
        return NULL;
    pb_event_node *node = PB_CONTAINER(events->taken, pb_event_node, node);
    events->taken = events->taken->next;
    return node;
}

/* The waiting notice that another one of its kind is folded into, or NULL where it is to wait by itself. Under
 * `notices`. */
static pb_notice *fold_target(const pb_events *events, const char *kind, const char *peer, const char *text)
{
    pb_notice *of_kind = NULL;
    pb_notice *of_peer = NULL;
    int of_peer_count = 0;
    for (pb_notice *each = events->newest; each != NULL; each = each->older) {
        if (each->kind != kind)
            continue;
        if (of_kind == NULL)
            of_kind = each;
        if (strcmp(each->peer, peer) != 0)
            continue;
        if (strcmp(each->text, text) == 0)
            return each;
        if (of_peer == NULL)
            of_peer = each;
        of_peer_count++;
    }
    if (peer[0] != '\0' && of_peer_count >= PB_NOTICES_OF_PEER_MAX)
        return of_peer;
    return events->notice_count >= PB_NOTICES_MAX ? of_kind : NULL;
}

static pb_notice *create(enum pb_notice_subject subject, const char *kind, const char *peer, const char *text)
{
    pb_notice *notice = calloc(1, sizeof *notice);
    if (notice == NULL)
        return NULL;
    notice->event.kind = PB_NODE_NOTICE;
    notice->event.error = (int32_t)subject;
    notice->kind = kind;
    memcpy(notice->peer, peer, strnlen(peer, sizeof notice->peer - 1));
    memcpy(notice->text, text, strnlen(text, sizeof notice->text - 1));
    return notice;
}

/* Under `notices`. */
static void link_newest(pb_events *events, pb_notice *notice)
{
    notice->older = events->newest;
    if (events->newest != NULL)
        events->newest->newer = notice;
    events->newest = notice;
    events->notice_count++;
}

__attribute__((format(printf, 4, 0))) static void put_notice(pb_events *events, enum pb_notice_subject subject,
                                                             const char *peer, const char *format, va_list args)
{
    PB_ASSERT(peer != NULL && format != NULL);
    char text[PB_NOTICE_TEXT_BYTES];
    vsnprintf(text, sizeof text, format, args);
    pthread_mutex_lock(&events->notices);
    pb_notice *notice = fold_target(events, format, peer, text);
    bool fold = notice != NULL;
    if (fold)
        notice->repeated++;
    else if ((notice = create(subject, format, peer, text)) != NULL)
        link_newest(events, notice);
    pthread_mutex_unlock(&events->notices);
    if (!fold && notice != NULL)
        pb_events_put(events, &notice->event);
}

void pb_events_notice(pb_events *events, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_notice(events, PB_ABOUT_TROUBLE, "", format, args);
    va_end(args);
}

void pb_events_tell(pb_events *events, enum pb_notice_subject subject, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_notice(events, subject, "", format, args);
    va_end(args);
}

void pb_events_notice_peer(pb_events *events, const char *peer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_notice(events, PB_ABOUT_TROUBLE, peer, format, args);
    va_end(args);
}

void pb_events_tell_peer(pb_events *events, enum pb_notice_subject subject, const char *peer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put_notice(events, subject, peer, format, args);
    va_end(args);
}

void pb_events_claim_notice(pb_events *events, pb_notice *notice)
{
    pthread_mutex_lock(&events->notices);
    PB_ASSERT(events->notice_count > 0);
    if (notice->newer != NULL)
        notice->newer->older = notice->older;
    else
        events->newest = notice->older;
    if (notice->older != NULL)
        notice->older->newer = notice->newer;
    events->notice_count--;
    pthread_mutex_unlock(&events->notices);
}

void pb_notice_free(pb_notice *notice)
{
    free(notice);
}
