"""`Machines`: what the nodes of a cluster run on, as far as faults reach it: a disk for each that can be made slow, and
a clock for each that can be stepped.

A disk is an ext4 of its own (`PowerDisk`), which the node's log dir moves to; a clock is a library that the node's
process is started with (`tests/cluster/steppedclock`), so the machine's own stays as it is. Both are for clusters that
are made and not yet up. A context manager of the caller's thread, to be left when no node runs any more. Disks need
root, FUSE and loop devices, both need a checkout and a C compiler. Can fail: `PowerDiskMissing`, `ProcessFailed`,
OSError.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.crash.power_disk import PowerDisk

_CHECKOUT = Path(__file__).resolve().parents[3]
_POWERFS = (_CHECKOUT / "tests" / "crash" / "powerfs", _CHECKOUT / "build" / "powerfs" / "powerfs")
_CLOCK = (_CHECKOUT / "tests" / "cluster" / "steppedclock", _CHECKOUT / "build" / "steppedclock" / "steppedclock.so")
_DISK_BYTES = 512 << 20
_OFFSET = struct.Struct("=q")
#: What a disk that is about to fail may take for one request. A sync of a file is several.
_SLOW_MS = {"read": 50, "write": 100, "flush": 400}


class Machines:
    """One for each node of `cluster`."""

    def __init__(self, cluster: LocalCluster, *, with_disks: bool = False, with_clocks: bool = False) -> None:
        self.cluster = cluster
        self._disks: dict[int, PowerDisk] = {}
        self._clocks: dict[int, Path] = {}
        self._open = ExitStack()
        node_ids = [node.node_id for node in cluster.layout.nodes]
        try:
            if with_disks:
                powerfs = _built(*_POWERFS)
                for node_id in node_ids:
                    self._add_disk(node_id, powerfs)
            if with_clocks:
                library = _built(*_CLOCK)
                for node_id in node_ids:
                    self._add_clock(node_id, library)
        except BaseException:
            self._open.close()
            raise

    def _add_disk(self, node_id: int, powerfs: Path) -> None:
        disk = self._open.enter_context(PowerDisk(powerfs, _DISK_BYTES))
        log_dir = self.cluster.log_dir(node_id)
        # Below its root, where ext4 has a directory that is no partition's.
        moved = disk.path / log_dir.name
        shutil.copytree(log_dir, moved)
        shutil.rmtree(log_dir)
        log_dir.symlink_to(moved)
        self._disks[node_id] = disk
        self._open.callback(_bring_back, log_dir)

    def _add_clock(self, node_id: int, library: Path) -> None:
        path = (self.cluster.node_directory(node_id) / "clock").absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_OFFSET.pack(0))
        self._clocks[node_id] = path
        self.cluster.environments[node_id] = {"LD_PRELOAD": str(library), "STEPPEDCLOCK_FILE": str(path)}

    def slow_disk(self, node_id: int) -> None:
        """From now on every request to the node's disk takes long, and one after the other."""
        for operation, delay_ms in _SLOW_MS.items():
            self._disks[node_id].slow(operation, delay_ms)

    def mend_disk(self, node_id: int) -> None:
        """It is as quick as before."""
        for operation in _SLOW_MS:
            self._disks[node_id].slow(operation, 0)

    def step_clock(self, node_id: int, seconds: float) -> None:
        """Have the node's time of day differ so much from the machine's from now on, that of its next processes too."""
        with open(self._clocks[node_id], "r+b", buffering=0) as file:
            file.write(_OFFSET.pack(round(seconds * 1e9)))

    def __enter__(self) -> Machines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


def _bring_back(log_dir: Path) -> None:
    """Unless the cluster was deleted, its log dirs stay when the disks go."""
    if log_dir.is_symlink():
        on_disk = log_dir.readlink()
        log_dir.unlink()
        shutil.copytree(on_disk, log_dir)


def _built(sources: Path, result: Path) -> Path:
    subprocess.run(["make", "--no-print-directory", "-C", str(sources)], check=True, stdout=subprocess.DEVNULL)
    return result
