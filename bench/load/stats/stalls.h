/* Stalls: a virtual machine whose host takes its CPUs away runs nothing for tens of milliseconds, no broker and no
 * client. A latency that is mostly such a stall says nothing of the broker.
 *
 * A witness (`pbload witness`) watches and writes a file; loads read it after their run, as does `pbload stalls` for
 * what others measure. One thread.
 */
#ifndef PBL_STALLS_H
#define PBL_STALLS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    /* A kernel that does not preempt itself keeps a CPU for some milliseconds. So a CPU that ran nothing for longer was
     * taken away, and so were all of them if they ran nothing for two of these at the same time. */
    PBL_LATE_ALONE_NS = 8000000,
    PBL_LATE_MIN_NS = 2000000,
    /* Before and after it only some of the CPUs run, and then what has gathered is worked off. */
    PBL_STALL_MARGIN_NS = 5000000,
};

struct pbl_span {
    uint64_t start_ns, end_ns; /* of the monotonic clock */
};

/* Spans of time: stalls, or latencies from their starts to their ends. Owner: who has the structure. */
struct pbl_spans {
    struct pbl_span *each;
    uint64_t count, room;
};

struct pbl_stalls {
    uint64_t start_ns;      /* from when on they are of interest */
    struct pbl_spans spans; /* in order, apart, and with their margins */
    double stolen_ms;       /* meanwhile, from all CPUs together: the kernel's count, */
    double late_ms;         /* and the witness's */
};

void pbl_spans_add(struct pbl_spans *spans, uint64_t start_ns, uint64_t end_ns);
void pbl_spans_free(struct pbl_spans *spans);

/* The witness's file, which the environment names, or NULL: nobody watches. */
const char *pbl_stalls_file(void);
void pbl_stalls_begin(struct pbl_stalls *stalls, uint64_t start_ns);
/* Read what the witness has seen since. It counts only if the kernel says, too, that so much was stolen: on a machine
 * without a host nothing disturbs but what runs there. A file that cannot be read ends the program. */
void pbl_stalls_end(struct pbl_stalls *stalls);
void pbl_stalls_free(struct pbl_stalls *stalls);
/* Is at least half of the time between the two a stall's? */
bool pbl_stalls_explain(const struct pbl_stalls *stalls, uint64_t start_ns, uint64_t end_ns);

#endif
