"""Files of tail rings as an ended broker leaves them, made byte by byte."""

from __future__ import annotations

import struct
from pathlib import Path

from pybroker.native import crc32c
from pybroker.native.rings import boot_id
from pybroker.storage.rings.tail_rings import RingSession

RING_BYTES = 64 << 10
SESSION = b"s" * 16
_HEAD_BYTES = 4096
_CHECKED = struct.Struct("<qqq16s16s16s16s256si")


def write_ring(
    path: Path,
    content: bytes,
    *,
    start: int,
    segment_base: int = 0,
    directory_id: bytes,
    topic_id: bytes,
    topic: str = "t",
    partition: int = 0,
    session: bytes = SESSION,
    boot: bytes | None = None,
    sealed: bool = True,
    flushed_bytes: int = 0,
) -> None:
    """A ring whose `content` begins at position `start` of its segment, which has the first of these bytes already."""
    boot = boot_id() if boot is None else boot
    ids = (boot, session, directory_id, topic_id, topic.encode(), partition)
    checked = _CHECKED.pack(RING_BYTES, segment_base, start, *ids)
    head = bytearray(_HEAD_BYTES)
    struct.pack_into("<8sII", head, 0, b"pb-ring", 2, crc32c(checked))
    head[16 : 16 + len(checked)] = checked
    struct.pack_into("<I", head, 512, sealed)
    struct.pack_into("<q", head, 576, start + flushed_bytes)
    struct.pack_into("<q", head, 640, start + len(content))
    ring = bytearray(RING_BYTES)
    for index, byte in enumerate(content):
        ring[(start + index) % RING_BYTES] = byte
    path.write_bytes(ring + head)


def write_session(log_dir: Path, directory: Path, session: bytes = SESSION, boot: bytes | None = None) -> None:
    """What the broker that wrote the rings said in its log dir."""
    RingSession(directory, session, boot_id() if boot is None else boot).write(log_dir)
