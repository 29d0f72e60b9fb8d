/* Result codes in words. Any thread; no allocation, so it can report a failed one. */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool pb_error_passes(int code)
{
    switch (code) {
    case -ENOSPC:
    case -EDQUOT:
    case -EFBIG:
    case -ENOMEM:
    case -EMFILE:
    case -ENFILE:
    case -EAGAIN:
    case -EBUSY:
        return true;
    default:
        return code >= 0;
    }
}

bool pb_error_is_full(int code)
{
    return code == -ENOSPC || code == -EDQUOT;
}

/* -EMEDIUMTYPE is what opening a file answers that is none; see file_open in io/io.h. */
static const char *reason_of(int code, char *buffer, size_t length)
{
    if (code == -EMEDIUMTYPE)
        return "a pipe, socket or device lies where a regular file has to be";
    return strerror_r(-code, buffer, length);
}

int pb_fail(pb_failure *failure, int code, const char *format, ...)
{
    if (failure == NULL)
        return code;
    failure->code = code;
    va_list args;
    va_start(args, format);
    int used = vsnprintf(failure->text, sizeof failure->text, format, args);
    va_end(args);
    if (used < 0)
        used = 0;
    if (code < 0 && (size_t)used < sizeof failure->text) {
        char buffer[128];
        const char *reason = reason_of(code, buffer, sizeof buffer);
        snprintf(failure->text + used, sizeof failure->text - (size_t)used, ": %s", reason);
    }
    return code;
}
