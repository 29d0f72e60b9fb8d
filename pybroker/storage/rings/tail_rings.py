"""Tail rings as a log dir sees them: which rings its logs may have bytes in, and what an ended broker left there.

The newest bytes of a hot log lie in a ring, a file on tmpfs, and not yet in its segment. `.pybroker_tail_rings` in the
log dir says where the rings of the running broker are and which session they are of; a clean stop takes it away. So a
ring left by an earlier run is harmless. Only rings of the session that the log dir names are replayed, and only while
the machine has not been restarted. Blocks; fails with `OSError` for the disk or a ring that cannot be read, and with
`StorageError` for a damaged `.pybroker_tail_rings`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path

from pybroker.native.broker import NativeBroker
from pybroker.native.errors import NativeError
from pybroker.native.rings import DamagedRing, RingFile, add_log_dir, boot_id, read_ring, replay_ring, use_rings
from pybroker.protocol.uuids import random_uuid, uuid_to_text
from pybroker.storage.errors import StorageError
from pybroker.storage.files import partition_metadata, topic_ids
from pybroker.storage.files.atomic import fsync_directory
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.rings import ring_places
from pybroker.storage.rings.ring_lock import lock_for_broker, locked_for_replay
from pybroker.storage.rings.ring_notes import RingNote, clear, mark_lost, noted_logs
from pybroker.storage.rings.ring_salvage import is_cut, regain, salvage
from pybroker.storage.rings.session_note import FILE_NAME as FILE_NAME
from pybroker.storage.rings.session_note import RingSession as RingSession
from pybroker.values import Value

logger = logging.getLogger(__name__)

RING_BYTES = 32 << 20
"""Of each ring: what gathers while the disk stalls, and still fits into the caches near the CPU in part."""

_RING_SUFFIX = ".ring"
_DIRECTORY_PREFIX = "pybroker-"
_BLOCK_BYTES = 512  # of st_blocks
_DELETED_SUFFIX = "-delete"


def forget(log_dir: Path) -> None:
    """No ring has anything of this dir."""
    if (log_dir / FILE_NAME).exists():
        (log_dir / FILE_NAME).unlink()
        fsync_directory(log_dir)


def forget_empty(log_dir: Path, directory_id: bytes) -> None:
    """After the logs of a dir are closed: the next start looks for no rings, unless one has what is in no file.
    StorageError when the dir's note of its rings makes no sense."""
    session = RingSession.read(log_dir)
    if session is None or any(not left.is_empty for left in left_rings(log_dir, directory_id)):
        return
    if not any(damaged_rings(session)):
        forget(log_dir)


def ring_directory(parent: Path, directory_id: bytes) -> Path:
    """Where a broker, whose first log dir has this id, keeps its rings: no other broker does."""
    return parent / f"{_DIRECTORY_PREFIX}{uuid_to_text(directory_id)}"


# ---- a broker that starts ------------------------------------------------------------------------------------------


def begin(broker: NativeBroker, directory: Path, *, budget_bytes: int, hot_bytes_per_second: int) -> RingSession:
    """Make ready for rings in `directory`, after what was left of them was replayed. No log has one before `announce`
    and `admit`, which may come later, while logs are open. NativeError with -EINVAL when the directory is not on tmpfs,
    StorageError when another broker uses it."""
    session = RingSession(directory, random_uuid(), boot_id())
    lock = lock_for_broker(directory)
    if lock is not None:
        broker.close_with_it(lock)
    use_rings(
        broker,
        directory,
        session.session_id,
        budget_bytes=budget_bytes,
        ring_bytes=RING_BYTES,
        hot_bytes_per_second=hot_bytes_per_second,
    )
    _sweep(directory)
    broker.when_closed(partial(ring_places.forget, directory))
    return session


def announce(session: RingSession, log_dirs: Iterable[tuple[Path, bytes]]) -> None:
    """Write into `log_dirs`, (path, directory id), where the rings of their logs are, and beside the rings which log
    dirs they are of. All of that before the first log may have a ring, since a log dir that cannot be written is a
    reason to do without rings."""
    dirs = list(log_dirs)
    ring_places.note(session.directory, session.session_id, dirs)
    for path, _ in dirs:
        session.write(path)


def admit(broker: NativeBroker, log_dirs: Iterable[tuple[Path, bytes]]) -> None:
    """Let the logs below `log_dirs`, (path, directory id), have rings. Does not block."""
    for path, directory_id in log_dirs:
        add_log_dir(broker, path, directory_id)


