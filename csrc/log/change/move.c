/*
 * A log that moves to another directory, and the check that its files are still there. Blocking calls on a worker
 * thread, the lock only through the guard.
 *
 * The copying is Python's: sealed segments and the bulk of the active one while the log serves, the rest while it is
 * held. Held, the log gives out offsets and queues appends, and readers go on, but nothing is written. So the copy can
 * be made equal, and switching over only exchanges the segments' handles. Readers that hold an old segment finish with
 * its old file, whose name may be gone by then. A copy is equal if it has the right size and was copied since the log
 * was last cut. A log that is cut and grows again has other bytes at the same places of the same file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/state.h"

/* ---- the files as they should be ---- */

typedef struct expected_file {
    int64_t base_offset;
    int64_t size_bytes;
} expected_file;

/* Copies what to look for; the last one is the active segment, which grows. */
static expected_file *expected_files(const pb_log *log, const pb_log_guard *guard, uint32_t *count)
{
    pb_log_lock(guard);
    *count = log->segment_count;
    expected_file *files = calloc(*count, sizeof(*files));
    for (uint32_t i = 0; files != NULL && i < *count; i++)
        files[i] = (expected_file){log->segments[i]->base_offset,
                                   pb_tail_settled_bytes(log->segments[i], log->segments[i]->size_bytes)};
    pb_log_unlock(guard);
    return files;
}

/* The file of the segment on that base is too short. Is the segment sealed, so that its readers are told, and the log
 * goes on? *first: nobody has said so before. *missing: what they are told of. */
static bool is_noted(pb_log *log, const pb_log_guard *guard, int64_t base_offset, bool *first, pb_damage *missing)
{
    pb_log_lock(guard);
    int index = pb_log_segment_floor(log, base_offset);
    pb_segment *segment = index >= 0 ? log->segments[index] : NULL;
    if (segment != NULL)
        pb_segment_retain(segment);
    pb_log_unlock(guard);
    if (segment == NULL)
        return false;
    bool noted = pb_log_note_short_file(log, guard, segment) >= 0;
    pb_log_lock(guard);
    *first = !segment->short_told;
    segment->short_told = segment->short_told || noted;
    PB_ASSERT(!noted || segment->damage_count > 0);
    if (noted)
        *missing = segment->damages[segment->damage_count - 1];
    pb_log_unlock(guard);
    pb_segment_release(segment);
    return noted;
}

static int check_file(pb_log *log, const pb_log_guard *guard, const expected_file *file, bool is_active,
                      pb_failure *failure)
{
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, log->directory, file->base_offset, PB_FILE_LOG, "");
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "cannot name a segment");
    int64_t size_bytes = log->io->ops->path_size(log->io, path);
    if (size_bytes == -ENOENT)
        return pb_fail(failure, -ESTALE, "%s is gone: something else has removed or renamed it", path);
    if (size_bytes < 0)
        return pb_fail(failure, (int)size_bytes, "cannot look at %s", path);
    bool first;
    pb_damage missing = {0};
    if (size_bytes < file->size_bytes && !is_active && is_noted(log, guard, file->base_offset, &first, &missing))
        return first ? pb_fail(failure, 0,
                               "%s has %lld bytes instead of %lld: something else has cut it. Fetches of offsets %lld "
                               "to %lld are answered CORRUPT_MESSAGE, all else is served",
                               path, (long long)size_bytes, (long long)file->size_bytes, (long long)missing.offset,
                               (long long)missing.end_offset - 1)
                     : 0;
    if (size_bytes < file->size_bytes && is_active)
        return pb_fail(failure, -ENODATA, "%s has %lld bytes instead of %lld: something else has cut it", path,
                       (long long)size_bytes, (long long)file->size_bytes);
    if (size_bytes < file->size_bytes || (!is_active && size_bytes > file->size_bytes))
        return pb_fail(failure, -ESTALE, "%s has %lld bytes instead of %lld: something else has changed it", path,
                       (long long)size_bytes, (long long)file->size_bytes);
    return 0;
}

int pb_log_look_at_files(pb_log *log, const pb_log_guard *guard, pb_failure *failure)
{
    uint32_t count;
    PB_ASSERT(log->maintaining);
    expected_file *files = expected_files(log, guard, &count);
    if (files == NULL)
        return pb_log_fail(log, failure, -ENOMEM, "cannot check the files");
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++)
        rc = check_file(log, guard, &files[i], i + 1 == count, failure);
    free(files);
    return rc;
}

int pb_log_check_files(pb_log *log, const pb_log_guard *guard, pb_failure *failure)
{
    int rc = pb_log_begin_maintenance(log, guard);
    if (rc != 0)
        return pb_log_fail(log, failure, rc, "other upkeep is under way");
    rc = pb_log_look_at_files(log, guard, failure);
    pb_log_end_maintenance(log, guard);
    return rc;
}

/* ---- moving ---- */

