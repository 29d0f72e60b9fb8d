/*
 * The leader epoch cache and its checkpoint's text. See leader_epochs.h for locks and errors.
 */
#include "log/derived/leader_epochs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { EPOCH_LINE_BYTES = 40, EPOCH_CHECKPOINT_VERSION = 0 };

static int epochs_push(pb_leader_epochs *epochs, int32_t epoch, int64_t start_offset)
{
    if (epochs->count == epochs->capacity) {
        uint32_t capacity = epochs->capacity == 0 ? 4 : epochs->capacity * 2;
        pb_leader_epoch *grown = realloc(epochs->entries, capacity * sizeof(*grown));
        if (grown == NULL)
            return -ENOMEM;
        epochs->entries = grown;
        epochs->capacity = capacity;
    }
    epochs->entries[epochs->count++] = (pb_leader_epoch){epoch, start_offset};
    epochs->version++;
    if (start_offset < epochs->unsaved_offset)
        epochs->unsaved_offset = start_offset;
    return 0;
}

static void epochs_pop(pb_leader_epochs *epochs)
{
    int64_t start_offset = epochs->entries[--epochs->count].start_offset;
    epochs->version++;
    /* A checkpoint that has it still gives it the batches that come there now, unless they are replayed. */
    if (start_offset < epochs->unsaved_offset)
        epochs->unsaved_offset = start_offset;
}

int pb_leader_epochs_assign(pb_leader_epochs *epochs, int32_t epoch, int64_t start_offset)
{
    PB_ASSERT(start_offset >= 0);
    if (epoch < 0 || epoch <= pb_leader_epochs_latest(epochs))
        return 0;
    pb_leader_epochs_truncate_end(epochs, start_offset);
    return epochs_push(epochs, epoch, start_offset);
}

void pb_leader_epochs_truncate_end(pb_leader_epochs *epochs, int64_t end_offset)
{
    while (epochs->count > 0 && epochs->entries[epochs->count - 1].start_offset >= end_offset)
        epochs_pop(epochs);
}

