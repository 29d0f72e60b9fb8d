"""`.pybroker_log_ends` of one log dir: how far each log reached, and which segments it had, when that was last written.

A log that ends below its record here has lost records. Every cut of ours is noted first (`.pybroker_cut`, see
csrc/log/change/cut_note.c). Retention and compaction take segments off the record before they delete or replace them.
Apache Kafka passes over the file, so a record counts only as long as Apache Kafka has not had the dir since. The header
says so: it has the CRC of the `recovery-point-offset-checkpoint` written with it, and the broker epoch of the
clean-shutdown mark.

Text, one partition per line, with a CRC at the end; `RecordedEnds` has the fields. Any thread; what blocks says so.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from pybroker.native import crc32c
from pybroker.native.rings import boot_id
from pybroker.protocol.uuids import uuid_from_text, uuid_to_text
from pybroker.storage.errors import StorageError
from pybroker.storage.files import offset_checkpoint
from pybroker.storage.files.atomic import fsync_directory, keep_mode, write_durably
from pybroker.storage.files.modes import data_opener
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.files.regular_file import read_bytes
from pybroker.values import Value

logger = logging.getLogger(__name__)

FILE_NAME = ".pybroker_log_ends"
WRITTEN_NAME = ".pybroker_written"
"""Beside it, how far logs were written half a second ago or so: what a kill leaves, and a power cut may take."""
CUT_NOTE = ".pybroker_cut"

NO_START = -1
"""Where a log began is not known, only where it ended."""

_VERSION = "0"
_OPEN = "-"
_NONE = "-"


class RecordedEnds(NamedTuple):
    """The record of one log. All below `durable` was synced; all below `written` was in its file, which a kill leaves
    and a power cut may take. Each of `segments`, (base offset, size in bytes), was synced and is no shorter now.
    `generation` is of the log's last cut."""

    topic_id: bytes
    generation: int
    start: int
    durable: int
    written: int
    segments: tuple[tuple[int, int], ...] = ()


class EndsFile(Value):
    """The content of the file. `checkpoint_crcs`: of the recovery points as they were before it was written and as they
    are since. `broker_epoch` is of a stop in order, None while a broker runs."""

    boot_id: bytes
    checkpoint_crcs: tuple[int, int]
    broker_epoch: int | None
    ends: dict[TopicPartition, RecordedEnds]

    @classmethod
    def read(cls, log_dir: Path) -> EndsFile | None:
        """None when there is none. StorageError for one that makes no sense. OSError. Blocks."""
        path = log_dir / FILE_NAME
        try:
            content = read_bytes(path)
        except FileNotFoundError:
            return None
        body, _, last = content.rstrip(b"\n").rpartition(b"\n")
        try:
            if int(last, 16) != crc32c(body):
                raise StorageError(f"{path} is damaged: its checksum is wrong")
            version, header, *lines = body.decode().split("\n")
            if version != _VERSION:
                raise StorageError(f"{path}: version {version!r}, but only version {_VERSION} is known")
            boot, before, after, epoch = header.split(" ")
            ends = dict(map(_parse, lines))
        except ValueError as error:
            raise StorageError(f"{path} is damaged: {error}") from error
        crcs = (int(before, 16), int(after, 16))
        return cls(bytes.fromhex(boot), crcs, None if epoch == _OPEN else int(epoch), ends)

    def write(self, log_dir: Path) -> None:
        """Durably. Blocks. OSError."""
        epoch = _OPEN if self.broker_epoch is None else str(self.broker_epoch)
        before, after = self.checkpoint_crcs
        lines = [_VERSION, f"{self.boot_id.hex()} {before:08x} {after:08x} {epoch}"]
        lines += (_format(key, each) for key, each in self.ends.items())
        body = "\n".join(lines).encode()
        write_durably(log_dir / FILE_NAME, body + b"\n%08x\n" % crc32c(body))


def _format(key: TopicPartition, ends: RecordedEnds) -> str:
    segments = ",".join([f"{base}:{size}" for base, size in ends.segments]) or _NONE
    topic_id = uuid_to_text(ends.topic_id)
    return f"{key[0]} {key[1]} {topic_id} {ends.generation} {ends.start} {ends.durable} {ends.written} {segments}"


def _parse(line: str) -> tuple[TopicPartition, RecordedEnds]:
    topic, partition, topic_id, *numbers, segments = line.split(" ")
    generation, start, durable, written = map(int, numbers)
    pairs = () if segments == _NONE else tuple(map(_parse_segment, segments.split(",")))
    return (topic, int(partition)), RecordedEnds(uuid_from_text(topic_id), generation, start, durable, written, pairs)


