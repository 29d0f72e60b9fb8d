/* Codecs: round trips in one call and in pieces, foreign framings, damage, bombs, and what stays allocated. */
#include "record/codec.h"

#include <errno.h>
#include <lz4frame.h>
#include <snappy-c.h>
#include <zstd.h>

#include "base/kafka_error.h"
#include "tests/check.h"

enum { DATA_BYTES = 700 * 1000, ROOM_BYTES = 2 * 1024 * 1024 };

static uint8_t data[DATA_BYTES];
static uint8_t packed[ROOM_BYTES];
static uint8_t unpacked[ROOM_BYTES];

static pb_codec *make_codec(void)
{
    pb_codec *codec = NULL;
    CHECK_INT(pb_codec_create(&codec), 0);
    uint32_t x = 12345;
    for (size_t i = 0; i < sizeof(data); i++) {
        x = x * 1103515245 + 12345;
        data[i] = (uint8_t)((x >> 16) % 26 + 'a');
        if (i % 100 < 60 && i >= 100)
            data[i] = data[i - 100];
    }
    return codec;
}

TEST(round_trips_of_all_sizes_and_levels)
{
    static const size_t sizes[] = {1, 2, 100, 32767, 32768, 32769, 65536, 65537, 300000, DATA_BYTES};
    static const int levels[][3] = {{0, 0, 0}, {-1, 1, 9}, {0, 0, 0}, {1, 9, 17}, {-5, 3, 19}};
    pb_codec *codec = make_codec();
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            for (int j = 0; j < 3; j++) {
                if (j > 0 && (sizes[i] != 65537 || levels[compression][j] == levels[compression][j - 1]))
                    continue;
                size_t length = 0;
                size_t back = 0;
                CHECK_INT(pb_compress(codec, compression, levels[compression][j], data, sizes[i], packed, ROOM_BYTES,
                                      &length, NULL),
                          0);
                CHECK_INT(pb_decompress(codec, compression, packed, length, unpacked, sizes[i], &back, NULL), 0);
                CHECK_INT(back, sizes[i]);
                CHECK_MEM(unpacked, data, back);
                CHECK_INT(pb_decompress(codec, compression, packed, length, unpacked, sizes[i] - 1, &back, NULL),
                          -ENOSPC);
            }
        }
    }
    pb_codec_destroy(codec);
}

TEST(pieces_in_and_kept_bytes_out)
{
    pb_codec *codec = make_codec();
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        int level = pb_compression_default_level(compression);
        CHECK_INT(pb_compress_begin(codec, compression, level, packed, ROOM_BYTES, NULL), 0);
        for (size_t at = 0, step = 1; at < DATA_BYTES; at += step, step = step * 3 % 77777) {
            if (step > DATA_BYTES - at)
                step = DATA_BYTES - at;
            CHECK_INT(pb_compress_add(codec, data + at, step, NULL), 0);
        }
        size_t length = 0;
        CHECK_INT(pb_compress_finish(codec, &length, NULL), 0);
        CHECK_INT(pb_decompress_begin(codec, compression, packed, length, NULL), 0);
        const uint8_t *window = NULL;
        size_t window_length = 0;
        size_t used = 0;
        for (;;) {
            size_t keep = window_length < 1000 ? window_length : 1000;
            used += window_length - keep;
            CHECK_INT(pb_decompress_next(codec, keep, &window, &window_length, NULL), 0);
            CHECK(used + window_length <= DATA_BYTES);
            CHECK_MEM(window, data + used, window_length);
            if (window_length == keep)
                break;
        }
        CHECK_INT(used + window_length, DATA_BYTES);
    }
    pb_codec_destroy(codec);
}

TEST(too_little_room_is_told_and_never_exceeded)
{
    pb_codec *codec = make_codec();
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        for (size_t capacity = 0; capacity < 4000; capacity += 1 + capacity / 3) {
            memset(packed, 0xee, 5000);
            size_t length = 0;
            int level = pb_compression_default_level(compression);
            CHECK_INT(pb_compress(codec, compression, level, data, 100000, packed, capacity, &length, NULL), -ENOSPC);
            CHECK_INT(packed[capacity], 0xee);
        }
        size_t length = 0;
        CHECK_INT(pb_compress(codec, compression, pb_compression_default_level(compression), data, 1000, packed,
                              ROOM_BYTES, &length, NULL),
                  0);
    }
    pb_codec_destroy(codec);
}

TEST(every_cut_is_an_error)
{
    pb_codec *codec = make_codec();
    for (int compression = PB_COMPRESSION_GZIP; compression < PB_COMPRESSION_COUNT; compression++) {
        size_t length = 0;
        int level = pb_compression_default_level(compression);
        CHECK_INT(pb_compress(codec, compression, level, data, 500, packed, ROOM_BYTES, &length, NULL), 0);
        for (size_t cut = 0; cut < length; cut++) {
            uint8_t *exact = malloc(cut + 1);
            CHECK(exact != NULL);
            memcpy(exact, packed, cut);
            size_t back = 0;
            pb_failure failure = {0, ""};
            int error = pb_decompress(codec, compression, exact, cut, unpacked, ROOM_BYTES, &back, &failure);
            /* Only snappy's framing has no end mark: cut behind its header, it is a stream of nothing. */
            if (compression == PB_COMPRESSION_SNAPPY && cut == 16)
                CHECK_INT(error, 0);
            else
                CHECK(error == PB_INVALID_RECORD && failure.text[0] != '\0');
            free(exact);
        }
    }
    pb_codec_destroy(codec);
}

