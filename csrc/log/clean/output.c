/* Writing a cleaned segment. Blocking, on the cleaner's thread; failures are -errno. */
#include "log/clean/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/clean/swap.h"
#include "log/segment/offset_index.h"
#include "log/segment/time_index.h"

/* So much is written before the disk is told to begin: the sync at the end then has little left to wait for. */
enum { WRITEBACK_BYTES = 1 << 20, DROP_BYTES = 1 << 20 };

int pb_clean_output_init(pb_clean_output *output, size_t buffer_bytes)
{
    *output = (pb_clean_output){.capacity = buffer_bytes, .buffer = malloc(buffer_bytes)};
    return output->buffer == NULL ? -ENOMEM : 0;
}

void pb_clean_output_clear(pb_clean_output *output)
{
    PB_ASSERT(output->segment == NULL);
    free(output->buffer);
    output->buffer = NULL;
}

int pb_clean_output_begin(pb_clean_output *output, pb_io *io, const char *directory, int64_t base_offset,
                          int64_t index_interval_bytes)
{
    PB_ASSERT(output->segment == NULL);
    pb_segment *segment = pb_segment_new(io, directory, base_offset);
    if (segment == NULL)
        return -ENOMEM;
    atomic_store(&segment->names, PB_NAMES_CLEANED);
    char path[PB_LOG_PATH_BYTES];
    int rc = pb_segment_path(path, directory, base_offset, PB_FILE_LOG, ".cleaned");
    segment->file = rc != 0 ? rc : io->ops->file_open(io, path, PB_OPEN_WRITE | PB_OPEN_CREATE | PB_OPEN_TRUNCATE);
    if (segment->file < 0) {
        rc = segment->file;
        pb_segment_release(segment);
        return rc;
    }
    output->segment = segment;
    output->index_interval_bytes = index_interval_bytes;
    output->indexed_position = 0;
    output->started_position = 0;
    output->length = 0;
    return 0;
}

static int write_bytes(pb_clean_output *output, const uint8_t *bytes, size_t length, int64_t position)
{
    pb_segment *segment = output->segment;
    for (size_t done = 0; done < length;) {
        size_t step = length - done < PB_POLITE_BYTES ? length - done : PB_POLITE_BYTES;
        struct iovec iov = {(void *)(uintptr_t)(bytes + done), step};
        int rc = pb_io_write_all(segment->io, segment->file, &iov, 1, position + (int64_t)done);
        if (rc != 0)
            return rc;
        done += step;
    }
    output->written_bytes += (int64_t)length;
    int64_t end = position + (int64_t)length;
    if (end - output->started_position >= WRITEBACK_BYTES) {
        (void)segment->io->ops->file_writeback(segment->io, segment->file, output->started_position,
                                               end - output->started_position);
        output->started_position = end;
    }
    return 0;
}

/* The buffered bytes end at the segment's size. */
static int flush(pb_clean_output *output)
{
    if (output->length == 0)
        return 0;
    int rc = write_bytes(output, output->buffer, output->length, output->segment->size_bytes - (int64_t)output->length);
    output->length = 0;
    return rc;
}

int pb_clean_output_add(pb_clean_output *output, const uint8_t *batch, size_t length, const pb_batch_header *header,
                        int64_t max_timestamp_ms)
{
    pb_segment *segment = output->segment;
    int64_t last_offset = pb_batch_last_offset(header);
    int64_t position = segment->size_bytes;
    if (position > INT32_MAX - (int64_t)length || last_offset - segment->base_offset > INT32_MAX)
        return -EFBIG;
    int rc = output->capacity - output->length < length ? flush(output) : 0;
    if (rc == 0 && length > output->capacity) {
        rc = write_bytes(output, batch, length, position);
    } else if (rc == 0) {
        memcpy(output->buffer + output->length, batch, length);
        output->length += length;
    }
    if (rc != 0)
        return rc;
    if (max_timestamp_ms > segment->largest_timestamp_ms) {
        segment->largest_timestamp_ms = max_timestamp_ms;
        segment->largest_timestamp_offset = last_offset;
    }
    if (position - output->indexed_position > output->index_interval_bytes) {
        output->indexed_position = position;
        rc = pb_offset_index_push(segment, last_offset, position);
        if (rc == 0)
            rc = pb_time_index_maybe_push(segment, segment->largest_timestamp_ms, segment->largest_timestamp_offset);
    }
    segment->size_bytes = position + (int64_t)length;
    return rc;
}

/* A cleaned segment is read once, from its beginning, so it need not push others out of memory. */
static void drop_from_memory(pb_segment *segment)
{
    for (int64_t position = 0; position < segment->size_bytes; position += DROP_BYTES)
        (void)segment->io->ops->file_drop(segment->io, segment->file, position, DROP_BYTES);
}

int pb_clean_output_finish(pb_clean_output *output, pb_segment **out)
{
    pb_segment *segment = output->segment;
    int rc = flush(output);
    if (rc == 0)
        rc = segment->io->ops->file_sync(segment->io, segment->file);
    if (rc == 0)
        drop_from_memory(segment);
    if (rc == 0)
        rc = segment->io->ops->file_close(segment->io, segment->file);
    else
        (void)segment->io->ops->file_close(segment->io, segment->file);
    segment->file = -1;
    if (rc == 0)
        rc = pb_segment_seal_time_index(segment);
    for (int kind = PB_FILE_OFFSET_INDEX; rc == 0 && kind <= PB_FILE_TRANSACTION_INDEX; kind++) {
        uint32_t entry_bytes;
        pb_index_buffer *index = pb_segment_index(segment, (pb_file_kind)kind, &entry_bytes);
        if (kind == PB_FILE_TRANSACTION_INDEX && index->pending_count == 0)
            continue;
        rc = pb_segment_write_index(segment, (pb_file_kind)kind, index->pending, index->pending_count, 0, true);
        if (rc == 0)
            pb_index_flushed(index, index->pending_count, entry_bytes);
    }
    if (rc != 0)
        return rc;
    segment->indexes = PB_SYNCED;
    *out = segment;
    output->segment = NULL;
    return 0;
}

int pb_clean_output_abandon(pb_clean_output *output)
{
    pb_segment *segment = output->segment;
    if (segment == NULL)
        return 0;
    output->segment = NULL;
    int rc = pb_clean_unlink(segment->io, segment->directory, segment->base_offset, ".cleaned");
    pb_segment_release(segment);
    return rc;
}