def _parse_segment(text: str) -> tuple[int, int]:
    base, size = text.split(":")
    return int(base), int(size)


def _read_written(log_dir: Path) -> dict[TopicPartition, RecordedEnds]:
    """The written ends of logs of a broker that was killed; {} when they do not count."""
    path = log_dir / WRITTEN_NAME
    try:
        body, _, last = read_bytes(path).rstrip(b"\n").rpartition(b"\n")
        version, boot, *lines = body.decode().split("\n")
        if int(last, 16) != crc32c(body) or version != _VERSION:
            raise ValueError("its checksum or its version is wrong")
        return dict(map(_parse, lines)) if bytes.fromhex(boot) == boot_id() else {}
    except FileNotFoundError:
        return {}
    except ValueError as error:
        logger.warning("%s is damaged and not compared with the logs: %s", path, error)
        return {}


def counting(found: EndsFile, log_dir: Path) -> dict[TopicPartition, RecordedEnds]:
    """The ends that count of a record now: a power cut takes records that were not synced, and a kill does not.
    Blocks."""
    if found.boot_id != boot_id():
        return {key: each._replace(written=each.durable) for key, each in found.ends.items()}
    if found.broker_epoch is not None:
        return found.ends
    return _with_written(found.ends, _read_written(log_dir))


def _with_written(
    ends: dict[TopicPartition, RecordedEnds], written: Mapping[TopicPartition, RecordedEnds]
) -> dict[TopicPartition, RecordedEnds]:
    """Ends with what was written since they were recorded."""
    found = dict(ends)
    for key, newer in written.items():
        known = ends.get(key)
        if known is None or known.topic_id != newer.topic_id or known.generation < newer.generation:
            found[key] = newer._replace(start=NO_START)
        elif known.generation == newer.generation:
            found[key] = known._replace(written=max(known.written, newer.written))
    return found


def checkpoint_crc(log_dir: Path) -> int:
    """The CRC of the recovery points that lie there. Blocks."""
    try:
        return crc32c(read_bytes(log_dir / offset_checkpoint.RECOVERY_POINT))
    except OSError:
        return 0


def why_not_ours(found: EndsFile, log_dir: Path, clean_epoch: int | None) -> str | None:
    """Why a record says nothing of the dir as it is now; None when it counts. `clean_epoch` is that of the
    clean-shutdown mark, None without one. Blocks."""
    if checkpoint_crc(log_dir) not in found.checkpoint_crcs:
        return f"{offset_checkpoint.RECOVERY_POINT} was written by another broker or changed"
    if clean_epoch is not None and clean_epoch != found.broker_epoch:
        return "another broker closed it in order"
    if clean_epoch is None and found.broker_epoch is not None:
        return "another broker, or a stop in between, took the mark of a stop in order away"
    return None


