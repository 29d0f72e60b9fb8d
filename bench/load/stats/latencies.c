/* See latencies.h. */
#include "stats/latencies.h"

void pbl_latencies_record(struct pbl_latencies *latencies, uint64_t end_ns, uint64_t latency_ns)
{
    pbl_histogram_record(&latencies->all, latency_ns);
    if (pbl_stalls_file())
        pbl_spans_add(&latencies->spans, end_ns - latency_ns, end_ns);
}

static void print_undisturbed(struct pbl_latencies *latencies, FILE *out, const char *name,
                              const struct pbl_stalls *stalls)
{
    for (uint64_t i = 0; i < latencies->spans.count; i++) {
        const struct pbl_span *way = &latencies->spans.each[i];
        if (!pbl_stalls_explain(stalls, way->start_ns, way->end_ns))
            pbl_histogram_record(&latencies->undisturbed, way->end_ns - way->start_ns);
    }
    double all_count = latencies->spans.count > 0 ? (double)latencies->spans.count : 1;
    fprintf(out, ",\"%slatency_undisturbed_share\":%.4f,\"%slatency_undisturbed_us\":", name,
            (double)latencies->undisturbed.count / all_count, name);
    pbl_histogram_print(out, &latencies->undisturbed);
}

void pbl_latencies_finish(struct pbl_latencies *latencies, FILE *out, const char *name, const struct pbl_stalls *stalls)
{
    fprintf(out, ",\"%slatency_us\":", name);
    pbl_histogram_print(out, &latencies->all);
    if (stalls)
        print_undisturbed(latencies, out, name, stalls);
    pbl_spans_free(&latencies->spans);
}
