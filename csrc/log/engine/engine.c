/*
 * The append engines there are. `paced` writes through the page cache and starts writeback early, so that dirty pages
 * do not gather until the kernel throttles the writer. Clean pages are left to the kernel: it gives them back when
 * memory is short, and until then consumers that lag find them. Pacing runs on a background thread and may wait for the
 * disk.
 */
#include "log/engine/engine.h"

#include <stddef.h>
#include <string.h>

enum {
    PACED_WRITE_MAX_BYTES = 4 << 20,
    /* The bound on dirty bytes of a log that grows slowly. The kernel writes out whole files by age, and keeps
     * contiguous pages locked until the disk has taken them. With 8 MiB and a busy disk, an append waited 50 ms for the
     * last page. */
    PACED_WINDOW_BYTES = 1 << 20,
    /* Not started at the end: a page that is being written out is locked for a while, and the next append needs the
       last. The faster a log grows, the larger are its pages, and the more comes meanwhile. */
    PACED_MARGIN_PART = 4,
    PACED_MARGIN_MIN_BYTES = 256 << 10,
    PACED_MARGIN_MAX_BYTES = 4 << 20,
};

static int64_t paced_margin(int64_t dirty_bytes)
{
    int64_t margin = dirty_bytes / PACED_MARGIN_PART;
    if (margin < PACED_MARGIN_MIN_BYTES)
        return PACED_MARGIN_MIN_BYTES;
    return margin > PACED_MARGIN_MAX_BYTES ? PACED_MARGIN_MAX_BYTES : margin;
}

static int paced_pace(pb_io *io, pb_engine_state *state, int64_t segment_base, int file, int64_t written_position)
{
    if (state->segment_base != segment_base || state->started_position > written_position)
        *state = (pb_engine_state){.segment_base = segment_base};
    int64_t start = state->started_position;
    int64_t end = written_position - paced_margin(written_position - start);
    if (end <= start)
        return 0;
    int rc = io->ops->file_writeback(io, file, start, end - start);
    if (rc == 0)
        state->started_position = end;
    return rc;
}

static const pb_engine ENGINES[] = {
    {"paced", PACED_WRITE_MAX_BYTES, PACED_WINDOW_BYTES, paced_pace},
};

const pb_engine *pb_engine_find(const char *name)
{
    for (size_t i = 0; i < sizeof(ENGINES) / sizeof(ENGINES[0]); i++) {
        if (strcmp(ENGINES[i].name, name) == 0)
            return &ENGINES[i];
    }
    return NULL;
}
