"""`dump`: what files hold, one item after the other. Reads only, a batch at a time whatever a file's size.

An item is a dictionary that JSON can hold; its `type` says which other keys it has, `docs/log-files.md` lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pybroker.native import NativeError, walk
from pybroker.native.walk import SegmentWalk, WalkRow
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ProtocolError
from pybroker.protocol.uuids import uuid_to_text
from pybroker.storage.offline import binary_files, readable, text_files
from pybroker.storage.offline.layout import FileKind, LogDirFiles, PartitionFiles, Target, file_kind
from pybroker.storage.offline.small_files import read_whole

Item = dict[str, Any]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_MAX_DECOMPRESSED_BYTES = 1 << 30
_FILE_ORDER = (
    FileKind.LOG,
    FileKind.OFFSET_INDEX,
    FileKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX,
    FileKind.PRODUCER_SNAPSHOT,
    FileKind.METADATA_SNAPSHOT,
)


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """`decoder` None: by the topic's name. `raw`: keys and values in hexadecimal, nothing decoded."""

    records: bool = False
    raw: bool = False
    decoder: str | None = None


def dump(target: Target, options: DumpOptions) -> Iterator[Item]:
    """The items of every file of `target`. A file that cannot be read is an item of type `problem`."""
    for path in _files(target):
        kind = file_kind(path)
        assert kind is not None
        try:
            yield {"type": "file", "path": str(path), "size_bytes": path.stat().st_size}
            yield from _DUMPERS[kind](path, options)
        except (text_files.Damage, NativeError, OSError) as error:
            yield {"type": "problem", "path": str(path), "text": str(error)}


def _files(target: Target) -> Iterator[Path]:
    if isinstance(target, Path):
        yield target
    elif isinstance(target, PartitionFiles):
        yield from _files_of(target)
    elif isinstance(target, LogDirFiles):
        yield from target.files.values()
        for partition in target.partitions:
            yield from _files_of(partition)


def _files_of(partition: PartitionFiles) -> Iterator[Path]:
    """Segments with their indexes first, then the rest."""
    unknown = set(partition.unknown)
    known = [(path, kind) for path in partition.path.iterdir() if path not in unknown and (kind := file_kind(path))]
    in_order = {kind: number for number, kind in enumerate(_FILE_ORDER)}
    by_offset = [entry for entry in known if entry[1] in in_order]
    yield from (path for path, kind in sorted(by_offset, key=lambda each: (each[0].name[:20], in_order[each[1]])))
    yield from sorted(path for path, kind in known if kind not in in_order)


def _dump_log(path: Path, options: DumpOptions) -> Iterator[Item]:
    topic = path.resolve().parent.name.rpartition("-")[0]
    decoder = options.decoder or readable.DECODER_OF_TOPIC.get(topic)
    if file_kind(path) is FileKind.METADATA_SNAPSHOT:
        decoder = readable.METADATA
    base_offset = int(path.name[:20]) if file_kind(path) is FileKind.LOG else 0
    with open(path, "rb") as file:
        for row in SegmentWalk().rows(path, base_offset, wanted=walk.EVERY):
            yield _batch_item(row)
            if options.records and row.is_intact and row.magic == record_batch.MAGIC:
                file.seek(row.position)
                yield from _record_items(file.read(row.size_bytes), row, decoder, options.raw)


def _batch_item(row: WalkRow) -> Item:
    if row.flags & walk.GARBAGE:
        zeros = bool(row.flags & walk.ZEROS)
        return {"type": "garbage", "position": row.position, "size_bytes": row.size_bytes, "zeros": zeros}
    if row.magic != record_batch.MAGIC:
        item: Item = {"type": "message", "position": row.position, "size_bytes": row.size_bytes}
        return {**item, "magic": row.magic, "offset": row.base_offset, "valid": not row.flags & walk.CRC}
    attributes = row.attributes
    codec = attributes & record_batch.COMPRESSION_MASK
    return {
        "type": "batch",
        "position": row.position,
        "size_bytes": row.size_bytes,
        "base_offset": row.base_offset,
        "last_offset": row.last_offset,
        "record_count": row.record_count,
        "leader_epoch": row.leader_epoch,
        "codec": CODECS[codec] if codec < len(CODECS) else codec,
        "timestamp_type": "LogAppendTime" if attributes & record_batch.LOG_APPEND_TIME_FLAG else "CreateTime",
        "base_timestamp_ms": row.base_timestamp_ms,
        "max_timestamp_ms": row.max_timestamp_ms,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "base_sequence": row.base_sequence,
        "transactional": bool(attributes & record_batch.TRANSACTIONAL_FLAG),
        "control": bool(attributes & record_batch.CONTROL_FLAG),
        "delete_horizon": bool(attributes & record_batch.DELETE_HORIZON_FLAG),
        "crc": row.crc,
        "valid": not row.flags & walk.CRC,
    }


