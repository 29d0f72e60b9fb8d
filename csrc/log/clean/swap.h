/*
 * Putting a cleaned segment in the places of the old ones, so that a crash at any moment leaves either of them, whole.
 */
#ifndef PB_LOG_CLEAN_SWAP_H
#define PB_LOG_CLEAN_SWAP_H

#include "log/state.h"

/* Unlink a segment's files, snapshots aside, under the names that end in `extra`; missing ones are fine. */
int pb_clean_unlink(pb_io *io, const char *directory, int64_t base_offset, const char *extra);
/* Unlink what passes that did not end have left under ".cleaned", durably: beside a swap of a later pass it would make
 * recovery take that for unfinished. */
int pb_clean_unlink_leftovers(pb_log *log);

/*
 * Replace `sources`, neighbours in the log and none of them active, by `cleaned`, which begins where the first of them
 * does and is synced. Blocking, without the lock; waits for the maintenance token until `*cancelled`. Takes the
 * reference on `cleaned`. -EAGAIN when the log is not what it was; -errno. A failure half way, after which only opening
 * the log again tells what is on the disk, marks the log as failed; any other leaves it as it was.
 */
int pb_clean_swap(pb_log *log, const pb_log_guard *guard, pb_segment *cleaned, pb_segment *const *sources,
                  uint32_t count, uint32_t cut_count, const atomic_bool *cancelled, pb_failure *failure);

#endif
