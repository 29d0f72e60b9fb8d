/*
 * The transaction index. Locks as said in transaction_index.h.
 */
#include "log/segment/transaction_index.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "record/bytes.h"

enum { TRANSACTION_INDEX_VERSION = 0 };

int pb_transaction_index_push(pb_segment *segment, const pb_transaction_entry *entry)
{
    PB_ASSERT(entry->first_offset <= entry->last_offset);
    uint8_t bytes[PB_TRANSACTION_INDEX_ENTRY_BYTES];
    pb_be16_store(bytes, TRANSACTION_INDEX_VERSION);
    pb_be64_store(bytes + 2, (uint64_t)entry->producer_id);
    pb_be64_store(bytes + 10, (uint64_t)entry->first_offset);
    pb_be64_store(bytes + 18, (uint64_t)entry->last_offset);
    pb_be64_store(bytes + 26, (uint64_t)entry->last_stable_offset);
    segment->indexes = PB_UNSAVED;
    return pb_index_push(&segment->transaction_index, bytes, sizeof(bytes));
}

bool pb_transaction_entry_decode(const uint8_t *bytes, pb_transaction_entry *out)
{
    if (pb_be16_load(bytes) != TRANSACTION_INDEX_VERSION)
        return false;
    out->producer_id = (int64_t)pb_be64_load(bytes + 2);
    out->first_offset = (int64_t)pb_be64_load(bytes + 10);
    out->last_offset = (int64_t)pb_be64_load(bytes + 18);
    out->last_stable_offset = (int64_t)pb_be64_load(bytes + 26);
    return out->first_offset >= 0 && out->last_offset >= out->first_offset;
}

int pb_transaction_index_load(pb_segment *segment, uint32_t flushed_count, pb_transaction_entry **out)
{
    *out = NULL;
    if (flushed_count == 0)
        return 0;
    const size_t length = (size_t)flushed_count * PB_TRANSACTION_INDEX_ENTRY_BYTES;
    uint8_t *bytes = malloc(length);
    pb_transaction_entry *entries = calloc(flushed_count, sizeof(*entries));
    int file = pb_segment_open(segment, PB_FILE_TRANSACTION_INDEX);
    int rc = file < 0 ? file : bytes == NULL || entries == NULL ? -ENOMEM : 0;
    if (rc == 0)
        rc = pb_io_read_all(segment->io, file, bytes, length, 0);
    for (uint32_t i = 0; rc == 0 && i < flushed_count; i++) {
        if (!pb_transaction_entry_decode(bytes + (size_t)i * PB_TRANSACTION_INDEX_ENTRY_BYTES, &entries[i]))
            rc = -EBADMSG;
    }
    if (file >= 0)
        segment->io->ops->file_close(segment->io, file);
    free(bytes);
    if (rc == 0)
        *out = entries;
    else
        free(entries);
    return rc;
}
