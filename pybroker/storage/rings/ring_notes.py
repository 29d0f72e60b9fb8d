"""`.pybroker_ring` in a log's directory: the data plane's note that the newest bytes may be in a tail ring.

The note is there as long as the log is hot (csrc/log/engine/ring_note.c). A start that finds it, and not the ring,
has lost records. Then `mark_lost` makes the note say so until somebody accepts the loss or the ring comes back.
Blocks; OSError.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from pybroker.storage.files.atomic import write_durably
from pybroker.storage.files.regular_file import WrongKind, read_bytes
from pybroker.values import Value

logger = logging.getLogger(__name__)

FILE_NAME = ".pybroker_ring"

_VERSION = "0"
_LOST = "lost"
_NOTE_BYTES = 1024


class RingNote(Value):
    """Which ring a log had, by session, boot and the name of its file; `is_lost`: a start has missed it."""

    session_id: bytes
    boot_id: bytes
    ring_name: str
    is_lost: bool

    @classmethod
    def read(cls, log: Path) -> RingNote | None:
        """None when there is none, or none that can be read, which is told."""
        if not os.path.exists(f"{log}/{FILE_NAME}"):
            return None  # every start asks for each log
        try:
            text = read_bytes(log / FILE_NAME)[:_NOTE_BYTES].decode()
        except FileNotFoundError:
            return None
        except (UnicodeDecodeError, NotADirectoryError, WrongKind) as error:
            logger.warning("%s is no note of a tail ring: %s", log / FILE_NAME, error)
            return None
        try:
            version, session, boot, name, *more = text.split()
            if version != _VERSION:
                raise ValueError(f"version {version}, but only version {_VERSION} is known")
            return cls(bytes.fromhex(session), bytes.fromhex(boot), name, more == [_LOST])
        except ValueError as error:
            logger.warning("%s is damaged: %s", log / FILE_NAME, error)
            return None

    def write(self, log: Path) -> None:
        """Durably: what it says of a loss outlives the machine."""
        lost = f" {_LOST}" if self.is_lost else ""
        text = f"{_VERSION} {self.session_id.hex()} {self.boot_id.hex()} {self.ring_name}{lost}\n"
        write_durably(log / FILE_NAME, text.encode())


def mark_lost(log: Path, note: RingNote) -> None:
    """The ring's bytes are lost, for every start from now on."""
    if not note.is_lost:
        note.replace(is_lost=True).write(log)


def clear(log: Path) -> None:
    """The log has all that its ring had, or nobody waits for it."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(log / FILE_NAME)


def noted_logs(log_dir: Path, session_id: bytes) -> Iterator[tuple[Path, RingNote]]:
    """The logs below `log_dir` that had a ring of this session."""
    for entry in sorted(os.scandir(log_dir), key=lambda entry: entry.name):
        note = RingNote.read(Path(entry.path)) if entry.is_dir() else None
        if note is not None and note.session_id == session_id:
            yield Path(entry.path), note
