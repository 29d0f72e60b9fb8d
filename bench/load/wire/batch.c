/* See batch.h. */
#include "wire/batch.h"

#include <lz4frame.h>
#include <snappy-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>
#include <zstd.h>

enum { HEADER_BYTES = 61, CRC_POSITION = 17, ATTRIBUTES_POSITION = 21, SNAPPY_BLOCK_BYTES = 32 * 1024 };

static const char *const CODEC_NAMES[] = {"none", "gzip", "snappy", "lz4", "zstd"};

int pbl_codec_by_name(const char *name)
{
    for (int codec = PBL_CODEC_NONE; codec <= PBL_CODEC_ZSTD; codec++)
        if (strcmp(name, CODEC_NAMES[codec]) == 0)
            return codec;
    return -1;
}

const char *pbl_codec_name(enum pbl_codec codec)
{
    return CODEC_NAMES[codec];
}

static void refuse(const char *codec)
{
    fprintf(stderr, "pbload: %s could not compress a batch\n", codec);
    exit(2);
}

/* Bitwise by table: a batch is made once, so speed is no concern here. Castagnoli polynomial, RFC 3720 B.4. */
static uint32_t crc32c(const uint8_t *data, size_t size)
{
    static uint32_t table[256];
    if (!table[1]) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++)
                value = value & 1 ? (value >> 1) ^ 0x82f63b78u : value >> 1;
            table[i] = value;
        }
    }
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++)
        crc = table[(crc ^ data[i]) & 0xff] ^ (crc >> 8);
    return ~crc;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* 12 random base-32 characters, then 4 of a fixed text: a log line's mix of noise and repetition. */
static void fill_value(uint8_t *out, size_t size, uint64_t *state)
{
    static const char ALPHABET[] = "abcdefghijklmnopqrstuvwxyz234567";
    static const char *const WORDS[] = {"GET /cart/item ", "status=200 user=", "latency_ms=0012 ", "region=eu-west-1"};
    size_t at = 0;
    while (at < size) {
        uint64_t noise = next_random(state);
        for (int i = 0; i < 12 && at < size; i++, noise >>= 5)
            out[at++] = (uint8_t)ALPHABET[noise & 31];
        const char *word = WORDS[noise & 3];
        for (int i = 0; i < 16 && at < size; i++)
            out[at++] = (uint8_t)word[i];
    }
}

static size_t varint_size(int64_t value)
{
    uint64_t zigzag = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    size_t size = 1;
    for (; zigzag >= 0x80; zigzag >>= 7)
        size++;
    return size;
}

/* One record: attributes, timestamp delta 0, offset delta, key or null, value, no headers. `value` without data is made
 * up. */
static void append_record(struct pbl_buffer *out, uint32_t index, struct pbl_slice key, struct pbl_slice value,
                          uint64_t *state)
{
    int64_t key_bytes = key.data ? (int64_t)key.size : -1;
    size_t key_space = varint_size(key_bytes) + key.size;
    size_t body = 1 + 1 + varint_size(index) + key_space + varint_size((int64_t)value.size) + value.size + 1;
    pbl_put_varint(out, (int64_t)body);
    pbl_put_i8(out, 0);
    pbl_put_varint(out, 0);
    pbl_put_varint(out, index);
    pbl_put_varint(out, key_bytes);
    if (key.data)
        pbl_put_bytes(out, key.data, key.size);
    pbl_put_varint(out, (int64_t)value.size);
    if (value.data) {
        pbl_put_bytes(out, value.data, value.size);
    } else {
        pbl_buffer_reserve(out, value.size);
        fill_value(out->data + out->size, value.size, state);
        out->size += value.size;
    }
    pbl_put_varint(out, 0);
}

static uint32_t append_records(struct pbl_buffer *out, const struct pbl_batch_shape *shape,
                               struct pbl_batch_source *source)
{
    enum { RECORD_FRAME_BYTES = 16 };
    uint64_t state = source->seed * 0x9e3779b97f4a7c15ull + 1;
    for (uint32_t count = 0;; count++) {
        char key_text[PBL_KEY_BYTES];
        struct pbl_slice key = {0}, value = {.size = shape->record_bytes};
        if (source->text)
            value = pbl_text_peek(source->text);
        if (source->keys)
            key = (struct pbl_slice){(const uint8_t *)key_text,
                                     pbl_keys_format(source->keys, source->partition, source->key_index, key_text)};
        size_t after = HEADER_BYTES + out->size + key.size + value.size + RECORD_FRAME_BYTES;
        if (count > 0 && after > shape->batch_bytes)
            return count;
        append_record(out, count, key, value, &state);
        source->key_index++;
        if (source->text)
            pbl_text_skip(source->text, value);
    }
}