class LogEnds:
    """The record of one log dir: `load` at the start, then `get`, and `save` with each write of the checkpoints."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._lock = threading.Lock()
        #: Held while the file is written, by threads whose callers may be gone.
        self._writing = threading.Lock()
        #: The records of logs that are not open; those of open ones come with `save`.
        self._ends: dict[TopicPartition, RecordedEnds] = {}
        self._saved: EndsFile | None = None
        #: Logs that the note of what is written speaks of.
        self._noted: frozenset[TopicPartition] = frozenset()
        #: Whether anything counts as a loss: not after Apache Kafka has had the dir.
        self.is_ours = False

    def load(self, clean_epoch: int | None) -> None:
        """Read what the last broker recorded, before the clean-shutdown mark goes. Blocks. OSError."""
        try:
            found = EndsFile.read(self._log_dir)
        except StorageError as error:
            logger.warning("%s; whether logs of this dir have lost records is not compared with it", error)
            return
        if found is None:
            self._begin({})
            return
        why = why_not_ours(found, self._log_dir, clean_epoch)
        if why is not None:
            logger.warning(
                "%s does not count: %s. Logs of this dir are compared with Apache Kafka's checkpoints, and a log that "
                "ends below them is reported and served",
                self._log_dir / FILE_NAME,
                why,
            )
            self._begin({})
            return
        ends = counting(found, self._log_dir)
        if found.boot_id != boot_id():  # else what a power cut took would count again, once the file is lowered
            found = found.replace(ends=ends)
        self.is_ours, self._ends, self._saved = True, dict(ends), found
        self._noted = frozenset(ends)
        if clean_epoch is not None:
            self._begin(ends)

    def _begin(self, ends: dict[TopicPartition, RecordedEnds]) -> None:
        """Say that a broker of ours has the dir: from here on the mark may be missing for a reason. A disk that is full
        is no reason not to start."""
        try:
            self._write(ends, checkpoint_crc(self._log_dir), None)
        except OSError as error:
            logger.warning("%s cannot be written, and the next start may not compare: %s", error.filename, error)

    def get(self, key: TopicPartition) -> RecordedEnds | None:
        """The record of a log that has not been opened since."""
        with self._lock:
            return self._ends.get(key)

    def closed(self) -> Collection[TopicPartition]:
        """The logs recorded that are not open."""
        with self._lock:
            return list(self._ends)

    def forget(self, key: TopicPartition) -> None:
        """The log lies here no more, or is open: `save` is told of it."""
        with self._lock:
            self._ends.pop(key, None)

    def put(self, key: TopicPartition, ends: RecordedEnds) -> None:
        """Sets the record of a log that was closed, or has moved here."""
        with self._lock:
            self._ends[key] = ends

    def speaks_of_gone(self, key: TopicPartition) -> bool:
        """Whether the files speak of a log that lies here no more."""
        saved = self._saved  # read once: another thread may remove the file
        is_saved = saved is not None and key in saved.ends
        return key not in self._ends and (is_saved or key in self._noted)

    def last_saved(self, key: TopicPartition) -> RecordedEnds | None:
        """The file's record of a log."""
        saved = self._saved  # as above
        return None if saved is None else saved.ends.get(key)

    def save(
        self,
        open_ends: Mapping[TopicPartition, RecordedEnds],
        recovery_points: bytes | None = None,
        broker_epoch: int | None = None,
    ) -> None:
        """Write what changed. `recovery_points` is the content that their checkpoint gets next, None when it stays.
        `broker_epoch`: the logs are closed in order. Blocks. OSError."""
        with self._lock:
            ends = {**self._ends, **open_ends}
        with self._writing:
            crc = checkpoint_crc(self._log_dir) if recovery_points is None else crc32c(recovery_points)
            self._write(ends, crc, broker_epoch)

    def save_written(self, open_ends: Mapping[TopicPartition, RecordedEnds]) -> None:
        """Bring what is written in open logs to a file that a kill leaves, and a power cut may take. Nothing is synced.
        Blocks. OSError."""
        lines = [_VERSION, boot_id().hex()]
        lines += (_format(key, each._replace(segments=())) for key, each in open_ends.items())
        body = "\n".join(lines).encode()
        path = self._log_dir / WRITTEN_NAME
        temporary = path.with_name(f"{WRITTEN_NAME}.tmp")
        with open(temporary, "wb", opener=data_opener) as file:
            file.write(body + b"\n%08x\n" % crc32c(body))
            keep_mode(file.fileno(), path)
        os.replace(temporary, path)
        self._noted = frozenset(open_ends)

    def forget_written(self) -> None:
        """The logs are closed in order. Blocks. OSError."""
        (self._log_dir / WRITTEN_NAME).unlink(missing_ok=True)

    def lower(self, changed: Mapping[TopicPartition, RecordedEnds]) -> None:
        """Let the file say less of some logs, and of the others what it does. A file that another thread has removed
        says nothing, which is less. Blocks. OSError."""
        with self._writing:
            saved = self._saved
            if saved is None:
                return
            self._write({**saved.ends, **changed}, saved.checkpoint_crcs[1], saved.broker_epoch)

    def remove(self) -> None:
        """Let the file say nothing, which takes no room, until the next `save`. Blocks. OSError."""
        with self._writing:
            (self._log_dir / FILE_NAME).unlink(missing_ok=True)
            fsync_directory(self._log_dir)
            self._saved = None

    def _write(self, ends: dict[TopicPartition, RecordedEnds], crc: int, broker_epoch: int | None) -> None:
        saved = self._saved
        boot = boot_id()
        is_same = saved is not None and (saved.boot_id, saved.broker_epoch, saved.checkpoint_crcs[1]) == (
            boot,
            broker_epoch,
            crc,
        )
        if is_same and saved is not None and saved.ends == ends:
            return
        written = EndsFile(boot, (checkpoint_crc(self._log_dir), crc), broker_epoch, dict(ends))
        written.write(self._log_dir)
        self._saved = written
