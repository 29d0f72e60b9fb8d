"""Kafka's text form of uuids."""

from __future__ import annotations

import pytest

from pybroker.protocol import uuids


def test_text_form() -> None:
    assert uuids.uuid_to_text(uuids.ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuids.uuid_to_text(uuids.METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuids.uuid_from_text("-_-_-_-_-_-_-_-_-_-_-w") == bytes.fromhex("fbffbffbffbffbffbffbffbffbffbffb")


def test_random_uuids_round_trip() -> None:
    seen = {uuids.random_uuid() for _ in range(2000)}
    assert len(seen) == 2000
    for value in seen:
        text = uuids.uuid_to_text(value)
        assert uuids.uuid_from_text(text) == value
        assert not text.startswith("-")
        assert value[6] >> 4 == 4


@pytest.mark.parametrize(
    "text", ["", "abc", "A" * 21, "A" * 23, "A" * 20 + "+/", "A" * 20 + "==", "é" * 22, "A" * 20 + "A\n"]
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="uuid"):
        uuids.uuid_from_text(text)


def test_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        uuids.uuid_to_text(b"short")


def test_directory_ids_with_a_meaning_are_kafkas() -> None:
    ids = (uuids.MIGRATING_DIR, uuids.UNASSIGNED_DIR, uuids.LOST_DIR)  # as org.apache.kafka.common.DirectoryId has them
    assert [int.from_bytes(each, "big") for each in ids] == [0, 1, 2]
