/* See stalls.h. Writes the witness's findings: a line with the number of CPUs watched, then lines of `late CPU FROM
 * UNTIL STOLEN`. STOLEN is the time stolen from all CPUs since the machine started. All times are in nanoseconds. */
#include "stats/stalls.h"

#include "client/client.h"
#include "client/engine.h"
#include "modes/modes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char VARIABLE[] = "PBLOAD_STALLS";
static const struct timespec WITNESS_TIME = {.tv_nsec = 5000000}; /* for it to write what it has just seen */
/* The kernel counts in ticks, and a little late for a CPU that idles. */
static const double STOLEN_TOLERANCE = 1.1, STOLEN_LATE_MS = 60, STOLEN_LATE_SHARE = 0.5;

/* One finding of the witness: a CPU that ran nothing. */
struct late {
    struct pbl_span when;
    uint64_t stolen_ns;
    uint32_t cpu;
};

/* The file on its way through. */
struct reading {
    struct pbl_stalls *stalls;
    struct late *last; /* of each CPU */
    uint32_t cpu_count, seen_count;
    uint64_t stolen_before_ns, stolen_ns;
};

const char *pbl_stalls_file(void)
{
    static const char *path;
    static bool looked;
    if (!looked)
        path = getenv(VARIABLE);
    looked = true;
    return path && *path ? path : NULL;
}

void pbl_stalls_begin(struct pbl_stalls *stalls, uint64_t start_ns)
{
    *stalls = (struct pbl_stalls){.start_ns = start_ns};
}

void pbl_spans_add(struct pbl_spans *spans, uint64_t start_ns, uint64_t end_ns)
{
    if (spans->count == spans->room) {
        spans->room = spans->room ? 2 * spans->room : 1024;
        spans->each = realloc(spans->each, spans->room * sizeof *spans->each);
        if (!spans->each)
            pbl_fail("out of memory");
    }
    spans->each[spans->count++] = (struct pbl_span){start_ns, end_ns};
}

void pbl_spans_free(struct pbl_spans *spans)
{
    free(spans->each);
    *spans = (struct pbl_spans){0};
}

static void add(struct pbl_stalls *stalls, uint64_t start_ns, uint64_t end_ns)
{
    pbl_spans_add(&stalls->spans, start_ns - PBL_STALL_MARGIN_NS, end_ns + PBL_STALL_MARGIN_NS);
}

/* The time that all CPUs missed together, by the last time that each was late; it may be none. */
static struct pbl_span missed_by_all(const struct reading *reading)
{
    struct pbl_span all = {0, UINT64_MAX};
    for (uint32_t i = 0; i < reading->seen_count; i++) {
        const struct pbl_span *when = &reading->last[i].when;
        all.start_ns = when->start_ns > all.start_ns ? when->start_ns : all.start_ns;
        all.end_ns = when->end_ns < all.end_ns ? when->end_ns : all.end_ns;
    }
    return all;
}

static void take(struct reading *reading, const struct late *late)
{
    uint32_t i = 0;
    while (i < reading->seen_count && reading->last[i].cpu != late->cpu)
        i++;
    if (i == reading->cpu_count)
        return; /* the first line had fewer of them: not the witness's */
    reading->seen_count += i == reading->seen_count;
    reading->last[i] = *late;
    reading->stalls->late_ms += (double)(late->when.end_ns - late->when.start_ns) / 1e6;
    reading->stolen_ns = late->stolen_ns;
    if (late->when.end_ns - late->when.start_ns >= PBL_LATE_ALONE_NS)
        add(reading->stalls, late->when.start_ns, late->when.end_ns);
    struct pbl_span all = missed_by_all(reading);
    if (reading->seen_count == reading->cpu_count && all.end_ns >= all.start_ns + PBL_LATE_MIN_NS)
        add(reading->stalls, all.start_ns, all.end_ns);
}

static void read_lines(struct reading *reading, FILE *file)
{
    char line[160];
    while (fgets(line, sizeof line, file)) {
        struct late late;
        if (sscanf(line, "late %" SCNu32 " %" SCNu64 " %" SCNu64 " %" SCNu64, &late.cpu, &late.when.start_ns,
                   &late.when.end_ns, &late.stolen_ns) != 4 ||
            late.when.end_ns <= late.when.start_ns)
            continue;
        if (late.when.start_ns >= reading->stalls->start_ns)
            take(reading, &late);
        else
            reading->stolen_before_ns = reading->stolen_ns = late.stolen_ns;
    }
}

