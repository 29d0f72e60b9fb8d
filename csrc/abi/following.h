/* Between the files behind pybroker.h. */
#ifndef PB_ABI_FOLLOWING_H
#define PB_ABI_FOLLOWING_H

#include "server/follow/fetcher.h"

/* The partition follows no more, if it did, and its fetcher hears of it. Blocking. */
void pb_abi_end_following(pb_partition *partition);

#endif
