"""Names, files and bytes that no broker leaves: the tools say so, and go on with all the rest."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from offline_dirs import copy_of_kafka_dir, flip, intact_batches, kinds, tree

sys.path.insert(0, str(Path(__file__).parents[1]))
from log_setup import ManualClock

from pybroker.cli.main import main
from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import TopicConfig
from pybroker.metadata.offline import topic_ids
from pybroker.native.broker import BrokerOptions, NativeBroker
from pybroker.protocol import messages as m
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.errors import StorageError
from pybroker.storage.files import partition_metadata
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.offline import readable
from pybroker.storage.offline.layout import LogDirFiles, PartitionFiles, open_target
from pybroker.storage.offline.repairs.repair_dir import repair
from pybroker.storage.offline.repairs.repair_report import RepairResult

NO_TEXT = os.fsdecode(b"\xff\xfe")
FIRST = f"{0:020}"
SECOND = f"{60:020}"


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody cuts the power here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return copy_of_kafka_dir(tmp_path)


def run(*arguments: Any) -> Result:
    result = CliRunner().invoke(main, ["log", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def repaired(source: Path, output: Path) -> RepairResult:
    return repair(open_target(source), output, topic_ids)


def dead_link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("nowhere")


def directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [f"{10**20 - 1}.log", f"{1 << 63:020}.index", "\u0660" * 20 + ".log"])
def test_a_name_that_is_no_offset_is_no_segments(log_dir: Path, tmp_path: Path, name: str) -> None:
    (log_dir / "plain-0" / name).write_bytes(b"x" * 100)
    assert "unknown-file" in kinds(log_dir)
    assert not repaired(log_dir, tmp_path / "repaired").dropped
    with pytest.raises(StorageError):
        open_target(log_dir / "plain-0" / name)


def test_a_second_spelling_of_a_partition_is_none(log_dir: Path, tmp_path: Path) -> None:
    repaired(log_dir, tmp_path / "before")
    (log_dir / "plain-00").mkdir()
    (log_dir / "plain-00" / f"{FIRST}.log").touch()
    repaired(log_dir, tmp_path / "after")
    assert tree(tmp_path / "after") == tree(tmp_path / "before")
    assert "unknown-file" in kinds(log_dir)


def test_nobody_waits_for_a_pipe(log_dir: Path) -> None:
    for name in ("leader-epoch-checkpoint", f"{FIRST}.index", f"{SECOND}.log"):
        path = log_dir / "plain-0" / name
        path.unlink()
        os.mkfifo(path)
    (log_dir / "meta.properties").unlink()
    os.mkfifo(log_dir / "meta.properties")
    files = PartitionFiles.of(log_dir / "plain-0")
    assert files.leader_epochs is None
    assert [path.name for path in files.unknown] == [f"{FIRST}.index", f"{SECOND}.log", "leader-epoch-checkpoint"]
    assert "meta.properties" not in LogDirFiles.of(log_dir).files


def test_a_name_that_is_no_text_can_be_printed(log_dir: Path, tmp_path: Path) -> None:
    (log_dir / NO_TEXT).touch()
    (log_dir / "plain-0" / NO_TEXT).touch()
    assert "unknown-file" in run("check", log_dir).output
    run("dump", log_dir / "plain-0")
    result = run("repair", log_dir, "--output", tmp_path / "repaired")
    assert result.exit_code == 0
    assert "no broker names it so" in (tmp_path / "repaired.repair-report.txt").read_text()


def endless(path: Path) -> None:
    """More than fits into memory, and takes no room."""
    path.touch()
    os.truncate(path, 1 << 40)


# ---- what cannot be read ---------------------------------------------------------------------------------------------


SMALL = [f"{FIRST}.index", f"{FIRST}.timeindex", f"{FIRST}.txnindex", f"{SECOND}.snapshot", ".pybroker_mark"]


@pytest.mark.parametrize("make", [dead_link, directory, endless])
@pytest.mark.parametrize("name", [*SMALL, "leader-epoch-checkpoint", "partition.metadata"])
def test_a_small_file_that_cannot_be_read_hides_nothing(
    log_dir: Path, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(log_dir / "plain-0" / name)
    flip(log_dir / "plain-0" / f"{SECOND}.log", 8 * 200)
    assert {"unreadable", "crc"} <= kinds(log_dir)
    assert "checkpoint-partition" not in kinds(log_dir)
    result = repaired(log_dir, tmp_path / "repaired")
    assert len(result.dropped) == 1
    assert len(intact_batches(tmp_path / "repaired" / "plain-0")) == 125


@pytest.mark.parametrize(
    "name",
    [
        "replication-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "cleaner-offset-checkpoint",
        "meta.properties",
        ".kafka_cleanshutdown",
    ],
)
@pytest.mark.parametrize("make", [dead_link, endless])
def test_a_file_of_the_log_dir_that_cannot_be_read_hides_nothing(
    log_dir: Path, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(log_dir / name)
    flip(log_dir / "plain-0" / f"{SECOND}.log", 8 * 200)
    assert {"unreadable", "crc"} <= kinds(log_dir)
    assert len(repaired(log_dir, tmp_path / "repaired").dropped) == 1


@pytest.mark.parametrize("make", [dead_link, directory])
def test_a_segment_that_cannot_be_read_costs_that_segment(
    log_dir: Path, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    wanted = intact_batches(log_dir / "plain-0")
    make(log_dir / "plain-0" / f"{SECOND}.log")
    result = repaired(log_dir, tmp_path / "repaired")
    (dropped,) = result.dropped
    assert (dropped.path.name, dropped.first_offset) == (f"{SECOND}.log", 60)
    kept = intact_batches(tmp_path / "repaired" / "plain-0")
    assert 0 < len(kept) < len(wanted)
    assert set(kept) < set(wanted)
    assert "unreadable" in kinds(log_dir)
    assert run("dump", log_dir / "plain-0").exit_code == 1


# ---- bytes -----------------------------------------------------------------------------------------------------------


def test_a_batch_from_below_its_segment_is_dropped(log_dir: Path, tmp_path: Path) -> None:
    """No CRC covers a base offset; the batch before it is damaged, so that its end is not known."""
    before = log_dir / "plain-0" / max(path.name for path in (log_dir / "plain-0").glob("*.log") if path.name < SECOND)
    flip(before, 8 * (before.stat().st_size - 1))
    path = log_dir / "plain-0" / f"{SECOND}.log"
    data = path.read_bytes()
    path.write_bytes(struct.pack(">q", 59) + data[8:])
    result = repaired(log_dir, tmp_path / "repaired")
    assert {drop.path.name for drop in result.dropped} == {before.name, path.name}
    assert len(intact_batches(tmp_path / "repaired" / "plain-0")) == 124


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "NaN", '{"version":0,"brokerEpoch":NaN}'])
@pytest.mark.parametrize("name", [".kafka_cleanshutdown", "__cluster_metadata-0/quorum-state"])
def test_json_of_a_depth_or_kind_that_nobody_writes_is_malformed(log_dir: Path, name: str, text: str) -> None:
    (log_dir / name).write_text(text)
    assert "malformed" in kinds(log_dir)


def test_what_is_printed_as_json_is_json(log_dir: Path) -> None:
    state = log_dir / "__cluster_metadata-0" / "quorum-state"
    keys = {"clusterId": "x", "leaderId": 1, "leaderEpoch": 1, "votedId": 1, "appliedOffset": 0, "currentVoters": []}
    text = json.dumps({**keys, "data_version": 0}, separators=(",", ":")).replace('"x"', "Infinity")
    state.write_text(text)
    dead_link(log_dir / "replication-offset-checkpoint")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for line in run("dump", "--json", log_dir).stdout.splitlines():
        json.loads(line, parse_constant=refuse)
    quota = m.ClientQuotaRecord(entity=[], key="producer_byte_rate", value=float("nan"), remove=False)
    json.loads(json.dumps(readable.plain(quota)), parse_constant=refuse)


# ---- and a broker that starts there ----------------------------------------------------------------------------------


@asynccontextmanager
async def started(log_dir: Path) -> AsyncIterator[LogManager]:
    """A log manager over one log dir, as after a start."""
    native = NativeBroker(BrokerOptions("epoll", 1, 1, 0, 1 << 20, 1 << 20, 100, 60_000, 10, 1 << 20))
    native.start()
    manager = LogManager(native, [LogDirectory(log_dir, bytes([1]) * 16)], BrokerConfig.load(None, []), ManualClock())
    try:
        await manager.load()
        yield manager
        await manager.close(broker_epoch=5, resigned_error=6)
    finally:
        native.stop()
        native.close()


def ends(log_dir: Path, name: str = "plain") -> tuple[int, int, int]:
    """Start and end of a log that a broker opens, and how much it cuts off."""

    async def run() -> tuple[int, int, int]:
        async with started(log_dir) as manager:
            topic_id = partition_metadata.read(log_dir / f"{name}-0")
            assert topic_id is not None
            config = TopicConfig.resolve({}, manager.config)
            log = await manager.open((name, 0), topic_id, bytes([1]) * 16, 0, config, is_new=False)
            state = log.native.state
            return state.log_start_offset, state.log_end_offset, log.native.recovery.truncated_bytes

    return asyncio.run(run())


def damage_end_of(log_dir: Path, partition: str, base_offset: int) -> None:
    path = log_dir / partition / f"{base_offset:020}.log"
    flip(path, 8 * (path.stat().st_size - 1))


@pytest.mark.parametrize("again", [False, True])
def test_what_was_saved_behind_a_gap_at_the_end_of_a_segment_is_served(
    log_dir: Path, tmp_path: Path, again: bool
) -> None:
    (log_dir / "bootstrap.checkpoint").unlink(missing_ok=True)
    damage_end_of(log_dir, "plain-0", 0)
    output = tmp_path / "repaired"
    assert len(repaired(log_dir, output).dropped) == 1
    if again:
        output = tmp_path / "again"
        assert not repaired(tmp_path / "repaired", output).dropped
    assert ends(output) == (0, 240, 0)


def test_a_partition_that_is_repaired_in_place_is_served_to_its_end(log_dir: Path) -> None:
    """After a kill: nothing says that any of it had been synced."""
    (log_dir / ".kafka_cleanshutdown").unlink()
    (log_dir / "recovery-point-offset-checkpoint").unlink()
    damage_end_of(log_dir, "plain-0", 0)
    assert run("repair", "--in-place", log_dir / "plain-0").exit_code == 1
    assert ends(log_dir) == (0, 240, 0)


@pytest.mark.parametrize("in_place", [False, True])
def test_offsets_of_lost_batches_at_the_end_are_not_given_out_again(
    log_dir: Path, tmp_path: Path, in_place: bool
) -> None:
    """A consumer that has got them would pass over what comes in their place."""
    damage_end_of(log_dir, "plain-0", 217)
    if in_place:
        assert run("repair", "--in-place", log_dir / "plain-0").exit_code == 1
        assert ends(log_dir) == (0, 240, 0)
    else:
        assert len(repaired(log_dir, tmp_path / "repaired").dropped) == 1
        assert ends(tmp_path / "repaired") == (0, 240, 0)
