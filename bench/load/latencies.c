/* See latencies.h. */
#include "latencies.h"

#include "client.h"

#include <stdlib.h>

static void keep(struct pbl_latencies *latencies, struct pbl_stall way)
{
    if (latencies->count == latencies->room) {
        latencies->room = latencies->room ? 2 * latencies->room : 1024;
        latencies->each = realloc(latencies->each, latencies->room * sizeof *latencies->each);
        if (!latencies->each)
            pbl_fail("out of memory");
    }
    latencies->each[latencies->count++] = way;
}

void pbl_latencies_record(struct pbl_latencies *latencies, uint64_t end_ns, uint64_t latency_ns)
{
    pbl_histogram_record(&latencies->all, latency_ns);
    if (pbl_stalls_file())
        keep(latencies, (struct pbl_stall){end_ns - latency_ns, end_ns});
}

static void print_undisturbed(struct pbl_latencies *latencies, FILE *out, const char *name,
                              const struct pbl_stalls *stalls)
{
    for (uint64_t i = 0; i < latencies->count; i++) {
        const struct pbl_stall *way = &latencies->each[i];
        if (!pbl_stalls_explain(stalls, way->start_ns, way->end_ns))
            pbl_histogram_record(&latencies->undisturbed, way->end_ns - way->start_ns);
    }
    double all_count = latencies->count > 0 ? (double)latencies->count : 1;
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
    free(latencies->each);
    latencies->each = NULL;
    latencies->count = latencies->room = 0;
}
