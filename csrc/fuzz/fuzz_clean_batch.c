/*
 * libFuzzer target for the cleaner's filter: the first bytes choose what the batch's header says, the rest are its
 * records, compressed or not. A batch that gets through must come out smaller in records or unchanged, with a CRC that
 * matches and records that can be read. It must come through a second time unchanged.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/clean/pack.h"

enum { CHOICE_BYTES = 6, BATCH_BYTES = 1 << 20, BASE_OFFSET = 100 };

static pb_io *io;
static pb_codec *codec;
static pb_clean_map map;

static bool put(pb_clean_map *to, const uint8_t *key, size_t length, int64_t offset)
{
    return pb_clean_map_put(to, pb_clean_map_expect(to, key, length), offset);
}

static void prepare(void)
{
    pb_failure failure;
    if (io != NULL)
        return;
    PB_ASSERT(pb_io_open("epoll", &io, &failure) == 0);
    PB_ASSERT(pb_codec_create(&codec) == 0);
    PB_ASSERT(pb_clean_map_init(&map, io, 1 << 16, 90, 1000) == 0);
    /* Short keys that a fuzzer finds: some are overtaken far behind, some within the batch. */
    PB_ASSERT(put(&map, (const uint8_t *)"a", 1, BASE_OFFSET + 1));
    PB_ASSERT(put(&map, (const uint8_t *)"b", 1, BASE_OFFSET + 3));
    PB_ASSERT(put(&map, (const uint8_t *)"", 0, BASE_OFFSET + 1000));
}

static int filter_once(const uint8_t *batch, const pb_batch_header *header, int64_t now_ms, pb_clean_filter *filter,
                       pb_clean_outcome *outcome)
{
    pb_clean_transactions transactions;
    pb_clean_transactions_init(&transactions, NULL, 0);
    static const pb_clean_producer producer = {.producer_id = 7, .last_data_offset = BASE_OFFSET + 4};
    static const pb_live_offsets none;
    filter->map = &map;
    filter->live = &none;
    filter->transactions = &transactions;
    filter->producers = &producer;
    filter->producer_count = 1;
    filter->end_offset = BASE_OFFSET + 2000;
    filter->upper_offset = BASE_OFFSET + 3000;
    filter->now_ms = now_ms;
    filter->delete_retention_ms = 50;
    filter->codec = codec;
    int rc = pb_clean_filter_batch(filter, batch, header, outcome, NULL);
    pb_clean_transactions_clear(&transactions);
    return rc;
}

/* The batch that comes of it; its length, or 0 when it is larger than `room`. */
static size_t make(const pb_clean_outcome *outcome, int compression, uint8_t *batch, size_t room)
{
    const pb_clean_codec how = {compression, compression < 0 ? 0 : pb_compression_default_level(compression)};
    pb_clean_bytes made = {0};
    size_t length = outcome->length;
    if (outcome->packs)
        PB_ASSERT(pb_clean_pack(codec, &how, outcome, &made, 0, &length) == 0);
    if (length <= room)
        memcpy(batch, outcome->packs ? made.data : outcome->bytes, length);
    free(made.data);
    return length <= room ? length : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    static uint8_t batch[BATCH_BYTES];
    static uint8_t kept[BATCH_BYTES * 4];
    prepare();
    if (size < CHOICE_BYTES || size - CHOICE_BYTES > BATCH_BYTES - PB_BATCH_HEADER_BYTES)
        return 0;
    memcpy(batch + PB_BATCH_HEADER_BYTES, input + CHOICE_BYTES, size - CHOICE_BYTES);
    pb_batch_header header = {.base_offset = BASE_OFFSET,
                              .size_bytes = (uint32_t)(PB_BATCH_HEADER_BYTES + size - CHOICE_BYTES),
                              .attributes = input[0] & PB_BATCH_KNOWN_ATTRIBUTES,
                              .last_offset_delta = input[1],
                              .base_timestamp = 1000,
                              .max_timestamp = 1000 + input[2],
                              .producer_id = input[3] % 2 == 0 ? 7 : -1,
                              .record_count = input[4],
                              .magic = PB_BATCH_MAGIC};
    int compression = (int)(input[5] % (PB_COMPRESSION_COUNT + 1)) - 1;
    int64_t now_ms = input[5] % 2 == 0 ? 900 : 1100;
    pb_batch_write(batch, &header);
    pb_clean_filter filter = {0};
    pb_clean_outcome outcome;
    int rc = filter_once(batch, &header, now_ms, &filter, &outcome);
    size_t length = rc == 0 && outcome.length > 0 ? make(&outcome, compression, kept, sizeof(kept)) : 0;
    if (length > 0) {
        pb_batch_header again;
        PB_ASSERT(pb_batch_parse(kept, length, &again) == 0 && again.size_bytes == length);
        PB_ASSERT(pb_batch_crc_matches(kept, length));
        PB_ASSERT(again.record_count <= header.record_count && again.base_offset == header.base_offset);
        PB_ASSERT(pb_batch_last_offset(&again) == pb_batch_last_offset(&header));
        int64_t kept_before = filter.kept_records;
        /* Before any horizon that was set just now: nothing more goes. */
        bool is_marker = pb_batch_is_control(&header);
        if (!is_marker && filter_once(kept, &again, now_ms, &filter, &outcome) == 0)
            PB_ASSERT(!outcome.changed && filter.kept_records == 2 * kept_before);
        else
            PB_ASSERT(is_marker);
    }
    pb_clean_filter_clear(&filter);
    return 0;
}
