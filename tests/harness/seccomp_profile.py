"""Runs a command under a seccomp profile for containers, in the format of OCI runtimes, as such a runtime would.

    python -m tests.harness.seccomp_profile deploy/seccomp.json -- pybroker serve …

No root is needed, and no runtime. It knows what our profile uses: one action for all other calls, calls that are
allowed or refused with an error, and one condition on an argument. What can fail: ValueError for a profile that has
more.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pybroker.testing.seccomp import call_number

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_RET_ERRNO, _RET_ALLOW = 0x00050000, 0x7FFF0000
_LOAD, _AND, _JUMP_EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06
_ARGUMENTS_POSITION = 16
_INSTRUCTION = struct.Struct("=HBBI")
#: Newer than the headers of some distributions that we build on.
_NEW_CALLS = ("cachestat",)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def call_numbers() -> dict[str, int]:
    """All system calls of this machine, by name, as its C headers have them."""
    command = ["cc", "-E", "-dM", "-include", "sys/syscall.h", "-x", "c", "/dev/null"]
    macros = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {name: int(number) for name, number in re.findall(r"^#define __NR_(\w+) (\d+)$", macros, re.MULTILINE)}
    return {**{name: call_number(name) for name in _NEW_CALLS}, **found}


def allowed_calls(profile: Mapping[str, Any]) -> set[str]:
    """Those that the profile allows, some of them only with some arguments."""
    return {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}


def program_of(profile: Mapping[str, Any], numbers: Mapping[str, int]) -> bytes:
    """The profile as a filter for the kernel. Calls that this machine does not have are left out."""
    instructions = [_INSTRUCTION.pack(_LOAD, 0, 0, 0)]
    for rule in profile["syscalls"]:
        body = _condition(rule.get("args", [])) + _INSTRUCTION.pack(_RETURN, 0, 0, _action(rule["action"], rule))
        length = len(body) // _INSTRUCTION.size
        for name in rule["names"]:
            if name in numbers:
                instructions += [_INSTRUCTION.pack(_JUMP_EQUAL, 0, length, numbers[name]), body]
                if rule.get("args"):
                    instructions.append(_INSTRUCTION.pack(_LOAD, 0, 0, 0))
    default = _action(profile["defaultAction"], {"errnoRet": profile.get("defaultErrnoRet", 1)})
    return b"".join([*instructions, _INSTRUCTION.pack(_RETURN, 0, 0, default)])


def _action(action: str, rule: Mapping[str, Any]) -> int:
    if action == "SCMP_ACT_ALLOW":
        return _RET_ALLOW
    if action == "SCMP_ACT_ERRNO":
        return _RET_ERRNO | int(rule.get("errnoRet", 1))
    raise ValueError(f"{action} is not known here")


def _condition(arguments: Sequence[Mapping[str, Any]]) -> bytes:
    """Instructions that leave the rule's body, one instruction long, out where an argument is another one."""
    if not arguments:
        return b""
    (argument,) = arguments
    if argument["op"] != "SCMP_CMP_MASKED_EQ":
        raise ValueError(f"{argument['op']} is not known here")
    # The lower half: flags of clone(2) are no longer than that.
    position = _ARGUMENTS_POSITION + 8 * argument["index"]
    return (
        _INSTRUCTION.pack(_LOAD, 0, 0, position)
        + _INSTRUCTION.pack(_AND, 0, 0, argument["value"])
        + _INSTRUCTION.pack(_JUMP_EQUAL, 0, 1, argument["valueTwo"])
    )


def main(arguments: Sequence[str]) -> None:
    """Become the command behind `--`, under the profile before it."""
    path, separator, *command = arguments
    if separator != "--" or not command:
        raise SystemExit("seccomp_profile PROFILE -- COMMAND…")
    program = program_of(json.loads(Path(path).read_text()), call_numbers())
    libc = ctypes.CDLL(None, use_errno=True)
    filter_ = _Program(len(program) // _INSTRUCTION.size, program)
    for call in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0),
    ):
        if libc.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
