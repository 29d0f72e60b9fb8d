"""What a broker that promises durability wants to know when it starts: are the flushes of a log dir real?

A saved measurement of the same disks answers; else writes and syncs of 4 KiB do, on a nameless file in the log dir.
Blocking for about 50 ms, and for single operations of a slow disk. Nothing fails: what cannot be found out is unknown.
"""

from __future__ import annotations

from pathlib import Path

from pybroker.native.errors import NativeError
from pybroker.native.measure import SYNC, WRITE, WRITE_DURABLE, FileRun, Measure
from pybroker.profiles.facts import read_machine
from pybroker.profiles.library import measurement_paths
from pybroker.profiles.machine import Machine
from pybroker.profiles.matching import UNKNOWN as UNKNOWN_MEDIUM
from pybroker.profiles.measured import are_disks_of
from pybroker.profiles.measurement.flush import UNKNOWN, FlushTimes, flush_times, judge_flush
from pybroker.profiles.measurement.result import Conclusion, Measurement, MeasurementError, from_json

_BLOCK_BYTES = 4 << 10
_LENGTH = 16 * _BLOCK_BYTES
_SECONDS_EACH = 0.012


def judge_log_dir(log_dir: Path, backend: str, root: Path = Path("/")) -> Conclusion:
    """The verdict on flushes of the storage below `log_dir`. Blocking."""
    machine = read_machine([log_dir], root)
    storage = next(iter(machine.storage), None)
    saved = _saved(machine, root)
    medium = UNKNOWN_MEDIUM if saved is None else saved.medium.name
    by_facts = judge_flush(storage, machine.host, None, medium)
    if by_facts.name != UNKNOWN:
        return by_facts
    times = None if saved is None else flush_times(saved.results)
    if times is None:
        try:
            times = _try(log_dir, backend)
        except NativeError as error:
            return Conclusion(UNKNOWN, f"it cannot be tried: {error}")
    return judge_flush(storage, machine.host, times, medium)


def _saved(machine: Machine, root: Path) -> Measurement | None:
    """The first saved measurement of these disks."""
    for path in measurement_paths(root):
        try:
            measurement = from_json(path.read_text(encoding="utf-8"))
            if are_disks_of(machine, measurement.machine):
                return measurement
        except (OSError, UnicodeDecodeError, MeasurementError, KeyError, TypeError):
            continue
    return None


def _try(log_dir: Path, backend: str) -> FlushTimes:
    with Measure(backend) as measure:
        measure.use_directory(log_dir)
        # New ground and its journal come first: they are neither write nor flush of old bytes.
        measure.file(FileRun(WRITE, _LENGTH, _LENGTH, is_direct=True, syncs_at_end=True), 0.0)
        runs = (FileRun(each, _BLOCK_BYTES, _LENGTH, is_direct=True) for each in (WRITE, WRITE_DURABLE, SYNC))
        return FlushTimes(*(measure.file(run, _SECONDS_EACH).p50_ns / 1e3 for run in runs))
