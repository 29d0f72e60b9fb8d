/* The count of file descriptors of either side. See descriptors.h. */
#include "io/descriptors.h"

#include <stdatomic.h>

#include "base/assert.h"

#define EXTRA_SHARE 16 /* such a part of the files is not for extra ones, */
#define SPARE_SHARE 8  /* and such a part, */
#define SPARE_LEAST 16 /* but at least so many, */
#define SPARE_MOST \
    512 /* and at most so many, are not for the logs' first ones: to open a log takes others for a moment */

static _Atomic int32_t limit_told, kept_count, reserve_count;
static _Atomic int32_t file_count, connection_count;

void pb_descriptors_limit(int32_t limit, int32_t kept, int32_t reserve)
{
    PB_ASSERT(limit >= 0 && kept >= 0 && reserve >= 0);
    PB_ASSERT(limit == 0 || (int64_t)kept + 2 * (int64_t)reserve <= limit);
    atomic_store(&kept_count, kept);
    atomic_store(&reserve_count, reserve);
    atomic_store(&limit_told, limit);
}

/* How many one side may have while the other has `others`. */
static int32_t most_beside(int32_t others)
{
    int32_t limit = atomic_load(&limit_told), reserve = atomic_load(&reserve_count);
    if (limit == 0)
        return INT32_MAX;
    return limit - atomic_load(&kept_count) - (others > reserve ? others : reserve);
}

/* How many files may be open before the last ones are kept for what a log cannot do without. */
static int32_t extra_files(int32_t most)
{
    return most - most / EXTRA_SHARE;
}

bool pb_descriptors_are_scarce(void)
{
    int32_t most = most_beside(atomic_load(&connection_count));
    return most != INT32_MAX && atomic_load(&file_count) >= extra_files(most);
}

bool pb_descriptors_take_file(bool extra)
{
    int32_t most = most_beside(atomic_load(&connection_count));
    if (extra)
        most = extra_files(most);
    if (atomic_fetch_add(&file_count, 1) < most)
        return true;
    atomic_fetch_sub(&file_count, 1);
    return false;
}

void pb_descriptors_give_file(void)
{
    int32_t before = atomic_fetch_sub(&file_count, 1);
    PB_ASSERT(before > 0);
}

bool pb_descriptors_take_connection(void)
{
    if (atomic_fetch_add(&connection_count, 1) < most_beside(atomic_load(&file_count)))
        return true;
    atomic_fetch_sub(&connection_count, 1);
    return false;
}

void pb_descriptors_give_connection(void)
{
    int32_t before = atomic_fetch_sub(&connection_count, 1);
    PB_ASSERT(before > 0);
}

int32_t pb_descriptors_for_logs(void)
{
    int32_t most = most_beside(atomic_load(&connection_count));
    if (most == INT32_MAX)
        return most;
    int32_t spare = most / SPARE_SHARE;
    spare = spare < SPARE_LEAST ? SPARE_LEAST : spare > SPARE_MOST ? SPARE_MOST : spare;
    return most - (spare < most / 2 ? spare : most / 2);
}

int32_t pb_descriptors_limit_told(void)
{
    return atomic_load(&limit_told);
}
