/*
 * Finding the frames of Kafka's protocol in a stream: four bytes of length, big-endian, then so many bytes.
 *
 * The first bytes of a frame are kept, so that whoever counts frames can look at them. Not thread safe; cannot fail: a
 * length that is not sane counts as a frame's without an end.
 */
#ifndef PB_MEASURE_FRAME_H
#define PB_MEASURE_FRAME_H

#include <stdint.h>
#include <string.h>

#define PB_FRAME_PREFIX_BYTES 4
#define PB_FRAME_HEAD_BYTES 128

/* Zeroed before the first use. */
typedef struct pb_frame_reader {
    uint8_t head[PB_FRAME_HEAD_BYTES]; /* of the frame at hand, behind its length */
    int64_t length;                    /* of the frame at hand, once its prefix is whole */
    int64_t got;                       /* of it, prefix included */
    uint8_t prefix[PB_FRAME_PREFIX_BYTES];
    /* Called for each frame that is whole; may be NULL. */
    void (*done)(struct pb_frame_reader *reader);
} pb_frame_reader;

static inline int64_t pb_frame_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Take `length` bytes of the stream; how many frames ended in them. */
static inline int64_t pb_frame_read(pb_frame_reader *reader, const uint8_t *bytes, int64_t length)
{
    int64_t frames = 0;
    while (length > 0) {
        int64_t taken;
        if (reader->got < PB_FRAME_PREFIX_BYTES) {
            taken = pb_frame_min(length, PB_FRAME_PREFIX_BYTES - reader->got);
            memcpy(reader->prefix + reader->got, bytes, (size_t)taken);
            const uint8_t *p = reader->prefix;
            reader->length = (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | p[3];
        } else {
            int64_t inside = reader->got - PB_FRAME_PREFIX_BYTES;
            taken = pb_frame_min(length, reader->length - inside);
            if (inside < PB_FRAME_HEAD_BYTES)
                memcpy(reader->head + inside, bytes, (size_t)pb_frame_min(taken, PB_FRAME_HEAD_BYTES - inside));
        }
        reader->got += taken;
        bytes += taken;
        length -= taken;
        if (reader->got >= PB_FRAME_PREFIX_BYTES && reader->got - PB_FRAME_PREFIX_BYTES == reader->length) {
            frames++;
            if (reader->done != NULL)
                reader->done(reader);
            reader->got = 0;
        }
    }
    return frames;
}

#endif
