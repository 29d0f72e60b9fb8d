/*
 * The leader epochs of a log, Kafka's leader epoch cache: a list of epochs, each with the offset at which it began.
 * The oldest comes first, and both values grow strictly. They are saved in the file leader-epoch-checkpoint (text:
 * version 0, a count, then "epoch start-offset" lines).
 *
 * All functions need the lock, except those for the text, which work on copies.
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
    int64_t unsaved_offset; /* from this offset on, the checkpoint differs from the list; INT64_MAX: nowhere */
} pb_leader_epochs;

void pb_leader_epochs_init(pb_leader_epochs *epochs);
/* Add an epoch that begins at `start_offset`. Removes entries that begin at or above it. Does nothing if `epoch` is not
 * newer than the latest epoch. 0 or -ENOMEM. */
int pb_leader_epochs_assign(pb_leader_epochs *epochs, int32_t epoch, int64_t start_offset);
/* Add the epoch of a batch that recovery found in the log. The entries, from a checkpoint, may be older than the batch
 * and contradict it. Entries that do are removed; batches that follow add them again if they are right. 0 or -ENOMEM.
 */
int pb_leader_epochs_replay(pb_leader_epochs *epochs, int32_t epoch, int64_t base_offset);
/* Forget epochs that begin at or above `end_offset`. */
void pb_leader_epochs_truncate_end(pb_leader_epochs *epochs, int64_t end_offset);
/* The log now begins at `start_offset`: forget epochs that end at or below it, and let the epoch of `start_offset`
 * begin there. */
void pb_leader_epochs_truncate_start(pb_leader_epochs *epochs, int64_t start_offset);
int32_t pb_leader_epochs_latest(const pb_leader_epochs *epochs);             /* -1: none */
int32_t pb_leader_epochs_at(const pb_leader_epochs *epochs, int64_t offset); /* -1: unknown */
/* For OffsetForLeaderEpoch (KIP-101, KIP-279): *found_epoch is the largest epoch that is not above `epoch`, and
 * *end_offset where it ends (log_end_offset for the latest epoch). If all entries are above `epoch`, they are `epoch`
 * and the start of the first entry. If all are below it, or there is none, both are -1. */
void pb_leader_epochs_end_offset(const pb_leader_epochs *epochs, int32_t epoch, int64_t log_end_offset,
                                 int32_t *found_epoch, int64_t *end_offset);
/* The checkpoint of `version` has been written. */
void pb_leader_epochs_saved(pb_leader_epochs *epochs, uint64_t version);
void pb_leader_epochs_clear(pb_leader_epochs *epochs);

/* The text of the checkpoint. Allocates it (free()); NULL: no memory. */
char *pb_leader_epochs_format(const pb_leader_epochs *epochs, size_t *length);
/* Read a checkpoint's text into empty `epochs`. 0, -ENOMEM, or -EBADMSG when the text is damaged; `epochs` stays empty
 * then. */
int pb_leader_epochs_parse(pb_leader_epochs *epochs, const char *text, size_t length);

#endif
