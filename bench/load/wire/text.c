/* See text.h. */
#include "wire/text.h"

#include "client/client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { READ_BYTES = 1 << 20 };
static const size_t LIMIT_BYTES = 1u << 30;

static void read_file(struct pbl_buffer *bytes, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        pbl_fail("--payload-file %s: %s", path, strerror(errno));
    for (size_t got = 1; got > 0;) {
        if (bytes->size > LIMIT_BYTES)
            pbl_fail("--payload-file %s has more than %zu bytes; give a part of it", path, LIMIT_BYTES);
        pbl_buffer_reserve(bytes, READ_BYTES);
        got = fread(bytes->data + bytes->size, 1, READ_BYTES, file);
        bytes->size += got;
    }
    if (ferror(file))
        pbl_fail("--payload-file %s: %s", path, strerror(errno));
    fclose(file);
}

/* Gives whether there is any line; ends the program for one that is too long. */
static bool has_lines(const struct pbl_text *text, const char *path, uint32_t max_bytes)
{
    bool found = false;
    size_t length = 0;
    for (size_t i = 0; i < text->bytes.size; i++) {
        length = text->bytes.data[i] == '\n' ? 0 : length + 1;
        found = found || length > 0;
        if (length > max_bytes)
            pbl_fail(
                "--payload-file %s has a line of more than %u bytes at byte %zu; --record-bytes cuts the file into "
                "pieces of a size instead",
                path, max_bytes, i - length + 1);
    }
    return found;
}

void pbl_text_open(struct pbl_text *text, const char *path, uint32_t piece_bytes, uint32_t max_bytes)
{
    *text = (struct pbl_text){.piece_bytes = piece_bytes};
    read_file(&text->bytes, path);
    if (piece_bytes == 0 && !has_lines(text, path, max_bytes))
        pbl_fail("--payload-file %s has no line that is not empty", path);
    if (text->bytes.size < piece_bytes)
        pbl_fail("--payload-file %s has %zu bytes, less than a record of %u", path, text->bytes.size, piece_bytes);
}

void pbl_text_close(struct pbl_text *text)
{
    pbl_buffer_free(&text->bytes);
}

struct pbl_slice pbl_text_peek(struct pbl_text *text)
{
    const uint8_t *data = text->bytes.data;
    if (text->piece_bytes > 0) {
        if (text->bytes.size - text->position < text->piece_bytes)
            text->position = 0;
        return (struct pbl_slice){data + text->position, text->piece_bytes};
    }
    for (;;) {
        if (text->position >= text->bytes.size)
            text->position = 0;
        if (data[text->position] != '\n')
            break;
        text->position++;
    }
    size_t left = text->bytes.size - text->position;
    const uint8_t *end = memchr(data + text->position, '\n', left);
    return (struct pbl_slice){data + text->position, end ? (size_t)(end - data) - text->position : left};
}

void pbl_text_skip(struct pbl_text *text, struct pbl_slice piece)
{
    text->position += piece.size;
}
