"""`leader-epoch-checkpoint` (KIP-101), format version 0, as used here by the metadata log only.

Text: the version, the number of entries, then one `epoch start_offset` per line, both ascending.
"""

from collections.abc import Sequence
from pathlib import Path

from pybroker.storage.errors import StorageError
from pybroker.storage.files.atomic import write_durably
from pybroker.storage.files.regular_file import read_text

FILE_NAME = "leader-epoch-checkpoint"

EpochEntry = tuple[int, int]


def read(path: Path) -> list[EpochEntry]:
    """(epoch, start offset) pairs in file order; [] when the file is absent or empty."""
    try:
        lines = read_text(path, "ascii").split("\n")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise StorageError(f"{path}: not a leader epoch checkpoint: {error}") from error
    if lines == [""]:
        return []
    try:
        version, count = int(lines[0]), int(lines[1])
        entries = [(int(line.split()[0]), int(line.split()[1])) for line in lines[2:] if line]
    except (IndexError, ValueError) as error:
        raise StorageError(f"{path}: not a leader epoch checkpoint: {error}") from error
    if version != 0 or count != len(entries):
        raise StorageError(f"{path}: version {version} with {count} entries announced, {len(entries)} found")
    return entries


def write(path: Path, entries: Sequence[EpochEntry]) -> None:
    """Replace the file durably."""
    lines = ["0", str(len(entries)), *(f"{epoch} {start_offset}" for epoch, start_offset in entries)]
    write_durably(path, ("\n".join(lines) + "\n").encode())
