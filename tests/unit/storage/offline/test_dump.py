"""`pybroker log dump`: every kind of file, decoded, and damage in its place."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from offline_dirs import KAFKA_DIR, copy_of_kafka_dir, flip

from pybroker.cli.main import main
from pybroker.storage.offline.dump import DumpOptions, dump
from pybroker.storage.offline.layout import open_target


def items(path: Path, **options: Any) -> list[dict[str, Any]]:
    return list(dump(open_target(path), DumpOptions(**options)))


def test_every_file_of_a_log_dir_is_dumped() -> None:
    found = items(KAFKA_DIR, records=True)
    counts = Counter(item["type"] for item in found)
    assert counts["file"] == sum(path.is_file() for path in KAFKA_DIR.rglob("*"))
    assert counts["problem"] == counts["garbage"] == 0
    assert [item for item in found if "problem" in item] == []
    begins = [number for number, item in enumerate(found) if item["type"] == "file"]
    for begin, end in pairwise([*begins, len(found)]):
        of_file = found[begin:end]
        records = sum(item["type"] == "record" for item in of_file)
        assert records == sum(item.get("record_count", 0) for item in of_file)


def test_records_of_internal_topics_are_decoded() -> None:
    commits = [item for item in items(KAFKA_DIR / "__consumer_offsets-0", records=True) if "record" in item]
    assert {item["record"] for item in commits} == {"OffsetCommit", "GroupMetadata"}
    last = [item for item in commits if item["record"] == "OffsetCommit"][-1]
    assert last["key"] == {"group": "readers", "topic": "plain", "partition": 0}
    assert last["value"]["offset"] > 0
    states = [item for item in items(KAFKA_DIR / "__transaction_state-0", records=True) if "record" in item]
    assert {item["key"]["transactional_id"] for item in states} == {"one", "two"}
    metadata = [item for item in items(KAFKA_DIR / "__cluster_metadata-0", records=True) if "record" in item]
    assert {item["value"]["name"] for item in metadata if item["record"] == "TopicRecord"} >= {"plain", "compacted"}
    assert "LeaderChangeMessage" in {item["record"] for item in metadata}


def test_markers_indexes_and_snapshots() -> None:
    found = items(KAFKA_DIR / "transactions-0", records=True)
    markers = Counter(item["record"] for item in found if "record" in item)
    aborted = [item for item in found if item["type"] == "aborted-transaction"]
    assert markers["ABORT"] == len(aborted) == 12
    assert {item["last_offset"] for item in aborted} <= {item["base_offset"] for item in found if item.get("control")}
    producers = [item for item in found if item["type"] == "producer"]
    assert {item["producer_id"] for item in producers} == {7, 8}


def test_raw_records_are_hexadecimal() -> None:
    (first, *_) = [
        item for item in items(KAFKA_DIR / "__consumer_offsets-0", records=True, raw=True) if item["type"] == "record"
    ]
    assert bytes.fromhex(first["key"])[:2] == b"\0\1"


def test_damage_is_dumped_in_its_place(tmp_path: Path) -> None:
    path = copy_of_kafka_dir(tmp_path) / "plain-0" / f"{60:020}.log"
    whole = [item for item in items(path, records=True) if item["type"] == "batch"]
    flip(path, 8 * (whole[3]["position"] + 70))
    flip(path, 8 * (whole[5]["position"] + 8) + 3)
    damaged = [item for item in items(path, records=True) if item["type"] in ("batch", "garbage")]
    assert [item for item in damaged if item.get("valid")] == whole[:3] + whole[4:5] + whole[6:]
    assert [item["position"] for item in damaged if item.get("valid") is False] == [whole[3]["position"]]
    assert [item["position"] for item in damaged if item["type"] == "garbage"] == [whole[5]["position"]]


def test_the_command_prints_lines_for_people_and_for_programs() -> None:
    path = str(KAFKA_DIR / "plain-0")
    people = CliRunner().invoke(main, ["log", "dump", "--records", path])
    programs = CliRunner().invoke(main, ["log", "dump", "--records", "--json", path])
    assert people.exit_code == programs.exit_code == 0
    parsed = [json.loads(line) for line in programs.output.splitlines()]
    assert parsed == items(KAFKA_DIR / "plain-0", records=True)
    assert sum(line.startswith("  batch ") for line in people.output.splitlines()) == 126
    nothing = CliRunner().invoke(main, ["log", "dump", "/nowhere"])
    assert nothing.exit_code == 2


def test_a_mark_and_one_that_is_damaged(tmp_path: Path) -> None:
    mark = tmp_path / ".pybroker_mark"
    told = {"offset": 10, "base_offset": 3, "position": 3840}
    counts = {"offset_entries": 2, "time_entries": 1, "transaction_entries": 0}
    mark.write_bytes(
        bytes.fromhex("000077a2779d 000000000000000a 0000000000000003 0000000000000f00 00000002 00000001 00000000")
    )
    assert items(mark)[1:] == [{"type": "mark", **told, **counts}]
    flip(mark, 100)
    assert [item["type"] for item in items(mark)] == ["file", "problem"]
