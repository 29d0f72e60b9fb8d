"""A memory-bounded cgroup per broker, with its CPU time: cgroup v1 or v2, whichever the machine has.

Needs root. The group holds one broker at a time; its kernel workers (io-wq) are charged to it too.
Can fail: `CgroupUnavailable`, saying which file could not be written.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.harness import keeper

_ROOT = Path("/sys/fs/cgroup")


class CgroupUnavailable(RuntimeError):
    """The machine lets us make no cgroup."""


def wants_cgroup(refused: bool, quick: bool) -> bool:
    """Whether brokers get one: not when that was refused, nor for a check of the benchmark itself without root."""
    return not refused and not (quick and os.geteuid() != 0)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise CgroupUnavailable(f"{path}: {error.strerror}; run as root, or with --no-cgroup") from error


def _disk_of(path: Path) -> str:
    """`major:minor` of the whole disk: partitions are not throttled."""
    number = path.stat().st_dev
    device = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
    if (device / "partition").exists():
        device = device.parent
    try:
        return (device / "dev").read_text().strip()
    except OSError as error:
        raise CgroupUnavailable(f"{path} lies on no disk whose reads could be throttled: {error}") from error


class Cgroup:
    """`name` under the root of the hierarchy (v2) or of the hierarchies of its controllers (v1)."""

    def __init__(self, name: str, memory_bytes: int, with_io: bool = False) -> None:
        """Create the group and bound its memory, page cache included; `with_io`: its reads can be throttled."""
        self.unified = (_ROOT / "cgroup.controllers").exists()
        if self.unified:
            _write(_ROOT / "cgroup.subtree_control", "+memory +cpu" + (" +io" if with_io else ""))
            self._dirs = [_ROOT / name]
        else:
            self._dirs = [_ROOT / kind / name for kind in ("memory", "cpuacct", "blkio")[: 3 if with_io else 2]]
        for directory in self._dirs:
            try:
                directory.mkdir()
            except OSError as error:
                raise CgroupUnavailable(f"{directory}: {error.strerror}; run as root, or with --no-cgroup") from error
        self._kept = [keeper.keep("rmdir", directory) for directory in self._dirs]
        _write(self._dirs[0] / ("memory.max" if self.unified else "memory.limit_in_bytes"), str(memory_bytes))

    def command_prefix(self) -> list[str]:
        """Words to put before a command so that it runs within the group."""
        script = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done; shift; exec "$@"'
        return ["sh", "-c", script, "cgroup", *(str(directory / "cgroup.procs") for directory in self._dirs), "--"]

    def memory_bytes(self) -> int:
        """Bytes that the group uses now, page cache included."""
        return int((self._dirs[0] / ("memory.current" if self.unified else "memory.usage_in_bytes")).read_text())

    def throttle_reads(self, path: Path, bytes_per_s: int, per_s: int | None = None) -> None:
        """Bound what it reads from the device that `path` lies on. Needs `with_io`."""
        device = _disk_of(path)
        if self.unified:
            _write(self._dirs[0] / "io.max", f"{device} rbps={bytes_per_s} riops={per_s or 'max'}")
            return
        _write(self._dirs[-1] / "blkio.throttle.read_bps_device", f"{device} {bytes_per_s}")
        _write(self._dirs[-1] / "blkio.throttle.read_iops_device", f"{device} {per_s or 0}")

    def cpu_seconds(self) -> float:
        """CPU time of all tasks the group has had."""
        if not self.unified:
            return int((self._dirs[1] / "cpuacct.usage").read_text()) / 1e9
        for line in (self._dirs[0] / "cpu.stat").read_text().splitlines():
            key, value = line.split()
            if key == "usage_usec":
                return int(value) / 1e6
        raise CgroupUnavailable(f"{self._dirs[0]}/cpu.stat has no usage_usec")

    def remove(self) -> None:
        """Remove the empty group; a task that just ended may hold it for a moment."""
        for directory in self._dirs:
            deadline = time.monotonic() + 10
            while True:
                try:
                    os.rmdir(directory)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
        for number in self._kept:
            keeper.done(number)
