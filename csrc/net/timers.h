/*
 * Deadlines of one reactor: a binary heap of intrusive timers. Not thread safe: only the reactor's own thread.
 */
#ifndef PB_NET_TIMERS_H
#define PB_NET_TIMERS_H

#include <stdbool.h>
#include <stdint.h>

/* Owner: whoever embeds it; must be cancelled or have fired before it goes. Zero-initialised is "not set". */
typedef struct pb_timer {
    int64_t deadline_ns;
    uint32_t slot; /* place in the heap + 1; 0 when not set */
    void (*fire)(struct pb_timer *timer);
} pb_timer;

typedef struct pb_timers {
    pb_timer **heap;
    uint32_t count;
    uint32_t capacity;
} pb_timers;

void pb_timers_init(pb_timers *timers);
void pb_timers_destroy(pb_timers *timers);
/* Set or move a timer. 0 or -ENOMEM. */
int pb_timer_set(pb_timers *timers, pb_timer *timer, int64_t deadline_ns);
void pb_timer_cancel(pb_timers *timers, pb_timer *timer);
/* Fire everything due. A timer may set itself again from `fire`. */
void pb_timers_fire(pb_timers *timers, int64_t now_ns);
/* The next deadline, INT64_MAX when none. */
int64_t pb_timers_next(const pb_timers *timers);

static inline bool pb_timer_is_set(const pb_timer *timer)
{
    return timer->slot != 0;
}

#endif
