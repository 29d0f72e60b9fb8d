/* Big-endian writer and bounds-checked reader for Kafka's wire format.
 *
 * Plain memory, no thread, no I/O. The writer grows and aborts the program when memory runs out. The reader never
 * leaves its slice: the first read past the end sets `failed`, and every later read gives zero, so that a parser checks
 * once, at its end.
 */
#ifndef PBL_WIRE_H
#define PBL_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing byte buffer; `data` is owned by it and moves when it grows. Zero-initialise; pbl_buffer_free releases. */
struct pbl_buffer {
    uint8_t *data;
    size_t size;
    size_t capacity;
};

void pbl_buffer_reserve(struct pbl_buffer *buffer, size_t more);
void pbl_buffer_free(struct pbl_buffer *buffer);
void pbl_put_bytes(struct pbl_buffer *buffer, const void *data, size_t size);
void pbl_put_i8(struct pbl_buffer *buffer, int8_t value);
void pbl_put_i16(struct pbl_buffer *buffer, int16_t value);
void pbl_put_i32(struct pbl_buffer *buffer, int32_t value);
void pbl_put_i64(struct pbl_buffer *buffer, int64_t value);
void pbl_put_uvarint(struct pbl_buffer *buffer, uint64_t value);
void pbl_put_varint(struct pbl_buffer *buffer, int64_t value);                    /* zigzag */
void pbl_put_string(struct pbl_buffer *buffer, const char *text);                 /* NULL writes a null string */
void pbl_put_compact_string(struct pbl_buffer *buffer, const char *text);         /* NULL writes a null string */
void pbl_put_i32_bytes(struct pbl_buffer *buffer, const void *data, size_t size); /* BYTES: int32 length first */

/* Overwrite an integer already written at `position`. */
void pbl_set_i32(uint8_t *at, int32_t value);
void pbl_set_i64(uint8_t *at, int64_t value);

int16_t pbl_load_i16(const uint8_t *at);
int32_t pbl_load_i32(const uint8_t *at);
int64_t pbl_load_i64(const uint8_t *at);

/* A cursor over bytes someone else owns. */
struct pbl_reader {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

/* Bytes inside the reader's slice; `data` is NULL for null. */
struct pbl_slice {
    const uint8_t *data;
    size_t size;
};

int8_t pbl_get_i8(struct pbl_reader *reader);
int16_t pbl_get_i16(struct pbl_reader *reader);
int32_t pbl_get_i32(struct pbl_reader *reader);
int64_t pbl_get_i64(struct pbl_reader *reader);
uint64_t pbl_get_uvarint(struct pbl_reader *reader);
struct pbl_slice pbl_get_bytes(struct pbl_reader *reader, size_t size);
struct pbl_slice pbl_get_string(struct pbl_reader *reader);        /* int16 length, nullable */
struct pbl_slice pbl_get_i32_bytes(struct pbl_reader *reader);     /* int32 length, nullable */
struct pbl_slice pbl_get_compact_bytes(struct pbl_reader *reader); /* compact string or bytes, nullable */
int32_t pbl_get_array_count(struct pbl_reader *reader);            /* null counts as 0 */
int32_t pbl_get_compact_array_count(struct pbl_reader *reader);    /* null counts as 0 */
void pbl_skip_tags(struct pbl_reader *reader);

#endif
