/* A binary heap of deadlines. Runs on the reactor that owns it. */
#include "net/timers.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"

void pb_timers_init(pb_timers *timers)
{
    *timers = (pb_timers){0};
}

void pb_timers_destroy(pb_timers *timers)
{
    free(timers->heap);
    *timers = (pb_timers){0};
}

static void place(pb_timers *timers, uint32_t index, pb_timer *timer)
{
    timers->heap[index] = timer;
    timer->slot = index + 1;
}

static void sift_up(pb_timers *timers, uint32_t index)
{
    pb_timer *timer = timers->heap[index];
    while (index > 0) {
        uint32_t parent = (index - 1) / 2;
        if (timers->heap[parent]->deadline_ns <= timer->deadline_ns)
            break;
        place(timers, index, timers->heap[parent]);
        index = parent;
    }
    place(timers, index, timer);
}

static void sift_down(pb_timers *timers, uint32_t index)
{
    pb_timer *timer = timers->heap[index];
    for (;;) {
        uint32_t child = 2 * index + 1;
        if (child >= timers->count)
            break;
        if (child + 1 < timers->count && timers->heap[child + 1]->deadline_ns < timers->heap[child]->deadline_ns)
            child++;
        if (timer->deadline_ns <= timers->heap[child]->deadline_ns)
            break;
        place(timers, index, timers->heap[child]);
        index = child;
    }
    place(timers, index, timer);
}

int pb_timer_set(pb_timers *timers, pb_timer *timer, int64_t deadline_ns)
{
    pb_timer_cancel(timers, timer);
    if (timers->count == timers->capacity) {
        uint32_t capacity = timers->capacity != 0 ? timers->capacity * 2 : 64;
        pb_timer **heap = realloc(timers->heap, capacity * sizeof *heap);
        if (heap == NULL)
            return -ENOMEM;
        timers->heap = heap;
        timers->capacity = capacity;
    }
    timer->deadline_ns = deadline_ns;
    place(timers, timers->count++, timer);
    sift_up(timers, timer->slot - 1);
    return 0;
}

void pb_timer_cancel(pb_timers *timers, pb_timer *timer)
{
    if (timer->slot == 0)
        return;
    uint32_t index = timer->slot - 1;
    PB_ASSERT(index < timers->count && timers->heap[index] == timer);
    timer->slot = 0;
    pb_timer *last = timers->heap[--timers->count];
    if (last == timer)
        return;
    place(timers, index, last);
    sift_up(timers, index);
    sift_down(timers, last->slot - 1);
}

void pb_timers_fire(pb_timers *timers, int64_t now_ns)
{
    while (timers->count > 0 && timers->heap[0]->deadline_ns <= now_ns) {
        pb_timer *timer = timers->heap[0];
        pb_timer_cancel(timers, timer);
        timer->fire(timer);
    }
}

int64_t pb_timers_next(const pb_timers *timers)
{
    return timers->count > 0 ? timers->heap[0]->deadline_ns : INT64_MAX;
}
