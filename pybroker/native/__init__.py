"""The data plane seen from Python: thin, typed wrappers over the C functions of `csrc/include/pybroker.h`.

That header says for each call what it does, which thread may make it and whether it blocks. A method's docstring
repeats "Blocking" where a call must not be made on the asyncio thread. A failed call raises `NativeError`, in this one
place. `NativeBroker` and `NativePartition` are in `pybroker.native.broker` and `pybroker.native.partition`.
"""

from __future__ import annotations

import errno

from pybroker.native.bindings import ffi, lib, new_failure
from pybroker.native.errors import NativeError

__all__ = ["NativeError", "backend_refusal", "crc32c", "crc32c_name", "decompress", "fill"]

_FIRST_GUESS_BYTES = 64 << 10
_new_uncleared = ffi.new_allocator(should_clear_after_alloc=False)


def crc32c(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """CRC32C (Castagnoli) of `data`, going on from `seed`."""
    view = data if isinstance(data, bytes) else ffi.from_buffer(data)
    checksum: int = lib.pb_native_crc32c(seed, view, len(view))
    return checksum


def fill(target: bytes, position: int, source: memoryview) -> None:
    """Copy `source` to a place within bytes that the caller has just made and nobody else has seen."""
    assert position + len(source) <= len(target)
    ffi.memmove(ffi.from_buffer("char[]", target) + position, source, len(source))


def crc32c_name() -> str:
    """Which implementation of CRC32C this CPU gets, such as `avx512`."""
    name: str = ffi.string(lib.pb_native_crc32c_name()).decode()
    return name


def backend_refusal(backend: str) -> str | None:
    """Why this process may not use an I/O backend (`io_uring`, `epoll`); None when it may."""
    failure = new_failure()
    refused = lib.pb_native_backend_check(backend.encode(), failure) != 0
    return ffi.string(failure.text).decode(errors="replace") if refused else None


def decompress(codec_id: int, data: bytes | bytearray | memoryview, max_bytes: int) -> bytes:
    """The records of a batch compressed with Kafka's codec 1 (gzip), 2 (snappy), 3 (lz4) or 4 (zstd).

    NativeError: -E2BIG when they take more than `max_bytes`, -EINVAL when the data is corrupt.
    """
    view = ffi.from_buffer(data)
    capacity = min(max_bytes, max(4 * len(view), _FIRST_GUESS_BYTES))
    while True:
        out = _new_uncleared("uint8_t[]", capacity)
        length = lib.pb_native_decompress(codec_id, view, len(view), out, capacity)
        if length >= 0:
            return bytes(ffi.buffer(out, length))
        if length != -errno.E2BIG or capacity >= max_bytes:
            raise NativeError(length, f"compressed records (codec {codec_id}): {_reason(length, max_bytes)}")
        capacity = min(max_bytes, 4 * capacity)


def _reason(code: int, max_bytes: int) -> str:
    if code == -errno.E2BIG:
        return f"they take more than {max_bytes} bytes"
    return "they are corrupt" if code == -errno.EINVAL else NativeError(code).text
