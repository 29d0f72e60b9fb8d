"""`pybroker log check` on a log dir of Apache Kafka: clean as it is, and every kind of damage is found."""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from offline_dirs import KAFKA_DIR, check_report, copy_of_kafka_dir, faults, flip, flips, is_unprotected, kinds, noticed

from pybroker.cli.main import main
from pybroker.native.walk import EVERY, SegmentWalk
from pybroker.protocol.record_batch import crc32c
from pybroker.storage.offline.layout import PartitionFiles

PLAIN = "plain-0"
FIRST = f"{0:020}"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return copy_of_kafka_dir(tmp_path)


def test_a_dir_that_apache_kafka_closed_is_clean() -> None:
    report = check_report(KAFKA_DIR, deep=True)
    assert report.findings == []
    assert report.checked_files >= sum(path.is_file() for path in KAFKA_DIR.rglob("*"))


def test_a_partition_and_a_file_of_it_are_clean_by_themselves() -> None:
    for path in sorted(KAFKA_DIR.rglob("*")):
        if path.is_dir() or path.parent.name in (PLAIN, "transactions-0", "__cluster_metadata-0", KAFKA_DIR.name):
            assert faults(path, deep=True) == [], path


def test_a_flipped_bit_is_found_wherever_the_format_allows(log_dir: Path) -> None:
    """300 of the 10,000 of tests/verify/house/test_flipped_bits.py."""
    missed = [
        f"{path.name}, bit {bit}"
        for path, bit in flips(log_dir, 300, seed=20)
        if not noticed(log_dir) and not is_unprotected(path, bit)
    ]
    assert missed == []


def test_bits_of_the_indexes_and_checkpoints_of_one_partition_is_found(log_dir: Path) -> None:
    partition = log_dir / "transactions-0"
    small = [path for path in sorted(partition.iterdir()) if path.suffix in (".index", ".timeindex", ".txnindex")][:4]
    for path in [*small, partition / "leader-epoch-checkpoint", log_dir / "recovery-point-offset-checkpoint"]:
        for bit in range(0, 8 * path.stat().st_size, 11):
            flip(path, bit)
            assert noticed(log_dir if path.parent == log_dir else partition), f"{path.name}: bit {bit}"
            flip(path, bit)


def test_a_time_index_entry_that_names_a_later_batch_of_its_timestamp_is_found(log_dir: Path) -> None:
    time_index, last_offsets = _twins(log_dir / PLAIN)
    entries = bytearray(time_index.read_bytes())
    base_offset = int(time_index.stem)
    at = 12 * [base_offset + offset for _, offset in struct.iter_unpack(">qi", entries)].index(last_offsets[0])
    struct.pack_into(">i", entries, at + 8, last_offsets[1] - base_offset)
    time_index.write_bytes(entries)
    (finding,) = faults(log_dir)
    assert (finding.kind, finding.path, finding.position) == ("time-index-entry", time_index, at)


def test_a_time_index_without_its_newest_entries_is_found(log_dir: Path) -> None:
    """Look-ups by time would pass over the newest records of that segment."""
    time_index = log_dir / PLAIN / f"{0:020}.timeindex"
    os.truncate(time_index, time_index.stat().st_size - 12)
    (finding,) = faults(log_dir)
    assert (finding.kind, finding.path) == ("time-index-short", time_index)


def _twins(partition: Path) -> tuple[Path, list[int]]:
    """A time index and the last offsets of two batches of one largest timestamp, the first of which is in it."""
    for base_offset, log in PartitionFiles.of(partition).logs:
        time_index = log.with_suffix(".timeindex")
        named = {base_offset + offset for _, offset in struct.iter_unpack(">qi", time_index.read_bytes())}
        rows = list(SegmentWalk().rows(log, base_offset, wanted=EVERY))
        for row, after in pairwise(rows):
            if row.last_offset in named and after.max_timestamp_ms == row.max_timestamp_ms:
                return time_index, [row.last_offset, after.last_offset]
    raise AssertionError(f"no two batches of {partition} have the same largest timestamp")


def test_a_finding_has_file_position_and_offset(log_dir: Path) -> None:
    path = log_dir / PLAIN / f"{60:020}.log"
    flip(path, 8 * 100)
    (finding,) = faults(log_dir)
    assert (finding.kind, finding.path, finding.position, finding.offset) == ("crc", path, 82, 61)


def test_a_missing_segment_is_a_gap(log_dir: Path) -> None:
    for suffix in ("log", "index", "timeindex"):
        (log_dir / PLAIN / f"{60:020}.{suffix}").unlink()
    assert "offset-gap" in kinds(log_dir)


def test_a_torn_tail_is_the_brokers_to_cut_unless_it_was_closed(log_dir: Path) -> None:
    path = log_dir / PLAIN / f"{217:020}.log"
    with open(path, "ab") as file:
        file.write(path.read_bytes()[:50])
    assert kinds(log_dir) == {"garbage"}
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert kinds(log_dir) == {"torn-tail"}


