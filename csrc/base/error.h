/*
 * Result codes of the data plane.
 *
 * Every fallible function returns an int. 0 is success, a positive number is a Kafka protocol error code (the same
 * number that goes on the wire), and a negative number is -errno. A function that also has something to tell a person
 * fills a pb_failure, which the boundary turns into one Python exception.
 */
#ifndef PB_BASE_ERROR_H
#define PB_BASE_ERROR_H

#include <stdbool.h>
#include <stddef.h>

#define PB_FAILURE_TEXT_BYTES 512

/* The failure in words; its owner is the caller's stack frame. `code` follows the convention above. */
typedef struct pb_failure {
    int code;
    char text[PB_FAILURE_TEXT_BYTES];
} pb_failure;

/* Does a failure go away by itself, or by what people do: no room, no memory, no file handles, somebody else at work?
 * Any other -errno of a file says that the disk, or the file, is not what it was. */
bool pb_error_passes(int code);

/* Is the disk full, or the user's quota of it used up? Deleting and cutting files works all the same. */
bool pb_error_is_full(int code);

/* Fill `failure` (may be NULL) with a code and a printf-style text; a negative code gets strerror appended. Returns
 * `code`. */
int pb_fail(pb_failure *failure, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
