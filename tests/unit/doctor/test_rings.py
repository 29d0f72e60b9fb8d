"""`pybroker doctor` on tail rings that nobody takes in: what it says of them, and of whose it says nothing."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from patients import Examine

from pybroker.doctor import rings
from pybroker.doctor.finding import Severity
from pybroker.native.rings import RingFile
from pybroker.storage import ring_lock
from pybroker.storage.meta_properties import MetaProperties
from pybroker.storage.tail_rings import UnclaimedRings, ring_directory

THEIRS = bytes([7]) * 16
MEBIBYTE = 1 << 20


def _left(directory: Path, *logs: tuple[str, int, int]) -> UnclaimedRings:
    filled = tuple(
        RingFile(
            path=directory / f"{number}.ring",
            ring_bytes=32 * MEBIBYTE,
            is_sealed=True,
            directory_id=THEIRS,
            topic_id=bytes(16),
            boot_id=bytes(16),
            session_id=bytes(16),
            topic=topic,
            partition=partition,
            segment_base=0,
            start_position=4096,
            end_position=4096 + size_bytes,
        )
        for number, (topic, partition, size_bytes) in enumerate(logs)
    )
    paths = (directory / "empty.ring", *(each.path for each in filled))
    return UnclaimedRings(directory, paths, filled, len(paths) * 32 * MEBIBYTE)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[UnclaimedRings]:
    """What lies in the directory of rings, to be filled."""
    found: list[UnclaimedRings] = []
    monkeypatch.setattr(rings, "unclaimed_rings", lambda *_: iter(found))
    return found


def test_records_that_lie_nowhere_else(
    examined: Examine, new_dir: Path, tmp_path: Path, left: list[UnclaimedRings]
) -> None:
    left.append(_left(ring_directory(tmp_path, THEIRS), *((f"t{number}", 0, MEBIBYTE) for number in range(4))))
    found = examined(f"log.dirs={new_dir}", f"pybroker.tail.ring.directory={tmp_path}")["tail-rings-unclaimed"]
    assert found.severity is Severity.WARNING
    assert found.what.startswith(
        "5 tail rings of an ended broker take 160 MiB of memory; 4 MiB in them are acknowledged"
    )
    assert "of t0-0, t1-0, t2-0 and 1 more" in found.what
    assert "directory.id=BwcHBwcHBwcHBwcHBwcHBw" in found.remedy
    assert f"`flock -n {left[0].directory} mv {left[0].directory} BACKUP`" in found.remedy


def test_an_empty_ring_is_advice(examined: Examine, new_dir: Path, tmp_path: Path, left: list[UnclaimedRings]) -> None:
    left.append(_left(ring_directory(tmp_path, THEIRS)))
    found = examined(f"log.dirs={new_dir}", f"pybroker.tail.ring.directory={tmp_path}")["tail-rings-unclaimed"]
    assert found.severity is Severity.ADVICE
    assert found.what == "1 tail ring of an ended broker takes 32 MiB of memory, and holds no records that can be read"


def test_rings_in_use_are_left_alone_and_own_ones_named_one_by_one(
    examined: Examine, new_dir: Path, tmp_path: Path, left: list[UnclaimedRings]
) -> None:
    settings = (f"log.dirs={new_dir}", f"pybroker.tail.ring.directory={tmp_path}")
    directory = ring_directory(tmp_path, THEIRS)
    directory.mkdir()
    left.append(_left(directory))
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert ring_lock.is_locked(directory)
        assert "tail-rings-unclaimed" not in examined(*settings)
    finally:
        os.close(descriptor)
    assert not ring_lock.is_locked(directory)
    assert "tail-rings-unclaimed" in examined(*settings)
    own = MetaProperties.read(new_dir)
    assert own is not None
    left[:] = [_left(ring_directory(tmp_path, own.directory_id), ("t", 0, MEBIBYTE))]
    remedy = examined(*settings)["tail-rings-unclaimed"].remedy
    assert f"mv {left[0].directory}/empty.ring {left[0].directory}/0.ring BACKUP" in remedy
