"""Reads the facts of the machine: /proc and /sys below a root, never a write, never more than is there to everybody.

Takes a few milliseconds. Nothing fails: what is not told is None in the `Machine`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pybroker.profiles.facts.control_group import read_control_group
from pybroker.profiles.facts.host import read_cpu, read_host, read_kernel, read_limits, read_memory
from pybroker.profiles.facts.mounts import read_mounts
from pybroker.profiles.facts.storage import read_storage
from pybroker.profiles.facts.tree import Tree
from pybroker.profiles.machine import Machine


def read_machine(log_dirs: Iterable[Path], root: Path = Path("/"), tail_rings: Path | None = None) -> Machine:
    """The machine below `root`, and what each of `log_dirs`, and the directory of tail rings, lies on. None of them has
    to exist."""
    tree = Tree(root)
    mounts = read_mounts(tree)
    return Machine(
        kernel=read_kernel(tree),
        cpu=read_cpu(tree),
        memory=read_memory(tree),
        host=read_host(tree, mounts),
        limits=read_limits(tree),
        control_group=read_control_group(tree, mounts),
        storage=read_storage(tree, mounts, log_dirs),
        tail_rings=next(iter(read_storage(tree, mounts, [] if tail_rings is None else [tail_rings])), None),
    )
