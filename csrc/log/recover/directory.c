/*
 * The names in a log's directory at open. One thread that has the log to itself.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/recover/recovery.h"
#include "log/segment/scan.h"

typedef enum name_state { NAME_PLAIN, NAME_DELETED, NAME_CLEANED, NAME_SWAP, NAME_GONE } name_state;

typedef struct directory_file {
    int64_t base_offset;
    pb_file_kind kind;
    name_state state;
} directory_file;

typedef struct directory_files {
    directory_file *files;
    uint32_t count;
    uint32_t capacity;
    bool has_cut_note;
    bool has_ring_note;
} directory_files;

static const char *const STATE_SUFFIX[] = {"", ".deleted", ".cleaned", ".swap"};

static int files_visit(void *context, const char *name, bool is_directory)
{
    directory_files *list = context;
    directory_file file = {.state = NAME_GONE};
    const char *extra;
    list->has_cut_note = list->has_cut_note || (!is_directory && strcmp(name, PB_CUT_FILE) == 0);
    list->has_ring_note = list->has_ring_note || (!is_directory && strcmp(name, PB_RING_FILE) == 0);
    if (!pb_segment_parse_name(name, &file.base_offset, &file.kind, &extra))
        return 0;
    /* Without its segment the log would begin later, or go on behind a hole: opening the segment fails instead. */
    if (is_directory && (file.kind != PB_FILE_LOG || *extra != '\0'))
        return 0;
    for (name_state state = NAME_PLAIN; state < NAME_GONE; state++) {
        if (strcmp(extra, STATE_SUFFIX[state]) == 0)
            file.state = state;
    }
    if (file.state == NAME_GONE)
        return 0;
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity == 0 ? 16 : list->capacity * 2;
        directory_file *grown = realloc(list->files, capacity * sizeof(*grown));
        if (grown == NULL)
            return -ENOMEM;
        list->files = grown;
        list->capacity = capacity;
    }
    list->files[list->count++] = file;
    return 0;
}

static int file_unlink(pb_log *log, directory_file *file)
{
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, log->directory, file->base_offset, file->kind, STATE_SUFFIX[file->state]);
    if (rc == 0)
        rc = log->io->ops->unlink(log->io, path);
    if (rc == 0)
        file->state = NAME_GONE;
    return rc;
}

/* The offset behind the last whole batch of a .log.swap file. */
static int swap_end(pb_log *log, const directory_file *file, int64_t *end_offset)
{
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, log->directory, file->base_offset, PB_FILE_LOG, ".swap");
    if (rc != 0)
        return rc;
    int handle = log->io->ops->file_open(log->io, path, PB_OPEN_READ);
    if (handle < 0)
        return handle;
    uint8_t buffer[PB_SCAN_SMALL_BYTES];
    pb_scan scan;
    int64_t size = log->io->ops->file_size(log->io, handle);
    rc = size < 0 ? (int)size : 0;
    pb_scan_init(&scan, log->io, handle, size, buffer, sizeof(buffer));
    *end_offset = file->base_offset + 1; /* an empty one covers the old files of its own name */
    for (int64_t position = 0; rc == 0 && position < size;) {
        pb_batch_header header;
        rc = pb_scan_header(&scan, position, &header);
        if (rc > 0 || (rc == 0 && header.size_bytes == 0)) {
            rc = 0;
            break;
        }
        *end_offset = pb_batch_last_offset(&header) + 1;
        position += header.size_bytes;
    }
    log->io->ops->file_close(log->io, handle);
    return rc;
}

static int sync_directory(pb_log *log)
{
    return log->io->ops->directory_sync(log->io, log->directory);
}

/* Give the .swap files, .log or the others, their final names, durably. */
static int rename_swapped(pb_log *log, directory_files *list, bool logs)
{
    bool any = false;
    for (uint32_t i = 0; i < list->count; i++) {
        directory_file *file = &list->files[i];
        if (file->state != NAME_SWAP || (file->kind == PB_FILE_LOG) != logs)
            continue;
        char swapped[PB_LOG_PATH_BYTES];
        char path[PB_LOG_PATH_BYTES];
        int rc = pb_segment_path(swapped, log->directory, file->base_offset, file->kind, ".swap");
        if (rc == 0)
            rc = pb_segment_path(path, log->directory, file->base_offset, file->kind, "");
        if (rc == 0)
            rc = log->io->ops->rename(log->io, swapped, path);
        if (rc != 0)
            return rc;
        file->state = NAME_PLAIN;
        any = true;
    }
    return any ? sync_directory(log) : 0;
}

