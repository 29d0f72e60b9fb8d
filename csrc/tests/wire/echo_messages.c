/*
 * Reads messages and writes them again, for a test that compares these codecs with the Python ones.
 *
 * stdin and stdout carry frames: name length (1 byte), name, version (int16), body length (int32), body; answered by
 * status (int32: 0 or an error of reader or writer), body length (int32), body. Exits 2 on a frame it does not
 * understand.
 */
#include <stdio.h>
#include <stdlib.h>

#include "wire/generated/fetch_request.h"
#include "wire/generated/fetch_response.h"
#include "wire/generated/list_offsets_request.h"
#include "wire/generated/list_offsets_response.h"
#include "wire/generated/produce_request.h"
#include "wire/generated/produce_response.h"
#include "wire/generated/request_header.h"
#include "wire/generated/response_header.h"

#define LIMIT_BYTES (64u << 20)

typedef int (*echo_function)(pb_reader *reader, int16_t version, pb_arena *arena, pb_writer *writer);

#define ECHO(message)                                                                                 \
    static int echo_##message(pb_reader *reader, int16_t version, pb_arena *arena, pb_writer *writer) \
    {                                                                                                 \
        pb_##message body;                                                                            \
        const int result = pb_##message##_read(reader, version, arena, &body);                        \
        return result != 0 ? result : pb_##message##_write(writer, version, &body);                   \
    }

ECHO(request_header)
ECHO(response_header)
ECHO(produce_request)
ECHO(produce_response)
ECHO(fetch_request)
ECHO(fetch_response)
ECHO(list_offsets_request)
ECHO(list_offsets_response)

static const struct {
    const char *name;
    echo_function echo;
} messages[] = {
    {"RequestHeader", echo_request_header},
    {"ResponseHeader", echo_response_header},
    {"ProduceRequest", echo_produce_request},
    {"ProduceResponse", echo_produce_response},
    {"FetchRequest", echo_fetch_request},
    {"FetchResponse", echo_fetch_response},
    {"ListOffsetsRequest", echo_list_offsets_request},
    {"ListOffsetsResponse", echo_list_offsets_response},
};

static void read_exactly(void *out, size_t count)
{
    if (fread(out, 1, count, stdin) != count)
        exit(2);
}

static uint32_t read_be(size_t count)
{
    uint8_t bytes[4];
    uint32_t value = 0;
    read_exactly(bytes, count);
    for (size_t i = 0; i < count; i++)
        value = value << 8 | bytes[i];
    return value;
}

static void answer(int status, const pb_writer *writer)
{
    const size_t length = status == 0 ? writer->length : 0;
    const uint32_t head[2] = {htobe32((uint32_t)status), htobe32((uint32_t)length)};
    fwrite(head, 1, sizeof(head), stdout);
    if (length > 0)
        fwrite(writer->data, 1, length, stdout);
}

static void echo_one(const char *name, int16_t version, const uint8_t *body, size_t length)
{
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        if (strcmp(messages[i].name, name) != 0)
            continue;
        pb_arena arena;
        pb_arena_init(&arena, LIMIT_BYTES);
        pb_writer writer;
        pb_writer_init(&writer, LIMIT_BYTES);
        pb_reader reader = pb_reader_of(body, length);
        int status = messages[i].echo(&reader, version, &arena, &writer);
        if (status == 0 && pb_reader_left(&reader) != 0)
            status = -EMSGSIZE;
        answer(status, &writer);
        pb_writer_free(&writer);
        pb_arena_free(&arena);
        return;
    }
    exit(2);
}

int main(void)
{
    for (int name_length = getchar(); name_length != EOF; name_length = getchar()) {
        char name[256] = {0};
        read_exactly(name, (size_t)name_length);
        const int16_t version = (int16_t)read_be(2);
        const uint32_t length = read_be(4);
        if (length > LIMIT_BYTES)
            exit(2);
        uint8_t *body = malloc(length); /* no longer than the body, so that a sanitizer sees a read beyond it */
        if (body == NULL && length > 0)
            exit(2);
        read_exactly(body, length);
        echo_one(name, version, body, length);
        free(body);
    }
    return 0;
}
