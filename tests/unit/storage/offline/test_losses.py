"""What `pybroker log check` says of records that are lost, and what `pybroker log accept-loss` makes of them."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1]))

from log_setup import TOPIC_ID, Setup, setup

from pybroker.cli.commands.log.accept_loss import command
from pybroker.metadata.offline import check_metadata
from pybroker.native.rings import boot_id
from pybroker.protocol import record_batch
from pybroker.storage.errors import StorageError
from pybroker.storage.offline.checks.check import check
from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.checks.losses import accept_loss
from pybroker.storage.offline.layout import open_target
from pybroker.storage.rings.ring_notes import RingNote
from pybroker.storage.rings.tail_rings import RING_BYTES

END = 9
BASES = (0, 3, 6)
KEY = ("t", 0)


def segment(root: Path, base: int) -> Path:
    return root / "d" / "t-0" / f"{base:020}.log"


async def _fill(made: Setup) -> None:
    log = await made.open()
    for base in BASES:
        if base > 0:
            await log.run(log.native.roll)
        for _ in range(3):
            await made.append(log)


def _fill_and_stop(root: Path) -> None:
    async def run() -> None:
        async with setup(root) as made:
            await _fill(made)

    asyncio.run(run())


def _lost(root: Path) -> list[str]:
    report = Report()
    check(open_target(root / "d"), report, deep=False, check_metadata=check_metadata)
    return [f"{each.path.name} {each.text}" for each in report.faults if each.kind == "lost-records"]


def _shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _remove_all(path: Path) -> None:
    shutil.rmtree(path.parent)


DAMAGES: list[tuple[Callable[[Path], None], int, list[int]]] = [
    (Path.unlink, 0, [3, 4, 5, 6, 7, 8]),
    (Path.unlink, 3, [0, 1, 2, 6, 7, 8]),
    (Path.unlink, 6, [0, 1, 2, 3, 4, 5]),
    (lambda path: path.write_bytes(b"") and None, 6, [0, 1, 2, 3, 4, 5]),
    (_shorten, 3, [0, 1, 2, 3, 4, 6, 7, 8]),
    (_shorten, 6, [0, 1, 2, 3, 4, 5, 6, 7]),
    (_remove_all, 0, []),
]


async def _offsets(made: Setup, start: int, end: int) -> list[int]:
    """Of all records that a reader from `start` on is given."""
    log = made.manager.logs[KEY]
    found: list[int] = []
    offset = start
    while offset < end:
        data = await log.run(log.native.read, offset, 1 << 20)
        offsets = [record.offset for batch in record_batch.parse(data) for record in batch.records]
        if not offsets:
            break
        found += [each for each in offsets if each >= offset]
        offset = found[-1] + 1
    return found


@pytest.mark.parametrize(("damage", "base", "left"), DAMAGES)
@pytest.mark.parametrize("is_killed", [False, True])
def test_an_accepted_loss_leaves_a_gap_and_no_offset_is_given_out_twice(
    tmp_path: Path, damage: Callable[[Path], None], base: int, left: list[int], is_killed: bool
) -> None:
    async def prepare() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
            if is_killed:
                log = made.manager.logs[KEY]
                await log.run(log.native.sync)
                await made.maintenance.upkeep()
                await made.maintenance.apply_retention()
                await made.manager.write_checkpoints()
                await made.kill()

    async def go_on() -> None:
        for attempt in range(2):
            async with setup(tmp_path) as made:
                log = await made.open(is_new=False)
                end = END + attempt
                assert log.native.state.log_end_offset == end
                await made.append(log)
                start = log.native.state.log_start_offset
                assert await _offsets(made, start, end + 1) == [*left, *range(END, end + 1)]
                if is_killed:
                    await made.kill()

    asyncio.run(prepare())
    assert _lost(tmp_path) == []
    damage(segment(tmp_path, base))
    assert len(_lost(tmp_path)) == 1
    assert accept_loss(tmp_path / "d", KEY, look=True).next_offset == END
    assert len(_lost(tmp_path)) == 1, "a look changes nothing"
    accepted = accept_loss(tmp_path / "d", KEY)
    assert accepted.next_offset == END and accepted.losses
    assert _lost(tmp_path) == []
    with pytest.raises(StorageError, match="has lost nothing"):
        accept_loss(tmp_path / "d", KEY)
    asyncio.run(go_on())


def test_a_lost_ring_is_found_and_accepted(tmp_path: Path) -> None:
    _fill_and_stop(tmp_path)
    RingNote(b"s" * 16, boot_id(), "one.ring", is_lost=True).write(tmp_path / "d" / "t-0")
    (text,) = _lost(tmp_path)
    assert "in the tail ring one.ring, which is gone" in text
    assert accept_loss(tmp_path / "d", KEY).next_offset == END + RING_BYTES
    assert _lost(tmp_path) == []

    async def run() -> None:
        async with setup(tmp_path) as made:
            log = await made.open(is_new=False)
            assert log.native.state.log_end_offset == END + RING_BYTES

    asyncio.run(run())


def test_a_directory_of_another_topic_or_one_that_was_deleted_is_no_loss(tmp_path: Path) -> None:
    _fill_and_stop(tmp_path)
    log = tmp_path / "d" / "t-0"
    log.rename(log.with_name(f"t-0.{'0' * 32}-delete"))
    assert _lost(tmp_path) == []
    (tmp_path / "d" / f"t-0.{'0' * 32}-delete").rename(log)

    async def run() -> None:
        shutil.rmtree(log)
        async with setup(tmp_path) as made:
            await made.open(is_new=False, topic_id=bytes(reversed(TOPIC_ID)))
            await made.kill()

    asyncio.run(run())
    assert _lost(tmp_path) == []


def test_the_command_says_what_it_accepts(tmp_path: Path) -> None:
    _fill_and_stop(tmp_path)
    segment(tmp_path, 3).unlink()
    arguments = [str(tmp_path / "d"), "--partition", "t-0"]
    shown = CliRunner().invoke(command, [*arguments, "--look", "--json"])
    assert shown.exit_code == 0
    assert json.loads(shown.stdout) == {
        "accepted": False,
        "losses": [{"path": str(segment(tmp_path, 3)), "what": "is gone", "from": 3, "to": 5}],
        "next_offset": END,
    }
    accepted = CliRunner().invoke(command, arguments)
    assert accepted.exit_code == 0
    assert "records of t-0 are lost, up to offsets 3 to 5" in accepted.stdout
    assert "t-0 goes on at offset 9" in accepted.stdout
    again = CliRunner().invoke(command, arguments)
    assert again.exit_code == 2 and "has lost nothing" in again.output
