"""`pybroker log repair`: all that is intact is saved, nothing else, and the original stays as it is."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from offline_dirs import KAFKA_DIR, check_report, copy_of_kafka_dir, flip, flips, intact_batches, tree

from pybroker.cli.main import main
from pybroker.metadata.log_files import SegmentReader
from pybroker.metadata.offline import topic_ids
from pybroker.metadata.records import VersionedRecord, decode_batch
from pybroker.metadata.snapshot import write_snapshot
from pybroker.storage.offline.layout import open_target
from pybroker.storage.offline.repairs import repair_dir
from pybroker.storage.offline.repairs.exchange import exchange
from pybroker.storage.offline.repairs.repair_dir import repair
from pybroker.storage.offline.repairs.repair_report import RepairResult

# What only people can set right.
BEYOND_REPAIR = {
    "meta.properties": {"malformed", "identity"},
    "quorum-state": {"file-missing", "quorum-state"},
    # Without it nobody knows that a log was compacted.
    "cleaner-offset-checkpoint": {"offset-gap"},
}


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody cuts the power here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return copy_of_kafka_dir(tmp_path)


def repaired(source: Path, output: Path) -> RepairResult:
    return repair(open_target(source), output, topic_ids)


def snapshot_of_first_records(partition: Path, end_offset: int) -> bytes:
    """A snapshot file of the metadata log's first records, as they are in the log."""
    content: list[VersionedRecord] = []
    path = partition / f"{0:020}.log"
    for data in SegmentReader(path, 0):
        batch = decode_batch(data, str(path))
        if batch.next_offset <= end_offset:
            content += [each for each in batch.records if isinstance(each, VersionedRecord)]
    content = [each for each in content if "Transaction" not in type(each.record).__name__]
    target = partition / "made.checkpoint"
    write_snapshot(target, 1, 0, 0, None, content, mode=0o600)
    made = target.read_bytes()
    target.unlink()
    return made


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["log", "repair", *map(str, arguments)])


def test_a_healthy_dir_comes_out_as_it_was(tmp_path: Path) -> None:
    output = tmp_path / "repaired"
    result = repaired(KAFKA_DIR, output)
    assert (result.dropped, result.notes) == ([], [])
    for path in sorted(KAFKA_DIR.rglob("*")):
        if path.suffix in (".log", ".txnindex", ".checkpoint") or path.name in (
            "partition.metadata",
            "meta.properties",
        ):
            assert (output / path.relative_to(KAFKA_DIR)).read_bytes() == path.read_bytes(), path
    report = check_report(output, deep=True)
    assert report.faults == []
    assert not (output / ".kafka_cleanshutdown").exists()


def test_one_flipped_bit_costs_one_batch_at_most(log_dir: Path, tmp_path: Path) -> None:
    """A few of those of tests/verify/house/test_flipped_bits.py."""
    repair_flipped_bits(log_dir, tmp_path, 30, seed=9)


