/*
 * `.pybroker_ring` in a log's directory: the log is hot, and its newest bytes may be in the ring that is named. A start
 * that finds the note, and not the ring, has lost records (storage/rings/ring_notes.py), and one that finds no note
 * need not ask what the file system accounts.
 *
 * Text: version, session, boot, name of the ring's file. Nothing is synced: a ring does not outlive the machine either.
 * Blocking calls of whoever holds the write token.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "log/engine/hot.h"
#include "log/state.h"

enum { NOTE_VERSION = 0, NOTE_BYTES = 512 };

static void format_hex(char *text, const uint8_t *bytes, size_t count)
{
    static const char DIGITS[] = "0123456789abcdef";
    for (size_t i = 0; i < count; i++) {
        text[2 * i] = DIGITS[bytes[i] >> 4];
        text[2 * i + 1] = DIGITS[bytes[i] & 15];
    }
    text[2 * count] = '\0';
}

int pb_log_note_ring(pb_log *log, const pb_tail_ring *ring)
{
    char session[2 * PB_RING_UUID_BYTES + 1];
    char boot[2 * PB_BOOT_ID_BYTES + 1];
    char text[NOTE_BYTES];
    format_hex(session, ring->header->session_id, PB_RING_UUID_BYTES);
    format_hex(boot, ring->header->boot_id, PB_BOOT_ID_BYTES);
    const char *slash = strrchr(ring->path, '/');
    int length = snprintf(text, sizeof(text), "%d %s %s %s\n", NOTE_VERSION, session, boot,
                          slash != NULL ? slash + 1 : ring->path);
    if (length < 0 || (size_t)length >= sizeof(text))
        return -ENAMETOOLONG;
    int rc = pb_log_write_aside(log, PB_RING_FILE, text, (size_t)length, false);
    return rc != 0 ? rc : pb_log_put_in_place(log, PB_RING_FILE);
}

int pb_log_forget_ring_note(pb_log *log)
{
    int rc = pb_log_unlink_file(log, PB_RING_FILE);
    return rc == -ENOENT ? 0 : rc;
}
