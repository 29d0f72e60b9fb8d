"""The storage below the log dirs: from a path to its mount, its device and the disks beneath."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from pybroker.profiles.facts.block import backing_file, find_device, lower_devices, read_device
from pybroker.profiles.facts.mounts import Mount, mount_of
from pybroker.profiles.facts.tree import Tree
from pybroker.profiles.machine import Storage

#: A loop device on a file on a loop device is as deep as this looks.
_MOST_LOOPS = 4


def read_storage(tree: Tree, mounts: list[Mount], log_dirs: Iterable[Path]) -> tuple[Storage, ...]:
    """One for each log dir; those on no mount that this process sees are left out."""
    found = (_storage(tree, mounts, log_dir) for log_dir in log_dirs)
    return tuple(each for each in found if each is not None)


def _storage(tree: Tree, mounts: list[Mount], log_dir: Path) -> Storage | None:
    path = tree.resolve(os.path.abspath(log_dir))
    mount = mount_of(mounts, path)
    if mount is None:
        return None
    device = find_device(tree, mount.device, mount.source)
    disks = () if device is None else _disks(tree, mounts, device, _MOST_LOOPS)
    return Storage(
        path=str(log_dir),
        mount_point=mount.mount_point,
        file_system=mount.file_system,
        options=mount.options,
        source=mount.source,
        device=None if device is None else read_device(tree, device),
        disks=tuple(read_device(tree, each) for each in disks),
    )


def _disks(tree: Tree, mounts: list[Mount], device: str, loops: int) -> tuple[str, ...]:
    """The directories in /sys of the disks beneath a device, those beneath a loop device's file too."""
    found: list[str] = []
    for each in lower_devices(tree, device):
        file = backing_file(tree, each)
        mount = None if file is None else mount_of(mounts, file)
        beneath = None if mount is None or loops == 0 else find_device(tree, mount.device, mount.source)
        found += [each] if beneath is None else _disks(tree, mounts, beneath, loops - 1)
    return tuple(dict.fromkeys(found))
