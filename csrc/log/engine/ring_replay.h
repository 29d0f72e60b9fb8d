/*
 * Writes the bytes that an ended process left in a tail ring into the segment's file. One thread that has ring and log
 * to itself: before the log is opened. Blocking.
 */
#ifndef PB_LOG_ENGINE_RING_REPLAY_H
#define PB_LOG_ENGINE_RING_REPLAY_H

#include "log/engine/ring_header.h"

/* Reads the facts that a ring's file tells about itself. As pb_ring_header_parse, or another -errno. */
int pb_ring_inspect(pb_io *io, const char *path, pb_ring_content *out, pb_failure *failure);

/*
 * Bring the bytes of a sealed ring into the segment below `log_directory`, and sync them; *moved_bytes: how many the
 * file had not got. `look`: change nothing. The ring's file is left alone: doing it again, also after a stop half way,
 * comes to the same.
 *
 * -ESTALE, and nothing is changed: the log is not as the ring's writer left it. Its file ends before the ring begins,
 * or has bytes there that are neither the ring's nor zeros, or a newer segment follows: somebody else has written
 * since.
 */
int pb_ring_replay(pb_io *io, const char *path, const pb_ring_content *content, const char *log_directory, bool look,
                   int64_t *moved_bytes, pb_failure *failure);

#endif
