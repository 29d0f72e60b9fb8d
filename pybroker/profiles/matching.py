"""Facts that profiles match by: the few of a `Machine` that tell classes of hardware apart. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase

from pybroker.profiles.machine import BlockDevice, Machine
from pybroker.values import Value

Fact = bool | int | str

Wanted = Fact | tuple[Fact, ...]
"""What a rule asks of a fact: one value, or one of some. Texts may have the wildcards `*` and `?`."""

UNKNOWN = "unknown"
#: The disks of the log dirs differ in it.
MIXED = "mixed"

FLASH = "flash"
ROTATING = "rotating"
#: Their flags are what the hypervisor cared to set, which says nothing of the medium.
_VIRTUAL_TRANSPORTS = ("virtio", "xen", "hyperv")


class Rule(Value):
    """One line of a profile's `[match]`, held against a machine."""

    fact: str
    wanted: Wanted
    found: Fact
    matches: bool


def facts_of(machine: Machine, measured_medium: str | None = None) -> dict[str, Fact]:
    """Every fact of `FACTS`. A measured medium outranks the kernel's word for it."""
    facts = {name: read(machine) for name, read in FACTS.items()}
    if measured_medium is not None:
        facts["medium"] = measured_medium
    return facts


def rules_of(match: Mapping[str, Wanted], facts: Mapping[str, Fact]) -> tuple[Rule, ...]:
    """The lines of a `[match]`, held against a machine with these facts."""
    return tuple(Rule(name, wanted, facts[name], _holds(wanted, facts[name])) for name, wanted in match.items())


def _holds(wanted: Wanted, found: Fact) -> bool:
    if isinstance(wanted, tuple):
        return any(_holds(each, found) for each in wanted)
    if isinstance(wanted, str) and isinstance(found, str):
        return fnmatchcase(found, wanted)
    return type(wanted) is type(found) and wanted == found


def medium_of_disk(disk: BlockDevice) -> str:
    """flash, rotating, memory, or unknown: as the kernel says, where that can be trusted."""
    if disk.kind == "memory":
        return "memory"
    if disk.rotational is None or disk.kind != "disk" or disk.transport in _VIRTUAL_TRANSPORTS:
        return UNKNOWN
    return ROTATING if disk.rotational else FLASH


def _disks(machine: Machine) -> list[BlockDevice]:
    return [disk for storage in machine.storage for disk in storage.disks]


def _same(values: Iterable[Fact | None]) -> Fact:
    """The value that all of them share."""
    found = {UNKNOWN if value is None else value for value in values}
    return found.pop() if len(found) == 1 else MIXED if found else UNKNOWN


def _medium(machine: Machine) -> Fact:
    if machine.storage and all(storage.file_system == "tmpfs" for storage in machine.storage):
        return "memory"
    return _same(medium_of_disk(disk) for disk in _disks(machine))


FACTS: Mapping[str, Callable[[Machine], Fact]] = {
    "virtual": lambda machine: machine.host.hypervisor is not None,
    "hypervisor": lambda machine: machine.host.hypervisor or "none",
    "architecture": lambda machine: machine.kernel.architecture,
    "cpu_model": lambda machine: machine.cpu.model,
    "cpu_count": lambda machine: machine.cpu.online_count,
    "transport": lambda machine: _same(disk.transport for disk in _disks(machine)),
    "medium": _medium,
    "disk_model": lambda machine: _same(disk.model for disk in _disks(machine)),
    "disk_bytes": lambda machine: _same(disk.size_bytes for disk in _disks(machine)),
    "file_system": lambda machine: _same(storage.file_system for storage in machine.storage),
}
"""Every fact by its name in `[match]`. Those of disks are of all disks beneath all log dirs, `mixed` if they differ."""

IDENTITY = (
    "hypervisor",
    "architecture",
    "cpu_model",
    "cpu_count",
    "transport",
    "disk_model",
    "disk_bytes",
    "file_system",
)
"""What together tells one machine from others: the `[match]` of a profile that was tuned for it."""
