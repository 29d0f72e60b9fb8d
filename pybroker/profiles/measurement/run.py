"""Carries out the plan of a measurement, on one thread, with a second one where two runs go side by side.

Blocking for as long as it was given, and a little more where single operations are slow. Leaves no file behind: the one
it measures with has no name. Failures: `MeasurementError` (no room, stopped), `NativeError`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import pybroker
from pybroker.native.errors import NativeError
from pybroker.native.measure import READ, Exchange, FileRun, Measure, RunResult, Stop, crc32c_names
from pybroker.profiles.facts import read_machine
from pybroker.profiles.machine import Machine
from pybroker.profiles.matching import facts_of
from pybroker.profiles.measurement import plan
from pybroker.profiles.measurement.flush import flush_times, judge_flush
from pybroker.profiles.measurement.medium import judge_medium
from pybroker.profiles.measurement.result import SCHEMA, Figures, Measurement, MeasurementError, figures_of
from pybroker.profiles.measurement.stolen import StolenTime

Report = Callable[[str, float], None]
"""Told what is being measured, and which share of the time has gone, from 0 to 1."""

_REGION_MAX_BYTES = 1 << 30
_REGION_MIN_BYTES = 4 * plan.MIB
_REGION_BYTES_PER_SECOND = 32 * plan.MIB
#: All runs together take little more than twice the region.
_SHARE_OF_FREE = 8
#: The rest is for opening files, dropping caches and the like.
_SHARE_OF_RUNS = 0.9
_WARM_UP_SHARE = 0.3
_BUSY_SHARE = 0.5
#: More than the caches of CPUs hold.
_SENT_BYTES = 64 * plan.MIB


class Measuring:
    """One measurement of the disk under `directory`, the CPU and the loopback device."""

    def __init__(self, directory: Path, machine: Machine, backend: str, seconds: float, stop: Stop) -> None:
        """`machine`: with all log dirs, for whoever wants to know later what was measured."""
        self._directory = directory
        self._machine = machine
        self._backend = backend
        self._seconds = seconds
        self._stop = stop
        self._report: Report = lambda _name, _share: None
        self._results: dict[str, Figures] = {}
        self._notes: list[str] = []
        self._weight_done = 0.0
        self._weight_total = 1.0

    def run(self, report: Report) -> Measurement:
        """Measure. Blocking."""
        self._report = report
        self._note_load()
        started = monotonic()
        region_bytes = self._region_bytes()
        with Measure(self._backend, self._stop) as measure:
            backend = measure.backend
            measure.use_directory(self._directory)
            self._weigh(region_bytes)
            with self._watching("while the disk was measured"):
                region_bytes, is_direct = self._fill(measure, region_bytes)
                for disk_step in plan.disk_steps(region_bytes, is_direct):
                    self._disk(measure, disk_step)
            with self._watching("while CPU and loopback device were measured"):
                for cpu_step in plan.cpu_steps(crc32c_names()):
                    self._cpu(measure, cpu_step)
                for loopback_step in plan.loopback_steps(region_bytes):
                    self._loopback(measure, loopback_step, region_bytes)
        return self._conclude(backend, region_bytes, monotonic() - started)

    def _note_load(self) -> None:
        load, cpu_count = os.getloadavg()[0], self._machine.cpu.online_count
        if load > _BUSY_SHARE * cpu_count:
            self._notes.append(
                f"the machine was busy (load {load:.1f} on {cpu_count} CPUs): rates are too low, latencies too high; "
                "measure again when nothing else runs"
            )

    @contextmanager
    def _watching(self, meanwhile: str) -> Iterator[None]:
        stolen = StolenTime()
        yield
        note = stolen.note(meanwhile)
        if note is not None:
            self._notes.append(note)

    def _region_bytes(self) -> int:
        status = os.statvfs(self._directory)
        free_bytes = status.f_bavail * status.f_frsize
        wanted = min(_REGION_MAX_BYTES, int(self._seconds * _REGION_BYTES_PER_SECOND), free_bytes // _SHARE_OF_FREE)
        region_bytes = max(wanted, 4 * _REGION_MIN_BYTES) // (2 * plan.MIB) * (2 * plan.MIB)
        if region_bytes > free_bytes // 3:
            raise MeasurementError(
                f"{self._directory} has {free_bytes >> 20} MiB free; measuring needs {3 * region_bytes >> 20} MiB"
            )
        return region_bytes

    def _weigh(self, region_bytes: int) -> None:
        disk = plan.disk_steps(region_bytes, True)
        self._weight_total = (
            plan.FILL_WEIGHT
            + sum(step.weight * (1 + _WARM_UP_SHARE * (step.warm_up is not None)) for step in disk)
            + sum(step.weight for step in plan.cpu_steps(crc32c_names()))
            + sum(step.weight for step in plan.loopback_steps(region_bytes))
        )

    def _begin(self, what: str, weight: float) -> float:
        """How many seconds a run of this weight gets. MeasurementError when somebody wants an end."""
        if self._stop.is_set:
            raise MeasurementError("stopped")
        self._report(what, min(self._weight_done / self._weight_total, 1.0))
        self._weight_done += weight
        return self._seconds * _SHARE_OF_RUNS * weight / self._weight_total

    def _fill(self, measure: Measure, region_bytes: int) -> tuple[int, bool]:
        """Write the file for the first time; how much of it there is then, and whether the page cache can be passed.
        A slow disk gets a smaller file."""
        seconds = self._begin(plan.FILL_NAME, plan.FILL_WEIGHT)
        is_direct = True
        try:
            run = measure.file(plan.fill_run(region_bytes, True), seconds, region_bytes)
        except NativeError as error:
            self._notes.append(f"{error}: only what goes through the page cache was measured")
            is_direct = False
            run = measure.file(plan.fill_run(region_bytes, False), seconds, region_bytes)
        what = plan.FILL_WHAT if is_direct else plan.FILL_BUFFERED_WHAT
        self._results[plan.FILL_NAME] = figures_of(what, run)
        filled_bytes = run.bytes // (2 * plan.MIB) * (2 * plan.MIB)
        if filled_bytes < _REGION_MIN_BYTES:
            measure.file(plan.fill_run(_REGION_MIN_BYTES, is_direct), 3600.0, _REGION_MIN_BYTES)
            filled_bytes = _REGION_MIN_BYTES
        return filled_bytes, is_direct

    def _disk(self, measure: Measure, step: plan.DiskStep) -> None:
        if step.drops_first:
            measure.drop()
        if step.warm_up is not None:
            seconds = self._begin(step.name, step.weight * _WARM_UP_SHARE)
            # Reads are worth nothing unless all of it has been read before.
            is_read = step.warm_up.operation == READ
            measure.file(step.warm_up, self._seconds if is_read else seconds, step.warm_up.length)
        seconds = self._begin(step.name, step.weight)
        # A second time around a cold read is none, and new ground old.
        is_once = (step.run.operation == READ and step.drops_first) or step.run.pace_bytes > 0
        max_bytes = step.run.length if is_once else 0
        if step.beside is None:
            self._results[step.name] = figures_of(step.what, measure.file(step.run, seconds, max_bytes))
            return
        name, run = step.beside
        besides: list[RunResult | NativeError] = []
        thread = threading.Thread(target=_file_into, args=(besides, measure, run, seconds))
        thread.start()
        try:
            self._results[step.name] = figures_of(step.what, measure.file(step.run, seconds))
        finally:
            thread.join()
        beside = besides[0]
        if isinstance(beside, NativeError):
            raise beside
        self._results[name] = figures_of("1 MiB at a time while somebody else writes 256 KiB at a time", beside)

    def _cpu(self, measure: Measure, step: plan.CpuStep) -> None:
        seconds = self._begin(step.name, step.weight)
        run = measure.cpu(step.work, step.block_bytes, seconds, step.crc32c)
        self._results[step.name] = figures_of(step.what, run, by_cpu=True)

    def _loopback(self, measure: Measure, step: plan.LoopbackStep, file_bytes: int) -> None:
        seconds = self._begin(step.name, step.weight)
        sent_bytes = min(file_bytes, _SENT_BYTES) if step.from_file else 0
        if sent_bytes > 0:  # as a consumer of what was written lately finds it
            measure.file(FileRun(READ, plan.MIB, sent_bytes), seconds, sent_bytes)
        port = measure.serve(step.answer_bytes, spin_us=step.spin_us, file_bytes=sent_bytes)
        request = (step.request_bytes - 4).to_bytes(4, "big") + bytes(step.request_bytes - 4)
        exchange = Exchange("127.0.0.1", port, (request,), step.connection_count, step.in_flight)
        try:
            run = measure.exchange(exchange, seconds)
        finally:
            usage = measure.end_serving()
        self._results[step.name] = figures_of(step.what, run, usage.cpu_ns)

    def _conclude(self, backend: str, region_bytes: int, seconds: float) -> Measurement:
        if self._stop.is_set:
            raise MeasurementError("stopped")
        results = self._results
        random_read = results.get("read.random.4KiB")
        medium = judge_medium(None if random_read is None else random_read.p50_us, region_bytes)
        storage = next(iter(read_machine([self._directory]).storage), None)
        self._report("done", 1.0)
        return Measurement(
            schema=SCHEMA,
            made_at=datetime.now(UTC).isoformat(timespec="seconds"),
            made_by=f"pybroker {pybroker.__version__}",
            seconds=round(seconds, 1),
            directory=str(self._directory),
            io_backend=backend,
            region_bytes=region_bytes,
            facts=facts_of(self._machine),
            machine=json.loads(json.dumps(self._machine.as_dict())),
            medium=medium,
            flush=judge_flush(storage, self._machine.host, flush_times(results), medium.name),
            notes=tuple(self._notes),
            results=results,
        )


def _file_into(out: list[RunResult | NativeError], measure: Measure, run: FileRun, seconds: float) -> None:
    try:
        out.append(measure.file(run, seconds))
    except NativeError as error:
        out.append(error)
