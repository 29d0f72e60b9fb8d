/* What the bare server answers fetches with: a file of record batches, made when somebody asks where it begins, which
 * stays in the page cache and which the kernel sends from there.
 *
 * One thread. Whatever fails ends the program.
 */
#ifndef PBL_BARE_HISTORY_H
#define PBL_BARE_HISTORY_H

#include <stddef.h>
#include <stdint.h>

/* Zero-initialise: it is empty. */
struct pbl_history {
    int fd;
    size_t batch_bytes; /* all batches are of one size */
    int64_t batch_record_count;
    int64_t end_offset;
};

/* Bytes of the file. */
struct pbl_extent {
    size_t position;
    size_t bytes;
};

/* Have it made, unless it is there. */
void pbl_history_make(struct pbl_history *history);

/* Where the whole batches lie that `offset` begins, as many as `most_bytes` allow; at least one, unless it is the end.
 */
struct pbl_extent pbl_history_find(const struct pbl_history *history, int64_t offset, int32_t most_bytes);

/* Send them to a socket, and wait until it has taken all; one that has gone takes nothing. */
void pbl_history_send(const struct pbl_history *history, int socket, struct pbl_extent extent);

#endif
