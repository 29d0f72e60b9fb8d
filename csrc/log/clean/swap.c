/*
 * The swap. On the cleaner's thread, under the maintenance token. Each step is durable before the next one begins:
 *
 *   1  the cleaned files' names                  a crash: the .cleaned files go, the old segments stay
 *   2  .cleaned becomes .swap                    with a .cleaned file left: as before; with none: recovery goes on at 3
 *      (readers get the cleaned segment from here on)
 *   3  the old .log files become .log.deleted    recovery: old segments that the .log.swap covers go; others that
 *                                                have kept their .log have their indexes as well, and stay
 *   4  the old index files become .deleted       likewise
 *   5  .log.swap becomes .log                    recovery: renames what is left of .swap
 *   6  the index files' .swap goes
 */
#include "log/clean/swap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/recover/mark.h"

enum { TOKEN_WAIT_NS = 10 * 1000 * 1000, TOKEN_TRIES = 6000 };

/* Which files a step is about. */
enum {
    FILES_LOG = 1 << PB_FILE_LOG,
    FILES_INDEXES = 1 << PB_FILE_OFFSET_INDEX | 1 << PB_FILE_TIME_INDEX | 1 << PB_FILE_TRANSACTION_INDEX,
    FILES_SNAPSHOT = 1 << PB_FILE_SNAPSHOT,
};

int pb_clean_unlink(pb_io *io, const char *directory, int64_t base_offset, const char *extra)
{
    int result = 0;
    for (int kind = PB_FILE_LOG; kind <= PB_FILE_TRANSACTION_INDEX; kind++) {
        char path[PB_LOG_PATH_BYTES];
        int rc = pb_segment_path(path, directory, base_offset, (pb_file_kind)kind, extra);
        if (rc == 0)
            rc = io->ops->unlink(io, path);
        if (rc != 0 && rc != -ENOENT && result == 0)
            result = rc;
    }
    return result;
}

typedef struct leftovers {
    int64_t *base_offsets;
    size_t count;
} leftovers;

static int visit_leftover(void *context, const char *name, bool is_directory)
{
    leftovers *list = context;
    int64_t base_offset;
    pb_file_kind kind;
    const char *extra;
    if (is_directory || !pb_segment_parse_name(name, &base_offset, &kind, &extra) || strcmp(extra, ".cleaned") != 0)
        return 0;
    int64_t *grown = realloc(list->base_offsets, (list->count + 1) * sizeof(*grown));
    if (grown == NULL)
        return -ENOMEM;
    grown[list->count++] = base_offset;
    list->base_offsets = grown;
    return 0;
}

int pb_clean_unlink_leftovers(pb_log *log)
{
    leftovers list = {0};
    int rc = log->io->ops->directory_list(log->io, log->directory, visit_leftover, &list);
    for (size_t i = 0; rc == 0 && i < list.count; i++)
        rc = pb_clean_unlink(log->io, log->directory, list.base_offsets[i], ".cleaned");
    if (rc == 0 && list.count > 0)
        rc = log->io->ops->directory_sync(log->io, log->directory);
    free(list.base_offsets);
    return rc;
}

/* Rename those files of one segment that exist. */
static int rename_files(const pb_segment *segment, unsigned files, const char *from_extra, const char *to_extra)
{
    for (int kind = 0; kind < PB_FILE_KIND_COUNT; kind++) {
        char from[PB_LOG_PATH_BYTES];
        char to[PB_LOG_PATH_BYTES];
        if ((files & 1U << kind) == 0)
            continue;
        int rc = pb_segment_path(from, segment->directory, segment->base_offset, (pb_file_kind)kind, from_extra);
        if (rc == 0)
            rc = pb_segment_path(to, segment->directory, segment->base_offset, (pb_file_kind)kind, to_extra);
        if (rc == 0)
            rc = segment->io->ops->rename(segment->io, from, to);
        if (rc != 0 && rc != -ENOENT)
            return rc;
    }
    return 0;
}

static int sync_names(const pb_segment *segment)
{
    return segment->io->ops->directory_sync(segment->io, segment->directory);
}

/* Steps 1 and 2. */
static int name_swap(const pb_segment *cleaned)
{
    int rc = sync_names(cleaned);
    if (rc == 0)
        rc = rename_files(cleaned, FILES_LOG | FILES_INDEXES, ".cleaned", ".swap");
    return rc == 0 ? sync_names(cleaned) : rc;
}

/* Steps 3 to 6. The old segments are off the log: nobody opens their files any more. */
static int name_plain(const pb_segment *cleaned, pb_segment *const *sources, uint32_t count)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++)
        rc = rename_files(sources[i], FILES_LOG, "", ".deleted");
    if (rc == 0)
        rc = sync_names(cleaned);
    /* Where the first source began a segment still begins, so its snapshot stays. */
    for (uint32_t i = 0; rc == 0 && i < count; i++)
        rc = rename_files(sources[i], FILES_INDEXES | (i > 0 ? FILES_SNAPSHOT : 0), "", ".deleted");
    if (rc == 0)
        rc = sync_names(cleaned);
    if (rc == 0)
        rc = rename_files(cleaned, FILES_LOG, ".swap", "");
    if (rc == 0)
        rc = sync_names(cleaned);
    if (rc == 0)
        rc = rename_files(cleaned, FILES_INDEXES, ".swap", "");
    return rc == 0 ? sync_names(cleaned) : rc;
}

/* Back from a swap that was not published. As long as a .cleaned file lies there, recovery does not take the .swap
 * files for a finished work. */
static int undo_swap(const pb_segment *cleaned)
{
    int rc = rename_files(cleaned, FILES_LOG, ".swap", ".cleaned");
    if (rc == 0)
        rc = sync_names(cleaned);
    if (rc == 0)
        rc = pb_clean_unlink(cleaned->io, cleaned->directory, cleaned->base_offset, ".swap");
    return rc == 0 ? sync_names(cleaned) : rc;
}

