"""What brokers leave in tail rings, and what becomes of it at the next start."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from log_setup import TOPIC_ID, Setup, setup
from ring_files import RING_BYTES, SESSION, write_ring, write_session

from pybroker.native.errors import NativeError
from pybroker.native.rings import boot_id, read_ring, ring_stats
from pybroker.protocol import record_batch
from pybroker.protocol.record_batch import Record
from pybroker.storage.errors import StorageError
from pybroker.storage.files import clean_shutdown, partition_metadata
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.files.topic_ids import TopicIds
from pybroker.storage.rings import ring_places, ring_sessions, tail_rings
from pybroker.storage.rings.ring_notes import RingNote
from pybroker.storage.rings.tail_rings import RingSession

DIRECTORY_ID = bytes([1]) * 16
METADATA = "__cluster_metadata-0"
FLUSHED = 100
"""How much of the log the ended broker had brought into the segment."""


def log_bytes() -> bytes:
    return b"".join(record_batch.build(n, 0, [Record(None, b"%02d" % n)], timestamp_ms=1) for n in range(20))


def segment_of(log: Path) -> Path:
    return log / f"{0:020}.log"


def make_log(log_dir: Path, topic_id: bytes = TOPIC_ID, name: str = "t-0") -> Path:
    log = log_dir / name
    log.mkdir(parents=True)
    partition_metadata.write(log, topic_id)
    segment_of(log).write_bytes(log_bytes()[:FLUSHED])
    return log


def leave_ring(rings: Path, name: str = "one", **changes: object) -> Path:
    path = rings / f"{name}.ring"
    values = {"start": FLUSHED, "directory_id": DIRECTORY_ID, "topic_id": TOPIC_ID, **changes}
    content = values.pop("content", None) or log_bytes()[FLUSHED:]
    write_ring(path, content, **values)  # type: ignore[arg-type]  # named by the caller
    return path


def test_records_of_a_killed_broker_are_read_after_the_next_start(tmp_path: Path, rings: Path) -> None:
    log_dir = tmp_path / "d"
    make_log(log_dir)
    ring = leave_ring(rings)
    write_session(log_dir, rings)

    async def run() -> None:
        async with setup(tmp_path) as made:
            assert made.manager.directories[0].replayed_bytes == len(log_bytes()) - FLUSHED
            log = await made.open()
            assert log.native.state.log_end_offset == 20
            assert log.native.read(0, 1 << 20) == log_bytes()

    asyncio.run(run())
    assert not ring.exists()
    assert not rings.exists(), "nobody has anything there"
    assert not (log_dir / tail_rings.FILE_NAME).exists()


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(
    "content",
    [b"", bytes(43), b"version: 0\ntopic_id: \xff", None, b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAZQ"],
    ids=["emptied", "NULs", "junk", "deleted", "another id"],
)
def test_a_damaged_partition_metadata_keeps_no_ring_away_from_its_log(
    tmp_path: Path, rings: Path, content: bytes, is_known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """`.pybroker_topic_ids` says of which topic the log is, or else the ring."""
    log_dir = tmp_path / "d"
    log = make_log(log_dir)
    if content is None:
        (log / partition_metadata.FILE_NAME).unlink()
    else:
        (log / partition_metadata.FILE_NAME).write_bytes(content)
    if is_known or (content is not None and b"AAAA" in content):  # else it is of a newer topic of that name
        known = TopicIds(log_dir)
        known.note(("t", 0), TOPIC_ID)
        known.save()
    leave_ring(rings)
    write_session(log_dir, rings)

    async def run() -> None:
        async with setup(tmp_path) as made:
            assert (await made.open()).native.state.log_end_offset == 20

    asyncio.run(run())
    assert partition_metadata.read(log) == TOPIC_ID
    assert "made anew with the topic id" in caplog.text


def test_what_was_flushed_while_the_broker_died_counts_once(tmp_path: Path, rings: Path) -> None:
    log = make_log(tmp_path)
    for flushed in (FLUSHED, FLUSHED + 1, len(log_bytes()) - 3, len(log_bytes())):
        leave_ring(rings)
        write_session(tmp_path, rings)
        padded = log_bytes()[:flushed] + bytes(-flushed % 4096)
        segment_of(log).write_bytes(padded)
        moved_bytes = tail_rings.replay(tmp_path, DIRECTORY_ID)
        # Zeros among what was missing were there already.
        assert min(1, len(log_bytes()) - flushed) <= moved_bytes <= len(log_bytes()) - flushed
        # With nothing missing it is recovery that cuts the zeros off.
        assert segment_of(log).read_bytes()[: len(log_bytes())] == log_bytes()
        rings.mkdir(mode=0o700, exist_ok=True)


@pytest.mark.parametrize(
    "change",
    [
        {"session": b"x" * 16},
        {"directory_id": b"x" * 16},
        {"sealed": False, "session": b"x" * 16},
    ],
)
def test_rings_of_others_are_left_alone(tmp_path: Path, rings: Path, change: dict[str, object]) -> None:
    log = make_log(tmp_path)
    ring = leave_ring(rings, **change)
    write_session(tmp_path, rings)
    before = ring.read_bytes()
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == 0
    assert segment_of(log).read_bytes() == log_bytes()[:FLUSHED]
    assert ring.read_bytes() == before


def test_rings_that_no_log_dir_claims(tmp_path: Path, rings: Path) -> None:
    directory = rings / "pybroker-of-a-broker"
    directory.mkdir()
    write_session(tmp_path, directory)
    session = tail_rings.RingSession.read(tmp_path)
    assert session is not None
    leave_ring(directory, "own")
    leave_ring(directory, "own-empty", sealed=False)
    older = leave_ring(directory, "older", session=b"x" * 16)
    elsewhere = leave_ring(directory, "elsewhere", directory_id=b"x" * 16)
    unfinished = leave_ring(directory, "unfinished", session=b"x" * 16, sealed=False)
    damaged = [leave_ring(directory, name) for name in ("damaged", f"{session.session_id.hex()[:12]}-damaged")]
    for path in damaged:
        path.write_bytes(bytes(RING_BYTES) + b"?" * 4096)
    (directory / "note.txt").write_text("no ring")
    (found,) = tail_rings.unclaimed_rings(rings, [(session, DIRECTORY_ID)])
    assert found.directory == directory
    assert {each.path for each in found.rings} == {older, elsewhere, unfinished, damaged[0]}
    assert {each.path for each in found.rings if each.filled} == {older, elsewhere}
    assert sum(each.used_bytes for each in found.rings) >= 3 * RING_BYTES
    (everything,) = tail_rings.unclaimed_rings(rings, [])
    assert len(everything.rings) == len(found.rings) + 3
    assert list(tail_rings.unclaimed_rings(rings / "none", [])) == []


def test_nothing_of_an_earlier_boot_is_believed(tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = make_log(tmp_path)
    leave_ring(rings, boot=b"x" * 16)
    write_session(tmp_path, rings)
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == 0
    write_session(tmp_path, rings / "gone", boot=b"x" * 16)
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == 0
    assert segment_of(log).read_bytes() == log_bytes()[:FLUSHED]
    assert not caplog.records


def test_empty_rings_go(tmp_path: Path, rings: Path) -> None:
    leave_ring(rings, sealed=False)
    write_ring(rings / "drained.ring", b"", start=5, directory_id=DIRECTORY_ID, topic_id=TOPIC_ID)
    write_session(tmp_path, rings)
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == 0
    assert list(rings.iterdir()) == []
    tail_rings.remove_directory(rings)
    assert not rings.exists()


def test_log_dirs_that_share_a_directory_of_rings_do_not_take_it_from_each_other(
    tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("d", "e", "f"):
        (tmp_path / name).mkdir()
        write_session(tmp_path / name, rings)

    async def run() -> None:
        with ThreadPoolExecutor(1) as one_after_another:
            made = Setup(tmp_path, ("d", "e", "f"))
            made.manager.executor.shutdown()
            made.manager.executor = one_after_another
            await made.manager.load()
            await made.close()
            made.native.stop()
            made.native.close()

    asyncio.run(run())
    assert not any("are gone" in each.getMessage() for each in caplog.records)
    assert not rings.exists()


def damage(ring: Path, position: int, length: int = 4) -> None:
    with open(ring, "r+b") as file:
        file.seek(position)
        file.write(b"\xa5" * length)


CHECKSUM_POSITION = RING_BYTES + 12
TOPIC_ID_POSITION = RING_BYTES + 16 + 3 * 8 + 3 * 16


def test_of_a_damaged_ring_what_follows_the_end_of_the_log_is_saved(
    tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = log_bytes()
    batch_bytes = len(whole) // 20
    for saved_count, positions in ((20, [CHECKSUM_POSITION]), (12, [CHECKSUM_POSITION, 12 * batch_bytes + 40])):
        log = make_log(tmp_path / str(saved_count))
        ring = leave_ring(rings, name=str(saved_count))
        for position in positions:
            damage(ring, position)
        write_session(log.parent, rings)
        # The last block was being flushed.
        segment_of(log).write_bytes(whole[: 5 * batch_bytes + 30] + bytes(500))
        for _ in range(2):
            tail_rings.replay(log.parent, DIRECTORY_ID)
            assert segment_of(log).read_bytes() == whole[: saved_count * batch_bytes]
            write_session(log.parent, rings)
        assert f"{saved_count - 5} records ({(saved_count - 5) * batch_bytes} bytes) in it" in caplog.text
        assert ring.exists()
        ring.unlink()


def test_a_ring_that_does_not_say_whose_it_is_goes_into_no_log(
    tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = make_log(tmp_path)
    ring = leave_ring(rings)
    damage(ring, TOPIC_ID_POSITION, 16)
    write_session(tmp_path, rings)
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == 0
    assert segment_of(log).read_bytes() == log_bytes()[:FLUSHED]
    assert f"cannot read the tail ring {ring}" in caplog.text and "it stays where it is" in caplog.text


@pytest.mark.parametrize("gone", ["the ring", "all rings"])
def test_a_log_whose_ring_is_gone_is_named(
    tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    for name, topic_id in (("t-0", TOPIC_ID), ("u-0", b"u" * 16), ("cold-0", b"c" * 16), (METADATA, b"m" * 16)):
        make_log(tmp_path, topic_id, name)
    for name in ("t-0", "u-0"):
        RingNote(SESSION, boot_id(), "one.ring", is_lost=False).write(tmp_path / name)
    RingNote(b"earlier session.", boot_id(), "one.ring", is_lost=False).write(tmp_path / "cold-0")
    # As XFS and ext2 account for more than a log has, whether it ever had a ring or not.
    with open(segment_of(tmp_path / "cold-0"), "r+b") as file:
        keep_size(file.fileno(), 1 << 20)
    leave_ring(rings)
    write_session(tmp_path, rings if gone == "the ring" else rings / "gone")
    tail_rings.replay(tmp_path, DIRECTORY_ID)
    assert f"{tmp_path / 'u-0'} was written through the tail ring" in caplog.text
    assert "cold-0" not in caplog.text
    assert METADATA not in caplog.text
    assert (f"{tmp_path / 't-0'} was written" in caplog.text) == (gone == "all rings")
    notes = {name: RingNote.read(tmp_path / name) for name in ("t-0", "u-0", "cold-0")}
    assert notes["u-0"] is not None and notes["u-0"].is_lost
    assert (notes["t-0"] is None) == (gone == "the ring")
    assert notes["cold-0"] is not None and not notes["cold-0"].is_lost


def keep_size(descriptor: int, length: int) -> None:
    """Give a file blocks behind its end."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.fallocate(descriptor, 1, ctypes.c_long(0), ctypes.c_long(length)) == 0, os.strerror(ctypes.get_errno())