def test_preallocated_zeros_are_no_fault_after_an_unclean_stop(log_dir: Path) -> None:
    (log_dir / ".kafka_cleanshutdown").unlink()
    for suffix in ("log", "index", "timeindex"):
        with open(log_dir / PLAIN / f"{217:020}.{suffix}", "ab") as file:
            file.write(bytes(24 * 1000))
    report = check_report(log_dir)
    assert report.faults == []
    found = {finding.kind for finding in report.findings}
    assert found == {"unclean", "preallocated-tail", "index-preallocated"}


@pytest.mark.parametrize("is_clean", [True, False])
def test_apache_kafka_leaves_zeros_behind_the_indexes_of_its_metadata_log(log_dir: Path, is_clean: bool) -> None:
    """At every stop of 4.4.0, so they tell nothing of a clean one."""
    if not is_clean:
        (log_dir / ".kafka_cleanshutdown").unlink()
    last = max((log_dir / "__cluster_metadata-0").glob("*.log"))
    for suffix in (".index", ".timeindex"):
        with open(last.with_suffix(suffix), "ab") as file:
            file.write(bytes(24 * 1000))
    report = check_report(log_dir)
    assert report.faults == []
    found = {finding.kind for finding in report.findings}
    assert found == (set() if is_clean else {"unclean", "index-preallocated"})


def test_what_is_written_late_may_be_missing_after_an_unclean_stop(log_dir: Path) -> None:
    for name in (f"{217:020}.index", f"{217:020}.timeindex", "leader-epoch-checkpoint"):
        (log_dir / PLAIN / name).unlink()
    assert kinds(log_dir) == {"index-missing", "file-missing"}
    (log_dir / ".kafka_cleanshutdown").unlink()
    assert kinds(log_dir) == set()
    (log_dir / PLAIN / f"{60:020}.index").unlink()
    assert kinds(log_dir) == {"index-missing"}


def test_left_over_files_are_named(log_dir: Path) -> None:
    partition = log_dir / PLAIN
    (partition / f"{0:020}.log.swap").write_bytes(b"x")
    (partition / f"{0:020}.log.deleted").write_bytes(b"x")
    (partition / f"{0:020}.index.cleaned").write_bytes(b"x")
    (partition / f"{0:020}.log.damaged-700").write_bytes(b"x")
    (partition / "notes.txt").write_text("x")
    shutil.copytree(partition, log_dir / ("gone-0." + "a" * 32 + "-delete"))
    shutil.copytree(partition, log_dir / ("gone-1." + "a" * 32 + "-stray"))
    report = check_report(log_dir)
    expected = {"left-over-swap", "left-over-damaged", "left-over-stray", "unknown-file"}
    assert {finding.kind for finding in report.faults} == expected
    infos = {finding.kind for finding in report.findings} - {finding.kind for finding in report.faults}
    assert infos == {"left-over-deleted", "left-over-cleaned", "left-over-delete"}


def test_files_that_contradict_each_other(log_dir: Path) -> None:
    (log_dir / PLAIN / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n2 119\n")
    assert kinds(log_dir) == {"epoch-start"}
    (log_dir / PLAIN / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n2 120\n")
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nplain 0 500\n")
    assert kinds(log_dir) == {"checkpoint-offset", "checkpoint-partition"}


def test_a_lost_abort_is_missed_in_the_transaction_index(log_dir: Path) -> None:
    (log_dir / "transactions-0" / f"{15:020}.txnindex").unlink()
    assert kinds(log_dir) == {"transaction-index"}


def test_the_metadata_log_is_replayed(log_dir: Path) -> None:
    shutil.copytree(log_dir / PLAIN, log_dir / "nobodys-0")
    assert "metadata-topic" in kinds(log_dir)


def test_time_indexes_of_kafka_before_3_8_are_no_fault(log_dir: Path) -> None:
    """They name the record with the largest timestamp, whichever of its batch it is."""
    path = log_dir / PLAIN / f"{217:020}.timeindex"
    entries = list(struct.iter_unpack(">qi", path.read_bytes()))
    timestamp, offset = entries[0]
    path.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in ((timestamp, offset - 1), *entries[1:])))
    (finding,) = check_report(log_dir).findings
    assert (finding.kind, finding.is_fault) == ("index-older", False)
    assert finding.text.startswith("1 entries name a record before the last one of their batch")
    path.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in ((timestamp + 1, offset - 1), *entries[1:])))
    assert kinds(log_dir) == {"time-index-entry"}


@pytest.mark.parametrize(("version", "is_fault"), [("0", False), ("1", True)])
def test_topic_ids_are_not_demanded_of_brokers_with_zookeeper(log_dir: Path, version: str, is_fault: bool) -> None:
    (log_dir / PLAIN / "partition.metadata").unlink()
    path = log_dir / "meta.properties"
    text = path.read_text()
    if version == "0":
        path.write_text(text.replace("version=1", "version=0").replace("node.id", "broker.id"))
    assert kinds(log_dir) == ({"file-missing"} if is_fault else set())


