"""Mounts: /proc/self/mountinfo, and which mount a path lies on."""

from __future__ import annotations

import re

from pybroker.profiles.facts.tree import Tree
from pybroker.values import Value

_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(Value):
    """One line of mountinfo (proc_pid_mountinfo(5))."""

    mount_id: int
    parent_id: int
    #: major:minor, with major 0 where the file system has no device of its own (btrfs, overlay, NFS).
    device: str
    #: The directory of the file system that is mounted.
    root: str
    mount_point: str
    file_system: str
    source: str
    options: tuple[str, ...]


def read_mounts(tree: Tree) -> list[Mount]:
    """All mounts that this process sees, in the order they were made."""
    lines = (tree.text("/proc/self/mountinfo") or "").splitlines()
    return [mount for line in lines if (mount := _parse(line)) is not None]


def mount_of(mounts: list[Mount], path: str) -> Mount | None:
    """The mount that an absolute path without links lies on. It is walked to as the kernel does, so that mounts hidden
    beneath others do not count."""
    # The first mount of all is its own parent; that of a container has one outside.
    others = {mount.mount_id: mount for mount in mounts}
    roots = (each for each in mounts if each.mount_point == "/" and others.get(each.parent_id, each) is each)
    current = next(roots, None)
    while current is not None:
        above = [
            each
            for each in mounts
            if each.parent_id == current.mount_id and each is not current and _lies_below(path, each.mount_point)
        ]
        if not above:
            return current
        current = min(above, key=lambda each: len(each.mount_point))
    return None


def _lies_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _parse(line: str) -> Mount | None:
    fields, dash, rest = line.partition(" - ")
    first, last = fields.split(), rest.split()
    if not dash or len(first) < 6 or len(last) < 2 or not (first[0].isdigit() and first[1].isdigit()):
        return None
    super_options = last[2].split(",") if len(last) > 2 else []
    return Mount(
        mount_id=int(first[0]),
        parent_id=int(first[1]),
        device=first[2],
        root=_unescape(first[3]),
        mount_point=_unescape(first[4]),
        file_system=last[0],
        source=_unescape(last[1]),
        options=tuple(dict.fromkeys(first[5].split(",") + super_options)),
    )


def _unescape(text: str) -> str:
    """Blanks and backslashes come as octal numbers."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
