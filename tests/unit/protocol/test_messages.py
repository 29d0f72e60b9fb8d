"""Messages in Python: constructors, golden bytes, round trips over every version, and what malformed input gives."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Iterator
from typing import Any

import pytest

from pybroker.protocol import definitions
from pybroker.protocol import messages as m
from pybroker.protocol.definitions import StructDef
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.runtime import MAX_STRING_BYTES
from pybroker.protocol.uuids import ZERO_UUID
from tests.harness.random_messages import RandomMessages

ROUNDS = int(os.environ.get("PYBROKER_CODEC_ROUNDS", "5"))
TOPIC_ID = bytes(range(16))


def test_constructor_takes_keywords_and_has_kafkas_defaults() -> None:
    request = m.FetchRequest()
    assert request.max_bytes == 0x7FFFFFFF
    assert request.replica_state == m.FetchRequest.ReplicaState(replica_id=-1, replica_epoch=-1)
    assert request.cluster_id is None
    assert m.PartitionChangeRecord().isr is None
    assert m.PartitionChangeRecord().leader == -2
    with pytest.raises(TypeError):
        m.FetchRequest(1)  # type: ignore[misc]  # positional on purpose
    with pytest.raises(AttributeError):
        request.topicz = []  # type: ignore[attr-defined]  # a misspelt field must not pass


def test_defaults_are_not_shared() -> None:
    first, second = m.MetadataResponse(), m.MetadataResponse()
    first.topics.append(m.MetadataResponse.MetadataResponseTopic(name="a"))
    assert second.topics == []
    assert first != second
    assert m.FetchRequest().replica_state is not m.FetchRequest().replica_state


def test_class_constants() -> None:
    produce = m.ProduceRequest
    assert (produce.API_KEY, produce.MIN_VERSION, produce.MAX_VERSION, produce.FLEXIBLE_MIN_VERSION) == (0, 3, 13, 9)
    assert m.SaslHandshakeRequest.FLEXIBLE_MIN_VERSION is None
    assert m.LeaderChangeMessage.API_KEY is None


def test_repr_equality_and_pickling() -> None:
    message = m.HeartbeatRequest(group_id="g", member_id="m", generation_id=3)
    assert repr(message) == "HeartbeatRequest(group_id='g', generation_id=3, member_id='m', group_instance_id=None)"
    assert message == m.HeartbeatRequest(group_id="g", member_id="m", generation_id=3)
    assert message != m.HeartbeatRequest(group_id="g", member_id="m", generation_id=4)
    assert message != m.HeartbeatResponse()
    topic = m.MetadataResponse.MetadataResponseTopic(name="t")
    assert pickle.loads(pickle.dumps([message, topic])) == [message, topic]


GOLDEN = [
    (m.HeartbeatRequest(group_id="g", generation_id=3, member_id="m"), 0, "0001 67 00000003 0001 6d"),
    (m.HeartbeatRequest(group_id="g", generation_id=3, member_id="m"), 4, "02 67 00000003 02 6d 00 00"),
    (m.MetadataRequest(topics=None), 1, "ffffffff"),
    (m.DeleteGroupsRequest(groups_names=["", ""]), 0, "00000002 0000 0000"),
    (m.DeleteGroupsRequest(groups_names=["", ""]), 2, "03 01 01 00"),
    (m.MetadataRequest(topics=None, allow_auto_topic_creation=False), 12, "00 00 00 00"),
    (
        m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="ab")]),
        12,
        "02 00000000000000000000000000000000 03 6162 00 01 00 00",
    ),
    (
        m.RequestHeader(request_api_key=18, request_api_version=3, correlation_id=7, client_id="c"),
        2,
        "0012 0003 00000007 0001 63 00",
    ),
    (m.FeatureLevelRecord(name="metadata.version", feature_level=30), 0, "11 6d657461646174612e76657273696f6e 001e 00"),
    (
        m.PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[2], leader=2),
        0,
        "00000001 000102030405060708090a0b0c0d0e0f 02 00 05 02 00000002 01 04 00000002",
    ),
    (
        m.OffsetCommitValue(offset=5, metadata="x", commit_timestamp=9),
        3,
        "0000000000000005 ffffffff 0001 78 0000000000000009",
    ),
    (m.ConsumerGroupMemberMetadataValue(classic_member_metadata=None), 0, "01 01 01 01 01 01 ffffffff 01 01 00 01 00"),
]


@pytest.mark.parametrize(("message", "version", "text"), GOLDEN, ids=lambda item: type(item).__name__)
def test_golden_bytes(message: m.Message, version: int, text: str) -> None:
    body = bytes.fromhex(text)
    assert message.encode(version) == body
    assert type(message).decode(version, body) == (message, len(body))


@pytest.mark.parametrize("name", [head.name for head in definitions.heads() if head.versions])
def test_every_version_round_trips(name: str) -> None:
    cls = m.message_class(name)
    for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1):
        for seed in range(ROUNDS):
            message = RandomMessages(seed).message(name, version)
            body = message.encode(version)
            assert cls.decode(version, body) == (message, len(body))
            padded = memoryview(b"\xff" * 3 + body + b"\xff" * 5)
            assert cls.decode(version, padded, 3) == (message, len(body) + 3)
            assert cls.decode(version, bytes(padded), 3) == (message, len(body) + 3)


@pytest.mark.parametrize("name", ["ProduceRequest", "MetadataResponse", "OffsetCommitRequest", "JoinGroupResponse"])
def test_every_cut_is_malformed(name: str) -> None:
    cls = m.message_class(name)
    for version in (cls.MIN_VERSION, cls.MAX_VERSION):
        body = RandomMessages(5).message(name, version).encode(version)
        for length in range(len(body)):
            with pytest.raises(ProtocolError):
                cls.decode(version, body[:length])


def test_garbage_gives_a_message_or_a_protocol_error() -> None:
    source = random.Random(11)
    heads = [head for head in definitions.heads() if head.kind == "request" and head.versions]
    outcomes = {True: 0, False: 0}
    for round_number in range(3000):
        head = source.choice(heads)
        version = source.randint(head.versions.lowest, head.versions.highest)
        body = bytearray(RandomMessages(round_number).message(head.name, version).encode(version))
        for _ in range(source.choice((1, 2, 5))):
            if body:
                body[source.randrange(len(body))] = source.choice((0, 0x7F, 0x80, 0xFF, source.randrange(256)))
        try:
            m.message_class(head.name).decode(version, bytes(body))
            outcomes[True] += 1
        except ProtocolError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 100


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (0, "7fffffff 0001 61"),  # two thousand million topics in three bytes
        (1, "fffffffe"),  # a count of -2
        (0, "ffffffff"),  # null where the version has none
        (0, "00000001 ffff"),  # a null name
        (0, "00000001 fffe"),  # a name of -2 bytes
        (0, "00000001 0002 c328"),  # no UTF-8
        (12, "ffffffff7f"),  # a varint beyond 32 bits
        (12, "808080808000"),  # a varint of six bytes
        (12, "01 01 00 01 05 09 00"),  # a tag of nine bytes, one is there
    ],
)
def test_malformed_bodies(version: int, text: str) -> None:
    with pytest.raises(ProtocolError):
        m.MetadataRequest.decode(version, bytes.fromhex(text))


def test_unknown_tagged_fields_are_skipped() -> None:
    body = bytes.fromhex("02 67 00000003 02 6d 00")
    unknown = bytes.fromhex("02 63 03 010203 e401 00")  # tag 99 with three bytes, tag 228 with none
    expected = m.HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    assert m.HeartbeatRequest.decode(4, body + unknown) == (expected, len(body + unknown))
    # Beside known ones: FetchRequest's cluster id (tag 0), then tag 99.
    fetch = m.FetchRequest(cluster_id="c").encode(17)
    assert fetch.endswith(b"\x01\x00\x02\x02c")
    more = fetch[:-5] + b"\x02" + fetch[-4:] + bytes.fromhex("63 02 abcd")
    assert m.FetchRequest.decode(17, more) == (m.FetchRequest(cluster_id="c"), len(more))


def test_a_known_tag_must_be_as_long_as_it_says() -> None:
    fetch = m.FetchRequest(cluster_id="c").encode(17)
    with pytest.raises(ProtocolError, match="ClusterId"):
        m.FetchRequest.decode(17, fetch[:-3] + b"\x03" + fetch[-2:] + b"\x00")


def test_a_value_the_version_lacks() -> None:
    with pytest.raises(ProtocolError, match="ReplicaState"):
        m.FetchRequest(replica_state=m.FetchRequest.ReplicaState(replica_id=1)).encode(14)
    with pytest.raises(ProtocolError, match="AllowAutoTopicCreation"):
        m.MetadataRequest(allow_auto_topic_creation=False).encode(3)
    assert m.FetchRequest(session_id=4).encode(6) == m.FetchRequest().encode(6)  # ignorable
    decoded, _ = m.FetchRequest.decode(4, m.FetchRequest().encode(4))
    assert (decoded.session_epoch, decoded.rack_id) == (-1, "")


@pytest.mark.parametrize(
    ("message", "version", "text"),
    [
        (m.HeartbeatRequest(), 99, "versions are 0 to 4"),
        (m.HeartbeatRequest(), -1, "versions are 0 to 4"),
        (m.HeartbeatRequest(group_id=None), 4, "encode"),  # type: ignore[arg-type]  # null on purpose
        (m.HeartbeatRequest(group_id=None), 0, "GroupId"),  # type: ignore[arg-type]  # null on purpose
        (m.HeartbeatRequest(group_id="x" * 32768), 4, "GroupId"),
        (m.HeartbeatRequest(group_id="x" * 32768), 0, "encoded"),
        (m.HeartbeatRequest(generation_id=1 << 31), 4, "encoded"),
        (m.TopicRecord(name="t", topic_id=b"short"), 0, "TopicId"),
        (m.MetadataRequest(topics=None), 0, "Topics"),
    ],
)
def test_values_that_cannot_be_encoded(message: m.Message, version: int, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        message.encode(version)


def with_error_text(definition: StructDef, owner: Any, kind: Any, version: int, text: str) -> Any | None:
    """A struct whose error texts, and those of structs in it, are `text`; None where it has no place for one."""
    values = {}
    for field in definition.fields:
        if version not in field.versions:
            continue
        if field.type == "string" and field.name.endswith("ErrorMessage"):
            values[field.attribute] = text
        elif field.struct is not None:
            inner = with_error_text(field.struct, owner, getattr(owner, field.struct.name), version, text)
            if inner is not None:
                values[field.attribute] = [inner] if field.is_array else inner
    return kind(**values) if values else None


def error_texts_of(definition: StructDef, struct: Any, version: int) -> Iterator[str]:
    for field in definition.fields:
        value = getattr(struct, field.attribute)
        if version not in field.versions or value is None:
            continue
        if field.type == "string" and field.name.endswith("ErrorMessage") and value:
            yield value
        elif field.struct is not None:
            for each in value if field.is_array else [value]:
                yield from error_texts_of(field.struct, each, version)


@pytest.mark.parametrize("character", ["x", "é", "€", "😀"])
def test_error_texts_of_every_response_are_cut_to_what_fits(character: str) -> None:
    """Whatever a text repeats: at every version of every response that has a place for one."""
    checked_count = 0
    text = "!" + character * 40_000
    for definition in definitions.all_messages():
        if definition.kind != "response" or not definition.versions:
            continue
        kind: Any = getattr(m, definition.name)
        for version in range(definition.versions.lowest, definition.versions.highest + 1):
            message = with_error_text(definition.body, kind, kind, version, text)
            if message is None:
                continue
            decoded, _ = kind.decode(version, message.encode(version))
            for found in error_texts_of(definition.body, decoded, version):
                assert text.startswith(found)
                assert MAX_STRING_BYTES - 4 < len(found.encode()) <= MAX_STRING_BYTES
                checked_count += 1
    assert checked_count > 100


def test_error_texts_that_fit_stay_and_what_is_no_text_is_written_all_the_same() -> None:
    for text, expected in (("", ""), ("a" * 32_767, "a" * 32_767), ("/data/\udcff", "/data/?"), (None, None)):
        message = m.AddRaftVoterResponse(error_message=text)
        decoded, _ = m.AddRaftVoterResponse.decode(0, message.encode(0))
        assert decoded.error_message == expected


def test_other_strings_are_not_cut() -> None:
    with pytest.raises(ProtocolError, match="32768 bytes"):
        m.DescribeGroupsRequest(groups=["x" * 32_768]).encode(5)


def test_lookups() -> None:
    assert m.request_class(3) is m.MetadataRequest
    assert m.response_class(3) is m.MetadataResponse
    assert m.request_header_version(3, 8) == 1
    assert m.request_header_version(3, 9) == 2
    assert m.response_header_version(3, 9) == 1
    assert m.response_header_version(18, 4) == 0
    assert m.apis()[1].listeners == ("broker", "controller")
    assert 4 not in m.apis()  # LeaderAndIsr is gone
    for unknown in (4, -1, 9999):
        with pytest.raises(ProtocolError):
            m.request_class(unknown)
    with pytest.raises(AttributeError):
        m.LeaderAndIsrRequest  # type: ignore[attr-defined]  # noqa: B018
    assert m.TopicRecord().topic_id == ZERO_UUID
