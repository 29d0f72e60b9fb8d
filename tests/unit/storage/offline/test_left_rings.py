"""Tail rings of a broker that ended: a check names them, a repair brings them in, and neither touches them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from offline_dirs import check_report, copy_of_kafka_dir, kinds

sys.path.insert(0, str(Path(__file__).parents[1]))
from ring_files import RING_BYTES, write_ring, write_session

from pybroker.cli.main import main
from pybroker.metadata.offline import topic_ids
from pybroker.storage.files import partition_metadata
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.offline.layout import open_target
from pybroker.storage.offline.repairs.repair_dir import repair
from pybroker.storage.offline.repairs.repair_report import RepairResult

CUT = 100
"""How much of the log is only in the ring."""


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody cuts the power here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return copy_of_kafka_dir(tmp_path)


def a_segment(log_dir: Path) -> Path:
    """The active segment of some topic."""
    return max(
        path for path in log_dir.glob("*-0/*.log") if path.stat().st_size > 2 * CUT and not path.match("__*-0/*")
    )


def leave(log_dir: Path, rings: Path) -> tuple[Path, Path, bytes]:
    """Take the end of a segment out of the file into a ring: the segment, the ring, and the whole segment's bytes."""
    segment = a_segment(log_dir)
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-CUT])
    properties = MetaProperties.read(log_dir)
    topic_id = partition_metadata.read(segment.parent)
    assert properties is not None and topic_id is not None
    write_ring(
        rings / "one.ring",
        whole[-CUT:],
        start=len(whole) - CUT,
        segment_base=int(segment.stem),
        directory_id=properties.directory_id,
        topic_id=topic_id,
        topic=segment.parent.name.rpartition("-")[0],
    )
    write_session(log_dir, rings)
    return segment, rings / "one.ring", whole


def repaired(source: Path, output: Path) -> RepairResult:
    return repair(open_target(source), output, topic_ids)


def test_check_names_what_lies_in_rings(log_dir: Path, rings: Path) -> None:
    before = kinds(log_dir)
    segment, ring, whole = leave(log_dir, rings)
    for path in (log_dir, segment.parent):
        found = [each for each in check_report(path).faults if each.kind == "tail-ring"]
        assert [(each.path, each.position) for each in found] == [(ring, len(whole) - CUT)]
        assert f"{segment.parent.name} lie here" in found[0].text
    assert "unknown-file" not in kinds(log_dir) - before
    segment.write_bytes(whole)
    assert "tail-ring" not in kinds(log_dir)
    segment.write_bytes(whole[:-CUT] + b"others'")
    assert "tail-ring-stale" in kinds(log_dir)
    shutil.rmtree(segment.parent)
    assert "tail-ring-unknown" in kinds(log_dir)
    with open(ring, "r+b") as file:
        file.seek(RING_BYTES + 12)
        file.write(b"\xa5" * 4)
    assert "tail-ring-damaged" in kinds(log_dir)
    shutil.rmtree(rings)
    assert "tail-rings-lost" in kinds(log_dir)


def test_check_tells_a_damaged_session(log_dir: Path, rings: Path) -> None:
    leave(log_dir, rings)
    (log_dir / ".pybroker_tail_rings").write_text("nonsense")
    assert "malformed" in kinds(log_dir)


def test_repair_brings_in_what_lies_in_rings(tmp_path: Path, log_dir: Path, rings: Path) -> None:
    segment, ring, whole = leave(log_dir, rings)
    before = ring.read_bytes()
    for number, source in enumerate((log_dir, segment.parent)):
        output = tmp_path / f"repaired-{number}"
        result = repaired(source, output)
        assert (output / segment.parent.name / segment.name).read_bytes() == whole
        assert any("came in from the tail ring" in note for note in result.notes)
        assert result.dropped == []
        assert not list(output.glob(".with*"))
    assert segment.read_bytes() == whole[:-CUT]
    assert ring.read_bytes() == before


def test_repair_says_what_it_leaves_out(tmp_path: Path, log_dir: Path, rings: Path) -> None:
    segment, ring, whole = leave(log_dir, rings)
    segment.write_bytes(whole[:-CUT] + b"others'")
    result = repaired(log_dir, tmp_path / "stale")
    assert any(note.startswith(f"left out the tail ring {ring}: ") for note in result.notes)
    shutil.rmtree(segment.parent)
    result = repaired(log_dir, tmp_path / "unknown")
    assert any("which is not there" in note for note in result.notes)
    (log_dir / ".pybroker_tail_rings").write_text("nonsense")
    result = repaired(log_dir, tmp_path / "damaged")
    assert any(note.startswith("left out what tail rings may have: ") for note in result.notes)


def test_a_repair_in_place_uses_rings_up(log_dir: Path, rings: Path) -> None:
    segment, ring, whole = leave(log_dir, rings)
    result = CliRunner().invoke(main, ["log", "repair", "--in-place", str(log_dir)])
    assert result.exit_code == 0, result.output
    assert segment.read_bytes() == whole
    assert not ring.exists()
