/*
 * One segment: a .log file with its .index, .timeindex and .txnindex, named by the base offset in 20 digits.
 *
 * Owner: the log holds one reference for as long as the segment is part of it; every reader holds one while it uses the
 * file. The log outlives them all. Fields are guarded by the partition's lock unless said otherwise; `io`, `directory`
 * and `base_offset` never change. A sealed segment costs this struct and no memory besides: its file is opened for the
 * first reader and closed when idle, its indexes stay in their files.
 */
#ifndef PB_LOG_SEGMENT_SEGMENT_H
#define PB_LOG_SEGMENT_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/io.h"
#include "log/engine/tail.h"
#include "log/log.h"
#include "log/read/history.h"
#include "log/segment/damage.h"
#include "log/segment/index_buffer.h"

enum {
    PB_OFFSET_INDEX_ENTRY_BYTES = 8,
    PB_TIME_INDEX_ENTRY_BYTES = 12,
    PB_TRANSACTION_INDEX_ENTRY_BYTES = 34,
    PB_LOG_PATH_BYTES = 4096,
};

/* The kinds of file in a log's directory that carry a base offset. */
typedef enum pb_file_kind {
    PB_FILE_LOG,
    PB_FILE_OFFSET_INDEX,
    PB_FILE_TIME_INDEX,
    PB_FILE_TRANSACTION_INDEX,
    PB_FILE_SNAPSHOT,
    PB_FILE_KIND_COUNT,
} pb_file_kind;

/* How far a segment's indexes have come. */
typedef enum pb_saved {
    PB_UNSAVED, /* entries are pending, or a file does not exist yet */
    PB_SAVING,  /* upkeep writes what was pending; a push meanwhile makes it UNSAVED again */
    PB_SAVED,   /* in their files */
    PB_SYNCED,
} pb_saved;

/*
 * Under which names a segment's files lie. Compaction replaces segments by one with the same base offset, so a name
 * alone does not tell whose file it is.
 *
 *     CLEANED -> SWAP    before it becomes part of the log
 *     SWAP -> PLAIN      when the files of those that it replaced are out of the way; file by file, .log first
 *     PLAIN -> GONE      just before its files are renamed, when it is no longer part of the log
 */
typedef enum pb_segment_names {
    PB_NAMES_PLAIN,
    PB_NAMES_CLEANED, /* ".cleaned": being written by the cleaner */
    PB_NAMES_SWAP,    /* ".swap", or the plain name when there is none under that */
    PB_NAMES_GONE,    /* ".deleted", soon unlinked: not opened any more */
} pb_segment_names;

struct pb_segment {
    pb_io *io;
    const char *directory;
    atomic_int references;
    atomic_int names; /* pb_segment_names; set under the lock, read anywhere */
    int file;         /* -1: not open. Closed only under the lock, when nobody else has a reference */
    int64_t base_offset;
    int64_t size_bytes;               /* written bytes */
    int64_t largest_timestamp_ms;     /* -1: no record */
    int64_t largest_timestamp_offset; /* last offset of the batch that carries it */
    int64_t last_time_entry_ms;       /* timestamp of the time index's last entry; -1: none */
    int64_t modified_ms;
    int64_t generation; /* the log's swap_count when the cleaner put it in place; 0: it has not */
    pb_index_buffer offset_index;
    pb_index_buffer time_index;
    pb_index_buffer transaction_index;
    uint32_t used;      /* the log's use count when a reader last came: the oldest is closed first */
    pb_damage *damages; /* known ones, by position */
    uint32_t damage_count;
    bool short_told; /* that its file ends too soon; under the lock */
    pb_saved indexes;
    pb_tail_view tail; /* what is not to be read from the file */
    pb_history_view history;
    bool old_magic; /* begins with a batch older than magic 2: cannot be served */
    /* A start trusts what the active segment had: so many bytes, up to that offset. The scrub checks them soon after;
     * 0: it has, or recovery did. Under the lock. */
    int64_t unchecked_bytes;
    int64_t unchecked_end;
};

/* Is anything of it in the history? Mostly not, and this is asked at every read. [any] */
static inline bool pb_history_may_hold(pb_segment *segment)
{
    return atomic_load_explicit(&segment->history.piece_count, memory_order_acquire) > 0;
}

/* A new segment with one reference; NULL without memory. `directory` must outlive it. */
pb_segment *pb_segment_new(pb_io *io, const char *directory, int64_t base_offset);

/* `to` takes the place of `from`, with a file of its own: all that is known, and pending index entries, pass on. [lock]
 */
void pb_segment_take_over(pb_segment *to, pb_segment *from);

/* "<directory>/<20 digits><suffix of kind><extra>"; extra "", ".deleted", ".cleaned" or ".swap". -ENAMETOOLONG when it
 * does not fit. */
int pb_segment_path(char *path, const char *directory, int64_t base_offset, pb_file_kind kind, const char *extra);
/* Take a file name apart: true when it is <20 digits><a kind's suffix><extra>; *extra points into the name ("" mostly).
 */
bool pb_segment_parse_name(const char *name, int64_t *base_offset, pb_file_kind *kind, const char **extra);

/* Open one of its files for reading; for files that are opened in readers' time. -ENOENT also when the segment has been
 * replaced or deleted: then the log has another one in its place. */
int pb_segment_open(pb_segment *segment, pb_file_kind kind);
/* The same for its .log, past the page cache, for PB_OPEN_READ or PB_OPEN_WRITE; also -EINVAL where the file system
 * cannot. */
int pb_segment_open_direct(pb_segment *segment, int mode);

/* The buffer and entry size of an index kind. */
pb_index_buffer *pb_segment_index(pb_segment *segment, pb_file_kind kind, uint32_t *entry_bytes);
/* An index without entries that needs no file, which only aborted transactions have: one that recovery did not read
 * may be left. 0, also when there is none, or -errno. */
int pb_segment_unlink_index(const pb_segment *segment, pb_file_kind kind);
/* The last record that an entry of an index speaks of. */
int64_t pb_segment_entry_offset(const pb_segment *segment, pb_file_kind kind, const uint8_t *entry);
/* How many of the `flushed_count` entries in an index's file speak of offsets below `end_offset`, or -errno. A search
 * from the end: it is for ends that lie near. Blocking. */
int64_t pb_segment_flushed_below(pb_segment *segment, pb_file_kind kind, uint32_t flushed_count, int64_t end_offset);
/* Sync one of its files, open as `file`. A failure is final, whatever the reason, which the kernel tells once: where
 * that would pass it is -EIO, so that nobody tries again and trusts the same bytes. */
int pb_segment_sync(const pb_segment *segment, int file);
/* Add to the time index what it lacks of the segment's largest timestamp, as Kafka does at roll and close. [lock] */
int pb_segment_seal_time_index(pb_segment *segment);
/* Make the index files of a new segment that every segment has, empty: Apache Kafka's tools need them from the first
 * moment on. Neither synced nor reported: upkeep makes those that are missing, and says why it cannot. */
void pb_segment_make_indexes(const pb_segment *segment);
/* Write `count` entries at `bytes` behind the `flushed` ones; makes the file when missing and cuts what lies behind. */
int pb_segment_write_index(pb_segment *segment, pb_file_kind kind, const uint8_t *bytes, uint32_t count,
                           uint32_t flushed, bool sync);

#endif