def _sweep(directory: Path) -> None:
    """In the broker's own directory, which it has locked, nobody else has a ring: remove the empty ones, and name the
    others."""
    for path in sorted(directory.glob(f"*{_RING_SUFFIX}")):
        ring = _read(path)
        if ring is not None and ring.gathered_bytes == 0:
            path.unlink(missing_ok=True)
        elif ring is not None:
            logger.warning(
                "the tail ring %s holds %d bytes of %s-%d, and no log here takes them: its log dir is not in service, "
                "or has changed since. Bring that log dir back and start again, or copy the ring: a restart "
                "of the machine takes it",
                path,
                ring.gathered_bytes,
                ring.topic,
                ring.partition,
            )


# ---- what an ended broker left -------------------------------------------------------------------------------------


class LeftRing(Value):
    """A ring with bytes of a log dir, or one that is empty. `log` is the directory of the partition, None when there is
    none with its name and topic id."""

    ring: RingFile
    log: Path | None

    @property
    def name(self) -> str:
        """topic-partition."""
        return f"{self.ring.topic}-{self.ring.partition}"

    @property
    def is_empty(self) -> bool:
        """Whether the log has all of it."""
        return self.ring.gathered_bytes == 0 and (self.log is None or not is_cut(self.ring, self.log))

    def is_deleted(self, log_dir: Path) -> bool:
        """Whether the topic was deleted: a newer one has its name, or its directory is on its way out."""
        place = log_dir / self.name
        if self.log is None and place.is_dir():
            return _topic_id(place) is not None
        ending = f"-{self.ring.partition}."
        gone = (each for each in log_dir.glob(f"*{_DELETED_SUFFIX}") if ending in each.name and each.is_dir())
        return any(_topic_id(each) == self.ring.topic_id for each in gone)


def _topic_id(directory: Path) -> bytes | None:
    """None where nothing that can be read says it."""
    try:
        return partition_metadata.read(directory)
    except (StorageError, OSError):
        return None


def lost_directory(log_dir: Path) -> Path | None:
    """Where rings should be and are not, although the machine was not restarted."""
    session = RingSession.read(log_dir)
    if session is None or session.boot_id != boot_id() or session.directory.is_dir():
        return None
    return session.directory


def left_rings(log_dir: Path, directory_id: bytes) -> Iterator[LeftRing]:
    """The rings that the broker which last had `log_dir` open has left, and that speak of it. Empty ones may be of its
    other dirs as well."""
    session = RingSession.read(log_dir)
    if session is None or session.boot_id != boot_id():
        return  # tmpfs does not survive the machine
    for path in sorted(session.directory.glob(f"*{_RING_SUFFIX}")):
        ring = _read(path)
        if ring is None or ring.session_id != session.session_id or ring.boot_id != session.boot_id:
            continue
        if not ring.is_sealed:
            yield LeftRing(ring, None)
        elif ring.directory_id == directory_id:
            place = log_dir / f"{ring.topic}-{ring.partition}"
            yield LeftRing(ring, place if _topic_id(place) == ring.topic_id else None)


def mend_topic_ids(log_dir: Path, directory_id: bytes) -> None:
    """Make partition.metadata anew of logs that have bytes in rings, which would not be brought in, where it is damaged
    or missing. The ring says of which topic the log was that its broker had open, where `.pybroker_topic_ids` does not.
    StorageError, OSError."""
    session = RingSession.read(log_dir)
    if session is None or session.boot_id != boot_id():
        return
    for left in left_rings(log_dir, directory_id):
        path = log_dir / left.name
        if left.log is not None or not left.ring.is_sealed or not path.is_dir():
            continue
        known = _saved_ids(log_dir).get((left.ring.topic, left.ring.partition))
        problem = _problem_of_id(path, is_the_rings=known == left.ring.topic_id)
        if problem is None:
            continue
        topic_id = left.ring.topic_id if known is None else known
        logger.warning(
            "%s; it is made anew with the topic id %s, of the tail ring %s",
            problem,
            uuid_to_text(topic_id),
            left.ring.path,
        )
        partition_metadata.write(path, topic_id)


def _problem_of_id(path: Path, *, is_the_rings: bool) -> str | None:
    """The fault of a partition.metadata that does not say what a ring says; None: a newer topic has the
    directory. `is_the_rings`: the directory was opened as the ring's topic last."""
    try:
        found = partition_metadata.read(path)
    except StorageError as error:
        return str(error)
    if found is None:
        return f"{path / partition_metadata.FILE_NAME} is missing"
    return f"{path / partition_metadata.FILE_NAME} says the topic id {uuid_to_text(found)}" if is_the_rings else None


def _saved_ids(log_dir: Path) -> dict[TopicPartition, bytes]:
    try:
        return topic_ids.read(log_dir / topic_ids.FILE_NAME)
    except StorageError:
        return {}  # is told when it is loaded


