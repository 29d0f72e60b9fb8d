"""The bounds of this process's control group, in version 1, version 2, or some of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pybroker.profiles.facts.mounts import Mount
from pybroker.profiles.facts.tree import Tree
from pybroker.profiles.machine import ControlGroup, IoLimit

_Number = TypeVar("_Number", int, float)

#: Version 1 says "unlimited" with the largest number of whole pages.
_UNLIMITED_BYTES = 1 << 62
_IO_FIELDS = ("rbps", "wbps", "riops", "wiops")
_IO_FILES = {"rbps": "read_bps_device", "wbps": "write_bps_device", "riops": "read_iops_device",
             "wiops": "write_iops_device"}  # fmt: skip


def read_control_group(tree: Tree, mounts: list[Mount]) -> ControlGroup:
    """The tightest bound of the group and its ancestors, as far as they are mounted here."""
    first = {name: _directories_v1(tree, mounts, name) for name in ("cpu", "memory", "blkio")}
    second = _directories_v2(tree, mounts)
    return ControlGroup(
        version=1 if any(first.values()) else 2 if second else 0,
        cpu_quota=_tightest(
            [_quota_v1(tree, each) for each in first["cpu"]] + [_quota_v2(tree, each) for each in second]
        ),
        memory_max_bytes=_tightest(
            [_bytes(tree.text(f"{each}/memory.limit_in_bytes")) for each in first["memory"]]
            + [_bytes(tree.text(f"{each}/memory.max")) for each in second]
        ),
        memory_high_bytes=_tightest(_bytes(tree.text(f"{each}/memory.high")) for each in second),
        io=_io_limits(_io_v1(tree, first["blkio"]), _io_v2(tree, second)),
    )


def _directories_v1(tree: Tree, mounts: list[Mount], controller: str) -> list[str]:
    mount = next((each for each in mounts if each.file_system == "cgroup" and controller in each.options), None)
    return [] if mount is None else _directories(tree, mount, lambda names: controller in names.split(","))


def _directories_v2(tree: Tree, mounts: list[Mount]) -> list[str]:
    mount = next((each for each in mounts if each.file_system == "cgroup2"), None)
    return [] if mount is None else _directories(tree, mount, lambda names: names == "")


def _directories(tree: Tree, mount: Mount, is_wanted: Callable[[str], bool]) -> list[str]:
    """The group's directory and those above it, up to the mount point."""
    lines = [line.split(":", 2) for line in (tree.text("/proc/self/cgroup") or "").splitlines()]
    group = next((parts[2] for parts in lines if len(parts) == 3 and is_wanted(parts[1])), "/")
    root = mount.root.rstrip("/")
    # In a namespace of its own a container sees its group as the root; without, the mount begins at its group.
    inner = group[len(root) :] if group == root or group.startswith(root + "/") else ""
    parts = [part for part in inner.split("/") if part]
    if not tree.exists("/".join([mount.mount_point, *parts])):
        parts = []
    return ["/".join([mount.mount_point, *parts[:count]]) for count in range(len(parts), -1, -1)]


def _quota_v1(tree: Tree, directory: str) -> float | None:
    quota, period = tree.number(f"{directory}/cpu.cfs_quota_us"), tree.number(f"{directory}/cpu.cfs_period_us")
    return quota / period if quota is not None and period and quota > 0 else None


def _quota_v2(tree: Tree, directory: str) -> float | None:
    quota, _, period = (tree.text(f"{directory}/cpu.max") or "").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) > 0 else None


def _bytes(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() and int(text) < _UNLIMITED_BYTES else None


def _io_v1(tree: Tree, directories: list[str]) -> Iterator[tuple[str, str, int]]:
    """Device, which bound, its value."""
    for directory in directories:
        for field, file in _IO_FILES.items():
            for line in (tree.text(f"{directory}/blkio.throttle.{file}") or "").splitlines():
                device, _, value = line.partition(" ")
                if value.isdigit():
                    yield device, field, int(value)


def _io_v2(tree: Tree, directories: list[str]) -> Iterator[tuple[str, str, int]]:
    """Device, which bound, its value."""
    for directory in directories:
        for line in (tree.text(f"{directory}/io.max") or "").splitlines():
            device, *bounds = line.split()
            for field, _, value in (bound.partition("=") for bound in bounds):
                if field in _IO_FIELDS and value.isdigit():
                    yield device, field, int(value)


def _io_limits(*bounds: Iterator[tuple[str, str, int]]) -> tuple[IoLimit, ...]:
    devices: dict[str, dict[str, int]] = {}
    for device, field, value in (each for source in bounds for each in source):
        fields = devices.setdefault(device, {})
        fields[field] = min(value, fields.get(field, value))
    return tuple(IoLimit(name, *(fields.get(each) for each in _IO_FIELDS)) for name, fields in sorted(devices.items()))


def _tightest(bounds: Iterable[_Number | None]) -> _Number | None:
    return min((bound for bound in bounds if bound is not None), default=None)
