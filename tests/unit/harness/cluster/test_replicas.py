"""Replicas are compared batch by batch, whatever their segments are, and each planted difference is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.protocol.record_batch import Record, build
from pybroker.storage.files import offset_checkpoint
from tests.harness.cluster.replicas import check_replicas

TOPICS = frozenset({"t"})
COUNT = 10


def batch(offset: int) -> bytes:
    return build(offset, 0, [Record(value=b"v%d" % offset)], timestamp_ms=1)


def write(log_dir: Path, *segments: range, high_watermark: int = COUNT) -> Path:
    partition = log_dir / "t-0"
    partition.mkdir(parents=True)
    for offsets in segments:
        (partition / f"{offsets.start:020}.log").write_bytes(b"".join(map(batch, offsets)))
    offset_checkpoint.write(log_dir / offset_checkpoint.HIGH_WATERMARK, {("t", 0): high_watermark})
    return log_dir


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return write(tmp_path / "one", range(COUNT))


def findings(*log_dirs: Path) -> list[str]:
    return [violation.text for violation in check_replicas(dict(enumerate(log_dirs, start=1)), TOPICS)]


def test_other_segments_and_beginnings_are_no_difference(one: Path, tmp_path: Path) -> None:
    assert findings(one, write(tmp_path / "two", range(4), range(4, COUNT))) == []
    assert findings(one, write(tmp_path / "three", range(3, COUNT))) == []


def test_above_the_high_watermark_replicas_may_differ(tmp_path: Path) -> None:
    two = write(tmp_path / "two", range(COUNT - 2), high_watermark=COUNT - 2)
    assert findings(write(tmp_path / "one", range(COUNT), high_watermark=COUNT - 2), two) == []


def test_a_flipped_byte_is_found(one: Path, tmp_path: Path) -> None:
    two = write(tmp_path / "two", range(COUNT))
    path = two / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    (found,) = findings(one, two)
    assert "brokers 1 and 2 differ in byte" in found
    assert "batch at offset 9" in found


def test_a_missing_end_is_found(one: Path, tmp_path: Path) -> None:
    (found,) = findings(one, write(tmp_path / "two", range(COUNT - 1), high_watermark=0))
    assert found == "t-0: broker 2 ends at 9, below the high watermark 10"


def test_an_end_that_is_missing_everywhere_is_found(tmp_path: Path) -> None:
    assert findings(write(tmp_path / "one", range(COUNT - 1))) == [
        "t-0: broker 1 ends at 9, below the high watermark 10"
    ]


def test_a_missing_batch_is_found(one: Path, tmp_path: Path) -> None:
    two = write(tmp_path / "two", range(COUNT))
    (two / "t-0" / f"{0:020}.log").write_bytes(b"".join(batch(offset) for offset in range(COUNT) if offset != 4))
    (found,) = findings(one, two)
    assert "broker 1 has a batch of offsets 4 to 4 where broker 2 has 5 to 5" in found


def test_a_torn_end_counts_as_none(one: Path, tmp_path: Path) -> None:
    two = write(tmp_path / "two", range(COUNT))
    path = two / "t-0" / f"{0:020}.log"
    path.write_bytes(path.read_bytes()[:-5])
    assert findings(one, two) == ["t-0: broker 2 ends at 9, below the high watermark 10"]


def test_other_topics_are_left_alone(one: Path, tmp_path: Path) -> None:
    other = tmp_path / "two"
    (other / "u-0").mkdir(parents=True)
    assert findings(one, other) == []
