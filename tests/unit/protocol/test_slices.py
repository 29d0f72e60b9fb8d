"""Codecs in slices: the bytes and messages of the straight ones, and never much between two interruptions."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from announced import announcing, arrays

from pybroker.protocol import definitions
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.loader import message_class
from pybroker.protocol.runtime import LONG_BYTES, MAX_ARRAY_COUNT, Message
from tests.harness.random_messages import RandomMessages

NAMES = [name for name in definitions.names() if definitions.message(name).versions]


def run(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """A generator's result, and how often it could have been interrupted."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, count
        count += 1


@pytest.mark.parametrize("name", NAMES)
def test_every_message_is_read_and_written_in_slices_as_in_one_go(name: str) -> None:
    versions = definitions.message(name).versions
    for version in range(versions.lowest, versions.highest + 1):
        message = RandomMessages(version).message(name, version)
        body = message.encode(version)
        assert b"".join(message.encode_in_slices(version)) == body
        for buffer in (body, memoryview(bytearray(body))):
            (decoded, end), _ = run(message_class(name).decode_in_slices(version, buffer))
            assert (decoded, end) == (message, len(body))
            assert repr(decoded) == repr(message), "no part of the buffer itself"
        for path in arrays(definitions.message(name), version):
            with pytest.raises(ProtocolError, match="1000001 elements"):
                run(message_class(name).decode_in_slices(version, announcing(name, version, path, 1_000_001).body))


_LISTED = m.ListOffsetsRequest.ListOffsetsTopic
_PARTITION = m.ListOffsetsRequest.ListOffsetsPartition
_MEMBER = m.LeaveGroupRequest.MemberIdentity


def _million(kind: str) -> tuple[Message, int]:
    """A message with 100,000 elements of a kind, and a version to write it in."""
    many = range(100_000)
    if kind == "structs":
        topics = [m.MetadataRequest.MetadataRequestTopic(name="t") for _ in many]
        return m.MetadataRequest(topics=topics), 4
    if kind == "structs in structs":
        partitions = [_PARTITION(partition_index=index) for index in range(10)]
        return m.ListOffsetsRequest(topics=[_LISTED(name="t", partitions=partitions) for _ in range(10_000)]), 7
    if kind == "one struct's structs":
        return m.ListOffsetsRequest(
            topics=[_LISTED(name="t", partitions=[_PARTITION(partition_index=i) for i in many])]
        ), 1
    if kind == "strings":
        return m.DescribeGroupsRequest(groups=["g"] * len(many)), 5
    if kind == "integers":
        topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=list(many))
        return m.OffsetFetchRequest(group_id="g", topics=[topic]), 7
    assert kind == "uuids"
    return m.BrokerHeartbeatRequest(offline_log_dirs=[bytes(16)] * len(many)), 1


KINDS = ["structs", "structs in structs", "one struct's structs", "strings", "integers", "uuids"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_message_can_be_interrupted_all_along(kind: str) -> None:
    message, version = _million(kind)
    pieces = list(message.encode_in_slices(version))
    body = message.encode(version)
    assert b"".join(pieces) == body
    # A hundredth of the elements at most lies between two interruptions.
    assert len(pieces) >= 100
    (decoded, _), count = run(type(message).decode_in_slices(version, body))
    assert count >= 100
    assert decoded == message
    if kind != "uuids":
        assert max(map(len, pieces)) <= len(body) / 50


@pytest.mark.parametrize("size", [LONG_BYTES, LONG_BYTES + 1, 10 * LONG_BYTES, 10 * LONG_BYTES + 7])
def test_long_bytes_are_copied_in_slices(size: int) -> None:
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=content)
    message = m.JoinGroupRequest(group_id="g", protocol_type="consumer", protocols=[protocol, protocol])
    body = message.encode(9)
    pieces = list(message.encode_in_slices(9))
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) <= 3 * LONG_BYTES
    for buffer in (body, bytearray(body), memoryview(body)):
        (decoded, end), count = run(m.JoinGroupRequest.decode_in_slices(9, buffer))
        assert (decoded, end) == (message, len(body))
        assert type(decoded.protocols[0].metadata) is bytes
        assert hash(decoded.protocols[1].metadata) == hash(content)
        assert count >= 2 * (size // LONG_BYTES) - 2


def test_tagged_fields_count_as_work() -> None:
    body = m.LeaveGroupRequest(group_id="g", members=[_MEMBER(member_id="m", reason="r")] * 200).encode(5)
    plain, before = run(m.LeaveGroupRequest.decode_in_slices(5, body))
    member = m.LeaveGroupRequest(group_id="g", members=[_MEMBER(member_id="m", reason="r")]).encode(5)[3:-1]
    fields = bytes((100,)) + b"".join(bytes((number, 8)) + bytes(8) for number in range(1, 101))
    tagged = body.replace(member, member[:-1] + fields)
    (decoded, end), count = run(m.LeaveGroupRequest.decode_in_slices(5, tagged))
    assert end == len(tagged) > 200 * 1000 and decoded == plain[0]
    assert count > 50 * max(before, 1)


def test_what_is_malformed_or_cannot_be_written_is_said_alike() -> None:
    assert MAX_ARRAY_COUNT == 1_000_000
    with pytest.raises(ProtocolError, match="goes beyond"):
        run(m.HeartbeatRequest.decode_in_slices(4, b"\x05g"))
    with pytest.raises(ProtocolError, match="malformed"):
        run(m.HeartbeatRequest.decode_in_slices(4, b"\x02\xff\0\0\0\0\x01\0\0"))
    with pytest.raises(ProtocolError):
        list(m.HeartbeatRequest(group_id=None).encode_in_slices(4))  # type: ignore[arg-type]  # not allowed
    with pytest.raises(ProtocolError, match="unknown"):
        run(m.HeartbeatRequest.decode_in_slices(99, b""))
