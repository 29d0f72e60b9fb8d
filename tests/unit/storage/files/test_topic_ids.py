"""The second copy of topic ids, and what a damaged partition.metadata is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.errors import StorageError
from pybroker.storage.files import partition_metadata, topic_ids
from pybroker.storage.files.topic_ids import TopicIds

OLD, NEW = bytes(15) + b"\x11", bytes(15) + b"\x12"
KEY = ("t", 0)


def noted(root: Path, topic_id: bytes | None) -> LogDirectory:
    """A log dir with a partition's directory, opened before as of `topic_id`."""
    (root / "t-0").mkdir()
    if topic_id is not None:
        ids = TopicIds(root)
        ids.note(KEY, topic_id)
        ids.save()
    directory = LogDirectory(root, bytes(16))
    directory.load()
    return directory


def test_what_was_noted_comes_back_for_what_is_there(tmp_path: Path) -> None:
    ids = TopicIds(tmp_path)
    ids.note(KEY, OLD)
    ids.note(("gone", 3), NEW)
    ids.save()
    again = TopicIds(tmp_path)
    again.load([KEY])
    assert again.get(KEY) == OLD
    assert again.get(("gone", 3)) is None
    again.forget(KEY)
    again.save()
    assert topic_ids.read(tmp_path / topic_ids.FILE_NAME) == {}


@pytest.mark.parametrize(
    "text", ["", "\0\0", "1\n0\n", "0\n1\n", "0\n1\nt 0\n", "0\n1\nt 0 x\n", "0\n1\nt x AAAA\n", "0\n"]
)
def test_a_damaged_copy_is_told_and_made_anew(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / topic_ids.FILE_NAME).write_text(text)
    ids = TopicIds(tmp_path)
    ids.load([KEY])
    assert topic_ids.FILE_NAME in caplog.text
    ids.note(KEY, NEW)
    ids.save()
    assert topic_ids.read(tmp_path / topic_ids.FILE_NAME) == {KEY: NEW}


@pytest.mark.parametrize("content", [b"", bytes(43), b"junk", b"\xff\xfe", b"version: 0\ntopic_id: AAAAAAAA"])
def test_a_damaged_file_is_made_anew_from_what_the_directory_was_opened_as(tmp_path: Path, content: bytes) -> None:
    directory = noted(tmp_path, OLD)
    (tmp_path / "t-0" / partition_metadata.FILE_NAME).write_bytes(content)
    # The topic was made anew meanwhile: the records must not come under it.
    assert directory.topic_id(KEY, tmp_path / "t-0", NEW) == OLD
    assert partition_metadata.read(tmp_path / "t-0") == OLD


def test_without_it_nobody_guesses(tmp_path: Path) -> None:
    directory = noted(tmp_path, None)
    path = tmp_path / "t-0" / partition_metadata.FILE_NAME
    path.write_bytes(b"")
    with pytest.raises(StorageError, match="Nothing else says of which topic") as caught:
        directory.topic_id(KEY, tmp_path / "t-0", NEW)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == b""


def test_another_id_is_damage_only_where_the_directory_was_opened_as_the_topic(tmp_path: Path) -> None:
    directory = noted(tmp_path, NEW)
    partition_metadata.write(tmp_path / "t-0", OLD)
    assert directory.topic_id(KEY, tmp_path / "t-0", NEW) == NEW
    assert partition_metadata.read(tmp_path / "t-0") == NEW
    directory.topic_ids.note(KEY, OLD)
    partition_metadata.write(tmp_path / "t-0", OLD)
    assert directory.topic_id(KEY, tmp_path / "t-0", NEW) == OLD, "it is of an earlier topic of that name"