def test_batches_keep_an_epoch_that_their_checkpoint_does_not_have(log_dir: Path, tmp_path: Path) -> None:
    """It is written after them, so a crash may leave it behind; and a bit of it may be flipped."""
    (log_dir / "__cluster_metadata-0" / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    result = repaired(log_dir, tmp_path / "repaired")
    assert [restored for partition in result.partitions for restored in partition.restored] == []
    partition = "__cluster_metadata-0"
    assert intact_batches(tmp_path / "repaired" / partition) == intact_batches(KAFKA_DIR / partition)


def repair_flipped_bits(log_dir: Path, work_dir: Path, count: int, seed: int) -> None:
    """Wherever one is: all other batches are there afterwards, and nothing that a check finds wrong but the gap."""
    for number, (path, bit) in enumerate(flips(log_dir, count, seed)):
        before = tree(log_dir)
        output = work_dir / f"repaired-{number}"
        repaired(log_dir, output)
        assert tree(log_dir) == before
        for partition in sorted(KAFKA_DIR.glob("*-0")):
            wanted = intact_batches(partition)
            kept = intact_batches(output / partition.name)
            if "__cluster_metadata" in partition.name:
                assert kept == wanted[: len(kept)] or kept == wanted[-len(kept) :]
                continue
            lost = set(wanted) - set(kept)
            assert len(lost) <= (path.parent.name == partition.name and path.suffix == ".log"), f"{path} {bit}"
            assert len(set(kept) - set(wanted)) <= len(lost), "a batch that was not there, or at another offset"
        if path.parent.name == "__cluster_metadata-0" and path.suffix == ".log":
            # What it no longer says is missed everywhere.
            continue
        faults = check_report(output).faults
        allowed = BEYOND_REPAIR.get(path.name, {"offset-gap"} if path.suffix == ".log" else set())
        assert {finding.kind for finding in faults} <= allowed, f"{path} {bit}"
        shutil.rmtree(output)


def test_what_no_crc_covers_is_set_right(log_dir: Path, tmp_path: Path) -> None:
    log = log_dir / "plain-0" / f"{60:020}.log"
    flip(log, 8 * (82 + 6) + 1)
    flip(log, 8 * (82 + 15) + 4)
    result = repaired(log_dir / "plain-0", tmp_path / "repaired")
    (partition,) = result.partitions
    assert [(each.field, each.was, each.now) for each in partition.restored] == [
        ("base offset", 61 ^ 0x200, 61),
        ("leader epoch", 16, 0),
    ]
    assert partition.dropped == []
    copied = tmp_path / "repaired" / "plain-0" / log.name
    assert copied.read_bytes() == (KAFKA_DIR / "plain-0" / log.name).read_bytes()


def test_the_metadata_log_keeps_no_hole(log_dir: Path, tmp_path: Path) -> None:
    log = log_dir / "__cluster_metadata-0" / f"{0:020}.log"
    flip(log, 8 * 7000)
    result = repaired(log_dir, tmp_path / "repaired")
    (metadata,) = [each for each in result.partitions if each.name == "__cluster_metadata-0"]
    assert 90 < metadata.end_offset < 130
    assert {each.reason for each in metadata.dropped[1:]} == {
        "metadata records are missing between it and what is kept"
    }
    assert check_report(tmp_path / "repaired" / "__cluster_metadata-0").faults == []


def test_a_metadata_log_goes_on_from_a_snapshot_behind_the_damage(log_dir: Path, tmp_path: Path) -> None:
    partition = log_dir / "__cluster_metadata-0"
    snapshot = partition / f"{13:020}-{1:010}.checkpoint"
    snapshot.write_bytes(snapshot_of_first_records(partition, 13))
    flip(partition / f"{0:020}.log", 8 * 200)
    result = repaired(partition, tmp_path / "repaired")
    (metadata,) = result.partitions
    assert (metadata.first_offset, metadata.end_offset, metadata.notes) == (12, 157, [])
    assert (tmp_path / "repaired" / partition.name / f"{12:020}.log").is_file()
    assert check_report(tmp_path / "repaired" / partition.name).faults == []


def test_a_topic_id_comes_back_from_the_metadata_log(log_dir: Path, tmp_path: Path) -> None:
    (log_dir / "plain-0" / "partition.metadata").write_text("version: 0\ntopic_id: nonsense")
    repaired(log_dir, tmp_path / "repaired")
    expected = (KAFKA_DIR / "plain-0" / "partition.metadata").read_bytes()
    assert (tmp_path / "repaired" / "plain-0" / "partition.metadata").read_bytes() == expected


def test_a_log_without_an_intact_batch_keeps_its_place(log_dir: Path, tmp_path: Path) -> None:
    for log in (log_dir / "trimmed-0").glob("*.log"):
        log.write_bytes(os.urandom(500))
    result = repaired(log_dir / "trimmed-0", tmp_path / "repaired")
    assert result.partitions[0].kept_batches == 0
    assert [path.name for path in (tmp_path / "repaired" / "trimmed-0").glob("*.log")] == [f"{60:020}.log"]


def test_the_command_and_its_reports(log_dir: Path, tmp_path: Path) -> None:
    flip(log_dir / "plain-0" / f"{60:020}.log", 8 * 200)
    output = tmp_path / "saved"
    done = run(log_dir, "--output", output)
    assert done.exit_code == 1
    assert "wrong CRC" in done.output
    report = json.loads((tmp_path / "saved.repair-report.json").read_text())
    (dropped,) = [drop for partition in report["partitions"] for drop in partition["dropped"]]
    assert (dropped["first_offset"], dropped["last_offset"]) == (62, 62)
    assert (tmp_path / "saved.repair-report.txt").read_text() == done.output
    assert run(log_dir, "--output", output).exit_code == 2, "the output is there already"
    assert run(log_dir).exit_code == run(log_dir, "--output", output, "--in-place").exit_code == 2
    assert run(log_dir, "--output", log_dir / "inside").exit_code == 2
    assert run(KAFKA_DIR, "--output", tmp_path / "whole").exit_code == 0


def test_a_partition_that_was_set_aside_comes_back_under_its_name(log_dir: Path, tmp_path: Path) -> None:
    stray = (log_dir / "plain-0").rename(log_dir / f"plain-0.{'a' * 32}-stray")
    (partition,) = repaired(stray, tmp_path / "repaired").partitions
    assert partition.name == "plain-0"
    assert len(intact_batches(tmp_path / "repaired" / "plain-0")) == 126


def test_in_place_moves_the_original_aside(log_dir: Path) -> None:
    flip(log_dir / "plain-0" / f"{60:020}.log", 8 * 200)
    before = tree(log_dir / "plain-0")
    assert run(log_dir / "plain-0", "--in-place").exit_code == 1
    (aside,) = log_dir.parent.glob("plain-0.before-repair-*")
    assert tree(aside) == before
    assert len(intact_batches(log_dir / "plain-0")) == 125
    before = tree(log_dir)
    before.pop(".lock", None)
    assert run(log_dir, "--in-place").exit_code == 0
    (aside,) = log_dir.parent.glob("data.before-repair-*")
    after = tree(aside)
    after.pop(".lock", None)
    assert after == before
    assert {finding.kind for finding in check_report(log_dir).faults} == {"offset-gap"}


def is_whole(target: Path) -> bool:
    """Whether a broker that starts now finds a log there, old or new."""
    return any(path.stat().st_size > 0 for path in target.rglob("*.log"))


@pytest.mark.parametrize("name", ["", "plain-0"])
def test_in_place_leaves_a_log_there_at_each_moment(log_dir: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that finds none makes an empty one."""
    target = log_dir / name
    steps = []

    def watched(change: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Path) -> None:
            change(*arguments)
            assert is_whole(target), f"after step {len(steps)}"
            steps.append(arguments)

        return call

    monkeypatch.setattr(os, "rename", watched(os.rename))
    monkeypatch.setattr(repair_dir, "exchange", watched(repair_dir.exchange), raising=False)
    flip(log_dir / "plain-0" / f"{60:020}.log", 8 * 200)
    assert run(target, "--in-place").exit_code == 1
    assert len(steps) == 2
    assert len(intact_batches(log_dir / "plain-0")) == 125


def test_in_place_where_names_cannot_be_exchanged_changes_nothing(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(one: Path, other: Path) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(one))

    before = tree(log_dir)
    monkeypatch.setattr(repair_dir, "exchange", refuse)
    result = run(log_dir, "--in-place")
    assert result.exit_code == 2
    assert "data.repaired" in result.output.replace("\n", "")
    after = tree(log_dir)
    after.pop(".lock")
    assert after == before
    assert is_whole(log_dir.parent / "data.repaired")
    assert not list(log_dir.parent.glob("data.before-repair-*"))


def test_names_change_places(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "other").exists() and (tmp_path / "other" / "one").exists()
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "one", tmp_path / "nothing")


def test_all_that_takes_the_place_of_the_original_is_synced(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    metadata = log_dir / "__cluster_metadata-0"
    (metadata / f"{20:020}-{1:010}.checkpoint").write_bytes(snapshot_of_first_records(metadata, 20))
    repaired(log_dir, tmp_path / "repaired")
    left = [path for path in (tmp_path / "repaired").rglob("*") if path.stat().st_ino not in synced]
    assert left == []
