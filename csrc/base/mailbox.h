/*
 * The one queue through which threads hand work over: many producers, one consumer, intrusive, lock-free.
 *
 * Put pushes on a stack with one compare-and-swap; take empties it with one exchange and turns it round, so the
 * consumer sees the order of the puts. Release on put and acquire on take order everything the producer wrote before.
 */
#ifndef PB_BASE_MAILBOX_H
#define PB_BASE_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Lives inside the element; owned by the mailbox between put and take. */
typedef struct pb_node {
    struct pb_node *next;
} pb_node;

typedef struct pb_mailbox {
    _Atomic(pb_node *) top;
} pb_mailbox;

static inline void pb_mailbox_init(pb_mailbox *mailbox)
{
    atomic_init(&mailbox->top, NULL);
}

/* Any thread. True when the mailbox was empty: the one who must wake the consumer. */
static inline bool pb_mailbox_put(pb_mailbox *mailbox, pb_node *node)
{
    pb_node *top = atomic_load_explicit(&mailbox->top, memory_order_relaxed);
    do
        node->next = top;
    while (
        !atomic_compare_exchange_weak_explicit(&mailbox->top, &top, node, memory_order_seq_cst, memory_order_relaxed));
    return top == NULL;
}

static inline bool pb_mailbox_empty(const pb_mailbox *mailbox)
{
    return atomic_load_explicit(&mailbox->top, memory_order_seq_cst) == NULL;
}

/* The consumer: everything put so far, oldest first, linked by `next`. */
static inline pb_node *pb_mailbox_take(pb_mailbox *mailbox)
{
    pb_node *node = atomic_exchange_explicit(&mailbox->top, NULL, memory_order_seq_cst);
    pb_node *oldest = NULL;
    while (node != NULL) {
        pb_node *next = node->next;
        node->next = oldest;
        oldest = node;
        node = next;
    }
    return oldest;
}

#endif