int pb_log_hold(pb_log *log, const pb_log_guard *guard, pb_failure *failure)
{
    pb_log_lock(guard);
    bool busy = log->maintaining || log->writing;
    bool failed = log->failed;
    if (!busy && !failed) {
        log->maintaining = true;
        log->writing = true;
    }
    pb_log_unlock(guard);
    if (busy || failed)
        return pb_log_fail(log, failure, failed ? -EIO : -EBUSY, "cannot hold the log");
    int rc = pb_log_cool_held(log, guard, failure);
    bool cold = rc == 0;
    if (cold)
        rc = pb_log_flush_derived(log, guard, PB_SYNC_SEALED, failure);
    /* Derived state that a full disk keeps back stays in memory and moves along: to leave such a disk is why many logs
     * move. */
    if (cold && pb_error_passes(rc))
        return 0;
    pb_log_return_tokens(log, guard);
    return rc;
}

/* The same segment with its file in `directory`; the indexes come later, under the lock. */
static pb_segment *copy_segment(const pb_log *log, const pb_segment *from, const char *directory, bool is_active,
                                int *result)
{
    char path[PB_LOG_PATH_BYTES];
    *result = pb_segment_path(path, directory, from->base_offset, PB_FILE_LOG, "");
    if (*result != 0)
        return NULL;
    int64_t size_bytes = log->io->ops->path_size(log->io, path);
    if (size_bytes != from->size_bytes) {
        *result = size_bytes < 0 ? (int)size_bytes : -ESTALE;
        return NULL;
    }
    pb_segment *segment = pb_segment_new(log->io, directory, from->base_offset);
    *result = segment == NULL ? -ENOMEM : 0;
    if (segment == NULL || !is_active)
        return segment;
    segment->file = log->io->ops->file_open(log->io, path, PB_OPEN_WRITE);
    if (segment->file < 0) {
        *result = segment->file;
        pb_segment_release(segment);
        return NULL;
    }
    return segment;
}

static void release_all(pb_segment **segments, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (segments[i] != NULL)
            pb_segment_release(segments[i]);
    free(segments);
}

/* Closes the files at the log's former place, or at the place that it has come back from. With both tokens. */
static void close_left(pb_log *log)
{
    if (log->left != NULL)
        release_all(log->left, log->segment_count);
    log->left = NULL;
}

void pb_log_release(pb_log *log, const pb_log_guard *guard)
{
    close_left(log);
    pb_log_return_tokens(log, guard);
}

/* Nobody goes back from here: the files are synced, and what waits to be purged lies in the old directory. */
static void settle_down(pb_log *log, const pb_log_guard *guard)
{
    pb_link *link;
    close_left(log);
    pb_log_lock(guard);
    log->durable_end = log->written_end;
    log->directory_dirty = false;
    while ((link = pb_list_pop_front(&log->removed)) != NULL)
        free(PB_CONTAINER(link, pb_removed, link));
    pb_log_unlock(guard);
}

/* `segments` get the old ones. [lock] */
static void exchange_segments(pb_log *log, pb_segment **segments)
{
    for (uint32_t i = 0; i < log->segment_count; i++) {
        pb_segment *segment = log->segments[i];
        pb_segment_take_over(segments[i], segment);
        log->segments[i] = segments[i];
        segments[i] = segment;
    }
}

/* 0: `segments` now has the old ones. -EBUSY: a sync works on the old ones. */
static int exchange(pb_log *log, const pb_log_guard *guard, pb_segment **segments, pb_old_directory *old,
                    char *directory)
{
    pb_log_lock(guard);
    /* A segment that could not be made is left behind; so is a log that waits for its repair. */
    PB_ASSERT(log->maintaining && log->writing && (log->rolling == NULL || log->broken));
    bool busy = log->syncing;
    if (!busy) {
        exchange_segments(log, segments);
        old->path = log->directory;
        pb_list_push_back(&log->old_directories, &old->link);
        log->directory = directory;
    }
    pb_log_unlock(guard);
    return busy ? -EBUSY : 0;
}

int pb_log_relocate(pb_log *log, const pb_log_guard *guard, const char *directory, uint32_t truncation_count,
                    bool for_good, pb_failure *failure)
{
    /* With both tokens the list of segments stands still, and nobody cuts them. */
    if (log->truncation_count != truncation_count)
        return pb_fail(failure, -ESTALE, "the log was cut since it was copied to %s", directory);
    uint32_t count = log->segment_count;
    pb_segment **segments = calloc(count, sizeof(pb_segment *));
    char *path = strdup(directory);
    pb_old_directory *old = calloc(1, sizeof(*old));
    int rc = segments == NULL || path == NULL || old == NULL ? -ENOMEM : 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++)
        segments[i] = copy_segment(log, log->segments[i], path, i + 1 == count, &rc);
    if (rc == 0) {
        pb_list_init(&old->link);
        rc = exchange(log, guard, segments, old, path);
    }
    if (rc == 0) {
        close_left(log);
        log->left = segments;
        pb_log_drop_spare(log); /* it lies on the old disk */
        if (for_good)
            settle_down(log, guard);
        return 0;
    }
    if (segments != NULL)
        release_all(segments, count);
    free(path);
    free(old);
    return pb_fail(failure, rc, "cannot go on with the log in %s", directory);
}

void pb_log_go_back(pb_log *log, const pb_log_guard *guard)
{
    pb_log_lock(guard);
    PB_ASSERT(log->left != NULL && !log->syncing);
    exchange_segments(log, log->left);
    pb_old_directory *old = PB_CONTAINER(log->old_directories.prev, pb_old_directory, link);
    char *path = log->directory;
    log->directory = old->path;
    old->path = path;
    pb_log_unlock(guard);
    close_left(log);
}
