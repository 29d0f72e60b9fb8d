"""The metadata log on files: durability, coalescing, rolls, torn tails, restarts, failures, retention."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pybroker.metadata import log_files
from pybroker.metadata.delta import empty_image
from pybroker.metadata.errors import MetadataError, MetadataLogError
from pybroker.metadata.file_log import FileMetadataLog, MetadataLogConfig
from pybroker.metadata.image import MetadataImage, Provenance
from pybroker.metadata.loader import load
from pybroker.metadata.quorum_state import QuorumState
from pybroker.metadata.records import VersionedRecord
from pybroker.metadata.retention import Retention
from pybroker.metadata.snapshot import write_image
from pybroker.protocol import messages as m
from pybroker.storage.files import epoch_checkpoint
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.files.reserve import reserve


def _topic(number: int) -> list[VersionedRecord]:
    return [VersionedRecord(m.TopicRecord(name=f"topic{number}", topic_id=number.to_bytes(16, "big")), 0)]


def _open(directory: Path, **settings: Any) -> tuple[FileMetadataLog, MetadataImage]:
    directory.mkdir(exist_ok=True)
    log = FileMetadataLog(directory, MetadataLogConfig(**settings))
    replayer = load(empty_image("c"), log.replay())
    return log, replayer.finish(log.end_offset, log.epoch)


async def _append(log: FileMetadataLog, numbers: range) -> list[int]:
    return list(await asyncio.gather(*[log.append(_topic(number), 1000 + number) for number in numbers]))


def _fill(directory: Path, numbers: range, **settings: Any) -> FileMetadataLog:
    async def run() -> FileMetadataLog:
        log, _ = _open(directory, **settings)
        log.become_leader(1, 1, 0)
        assert await _append(log, numbers) == list(numbers)
        await log.close()
        return log

    return asyncio.run(run())


def _names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_concurrent_appends_share_syncs_and_survive_a_restart(tmp_path: Path) -> None:
    log = _fill(tmp_path, range(200))
    assert log.sync_count <= 3
    again, image = _open(tmp_path)
    assert (again.end_offset, again.epoch) == (200, 1)
    assert len(image.topics.by_name) == 200
    assert image.provenance.time_ms == 1199


def test_each_start_is_a_new_epoch(tmp_path: Path) -> None:
    for start in range(3):
        _fill(tmp_path, range(start * 2, start * 2 + 2))
        assert QuorumState.read(tmp_path) == QuorumState(1, start + 1)
    assert epoch_checkpoint.read(tmp_path / "leader-epoch-checkpoint") == [(1, 0), (2, 2), (3, 4)]
    assert _open(tmp_path)[0].epoch == 3


def test_segments_roll(tmp_path: Path) -> None:
    _fill(tmp_path, range(20), segment_bytes=300)
    segments = log_files.list_segments(tmp_path)
    assert len(segments) > 3
    assert all(segment.path.stat().st_size <= 300 for segment in segments)
    log, image = _open(tmp_path, segment_bytes=300)
    assert log.end_offset == 20 == len(image.topics.by_name)


@pytest.mark.parametrize("kept_bytes", [1, 11, 12, 60, 61, 80])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(tmp_path: Path, kept_bytes: int) -> None:
    _fill(tmp_path, range(3))
    path = tmp_path / "00000000000000000000.log"
    content = path.read_bytes()
    batch_bytes = len(content) // 3
    path.write_bytes(content[: 2 * batch_bytes + kept_bytes])
    log, image = _open(tmp_path)
    assert log.end_offset == 2 == len(image.topics.by_name)
    assert path.stat().st_size == 2 * batch_bytes
    _fill(tmp_path, range(2, 5))
    assert len(_open(tmp_path)[1].topics.by_name) == 5


def test_zeros_and_flipped_bits_at_the_end_are_cut(tmp_path: Path) -> None:
    _fill(tmp_path, range(3))
    path = tmp_path / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    path.write_bytes(content + bytes(4096))
    assert _open(tmp_path)[0].end_offset == 3
    content[-1] ^= 0x80
    path.write_bytes(content)
    assert _open(tmp_path)[0].end_offset == 2


def test_damage_in_the_middle_of_the_log_is_no_torn_tail(tmp_path: Path) -> None:
    _fill(tmp_path, range(20), segment_bytes=300)
    first = log_files.list_segments(tmp_path)[0].path
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    with pytest.raises(MetadataError, match=r"wrong CRC .* in the middle of the log"):
        _open(tmp_path)


def test_a_missing_segment_or_snapshot_is_named(tmp_path: Path) -> None:
    _fill(tmp_path, range(20), segment_bytes=300)
    segments = log_files.list_segments(tmp_path)
    segments[1].path.unlink()
    with pytest.raises(MetadataError, match="a segment is missing"):
        _open(tmp_path)
    segments[0].path.unlink()
    with pytest.raises(MetadataError, match="a snapshot file is missing"):
        _open(tmp_path)


def test_a_log_of_other_voters_is_refused(tmp_path: Path) -> None:
    QuorumState(1, 4, (1, 2, 3)).write(tmp_path, 0)
    log, _ = _open(tmp_path)
    with pytest.raises(MetadataError, match=r"voters \[1, 2, 3\]"):
        log.become_leader(1, 0, 0)


def test_a_snapshot_replaces_the_log_before_it(tmp_path: Path) -> None:
    async def run() -> None:
        settings = {"segment_bytes": 300, "max_bytes_between_snapshots": 500, "retention": Retention(1000, -1)}
        log, image = _open(tmp_path, **settings)
        log.become_leader(1, 1, 0)
        assert not log.is_snapshot_due(1)
        for start in (0, 20):
            await _append(log, range(start, start + 20))
            assert log.is_snapshot_due(1)
            image = load(image, _since(tmp_path, start)).finish(log.end_offset, log.epoch)
            await log.write_snapshot(image, 5000)
            assert not log.is_snapshot_due(1)
        await _append(log, range(40, 42))
        await log.close()

    asyncio.run(run())
    assert [each.end_offset for each in log_files.list_snapshots(tmp_path)] == [40]
    first_offset = log_files.list_segments(tmp_path)[0].base_offset
    assert first_offset > 20
    log, image = _open(tmp_path)
    assert log.end_offset == 42 == len(image.topics.by_name)
    assert not [name for name in _names(tmp_path) if name.endswith((".part", ".tmp"))]
    _fill(tmp_path, range(42, 44))
    assert epoch_checkpoint.read(tmp_path / "leader-epoch-checkpoint") == [(1, first_offset), (2, 42)]


def _since(directory: Path, offset: int) -> Any:
    from pybroker.metadata.records import decode_batch

    for segment in log_files.list_segments(directory):
        for data in log_files.SegmentReader(segment.path, segment.base_offset):
            batch = decode_batch(data, "log")
            if batch.base_offset >= offset:
                yield batch


def test_snapshots_are_kept_by_time(tmp_path: Path) -> None:
    async def run() -> None:
        log, image = _open(tmp_path, retention=Retention(-1, 10_000))
        log.become_leader(1, 1, 0)
        for number, now_ms in ((0, 2000), (1, 5000), (2, 11_500)):
            await log.append(_topic(number), now_ms)
            image = load(image, _since(tmp_path, number)).finish(log.end_offset, log.epoch)
            await log.write_snapshot(image, now_ms + 1000)
        await log.close()

    asyncio.run(run())
    assert [each.end_offset for each in log_files.list_snapshots(tmp_path)] == [2, 3]


def test_snapshots_age_while_nothing_is_appended(tmp_path: Path) -> None:
    async def run() -> None:
        log, image = _open(tmp_path, retention=Retention(-1, 10_000))
        log.become_leader(1, 1, 0)
        for number in range(2):
            await log.append(_topic(number), 2000)
            image = load(image, _since(tmp_path, number)).finish(log.end_offset, log.epoch)
            await log.write_snapshot(image, 3000)
        await log.apply_retention(12_000)
        assert len(log.snapshots) == 2
        await log.apply_retention(12_001)
        assert [each.end_offset for each in log.snapshots] == [2], "the latest stays, however old"
        await log.apply_retention(10**9)
        assert len(log.snapshots) == 1
        await log.close()

    asyncio.run(run())


def test_segments_roll_by_time(tmp_path: Path) -> None:
    async def run(*times_ms: int) -> list[int]:
        log, _ = _open(tmp_path, segment_ms=1000)
        log.become_leader(1, 1, 0)
        for time_ms in times_ms:
            await log.append(_topic(log.end_offset), time_ms)
        await log.close()
        return [each.base_offset for each in log_files.list_segments(tmp_path)]

    assert asyncio.run(run(5000, 5500, 6000)) == [0]
    assert asyncio.run(run(6000)) == [0], "the first record counts, not the restart"
    assert asyncio.run(run(6001, 6500, 7001, 7002)) == [0, 4, 7]
    log, image = _open(tmp_path)
    assert log.end_offset == 8 and len(image.topics.by_name) == 8


def test_a_snapshot_is_due_by_time(tmp_path: Path) -> None:
    async def run() -> None:
        log, _ = _open(tmp_path, max_snapshot_interval_ms=500)
        log.become_leader(1, 1, 10_000)
        assert not log.is_snapshot_due(10_500)
        await _append(log, range(1))
        assert not log.is_snapshot_due(10_499)
        assert log.is_snapshot_due(10_500)
        await log.close()

    asyncio.run(run())


def test_a_failed_sync_fails_every_append_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        log, _ = _open(tmp_path)
        log.become_leader(1, 1, 0)
        await _append(log, range(1))

        def fail(_descriptor: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fdatasync", fail)
        results = await asyncio.gather(*[log.append(_topic(n), 1) for n in range(1, 4)], return_exceptions=True)
        assert [type(result) for result in results] == [MetadataLogError] * 3
        monkeypatch.undo()
        with pytest.raises(MetadataLogError, match="failed earlier"):
            log.append(_topic(9), 1)
        await log.close()

    asyncio.run(run())


def test_a_segment_of_kafka_is_continued_without_its_indexes(tmp_path: Path, kafka_dir: Path) -> None:
    for entry in (kafka_dir / "__cluster_metadata-0").iterdir():
        (tmp_path / entry.name).write_bytes(entry.read_bytes())
    (tmp_path / "00000000000000000000.index").write_bytes(bytes(100))

    async def run() -> None:
        log, _ = _open(tmp_path)
        assert log.become_leader(1, 1, 0) == 2
        assert await log.append(_topic(1), 1) == 285
        await log.close()

    asyncio.run(run())
    assert (tmp_path / "00000000000000000000.index").read_bytes() == b"", "it is not Kafka's any more"
    assert epoch_checkpoint.read(tmp_path / "leader-epoch-checkpoint") == [(1, 0), (2, 285)]
    assert "topic1" in _open(tmp_path)[1].topics.by_name


def _without_indexes(directory: Path) -> set[str]:
    """Segments that lack an index file, and index files that are not empty."""
    found = set()
    for segment in log_files.list_segments(directory):
        for suffix in (".index", ".timeindex"):
            index = segment.path.with_suffix(suffix)
            if not index.is_file() or index.stat().st_size > 0:
                found.add(index.name)
    return found


def test_every_segment_has_index_files_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        log, _ = _open(tmp_path, segment_bytes=300)
        log.become_leader(1, 1, 0)
        assert _without_indexes(tmp_path) == set()
        for number in range(20):
            await log.append(_topic(number), 1000)
            assert _without_indexes(tmp_path) == set()
        await log.close()

    asyncio.run(run())
    segments = log_files.list_segments(tmp_path)
    assert len(segments) > 3
    for segment in segments[1:-1]:
        segment.path.with_suffix(".index").unlink()  # as versions that made none have left them
    _fill(tmp_path, range(20, 21), segment_bytes=300)
    assert _without_indexes(tmp_path) == set()


def test_an_index_file_that_cannot_be_made_is_no_failure(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _fill(tmp_path, range(20), segment_bytes=300)
    index = log_files.list_segments(tmp_path)[1].path.with_suffix(".index")
    index.unlink()
    index.mkdir()
    _fill(tmp_path, range(20, 21), segment_bytes=300)
    assert ["Apache Kafka's tools may not read" in each.getMessage() for each in caplog.records] == [True]
    assert len(_open(tmp_path)[1].topics.by_name) == 21


async def _append_bytes(log: FileMetadataLog, size_bytes: int) -> None:
    for _ in range(size_bytes >> 16):
        record = m.ConfigRecord(resource_type=2, resource_name="t", name="key", value="v" * (1 << 14))
        await log.append([VersionedRecord(record, 0)] * 4, 1000)


def test_a_snapshot_is_due_when_the_next_start_would_take_long(tmp_path: Path) -> None:
    async def run() -> None:
        log, _ = _open(tmp_path)
        log.become_leader(1, 1, 0)
        await _append_bytes(log, (2 << 20) - (1 << 16))
        assert not log.is_snapshot_due(1)
        await _append_bytes(log, 1 << 16)
        assert log.is_snapshot_due(1)
        configs = {(2, f"t{number}"): {"key": "v" * (1 << 14)} for number in range(192)}
        await log.write_snapshot(MetadataImage("c", Provenance(log.end_offset, 1, 1), configs=configs), 1)
        await log.close()
        log, _ = _open(tmp_path)
        log.become_leader(1, 1, 0)
        await _append_bytes(log, (3 << 20) - (1 << 16))
        assert not log.is_snapshot_due(1), "the snapshot has 3 MiB"
        await _append_bytes(log, 1 << 17)
        assert log.is_snapshot_due(1)
        await log.close()

    asyncio.run(run())


def _allocated_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_space_is_set_aside_while_the_log_is_open_and_for_the_next_start(tmp_path: Path) -> None:
    path = log_files.segment_path(tmp_path, 0)

    async def run() -> None:
        log, _ = _open(tmp_path)
        log.become_leader(1, 1, 0)
        await _append(log, range(3))
        reserved_bytes = _allocated_bytes(path) - path.stat().st_size
        assert reserved_bytes > 1 << 20 or os.statvfs(tmp_path).f_bavail == 0
        size_bytes = path.stat().st_size
        await log.close()
        assert path.stat().st_size == size_bytes, "the file ends where its records do"

    asyncio.run(run())
    assert _allocated_bytes(path) - path.stat().st_size > 1 << 20 or os.statvfs(tmp_path).f_bavail == 0


def test_what_a_killed_broker_had_set_aside_is_free_when_the_next_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(tmp_path, range(3))
    path = log_files.segment_path(tmp_path, 0)
    with open(path, "r+b") as file:
        assert reserve(file.fileno(), path.stat().st_size) > 0
    assert _allocated_bytes(path) > 1 << 20
    seen = []
    write = QuorumState.write

    def note(state: QuorumState, directory: Path, kraft_version: int) -> None:
        seen.append(_allocated_bytes(path))
        write(state, directory, kraft_version)

    monkeypatch.setattr(QuorumState, "write", note)
    _fill(tmp_path, range(3, 5))
    assert seen and seen[0] < 1 << 20


def test_damage_below_the_beginning_of_a_later_epoch_is_no_torn_tail(tmp_path: Path) -> None:
    """Whoever began epoch 2 at offset 10 had replayed all below that: it was whole then, and durable."""
    _fill(tmp_path, range(10))
    _fill(tmp_path, range(10, 20))
    path = tmp_path / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1  # in the first batch: all 20 topics are durable and were acknowledged
    path.write_bytes(content)
    with pytest.raises(MetadataError, match="in the middle of the log"):
        _open(tmp_path)


def test_what_a_failed_sync_lost_is_not_read_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may call it clean: the next start would take records for synced that are not on the disk."""
    forgotten: list[tuple[int, int, int]] = []

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def run() -> None:
        log, _ = _open(tmp_path)
        log.become_leader(1, 1, 0)
        assert await _append(log, range(3)) == [0, 1, 2]
        monkeypatch.setattr(os, "fdatasync", fail)
        monkeypatch.setattr(os, "posix_fadvise", lambda _, *arguments: forgotten.append(arguments))
        with pytest.raises(MetadataLogError):
            await _append(log, range(3, 4))
        monkeypatch.undo()
        await log.close()

    asyncio.run(run())
    assert forgotten == [(0, 0, os.POSIX_FADV_DONTNEED)]


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def _open_applied(directory: Path, end_offset: int, epoch: int = 1) -> FileMetadataLog:
    log = FileMetadataLog(directory, applied=AppliedMetadata("c", end_offset, epoch))
    load(empty_image("c"), log.replay())
    return log