static void compress_gzip(struct pbl_buffer *out, const struct pbl_buffer *in)
{
    z_stream stream = {0};
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        refuse("gzip");
    size_t bound = deflateBound(&stream, in->size);
    pbl_buffer_reserve(out, bound);
    stream.next_in = in->data;
    stream.avail_in = (uInt)in->size;
    stream.next_out = out->data + out->size;
    stream.avail_out = (uInt)bound;
    if (deflate(&stream, Z_FINISH) != Z_STREAM_END)
        refuse("gzip");
    out->size += stream.total_out;
    deflateEnd(&stream);
}

/* The framing Kafka's Java client writes: a 16-byte header, then blocks with an int32 length each. */
static void compress_snappy(struct pbl_buffer *out, const struct pbl_buffer *in)
{
    static const uint8_t HEADER[16] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
    pbl_put_bytes(out, HEADER, sizeof HEADER);
    for (size_t at = 0; at < in->size; at += SNAPPY_BLOCK_BYTES) {
        size_t block = in->size - at < SNAPPY_BLOCK_BYTES ? in->size - at : SNAPPY_BLOCK_BYTES;
        size_t size = snappy_max_compressed_length(block);
        pbl_buffer_reserve(out, 4 + size);
        uint8_t *to = out->data + out->size;
        if (snappy_compress((const char *)in->data + at, block, (char *)to + 4, &size) != SNAPPY_OK)
            refuse("snappy");
        pbl_set_i32(to, (int32_t)size);
        out->size += 4 + size;
    }
}

static void compress_lz4(struct pbl_buffer *out, const struct pbl_buffer *in)
{
    LZ4F_preferences_t preferences = {.frameInfo = {.blockSizeID = LZ4F_max64KB, .blockMode = LZ4F_blockIndependent}};
    size_t bound = LZ4F_compressFrameBound(in->size, &preferences);
    pbl_buffer_reserve(out, bound);
    size_t size = LZ4F_compressFrame(out->data + out->size, bound, in->data, in->size, &preferences);
    if (LZ4F_isError(size))
        refuse("lz4");
    out->size += size;
}

static void compress_zstd(struct pbl_buffer *out, const struct pbl_buffer *in)
{
    size_t bound = ZSTD_compressBound(in->size);
    pbl_buffer_reserve(out, bound);
    size_t size = ZSTD_compress(out->data + out->size, bound, in->data, in->size, 3);
    if (ZSTD_isError(size))
        refuse("zstd");
    out->size += size;
}

static void append_payload(struct pbl_buffer *out, const struct pbl_buffer *records, enum pbl_codec codec)
{
    switch (codec) {
    case PBL_CODEC_NONE:
        pbl_put_bytes(out, records->data, records->size);
        break;
    case PBL_CODEC_GZIP:
        compress_gzip(out, records);
        break;
    case PBL_CODEC_SNAPPY:
        compress_snappy(out, records);
        break;
    case PBL_CODEC_LZ4:
        compress_lz4(out, records);
        break;
    case PBL_CODEC_ZSTD:
        compress_zstd(out, records);
        break;
    }
}

uint32_t pbl_batch_append(struct pbl_buffer *out, const struct pbl_batch_shape *shape, struct pbl_batch_source *source,
                          size_t *uncompressed_bytes)
{
    struct pbl_buffer records = {0};
    uint32_t count = append_records(&records, shape, source);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;

    size_t start = out->size;
    pbl_put_i64(out, 0);  /* base offset */
    pbl_put_i32(out, 0);  /* batch length, set below */
    pbl_put_i32(out, -1); /* partition leader epoch */
    pbl_put_i8(out, 2);   /* magic */
    pbl_put_i32(out, 0);  /* CRC, set below */
    pbl_put_i16(out, (int16_t)shape->codec);
    pbl_put_i32(out, (int32_t)count - 1);
    pbl_put_i64(out, now_ms); /* base timestamp */
    pbl_put_i64(out, now_ms); /* max timestamp */
    pbl_put_i64(out, -1);     /* producer id */
    pbl_put_i16(out, -1);     /* producer epoch */
    pbl_put_i32(out, -1);     /* base sequence */
    pbl_put_i32(out, (int32_t)count);
    append_payload(out, &records, shape->codec);

    uint8_t *batch = out->data + start;
    size_t size = out->size - start;
    pbl_set_i32(batch + 8, (int32_t)(size - 12));
    pbl_set_i32(batch + CRC_POSITION, (int32_t)crc32c(batch + ATTRIBUTES_POSITION, size - ATTRIBUTES_POSITION));
    *uncompressed_bytes = HEADER_BYTES + records.size;
    pbl_buffer_free(&records);
    return count;
}