static int by_start(const void *left, const void *right)
{
    const struct pbl_span *a = left, *b = right;
    return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

/* In order, and as one where they meet. */
static void merge(struct pbl_spans *spans)
{
    if (spans->count == 0)
        return;
    qsort(spans->each, spans->count, sizeof *spans->each, by_start);
    uint64_t last = 0;
    for (uint64_t i = 1; i < spans->count; i++) {
        const struct pbl_span *next = &spans->each[i];
        if (next->start_ns > spans->each[last].end_ns)
            spans->each[++last] = *next;
        else if (next->end_ns > spans->each[last].end_ns)
            spans->each[last].end_ns = next->end_ns;
    }
    spans->count = last + 1;
}

static void read_file(struct pbl_stalls *stalls, FILE *file)
{
    struct reading reading = {.stalls = stalls};
    if (fscanf(file, "watches %" SCNu32 " CPUs, %" SCNu64 " stolen\n", &reading.cpu_count, &reading.stolen_before_ns) !=
            2 ||
        reading.cpu_count == 0)
        pbl_fail("%s, which %s names, does not begin as a witness does", pbl_stalls_file(), VARIABLE);
    reading.stolen_ns = reading.stolen_before_ns;
    reading.last = calloc(reading.cpu_count, sizeof *reading.last);
    if (!reading.last)
        pbl_fail("out of memory");
    read_lines(&reading, file);
    free(reading.last);
    if (reading.stolen_ns > reading.stolen_before_ns)
        stalls->stolen_ms = (double)(reading.stolen_ns - reading.stolen_before_ns) / 1e6;
}

void pbl_stalls_end(struct pbl_stalls *stalls)
{
    nanosleep(&WITNESS_TIME, NULL);
    FILE *file = fopen(pbl_stalls_file(), "r");
    if (!file)
        pbl_fail("cannot read %s, which %s names: %s", pbl_stalls_file(), VARIABLE, strerror(errno));
    read_file(stalls, file);
    fclose(file);
    double not_yet_ms = STOLEN_LATE_SHARE * stalls->late_ms;
    if (not_yet_ms > STOLEN_LATE_MS)
        not_yet_ms = STOLEN_LATE_MS;
    if (stalls->late_ms > STOLEN_TOLERANCE * stalls->stolen_ms + not_yet_ms)
        stalls->spans.count = 0;
    merge(&stalls->spans);
}

void pbl_stalls_free(struct pbl_stalls *stalls)
{
    pbl_spans_free(&stalls->spans);
}

bool pbl_stalls_explain(const struct pbl_stalls *stalls, uint64_t start_ns, uint64_t end_ns)
{
    const struct pbl_spans *spans = &stalls->spans;
    uint64_t low = 0, high = spans->count; /* to the first one that ends after `start_ns` */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (spans->each[middle].end_ns <= start_ns)
            low = middle + 1;
        else
            high = middle;
    }
    uint64_t within_ns = 0;
    for (; low < spans->count && spans->each[low].start_ns < end_ns; low++) {
        const struct pbl_span *stall = &spans->each[low];
        uint64_t from_ns = stall->start_ns > start_ns ? stall->start_ns : start_ns;
        within_ns += (stall->end_ns < end_ns ? stall->end_ns : end_ns) - from_ns;
    }
    return within_ns > 0 && 2 * within_ns >= end_ns - start_ns;
}

bool pbl_stalls_mode(const struct pbl_options *options)
{
    (void)options;
    if (!pbl_stalls_file())
        pbl_fail("%s wants to name the file of a witness", VARIABLE);
    struct pbl_stalls stalls;
    pbl_stalls_begin(&stalls, pbl_now_ns());
    printf("watching\n");
    fflush(stdout);
    char ignored[256];
    while (read(STDIN_FILENO, ignored, sizeof ignored) > 0)
        continue;
    pbl_stalls_end(&stalls);
    printf("{\"late_ms\":%.3f,\"stolen_ms\":%.3f,\"stalls\":[", stalls.late_ms, stalls.stolen_ms);
    for (uint64_t i = 0; i < stalls.spans.count; i++)
        printf("%s[%" PRIu64 ",%" PRIu64 "]", i ? "," : "", stalls.spans.each[i].start_ns, stalls.spans.each[i].end_ns);
    printf("]}\n");
    pbl_stalls_free(&stalls);
    return true;
}
