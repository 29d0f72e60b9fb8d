/* pybroker_tools.h: walking over segments. The thread of a tool; blocks on file reads. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/convert.h"
#include "log/walk/walk.h"
#include "pybroker_tools.h"

_Static_assert((int)PB_WALK_CRC == (int)PB_LOG_WALK_CRC && (int)PB_WALK_CONTROL == (int)PB_LOG_WALK_CONTROL &&
                   (int)PB_WALK_RECORDS == (int)PB_LOG_WALK_RECORDS && (int)PB_WALK_TIME == (int)PB_LOG_WALK_TIME &&
                   (int)PB_WALK_EVERY == (int)PB_LOG_WALK_EVERY &&
                   (int)PB_WALK_UNREADABLE == (int)PB_LOG_WALK_UNREADABLE &&
                   (int)PB_WALK_INNER == (int)PB_LOG_WALK_INNER,
               "the same flags on both sides");

struct pb_walk {
    pb_io *io;
    pb_log_walk *inner;
    char path[4096];
};

int32_t pb_walk_open(pb_walk **out, pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_walk *walk = calloc(1, sizeof(*walk));
    if (walk == NULL)
        return pb_abi_fail(failure, &inner, pb_fail(&inner, -ENOMEM, "walking over a log"));
    int rc = pb_io_open("epoll", &walk->io, &inner);
    if (rc == 0) {
        rc = pb_log_walk_create(walk->io, &walk->inner);
        if (rc != 0) {
            walk->io->ops->close(walk->io);
            pb_fail(&inner, rc, "walking over a log");
        }
    }
    if (rc != 0) {
        free(walk);
        return pb_abi_fail(failure, &inner, rc);
    }
    *out = walk;
    return 0;
}

void pb_walk_close(pb_walk *walk)
{
    pb_log_walk_destroy(walk->inner);
    walk->io->ops->close(walk->io);
    free(walk);
}

int32_t pb_walk_begin(pb_walk *walk, const pb_walk_file *file, pb_native_failure *failure)
{
    pb_failure inner = {0};
    int length = snprintf(walk->path, sizeof(walk->path), "%s", file->path);
    if (length < 0 || (size_t)length >= sizeof(walk->path))
        return pb_abi_fail(failure, &inner, pb_fail(&inner, -ENAMETOOLONG, "%s", file->path));
    const pb_log_walk_file log_file = {
        .path = walk->path,
        .base_offset = file->base_offset,
        .index = file->index,
        .index_length = file->index_length,
        .time_index = file->time_index,
        .time_index_length = file->time_index_length,
        .wanted = file->wanted,
        .deep_every = file->deep_every,
    };
    int rc = pb_log_walk_begin(walk->inner, &log_file);
    return rc == 0 ? 0 : pb_abi_fail(failure, &inner, pb_fail(&inner, rc, "%s cannot be read", walk->path));
}

static void copy_row(pb_walk_row *out, const pb_log_walk_row *row)
{
    *out = (pb_walk_row){
        .position = row->position,
        .size_bytes = row->size_bytes,
        .base_offset = row->base_offset,
        .expected_offset = row->expected_offset,
        .base_timestamp = row->base_timestamp,
        .max_timestamp = row->max_timestamp,
        .producer_id = row->producer_id,
        .flags = row->flags,
        .leader_epoch = row->leader_epoch,
        .last_offset_delta = row->last_offset_delta,
        .base_sequence = row->base_sequence,
        .record_count = row->record_count,
        .crc = row->crc,
        .expected_sequence = row->expected_sequence,
        .coordinator_epoch = row->coordinator_epoch,
        .number = row->number,
        .control_type = row->control_type,
        .producer_epoch = row->producer_epoch,
        .attributes = row->attributes,
        .magic = row->magic,
    };
}

int32_t pb_walk_next(pb_walk *walk, pb_walk_row *rows, int32_t capacity, pb_native_failure *failure)
{
    enum { AT_ONCE = 64 };
    pb_log_walk_row some[AT_ONCE];
    int32_t count = 0;
    while (count < capacity) {
        int32_t asked = capacity - count < AT_ONCE ? capacity - count : AT_ONCE;
        int got = pb_log_walk_next(walk->inner, some, asked);
        if (got < 0) {
            pb_failure inner = {0};
            return pb_abi_fail(failure, &inner, pb_fail(&inner, got, "%s cannot be read", walk->path));
        }
        for (int i = 0; i < got; i++)
            copy_row(&rows[count++], &some[i]);
        if (got < asked)
            break;
    }
    return count;
}

void pb_walk_sum(const pb_walk *walk, pb_walk_totals *out)
{
    pb_log_walk_totals sum;
    pb_log_walk_sum(walk->inner, &sum);
    *out = (pb_walk_totals){
        .bytes = sum.bytes,
        .damaged_bytes = sum.damaged_bytes,
        .batches = sum.batches,
        .records = sum.records,
        .control_batches = sum.control_batches,
        .transactional_batches = sum.transactional_batches,
        .old_magic_messages = sum.old_magic_messages,
        .min_timestamp = sum.min_timestamp,
        .max_timestamp = sum.max_timestamp,
        .file_max_timestamp = sum.file_max_timestamp,
        .file_first_offset = sum.file_first_offset,
        .end_offset = sum.end_offset,
        .deep_batches = sum.deep_batches,
        .deep_records = sum.deep_records,
        .null_keys = sum.null_keys,
        .stored_bytes = sum.stored_bytes,
        .plain_bytes = sum.plain_bytes,
    };
    _Static_assert(sizeof(out->codec_batches) == sizeof(sum.codec_batches) && sizeof(out->sizes) == sizeof(sum.sizes),
                   "arrays of the same length on both sides");
    memcpy(out->codec_batches, sum.codec_batches, sizeof(sum.codec_batches));
    memcpy(out->codec_bytes, sum.codec_bytes, sizeof(sum.codec_bytes));
    memcpy(out->sizes, sum.sizes, sizeof(sum.sizes));
}
