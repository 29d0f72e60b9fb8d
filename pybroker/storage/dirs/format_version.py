"""`.pybroker_format`: the version of pybroker that had a log dir last, so that one that would misread it refuses it.

JSON, written at start, before anything else in the dir is changed. Apache Kafka takes no notice of it. A dir without it
is Kafka's, or of a version from before there was one; both are of format 1. Blocks on the disk; called at start with
the dir locked. Fails with `StorageError` and `OSError`.
"""

from __future__ import annotations

import json
from pathlib import Path

from pybroker import __version__
from pybroker.storage.errors import StorageError, said_of
from pybroker.storage.files.atomic import write_durably
from pybroker.storage.files.regular_file import read_bytes
from pybroker.storage.rings import tail_rings
from pybroker.values import Value

FILE_NAME = ".pybroker_format"

FORMAT = 1
"""Of the files that this version writes: one more with each change that an older version would not understand."""
READABLE_SINCE = 1
"""The oldest format whose versions open what this one has stopped in order."""


class FormatVersion(Value):
    """The writer of a log dir: the `format` of its files, the oldest format whose versions may open it, and the version
    of pybroker, for people."""

    format: int
    readable_since: int
    written_by: str

    @classmethod
    def read(cls, log_dir: Path) -> FormatVersion | None:
        """None when nothing says. StorageError when the file makes no sense."""
        path = log_dir / FILE_NAME
        try:
            content = json.loads(read_bytes(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise _damaged(path, said_of(error)) from error
        try:
            found = cls(content["format"], content["readable.since"], content["written.by"])
        except (KeyError, TypeError) as error:
            raise _damaged(path, said_of(error)) from error
        if not (_is_format(found.format) and _is_format(found.readable_since) and isinstance(found.written_by, str)):
            raise _damaged(path, f"{content!r}")
        return found

    def write(self, log_dir: Path) -> None:
        """Durably."""
        content = {"format": self.format, "readable.since": self.readable_since, "written.by": self.written_by}
        write_durably(log_dir / FILE_NAME, (json.dumps(content) + "\n").encode())


OWN = FormatVersion(FORMAT, READABLE_SINCE, __version__)


def check_format(log_dir: Path) -> None:
    """StorageError when the files of this dir are of a format that this version does not know."""
    found = FormatVersion.read(log_dir)
    if found is None:
        return
    if found.readable_since > FORMAT:
        raise StorageError(
            f"{log_dir} was last opened by pybroker {found.written_by}, which writes format {found.format}; this is "
            f"pybroker {__version__}, which reads no format after {FORMAT}. Start pybroker {found.written_by} or a "
            "newer one, or restore the dir from a backup of before the upgrade"
        )
    if found.format != FORMAT and (log_dir / tail_rings.FILE_NAME).exists():
        raise StorageError(
            f"{log_dir} was not stopped in order, and its newest records are in tail rings of format {found.format}, "
            f"which this pybroker {__version__} (format {FORMAT}) does not read: start pybroker {found.written_by} "
            "once more and stop it with SIGTERM"
        )


def mark_format(log_dir: Path) -> None:
    """Say that this version has the dir; writes only when another one had it."""
    if FormatVersion.read(log_dir) != OWN:
        OWN.write(log_dir)


def _is_format(value: object) -> bool:
    return type(value) is int and value > 0


def _damaged(path: Path, what: str) -> StorageError:
    return StorageError(
        f"{path} is damaged: {what}. If no version after {__version__} has had this dir, move the file away and "
        "start again"
    )
