/* What a run counted, and its one JSON line. One thread. */
#ifndef PBL_STATS_H
#define PBL_STATS_H

#include "histogram.h"
#include "options.h"

enum { PBL_ERROR_CODE_LIMIT = 256 };

struct pbl_stats {
    uint64_t request_count;
    uint64_t payload_bytes; /* records, before compression */
    uint64_t wire_bytes;    /* whole frames of the direction that carries the records */
    uint64_t malformed_count;
    uint64_t error_counts[PBL_ERROR_CODE_LIMIT]; /* by Kafka error code; [0] is UNKNOWN_SERVER_ERROR (-1) */
    double elapsed_seconds;
    struct pbl_histogram latency;
};

void pbl_stats_count_error(struct pbl_stats *stats, int16_t code);
bool pbl_stats_failed(const struct pbl_stats *stats);

/* Print the line on stdout; `extra` is further JSON members, each starting with a comma, or "". */
void pbl_stats_print(const struct pbl_stats *stats, const struct pbl_options *options, const char *extra);

#endif
