"""Processes of this machine as /proc shows them: who listens where, limits, open files, state.

Nothing fails: what this user may not see, or has just ended, is empty or None.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

_PROC = Path("/proc")
_LISTENING = "0A"
_COMMAND_CHARACTERS = 100
STOPPED_STATES = {"T": "stopped by a signal (SIGSTOP)", "t": "stopped by a debugger"}


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of one resource; None is unlimited."""

    soft: int | None
    hard: int | None


def command_of(pid: int) -> str:
    """Its command line, cut where it is long; its name where that is empty."""
    words = _text(_PROC / str(pid) / "cmdline").replace("\0", " ").strip()
    return words[:_COMMAND_CHARACTERS] or _text(_PROC / str(pid) / "comm").strip() or "a process that has ended"


def state_of(pid: int) -> str:
    """One letter as proc_pid_stat(5) has it; empty when there is no such process."""
    fields = _text(_PROC / str(pid) / "stat").rpartition(")")[2].split()
    return fields[0] if fields else ""


def limit_of(pid: int, name: str) -> Limit | None:
    """A line of /proc/PID/limits, such as `Max open files`."""
    for line in _text(_PROC / str(pid) / "limits").splitlines():
        if line.startswith(name):
            soft, hard = line.removeprefix(name).split()[:2]
            return Limit(*(None if text == "unlimited" else int(text) for text in (soft, hard)))
    return None


def open_file_count(pid: int) -> int | None:
    """Open descriptors; None where this user may not look."""
    try:
        return len(os.listdir(_PROC / str(pid) / "fd"))
    except OSError:
        return None


def listening(pid: int) -> set[tuple[str, int]]:
    """Addresses and ports that a process accepts connections on."""
    inodes = _sockets(pid)
    return {(host, port) for host, port, inode in _listeners() if inode in inodes}


def listeners_on(port: int) -> list[tuple[str, int | None]]:
    """The listeners on a TCP port: address, and pid where this user may see it."""
    found = [(host, inode) for host, each, inode in _listeners() if each == port]
    owners = _owners({inode for _, inode in found}) if found else {}
    return [(host, owners.get(inode)) for host, inode in found]


def _owners(inodes: set[str]) -> dict[str, int]:
    owners: dict[str, int] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            owners.update(dict.fromkeys(inodes & _sockets(int(entry.name)), int(entry.name)))
    return owners


def _sockets(pid: int) -> set[str]:
    """Inodes of its sockets."""
    found: set[str] = set()
    directory = _PROC / str(pid) / "fd"
    try:
        names = os.listdir(directory)
    except OSError:
        return found
    for name in names:
        try:
            target = os.readlink(directory / name)
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[len("socket:[") : -1])
    return found


def _listeners() -> list[tuple[str, int, str]]:
    """(address, port, inode) of every listening socket of this network namespace."""
    found = []
    for name in ("tcp", "tcp6"):
        for line in _text(_PROC / "net" / name).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENING:
                host, _, port = fields[1].partition(":")
                found.append((_address(host), int(port, 16), fields[9]))
    return found


def _address(text: str) -> str:
    """The kernel prints words of 32 bits in its own byte order."""
    data = b"".join(int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8))
    return str(IPv4Address(data) if len(data) == 4 else IPv6Address(data))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
