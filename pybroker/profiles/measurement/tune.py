"""Settings for a machine, from what was measured on it. A pure function: the same measurement, the same settings.

Every rule says in one line why it came to its value; that line goes into the profile beside it. A rule leaves out what
the measurement cannot decide, so that the generic profile's value holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from pybroker.profiles.document import ProfileDocument
from pybroker.profiles.keys import Setting
from pybroker.profiles.matching import IDENTITY
from pybroker.profiles.measurement.plan import MIB, SPINS_US
from pybroker.profiles.measurement.result import Measurement

_DIRECT = "direct"
_PACED = "paced"
#: Less than this is noise from one run to the next, on virtual machines at least.
_NOTEWORTHY = 0.1
_SPINS_PAY_BELOW = 0.8
_BUDGET_MIN_BYTES = 64 * MIB
_BUDGET_MAX_BYTES = 1024 * MIB
_BUDGET_SHARE_OF_MEMORY = 16
_REACTORS_MAX = 64
_RING_BYTES = 32 * MIB
_RINGS_MIN = 1
_RINGS_MAX = 16
_RINGS_SHARE_OF_MEMORY = 16


@dataclass(frozen=True, slots=True)
class Tuned:
    """A key's value, and why."""

    key: str
    value: Setting
    why: str


_Rule = Callable[[Measurement], Tuned | None]


def tune(measurement: Measurement, keys: Collection[str], engines: Collection[str]) -> tuple[Tuned, ...]:
    """Settings for the machine that was measured: of `keys`, what can be decided; of append engines, one of
    `engines`."""
    engine = _append_engine(measurement, engines)
    tuned = [engine, *(rule(measurement) for rule in _RULES)]
    if engine is not None and engine.value == _DIRECT:
        tuned.append(_tail_ring_budget_bytes(measurement))
    return tuple(each for each in tuned if each is not None and each.key in keys)


def _append_engine(measurement: Measurement, engines: Collection[str]) -> Tuned | None:
    paced, paced_cpu = measurement.rate("write.paced.128KiB"), measurement.cpu("write.paced.128KiB")
    direct = measurement.rate("write.fresh.1MiB")
    direct_cpu = measurement.cpu("write.direct.256KiB")
    if paced is None or paced_cpu is None or direct is None:
        return None
    if direct_cpu is None:
        return Tuned("append_engine", _PACED, "the file system refuses writes past the page cache")
    compared = (
        f"new ground is written past the page cache at {direct / 1e6:.0f} MB/s and {direct_cpu:.2f} CPU s/GB, "
        f"through it at {paced / 1e6:.0f} MB/s and {paced_cpu:.2f}"
    )
    is_as_fast = direct >= (1 - _NOTEWORTHY) * paced
    is_cheaper = direct_cpu <= (1 - _NOTEWORTHY) * paced_cpu
    if not (is_as_fast and is_cheaper):
        return Tuned("append_engine", _PACED, compared)
    if _DIRECT not in engines:
        return Tuned("append_engine", _PACED, f"{compared}; but this pybroker has no engine that does so")
    return Tuned("append_engine", _DIRECT, compared)