@pytest.mark.parametrize("batch", range(4))
def test_a_damaged_batch_before_a_whole_one_is_named_with_what_follows(tmp_path: Path, batch: int) -> None:
    """Each byte that a CRC covers, or that says where the next batch is, in each batch but the last."""
    _fill(tmp_path, range(5))
    (tmp_path / "leader-epoch-checkpoint").unlink()
    path = tmp_path / f"{0:020}.log"
    before = path.read_bytes()
    size = len(before) // 5
    for position in (0, 8, 10, 16, 18, 21, 30, 61, size - 1):
        _flip(path, batch * size + position)
        with pytest.raises(MetadataError) as caught:
            _open(tmp_path)
        text = str(caught.value)
        assert f"at position {batch * size}, where offset {batch} is due" in text
        assert f"the batch at offset {batch + 1} follows whole at position {(batch + 1) * size}" in text
        assert path.stat().st_size == len(before)
        path.write_bytes(before)


def test_the_last_batch_is_a_torn_tail_unless_it_was_applied(tmp_path: Path) -> None:
    _fill(tmp_path, range(5))
    path = tmp_path / f"{0:020}.log"
    size_bytes = path.stat().st_size
    _flip(path, -1)
    with pytest.raises(MetadataError, match="no unfinished write: all below offset 5"):
        _open_applied(tmp_path, 5)
    assert path.stat().st_size == size_bytes
    assert _open_applied(tmp_path, 4).end_offset == 4
    assert path.stat().st_size == size_bytes * 4 // 5


