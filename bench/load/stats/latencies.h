/* Latencies of one kind: their histogram, and, where stalls of the machine are watched (stalls.h), another one without
 * those that a stall explains. That one is made after the run: until then all are kept. One thread.
 */
#ifndef PBL_LATENCIES_H
#define PBL_LATENCIES_H

#include "stats/histogram.h"
#include "stats/stalls.h"

struct pbl_latencies {
    struct pbl_histogram all;
    struct pbl_histogram undisturbed; /* of use where pbl_stalls_file gives one */
    struct pbl_spans spans;
};

/* Note one that ended at `end_ns`. */
void pbl_latencies_record(struct pbl_latencies *latencies, uint64_t end_ns, uint64_t latency_ns);

/* Print a JSON member, `,"<name>latency_us":{...}`, and, where `stalls` is not NULL, the other histogram as
 * `,"<name>latency_undisturbed_us"` and which share of all it holds as `,"<name>latency_undisturbed_share"`; frees what
 * is kept. */
void pbl_latencies_finish(struct pbl_latencies *latencies, FILE *out, const char *name,
                          const struct pbl_stalls *stalls);

#endif
