"""Tail rings: the pool of a broker, and as files what an ended process has left of one.

All calls are blocking and belong on a worker thread, or into a tool. They raise `NativeError`.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

from pybroker.native.bindings import check, ffi, lib, new_failure
from pybroker.native.broker import NativeBroker
from pybroker.native.errors import NativeError
from pybroker.values import Value

UUID_BYTES: int = lib.PB_UUID_BYTES


class RingFile(Value):
    """The facts that a ring's file tells about itself. Positions are in the segment's file: below `start_position` it
    has everything, what lies between start and end is in the ring. Not sealed: nothing is, and only the ids of session
    and boot are true."""

    path: Path
    ring_bytes: int
    is_sealed: bool
    directory_id: bytes
    topic_id: bytes
    boot_id: bytes
    session_id: bytes
    topic: str
    partition: int
    segment_base: int
    start_position: int
    end_position: int

    @property
    def gathered_bytes(self) -> int:
        """How much is in the ring; some of it may be in the file as well."""
        return self.end_position - self.start_position if self.is_sealed else 0


def use_rings(
    broker: NativeBroker,
    directory: Path,
    session_id: bytes,
    *,
    budget_bytes: int,
    ring_bytes: int,
    hot_bytes_per_second: int,
) -> None:
    """Let logs that are opened from now on, and written at `hot_bytes_per_second`, have tail rings. `-EINVAL` when
    `directory` is not on tmpfs."""
    assert len(session_id) == UUID_BYTES
    failure = new_failure()
    path, session = ffi.new("char[]", str(directory).encode()), ffi.new("uint8_t[]", session_id)
    rings = ffi.new("pb_broker_rings *", (path, session, budget_bytes, ring_bytes, hot_bytes_per_second))
    check(lib.pb_broker_use_rings(broker.handle, rings, failure), failure)


def add_log_dir(broker: NativeBroker, path: Path, directory_id: bytes) -> None:
    """Logs that lie in the log dir `path` may have rings."""
    assert len(directory_id) == UUID_BYTES
    check(lib.pb_broker_add_log_dir(broker.handle, str(path).encode(), directory_id), what=f"{path}: tail rings")


class RingStats(Value):
    """Rings now; sizes in bytes. A budget of 0: none are used."""

    budget_bytes: int
    used_bytes: int
    ring_count: int
    taken_count: int


def ring_stats(broker: NativeBroker) -> RingStats:
    """Does not block."""
    out = ffi.new("pb_broker_ring_stats *")
    lib.pb_broker_ring_stats_read(broker.handle, out)
    return RingStats(out.budget_bytes, out.used_bytes, out.ring_count, out.taken_count)


class DamagedRing(NativeError):
    """The file is no ring, or a damaged one. `claim` has what lies where a ring says of itself what it is."""

    def __init__(self, error: NativeError, claim: RingFile) -> None:
        super().__init__(error.code, error.text)
        self.claim = claim


def read_ring(path: Path) -> RingFile:
    """-ENODATA for one that was never finished; DamagedRing (-EBADMSG) for what is no ring."""
    out, failure = ffi.new("pb_ring_file *"), new_failure()
    result = lib.pb_ring_file_read(str(path).encode(), out, failure)
    if result == -errno.EBADMSG:
        raise DamagedRing(NativeError(result, ffi.string(failure.text).decode(errors="replace")), _ring_file(path, out))
    check(result, failure)
    return _ring_file(path, out)


def _ring_file(path: Path, out: Any) -> RingFile:
    return RingFile(
        path=path,
        ring_bytes=out.ring_bytes,
        is_sealed=bool(out.sealed),
        directory_id=bytes(out.directory_id),
        topic_id=bytes(out.topic_id),
        boot_id=bytes(out.boot_id),
        session_id=bytes(out.session_id),
        topic=ffi.string(out.topic).decode("utf-8", errors="replace"),
        partition=out.partition,
        segment_base=out.segment_base,
        start_position=out.start_position,
        end_position=out.end_position,
    )


def replay_ring(path: Path, log_directory: Path, *, look: bool = False) -> int:
    """Bring what the ring holds into the log in `log_directory`, and sync it; how many bytes that had not got. `look`:
    only say so. The ring's file stays. -ESTALE when the log is not as the ring's writer left it."""
    moved, failure = ffi.new("int64_t *"), new_failure()
    check(lib.pb_ring_file_replay(str(path).encode(), str(log_directory).encode(), int(look), moved, failure), failure)
    return int(moved[0])


def boot_id() -> bytes:
    """Another one each time the machine starts."""
    out = ffi.new("uint8_t[]", UUID_BYTES)
    check(lib.pb_machine_boot_id(out), what="the machine's boot id")
    return bytes(out)
