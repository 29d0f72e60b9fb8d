/* See interval.h. */
#include "stats/interval.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

void pbl_interval_start(struct pbl_interval *interval, double seconds, uint64_t start_ns, uint64_t now_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    memset(interval, 0, sizeof *interval);
    interval->length_ns = (uint64_t)(seconds * 1e9);
    interval->start_ns = start_ns;
    interval->start_time = (double)now.tv_sec + (double)now.tv_nsec / 1e9 + (double)(start_ns - now_ns) / 1e9;
}

uint64_t pbl_interval_end_ns(const struct pbl_interval *interval)
{
    return interval->length_ns ? interval->start_ns + interval->length_ns : UINT64_MAX;
}

static void print(const struct pbl_interval *interval, uint64_t end_ns)
{
    printf("{\"interval\":%" PRIu64 ",\"time_s\":%.6f,\"seconds\":%.6f,\"requests\":%" PRIu64 ",\"records\":%" PRIu64
           ",\"payload_bytes\":%" PRIu64 ",\"latency_us\":",
           interval->number, interval->start_time, (double)(end_ns - interval->start_ns) / 1e9, interval->request_count,
           interval->record_count, interval->payload_bytes);
    pbl_histogram_print(stdout, &interval->latency);
    printf(",\"histogram\":");
    pbl_histogram_print_buckets(stdout, &interval->latency);
    printf("}\n");
    fflush(stdout);
}

static void advance(struct pbl_interval *interval)
{
    interval->number++;
    interval->start_ns += interval->length_ns;
    interval->start_time += (double)interval->length_ns / 1e9;
    interval->request_count = interval->record_count = interval->payload_bytes = 0;
    memset(&interval->latency, 0, sizeof interval->latency);
}

void pbl_interval_tick(struct pbl_interval *interval, uint64_t now_ns)
{
    while (now_ns >= pbl_interval_end_ns(interval)) {
        print(interval, pbl_interval_end_ns(interval));
        advance(interval);
    }
}

void pbl_interval_finish(struct pbl_interval *interval, uint64_t now_ns)
{
    pbl_interval_tick(interval, now_ns);
    if (interval->length_ns && (interval->request_count || interval->latency.count))
        print(interval, now_ns);
}
