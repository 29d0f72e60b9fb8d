"""Tail rings that a broker left when it ended, to the tools: `check` names them, `repair` brings them in.

Neither writes to a log or a ring. Blocks; fails with `OSError`.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pybroker.native import NativeError
from pybroker.storage.errors import StorageError
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.files.modes import make_directory
from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.layout import LogDirFiles, PartitionFiles
from pybroker.storage.rings import tail_rings
from pybroker.storage.rings.tail_rings import LeftRing

_STAGED = ".with-tail-rings"


def check_left_rings(log_dir: Path, report: Report, only: Path | None = None) -> None:
    """Tell `report` of rings with bytes of `log_dir`, or of the partition `only` in it."""
    session_file = log_dir / tail_rings.FILE_NAME
    try:
        lost = tail_rings.lost_directory(log_dir)
        rings = _rings(log_dir, only)
    except StorageError as error:
        report.error("malformed", session_file, str(error))
        return
    if lost is not None:
        report.error("tail-rings-lost", session_file, f"the tail rings in {lost} are gone, and what was in them")
    _check_damaged(log_dir, report)
    for left in rings:
        _check_one(left, report)


def _check_damaged(log_dir: Path, report: Report) -> None:
    session = tail_rings.RingSession.read(log_dir)
    for ring in tail_rings.damaged_rings(session) if session is not None else ():
        text = (
            "a damaged tail ring: the next start of the broker saves what goes on where its log ends, if it names one"
        )
        report.error("tail-ring-damaged", ring.path, text)


def _rings(log_dir: Path, only: Path | None) -> list[LeftRing]:
    """Those with anything in them."""
    if not (log_dir / tail_rings.FILE_NAME).exists():
        return []
    properties = MetaProperties.read(log_dir)
    if properties is None:
        return []
    found = [each for each in tail_rings.left_rings(log_dir, properties.directory_id) if not each.is_empty]
    return [each for each in found if only is None or (each.log is not None and each.log.name == only.name)]


def _check_one(left: LeftRing, report: Report) -> None:
    ring = left.ring
    if left.log is None:
        text = f"{ring.gathered_bytes} bytes of {left.name}, which is not in this log dir"
        report.warning("tail-ring-unknown", ring.path, text)
        return
    try:
        missing_bytes = tail_rings.bring_in(ring, left.log, look=True)
    except NativeError as error:
        report.error("tail-ring-stale", ring.path, error.text)
        return
    if missing_bytes > 0:
        report.warning(
            "tail-ring",
            ring.path,
            f"{missing_bytes} bytes at the end of {left.name} lie here and not yet in its segment: the next start of "
            "the broker brings them in, and so does `pybroker log repair`",
            position=ring.start_position,
        )


def _rings_of(target: LogDirFiles | PartitionFiles) -> list[LeftRing]:
    if isinstance(target, LogDirFiles):
        return _rings(target.path, None)
    return _rings(target.path.resolve().parent, target.path)


@contextmanager
def rings_brought_in(target: LogDirFiles | PartitionFiles, output: Path, notes: list[str]) -> Iterator[None]:
    """Meanwhile the segments of `target` that rings have bytes of are copies below `output` with these in them. `notes`
    tells the actions, and those that were impossible."""
    partitions = target.partitions if isinstance(target, LogDirFiles) else [target]
    try:
        try:
            rings = _rings_of(target)
        except StorageError as error:
            notes.append(f"left out what tail rings may have: {error}")
            rings = []
        for left in rings:
            partition = next((each for each in partitions if left.log and each.path.name == left.log.name), None)
            if partition is None:
                notes.append(f"left out the tail ring {left.ring.path} of {left.name}, which is not there")
            else:
                _stage(left, partition, output / _STAGED / partition.path.name, notes)
        yield
    finally:
        shutil.rmtree(output / _STAGED, ignore_errors=True)


def _stage(left: LeftRing, partition: PartitionFiles, stage: Path, notes: list[str]) -> None:
    ring = left.ring
    try:
        if tail_rings.bring_in(ring, partition.path, look=True) == 0:
            return
        segment = next((each for each in partition.segments if each.base_offset == ring.segment_base), None)
        if segment is None or segment.log is None:
            notes.append(
                f"left out the tail ring {ring.path}: its segment is gone; a start of the broker makes it anew"
            )
            return
        make_directory(stage, exist_ok=True)
        shutil.copy2(segment.log, stage)
        moved_bytes = tail_rings.bring_in(ring, stage)
    except NativeError as error:
        if error.errno == errno.ESTALE:
            notes.append(f"left out the tail ring {ring.path}: {error.text}")
            return
        raise OSError(error.errno or errno.EIO, error.text) from error
    segment.log = stage / segment.log.name
    notes.append(f"{moved_bytes} bytes of {left.name} came in from the tail ring {ring.path}")


def that_can_be_brought_in(target: LogDirFiles | PartitionFiles) -> list[Path]:
    """The rings that a repair of `target` brings in."""
    found = []
    for left in _rings_of(target):
        try:
            if left.log is not None:
                tail_rings.bring_in(left.ring, left.log, look=True)
                found.append(left.ring.path)
        except NativeError:
            continue
    return found
