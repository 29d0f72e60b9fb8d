/* The end of the road for a broken invariant. */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void pb_assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "pybroker: assertion failed: %s (%s:%d)\n", expression, file, line);
    abort();
}
