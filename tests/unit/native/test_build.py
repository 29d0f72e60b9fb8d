"""What cffi gets to see of a C header."""

from cffi import FFI

from pybroker.native.build import declarations

HEADER = """\
/* A header
 * of two lines. */
#ifndef TRIAL_H
#define TRIAL_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#define TRIAL_VERSION 7u // a constant
#define TRIAL_TEXT_BYTES 0x10 /* another */
#define TRIAL_NONE (-1)
#define TRIAL_FUNCTION(x) \\
    ((x) + 1)
typedef struct trial { int code; /* inline */ char text[TRIAL_TEXT_BYTES]; } trial;
_Static_assert(sizeof(trial) == 20, "packed");
int trial_fail(trial *failure, const char *format, ...) __attribute__((format(printf, 2, 3)));
PB_API uint32_t trial_version(void);
#ifdef __cplusplus
}
#endif
#endif
"""


def test_a_header_becomes_declarations_cffi_can_parse() -> None:
    ffi = FFI()
    ffi.cdef(declarations(HEADER))
    assert ffi.sizeof("trial") == 20
    assert ffi.typeof("uint32_t(*)(void)").result.cname == "uint32_t"


def test_integer_macros_stay_and_function_macros_go() -> None:
    text = declarations(HEADER)
    assert "#define TRIAL_VERSION 7\n" in text
    assert "#define TRIAL_TEXT_BYTES 0x10\n" in text
    assert "#define TRIAL_NONE -1\n" in text
    assert "TRIAL_FUNCTION" not in text
    assert "TRIAL_H" not in text


def test_line_numbers_are_kept() -> None:
    assert declarations(HEADER).split("\n")[13].startswith("typedef struct trial")
    assert declarations(HEADER).count("\n") == HEADER.count("\n")
