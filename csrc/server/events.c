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

static void put_notice(pb_events *events, enum pb_notice_subject subject, const char *text)
{
    pthread_mutex_lock(&events->notices);
    bool fold =
        events->last != NULL && (strcmp(events->last->text, text) == 0 || events->notice_count >= PB_NOTICES_MAX);
    pb_notice *notice = NULL;
    if (fold) {
        events->last->repeated++;
    } else if ((notice = calloc(1, sizeof *notice)) != NULL) {
        notice->event.kind = PB_NODE_NOTICE;
        notice->event.error = (int32_t)subject;
        memcpy(notice->text, text, strlen(text) + 1);
        events->last = notice;
        events->notice_count++;
    }
    pthread_mutex_unlock(&events->notices);
    if (notice != NULL)
        pb_events_put(events, &notice->event);
}

void pb_events_notice(pb_events *events, const char *format, ...)
{
    char text[PB_NOTICE_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_notice(events, PB_ABOUT_TROUBLE, text);
}

void pb_events_tell(pb_events *events, enum pb_notice_subject subject, const char *format, ...)
{
    char text[PB_NOTICE_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_notice(events, subject, text);
}

void pb_events_claim_notice(pb_events *events, pb_notice *notice)
{
    pthread_mutex_lock(&events->notices);
    if (events->last == notice)
        events->last = NULL;
    events->notice_count--;
    pthread_mutex_unlock(&events->notices);
}

void pb_notice_free(pb_notice *notice)
{
    free(notice);
}
