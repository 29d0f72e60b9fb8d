"""Logs that have lost records since they were recorded, and logs that were cut or deleted on purpose."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from log_setup import TOPIC_ID, Setup, setup
from ring_files import SESSION, write_ring, write_session

from pybroker.native.rings import boot_id
from pybroker.storage.files import clean_shutdown, log_ends, offset_checkpoint
from pybroker.storage.files.log_ends import FILE_NAME, EndsFile, LogEnds, RecordedEnds
from pybroker.storage.logs.log_loss import LostRecords
from pybroker.storage.rings import tail_rings
from pybroker.storage.rings.ring_notes import RingNote

#: Three segments with three records each: base offsets 0, 3 and 6.
SEGMENTS, PER_SEGMENT = 3, 3
END = SEGMENTS * PER_SEGMENT


async def _fill(made: Setup, topic: str = "t", **overrides: str) -> None:
    log = await made.open(topic, **overrides)
    for segment in range(SEGMENTS):
        for _ in range(PER_SEGMENT):
            await made.append(log)
        if segment + 1 < SEGMENTS:
            await log.run(log.native.roll)


def _segment(root: Path, base: int, topic: str = "t") -> Path:
    return root / "d" / f"{topic}-0" / f"{base:020}.log"


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


Damage = Callable[[Path], None]


@pytest.mark.parametrize("topic", ["t", "__consumer_offsets"])
@pytest.mark.parametrize("damage", [_empty, Path.unlink, _shorten])
@pytest.mark.parametrize(
    ("base", "first", "end"), [(0, 0, 3), (3, 3, 6), (6, 6, 9)], ids=["oldest", "middle", "active"]
)
def test_a_segment_that_was_damaged_after_a_stop_in_order_is_missed(
    tmp_path: Path, topic: str, damage: Damage, base: int, first: int, end: int
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made, topic)
        damage(_segment(tmp_path, base, topic))
        async with setup(tmp_path) as made:
            with pytest.raises(LostRecords) as raised:
                await made.open(topic, is_new=False)
            loss = raised.value.loss
            assert (loss.key, loss.first_offset, loss.end_offset, loss.next_offset) == ((topic, 0), first, end, END)
            assert loss.path == _segment(tmp_path, base, topic)
            assert made.manager.ends.losses.found == {(topic, 0): loss}
            assert str(loss.path) in str(raised.value)
        # Nobody has touched anything, so the next start says the same.
        async with setup(tmp_path) as made:
            with pytest.raises(LostRecords):
                await made.open(topic, is_new=False)

    asyncio.run(run())


def test_a_directory_that_is_gone_is_missed(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
        shutil.rmtree(tmp_path / "d" / "t-0")
        async with setup(tmp_path) as made:
            with pytest.raises(LostRecords) as raised:
                await made.open(is_new=False)
            assert (raised.value.loss.first_offset, raised.value.loss.end_offset) == (0, END)
            assert not (tmp_path / "d" / "t-0").exists(), "an empty log in its place would give its offsets out again"

    asyncio.run(run())


@pytest.mark.parametrize("base", [0, 3, 6])
def test_after_a_kill_what_was_recorded_is_missed(tmp_path: Path, base: int) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
            log = made.manager.logs["t", 0]
            await log.run(log.native.sync)
            await made.maintenance.upkeep()
            await made.maintenance.apply_retention()
            await made.manager.write_checkpoints()
            await made.kill()
        _empty(_segment(tmp_path, base))
        async with setup(tmp_path) as made:
            with pytest.raises(LostRecords):
                await made.open(is_new=False)

    asyncio.run(run())


def test_a_replica_with_a_loss_is_opened_and_remembers_it_until_it_is_mended(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
        _empty(_segment(tmp_path, 6))
        for _ in range(2):  # a stop in order does not make it good
            async with setup(tmp_path) as made:
                log = await made.open(is_new=False, is_replicated=True)
                assert log.native.state.log_end_offset == 6
                assert made.manager.ends.losses.count == 1
        async with setup(tmp_path) as made:
            log = await made.open(is_new=False, is_replicated=True)
            made.manager.ends.mended(log)
        async with setup(tmp_path) as made:
            await made.open(is_new=False)

    asyncio.run(run())


def test_a_replica_that_lacks_its_middle_begins_anew(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
        _segment(tmp_path, 3).unlink()
        async with setup(tmp_path) as made:
            log = await made.open(is_new=False, is_replicated=True)
            assert log.native.state[:4] == (0, 0, 0, 0)
            (stray,) = (tmp_path / "d").glob("*-stray")
            assert sorted(each.name for each in stray.glob("*.log")) == [f"{base:020}.log" for base in (0, 6)]

    asyncio.run(run())


# ---- no loss ---------------------------------------------------------------------------------------------------------


def test_another_topic_of_the_same_name_has_lost_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
        shutil.rmtree(tmp_path / "d" / "t-0")
        async with setup(tmp_path) as made:
            log = await made.open(is_new=False, topic_id=bytes(reversed(TOPIC_ID)))
            assert log.native.state.log_end_offset == 0

    asyncio.run(run())


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_apache_kafka_has_had_since_is_reported_and_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_killed: bool
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
        # As Apache Kafka leaves it: its own checkpoint and mark, and no word of ours.
        offset_checkpoint.write(tmp_path / "d" / offset_checkpoint.RECOVERY_POINT, {("t", 0): END, ("other", 0): 1})
        clean_shutdown.remove(tmp_path / "d")
        if not is_killed:
            clean_shutdown.write(tmp_path / "d", 77)
        _empty(_segment(tmp_path, 6))
        async with setup(tmp_path) as made:
            log = await made.open(is_new=False)
            assert log.native.state.log_end_offset == 6

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "does not count" in caplog.text
    assert "ends at offset 6, but was synced up to 9" in caplog.text


def test_a_damaged_record_is_told_of_and_nothing_is_compared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
        path = tmp_path / "d" / FILE_NAME
        path.write_bytes(path.read_bytes().replace(b" 9 ", b" 8 "))
        async with setup(tmp_path) as made:
            await made.open(is_new=False)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert f"{FILE_NAME} is damaged: its checksum is wrong" in caplog.text


async def _truncate(made: Setup) -> None:
    log = made.manager.logs["t", 0]
    await log.run(log.native.truncate, 4)


async def _delete_oldest(made: Setup) -> None:
    log = made.manager.logs["t", 0]
    made.manager.configure(log, log.config)
    await made.manager.ends.before_deletion([(log, 6)])
    await log.run(log.native.delete_before, 6)


async def _delete(made: Setup) -> None:
    await made.manager.delete(made.manager.logs["t", 0])


@pytest.mark.parametrize("change", [_truncate, _delete_oldest, _delete])
def test_a_kill_behind_a_change_of_ours_is_no_loss(tmp_path: Path, change: Callable[[Setup], object]) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
        async with setup(tmp_path) as made:
            await made.open(is_new=False)
            await change(made)  # type: ignore[misc]  # all are coroutines
            await made.kill()
        async with setup(tmp_path) as made:
            await made.open(is_new=False)
            assert made.manager.ends.losses.count == 0

    asyncio.run(run())


def test_the_record_of_a_log_survives_its_file(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
        found = EndsFile.read(tmp_path / "d")
        assert found is not None
        ends = found.ends["t", 0]
        assert (ends.topic_id, ends.generation, ends.start, ends.durable, ends.written) == (TOPIC_ID, 0, 0, END, END)
        sizes = [(base, _segment(tmp_path, base).stat().st_size) for base in (0, 3, 6)]
        assert list(ends.segments) == sizes

    asyncio.run(run())


# ---- tail rings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [_empty, Path.unlink])
def test_a_ring_that_is_gone_after_a_kill_is_missed(tmp_path: Path, rings: Path, damage: Damage) -> None:
    async def run() -> None:
        log = tmp_path / "d" / "t-0"
        async with setup(tmp_path) as made:
            await _fill(made)
            await made.kill()
        # As a killed broker leaves a hot log.
        ring = rings / "one.ring"
        write_ring(ring, b"", start=1, directory_id=bytes([1]) * 16, topic_id=TOPIC_ID)
        RingNote(SESSION, boot_id(), ring.name, is_lost=False).write(log)
        write_session(tmp_path / "d", rings)
        damage(ring)
        for _ in range(2):  # the second start has no session that names the ring
            async with setup(tmp_path) as made:
                with pytest.raises(LostRecords, match=r"in the tail ring one\.ring, which is gone") as raised:
                    await made.open(is_new=False)
                loss = raised.value.loss
                assert (loss.first_offset, loss.next_offset) == (END, END + tail_rings.RING_BYTES)

    asyncio.run(run())


# ---- a kill between two checkpoints ----------------------------------------------------------------------------------


def test_after_a_kill_what_was_written_since_the_last_checkpoint_is_missed(tmp_path: Path) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
            await made.manager.write_written()
            await made.kill()
        _empty(_segment(tmp_path, 6))
        async with setup(tmp_path) as made:
            with pytest.raises(LostRecords, match="ends at offset 6, and reached 9"):
                await made.open(is_new=False)

    asyncio.run(run())


def test_a_power_cut_may_take_what_was_only_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
            await made.manager.write_written()
            await made.manager.write_checkpoints()
            await made.kill()
        _empty(_segment(tmp_path, 6))
        monkeypatch.setattr(log_ends, "boot_id", lambda: bytes(16))
        async with setup(tmp_path) as made:
            log = await made.open(is_new=False)
            assert log.native.state.log_end_offset == 6

    asyncio.run(run())


@pytest.mark.parametrize("change", [_truncate, _delete_oldest, _delete])
def test_a_change_of_ours_since_it_was_noted_what_is_written_is_no_loss(
    tmp_path: Path, change: Callable[[Setup], object]
) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
            await made.manager.write_written()
            await change(made)  # type: ignore[misc]  # all are coroutines
            await made.kill()
        async with setup(tmp_path) as made:
            await made.open(is_new=False)
            assert made.manager.ends.losses.count == 0

    asyncio.run(run())


def test_a_damaged_note_of_what_is_written_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
            await made.manager.write_written()
            await made.kill()
        path = tmp_path / "d" / log_ends.WRITTEN_NAME
        path.write_bytes(path.read_bytes()[:-3])
        async with setup(tmp_path) as made:
            await made.open(is_new=False)
        assert not path.exists()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert f"{log_ends.WRITTEN_NAME} is damaged" in caplog.text


# ---- an older broker in between --------------------------------------------------------------------------------------


@pytest.mark.parametrize("start_count", [1, 2], ids=["the start", "the start after it"])
def test_what_a_broker_without_records_has_deleted_is_no_loss(tmp_path: Path, start_count: int) -> None:
    """It was killed before it wrote a checkpoint, and its deleted files wait under other names."""

    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
            log = made.manager.logs["t", 0]
            await log.run(log.native.sync)
            await made.maintenance.upkeep()
            await made.maintenance.apply_retention()
            await made.manager.write_checkpoints()
            await made.kill()
        for path in sorted((tmp_path / "d" / "t-0").glob(f"{0:020}.*")):
            path.rename(path.with_name(f"{path.name}.deleted"))
        for number in range(start_count):
            async with setup(tmp_path) as made:
                log = await made.open(is_new=False)
                assert made.manager.ends.losses.count == 0
                assert (log.native.state.log_start_offset, log.native.state.log_end_offset) == (3, END)
                # As retention or the cleaner does, before a checkpoint is written.
                await made.manager.ends.before_cleaning(log)
                if number + 1 < start_count:
                    assert not list((tmp_path / "d" / "t-0").glob("*.deleted")), "the next start sees nothing of it"
                    await made.kill()
        # All else is still missed.
        _empty(_segment(tmp_path, 3))
        async with setup(tmp_path) as made:
            with pytest.raises(LostRecords):
                await made.open(is_new=False)

    asyncio.run(run())


def test_what_was_recorded_as_durable_stays_so_after_a_start_that_knows_of_less(tmp_path: Path) -> None:
    """Else a cut above it would not be seen to be one of the segments recorded."""

    async def run() -> None:
        async with setup(tmp_path) as made:
            await _fill(made)
        (tmp_path / "d" / clean_shutdown.FILE_NAME).unlink()
        ends = EndsFile.read(tmp_path / "d")
        assert ends is not None and ends.ends["t", 0].durable == END
        ends.replace(broker_epoch=None).write(tmp_path / "d")
        points = tmp_path / "d" / offset_checkpoint.RECOVERY_POINT
        points.write_text("0\n1\nt 0 0\n")
        crc = log_ends.checkpoint_crc(tmp_path / "d")
        ends.replace(broker_epoch=None, checkpoint_crcs=(crc, crc)).write(tmp_path / "d")
        async with setup(tmp_path) as made:
            log = await made.open(is_new=False)
            assert log.native.state.recovery_point < END
            found = made.manager.ends.of(log, log.native.state)
            assert found.durable == END and found.segments
            await log.run(log.native.truncate, 4)
            found = made.manager.ends.of(log, log.native.state)
            assert found.durable <= 4 and not found.segments

    asyncio.run(run())


def test_what_a_power_cut_took_counts_no_more_once_the_record_is_lowered(tmp_path: Path) -> None:
    """Lowering writes what the file says of other logs again, under the boot of now."""
    before = RecordedEnds(TOPIC_ID, 0, 0, durable=5, written=9)
    crc = log_ends.checkpoint_crc(tmp_path)
    EndsFile(bytes(16), (crc, crc), None, {("t", 0): before, ("other", 0): before}).write(tmp_path)
    ends = LogEnds(tmp_path)
    ends.load(None)
    ends.lower({("other", 0): before._replace(start=3, written=5)})
    found = EndsFile.read(tmp_path)
    assert found is not None and found.boot_id == boot_id()
    assert found.ends["t", 0] == before._replace(written=5)
