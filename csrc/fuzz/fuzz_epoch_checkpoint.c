/* Any text as leader-epoch-checkpoint: refused, or read into epochs that grow and that format and parse back. */
#include <stdlib.h>

#include "base/assert.h"
#include "log/derived/leader_epochs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pb_leader_epochs epochs;
    pb_leader_epochs_init(&epochs);
    if (pb_leader_epochs_parse(&epochs, (const char *)data, size) != 0) {
        PB_ASSERT(epochs.count == 0);
        return 0;
    }
    for (uint32_t i = 1; i < epochs.count; i++) {
        PB_ASSERT(epochs.entries[i].epoch > epochs.entries[i - 1].epoch);
        PB_ASSERT(epochs.entries[i].start_offset > epochs.entries[i - 1].start_offset);
    }
    size_t length;
    char *text = pb_leader_epochs_format(&epochs, &length);
    pb_leader_epochs again;
    pb_leader_epochs_init(&again);
    int rc = pb_leader_epochs_parse(&again, text, length);
    PB_ASSERT(rc == 0 && again.count == epochs.count);
    free(text);
    pb_leader_epochs_clear(&again);
    pb_leader_epochs_clear(&epochs);
    return 0;
}
