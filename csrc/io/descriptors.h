/*
 * The process's file descriptors, shared between logs and clients. Process-wide; any thread.
 *
 * RLIMIT_NOFILE counts both. Without a bound of their own, either would take the last descriptor: then no connection is
 * accepted any more, or no segment is begun. So files leave a reserve to connections, and connections leave one to
 * files; beyond the reserves, whoever comes first has it. Some descriptors are kept for everything else. Files that
 * only make things faster stay below those that a log cannot do without.
 */
#ifndef PB_IO_DESCRIPTORS_H
#define PB_IO_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

/* Share `limit` descriptors: `kept` are for other uses, and files and connections each leave the other `reserve`. A
 * limit of 0 is no bound, as at the start. */
void pb_descriptors_limit(int32_t limit, int32_t kept, int32_t reserve);

/* Count a file that is about to be opened. `extra`: it can be done without. False: it must not be. */
bool pb_descriptors_take_file(bool extra);
void pb_descriptors_give_file(void);
/* Would an extra file be refused? For files that stay open for readers, and are opened like others. */
bool pb_descriptors_are_scarce(void);
/* The same for a connection that was accepted. */
bool pb_descriptors_take_connection(void);
void pb_descriptors_give_connection(void);

/* How many logs may be open, each with one file, so that files are left for new segments and for readers. INT32_MAX:
 * any number. */
int32_t pb_descriptors_for_logs(void);
/* RLIMIT_NOFILE as it was told; 0: no bound. */
int32_t pb_descriptors_limit_told(void);

#endif