TEST(a_bare_snappy_block_is_read)
{
    pb_codec *codec = make_codec();
    size_t length = ROOM_BYTES;
    CHECK_INT(snappy_compress((const char *)data, 500000, (char *)packed, &length), SNAPPY_OK);
    size_t back = 0;
    CHECK_INT(pb_decompress(codec, PB_COMPRESSION_SNAPPY, packed, length, unpacked, ROOM_BYTES, &back, NULL), 0);
    CHECK_INT(back, 500000);
    CHECK_MEM(unpacked, data, back);
    pb_codec_destroy(codec);
}

TEST(snappy_frame_versions_do_not_matter)
{
    pb_codec *codec = make_codec();
    size_t length = 0;
    CHECK_INT(pb_compress(codec, PB_COMPRESSION_SNAPPY, 0, data, 1000, packed, ROOM_BYTES, &length, NULL), 0);
    memset(packed + 8, 0x7f, 8);
    size_t back = 0;
    CHECK_INT(pb_decompress(codec, PB_COMPRESSION_SNAPPY, packed, length, unpacked, ROOM_BYTES, &back, NULL), 0);
    CHECK_INT(back, 1000);
    CHECK_MEM(unpacked, data, back);
    pb_codec_destroy(codec);
}

TEST(a_snappy_block_that_claims_gigabytes_gets_no_memory)
{
    pb_codec *codec = make_codec();
    static const uint8_t bomb[] = {0xff, 0xff, 0xff, 0xff, 0x0f, 0, 'x'};
    size_t before = pb_codec_memory_bytes(codec);
    size_t back = 0;
    CHECK_INT(pb_decompress(codec, PB_COMPRESSION_SNAPPY, bomb, sizeof(bomb), unpacked, ROOM_BYTES, &back, NULL),
              PB_INVALID_RECORD);
    CHECK_INT(pb_codec_memory_bytes(codec), before);
    pb_codec_destroy(codec);
}

TEST(lz4_frames_that_kafka_does_not_take)
{
    pb_codec *codec = make_codec();
    LZ4F_preferences_t linked = {.frameInfo = {.blockMode = LZ4F_blockLinked}};
    size_t length = LZ4F_compressFrame(packed, ROOM_BYTES, data, 200000, &linked);
    CHECK(!LZ4F_isError(length));
    size_t back = 0;
    CHECK_INT(pb_decompress(codec, PB_COMPRESSION_LZ4, packed, length, unpacked, ROOM_BYTES, &back, NULL),
              PB_INVALID_RECORD);
    LZ4F_preferences_t large = {.frameInfo = {.blockMode = LZ4F_blockIndependent,
                                              .blockSizeID = LZ4F_max4MB,
                                              .contentChecksumFlag = LZ4F_contentChecksumEnabled,
                                              .blockChecksumFlag = LZ4F_blockChecksumEnabled,
                                              .contentSize = DATA_BYTES}};
    length = LZ4F_compressFrame(packed, ROOM_BYTES, data, DATA_BYTES, &large);
    CHECK(!LZ4F_isError(length));
    CHECK_INT(pb_decompress(codec, PB_COMPRESSION_LZ4, packed, length, unpacked, ROOM_BYTES, &back, NULL), 0);
    CHECK_INT(back, DATA_BYTES);
    CHECK_MEM(unpacked, data, back);
    packed[4] |= 2;
    CHECK_INT(pb_decompress(codec, PB_COMPRESSION_LZ4, packed, length, unpacked, ROOM_BYTES, &back, NULL),
              PB_INVALID_RECORD);
    pb_codec_destroy(codec);
}

TEST(a_bomb_passes_through_a_bounded_window)
{
    enum { ZEROS = 64 * 1024 * 1024 };
    pb_codec *codec = make_codec();
    uint8_t *zeros = calloc(1, ZEROS);
    CHECK(zeros != NULL);
    static const int bombs[] = {PB_COMPRESSION_GZIP, PB_COMPRESSION_LZ4, PB_COMPRESSION_ZSTD};
    for (size_t i = 0; i < sizeof(bombs) / sizeof(bombs[0]); i++) {
        size_t length = 0;
        int level = bombs[i] == PB_COMPRESSION_GZIP ? 1 : pb_compression_default_level(bombs[i]);
        CHECK_INT(pb_compress(codec, bombs[i], level, zeros, ZEROS, packed, ROOM_BYTES, &length, NULL), 0);
        CHECK_INT(pb_decompress_begin(codec, bombs[i], packed, length, NULL), 0);
        size_t total = 0;
        size_t peak = 0;
        for (;;) {
            const uint8_t *window = NULL;
            size_t window_length = 0;
            CHECK_INT(pb_decompress_next(codec, 0, &window, &window_length, NULL), 0);
            total += window_length;
            peak = pb_codec_memory_bytes(codec) > peak ? pb_codec_memory_bytes(codec) : peak;
            if (window_length == 0)
                break;
        }
        CHECK_INT(total, ZEROS);
        CHECK(peak < 16 * 1024 * 1024);
    }
    free(zeros);
    pb_codec_destroy(codec);
}

