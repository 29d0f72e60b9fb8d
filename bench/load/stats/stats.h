/* The counts of a run, and its one JSON line. One thread. */
#ifndef PBL_STATS_H
#define PBL_STATS_H

#include "options.h"
#include "stats/interval.h"
#include "stats/latencies.h"

enum {
    PBL_ERROR_CODE_LIMIT = 256,
    PBL_EMPTY_ANSWER = INT16_MAX, /* no code of Kafka's: an answer without what was asked for, and without an error */
};

struct pbl_stats {
    uint64_t request_count;
    uint64_t record_count;  /* of requests that say how many they carry */
    uint64_t payload_bytes; /* records, before compression */
    uint64_t wire_bytes;    /* whole frames of the direction that carries the records */
    uint64_t malformed_count;
    uint64_t empty_count;
    uint64_t error_counts[PBL_ERROR_CODE_LIMIT]; /* by Kafka error code; [0] is UNKNOWN_SERVER_ERROR (-1) */
    uint64_t unsent_count;                       /* open loop: due before the end, and not sent for want of answers */
    uint64_t counting_ns;                        /* before is warm-up */
    double elapsed_seconds;
    struct pbl_latencies latency;
    struct pbl_interval interval;
    struct pbl_stalls stalls; /* where somebody watches */
};

void pbl_stats_count_error(struct pbl_stats *stats, int16_t code);
/* Note a latency that is known at `now_ns`, unless it is warm-up. */
void pbl_stats_record_latency(struct pbl_stats *stats, uint64_t now_ns, uint64_t latency_ns);
bool pbl_stats_failed(const struct pbl_stats *stats);

/* Nothing more is counted: read what the witness has seen meanwhile. */
void pbl_stats_end(struct pbl_stats *stats);
/* The stalls that `pbl_latencies_finish` tells of. NULL: nobody has watched. */
const struct pbl_stalls *pbl_stats_stalls(const struct pbl_stats *stats);

/* Print the line on stdout, and free what was kept for it; `extra` is further JSON members, each starting with a comma,
 * or "". */
void pbl_stats_print(struct pbl_stats *stats, const struct pbl_options *options, const char *extra);

#endif
