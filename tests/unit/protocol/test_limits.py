"""How many elements and tagged fields a message may announce: Apache Kafka 4.4's limits, in every message and version.

What is over them is refused before anything is allocated for it, whatever else is wrong with the message.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from announced import Path, announcing, arrays, sections

from pybroker.protocol import definitions
from pybroker.protocol import messages as m
from pybroker.protocol.definitions import MessageDef
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.loader import message_class
from pybroker.protocol.runtime import MAX_ARRAY_COUNT, MAX_TAGGED_FIELD_COUNT, uvarint

Places = Callable[[MessageDef, int], Iterator[Path]]


def every(places: Places, name: str) -> Iterator[tuple[int, Path]]:
    message = definitions.message(name)
    for version in range(message.versions.lowest, message.versions.highest + 1):
        for path in places(message, version):
            yield version, path


def names_with(places: Places) -> list[str]:
    return [name for name in definitions.names() if next(every(places, name), None) is not None]


def refusal(name: str, version: int, path: Path, count: int) -> str:
    body = announcing(name, version, path, count).body
    with pytest.raises(ProtocolError) as raised:
        message_class(name).decode(version, body)
    return str(raised.value)


@pytest.mark.parametrize("name", names_with(arrays))
def test_no_array_of_any_message_has_more_than_a_million_elements(name: str) -> None:
    for version, path in every(arrays, name):
        assert "1000001 elements" in refusal(name, version, path, MAX_ARRAY_COUNT + 1), (version, path)
        # As many as may be: then it is the message that ends too soon.
        assert "elements" not in refusal(name, version, path, MAX_ARRAY_COUNT), (version, path)


@pytest.mark.parametrize("name", names_with(sections))
def test_no_section_of_any_message_has_more_than_ten_thousand_tagged_fields(name: str) -> None:
    for version, path in every(sections, name):
        assert "10001 tagged fields" in refusal(name, version, path, MAX_TAGGED_FIELD_COUNT + 1), (version, path)
        assert "10000 tagged" not in refusal(name, version, path, MAX_TAGGED_FIELD_COUNT), (version, path)


def test_what_is_over_the_limit_costs_nothing_though_all_of_it_is_there() -> None:
    body = (MAX_ARRAY_COUNT + 1).to_bytes(4, "big") + b"\0\1t" * (MAX_ARRAY_COUNT + 1)
    m.MetadataRequest.decode(4, m.MetadataRequest(topics=[]).encode(4))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="Topics: an array of 1000001 elements"):
            m.MetadataRequest.decode(4, body)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_as_many_elements_and_tagged_fields_as_may_be_are_decoded() -> None:
    indexes = list(range(MAX_ARRAY_COUNT))
    asked = m.OffsetFetchRequest(
        group_id="g",
        topics=[m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=indexes)],
    )
    decoded, _ = m.OffsetFetchRequest.decode(5, asked.encode(5))
    assert decoded.topics is not None and decoded.topics[0].partition_indexes == indexes

    fields = b"".join(uvarint(number) + b"\0" for number in range(1, MAX_TAGGED_FIELD_COUNT + 1))
    body = m.ApiVersionsRequest(client_software_name="c", client_software_version="1").encode(3)[:-1]
    whole = body + uvarint(MAX_TAGGED_FIELD_COUNT) + fields
    assert m.ApiVersionsRequest.decode(3, whole)[1] == len(whole)