TEST(a_large_zstd_window_is_read_and_given_back)
{
    enum { WINDOW_LOG = 26, PLAIN_BYTES = 70 * 1024 * 1024 };
    pb_codec *codec = make_codec();
    uint8_t *plain = calloc(1, PLAIN_BYTES);
    CHECK(plain != NULL);
    ZSTD_CCtx *writer = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(writer, ZSTD_c_compressionLevel, 1);
    ZSTD_CCtx_setParameter(writer, ZSTD_c_windowLog, WINDOW_LOG);
    ZSTD_CCtx_setParameter(writer, ZSTD_c_contentSizeFlag, 0);
    size_t length = ZSTD_compress2(writer, packed, ROOM_BYTES, plain, PLAIN_BYTES);
    CHECK(!ZSTD_isError(length));
    ZSTD_freeCCtx(writer);
    CHECK_INT(pb_decompress_begin(codec, PB_COMPRESSION_ZSTD, packed, length, NULL), 0);
    const uint8_t *window = NULL;
    size_t window_length = 0;
    CHECK_INT(pb_decompress_next(codec, 0, &window, &window_length, NULL), 0);
    CHECK(window_length > 0);
    CHECK(pb_codec_memory_bytes(codec) > 64 * 1024 * 1024);
    CHECK_INT(pb_compress(codec, PB_COMPRESSION_ZSTD, 1, data, 100, packed, ROOM_BYTES, &length, NULL), 0);
    CHECK_INT(pb_decompress_begin(codec, PB_COMPRESSION_ZSTD, packed, length, NULL), 0);
    CHECK(pb_codec_memory_bytes(codec) < 8 * 1024 * 1024);
    free(plain);
    pb_codec_destroy(codec);
}

TEST(unknown_codecs_are_refused)
{
    pb_codec *codec = make_codec();
    size_t length = 0;
    static const int unknown[] = {-1, 5, 7};
    for (size_t i = 0; i < 3; i++) {
        CHECK_INT(pb_decompress(codec, unknown[i], data, 10, unpacked, 10, &length, NULL),
                  PB_UNSUPPORTED_COMPRESSION_TYPE);
        CHECK_INT(pb_compress(codec, unknown[i], 0, data, 10, unpacked, 10, &length, NULL),
                  PB_UNSUPPORTED_COMPRESSION_TYPE);
        CHECK(pb_compression_name(unknown[i]) == NULL);
    }
    CHECK_STR(pb_compression_name(PB_COMPRESSION_LZ4), "lz4");
    pb_codec_destroy(codec);
}

TEST(everything_is_decompressed_into_memory_that_grows_and_stays)
{
    enum { WHOLE_BYTES = 300000 };
    pb_codec *codec;
    CHECK_INT(pb_codec_create(&codec), 0);
    uint8_t *plain = malloc(WHOLE_BYTES);
    uint8_t *small = malloc(WHOLE_BYTES + PB_COMPRESS_SLACK_BYTES);
    for (int i = 0; i < WHOLE_BYTES; i++)
        plain[i] = (uint8_t)((unsigned)i * (unsigned)i >> 7);
    for (int compression = 0; compression < PB_COMPRESSION_COUNT; compression++) {
        uint8_t *memory = NULL;
        size_t capacity = 0, length = 0, back = 0;
        CHECK_INT(pb_compress(codec, compression, pb_compression_default_level(compression), plain, WHOLE_BYTES, small,
                              WHOLE_BYTES + PB_COMPRESS_SLACK_BYTES, &length, NULL),
                  0);
        for (int round = 0; round < 3; round++) {
            const uint8_t *before = memory;
            CHECK_INT(
                pb_decompress_all(codec, compression, small, length, WHOLE_BYTES, &memory, &capacity, &back, NULL), 0);
            CHECK_INT(back, WHOLE_BYTES);
            CHECK_MEM(memory, plain, WHOLE_BYTES);
            CHECK(round == 0 || memory == before);
        }
        CHECK_INT(
            pb_decompress_all(codec, compression, small, length, WHOLE_BYTES - 1, &memory, &capacity, &back, NULL),
            -ENOSPC);
        if (compression != PB_COMPRESSION_NONE)
            CHECK_INT(
                pb_decompress_all(codec, compression, small, length - 9, WHOLE_BYTES, &memory, &capacity, &back, NULL),
                PB_INVALID_RECORD);
        free(memory);
    }
    free(plain);
    free(small);
    pb_codec_destroy(codec);
}

CHECK_MAIN()
