/* Rates over samples. See the header. */
#include "server/quota/rate.h"

#include <math.h>

#include "base/assert.h"

size_t pb_rate_size(const pb_rate_window *window)
{
    return sizeof(pb_rate) + ((size_t)window->count + 1) * sizeof(pb_rate_sample);
}

void pb_rate_add(pb_rate *rate, const pb_rate_window *window, int64_t bytes, int64_t now_ms)
{
    PB_ASSERT(window->count >= 1 && window->sample_ms > 0);
    pb_rate_sample *sample = &rate->samples[rate->current];
    if (rate->used == 0) {
        rate->used = 1;
        *sample = (pb_rate_sample){.began_ms = now_ms};
    } else if (now_ms - sample->began_ms >= window->sample_ms) {
        rate->current = rate->current == window->count ? 0 : rate->current + 1;
        if (rate->used <= rate->current)
            rate->used = rate->current + 1;
        sample = &rate->samples[rate->current];
        *sample = (pb_rate_sample){.began_ms = now_ms};
    }
    PB_ASSERT(rate->current < rate->used && rate->used <= window->count + 1);
    sample->bytes += bytes;
    sample->last_ms = now_ms;
}

/* Over how long the samples have been taken; `total_bytes` is what they hold. Samples that are too old are forgotten.
 * */
static int64_t measured_ms(pb_rate *rate, const pb_rate_window *window, int64_t now_ms, int64_t *total_bytes)
{
    int64_t kept_ms = window->count * window->sample_ms;
    int64_t oldest_ms = now_ms;
    *total_bytes = 0;
    for (int32_t i = 0; i < rate->used; i++) {
        pb_rate_sample *sample = &rate->samples[i];
        if (now_ms - sample->last_ms >= kept_ms)
            *sample = (pb_rate_sample){.began_ms = now_ms, .last_ms = now_ms};
        *total_bytes += sample->bytes;
        oldest_ms = sample->began_ms < oldest_ms ? sample->began_ms : oldest_ms;
    }
    int64_t elapsed_ms = now_ms - oldest_ms;
    int64_t missing = window->count - 1 - elapsed_ms / window->sample_ms;
    if (missing > 0)
        elapsed_ms += missing * window->sample_ms;
    return elapsed_ms > window->sample_ms ? elapsed_ms : window->sample_ms;
}

int32_t pb_rate_wait_ms(pb_rate *rate, const pb_rate_window *window, double bytes_per_second, int64_t now_ms)
{
    PB_ASSERT(bytes_per_second > 0);
    int64_t total_bytes;
    int64_t elapsed_ms = measured_ms(rate, window, now_ms, &total_bytes);
    double wait_ms = round((double)total_bytes * 1000.0 / bytes_per_second - (double)elapsed_ms);
    if (!(wait_ms > 0))
        return 0;
    return wait_ms < INT32_MAX ? (int32_t)wait_ms : INT32_MAX;
}
