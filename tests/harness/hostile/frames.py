"""The bytes of attacks: every API and version that a broker serves, in shapes that no honest client sends.

Pure, and the same for the same seed. Nothing here changes what a bystander relies on: topics are only validated and
not created, and broker ids are of nobody.
"""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import lz4.frame
import snappy
import zstandard

from pybroker.protocol import definitions, record_batch
from pybroker.protocol import messages as m
from pybroker.protocol.definitions import FieldDef
from pybroker.protocol.loader import request_class, request_header_version
from pybroker.protocol.record_batch import Record
from tests.harness.random_messages import RandomMessages, random_scalar

PRODUCE_KEY = 0
#: Bombs are produced to this topic, which has one partition.
BOMB_TOPIC = "bombed"
_LENGTH = struct.Struct(">i")
_LONGEST_STRING = 32_767
_SMALL_BYTES, _LARGE_BYTES = 256 << 10, 8 << 20
_MOST_ELEMENTS = 1_000_000
_BOMB_BYTES = 130 << 20
_CODECS = (1, 2, 3, 4)
_PIPELINED = 30
#: Where a batch's length and attributes end.
_LENGTH_END, _ATTRIBUTES_END = 12, 23

#: Values that keep an attack from being an administrator's order, by field.
_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "acks": (-1, 1, 7),
    "allow_auto_topic_creation": (False,),
    "broker_id": (1_000, 1 << 30),
    "count": (-1, 0, 3),
    "max_wait_ms": (0, 100),
    "num_partitions": (-1, 0, 3),
    "rebalance_timeout_ms": (-1, 0, 1_000),
    "session_timeout_ms": (-1, 0, 6_000),
    "timeout_ms": (-1, 0, 500),
    "validate_only": (True,),
}


@dataclass(frozen=True)
class Attack:
    """One connection's traffic: pieces, each with a pause in seconds before it. Unless it `reads`, answers pile up."""

    name: str
    pieces: tuple[tuple[float, bytes], ...]
    answers: int = 1
    reads: bool = True


def _scalar(source: random.Random, field: FieldDef) -> Any:
    choices = _HARMLESS.get(field.attribute)
    return random_scalar(source, field) if choices is None else source.choice(choices)


def _long_scalar(source: random.Random, field: FieldDef) -> Any:
    if field.type == "string" and field.attribute not in _HARMLESS:
        return source.choice(("x", "\u00e4", "\0")) * (_LONGEST_STRING // 2)
    if field.type in ("bytes", "records"):
        return bytes(1 << 20)
    return _scalar(source, field)


def framed(api_key: int, version: int, body: bytes, client_id: str = "hostile") -> bytes:
    """A whole request with its length before it."""
    header = m.RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=1, client_id=client_id
    ).encode(request_header_version(api_key, version))
    return _LENGTH.pack(len(header) + len(body)) + header + body


def _message_bytes(seed: int, api_key: int, version: int, choose: Callable[[random.Random, FieldDef], Any]) -> bytes:
    return RandomMessages(seed, choose).message(request_class(api_key).__name__, version).encode(version)


def _one_each(seed: int, api_key: int, version: int, count: int) -> bytes:
    """A message whose outermost arrays have `count` elements each, all alike and small."""
    name = request_class(api_key).__name__
    made: Any = RandomMessages(seed, _scalar).message(name, version)
    fields = [f for f in definitions.message(name).body.fields if version in f.versions and f.is_array]
    for field in fields:
        if field.struct is None:
            element: Any = {"string": "n", "uuid": bytes(16), "bytes": b""}.get(field.type, 1)
        else:
            element = getattr(request_class(api_key), field.struct.name)()
        setattr(made, field.attribute, [element] * count)
    encoded: bytes = made.encode(version)
    return encoded


