/*
 * How much something has taken per second lately, as Kafka measures it: over samples, each so long, of which the newest
 * is still being filled. Until all have been filled once they count as though they had been, so that a first burst is
 * measured against the whole time. No lock: the caller has one.
 */
#ifndef PB_SERVER_QUOTA_RATE_H
#define PB_SERVER_QUOTA_RATE_H

#include <stddef.h>
#include <stdint.h>

/* How long rates look back: quota.window.num samples of quota.window.size.seconds. */
typedef struct pb_rate_window {
    int32_t count; /* >= 1 */
    int64_t sample_ms;
} pb_rate_window;

typedef struct pb_rate_sample {
    int64_t began_ms;
    int64_t last_ms; /* when something was last added */
    int64_t bytes;
} pb_rate_sample;

/* Zeroes are a rate that nothing was added to. */
typedef struct pb_rate {
    int32_t used;
    int32_t current;
    pb_rate_sample samples[]; /* one more than the window has: the oldest may still lie partly within it */
} pb_rate;

/* The size of one. */
size_t pb_rate_size(const pb_rate_window *window);
/* `bytes` may be negative: what was added before has not been taken after all. */
void pb_rate_add(pb_rate *rate, const pb_rate_window *window, int64_t bytes, int64_t now_ms);
/* With nothing more taken, so long until the rate is `bytes_per_second` (> 0) again; 0: it is no higher. */
int32_t pb_rate_wait_ms(pb_rate *rate, const pb_rate_window *window, double bytes_per_second, int64_t now_ms);

#endif