def other_topic(log_dir: Path) -> None:
    make_log(log_dir, topic_id=b"n" * 16)


def deleted(log_dir: Path) -> None:
    make_log(log_dir, name=f"t-0.{'0' * 32}-delete")


@pytest.mark.parametrize("make", [other_topic, deleted])
def test_the_ring_of_a_deleted_partition_is_named_and_goes(
    tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], None]
) -> None:
    make(tmp_path)
    ring = leave_ring(rings)
    write_session(tmp_path, rings)
    caplog.set_level("INFO")
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == 0
    assert not ring.exists()
    assert [each.levelname for each in caplog.records] == ["INFO"]
    assert f"{ring} is of t-0, which was deleted" in caplog.text


def changed(log_dir: Path) -> str:
    segment_of(make_log(log_dir)).write_bytes(log_bytes()[:FLUSHED] + b"others' bytes")
    return "has changed since"


def missing(log_dir: Path) -> str:
    log_dir.mkdir(exist_ok=True)
    return "no such partition"


@pytest.mark.parametrize("make", [changed, missing])
def test_a_ring_that_does_not_fit_is_named_and_kept(
    tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], str]
) -> None:
    words = make(tmp_path)
    ring = leave_ring(rings)
    write_session(tmp_path, rings)
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == 0
    assert ring.exists()
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert words in caplog.text
    assert str(ring) in caplog.text


