/* A file whose pieces become the values of records: real text compresses as a user's records do.
 *
 * Read whole before the clock starts. A file that cannot be read or has nothing usable ends the program.
 */
#ifndef PBL_TEXT_H
#define PBL_TEXT_H

#include "wire/wire.h"

struct pbl_text {
    struct pbl_buffer bytes;
    size_t position;      /* of the next piece */
    uint32_t piece_bytes; /* 0: each line is a piece, empty ones left out */
};

/* Read the file at `path`. `piece_bytes` is as in the structure; `max_bytes` is the most that a line may have. */
void pbl_text_open(struct pbl_text *text, const char *path, uint32_t piece_bytes, uint32_t max_bytes);
void pbl_text_close(struct pbl_text *text);

/* The next piece, which stays the next until it is skipped; after the last one it goes on with the first. */
struct pbl_slice pbl_text_peek(struct pbl_text *text);
void pbl_text_skip(struct pbl_text *text, struct pbl_slice piece);

#endif
