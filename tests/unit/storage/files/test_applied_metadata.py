"""How far metadata were applied in a log dir, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.protocol.uuids import random_uuid
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.errors import StorageError
from pybroker.storage.files.applied_metadata import FILE_NAME, AppliedMetadata, recorded_identity
from pybroker.storage.files.meta_properties import MetaProperties

APPLIED = AppliedMetadata("c", 100, 7)


def test_it_comes_back_with_the_identity_of_the_dir(tmp_path: Path) -> None:
    assert AppliedMetadata.read(tmp_path) is None
    assert recorded_identity(tmp_path) is None
    properties = MetaProperties(3, "c", random_uuid())
    properties.write(tmp_path)
    APPLIED.write(tmp_path)
    assert AppliedMetadata.read(tmp_path) == APPLIED
    assert recorded_identity(tmp_path) == properties


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """One in an offset would make a metadata log look cut that is whole."""
    MetaProperties(3, "c", random_uuid()).write(tmp_path)
    APPLIED.write(tmp_path)
    path = tmp_path / FILE_NAME
    content = path.read_bytes()
    for position in range(len(content) - 1):
        for bit in range(8):
            path.write_bytes(content[:position] + bytes([content[position] ^ 1 << bit]) + content[position + 1 :])
            try:
                assert AppliedMetadata.read(tmp_path) == APPLIED
            except StorageError as error:
                assert str(path) in str(error)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "7", '{"version": 1, "crc": 0}', "\0" * 60])
def test_what_makes_no_sense_is_damage(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    with pytest.raises(StorageError, match="is damaged"):
        AppliedMetadata.read(tmp_path)


@pytest.mark.parametrize(
    ("cluster_id", "end_offset", "epoch", "is_reached"),
    [("c", 100, 7, True), ("c", 101, 8, True), ("c", 99, 8, False), ("c", 200, 6, False), ("d", 200, 8, False)],
)
def test_nothing_is_set_aside_before_it_is_reached(
    tmp_path: Path, cluster_id: str, end_offset: int, epoch: int, is_reached: bool
) -> None:
    APPLIED.write(tmp_path)
    directory = LogDirectory(tmp_path, bytes(16))
    directory.load()
    image = AppliedMetadata(cluster_id, end_offset, epoch)
    assert directory.may_set_aside(image) is is_reached
    directory.note_applied(image)
    assert AppliedMetadata.read(tmp_path) == (image if is_reached else APPLIED)
    assert not is_reached or directory.may_set_aside(image)
