/*
 * The leader epochs of a log: the offset at which each epoch began, oldest first, both strictly growing. They are kept
 * in the file leader-epoch-checkpoint (text: version 0, a count, then "epoch start-offset" lines). [lock], but for the
 * text functions, which work on copies.
 */
#ifndef PB_LOG_DERIVED_LEADER_EPOCHS_H
#define PB_LOG_DERIVED_LEADER_EPOCHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pb_leader_epoch {
    int32_t epoch;
    int64_t start_offset;
} pb_leader_epoch;

typedef struct pb_leader_epochs {
    pb_leader_epoch *entries;
    uint32_t count;
    uint32_t capacity;
    uint64_t version; /* grows with every change: the checkpoint is due when it differs from `saved_version` */
    uint64_t saved_version;
    int64_t unsaved_offset; /* from here on no checkpoint says what these do; INT64_MAX: one does */
} pb_leader_epochs;

void pb_leader_epochs_init(pb_leader_epochs *epochs);
/* An epoch begins at `start_offset`. Older epochs are left alone, newer or later entries make way. 0 or -ENOMEM. */
int pb_leader_epochs_assign(pb_leader_epochs *epochs, int32_t epoch, int64_t start_offset);
/* The same for a batch that recovery found in the log, and that the entries must not contradict: those may be older,
 * and have an epoch that was given up. Entries that contradict it make way, and come again with batches behind it. */
int pb_leader_epochs_replay(pb_leader_epochs *epochs, int32_t epoch, int64_t base_offset);
/* Forget epochs that begin at or above `end_offset`. */
void pb_leader_epochs_truncate_end(pb_leader_epochs *epochs, int64_t end_offset);
/* The log now begins at `start_offset`: the epoch that holds it begins there, older ones are forgotten. */
void pb_leader_epochs_truncate_start(pb_leader_epochs *epochs, int64_t start_offset);
int32_t pb_leader_epochs_latest(const pb_leader_epochs *epochs);             /* -1: none */
int32_t pb_leader_epochs_at(const pb_leader_epochs *epochs, int64_t offset); /* -1: unknown */
/* Largest epoch <= `epoch` and its end (log_end_offset for the latest); -1, -1 when unknown (KIP-101, KIP-279). */
void pb_leader_epochs_end_offset(const pb_leader_epochs *epochs, int32_t epoch, int64_t log_end_offset,
                                 int32_t *found_epoch, int64_t *end_offset);
/* The checkpoint of `version` has been written. */
void pb_leader_epochs_saved(pb_leader_epochs *epochs, uint64_t version);
void pb_leader_epochs_clear(pb_leader_epochs *epochs);

/* The checkpoint's text; allocates (free()); NULL without memory. */
char *pb_leader_epochs_format(const pb_leader_epochs *epochs, size_t *length);
/* Read a checkpoint's text into empty `epochs`. 0, -ENOMEM, or -EBADMSG when it is damaged (then empty). */
int pb_leader_epochs_parse(pb_leader_epochs *epochs, const char *text, size_t length);

#endif
