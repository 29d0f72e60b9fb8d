/* See bare_history.h. */
#include "bare_history.h"

#include "batch.h"
#include "client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

/* As the comparisons fill a topic: more than a CPU's caches hold. */
enum { BATCH_BYTES = 64 << 10, RECORD_BYTES = 1024, HISTORY_BYTES = 512 << 20 };

static void write_all(int fd, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, data, size);
        if (written < 0 && errno != EINTR)
            pbl_fail("the bare server's records cannot be written: %s", strerror(errno));
        data += written > 0 ? written : 0;
        size -= written > 0 ? (size_t)written : 0;
    }
}

void pbl_history_make(struct pbl_history *history)
{
    if (history->end_offset > 0)
        return;
    FILE *file = tmpfile();
    if (!file)
        pbl_fail("the bare server's records cannot be written: %s", strerror(errno));
    struct pbl_batch_shape shape = {.batch_bytes = BATCH_BYTES, .record_bytes = RECORD_BYTES};
    struct pbl_batch_source source = {0};
    struct pbl_buffer batch = {0};
    size_t uncompressed_bytes;
    history->fd = fileno(file);
    history->batch_record_count = pbl_batch_append(&batch, &shape, &source, &uncompressed_bytes);
    history->batch_bytes = batch.size;
    for (size_t size = 0; size < HISTORY_BYTES; size += batch.size) {
        pbl_set_i64(batch.data, history->end_offset); /* its base offset, which the CRC does not cover */
        write_all(history->fd, batch.data, batch.size);
        history->end_offset += history->batch_record_count;
    }
    pbl_buffer_free(&batch);
}

struct pbl_extent pbl_history_find(const struct pbl_history *history, int64_t offset, int32_t most_bytes)
{
    if (offset < 0 || offset >= history->end_offset || most_bytes < 0)
        return (struct pbl_extent){0};
    size_t batch_count = (size_t)(history->end_offset / history->batch_record_count);
    size_t first = (size_t)(offset / history->batch_record_count);
    size_t count = (size_t)most_bytes / history->batch_bytes;
    if (count == 0)
        count = 1;
    if (count > batch_count - first)
        count = batch_count - first;
    return (struct pbl_extent){.position = first * history->batch_bytes, .bytes = count * history->batch_bytes};
}

void pbl_history_send(const struct pbl_history *history, int socket, struct pbl_extent extent)
{
    off_t position = (off_t)extent.position;
    off_t end = position + (off_t)extent.bytes;
    while (position < end) {
        ssize_t sent = sendfile(socket, history->fd, &position, (size_t)(end - position));
        if (sent < 0 && errno != EINTR)
            return; /* receiving will tell */
        if (sent == 0)
            pbl_fail("the bare server's records have become fewer");
    }
}
