"""`Measure`: disk, CPU and loopback device, measured by the C extension without a broker.

For tools. Runs are blocking and bounded by time; `Stop.set` ends the one under way from another thread. A failed run
raises `NativeError`. `csrc/include/pybroker.h` tells what each run does.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, NamedTuple

from pybroker.native.bindings import check, ffi, lib, new_failure
from pybroker.values import Value

WRITE: int = lib.PB_MEASURE_WRITE
WRITE_DURABLE: int = lib.PB_MEASURE_WRITE_DURABLE
WRITE_SYNC: int = lib.PB_MEASURE_WRITE_SYNC
SYNC: int = lib.PB_MEASURE_SYNC
READ: int = lib.PB_MEASURE_READ

CRC32C: int = lib.PB_MEASURE_CRC32C
COPY: int = lib.PB_MEASURE_COPY
COPY_CRC32C: int = lib.PB_MEASURE_COPY_CRC32C

_NS_PER_SECOND = 1_000_000_000


class RunResult(NamedTuple):
    """The result of a run; the fields of pb_measure_result."""

    operations: int
    bytes: int
    elapsed_ns: int
    cpu_ns: int
    min_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int


class ServerUsage(NamedTuple):
    """The bare server's use of CPU and memory, from its start to its end."""

    cpu_ns: int
    frames: int


class Stop:
    """Ends runs of other threads before their time; once set it stays so."""

    def __init__(self) -> None:
        self.flag = ffi.new("int32_t *")

    def set(self) -> None:
        """End the run under way, and any later one after a single operation."""
        self.flag[0] = 1

    @property
    def is_set(self) -> bool:
        """Whether somebody wants an end."""
        return bool(self.flag[0])


class FileRun(Value):
    """A run over `length` bytes of the file from `position` on; see pb_measure_file_run."""

    operation: int
    block_bytes: int
    length: int
    position: int = 0
    is_direct: bool = False
    is_random: bool = False
    syncs_at_end: bool = False
    pace_bytes: int = 0


class Exchange(Value):
    """Requests to a server; see pb_measure_exchange. `frames` are of one size, with their length in front."""

    host: str
    port: int
    frames: tuple[bytes, ...]
    connection_count: int = 1
    in_flight: int = 1
    counter_position: int = -1
    counter_step: int = 0
    counter_count: int = 1
    error_position: int = -1
    answer_min_bytes: int = 0
    spin_us: int = 0


def crc32c_names() -> tuple[str, ...]:
    """The implementations of CRC32C that this CPU runs, fastest first."""
    names: list[str] = []
    while (name := lib.pb_measure_crc32c_name(len(names))) != ffi.NULL:
        names.append(ffi.string(name).decode())
    return tuple(names)


class Measure:
    """The runs of one thread; a context manager. With a directory, those over a file may run on several at once."""

    def __init__(self, backend: str, stop: Stop | None = None) -> None:
        failure = new_failure()
        out = ffi.new("pb_measure **")
        check(lib.pb_measure_open(backend.encode(), out, failure), failure)
        self._measure = out[0]
        self._stop = stop if stop is not None else Stop()

    def __enter__(self) -> Measure:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        lib.pb_measure_close(self._measure)

    @property
    def backend(self) -> str:
        """The I/O backend in use."""
        name: str = ffi.string(lib.pb_measure_backend(self._measure)).decode()
        return name

    def use_directory(self, path: os.PathLike[str]) -> None:
        """Make the nameless file that runs go over, in this directory."""
        failure = new_failure()
        check(lib.pb_measure_use_directory(self._measure, os.fsencode(path), failure), failure)

    def drop(self) -> None:
        """Write all of the file back, then forget it in the page cache. Blocking."""
        failure = new_failure()
        check(lib.pb_measure_drop(self._measure, failure), failure)

    def file(self, run: FileRun, seconds: float, max_bytes: int = 0) -> RunResult:
        """Reads, writes or syncs. Blocking."""
        failure, out = new_failure(), ffi.new("pb_measure_result *")
        native = ffi.new(
            "pb_measure_file_run *",
            {
                "operation": run.operation,
                "is_direct": run.is_direct,
                "is_random": run.is_random,
                "syncs_at_end": run.syncs_at_end,
                "block_bytes": run.block_bytes,
                "position": run.position,
                "length": run.length,
                "pace_bytes": run.pace_bytes,
                "limits": self._limits(seconds, max_bytes),
            },
        )
        check(lib.pb_measure_file(self._measure, native, out, failure), failure)
        return _result(out)

    def cpu(self, work: int, block_bytes: int, seconds: float, crc32c: str | None = None) -> RunResult:
        """CRC32C (of a named implementation), copies, or both. No broker may run in this process. Blocking."""
        failure, out = new_failure(), ffi.new("pb_measure_result *")
        name = ffi.NULL if crc32c is None else ffi.from_buffer(crc32c.encode() + b"\0")
        limits = ffi.new("pb_measure_limits *", self._limits(seconds))
        check(lib.pb_measure_cpu(self._measure, work, name, block_bytes, limits, out, failure), failure)
        return _result(out)

    def serve(self, answer_bytes: int, *, spin_us: int = 0, file_bytes: int = 0) -> int:
        """Start the bare server; its port. With `file_bytes` answers come from the file by sendfile."""
        failure, port = new_failure(), ffi.new("int32_t *")
        check(lib.pb_measure_serve(self._measure, answer_bytes, spin_us, file_bytes, port, failure), failure)
        bound: int = port[0]
        return bound

    def end_serving(self) -> ServerUsage:
        """End the bare server. Blocking."""
        cpu_ns, frames = ffi.new("int64_t *"), ffi.new("int64_t *")
        lib.pb_measure_serve_end(self._measure, cpu_ns, frames)
        return ServerUsage(cpu_ns[0], frames[0])

    def exchange(self, exchange: Exchange, seconds: float, max_bytes: int = 0) -> RunResult:
        """Requests and their answers. NativeError has Kafka's code when an answer bears one. Blocking."""
        frame_bytes = len(exchange.frames[0])
        if any(len(frame) != frame_bytes for frame in exchange.frames):
            raise ValueError("the frames of an exchange are not of one size")
        failure, out = new_failure(), ffi.new("pb_measure_result *")
        host, frames = ffi.from_buffer(exchange.host.encode() + b"\0"), ffi.from_buffer(b"".join(exchange.frames))
        native = ffi.new(
            "pb_measure_exchange *",
            {
                "host": host,
                "port": exchange.port,
                "connection_count": exchange.connection_count,
                "in_flight": exchange.in_flight,
                "frame_count": len(exchange.frames),
                "frames": frames,
                "frame_bytes": frame_bytes,
                "counter_position": exchange.counter_position,
                "counter_step": exchange.counter_step,
                "counter_count": exchange.counter_count,
                "error_position": exchange.error_position,
                "answer_min_bytes": exchange.answer_min_bytes,
                "spin_us": exchange.spin_us,
                "limits": self._limits(seconds, max_bytes),
            },
        )
        check(lib.pb_measure_exchange_run(self._measure, native, out, failure), failure)
        return _result(out)

    def _limits(self, seconds: float, max_bytes: int = 0) -> dict[str, Any]:
        return {"budget_ns": int(seconds * _NS_PER_SECOND), "max_bytes": max_bytes, "stop": self._stop.flag}


def _result(out: Any) -> RunResult:
    return RunResult(*(getattr(out, name) for name in RunResult._fields))
