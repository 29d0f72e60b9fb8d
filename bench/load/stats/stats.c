/* See stats.h. */
#include "stats/stats.h"

#include <stdio.h>

void pbl_stats_count_error(struct pbl_stats *stats, int16_t code)
{
    if (code == PBL_EMPTY_ANSWER)
        stats->empty_count++;
    else if (code < -1 || code == 0 || code >= PBL_ERROR_CODE_LIMIT)
        stats->malformed_count++;
    else
        stats->error_counts[code < 0 ? 0 : code]++;
}

void pbl_stats_record_latency(struct pbl_stats *stats, uint64_t now_ns, uint64_t latency_ns)
{
    if (now_ns < stats->counting_ns)
        return;
    pbl_latencies_record(&stats->latency, now_ns, latency_ns);
    if (stats->interval.length_ns)
        pbl_histogram_record(&stats->interval.latency, latency_ns);
}

bool pbl_stats_failed(const struct pbl_stats *stats)
{
    for (int code = 0; code < PBL_ERROR_CODE_LIMIT; code++)
        if (stats->error_counts[code])
            return true;
    return stats->malformed_count != 0 || stats->empty_count != 0;
}

static void print_errors(const struct pbl_stats *stats)
{
    const char *comma = "";
    printf(",\"errors\":{");
    for (int code = 0; code < PBL_ERROR_CODE_LIMIT; code++) {
        if (stats->error_counts[code] == 0)
            continue;
        printf("%s\"%d\":%llu", comma, code ? code : -1, (unsigned long long)stats->error_counts[code]);
        comma = ",";
    }
    if (stats->malformed_count) {
        printf("%s\"malformed\":%llu", comma, (unsigned long long)stats->malformed_count);
        comma = ",";
    }
    if (stats->empty_count)
        printf("%s\"empty\":%llu", comma, (unsigned long long)stats->empty_count);
    printf("}");
}

void pbl_stats_end(struct pbl_stats *stats)
{
    if (pbl_stalls_file())
        pbl_stalls_end(&stats->stalls);
}

const struct pbl_stalls *pbl_stats_stalls(const struct pbl_stats *stats)
{
    return pbl_stalls_file() ? &stats->stalls : NULL;
}

void pbl_stats_print(struct pbl_stats *stats, const struct pbl_options *options, const char *extra)
{
    double seconds = stats->elapsed_seconds > 0 ? stats->elapsed_seconds : 1e-9;
    printf("{\"version\":1,\"mode\":\"%s\",\"connections\":%u,\"in_flight\":%u,\"partitions\":%u", options->mode,
           options->connection_count, options->in_flight_count, options->partition_count);
    printf(",\"elapsed_s\":%.6f,\"requests\":%llu", stats->elapsed_seconds, (unsigned long long)stats->request_count);
    printf(
        ",\"requests_per_s\":%.3f,\"payload_bytes\":%llu,\"wire_bytes\":%llu,\"mb_per_s\":%.3f,\"wire_mb_per_s\":%.3f",
        (double)stats->request_count / seconds, (unsigned long long)stats->payload_bytes,
        (unsigned long long)stats->wire_bytes, (double)stats->payload_bytes / seconds / 1e6,
        (double)stats->wire_bytes / seconds / 1e6);
    pbl_latencies_finish(&stats->latency, stdout, "", pbl_stats_stalls(stats));
    if (pbl_stalls_file())
        printf(",\"late_ms\":%.3f,\"stolen_ms\":%.3f", stats->stalls.late_ms, stats->stalls.stolen_ms);
    if (stats->interval.length_ns) {
        printf(",\"histogram\":");
        pbl_histogram_print_buckets(stdout, &stats->latency.all);
    }
    if (stats->record_count)
        printf(",\"records\":%llu", (unsigned long long)stats->record_count);
    if (options->rate > 0)
        printf(",\"rate\":%.3f,\"unsent\":%llu", options->rate, (unsigned long long)stats->unsent_count);
    print_errors(stats);
    printf("%s}\n", extra);
    pbl_stalls_free(&stats->stalls);
}
