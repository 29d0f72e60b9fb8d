"""Runs a command where the kernel refuses some system calls, as containers, hardened machines and old kernels do.

    python -m pybroker.testing.seccomp io_uring_setup=EPERM cachestat=ENOSYS -- pybroker serve …

The filter is on this process when it becomes the command, and on all of its children; no root is needed. A call may be
refused for a flag alone: `pwritev2:RWF_DONTCACHE=EOPNOTSUPP`. Failures: ValueError for an unknown name.

`hand_over` leaves the decision to another process instead, call by call.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable, Sequence

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_RET_ERRNO, _RET_ALLOW, _RET_USER_NOTIF = 0x00050000, 0x7FFF0000, 0x7FC00000
_SECCOMP_SET_MODE_FILTER = 1
#: For all threads; with a descriptor that tells of calls; an error instead of the id of a thread that is in the way.
_FILTER_FLAGS = 1 << 0 | 1 << 3 | 1 << 4
#: BPF: load a word of seccomp_data; jump by comparison, by mask; return (linux/bpf_common.h, linux/seccomp.h).
_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_POSITION, _ARGUMENTS_POSITION = 0, 16
_FLAGS_ARGUMENT = 5  # of preadv2 and pwritev2
_INSTRUCTION = struct.Struct("=HBBI")

#: By machine; the same numbers everywhere for those that came after Linux 5.0.
_CALLS = {
    "seccomp": {"x86_64": 317, "aarch64": 277},
    "fsync": {"x86_64": 74, "aarch64": 82},
    "fdatasync": {"x86_64": 75, "aarch64": 83},
    "syncfs": {"x86_64": 306, "aarch64": 267},
    "pwrite64": {"x86_64": 18, "aarch64": 68},
    "pwritev": {"x86_64": 296, "aarch64": 70},
    "io_uring_setup": {"x86_64": 425, "aarch64": 425},
    "io_uring_enter": {"x86_64": 426, "aarch64": 426},
    "io_uring_register": {"x86_64": 427, "aarch64": 427},
    "cachestat": {"x86_64": 451, "aarch64": 451},
    "preadv2": {"x86_64": 327, "aarch64": 286},
    "pwritev2": {"x86_64": 328, "aarch64": 287},
}
_FLAGS = {"RWF_NOWAIT": 0x8, "RWF_DONTCACHE": 0x80}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse(rules: Sequence[str]) -> None:
    """From now on this process, and whatever it starts, gets the errors. `rules` as on the command line."""
    libc, filter_ = _prepared(_rule(each) for each in rules)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def call_number(name: str) -> int:
    """The number of a system call on this machine's kernel."""
    return _CALLS[name][platform.machine()]


def hand_over(calls: Sequence[str]) -> int:
    """From now on these calls, of any thread of this process, wait for a verdict of the process that has the returned
    descriptor (seccomp_unotify(2)). Without it they fail with ENOSYS. OSError where it is forbidden."""
    notify = _INSTRUCTION.pack(_RETURN, 0, 0, _RET_USER_NOTIF)
    libc, filter_ = _prepared(_when_called(each, notify) for each in calls)
    listener = int(libc.syscall(call_number("seccomp"), _SECCOMP_SET_MODE_FILTER, _FILTER_FLAGS, ctypes.byref(filter_)))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "system calls cannot be handed over: seccomp")
    return listener


def _prepared(rules: Iterable[bytes]) -> tuple[ctypes.CDLL, _Program]:
    """The C library, and a filter of these rules that allows the rest, which this process may now put on itself."""
    program = b"".join(rules) + _INSTRUCTION.pack(_RETURN, 0, 0, _RET_ALLOW)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    return libc, _Program(len(program) // _INSTRUCTION.size, program)


def _when_called(call: str, body: bytes) -> bytes:
    """These instructions for that call alone."""
    skipped = len(body) // _INSTRUCTION.size
    return (
        _INSTRUCTION.pack(_LOAD, 0, 0, _NUMBER_POSITION)
        + _INSTRUCTION.pack(_JUMP_EQUAL, 0, skipped, call_number(call))
        + body
    )


def _rule(text: str) -> bytes:
    """`call=ERRNO` or `call:FLAG=ERRNO` as instructions that fall through where they do not apply."""
    what, _, error = text.partition("=")
    call, _, flag = what.partition(":")
    if call not in _CALLS or (flag and flag not in _FLAGS) or not hasattr(errno, error):
        raise ValueError(
            f"{text!r} is no rule; it can be {', '.join(_CALLS)}, with :{' or :'.join(_FLAGS)}, and =ERRNO"
        )
    refusal = _INSTRUCTION.pack(_RETURN, 0, 0, _RET_ERRNO | int(getattr(errno, error)))
    body = refusal
    if flag:
        position = _ARGUMENTS_POSITION + 8 * _FLAGS_ARGUMENT
        body = _INSTRUCTION.pack(_LOAD, 0, 0, position) + _INSTRUCTION.pack(_JUMP_ANY_BIT, 0, 1, _FLAGS[flag]) + refusal
    return _when_called(call, body)


def main(arguments: Sequence[str]) -> None:
    """Become the command behind `--`, under the rules before it."""
    end = arguments.index("--")
    refuse(arguments[:end])
    command = list(arguments[end + 1 :])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
