/*
 * Checks for C tests: header only, one executable per test file, no framework.
 *
 *     #include "tests/check.h"
 *
 *     TEST(an_empty_queue_has_no_head) {
 *         CHECK(queue_head(&queue) == NULL);
 *         CHECK_INT(queue_length(&queue), 0);
 *     }
 *
 *     CHECK_MAIN()
 *
 * A TEST registers itself, so none can be forgotten. Cases run in the order of the file; `./test_queue name` runs the
 * cases whose name contains `name`. The first failed check prints what was expected and ends the executable with
 * status 1, because a state that surprised us once is no ground to go on from. Checks may be made from any thread.
 */
#ifndef PB_TESTS_CHECK_H
#define PB_TESTS_CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_CASE_LIMIT = 512 };

typedef struct check_case {
    const char *name;
    void (*run)(void);
} check_case;

static check_case check_cases[CHECK_CASE_LIMIT];
static size_t check_case_count;
static const char *check_running = "(before the first case)";

__attribute__((noreturn, format(printf, 3, 4), unused)) static void check_fail(const char *file, int line,
                                                                               const char *format, ...)
{
    char what[2048];
    __builtin_va_list arguments;
    __builtin_va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    __builtin_va_end(arguments);
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, check_running, what);
    fflush(NULL);
    _Exit(1);
}

static inline void check_register(const char *name, void (*run)(void))
{
    if (check_case_count == CHECK_CASE_LIMIT) {
        check_fail(__FILE__, __LINE__, "more than %d cases in one file: split it", CHECK_CASE_LIMIT);
    }
    check_cases[check_case_count++] = (check_case){name, run};
}

static inline void check_memory(const char *file, int line, const char *what, const void *actual, const void *expected,
                                size_t length_bytes)
{
    const uint8_t *a = actual;
    const uint8_t *e = expected;
    for (size_t i = 0; i < length_bytes; i++) {
        if (a[i] != e[i]) {
            check_fail(file, line, "%s: byte %zu of %zu is 0x%02x, expected 0x%02x", what, i, length_bytes, a[i], e[i]);
        }
    }
}

static inline void check_string(const char *file, int line, const char *what, const char *actual, const char *expected)
{
    if (actual == NULL || expected == NULL ? actual != expected : strcmp(actual, expected) != 0) {
        check_fail(file, line, "%s is \"%s\", expected \"%s\"", what, actual != NULL ? actual : "(null)",
                   expected != NULL ? expected : "(null)");
    }
}

static inline int check_run_all(int argument_count, char **arguments)
{
    size_t ran = 0;
    for (size_t i = 0; i < check_case_count; i++) {
        if (argument_count > 1 && strstr(check_cases[i].name, arguments[1]) == NULL) {
            continue;
        }
        check_running = check_cases[i].name;
        check_cases[i].run();
        ran++;
    }
    if (ran == 0) {
        fprintf(stderr, "%s: no case %s%s\n", arguments[0], argument_count > 1 ? "is named like " : "is in the file",
                argument_count > 1 ? arguments[1] : "");
        return 1;
    }
    return 0;
}

#define TEST(name)                                                 \
    static void test_##name(void);                                 \
    __attribute__((constructor)) static void register_##name(void) \
    {                                                              \
        check_register(#name, test_##name);                        \
    }                                                              \
    static void test_##name(void)

#define CHECK_MAIN()                                     \
    int main(int argument_count, char **arguments)       \
    {                                                    \
        return check_run_all(argument_count, arguments); \
    }

/* The condition holds. */
#define CHECK(condition)                                               \
    do {                                                               \
        if (!(condition)) {                                            \
            check_fail(__FILE__, __LINE__, "expected %s", #condition); \
        }                                                              \
    } while (0)

/* Two integers of any type up to 64 bits are equal; both are printed. */
#define CHECK_INT(actual, expected)                                                                       \
    do {                                                                                                  \
        const int64_t check_actual = (int64_t)(actual);                                                   \
        const int64_t check_expected = (int64_t)(expected);                                               \
        if (check_actual != check_expected) {                                                             \
            check_fail(__FILE__, __LINE__, "%s is %" PRId64 ", expected %" PRId64, #actual, check_actual, \
                       check_expected);                                                                   \
        }                                                                                                 \
    } while (0)

/* Two C strings are equal; NULL equals only NULL. */
#define CHECK_STR(actual, expected) check_string(__FILE__, __LINE__, #actual, actual, expected)

/* Two ranges of `length_bytes` are equal; the first byte that differs is printed. */
#define CHECK_MEM(actual, expected, length_bytes) \
    check_memory(__FILE__, __LINE__, #actual, actual, expected, length_bytes)

#endif
