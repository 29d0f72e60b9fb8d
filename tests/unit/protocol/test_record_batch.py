"""Record batches in Python against batches that Apache Kafka 4.3.0 wrote, and against broken ones."""

from __future__ import annotations

import functools
import struct
import zlib
from typing import Any

import pytest

from pybroker.protocol import record_batch
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.record_batch import Record, RecordBatch

TABLE = []
for index in range(256):
    remainder = index
    for _ in range(8):
        remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    TABLE.append(remainder)


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


build = functools.partial(record_batch.build, checksum=crc32c)
PAYLOAD = "26000000026b0a76616c75650402680278026e011200e8070201047632001200900304046b330100"
PLAIN = bytes.fromhex(
    "0000000000000064000000590000000602e1d3634c0000000000020000018bcfe568000000018bcfe569f4ffffffffffffffffffff"
    "ffffffff00000003" + PAYLOAD
)
TRANSACTIONAL = bytes.fromhex(
    "000000000000006400000059000000060235ce55870010000000020000018bcfe568000000018bcfe569f4000000000000004d0003"
    "0000000900000003" + PAYLOAD
)
LOG_APPEND_TIME = bytes.fromhex(
    "00000000000000640000005900000006027eb54a890008000000020000018bcfe568000000000000001388ffffffffffffffffffff"
    "ffffffff00000003" + PAYLOAD
)
GZIP = bytes.fromhex(
    "00000000000000640000006d0000000602fb70e0090001000000020000018bcfe568000000018bcfe569f4ffffffffffffffffffff"
    "ffffffff000000031f8b08000000000000ff5363606060cae62a4bcc294d6561ca60aa60ca63146278c1cec4c85266c420c4308199"
    "8525db98910100f5c59dc528000000"
)
START_MS = 1700000000000
RECORDS = [
    Record(b"k", b"value", (("h", b"x"), ("n", None)), START_MS, 100),
    Record(None, b"v2", (), START_MS + 500, 101),
    Record(b"k3", None, (), START_MS + 200, 102),
]


def gunzip(codec_id: int, data: bytes, max_bytes: int) -> bytes:
    assert codec_id == 1
    return zlib.decompressobj(31).decompress(data, max_bytes)


def parse(data: bytes, **options: Any) -> list[RecordBatch]:
    return list(record_batch.parse(data, checksum=crc32c, decompressor=gunzip, **options))


def test_batches_of_kafkas_are_read() -> None:
    plain, transactional, stamped, compressed = parse(PLAIN + TRANSACTIONAL + LOG_APPEND_TIME + GZIP)
    for batch in (plain, transactional, compressed):
        assert batch.records == RECORDS
        assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (100, 102, 6)
        assert batch.max_timestamp_ms == START_MS + 500
    assert (plain.position, transactional.position, plain.size_bytes) == (0, len(PLAIN), len(PLAIN))
    assert (plain.is_transactional, plain.is_control, plain.producer_id) == (False, False, -1)
    assert transactional.is_transactional
    assert (transactional.producer_id, transactional.producer_epoch, transactional.base_sequence) == (77, 3, 9)
    assert [record.timestamp_ms for record in stamped.records] == [5000] * 3


def test_batches_are_built_as_kafka_builds_them() -> None:
    assert build(100, 6, RECORDS, timestamp_ms=START_MS) == PLAIN
    producer = {"producer_id": 77, "producer_epoch": 3, "base_sequence": 9}
    assert build(100, 6, RECORDS, timestamp_ms=START_MS, transactional=True, **producer) == TRANSACTIONAL


