"""CPU time of the process that listens on a port of this machine, from /proc. Hidden facts are None."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LISTEN = "0A"
_NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def listening_pid(port: int, proc: Path = Path("/proc")) -> int | None:
    """The id of the process that listens there; None where it is another user's and hidden."""
    wanted = {f"socket:[{inode}]" for table in ("net/tcp", "net/tcp6") for inode in _inodes(proc / table, port)}
    if not wanted:
        return None
    for entry in proc.iterdir():
        if entry.name.isdigit() and any(link in wanted for link in _links(entry / "fd")):
            return int(entry.name)
    return None


def cpu_ns(pid: int, proc: Path = Path("/proc")) -> int:
    """User and system time of all its threads. OSError when it is gone."""
    fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _NS_PER_TICK


def _inodes(table: Path, port: int) -> list[str]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return []
    rows = [line.split() for line in lines]
    return [row[9] for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == port]


def _links(directory: Path) -> list[str]:
    links = []
    try:
        for name in os.listdir(directory):
            with suppress(FileNotFoundError):  # closed meanwhile
                links.append(os.readlink(directory / name))
    except OSError:  # not ours to see, or the process is gone
        return []
    return links
