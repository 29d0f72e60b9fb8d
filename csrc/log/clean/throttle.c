/* The cleaners' common rate. Atomics only; sleeps on the caller's thread. */
#include "log/clean/throttle.h"

enum { SECOND_NS = 1000000000, NAP_NS = 50 * 1000 * 1000 };

/* The share of a rate change that lies ahead: what was asked for at an old, lower rate is not waited for longer than
 * this. */
static const int64_t AHEAD_MAX_NS = INT64_C(60) * SECOND_NS;

void pb_clean_throttle_wait(pb_clean_throttle *throttle, pb_io *io, int64_t bytes, const atomic_bool *cancelled)
{
    int64_t rate = atomic_load_explicit(&throttle->bytes_per_second, memory_order_relaxed);
    if (rate <= 0 || bytes <= 0)
        return;
    int64_t now_ns = io->ops->monotonic_ns(io);
    int64_t cost_ns = (int64_t)((double)bytes * SECOND_NS / (double)rate);
    int64_t due_ns = atomic_load_explicit(&throttle->due_ns, memory_order_relaxed);
    int64_t next_ns;
    do {
        int64_t from_ns = due_ns < now_ns ? now_ns : due_ns > now_ns + AHEAD_MAX_NS ? now_ns + AHEAD_MAX_NS : due_ns;
        next_ns = from_ns + cost_ns;
    } while (!atomic_compare_exchange_weak_explicit(&throttle->due_ns, &due_ns, next_ns, memory_order_relaxed,
                                                    memory_order_relaxed));
    for (int64_t left_ns = next_ns - now_ns; left_ns > 0;) {
        if (atomic_load_explicit(cancelled, memory_order_relaxed) ||
            atomic_load_explicit(&throttle->bytes_per_second, memory_order_relaxed) != rate)
            return;
        int64_t nap_ns = left_ns < NAP_NS ? left_ns : NAP_NS;
        io->ops->nap(io, nap_ns);
        left_ns -= nap_ns;
    }
}