def _record_items(data: bytes, row: WalkRow, decoder: str | None, raw: bool) -> Iterator[Item]:
    try:
        (batch,) = record_batch.parse(data, max_decompressed_bytes=_MAX_DECOMPRESSED_BYTES)
    except ProtocolError as error:
        yield {"type": "problem", "position": row.position, "text": str(error)}
        return
    for record in batch.records:
        item: Item = {"type": "record", "offset": record.offset, "timestamp_ms": record.timestamp_ms}
        if raw:
            item |= readable.raw(record)
            item["headers"] = [[name, None if value is None else value.hex()] for name, value in record.headers]
        else:
            item |= readable.decode(record, is_control=batch.is_control, decoder=decoder)
            item["headers"] = [[name, readable.text(value)] for name, value in record.headers]
        yield item


def _dump_offset_index(path: Path, options: DumpOptions) -> Iterator[Item]:
    del options
    data, zeros, rest = binary_files.whole_entries(read_whole(path), binary_files.OFFSET_ENTRY)
    for offset, position in binary_files.offset_entries(data, int(path.name[:20])):
        yield {"type": "index", "offset": offset, "position": position}
    yield from _tail(path, len(data), zeros, rest)


def _dump_time_index(path: Path, options: DumpOptions) -> Iterator[Item]:
    del options
    data, zeros, rest = binary_files.whole_entries(read_whole(path), binary_files.TIME_ENTRY)
    for timestamp_ms, offset in binary_files.time_entries(data, int(path.name[:20])):
        yield {"type": "time-index", "timestamp_ms": timestamp_ms, "offset": offset}
    yield from _tail(path, len(data), zeros, rest)


def _tail(path: Path, used: int, zeros: int, rest: int) -> Iterator[Item]:
    if zeros:
        yield {"type": "garbage", "position": used, "size_bytes": zeros, "zeros": True}
    if rest:
        yield {"type": "problem", "path": str(path), "text": f"{rest} bytes at the end are no whole entry"}


def _dump_transaction_index(path: Path, options: DumpOptions) -> Iterator[Item]:
    del options
    for entry in binary_files.transaction_entries(read_whole(path)):
        yield {"type": "aborted-transaction", **entry._asdict()}


def _dump_producer_snapshot(path: Path, options: DumpOptions) -> Iterator[Item]:
    del options
    snapshot = binary_files.read_producer_snapshot(path)
    for entry in snapshot.entries:
        yield {"type": "producer", **entry._asdict()}
    if snapshot.problem:
        yield {"type": "problem", "path": str(path), "text": snapshot.problem}


def _dump_mark(path: Path, options: DumpOptions) -> Iterator[Item]:
    del options
    mark = binary_files.read_mark(path)
    if isinstance(mark, str):
        yield {"type": "problem", "path": str(path), "text": mark}
    else:
        yield {"type": "mark", **mark._asdict()}


def _dump_epochs(path: Path, options: DumpOptions) -> Iterator[Item]:
    del options
    for entry in text_files.leader_epochs(path):
        yield {"type": "leader-epoch", "epoch": entry.epoch, "start_offset": entry.start_offset}


def _dump_offsets(path: Path, options: DumpOptions) -> Iterator[Item]:
    del options
    for (topic, partition), entry in text_files.offsets(path).items():
        yield {"type": "offset", "topic": topic, "partition": partition, "offset": entry.offset}


def _dump_partition_metadata(path: Path, options: DumpOptions) -> Iterator[Item]:
    del options
    yield {"type": "partition-metadata", "topic_id": uuid_to_text(text_files.partition_metadata(path))}


def _dump_properties(path: Path, options: DumpOptions) -> Iterator[Item]:
    del options
    yield {"type": "meta-properties", **text_files.meta_properties(path)}


def _dump_quorum_state(path: Path, options: DumpOptions) -> Iterator[Item]:
    del options
    yield {"type": "quorum-state", **text_files.quorum_state(path)}


def _dump_clean_shutdown(path: Path, options: DumpOptions) -> Iterator[Item]:
    del options
    yield {"type": "clean-shutdown", "broker_epoch": text_files.clean_shutdown(path)}


_DUMPERS = {
    FileKind.LOG: _dump_log,
    FileKind.METADATA_SNAPSHOT: _dump_log,
    FileKind.OFFSET_INDEX: _dump_offset_index,
    FileKind.TIME_INDEX: _dump_time_index,
    FileKind.TRANSACTION_INDEX: _dump_transaction_index,
    FileKind.PRODUCER_SNAPSHOT: _dump_producer_snapshot,
    FileKind.MARK: _dump_mark,
    FileKind.LEADER_EPOCHS: _dump_epochs,
    FileKind.OFFSETS: _dump_offsets,
    FileKind.PARTITION_METADATA: _dump_partition_metadata,
    FileKind.META_PROPERTIES: _dump_properties,
    FileKind.QUORUM_STATE: _dump_quorum_state,
    FileKind.CLEAN_SHUTDOWN: _dump_clean_shutdown,
}