@pytest.mark.parametrize(("end_offset", "epoch"), [(6, 1), (5, 2)])
def test_a_log_that_ends_before_what_was_applied_is_refused(tmp_path: Path, end_offset: int, epoch: int) -> None:
    _fill(tmp_path, range(5))
    with pytest.raises(MetadataError, match="had applied it up to offset"):
        _open_applied(tmp_path, end_offset, epoch)
    assert _open_applied(tmp_path, 5).end_offset == 5


@pytest.mark.parametrize("content", [b"", bytes(60), b"junk", b"{}", b"0\n1\n", b"\xff\xfe"])
@pytest.mark.parametrize("name", ["quorum-state", "leader-epoch-checkpoint", "partition.metadata"])
def test_what_the_log_says_as_well_is_made_anew(
    tmp_path: Path, name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for start in range(3):
        _fill(tmp_path, range(start * 2, start * 2 + 2))
    (tmp_path / name).write_bytes(content)
    _fill(tmp_path, range(6, 8))
    assert epoch_checkpoint.read(tmp_path / "leader-epoch-checkpoint") == [(1, 0), (2, 2), (3, 4), (4, 6)]
    assert QuorumState.read(tmp_path) == QuorumState(1, 4)
    # Kafka makes an empty checkpoint; the others always have content.
    assert name in caplog.text or (name == "leader-epoch-checkpoint" and not content)


def test_a_damaged_snapshot_is_replaced_by_an_older_one_and_the_log(tmp_path: Path) -> None:
    async def run() -> None:
        log, image = _open(tmp_path)
        log.become_leader(1, 1, 0)
        for start in (0, 2, 4):
            await _append(log, range(start, start + 2))
            image = load(image, _since(tmp_path, start)).finish(log.end_offset, log.epoch)
            await log.write_snapshot(image, 5000)
        await log.close()

    asyncio.run(run())
    older, latest = (tmp_path / each.file_name for each in log_files.list_snapshots(tmp_path)[-2:])
    latest.chmod(0o600)
    content = latest.read_bytes()
    for damaged in (b"", content[:-1], content[:-60], bytes(len(content)), content[:100] + b"x" + content[101:]):
        latest.write_bytes(damaged)
        log, image = _open(tmp_path)
        assert log.end_offset == 6 == len(image.topics.by_name)
    _fill(tmp_path, range(6, 7))
    assert latest.with_name(latest.name + ".damaged").exists()
    assert older in tmp_path.iterdir()
    assert _open(tmp_path)[0].end_offset == 7


@pytest.mark.parametrize("has_snapshot", [True, False], ids=["sound snapshot", "damaged snapshot"])
@pytest.mark.parametrize("loss", ["emptied", "deleted", "cut", "tail flipped"])
def test_a_log_that_ends_before_its_snapshot_is_refused(tmp_path: Path, loss: str, has_snapshot: bool) -> None:
    """It had all of that, and what came after it is gone with it. So it is where the snapshot is damaged as well."""

    async def run() -> None:
        log, image = _open(tmp_path)
        log.become_leader(1, 1, 0)
        await _append(log, range(3))
        image = load(image, _since(tmp_path, 0)).finish(log.end_offset, log.epoch)
        await log.write_snapshot(image, 5000)
        await log.close()

    asyncio.run(run())
    (latest,) = log_files.list_snapshots(tmp_path)
    snapshot, path = tmp_path / latest.file_name, tmp_path / f"{0:020}.log"
    if not has_snapshot:
        snapshot.chmod(0o600)
        os.truncate(snapshot, 0)
    if loss == "deleted":
        path.unlink()
    elif loss == "tail flipped":
        _flip(path, -1)
    else:
        os.truncate(path, 0 if loss == "emptied" else path.stat().st_size // 2)
    before = path.stat().st_size if path.exists() else None
    with pytest.raises(
        MetadataError, match="was made of one that went further" if has_snapshot else "The log does not go as far"
    ):
        _open(tmp_path)
    assert before == (path.stat().st_size if path.exists() else None)
    assert snapshot.exists()


def test_a_snapshot_from_elsewhere_comes_without_a_log(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    image = empty_image("c")
    write_image(tmp_path / "a", image.replace(provenance=Provenance(9, 4, 0)), 0)
    assert _open(tmp_path / "a")[0].end_offset == 9


def test_a_read_that_fails_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(tmp_path, range(3))

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(log_files.SegmentReader, "_batch_size", fail)
    with pytest.raises(OSError, match=f"{0:020}.log"):
        _open(tmp_path)