def test_plain_records_are_built_alike() -> None:
    pairs: list[tuple[bytes, bytes | None]] = [(b"k", b"v"), (b"", b""), (b"gone", None)]
    pairs += [(bytes(length), bytes(2 * length)) for length in (63, 64, 8191, 8192)] + [
        (b"%d" % n, b"") for n in range(70)
    ]
    for records in (pairs, pairs[:1], pairs[2:3]):
        expected = build(0, 9, [Record(*record) for record in records], timestamp_ms=START_MS)
        assert record_batch.build_plain(9, records, timestamp_ms=START_MS, checksum=crc32c) == expected
        assert record_batch.build_plain(9, iter(records), timestamp_ms=START_MS) == expected
    with pytest.raises(ProtocolError):
        record_batch.build_plain(0, [], timestamp_ms=0)
    with pytest.raises(ProtocolError):
        record_batch.build_plain(1 << 31, pairs, timestamp_ms=0)


def test_the_extensions_checksum_and_codecs_are_the_default() -> None:
    plain, compressed = record_batch.parse(PLAIN + GZIP)
    assert plain.records == compressed.records == RECORDS
    assert record_batch.build(100, 6, RECORDS, timestamp_ms=START_MS) == PLAIN
    with pytest.raises(ProtocolError, match="more than 10 bytes"):
        list(record_batch.parse(GZIP, max_decompressed_bytes=10))
    for position, replacement in ((63, 0xFF), (22, 0x07)):  # garbage for gzip; a codec that does not exist
        data = bytearray(GZIP)
        data[position] = replacement
        with pytest.raises(ProtocolError):
            list(record_batch.parse(sealed(data)))


def test_control_batches_and_default_timestamps() -> None:
    (batch,) = parse(build(5, 2, [Record(b"\0\0\0\2", b"x" * 300)], timestamp_ms=77, control=True))
    assert batch.is_control
    assert batch.records == [Record(b"\0\0\0\2", b"x" * 300, (), 77, 5)]


def test_an_incomplete_batch_ends_the_iteration() -> None:
    for length in range(len(PLAIN)):
        assert len(parse(PLAIN + PLAIN[:length])) == 1
    assert parse(b"") == []


def test_nothing_and_nonsense_cannot_be_built() -> None:
    with pytest.raises(ProtocolError):
        build(0, 0, [], timestamp_ms=0)
    with pytest.raises(ProtocolError):
        build(1 << 63, 0, [Record()], timestamp_ms=0)


def sealed(data: bytearray) -> bytes:
    """The batch with the CRC that its bytes now have."""
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


@pytest.mark.parametrize(
    ("position", "replacement", "text"),
    [
        (8, b"\0\0\0\x10", "claims 16 bytes"),
        (8, b"\xff\xff\xff\xff", "claims -1 bytes"),
        (16, b"\1", "magic 1"),
        (57, b"\0\0\0\4", "claims 4 records"),
        (57, b"\xff\xff\xff\xff", "claims -1 records"),
        (57, b"\x7f\xff\xff\xff", "claims 2147483647 records"),
        (57, b"\0\0\0\2", "left over"),
        (61, b"\x7e", "claims 63 bytes"),
        (61, b"\x24", "beyond|left over|header|malformed"),
        (61, b"\x01", "claims -1 bytes"),
        (65, b"\x03", "field of -2 bytes"),
        (65, b"\x7e", "field of 63 bytes"),
        (73, b"\x7e", "63 headers"),
        (75, b"\xff", "malformed|varint|beyond"),
    ],
)
def test_broken_batches(position: int, replacement: bytes, text: str) -> None:
    data = bytearray(PLAIN)
    data[position : position + len(replacement)] = replacement
    with pytest.raises(ProtocolError, match=text):
        parse(sealed(data))


def test_every_flipped_bit_fails_the_crc_or_the_frame() -> None:
    for position in range(21, len(PLAIN)):
        data = bytearray(PLAIN)
        data[position] ^= 0x10
        with pytest.raises(ProtocolError, match="wrong CRC"):
            parse(bytes(data))


def test_batches_before_a_broken_one_are_given_out() -> None:
    found = record_batch.parse(PLAIN + PLAIN[:-1] + b"\xff", checksum=crc32c)
    assert next(found).records == RECORDS
    with pytest.raises(ProtocolError, match="wrong CRC"):
        next(found)
