/* Look-ups inside one batch: a walk with a record reader, cut short where the header alone can answer. See lookup.h. */
#include "record/lookup.h"

#include "record/record.h"

int pb_batch_find_timestamp(pb_codec *codec, const uint8_t *batch, const pb_batch_header *header,
                            int32_t max_record_bytes, int64_t timestamp, int64_t start_offset,
                            pb_record_position *position, pb_failure *failure)
{
    *position = (pb_record_position){false, -1, PB_NO_TIMESTAMP};
    if (header->max_timestamp < timestamp || pb_batch_last_offset(header) < start_offset)
        return 0;
    pb_record_reader reader;
    int error = pb_record_reader_open(&reader, codec, batch, header, failure);
    if (error == 0)
        pb_record_reader_limit(&reader, max_record_bytes);
    while (error == 0 && pb_record_reader_has_next(&reader)) {
        pb_record_view record;
        error = pb_record_reader_next(&reader, &record, failure);
        if (error != 0)
            break;
        int64_t record_timestamp = pb_record_timestamp(header, record.timestamp_delta);
        int64_t offset = pb_record_offset(header, record.offset_delta);
        if (record_timestamp >= timestamp && offset >= start_offset) {
            *position = (pb_record_position){true, offset, record_timestamp};
            break;
        }
    }
    return error;
}

int pb_batch_find_max_timestamp(pb_codec *codec, const uint8_t *batch, const pb_batch_header *header,
                                int32_t max_record_bytes, pb_record_position *position, pb_failure *failure)
{
    *position = (pb_record_position){false, -1, PB_NO_TIMESTAMP};
    if (header->max_timestamp == PB_NO_TIMESTAMP || header->record_count <= 0)
        return 0;
    if (pb_batch_timestamp_type(header) == PB_LOG_APPEND_TIME) {
        *position = (pb_record_position){true, pb_batch_last_offset(header), header->max_timestamp};
        return 0;
    }
    pb_record_reader reader;
    int error = pb_record_reader_open(&reader, codec, batch, header, failure);
    if (error == 0)
        pb_record_reader_limit(&reader, max_record_bytes);
    while (error == 0 && pb_record_reader_has_next(&reader)) {
        pb_record_view record;
        error = pb_record_reader_next(&reader, &record, failure);
        if (error != 0)
            break;
        int64_t timestamp = pb_record_timestamp(header, record.timestamp_delta);
        if (timestamp == header->max_timestamp) {
            *position = (pb_record_position){true, pb_record_offset(header, record.offset_delta), timestamp};
            break;
        }
    }
    return error;
}