/* Valid .swap files replace the segments whose offsets they cover. */
static int files_swap(pb_log *log, directory_files *list)
{
    int64_t from = INT64_MAX;
    int64_t to = -1;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < list->count; i++) {
        directory_file *file = &list->files[i];
        if (file->state != NAME_SWAP || file->kind != PB_FILE_LOG)
            continue;
        int64_t end_offset;
        rc = swap_end(log, file, &end_offset);
        from = file->base_offset < from ? file->base_offset : from;
        to = end_offset > to ? end_offset : to;
    }
    for (uint32_t i = 0; rc == 0 && i < list->count; i++) {
        directory_file *file = &list->files[i];
        if (file->state == NAME_PLAIN && file->kind != PB_FILE_SNAPSHOT && file->base_offset >= from &&
            file->base_offset < to)
            rc = file_unlink(log, file);
    }
    rc = rc == 0 && to >= 0 ? sync_directory(log) : rc;
    /* A .log.swap that is there means that no other .swap has been renamed. */
    rc = rc == 0 ? rename_swapped(log, list, true) : rc;
    return rc == 0 ? rename_swapped(log, list, false) : rc;
}
static int files_clean(pb_log *log, directory_files *list)
{
    int64_t cleaned_from = INT64_MAX;
    int rc = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->files[i].state == NAME_CLEANED && list->files[i].base_offset < cleaned_from)
            cleaned_from = list->files[i].base_offset;
    }
    /* The .cleaned files tell that these are unfinished, so they go after them. */
    bool any = false;
    for (uint32_t i = 0; rc == 0 && i < list->count; i++) {
        directory_file *file = &list->files[i];
        if (file->state != NAME_SWAP || file->base_offset < cleaned_from)
            continue;
        any = true;
        rc = file_unlink(log, file);
    }
    if (rc == 0 && any)
        rc = sync_directory(log);
    for (uint32_t i = 0; rc == 0 && i < list->count; i++) {
        directory_file *file = &list->files[i];
        if (file->state == NAME_DELETED || file->state == NAME_CLEANED)
            rc = file_unlink(log, file);
    }
    return rc == 0 ? files_swap(log, list) : rc;
}

static int offsets_compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int offsets_select(const directory_files *list, pb_file_kind kind, pb_offsets *out)
{
    out->count = 0;
    out->values = malloc((list->count + 1) * sizeof(*out->values));
    if (out->values == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->files[i].state == NAME_PLAIN && list->files[i].kind == kind)
            out->values[out->count++] = list->files[i].base_offset;
    }
    qsort(out->values, out->count, sizeof(*out->values), offsets_compare);
    return 0;
}

static int files_drop_orphans(pb_log *log, directory_files *list, const pb_offsets *segments)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < list->count; i++) {
        directory_file *file = &list->files[i];
        if (file->state != NAME_PLAIN || file->kind == PB_FILE_LOG || file->kind == PB_FILE_SNAPSHOT)
            continue;
        if (bsearch(&file->base_offset, segments->values, segments->count, sizeof(int64_t), offsets_compare) == NULL)
            rc = file_unlink(log, file);
    }
    return rc;
}

int pb_directory_load(pb_log *log, pb_offsets *segments, pb_offsets *snapshots, pb_failure *failure)
{
    directory_files list = {0};
    int rc = log->io->ops->directory_list(log->io, log->directory, files_visit, &list);
    log->has_cut_note = list.has_cut_note;
    log->has_ring_note = list.has_ring_note;
    if (rc == 0)
        rc = files_clean(log, &list);
    if (rc == 0)
        rc = offsets_select(&list, PB_FILE_LOG, segments);
    if (rc == 0)
        rc = files_drop_orphans(log, &list, segments);
    if (rc == 0)
        rc = offsets_select(&list, PB_FILE_SNAPSHOT, snapshots);
    free(list.files);
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot put the files in order");
}

int pb_directory_snapshots(pb_log *log, pb_offsets *snapshots, pb_failure *failure)
{
    directory_files list = {0};
    int rc = log->io->ops->directory_list(log->io, log->directory, files_visit, &list);
    if (rc == 0)
        rc = offsets_select(&list, PB_FILE_SNAPSHOT, snapshots);
    free(list.files);
    return rc == 0 ? 0 : pb_log_fail(log, failure, rc, "cannot list the producer snapshots");
}
