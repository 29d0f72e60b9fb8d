"""Runs a command where the kernel refuses some system calls, as containers, hardened machines and old kernels do.

    python -m pybroker.testing.seccomp io_uring_setup=EPERM cachestat=ENOSYS -- pybroker serve …

The filter is on this process when it becomes the command, and on all of its children; no root is needed. A call may be
refused for a flag alone: `pwritev2:RWF_DONTCACHE=EOPNOTSUPP`. What can fail: ValueError for an unknown name.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_RET_ERRNO, _RET_ALLOW = 0x00050000, 0x7FFF0000
#: BPF: load a word of seccomp_data; jump by comparison, by mask; return (linux/bpf_common.h, linux/seccomp.h).
_LOAD, _JUMP_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_POSITION, _ARGUMENTS_POSITION = 0, 16
_FLAGS_ARGUMENT = 5  # of preadv2 and pwritev2
_INSTRUCTION = struct.Struct("=HBBI")

#: By machine; the same numbers everywhere for those that came after Linux 5.0.
_CALLS = {
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
    program = b"".join(_rule(each) for each in rules) + _INSTRUCTION.pack(_RETURN, 0, 0, _RET_ALLOW)
    libc = ctypes.CDLL(None, use_errno=True)
    filter_ = _Program(len(program) // _INSTRUCTION.size, program)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0),
    ):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


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
    number = _CALLS[call][platform.machine()]
    skipped = len(body) // _INSTRUCTION.size
    return _INSTRUCTION.pack(_LOAD, 0, 0, _NUMBER_POSITION) + _INSTRUCTION.pack(_JUMP_EQUAL, 0, skipped, number) + body


def main(arguments: Sequence[str]) -> None:
    """Become the command behind `--`, under the rules before it."""
    end = arguments.index("--")
    refuse(arguments[:end])
    command = list(arguments[end + 1 :])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