def _wide_body(seed: int, api_key: int, version: int, wanted_bytes: int) -> bytes:
    """About `wanted_bytes` of array elements, within the limit of elements; small where the API has no array."""
    one, two = (_one_each(seed, api_key, version, count) for count in (1, 2))
    if len(two) <= len(one):
        return one
    count = min(wanted_bytes // (len(two) - len(one)), _MOST_ELEMENTS)
    return _one_each(seed, api_key, version, max(count, 1))


def _ordinary(source: random.Random, key: int, version: int, _: int) -> Attack:
    return Attack(
        "ordinary", ((0, framed(key, version, _message_bytes(source.randrange(1 << 30), key, version, _scalar))),)
    )


def _wide(source: random.Random, key: int, version: int, wanted_bytes: int) -> Attack:
    body = _wide_body(source.randrange(1 << 30), key, version, wanted_bytes)
    return Attack("wide", ((0, framed(key, version, body)),))


def _long(source: random.Random, key: int, version: int, _: int) -> Attack:
    body = _message_bytes(source.randrange(1 << 30), key, version, _long_scalar)
    return Attack("long", ((0, framed(key, version, body, "c" * _LONGEST_STRING)),))


def _absurd_lengths(source: random.Random, key: int, version: int, _: int) -> Attack:
    """Random places of a request hold the largest numbers there are."""
    body = bytearray(_wide_body(source.randrange(1 << 30), key, version, 1_000))
    for _ in range(3):
        if len(body) > 5:
            position = source.randrange(len(body) - 5)
            body[position : position + 5] = source.choice((b"\x7f\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f", bytes(5)))
    return Attack("absurd lengths", ((0, framed(key, version, bytes(body))),))


def _cut(source: random.Random, key: int, version: int, _: int) -> Attack:
    """A body that ends too early, and the next request inside what the frame announced."""
    whole = framed(key, version, _message_bytes(source.randrange(1 << 30), key, version, _scalar))
    body = whole[4 : max(len(whole) - source.randrange(1, 8), 5)]
    return Attack("cut", ((0, _LENGTH.pack(len(body)) + body + whole),))


def _slow(source: random.Random, key: int, version: int, _: int) -> Attack:
    """A request in pieces, each after a pause."""
    whole = framed(key, version, _wide_body(source.randrange(1 << 30), key, version, 20_000))
    edges = sorted(source.randrange(1, len(whole)) for _ in range(4))
    parts = [whole[a:b] for a, b in zip([0, *edges], [*edges, len(whole)], strict=True)]
    return Attack("slow", tuple((0.2, part) for part in parts))


def _unread(source: random.Random, key: int, version: int, _: int) -> Attack:
    """Many requests at once, whose answers are not read."""
    whole = framed(key, version, _wide_body(source.randrange(1 << 30), key, version, 10_000))
    return Attack("unread", ((0, whole * _PIPELINED),), answers=_PIPELINED, reads=False)


SHAPES: tuple[Callable[[random.Random, int, int, int], Attack], ...] = (
    _ordinary,
    _wide,
    _long,
    _absurd_lengths,
    _cut,
    _slow,
    _unread,
)


def _compressed(codec: int, data: bytes) -> bytes:
    """`data` in a codec of Kafka's, by its number."""
    if codec == 1:
        return gzip.compress(data)
    if codec == 2:
        return bytes(snappy.compress(data))
    if codec == 3:
        return bytes(lz4.frame.compress(data))
    return bytes(zstandard.compress(data))


def bomb_batch(codec: int, unpacked_bytes: int = _BOMB_BYTES) -> bytes:
    """A valid batch of 100 records that unpacks to 130 MiB of zeros, or to so many bytes."""
    plain = record_batch.build(0, 0, [Record(value=bytes(unpacked_bytes // 100))] * 100, timestamp_ms=0)
    payload = _compressed(codec, plain[record_batch.HEADER_BYTES :])
    body = struct.pack(">h", codec) + plain[_ATTRIBUTES_END : record_batch.HEADER_BYTES] + payload
    length = record_batch.HEADER_BYTES - _LENGTH_END + len(payload)
    return struct.pack(">qiibI", 0, length, 0, record_batch.MAGIC, record_batch.crc32c(body)) + body


def bomb(version: int, codec: int) -> Attack:
    """A Produce whose batch is small and unpacks to 130 MiB."""
    partition = m.ProduceRequest.PartitionProduceData(index=0, records=bomb_batch(codec))
    topic = m.ProduceRequest.TopicProduceData(name=BOMB_TOPIC, partition_data=[partition])
    request = m.ProduceRequest(acks=1, timeout_ms=500, topic_data=[topic])
    return Attack("bomb", ((0, framed(PRODUCE_KEY, version, request.encode(version))),))


#: An attack that is not made yet, with what it is called.
Planned = tuple[str, Callable[[], Attack]]


def sweep(served: Mapping[int, tuple[int, int]], seed: int) -> list[Planned]:
    """Every shape of every API and version in `served` (key to oldest and newest), and bombs, shuffled by the seed."""
    planned: list[Planned] = []
    for key, (oldest, newest) in sorted(served.items()):
        # Produce is told from version 0 on, for older clients, and served from version 3 on.
        for version in range(max(oldest, request_class(key).MIN_VERSION), newest + 1):
            wanted_bytes = _LARGE_BYTES if version in (oldest, newest) else _SMALL_BYTES
            for number, shape in enumerate(SHAPES):
                own_seed = f"{seed}/{key}/{version}/{number}"

                def make(
                    shape: Any = shape,
                    own_seed: str = own_seed,
                    key: int = key,
                    version: int = version,
                    size: int = wanted_bytes,
                ) -> Attack:
                    made: Attack = shape(random.Random(own_seed), key, version, size)
                    return made

                planned.append((f"{request_class(key).__name__} {version} {shape.__name__.strip('_')}", make))
    planned += [(f"bomb of codec {codec}", partial(bomb, served[PRODUCE_KEY][1], codec)) for codec in _CODECS]
    random.Random(seed).shuffle(planned)
    return planned
