/* Reports while a run lasts: one JSON line for each interval, with its own histogram.
 *
 * Without effect where `length_ns` is 0: then nothing is kept and nothing printed. One thread.
 */
#ifndef PBL_INTERVAL_H
#define PBL_INTERVAL_H

#include "stats/histogram.h"

struct pbl_interval {
    uint64_t length_ns; /* 0: off */
    uint64_t start_ns;  /* of the interval under way, by the monotonic clock */
    double start_time;  /* the same by the wall clock, in seconds since the epoch */
    uint64_t number;
    uint64_t request_count;
    uint64_t record_count;
    uint64_t payload_bytes;
    struct pbl_histogram latency;
};

/* Begin at `start_ns`, which may lie ahead; `now_ns` is now. */
void pbl_interval_start(struct pbl_interval *interval, double seconds, uint64_t start_ns, uint64_t now_ns);

/* When the interval under way ends; UINT64_MAX when off. */
uint64_t pbl_interval_end_ns(const struct pbl_interval *interval);

/* Print every interval that is over. To be called before anything is counted at `now_ns`. */
void pbl_interval_tick(struct pbl_interval *interval, uint64_t now_ns);

/* Print what the last, unfinished interval holds. */
void pbl_interval_finish(struct pbl_interval *interval, uint64_t now_ns);

#endif
