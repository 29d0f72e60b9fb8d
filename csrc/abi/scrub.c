/* pybroker.h: the scrub. On Python's worker threads. */
#include <string.h>

#include "abi/convert.h"
#include "log/change/scrub.h"

_Static_assert(PB_SCRUB_KIND_BATCHES == (int)PB_SCRUB_BATCHES, "the boundary's kinds are the log's");
_Static_assert(PB_SCRUB_KIND_TRANSACTION_INDEX == (int)PB_SCRUB_TRANSACTION_INDEX,
               "the boundary's kinds are the log's");

int32_t pb_partition_scrub(pb_partition *partition, int64_t max_bytes, pb_partition_scrub_pass *pass,
                           pb_native_failure *failure)
{
    pb_failure inner = {0};
    pb_broker *broker = partition->owner;
    pb_log_guard guard = pb_partition_guard(partition);
    pb_scrub_result result;
    pb_scrub_cursor cursor = {
        .segment_base = pass->segment_base,
        .position = pass->position,
        .next_offset = pass->next_offset,
        .last_index_offset = pass->last_index_offset,
        .begun = pass->begun != 0,
        .opened = pass->opened != 0,
        .with_indexes = pass->with_indexes != 0,
    };
    memcpy(cursor.entries, pass->entries, sizeof(cursor.entries));
    broker->io->ops->thread_yield_disk(broker->io, true);
    int rc = pb_log_scrub(partition->log, &guard, &cursor, max_bytes, &result, &inner);
    broker->io->ops->thread_yield_disk(broker->io, false);
    if (rc == -ENODATA) { /* goes the way of a read that meets it, which ends in pb_partition_check_files */
        pb_partition_report_read(partition, rc);
        result.done = true;
        rc = 0;
    }
    *pass = (pb_partition_scrub_pass){
        .segment_base = cursor.segment_base,
        .position = cursor.position,
        .next_offset = cursor.next_offset,
        .last_index_offset = cursor.last_index_offset,
        .begun = cursor.begun,
        .opened = cursor.opened,
        .with_indexes = cursor.with_indexes,
        .finding = (int32_t)result.finding,
        .known = result.known,
        .mended = result.mended,
        .done = result.done,
        .read_bytes = result.read_bytes,
        .found_segment = result.segment_base,
        .found_position = result.position,
        .found_end_position = result.end_position,
        .found_offset = result.offset,
        .found_end_offset = result.end_offset,
    };
    memcpy(pass->entries, cursor.entries, sizeof(cursor.entries));
    return pb_abi_fail(failure, &inner, rc);
}
