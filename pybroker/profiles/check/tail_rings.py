"""Checks of the memory that the append engine direct keeps its rings in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from pybroker.profiles.check.finding import Finding, Remedy, Status
from pybroker.profiles.choice import Choice
from pybroker.profiles.machine import Storage
from pybroker.profiles.sizes import format_bytes

_DIRECT = "direct"
_SIZE = re.compile(r"size=(\d+)k")


def check_tail_rings(choice: Choice) -> Iterator[Finding]:
    """Nothing where another engine is chosen."""
    storage = choice.machine.tail_rings
    if choice.settings["append_engine"].value != _DIRECT or storage is None:
        return
    budget_bytes = int(choice.settings["tail_ring_budget_bytes"].value)
    subject, wanted = f"tail rings in {storage.path}", f"tmpfs, {format_bytes(budget_bytes)} or more"
    if storage.file_system != "tmpfs":
        why = "rings have to survive the process and need no disk: elsewhere than on tmpfs the append engine is paced"
        yield Finding(subject, Status.ADVICE, storage.file_system, wanted, why)
        return
    size_bytes = _size_bytes(storage)
    found = "tmpfs" if size_bytes is None else f"tmpfs, {format_bytes(size_bytes)}"
    why = "logs that find no room for a ring are paced"
    if size_bytes is None or size_bytes >= budget_bytes:
        yield Finding(subject, Status.OK, found, wanted, why)
        return
    command = f"sudo mount -o remount,size={{}}k {shlex.quote(storage.mount_point)}"
    keep = f"the options of {storage.mount_point} in /etc/fstab; of a container, docker run --shm-size"
    # Others use it too.
    remedy = Remedy(command.format(2 * budget_bytes >> 10), command.format(size_bytes >> 10), keep)
    yield Finding(subject, Status.ADVICE, found, wanted, why, remedy)


def _size_bytes(storage: Storage) -> int | None:
    """None where it is half of the memory, which the kernel leaves unsaid."""
    sizes = (_SIZE.fullmatch(option) for option in storage.options)
    return next((int(size[1]) << 10 for size in sizes if size is not None), None)
