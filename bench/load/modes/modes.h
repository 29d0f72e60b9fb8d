/* One function per mode: set up, run, print one JSON line; true when nothing failed. */
#ifndef PBL_MODES_H
#define PBL_MODES_H

#include "options.h"

#include <stdbool.h>

bool pbl_produce_mode(const struct pbl_options *options);
bool pbl_fetch_mode(const struct pbl_options *options);
bool pbl_offset_commit_mode(const struct pbl_options *options);
bool pbl_heartbeat_mode(const struct pbl_options *options);
bool pbl_metadata_mode(const struct pbl_options *options);
bool pbl_join_mode(const struct pbl_options *options);
bool pbl_tail_mode(const struct pbl_options *options);
bool pbl_idle_mode(const struct pbl_options *options);
/* The other side of them all: a server that does nothing. Runs until a signal ends it. */
bool pbl_bare_mode(const struct pbl_options *options);
/* Sees when the machine stands still; until a signal ends it. */
bool pbl_witness_mode(const struct pbl_options *options);
/* The stalls from now until the end of standard input, for what somebody else measures meanwhile. */
bool pbl_stalls_mode(const struct pbl_options *options);

#endif