def _read(path: Path) -> RingFile | None:
    """None for what is no ring, which is told, or an unfinished one."""
    if path.exists() and not path.is_file():  # a pipe would keep us waiting
        logger.error("%s is no tail ring; it stays where it is", path)
        return None
    try:
        return read_ring(path)
    except NativeError as error:
        if error.errno in (errno.ENODATA, errno.ENOENT):
            return None
        if error.errno in (errno.EBADMSG, errno.EPROTONOSUPPORT):
            logger.error("%s; it stays where it is", error)
            return None
        raise _as_os_error(error) from error


def _as_os_error(error: NativeError) -> OSError:
    return OSError(error.errno or errno.EIO, error.text)


class UnclaimedRing(Value):
    """The file of a ring, and the memory that it takes. `ring`: what it says of itself, None for a damaged one."""

    path: Path
    ring: RingFile | None
    used_bytes: int

    @property
    def filled(self) -> RingFile | None:
        """The ring, if it is intact and has bytes in it."""
        return self.ring if self.ring is not None and self.ring.gathered_bytes > 0 else None


class UnclaimedRings(Value):
    """Files in a directory of rings that none of some log dirs will take in."""

    directory: Path
    rings: tuple[UnclaimedRing, ...]


def unclaimed_rings(parent: Path, claims: Collection[tuple[RingSession, bytes]]) -> Iterator[UnclaimedRings]:
    """By directory, what lies in `parent` beyond the rings of `claims`: what a log dir says of its rings, and the
    directory id of that log dir. Directories of other users are left out, unless this one may look into them."""
    for directory in sorted(parent.glob(f"{_DIRECTORY_PREFIX}*")):
        found: list[UnclaimedRing] = []
        for path in _ring_paths(directory):
            try:
                ring = read_ring(path)
            except DamagedRing as damaged:
                if not any(_is_of(damaged.claim, session) for session, _ in claims):
                    found.append(UnclaimedRing(path, None, _used_bytes(path)))
                continue
            except NativeError as error:
                logger.debug("%s", error)  # one that is being made, or removed
                continue
            if not any(_is_claimed(ring, session, directory_id) for session, directory_id in claims):
                found.append(UnclaimedRing(path, ring, _used_bytes(path)))
        if found:
            yield UnclaimedRings(directory, tuple(found))


