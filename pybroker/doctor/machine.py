"""The machine below the broker: what `pybroker profile check` looks at, the extension, and room for tail rings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import Subject
from pybroker.profiles import choose_here
from pybroker.profiles.check import Status, check
from pybroker.profiles.check.probe import probe_here
from pybroker.profiles.sizes import format_bytes
from pybroker.storage.rings.tail_rings import RING_BYTES

_SEVERITIES = {Status.WARNING: Severity.WARNING, Status.ADVICE: Severity.ADVICE}
_IN_MEMORY = ("tmpfs", "ramfs")
_DIRECT = "direct"
#: `running` looks at the broker's own.
_OPEN_FILES = "open files"
#: By how a subject of the profile's checks begins.
_KINDS = {
    "file system": "file-system",
    "mount of": "mount-options",
    "scheduler": "scheduler",
    "control group": "control-group",
    "tail rings": "tail-ring-storage",
    "kernel": "kernel",
    "io_uring": "io-uring-refused",
    "O_DIRECT": "no-direct-io",
    "clock source": "clock-source",
    "CPU governor": "cpu-governor",
    "CPU": "no-crc32c",
    "NUMA": "numa",
    "transparent huge": "huge-pages",
    "dirty pages": "dirty-pages",
    "writeback": "writeback",
    "swap": "swap",
    "real-time": "no-real-time",
}


def _profile(subject: Subject) -> Iterator[Finding]:
    """Kernel, file systems, disks, memory, limits. The limits are those of this process."""
    choice = choose_here(subject.config)
    in_memory = {each.mount_point for each in choice.machine.storage if each.file_system in _IN_MEMORY}
    for each in check(choice, probe_here(choice.machine)):
        severity = _SEVERITIES.get(each.status)
        if severity is None or each.subject == _OPEN_FILES:
            continue
        kind = next((kind for start, kind in _KINDS.items() if each.subject.startswith(start)), "machine")
        if kind == "file-system" and each.subject.endswith(tuple(in_memory)):
            kind = "log-dir-in-memory"
        remedy = "" if each.remedy is None else each.remedy.fix
        if each.remedy is not None and each.remedy.keep:
            remedy += f" (to keep: {each.remedy.keep})"
        what = f"{each.found}; wanted: {each.wanted}"
        yield Finding(
            severity, kind, each.subject, what, each.why, remedy or "`docs/profiles.md` says what is looked at"
        )


def _ring_room(subject: Subject) -> Iterator[Finding]:
    """Room on the tmpfs of tail rings, whether or not it is big enough when empty."""
    if subject.pid is not None:
        return  # it has its rings
    choice = choose_here(subject.config)
    if choice.settings["append_engine"].value != _DIRECT:
        return
    directory = Path(subject.config.get_str("pybroker.tail.ring.directory"))
    budget_bytes = int(choice.settings["tail_ring_budget_bytes"].value)
    if budget_bytes < RING_BYTES:
        yield Finding(
            Severity.WARNING,
            "tail-ring-budget",
            "pybroker.tail.ring.budget.bytes",
            f"tail rings may take {format_bytes(budget_bytes)}, and one takes {format_bytes(RING_BYTES)}",
            "no log ever gets a ring: all are written by the slower engine, without another word",
            f"set it to {RING_BYTES} for each log that is written to steadily, or pybroker.append.engine=paced",
        )
        return
    try:
        status = os.statvfs(directory)
    except FileNotFoundError:
        yield Finding(
            Severity.ERROR,
            "tail-ring-storage",
            str(directory),
            "there is no such directory, and pybroker.append.engine=direct keeps its tail rings there",
            "the broker does not start with that engine, or runs with the slower one",
            f"mount a tmpfs at {directory}, or set pybroker.tail.ring.directory",
        )
        return
    free_bytes = status.f_bavail * status.f_frsize
    if free_bytes < budget_bytes:
        yield Finding(
            Severity.WARNING,
            "tail-ring-storage",
            str(directory),
            f"{format_bytes(free_bytes)} are free, and tail rings may take {format_bytes(budget_bytes)}",
            "logs that find no room for a ring are written by the slower engine",
            f"free {directory}, make it larger (mount -o remount,size=…; docker run --shm-size), or lower "
            "pybroker.tail.ring.budget.bytes",
        )


CHECKS = (_profile, _ring_room)