/* Index of the first source, when all of them are still there and sealed; else -1. [lock] */
static int find_sources(const pb_log *log, pb_segment *const *sources, uint32_t count)
{
    int first = pb_log_segment_floor(log, sources[0]->base_offset);
    if (first < 0 || (uint32_t)first + count >= log->segment_count)
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        if (log->segments[(uint32_t)first + i] != sources[i])
            return -1;
    }
    return first;
}

/* The cleaned segment takes its place on the list. [lock] */
static void replace_sources(pb_log *log, uint32_t first, pb_segment *cleaned, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        atomic_store(&log->segments[first + i]->names, PB_NAMES_GONE);
    atomic_store(&cleaned->names, PB_NAMES_SWAP);
    cleaned->used = log->use_count;
    cleaned->generation = ++log->swap_count;
    /* Segments whose indexes are not synced are the newest: upkeep and the recovery point go by that. */
    if (first > 0 && log->segments[first - 1]->indexes != PB_SYNCED)
        cleaned->indexes = PB_UNSAVED;
    log->segments[first] = cleaned;
    log->segment_count -= count - 1;
    memmove(log->segments + first + 1, log->segments + first + count,
            (log->segment_count - first - 1) * sizeof(*log->segments));
    pb_log_count_sealed(log);
    /* Positions that were remembered of the old segment are not those of the new one. */
    pb_log_clear_hints(log);
}

static int take_token(pb_log *log, const pb_log_guard *guard, const atomic_bool *cancelled)
{
    for (int i = 0; i < TOKEN_TRIES; i++) {
        if (pb_log_begin_maintenance(log, guard) == 0)
            return 0;
        if (atomic_load_explicit(cancelled, memory_order_relaxed))
            return -ECANCELED;
        log->io->ops->nap(log->io, TOKEN_WAIT_NS);
    }
    return -EAGAIN;
}

/* Waits for pb_log_purge, one for each source. All or none. */
static int make_removed(pb_segment *const *sources, uint32_t count, int64_t now_ms, pb_link *list)
{
    pb_list_init(list);
    for (uint32_t i = 0; i < count; i++) {
        pb_removed *removed = calloc(1, sizeof(*removed));
        if (removed == NULL)
            return -ENOMEM;
        removed->base_offset = sources[i]->base_offset;
        removed->size_bytes = sources[i]->size_bytes;
        removed->removed_ms = now_ms;
        pb_list_init(&removed->link);
        pb_list_push_back(list, &removed->link);
    }
    return 0;
}

static void free_removed(pb_link *list)
{
    pb_link *link;
    while ((link = pb_list_pop_front(list)) != NULL)
        free(PB_CONTAINER(link, pb_removed, link));
}

/* Under the token. *published: the log has the cleaned segment. */
static int swap_held(pb_log *log, const pb_log_guard *guard, pb_segment *cleaned, pb_segment *const *sources,
                     uint32_t count, uint32_t cut_count, pb_link *removed, bool *published)
{
    pb_log_lock(guard);
    bool there = !log->failed && log->cut_count == cut_count && find_sources(log, sources, count) >= 0;
    pb_log_unlock(guard);
    if (!there)
        return -EAGAIN;
    /* A mark in one of them counts entries of indexes that are replaced. */
    bool is_marked = log->marked_offset >= 0 && log->marked_base >= sources[0]->base_offset &&
                     log->marked_base <= sources[count - 1]->base_offset;
    int rc = is_marked ? pb_log_drop_mark(log) : 0;
    if (rc != 0)
        return rc;
    rc = name_swap(cleaned);
    if (rc != 0) {
        int undone = undo_swap(cleaned);
        pb_log_lock(guard);
        log->failed = log->failed || undone != 0;
        pb_log_unlock(guard);
        return rc;
    }
    pb_log_lock(guard);
    /* Segments are only taken away under the token; meanwhile only appends have gone on. */
    int first = find_sources(log, sources, count);
    PB_ASSERT(first >= 0);
    replace_sources(log, (uint32_t)first, cleaned, count);
    pb_log_unlock(guard);
    *published = true;
    rc = name_plain(cleaned, sources, count);
    pb_log_lock(guard);
    if (rc == 0)
        atomic_store(&cleaned->names, PB_NAMES_PLAIN);
    else
        log->failed = true;
    pb_log_unlock(guard);
    pb_link *link;
    while ((link = pb_list_pop_front(removed)) != NULL)
        pb_list_push_back(&log->removed, link);
    return rc;
}

int pb_clean_swap(pb_log *log, const pb_log_guard *guard, pb_segment *cleaned, pb_segment *const *sources,
                  uint32_t count, uint32_t cut_count, const atomic_bool *cancelled, pb_failure *failure)
{
    PB_ASSERT(count > 0 && cleaned->base_offset == sources[0]->base_offset && cleaned->indexes == PB_SYNCED);
    pb_link removed;
    bool published = false;
    int rc = make_removed(sources, count, log->io->ops->wall_ms(log->io), &removed);
    if (rc == 0)
        rc = take_token(log, guard, cancelled);
    if (rc == 0) {
        rc = swap_held(log, guard, cleaned, sources, count, cut_count, &removed, &published);
        pb_log_end_maintenance(log, guard);
    }
    free_removed(&removed);
    if (published) {
        for (uint32_t i = 0; i < count; i++)
            pb_segment_release(sources[i]); /* the log's reference */
    } else {
        (void)pb_clean_unlink(log->io, cleaned->directory, cleaned->base_offset, ".cleaned");
        pb_segment_release(cleaned);
    }
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot put a cleaned segment in place");
}
