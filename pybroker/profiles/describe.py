"""A machine in words."""

from __future__ import annotations

from collections.abc import Iterator

from pybroker.profiles.choice import Choice
from pybroker.profiles.machine import BlockDevice, Machine, Storage
from pybroker.profiles.matching import medium_of_disk
from pybroker.profiles.sizes import format_bytes


def describe(choice: Choice) -> list[tuple[str, str]]:
    """The choice in lines of a name and words."""
    machine = choice.machine
    return [
        ("kernel", _kernel(machine)),
        ("runs on", _host(machine)),
        ("CPUs", _cpu(machine)),
        ("memory", _memory(machine)),
        ("control group", _group(machine)),
        *((storage.path, _storage(storage)) for storage in machine.storage),
        ("medium", describe_medium(choice)),
    ]


def describe_medium(choice: Choice) -> str:
    """The medium below the log dirs, and how it is known."""
    disks = {disk.name: disk for storage in choice.machine.storage for disk in storage.disks}.values()
    told = "; ".join(f"/sys calls {disk.name} {_rotation(disk)}" for disk in disks) or "/sys shows no disk"
    if choice.medium is not None and choice.medium.outranks is None:
        return f"{choice.facts['medium']}: {told}. Measuring could not tell: {choice.medium.why} ({choice.medium.path})"
    if choice.medium is not None:
        return f"{choice.medium.name}, as measured: {choice.medium.why} ({choice.medium.path}). That outranks: {told}"
    if any(disk.kind == "disk" and medium_of_disk(disk) == "unknown" for disk in disks):
        told += ", which says nothing of a virtual disk's medium: `pybroker profile measure` finds out"
    return f"{choice.facts['medium']}: {told}"


def _rotation(disk: BlockDevice) -> str:
    return "nothing" if disk.rotational is None else "rotating" if disk.rotational else "not rotating"


def _kernel(machine: Machine) -> str:
    kernel = machine.kernel
    features = f"; has {', '.join(kernel.features)}" if kernel.features else ""
    return f"Linux {kernel.release or 'unknown'}, {kernel.architecture}{features}"


def _host(machine: Machine) -> str:
    host = machine.host
    name = " ".join(each for each in (host.vendor, host.product) if each)
    what = "hardware of its own" if host.hypervisor is None else f"a hypervisor ({host.hypervisor})"
    return what + (f": {name}" if name else "") + (", in a container" if host.is_container else "")


def _cpu(machine: Machine) -> str:
    cpu = machine.cpu
    allowed = "" if cpu.allowed_count == cpu.online_count else f", {cpu.allowed_count} of them for this process"
    nodes = f", {cpu.numa_node_count} NUMA nodes" if cpu.numa_node_count > 1 else ""
    return f"{cpu.online_count}: {cpu.model}{allowed}{nodes}; {', '.join(cpu.features) or 'nothing for CRC32C'}"


def _memory(machine: Machine) -> str:
    swap = machine.memory.swap_bytes
    return format_bytes(machine.memory.total_bytes) + (f", swap {format_bytes(swap)}" if swap else ", no swap")


def _group(machine: Machine) -> str:
    group = machine.control_group
    if group.version == 0:
        return "none is mounted here"
    bounds = list(_bounds(machine))
    return f"version {group.version}, {', '.join(bounds) if bounds else 'no bound on memory, CPU or disks'}"


def _bounds(machine: Machine) -> Iterator[str]:
    group = machine.control_group
    if group.memory_max_bytes is not None:
        yield f"memory up to {format_bytes(group.memory_max_bytes)}"
    if group.cpu_quota is not None:
        yield f"{group.cpu_quota:g} CPUs' time"
    if group.io:
        yield f"bounds on {len(group.io)} disk{'s' if len(group.io) > 1 else ''}"


def _storage(storage: Storage) -> str:
    words = f"{storage.file_system} on {storage.source}, mounted at {storage.mount_point}"
    return "; ".join([words, *(_disk(disk) for disk in storage.disks)])


def _disk(disk: BlockDevice) -> str:
    cache = f"{disk.write_cache} cache{', FUA' if disk.fua else ''}" if disk.write_cache else None
    blocks = f"blocks {disk.logical_block_bytes}/{disk.physical_block_bytes}" if disk.logical_block_bytes else None
    parts = (disk.model, format_bytes(disk.size_bytes), disk.transport or disk.kind, disk.scheduler, cache, blocks)
    return f"{disk.name}: {', '.join(part for part in parts if part)}"
