"""Record batches of magic 2, built and read in Python for logs of the control plane: metadata, snapshots, coordinators.

A batch is a 61-byte header, then records whose lengths and deltas are signed varints (zigzag). The CRC32C covers
everything from the attributes on. Pure; a checksum or a decompressor comes from the C extension unless one is passed
in. Records of clients do not come through here: the data plane validates and stores those.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pybroker.protocol.errors import ProtocolError
from pybroker.turns import run_at_once

MAGIC = 2
HEADER_BYTES = 61
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

# baseOffset, batchLength, partitionLeaderEpoch, magic, crc | attributes, lastOffsetDelta, baseTimestamp, maxTimestamp,
# producerId, producerEpoch, baseSequence, count
_HEAD = struct.Struct(">qiibI")
_BODY = struct.Struct(">hiqqqhii")
_LENGTH_END = 12
_CRC_START = _HEAD.size
_MIN_RECORD_BYTES = 7
_MAX_DECOMPRESSED_BYTES = 64 << 20
_KEPT_VARINTS = 4096
_RECORDS_PER_STEP = 32
_NO_RECORDS = "a batch needs at least one record"

Checksum = Callable[[bytes], int]
Decompress = Callable[[int, bytes, int], bytes]
Headers = tuple[tuple[str, bytes | None], ...]
KeyValue = tuple[bytes, bytes | None]


@dataclass(slots=True)
class Record:
    """One record. For `build`, `timestamp_ms` None means the batch's, and `offset` is not looked at: offsets follow
    each other.
    """

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    offset: int = -1


@dataclass(slots=True)
class RecordBatch:
    """One batch as read. `size_bytes` is what it takes in the log; `position` is where it began in the buffer."""

    base_offset: int
    partition_leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: list[Record]
    position: int
    size_bytes: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)


def crc32c(data: bytes) -> int:
    """CRC32C of `data`, by the C extension."""
    from pybroker import native

    return native.crc32c(data)


def decompress(codec_id: int, data: bytes, max_bytes: int) -> bytes:
    """The unpacked `data`, by the C extension; ProtocolError when it is corrupt or unpacks to more than `max_bytes`."""
    from pybroker import native

    try:
        return native.decompress(codec_id, data, max_bytes)
    except native.NativeError as error:
        raise ProtocolError(str(error)) from error


def _varint(value: int) -> bytes:
    """A zigzag varint of up to 64 bits."""
    value = (value << 1) ^ (value >> 63)
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Varints(dict[int, bytes]):
    """Varints that are made once: a batch is full of small lengths and deltas."""

    def __missing__(self, value: int) -> bytes:
        made = _varint(value)
        if 0 <= value < _KEPT_VARINTS:
            self[value] = made
        return made


_VARINTS = _Varints()


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """(value, next position) of a zigzag varint; IndexError when it is cut short."""
    byte = data[position]
    position += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 127
    for shift in range(7, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
    raise ProtocolError("a varint in a record is longer than 64 bits")


def _sized(data: bytes | None) -> bytes:
    return b"\x01" if data is None else _varint(len(data)) + data


def _record_bytes(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    parts = [b"\0", _varint(timestamp_delta), _varint(offset_delta), _sized(record.key), _sized(record.value)]
    parts.append(_varint(len(record.headers)))
    for name, value in record.headers:
        parts += (_sized(name.encode()), _sized(value))
    body = b"".join(parts)
    return _varint(len(body)) + body


def build(
    base_offset: int,
    leader_epoch: int,
    records: Sequence[Record],
    *,
    timestamp_ms: int,
    control: bool = False,
    transactional: bool = False,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    checksum: Checksum = crc32c,
) -> bytes:
    """One uncompressed batch. `timestamp_ms` is the base timestamp and that of records without their own.

    ProtocolError when there are no records or a value does not fit its field.
    """
    batch = Builder(base_offset, leader_epoch, timestamp_ms=timestamp_ms)
    for record in records:
        batch.add(record)
    attributes = (CONTROL_FLAG if control else 0) | (TRANSACTIONAL_FLAG if transactional else 0)
    return batch.finish(attributes, (producer_id, producer_epoch, base_sequence), checksum)


class Builder:
    """One uncompressed batch that is built record by record; see `build`."""

    def __init__(self, base_offset: int, leader_epoch: int, *, timestamp_ms: int) -> None:
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch
        self._timestamp_ms = timestamp_ms
        self._max_timestamp_ms: int | None = None
        self._parts: list[bytes] = []

    def add(self, record: Record) -> None:
        """Put a record behind the others."""
        own_ms = self._timestamp_ms if record.timestamp_ms is None else record.timestamp_ms
        if self._max_timestamp_ms is None or own_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = own_ms
        self._parts.append(_record_bytes(record, len(self._parts), own_ms - self._timestamp_ms))

    def finish(
        self,
        attributes: int = 0,
        producer: tuple[int, int, int] = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE),
        checksum: Checksum = crc32c,
    ) -> bytes:
        """The batch; `producer` has id, epoch and base sequence. ProtocolError as `build`."""
        if self._max_timestamp_ms is None:
            raise ProtocolError(_NO_RECORDS)
        count = len(self._parts)
        fields = (attributes, count - 1, self._timestamp_ms, self._max_timestamp_ms, *producer, count)
        return _framed(self._base_offset, self._leader_epoch, fields, b"".join(self._parts), checksum)


def build_plain(
    leader_epoch: int, records: Iterable[KeyValue], *, timestamp_ms: int, checksum: Checksum = crc32c
) -> bytes:
    """`build` at offset 0 for records, as (key, value), that have neither headers nor a timestamp of their own.

    It is what coordinators write all the time, hence without an object per record.
    """
    return run_at_once(build_plain_steps(leader_epoch, records, timestamp_ms=timestamp_ms, checksum=checksum))


def build_plain_steps(
    leader_epoch: int, records: Iterable[KeyValue], *, timestamp_ms: int, checksum: Checksum = crc32c
) -> Generator[None, None, bytes]:
    """As `build_plain`; yields now and then, where it may be interrupted."""
    varints = _VARINTS
    parts: list[bytes] = []
    count = 0
    for key, value in records:
        value_length, value = (b"\1", b"") if value is None else (varints[len(value)], value)
        # Attributes and timestamp delta, offset delta, key, value, no headers.
        body = b"".join((b"\0\0", varints[count], varints[len(key)], key, value_length, value, b"\0"))
        parts += (varints[len(body)], body)
        count += 1
        if count % _RECORDS_PER_STEP == 0:
            yield
    if not count:
        raise ProtocolError(_NO_RECORDS)
    producer = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    return _framed(
        0, leader_epoch, (0, count - 1, timestamp_ms, timestamp_ms, *producer, count), b"".join(parts), checksum
    )


def _framed(base_offset: int, leader_epoch: int, fields: tuple[int, ...], payload: bytes, checksum: Checksum) -> bytes:
    """The header, whose fields after the CRC are `fields`, in front of the records."""
    try:
        body = _BODY.pack(*fields) + payload
        batch_length = HEADER_BYTES - _LENGTH_END + len(payload)
        return _HEAD.pack(base_offset, batch_length, leader_epoch, MAGIC, checksum(body)) + body
    except struct.error as error:
        raise ProtocolError(f"a batch at offset {base_offset} cannot be written: {error}") from error


def _read_sized(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position)
    if length < 0:
        if length != -1:
            raise ProtocolError(f"a record has a field of {length} bytes")
        return None, position
    if length > end - position:
        raise ProtocolError(f"a record's field of {length} bytes goes beyond the record")
    return data[position : position + length], position + length


def _read_headers(data: bytes, position: int, end: int) -> tuple[Headers, int]:
    count, position = _read_varint(data, position)
    if count < 0 or count * 2 > end - position:
        raise ProtocolError(f"a record claims {count} headers")
    headers = []
    for _ in range(count):
        name, position = _read_sized(data, position, end)
        if name is None:
            raise ProtocolError("a record has a header without name")
        value, position = _read_sized(data, position, end)
        headers.append((name.decode(), value))
    return tuple(headers), position


def _read_record(data: bytes, position: int, base_offset: int, base_timestamp_ms: int) -> tuple[Record, int]:
    length, position = _read_varint(data, position)
    end = position + length
    if length < _MIN_RECORD_BYTES - 1 or end > len(data):
        raise ProtocolError(f"a record claims {length} bytes, {len(data) - position} are left")
    timestamp_delta, position = _read_varint(data, position + 1)  # after the record's attributes, which are unused
    offset_delta, position = _read_varint(data, position)
    key, position = _read_sized(data, position, end)
    value, position = _read_sized(data, position, end)
    headers, position = _read_headers(data, position, end)
    if position != end:
        raise ProtocolError(f"a record of {length} bytes has {end - position} bytes left over")
    return Record(key, value, headers, base_timestamp_ms + timestamp_delta, base_offset + offset_delta), end


def _read_records(payload: bytes, batch: RecordBatch, count: int) -> Iterable[Record]:
    position = 0
    log_append_time = batch.attributes & LOG_APPEND_TIME_FLAG
    for _ in range(count):
        record, position = _read_record(payload, position, batch.base_offset, batch.base_timestamp_ms)
        if log_append_time:
            record.timestamp_ms = batch.max_timestamp_ms
        yield record
    if position != len(payload):
        raise ProtocolError(f"{len(payload) - position} bytes are left over after the records of a batch")


def parse(
    buffer: bytes | bytearray | memoryview,
    *,
    checksum: Checksum = crc32c,
    decompressor: Decompress = decompress,
    max_decompressed_bytes: int = _MAX_DECOMPRESSED_BYTES,
) -> Iterator[RecordBatch]:
    """The batches in `buffer`, in order. One that is incomplete at the end ends them: a read may stop inside a batch.

    ProtocolError for a wrong magic, length or CRC, and for records that do not add up; batches before it have been
    given out.
    """
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= _LENGTH_END:
        batch_length = struct.unpack_from(">i", view, position + 8)[0]
        size = batch_length + _LENGTH_END
        if size < HEADER_BYTES:
            raise ProtocolError(f"a batch at position {position} claims {batch_length} bytes, less than its header")
        if size > len(view) - position:
            return
        whole = bytes(view[position : position + size])
        yield _parse_one(whole, position, checksum, decompressor, max_decompressed_bytes)
        position += size


def is_compressed(buffer: bytes, position: int) -> bool:
    """Whether a batch that is whole, or nearly so, begins at `position` and says that its records are compressed."""
    view = memoryview(buffer)[position:]
    return len(view) >= HEADER_BYTES and bool(_BODY.unpack_from(view, _CRC_START)[0] & COMPRESSION_MASK)


def length_at(buffer: bytes, position: int) -> int:
    """How long the batch that begins at `position` says that it is, in bytes; 0 when too little of it is there."""
    if len(buffer) - position < HEADER_BYTES:
        return 0
    return int(_HEAD.unpack_from(buffer, position)[1]) + _LENGTH_END


def _parse_one(data: bytes, position: int, checksum: Checksum, decompressor: Decompress, max_bytes: int) -> RecordBatch:
    base_offset, _, leader_epoch, magic, crc = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise ProtocolError(f"a batch at position {position} has magic {magic}; only {MAGIC} can be read")
    if checksum(data[_CRC_START:]) != crc:
        raise ProtocolError(f"the batch of offset {base_offset} at position {position} has a wrong CRC")
    *fields, count = _BODY.unpack_from(data, _CRC_START)
    attributes, last_offset_delta, base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, sequence = fields
    batch = RecordBatch(
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        records=[],
        position=position,
        size_bytes=len(data),
    )
    payload = data[HEADER_BYTES:]
    codec_id = batch.attributes & COMPRESSION_MASK
    if codec_id:
        payload = decompressor(codec_id, payload, max_bytes)
    if count < 0 or count * _MIN_RECORD_BYTES > len(payload) or count > batch.last_offset_delta + 1:
        raise ProtocolError(f"the batch of offset {base_offset} claims {count} records in {len(payload)} bytes")
    try:
        batch.records = list(_read_records(payload, batch, count))
    except (IndexError, UnicodeDecodeError) as error:
        raise ProtocolError(f"the batch of offset {base_offset} at position {position} is malformed: {error}") from None
    return batch
