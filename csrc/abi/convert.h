/* Between the structs of pybroker.h and those of the layers below. */
#ifndef PB_ABI_CONVERT_H
#define PB_ABI_CONVERT_H

#include "pybroker.h"
#include "server/broker.h"

/* Copy a failure out (`out` may be NULL); returns `code`. */
int32_t pb_abi_fail(pb_native_failure *out, const pb_failure *failure, int code);
/* Log what a call on a partition's log has to say that succeeded, if it says something. */
void pb_abi_tell(pb_partition *partition, const pb_failure *said, int code);
/* The caught_up of a partition: an event for Python. */
void pb_abi_report_caught_up(pb_partition *partition, int32_t replica_id);

#endif
