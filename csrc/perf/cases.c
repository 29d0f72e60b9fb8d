/*
 * Runs the cases of cases.h.
 *
 *     perf_cases CALLS [CASE...]     each of them (all but the foreign ones when none is named) CALLS times
 *
 * Written for callgrind. Collection is switched on in perf_measure, so each of its calls is one case, set up and warm,
 * and nothing else. Standard output names the cases in that order. CRC32C is the variant that every x86-64 has, and
 * valgrind as well. As a shared object it exports what bench/micro needs instead.
 */
#include <string.h>

#include "cpu/crc32c.h"
#include "perf/cases.h"

#define EXPORT __attribute__((visibility("default")))

enum { WARM_CALLS = 2 };

/* By number from 0; NULL behind the last one. */
EXPORT const char *perf_case_name(int number);
EXPORT uint32_t perf_case_bytes(int number);
/* Set up, call, take down. One case is open at a time. */
EXPORT void perf_case_open(int number);
EXPORT void perf_case_run(int number, uint64_t calls);
EXPORT void perf_case_close(int number);
/* Named in bench/micro/instructions.py; not inlined, so that callgrind sees it begin and end. */
EXPORT __attribute__((noinline)) void perf_measure(const perf_case *it, uint64_t calls);

static const perf_case *case_of(int number)
{
    static const perf_case *const TABLES[] = {PERF_RECORD_CASES, PERF_LOG_CASES, PERF_SERVER_CASES};
    for (size_t table = 0; table < sizeof(TABLES) / sizeof(*TABLES); table++) {
        for (const perf_case *it = TABLES[table]; it->name != NULL; it++) {
            if (number-- == 0)
                return it;
        }
    }
    return NULL;
}

const char *perf_case_name(int number)
{
    const perf_case *it = case_of(number);
    return it == NULL ? NULL : it->name;
}

uint32_t perf_case_bytes(int number)
{
    return case_of(number)->bytes;
}

void perf_case_open(int number)
{
    const perf_case *it = case_of(number);
    if (it->open != NULL)
        it->open();
    it->run(WARM_CALLS);
}

void perf_case_run(int number, uint64_t calls)
{
    case_of(number)->run(calls);
}

void perf_case_close(int number)
{
    const perf_case *it = case_of(number);
    if (it->close != NULL)
        it->close();
}

void perf_measure(const perf_case *it, uint64_t calls)
{
    it->run(calls);
    PERF_KEEP(it);
}

static bool is_wanted(const perf_case *it, int count, char *const *names)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], it->name) == 0)
            return true;
    }
    return count == 0 && !it->foreign;
}

int main(int argument_count, char **arguments)
{
    char *end = NULL;
    unsigned long calls = argument_count < 2 ? 0 : strtoul(arguments[1], &end, 10);
    if (calls == 0 || *end != '\0') {
        fprintf(stderr, "usage: perf_cases CALLS [CASE...]\n");
        return 2;
    }
#if defined(__x86_64__)
    PERF_MUST(pb_crc32c_select("sse42"));
#else
    PERF_MUST(pb_crc32c_select("portable"));
#endif
    for (int i = 0; case_of(i) != NULL; i++) {
        const perf_case *it = case_of(i);
        if (!is_wanted(it, argument_count - 2, arguments + 2))
            continue;
        perf_case_open(i);
        puts(it->name);
        perf_measure(it, calls);
        perf_case_close(i);
    }
    return 0;
}