def _ring_paths(directory: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    return [directory / name for name in names if name.endswith(_RING_SUFFIX) and (directory / name).is_file()]


def _is_claimed(ring: RingFile, session: RingSession, directory_id: bytes) -> bool:
    return ring.session_id == session.session_id and (not ring.is_sealed or ring.directory_id == directory_id)


def _used_bytes(path: Path) -> int:
    try:
        return path.stat().st_blocks * _BLOCK_BYTES
    except FileNotFoundError:
        return 0


def replay(log_dir: Path, directory_id: bytes) -> int:
    """Bring what an ended broker left in rings into the logs, and remove the rings; how many bytes came in. Before any
    log is opened. Doing it again, also after a stop half way, comes to the same. Rings that are not there now may be at
    the next try, such as before their tmpfs is mounted: the log dir goes on naming them. StorageError when a broker
    uses them."""
    session = RingSession.read(log_dir)
    if session is None:
        return 0
    lost = lost_directory(log_dir)
    if lost is not None:
        logger.error(
            "the tail rings of %s in %s are gone, though the machine was not restarted: unless they come back before "
            "a broker starts here, what was in them is lost. Let nothing clean that directory up while the broker is "
            "down",
            log_dir,
            lost,
        )
        _miss_rings(log_dir, session, set())
        return 0
    with locked_for_replay(session.directory):
        rings = list(left_rings(log_dir, directory_id))
        total_bytes = sum(_replay_left(log_dir, left) for left in rings)
        with_ring = {left.log for left in rings if left.log is not None}
        for ring in damaged_rings(session):
            log = log_dir / f"{ring.topic}-{ring.partition}"
            if ring.directory_id == directory_id and "/" not in ring.topic and _topic_id(log) == ring.topic_id:
                with_ring.add(log)
                total_bytes += _save(ring, log)
        _miss_rings(log_dir, session, with_ring)
    forget(log_dir)
    return total_bytes


def remove_directory(directory: Path) -> None:
    """After all log dirs that named a directory of rings were replayed: to one that still names it, it would be lost.
    It stays if anybody has rings there."""
    with contextlib.suppress(OSError, StorageError), locked_for_replay(directory):
        ring_places.forget(directory)


def _replay_left(log_dir: Path, left: LeftRing) -> int:
    """How many bytes came in."""
    ring = left.ring
    if left.is_empty:
        _let_go(ring, left.log)
    elif left.log is not None:
        return _replay_one(left, left.log)
    elif left.is_deleted(log_dir):
        logger.info("the tail ring %s is of %s, which was deleted: it is removed", ring.path, left.name)
        ring.path.unlink(missing_ok=True)
    else:
        _tell_kept(left, f"{log_dir} has no such partition")
    return 0


def bring_in(ring: RingFile, log: Path, *, look: bool = False) -> int:
    """Bring what the ring holds into the log, and sync it; how many bytes that had not got. `look`: only say so. The
    ring's file stays. NativeError with ESTALE when the log is not as the ring's writer left it, and the change is not a
    disk's loss that the ring makes good; OSError."""
    if not is_cut(ring, log):
        return replay_ring(ring.path, log, look=look)
    regained_bytes = regain(ring, log, look=look)
    if regained_bytes is None:
        raise NativeError(
            -errno.ESTALE,
            f"{log}/{ring.segment_base:020}.log ends before position {ring.start_position}, up to which it was "
            f"written, and the tail ring {ring.path} has not all that is missing",
        )
    if not look:
        logger.warning(
            "%s/%020d.log ended before position %d, up to which it was written: its disk has lost %d bytes. They were "
            "still in the tail ring %s and came in from there",
            log,
            ring.segment_base,
            ring.start_position,
            regained_bytes - ring.gathered_bytes,
            ring.path,
        )
    return regained_bytes


def _replay_one(left: LeftRing, log: Path) -> int:
    ring = left.ring
    try:
        moved_bytes = bring_in(ring, log)
    except NativeError as error:
        if error.errno == errno.ESTALE:
            _tell_kept(left, error.text)
            note = RingNote.read(log) or RingNote(ring.session_id, ring.boot_id, ring.path.name, False)
            mark_lost(log, note)
            return 0
        raise _as_os_error(error) from error
    _let_go(ring, log)
    if moved_bytes:
        logger.info("%s: %d bytes came in from the tail ring %s", log, moved_bytes, ring.path)
    return moved_bytes


def _let_go(ring: RingFile, log: Path | None) -> None:
    """The log has all of the ring. Its note goes first: without the ring it would tell of a loss."""
    if log is not None:
        clear(log)
    ring.path.unlink(missing_ok=True)


def damaged_rings(session: RingSession) -> Iterator[RingFile]:
    """The rings of that session, as far as a name or a header tells; their other values may be anything."""
    for path in sorted(each for each in session.directory.glob(f"*{_RING_SUFFIX}") if each.is_file()):
        try:
            read_ring(path)
        except DamagedRing as damaged:
            if _is_of(damaged.claim, session):
                yield damaged.claim
        except NativeError as error:
            logger.debug("%s", error)  # has been told


def _is_of(claim: RingFile, session: RingSession) -> bool:
    """Whether a damaged ring is one of the session, by its header or its name."""
    return claim.session_id == session.session_id or claim.path.name.startswith(session.session_id.hex()[:12])


def _save(ring: RingFile, log: Path) -> int:
    """How many bytes came in."""
    saved = salvage(ring, log)
    logger.error(
        "the tail ring %s of %s is damaged. %d records (%d bytes) in it, which follow where the log ended, are intact "
        "and came in; what may have followed them is lost. It stays where it is until the machine is restarted; copy "
        "it if it matters",
        ring.path,
        log,
        saved.record_count,
        saved.byte_count,
    )
    return saved.byte_count


def _miss_rings(log_dir: Path, session: RingSession, with_ring: Collection[Path]) -> None:
    """Logs that had a ring when their broker ended, and whose ring is not there."""
    if session.boot_id != boot_id():
        return  # tmpfs does not survive the machine
    for log, note in noted_logs(log_dir, session.session_id):
        if log in with_ring:
            continue
        mark_lost(log, note)
        logger.error(
            "%s was written through the tail ring %s when its broker ended, and that is gone or cannot be read: up to "
            "%d MiB of what was acknowledged last may be lost. Let nothing clean up there",
            log,
            session.directory / note.ring_name,
            RING_BYTES >> 20,
        )


def _tell_kept(left: LeftRing, why: str) -> None:
    ring = left.ring
    logger.error(
        "the tail ring %s holds %d bytes of %s, from position %d of segment %d on, which cannot be brought in: %s. It "
        "stays where it is until the machine is restarted; copy it if those records matter",
        ring.path,
        ring.gathered_bytes,
        left.name,
        ring.start_position,
        ring.segment_base,
        why,
    )