/* How many entries begin at or below `offset`. */
static uint32_t epochs_floor(const pb_leader_epochs *epochs, int64_t offset)
{
    uint32_t low = 0;
    uint32_t high = epochs->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (epochs->entries[middle].start_offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int pb_leader_epochs_replay(pb_leader_epochs *epochs, int32_t epoch, int64_t base_offset)
{
    uint32_t floor = epochs_floor(epochs, base_offset);
    bool agrees = floor > 0 && epochs->entries[floor - 1].epoch == epoch;
    /* The log began there once, or its first batch begins below it. */
    bool is_forgotten = floor == 0 && epochs->count > 0 && epochs->entries[0].epoch >= epoch;
    if (epoch < 0 || agrees || is_forgotten)
        return 0;
    pb_leader_epochs_truncate_end(epochs, base_offset);
    while (pb_leader_epochs_latest(epochs) > epoch)
        epochs_pop(epochs);
    return pb_leader_epochs_latest(epochs) == epoch ? 0 : epochs_push(epochs, epoch, base_offset);
}

void pb_leader_epochs_truncate_start(pb_leader_epochs *epochs, int64_t start_offset)
{
    uint32_t floor = epochs_floor(epochs, start_offset);
    if (floor == 0 || (floor == 1 && epochs->entries[0].start_offset == start_offset))
        return;
    uint32_t gone = floor - 1;
    epochs->count -= gone;
    memmove(epochs->entries, epochs->entries + gone, epochs->count * sizeof(*epochs->entries));
    epochs->entries[0].start_offset = start_offset;
    epochs->version++;
}

int32_t pb_leader_epochs_latest(const pb_leader_epochs *epochs)
{
    return epochs->count == 0 ? -1 : epochs->entries[epochs->count - 1].epoch;
}

int32_t pb_leader_epochs_at(const pb_leader_epochs *epochs, int64_t offset)
{
    uint32_t floor = epochs_floor(epochs, offset);
    return floor == 0 ? -1 : epochs->entries[floor - 1].epoch;
}

void pb_leader_epochs_end_offset(const pb_leader_epochs *epochs, int32_t epoch, int64_t log_end_offset,
                                 int32_t *found_epoch, int64_t *end_offset)
{
    *found_epoch = -1;
    *end_offset = -1;
    if (epoch < 0 || epochs->count == 0 || epoch > pb_leader_epochs_latest(epochs))
        return;
    if (epoch == pb_leader_epochs_latest(epochs)) {
        *found_epoch = epoch;
        *end_offset = log_end_offset;
        return;
    }
    uint32_t higher = 0;
    while (epochs->entries[higher].epoch <= epoch)
        higher++;
    PB_ASSERT(higher < epochs->count);
    *found_epoch = higher == 0 ? epoch : epochs->entries[higher - 1].epoch;
    *end_offset = epochs->entries[higher].start_offset;
}

void pb_leader_epochs_clear(pb_leader_epochs *epochs)
{
    free(epochs->entries);
    pb_leader_epochs_init(epochs);
}

void pb_leader_epochs_init(pb_leader_epochs *epochs)
{
    *epochs = (pb_leader_epochs){.unsaved_offset = INT64_MAX};
}

void pb_leader_epochs_saved(pb_leader_epochs *epochs, uint64_t version)
{
    epochs->saved_version = version;
    if (epochs->version == version)
        epochs->unsaved_offset = INT64_MAX;
}

char *pb_leader_epochs_format(const pb_leader_epochs *epochs, size_t *length)
{
    size_t capacity = ((size_t)epochs->count + 2) * EPOCH_LINE_BYTES;
    char *text = malloc(capacity);
    if (text == NULL)
        return NULL;
    int used = snprintf(text, capacity, "%d\n%" PRIu32 "\n", EPOCH_CHECKPOINT_VERSION, epochs->count);
    for (uint32_t i = 0; i < epochs->count; i++) {
        used += snprintf(text + used, capacity - (size_t)used, "%" PRId32 " %" PRId64 "\n", epochs->entries[i].epoch,
                         epochs->entries[i].start_offset);
    }
    PB_ASSERT((size_t)used < capacity);
    *length = (size_t)used;
    return text;
}

/* One number that ends with `end`; false when there is none or it lies outside of 0..max. */
static bool text_number(const char **cursor, const char *limit, char end, int64_t max, int64_t *out)
{
    const char *p = *cursor;
    int64_t value = 0;
    if (p == limit || *p == end)
        return false;
    for (; p < limit && *p != end; p++) {
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *p - '0', &value))
            return false;
    }
    if (p == limit || value > max)
        return false;
    *cursor = p + 1;
    *out = value;
    return true;
}

int pb_leader_epochs_parse(pb_leader_epochs *epochs, const char *text, size_t length)
{
    PB_ASSERT(epochs->count == 0);
    const char *cursor = text;
    const char *limit = text + length;
    int64_t version = 0;
    int64_t count = 0;
    int rc = -EBADMSG;
    if (!text_number(&cursor, limit, '\n', 0, &version) || !text_number(&cursor, limit, '\n', INT32_MAX, &count))
        return rc;
    for (int64_t i = 0; i < count; i++) {
        int64_t epoch = 0;
        int64_t start_offset = 0;
        rc = -EBADMSG;
        if (!text_number(&cursor, limit, ' ', INT32_MAX, &epoch) ||
            !text_number(&cursor, limit, '\n', INT64_MAX, &start_offset))
            break;
        const pb_leader_epoch *last = epochs->count > 0 ? &epochs->entries[epochs->count - 1] : NULL;
        if (last != NULL && (epoch <= last->epoch || start_offset <= last->start_offset))
            break;
        rc = epochs_push(epochs, (int32_t)epoch, start_offset);
        if (rc != 0)
            break;
    }
    if (count == 0)
        rc = cursor == limit ? 0 : -EBADMSG;
    else if (rc == 0 && cursor != limit)
        rc = -EBADMSG;
    if (rc != 0)
        pb_leader_epochs_clear(epochs);
    pb_leader_epochs_saved(epochs, epochs->version);
    return rc;
}