def _reactors(measurement: Measurement) -> Tuned | None:
    cpus, bounds = _usable_cpus(measurement.machine)
    half = max(1, int(cpus) // 2)
    disk, small_cpu = _disk_rate(measurement), measurement.cpu("receive.1KiB")
    if disk is None or small_cpu is None:
        return None
    needed = max(1, min(_REACTORS_MAX, ceil(disk / 1e9 * small_cpu)))
    share = f"half of {cpus:g} CPUs{bounds}, the rest is for clients, Python and the kernel"
    if needed < half:
        return Tuned("reactors", needed, f"{needed} can fill the disk ({disk / 1e6:.0f} MB/s) even with 1 KiB requests")
    return Tuned("reactors", half, share)


def _spin_us(measurement: Measurement) -> Tuned | None:
    took = {spin: measurement.p50_us(f"round_trip.spin_{spin}us") for spin in SPINS_US}
    known = {spin: p50_us for spin, p50_us in took.items() if p50_us is not None}
    asleep = known.pop(0, None)
    if asleep is None or not known:
        return None
    cpus, bounds = _usable_cpus(measurement.machine)
    if cpus < 2:
        return Tuned("spin_us", 0, f"with {cpus:g} CPU{bounds}, a reactor that spins keeps others from working")
    best = min(known.values())
    spin = min(each for each, p50_us in known.items() if p50_us <= best * (1 + _NOTEWORTHY))
    compared = f"a lone request takes {known[spin]:.0f} µs with {spin} µs of spinning, {asleep:.0f} without"
    return Tuned("spin_us", spin if known[spin] <= _SPINS_PAY_BELOW * asleep else 0, compared)


def _buffer_budget_bytes(measurement: Measurement) -> Tuned | None:
    paced = measurement.results.get("write.paced.128KiB")
    rate = _disk_rate(measurement)
    if paced is None or rate is None:
        return None
    stall_us = paced.max_us
    wanted = rate * stall_us / 1e6
    memory_bytes = _memory_bytes(measurement.machine)
    most = (
        _BUDGET_MAX_BYTES if memory_bytes is None else min(_BUDGET_MAX_BYTES, memory_bytes // _BUDGET_SHARE_OF_MEMORY)
    )
    budget = _power_of_two(max(_BUDGET_MIN_BYTES, min(int(wanted), most)))
    why = f"the longest write took {stall_us / 1e3:.0f} ms, in which {wanted / MIB:.0f} MiB come in at the disk's rate"
    if budget < wanted:
        why += f"; bounded by memory ({(memory_bytes or 0) >> 20} MiB)"
    return Tuned("buffer_budget_bytes", budget, why)


def _tail_ring_budget_bytes(measurement: Measurement) -> Tuned | None:
    memory_bytes = _memory_bytes(measurement.machine)
    if memory_bytes is None:
        return None
    share = memory_bytes // _RINGS_SHARE_OF_MEMORY // _RING_BYTES
    count = max(_RINGS_MIN, min(_RINGS_MAX, share))
    why = f"{count} logs that are written to steadily, 32 MiB for each"
    if count == share:
        why += f"; a sixteenth of memory ({memory_bytes >> 20} MiB)"
    return Tuned("tail_ring_budget_bytes", count * _RING_BYTES, why)


_RULES: tuple[_Rule, ...] = (_reactors, _spin_us, _buffer_budget_bytes)


def _disk_rate(measurement: Measurement) -> float | None:
    """The best rate of the disk, in bytes per second."""
    rates = [measurement.rate(name) for name in ("write.direct.1MiB", "write.direct.256KiB", "write.paced.128KiB")]
    return max((rate for rate in rates if rate is not None), default=None)


def _usable_cpus(machine: Mapping[str, Any]) -> tuple[float, str]:
    """CPUs' worth of time this process may use, and what bounds it, for the sentence that names it."""
    allowed = float(machine["cpu"]["allowed_count"])
    quota = machine["control_group"]["cpu_quota"]
    if quota is not None and quota < allowed:
        return float(quota), " (the control group's quota)"
    return allowed, ""


def _memory_bytes(machine: Mapping[str, Any]) -> int | None:
    bounds = (machine["memory"]["total_bytes"], machine["control_group"]["memory_max_bytes"])
    return min((each for each in bounds if each is not None), default=None)


def _power_of_two(value: int) -> int:
    """The largest that is not above."""
    return 1 << (value.bit_length() - 1)


def tuned_profile_of(measurement: Measurement, keys: Collection[str], engines: Collection[str]) -> ProfileDocument:
    """The profile for the machine that was measured, which holds on no other."""
    tuned = tune(measurement, keys, engines)
    return ProfileDocument(
        name="tuned",
        title=f"Tuned for this machine: {measurement.machine['cpu']['model']}",
        match={name: measurement.facts[name] for name in IDENTITY if name in measurement.facts},
        settings={each.key: each.value for each in tuned},
        why={each.key: each.why for each in tuned},
    )