def test_indexes_of_followers_of_older_releases_are_no_fault(log_dir: Path) -> None:
    """Entries that name a batch by the last offset of a later one: many are a habit, one is damage."""
    path = log_dir / PLAIN / f"{13:020}.index"
    entries = list(struct.iter_unpack(">ii", path.read_bytes()))
    path.write_bytes(b"".join(struct.pack(">ii", offset + 1, position) for offset, position in entries))
    assert {each.kind for each in check_report(log_dir).findings} == {"index-older"}
    assert kinds(log_dir) == set()
    (offset, position), *others = entries
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in ((offset + 1, position), *others)))
    assert kinds(log_dir) == {"index-entry"}


def test_a_file_that_was_put_aside_is_checked_by_itself(log_dir: Path) -> None:
    log = log_dir / PLAIN / f"{60:020}.log"
    aside = log.rename(log.with_name(log.name + ".deleted"))
    assert check_report(aside).checked_bytes == aside.stat().st_size
    flip(aside, 1000)
    assert kinds(aside) == {"crc"}


def test_messages_of_old_formats_are_named_and_checked(tmp_path: Path) -> None:
    partition = tmp_path / "old-0"
    partition.mkdir()
    log = partition / f"{0:020}.log"
    log.write_bytes(b"".join(old_message(offset, magic=offset % 2) for offset in range(4)))
    found = check_report(partition).findings
    assert [(each.kind, each.offset) for each in found if each.is_fault] == [
        ("old-magic", offset) for offset in range(4)
    ]
    flip(log, 8 * (len(log.read_bytes()) - 1))
    assert {each.kind for each in faults(partition)} == {"old-magic", "torn-tail"}


def old_message(offset: int, magic: int) -> bytes:
    """A message set of one message, as Apache Kafka wrote them before 0.11: no timestamp in magic 0."""
    value = b"v" * 20
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1000) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(message)) + message


def test_a_file_that_cannot_be_read_is_a_finding(log_dir: Path) -> None:
    index = log_dir / PLAIN / f"{60:020}.index"
    index.unlink()
    index.symlink_to("nowhere")
    flip(log_dir / "trimmed-0" / f"{45:020}.log", 1000)
    found = {(each.kind, each.path.parent.name) for each in faults(log_dir)}
    assert {("unreadable", PLAIN), ("crc", "trimmed-0")} <= found


def test_the_command_has_exit_statuses_and_json(log_dir: Path) -> None:
    def run(*arguments: object) -> Result:
        return CliRunner().invoke(main, ["log", "check", *map(str, arguments)])

    assert run(KAFKA_DIR).exit_code == 0
    assert run("--deep", KAFKA_DIR / PLAIN, KAFKA_DIR / "meta.properties").exit_code == 0
    assert run("/nowhere").exit_code == run(KAFKA_DIR.parent).exit_code == run().exit_code == 2
    logs = [log_dir / PLAIN / f"{base:020}.log" for base in (60, 97)]
    for log in logs:
        flip(log, 1000)
    people, programs = run(log_dir), run("--json", log_dir)
    assert people.exit_code == programs.exit_code == 1
    assert people.output.count("crc:") == 2
    assert "2 found" in people.output
    *found, sums = map(json.loads, programs.output.splitlines())
    # That a producer's sequence has a hole there is only worth knowing.
    assert [each["path"] for each in found if each["severity"] == "error"] == [str(log) for log in logs]
    assert sums["checked"]["faults"] == 2
    assert "left_out" not in sums["checked"]
    # Of one kind in one file one is shown, and the others are counted: a CRC and a sequence that has a hole.
    for byte in (200, 1900):
        flip(log_dir / PLAIN / f"{133:020}.log", 8 * byte)
    sums = json.loads(run("--json", "--limit", 1, log_dir / PLAIN).output.splitlines()[-1])
    assert sums["checked"]["left_out"] == 2


def mark_of(offset: int, base_offset: int, position: int) -> bytes:
    body = struct.pack(">qqq3I", offset, base_offset, position, 0, 0, 0)
    return struct.pack(">hI", 0, crc32c(body)) + body


def test_a_mark_is_held_against_its_segment_and_its_snapshot(log_dir: Path) -> None:
    partition = log_dir / "transactions-0"
    mark = partition / ".pybroker_mark"
    segment = max(partition.glob("*.log"))
    snapshot_offset = int(max(partition.glob("*.snapshot")).stem)
    base_offset, size_bytes = int(segment.stem), segment.stat().st_size
    good = mark_of(snapshot_offset, base_offset, size_bytes)
    mark.write_bytes(good)
    assert faults(log_dir) == []
    for bad in (
        good[:-1],
        bytes([good[0], 1]) + good[2:],
        good[:-1] + b"\1",
        mark_of(snapshot_offset, base_offset, size_bytes + 1),
        mark_of(snapshot_offset, base_offset + 1, size_bytes),
        mark_of(snapshot_offset + 1, base_offset, size_bytes),
    ):
        mark.write_bytes(bad)
        assert [(each.kind, each.path) for each in faults(log_dir)] == [("mark", mark)], bad
    assert faults(mark) == [], "what is not given is not looked at"