def without_segment(log: Path) -> None:
    segment_of(log).unlink()


def empty_segment(log: Path) -> None:
    segment_of(log).write_bytes(b"")


def torn_segment(log: Path) -> None:
    segment_of(log).write_bytes(log_bytes()[:CUT])


CUT = len(log_bytes()) // 20 * 7 + 30
"""Within the eighth batch."""


@pytest.mark.parametrize("flushed_count", [12, 20])
@pytest.mark.parametrize("cut", [without_segment, empty_segment, torn_segment])
def test_what_a_disk_has_lost_is_taken_from_the_ring_once_more(
    tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture, cut: Callable[[Path], None], flushed_count: int
) -> None:
    log = make_log(tmp_path)
    flushed_bytes = len(log_bytes()) // 20 * flushed_count
    ring = leave_ring(rings, start=0, content=log_bytes(), flushed_bytes=flushed_bytes)
    write_session(tmp_path, rings)
    cut(log)
    assert tail_rings.bring_in(read_ring(ring), log, look=True) > 0
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) > 0
    assert segment_of(log).read_bytes() == log_bytes()
    assert f"ended before position {flushed_bytes}, up to which it was written" in caplog.text
    assert not ring.exists()


def test_what_a_failed_sync_lost_is_taken_from_the_ring_once_more(
    tmp_path: Path, rings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may call it clean: that it can be read proves nothing."""
    log = make_log(tmp_path)
    leave_ring(rings, start=0, content=log_bytes(), flushed_bytes=len(log_bytes()) // 20 * 12)
    write_session(tmp_path, rings)
    torn_segment(log)
    end_bytes = len(log_bytes()) // 20 * 7

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", fail)
        failing.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError):
            tail_rings.replay(tmp_path, DIRECTORY_ID)
    assert segment_of(log).stat().st_size == end_bytes
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == len(log_bytes()) - end_bytes
    assert segment_of(log).read_bytes() == log_bytes()


def test_a_segment_that_a_disk_has_lost_has_to_go_on_where_the_one_before_ends(
    tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batch_bytes = len(log_bytes()) // 20
    for end, is_next in ((9, False), (10, True)):
        log = make_log(tmp_path / str(end))
        segment_of(log).write_bytes(log_bytes()[: end * batch_bytes])
        newest = log_bytes()[10 * batch_bytes :]
        ring = leave_ring(rings, start=0, content=newest, flushed_bytes=len(newest), segment_base=10)
        write_session(log.parent, rings)
        assert tail_rings.replay(log.parent, DIRECTORY_ID) == (len(newest) if is_next else 0)
        made = log / f"{10:020}.log"
        assert made.exists() == is_next and ring.exists() != is_next
        assert not is_next or made.read_bytes() == newest
    assert "has not all that is missing" in caplog.text


def test_a_ring_that_has_not_all_that_a_disk_has_lost_is_named_and_kept(
    tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = make_log(tmp_path)
    torn_segment(log)
    before = segment_of(log).read_bytes()
    ring = leave_ring(rings, start=CUT + 500)
    damage(ring, CUT + 200)
    write_session(tmp_path, rings)
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == 0
    assert segment_of(log).read_bytes() == before
    assert ring.exists() and "has not all that is missing" in caplog.text


def test_rings_that_somebody_has_cleaned_up_are_missed(
    tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_session(tmp_path, rings / "gone")
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == 0
    assert "are gone, though the machine was not restarted" in caplog.text


def test_rings_whose_tmpfs_was_mounted_too_late_are_replayed_at_the_next_try(tmp_path: Path, rings: Path) -> None:
    log = make_log(tmp_path)
    leave_ring(rings)
    write_session(tmp_path, rings)
    away = rings.rename(rings.with_name(f"{rings.name}-away"))
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == 0
    away.rename(rings)
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == len(log_bytes()) - FLUSHED
    assert segment_of(log).read_bytes() == log_bytes()


def test_rings_of_a_running_broker_are_not_taken_by_the_broker_of_a_copy(tmp_path: Path, rings: Path) -> None:
    make_log(tmp_path)
    ring = leave_ring(rings)
    write_session(tmp_path, rings)

    async def run() -> None:
        async with setup(tmp_path, "live") as live, setup(tmp_path, "copy") as copy:
            arguments: dict[str, int] = {"budget_bytes": 32 << 20, "hot_bytes_per_second": 1}
            tail_rings.begin(live.native, rings, **arguments)
            with pytest.raises(StorageError, match="in use by another broker"):
                tail_rings.replay(tmp_path, DIRECTORY_ID)
            with pytest.raises(StorageError, match="in use by another broker"):
                tail_rings.begin(copy.native, rings, **arguments)

    asyncio.run(run())
    assert ring.exists()
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == len(log_bytes()) - FLUSHED


def test_what_is_no_ring_is_told_and_stays(tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture) -> None:
    (rings / "a.ring").write_bytes(b"nonsense" * 1000)
    (rings / "b.ring").write_bytes(bytes(100))  # killed while it was made
    os.mkfifo(rings / "c.ring")
    (rings / "d.ring").mkdir()
    write_session(tmp_path, rings)
    assert tail_rings.replay(tmp_path, DIRECTORY_ID) == 0
    assert (rings / "a.ring").exists()
    assert [each.levelname for each in caplog.records] == ["ERROR"] * 3
    with pytest.raises(NativeError) as raised:
        read_ring(rings / "a.ring")
    assert raised.value.errno == errno.EBADMSG


def test_a_damaged_session_file_is_refused(tmp_path: Path) -> None:
    for text in ("nonsense", "[]", '{"version": 1}', '{"version": 2}'):
        (tmp_path / tail_rings.FILE_NAME).write_text(text)
        with pytest.raises(StorageError, match=tail_rings.FILE_NAME):
            tail_rings.replay(tmp_path, DIRECTORY_ID)


def test_a_broker_names_its_rings_in_its_log_dirs(tmp_path: Path, rings: Path) -> None:
    own = rings / "own"
    own.mkdir(mode=0o700)
    leave_ring(own, "empty", sealed=False)
    kept = leave_ring(own, "kept", session=b"x" * 16)

    async def run() -> Path:
        async with setup(tmp_path) as made:
            directory = made.manager.directories[0]
            begun = tail_rings.begin(made.native, own, budget_bytes=32 << 20, hot_bytes_per_second=1)
            assert tail_rings.RingSession.read(directory.path) is None
            tail_rings.announce(begun, [(directory.path, directory.directory_id)])
            tail_rings.admit(made.native, [(directory.path, directory.directory_id)])
            assert {each.name for each in own.iterdir()} == {"kept.ring", ring_places.FILE_NAME}
            assert [each.path for each in ring_places.read(own)] == [directory.path]
            session = tail_rings.RingSession.read(directory.path)
            assert session is not None and session == begun
            assert session.directory == own
            assert ring_stats(made.native).budget_bytes == 32 << 20
            await made.open()
            return directory.path

    log_dir = asyncio.run(run())
    assert tail_rings.RingSession.read(log_dir) is None
    assert kept.exists()


def _formatted(root: Path, *names: str) -> None:
    """Log dirs with the ids that `setup` gives them."""
    for number, name in enumerate(names):
        (root / name).mkdir()
        MetaProperties(1, "cluster", bytes([number + 1]) * 16).write(root / name)


async def _serve(root: Path, own: Path, *names: str, failing: str = "") -> None:
    """A broker with rings that is stopped in order; a log dir goes out of service meanwhile."""
    async with setup(root, *names) as made:
        begun = tail_rings.begin(made.native, own, budget_bytes=32 << 20, hot_bytes_per_second=1)
        tail_rings.announce(begun, [(each.path, each.directory_id) for each in made.manager.directories])
        for each in made.manager.directories:
            if each.path.name == failing:
                made.manager.failures.fail(each, "its disk failed")


def test_a_log_dir_out_of_service_misses_no_rings_after_a_clean_stop(
    tmp_path: Path, rings: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _formatted(tmp_path, "a", "b")
    own = rings / "own"
    own.mkdir(mode=0o700)
    asyncio.run(_serve(tmp_path, own, "a", "b", failing="b"))
    assert tail_rings.lost_directory(tmp_path / "b") is None
    # Nor after a run without it.
    asyncio.run(_serve(tmp_path, own, "a"))
    assert tail_rings.lost_directory(tmp_path / "b") is None
    caplog.clear()
    asyncio.run(_serve(tmp_path, own, "a", "b"))
    assert not [each.getMessage() for each in caplog.records if "are gone" in each.getMessage()]
    assert not own.exists(), "no log dir names it any more"


def test_a_directory_that_is_not_on_tmpfs_is_refused(tmp_path: Path) -> None:
    from log_setup import Setup

    made = Setup(tmp_path, ("d",))
    try:
        with pytest.raises(NativeError, match="is not on tmpfs") as raised:
            tail_rings.begin(made.native, Path("/proc"), budget_bytes=1 << 20, hot_bytes_per_second=1)
        assert raised.value.errno == errno.EINVAL
    finally:
        made.native.stop()
        made.native.close()


@pytest.mark.parametrize("content", [None, b"", bytes(80), b"{"], ids=["deleted", "emptied", "NULs", "cut"])
def test_a_lost_session_file_is_made_anew_from_the_rings(
    tmp_path: Path, rings: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    log_dir = tmp_path / "d"
    make_log(log_dir)
    own = rings / "pybroker-own"
    own.mkdir(mode=0o700)
    leave_ring(own)
    write_session(log_dir, own)
    before = RingSession.read(log_dir)
    path = log_dir / tail_rings.FILE_NAME
    path.unlink() if content is None else path.write_bytes(content)
    ring_sessions.make_anew(log_dir, DIRECTORY_ID, rings)
    assert RingSession.read(log_dir) == before
    assert "made anew from the tail rings" in caplog.text

    async def run() -> None:
        async with setup(tmp_path) as made:
            assert (await made.open()).native.state.log_end_offset == 20

    asyncio.run(run())


@pytest.mark.parametrize(
    "change",
    [{"directory_id": b"x" * 16}, {"boot": b"x" * 16}, {"sealed": False}, {"flushed_bytes": -1}, {"clean": True}],
)
def test_no_session_is_made_of_rings_that_have_nothing_of_a_log_dir(
    tmp_path: Path, rings: Path, change: dict[str, object]
) -> None:
    log_dir = tmp_path / "d"
    make_log(log_dir)
    own = rings / "pybroker-own"
    own.mkdir(mode=0o700)
    if change.pop("clean", False):
        clean_shutdown.write(log_dir, 1)
    if change.get("flushed_bytes") == -1:
        change["flushed_bytes"] = len(log_bytes()) - FLUSHED
    leave_ring(own, **change)
    ring_sessions.make_anew(log_dir, DIRECTORY_ID, rings)
    assert not (log_dir / tail_rings.FILE_NAME).exists()
