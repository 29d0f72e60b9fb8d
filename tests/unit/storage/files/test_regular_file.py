"""Only regular files are opened, and nothing is waited for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pybroker.native.errors import NativeError
from pybroker.protocol.uuids import random_uuid
from pybroker.storage.dirs import format_version
from pybroker.storage.files import (
    clean_shutdown,
    epoch_checkpoint,
    meta_properties,
    offset_checkpoint,
    partition_metadata,
    topic_ids,
)
from pybroker.storage.files.applied_metadata import FILE_NAME as APPLIED
from pybroker.storage.files.applied_metadata import AppliedMetadata
from pybroker.storage.files.directory_lock import FILE_NAME as LOCK
from pybroker.storage.files.directory_lock import DirectoryLock
from pybroker.storage.files.regular_file import WrongKind, open_regular, read_bytes, read_text
from pybroker.storage.logs.log_failures import Consequence, consequence
from pybroker.storage.rings import tail_rings
from tests.harness.damage import harm

READERS: dict[str, Callable[[Path], object]] = {
    clean_shutdown.FILE_NAME: lambda path: clean_shutdown.read(path.parent),
    epoch_checkpoint.FILE_NAME: epoch_checkpoint.read,
    format_version.FILE_NAME: lambda path: format_version.FormatVersion.read(path.parent),
    meta_properties.FILE_NAME: lambda path: meta_properties.MetaProperties.read(path.parent),
    offset_checkpoint.RECOVERY_POINT: offset_checkpoint.read,
    partition_metadata.FILE_NAME: lambda path: partition_metadata.read(path.parent),
    tail_rings.FILE_NAME: lambda path: tail_rings.RingSession.read(path.parent),
    topic_ids.FILE_NAME: topic_ids.read,
    APPLIED: lambda path: AppliedMetadata.read(path.parent),
    LOCK: lambda path: DirectoryLock(path.parent),
}
WORDS = {
    harm.DIRECTORY: "it is a directory",
    harm.FIFO: "it is a pipe",
    harm.SOCKET: "it is a socket",
    harm.DEVICE: "it is a device",
    harm.LOOP: "symbolic links",
}


@pytest.mark.parametrize("kind", harm.KIND_HARMS)
@pytest.mark.parametrize("name", READERS)
def test_each_reader_names_what_is_no_file(tmp_path: Path, name: str, kind: str) -> None:
    harm.KIND_HARMS[kind](tmp_path / name)
    with pytest.raises(OSError, match=WORDS[kind]) as caught:
        READERS[name](tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert consequence(caught.value) is Consequence.PARTITION, "the disk is not at fault"


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT])
@pytest.mark.parametrize("kind", [each for each in harm.KIND_HARMS if each != harm.LOOP])
def test_however_it_is_opened(tmp_path: Path, kind: str, flags: int) -> None:
    path = tmp_path / "file"
    harm.KIND_HARMS[kind](path)
    with pytest.raises(WrongKind, match="a regular file has to be there"):
        open_regular(path, flags)


def test_files_and_links_to_them_are_read(tmp_path: Path) -> None:
    content = bytes(range(256)) * 8192
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "link").symlink_to("file")
    assert read_bytes(tmp_path / "link") == content
    assert read_text(tmp_path / "link", "latin-1") == content.decode("latin-1")
    descriptor = open_regular(tmp_path / "link", os.O_RDWR)
    assert os.get_blocking(descriptor)
    os.close(descriptor)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / random_uuid().hex())


def test_the_data_plane_says_it_in_the_same_words() -> None:
    error = NativeError(-124)
    assert "where a regular file has to be" in str(error)
    assert consequence(error) is Consequence.PARTITION


def test_no_file_of_a_log_dir_is_read_another_way() -> None:
    """A plain read waits for a pipe, and its errors do not name the file. Tools for stopped brokers are not meant."""
    root = Path(__file__).parents[4] / "pybroker"
    plain = re.compile(r"\.read_text\(|\.read_bytes\(|(?<![\w.])(?<!def )open\((?!.*opener=)")
    found = [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for folder in ("storage", "metadata")
        for path in sorted((root / folder).glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if path.name != "regular_file.py" and plain.search(line) and "/proc/" not in line
    ]
    assert not found, "\n".join(found)
