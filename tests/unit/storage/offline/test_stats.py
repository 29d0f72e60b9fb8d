"""`pybroker log stats`: sums over partitions and topics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from offline_dirs import KAFKA_DIR, copy_of_kafka_dir, flip

from pybroker.cli.main import main
from pybroker.storage.offline.layout import open_target
from pybroker.storage.offline.stats import PartitionStats, by_topic, stats


def of(name: str, *, deep: bool = False) -> PartitionStats:
    (found,) = [each for each in stats(open_target(KAFKA_DIR), deep=deep) if each.name == name]
    return found


def test_a_partition_adds_up() -> None:
    plain = of("plain-0", deep=True)
    logs = list((KAFKA_DIR / "plain-0").glob("*.log"))
    assert (plain.segments, plain.bytes) == (len(logs), sum(path.stat().st_size for path in logs))
    assert (plain.batches, plain.records, plain.first_offset, plain.end_offset) == (126, 240, 0, 240)
    assert plain.codec_batches == {"none": 98, "gzip": 8, "snappy": 8, "lz4": 4, "zstd": 8}
    assert plain.null_keys == 0
    assert plain.sizes.total() == plain.batches
    half, most = plain.size_percentile(50), plain.size_percentile(99)
    assert half is not None and most is not None and 61 <= half <= most <= max(plain.sizes)
    assert plain.compression_ratio is not None and plain.compression_ratio > 1
    assert plain.dirty_ratio is None


def test_a_compacted_partition_has_a_dirty_ratio() -> None:
    assert of("compacted-0").dirty_ratio == 0.0


def test_preallocated_zeros_are_damage_only_after_a_clean_stop(tmp_path: Path) -> None:
    log_dir = copy_of_kafka_dir(tmp_path)
    last = sorted((log_dir / "plain-0").glob("*.log"))[-1]
    with open(last, "ab") as file:
        file.write(bytes(24_000))
    statuses = []
    for _ in range(2):
        for path in (log_dir, log_dir / "plain-0", last):
            statuses.append(CliRunner().invoke(main, ["log", "stats", str(path)]).exit_code)
        (log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    assert statuses == [1, 1, 1, 0, 0, 0]
    assert of("plain-0").bytes + 24_000 == stats(open_target(log_dir / "plain-0"), deep=False)[0].bytes
    first = sorted((log_dir / "plain-0").glob("*.log"))[0]
    with open(first, "ab") as file:
        file.write(bytes(500))
    for path in (log_dir, first):
        assert CliRunner().invoke(main, ["log", "stats", str(path)]).exit_code == 1, "only the last file has such room"
    assert stats(open_target(log_dir / "plain-0"), deep=False)[0].damaged_bytes == 500


def test_topics_are_sums_of_their_partitions() -> None:
    partitions = stats(open_target(KAFKA_DIR / "plain-0"), deep=False) + stats(
        open_target(KAFKA_DIR / "plain-0"), deep=False
    )
    (topic,) = by_topic(partitions)
    assert (topic.name, topic.partitions, topic.records, topic.sizes.total()) == ("plain", 2, 480, 252)


@pytest.mark.parametrize("deep", [False, True])
def test_the_command(deep: bool, tmp_path: Path) -> None:
    options = ["--deep"] if deep else []
    people = CliRunner().invoke(main, ["log", "stats", *options, str(KAFKA_DIR)])
    programs = CliRunner().invoke(main, ["log", "stats", *options, "--topics", "--json", str(KAFKA_DIR)])
    assert people.exit_code == programs.exit_code == 0
    assert "plain-0" in people.output
    found = {each["name"]: each for each in map(json.loads, programs.output.splitlines())}
    assert found["transactions"]["control_batches"] == 24
    assert ("records_with_null_key" in found["plain"]) is deep
    log_dir = copy_of_kafka_dir(tmp_path)
    flip(log_dir / "plain-0" / f"{60:020}.log", 1000)
    assert CliRunner().invoke(main, ["log", "stats", *options, str(log_dir)]).exit_code == 1
