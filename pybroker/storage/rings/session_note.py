"""`.pybroker_tail_rings` of a log dir: where the rings of its broker are, and of which session they are.

Blocks. OSError; StorageError for a file that makes no sense.
"""

from __future__ import annotations

import json
from pathlib import Path

from pybroker.storage.errors import StorageError, said_of
from pybroker.storage.files.atomic import write_durably
from pybroker.storage.files.regular_file import read_text
from pybroker.values import Value

FILE_NAME = ".pybroker_tail_rings"

_VERSION = 1


class RingSession(Value):
    """A log dir's note on the rings of the broker that has it open, or had when it ended."""

    directory: Path
    session_id: bytes
    boot_id: bytes

    @classmethod
    def read(cls, log_dir: Path) -> RingSession | None:
        """None when no ring has anything of this dir. StorageError when the file makes no sense."""
        path = log_dir / FILE_NAME
        try:
            content = json.loads(read_text(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise _damaged(path, said_of(error)) from error
        try:
            if content["version"] != _VERSION:
                raise StorageError(f"{path}: version {content['version']!r}, but only version {_VERSION} is known")
            directory = Path(content["directory"])
            return cls(directory, bytes.fromhex(content["session"]), bytes.fromhex(content["boot"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(path, said_of(error)) from error

    def write(self, log_dir: Path) -> None:
        """Durably."""
        content = {
            "version": _VERSION,
            "directory": str(self.directory),
            "session": self.session_id.hex(),
            "boot": self.boot_id.hex(),
        }
        write_durably(log_dir / FILE_NAME, json.dumps(content).encode())


def _damaged(path: Path, what: str) -> StorageError:
    return StorageError(
        f"{path} is damaged ({what}). It says where the newest records of this log dir may be: in tail rings, below "
        "the directory that pybroker.tail.ring.directory names. Restore the file, or copy these rings first. If the "
        "machine was restarted since the broker ended, no ring is left: move the file away and start again"
    )
