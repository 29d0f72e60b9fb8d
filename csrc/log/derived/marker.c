/*
 * The transaction marker in a control batch (KIP-98): key = version int16, type int16 (0 abort, 1 commit);
 * value = version int16, coordinator epoch int32. No state; any thread.
 */
#include "log/derived/producer_state.h"
#include "record/bytes.h"
#include "record/record.h"

bool pb_marker_parse(const uint8_t *records, size_t length, bool *aborts, int32_t *coordinator_epoch)
{
    enum { TYPE_ABORT = 0, TYPE_COMMIT = 1, KEY_BYTES = 4, VALUE_BYTES = 6 };
    pb_record record;
    if (pb_record_parse(records, length, &record, NULL) != 0)
        return false;
    if (record.key_length < KEY_BYTES || record.value_length < VALUE_BYTES)
        return false;
    uint16_t type = pb_be16_load(record.key + 2);
    if (type != TYPE_ABORT && type != TYPE_COMMIT)
        return false;
    *aborts = type == TYPE_ABORT;
    *coordinator_epoch = (int32_t)pb_be32_load(record.value + 2);
    return true;
}
