/*
 * An intrusive doubly linked list: the link lives inside the element, so membership costs no allocation.
 * Not thread safe; the owner of the head says which lock or thread guards it.
 */
#ifndef PB_BASE_LIST_H
#define PB_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/assert.h"

typedef struct pb_link {
    struct pb_link *next;
    struct pb_link *prev;
} pb_link;

#define PB_CONTAINER(link, type, member) ((type *)(void *)((char *)(link) - offsetof(type, member)))

/* An empty head, or a link that is on no list, points at itself. */
static inline void pb_list_init(pb_link *head)
{
    head->next = head;
    head->prev = head;
}

static inline bool pb_list_empty(const pb_link *head)
{
    return head->next == head;
}

static inline void pb_list_push_back(pb_link *head, pb_link *link)
{
    PB_ASSERT(head->prev != NULL);
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void pb_list_push_front(pb_link *head, pb_link *link)
{
    PB_ASSERT(head->next != NULL);
    pb_list_push_back(head->next, link);
}

/* Unlinking a link that is on no list does nothing. */
static inline void pb_list_remove(pb_link *link)
{
    PB_ASSERT(link->next != NULL);
    link->next->prev = link->prev;
    link->prev->next = link->next;
    link->next = link;
    link->prev = link;
}

/* The first link, taken off; NULL when the list is empty. */
static inline pb_link *pb_list_pop_front(pb_link *head)
{
    if (pb_list_empty(head))
        return NULL;
    pb_link *link = head->next;
    pb_list_remove(link);
    return link;
}

/* Move everything on `from` to the empty list `to`. */
static inline void pb_list_take(pb_link *to, pb_link *from)
{
    pb_list_init(to);
    if (pb_list_empty(from))
        return;
    *to = *from;
    to->next->prev = to;
    to->prev->next = to;
    pb_list_init(from);
}

/* Move at most the first `limit` on `from` to the empty list `to`. How many. */
static inline int pb_list_take_some(pb_link *to, pb_link *from, int limit)
{
    pb_list_init(to);
    int taken = 0;
    for (pb_link *link; taken < limit && (link = pb_list_pop_front(from)) != NULL; taken++)
        pb_list_push_back(to, link);
    return taken;
}

#endif
