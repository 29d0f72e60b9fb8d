/*
 * Assertions that stay on. A broken invariant in a broker is worse than a stopped one: recovery handles the stop.
 * Use them in pairs: where a value is made and where it is relied upon.
 */
#ifndef PB_BASE_ASSERT_H
#define PB_BASE_ASSERT_H

/* Print the place and the broken expression to stderr and abort. */
_Noreturn void pb_assert_failed(const char *expression, const char *file, int line);

#define PB_ASSERT(expression) \
    (__builtin_expect(!!(expression), 1) ? (void)0 : pb_assert_failed(#expression, __FILE__, __LINE__))

#endif
