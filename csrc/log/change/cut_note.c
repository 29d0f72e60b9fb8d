/*
 * `.pybroker_cut` in a log's directory: the log was cut on purpose. Recorded ends (storage/files/log_ends.py) are
 * compared with the log at the next start, and a log that ends below them has lost records. So a cut writes this note
 * first, durably, and records from before the note no longer count where the cut went below them.
 *
 * Text: version, generation, offset. The generation is new with each cut, and recorded with the ends. The offset is the
 * least that the log was ever cut to; -1: everything went, or an earlier note was damaged. It is taken over from the
 * earlier note, because several cuts in a row, with kills between them, may be newer than the last recorded ends.
 * Blocking calls without the lock.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "log/state.h"

enum { NOTE_VERSION = 0, NOTE_BYTES = 64, NOTE_VALUES = 3 };
#define GENERATION_MAX (INT64_MAX / 2) /* a larger one is damage, and would leave none for later cuts */

/* Version, generation and offset. */
static bool parse_note(const char *text, long long *values)
{
    for (int i = 0; i < NOTE_VALUES; i++) {
        char *end;
        values[i] = strtoll(text, &end, 10);
        if (end == text)
            return false;
        text = end;
    }
    return *text == '\n';
}

int pb_log_load_cut_note(pb_log *log)
{
    char *text;
    size_t length;
    int rc = pb_log_read_file(log, PB_CUT_FILE, &text, &length);
    if (rc != 0)
        return rc == -ENOENT ? 0 : rc;
    /* A damaged note says that a cut was made, and not where: the next one gets a later generation anyway. */
    long long values[NOTE_VALUES];
    bool good = parse_note(text, values) && values[0] == NOTE_VERSION && values[1] >= 0 &&
                values[1] <= GENERATION_MAX && values[2] >= -1;
    log->cut_generation = log->noted_generation = good ? values[1] : 0;
    log->noted_cut = good ? values[2] : -1;
    free(text);
    return 0;
}

int pb_log_note_cut(pb_log *log, const pb_log_guard *guard, int64_t offset)
{
    pb_log_lock(guard);
    int64_t generation = log->io->ops->wall_ms(log->io);
    if (generation <= log->noted_generation)
        generation = log->noted_generation + 1;
    log->noted_generation = generation;
    if (offset < log->noted_cut)
        log->noted_cut = offset;
    int64_t least = log->noted_cut;
    pb_log_unlock(guard);
    char text[NOTE_BYTES];
    int length = snprintf(text, sizeof(text), "%d %" PRId64 " %" PRId64 "\n", NOTE_VERSION, generation, least);
    PB_ASSERT(length > 0 && (size_t)length < sizeof(text));
    return pb_log_replace_file(log, PB_CUT_FILE, text, (size_t)length);
}
