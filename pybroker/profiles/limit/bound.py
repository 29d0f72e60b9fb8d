"""The least that a path can cost on a machine, put together from what was measured on it. Pure.

A broker has to receive or send every byte, check its CRC, and have it written. So it cannot be faster than the slowest
of these alone, nor cheaper than all of them together. The bounds are of one disk, one thread at the network, and the
same client.
"""

from __future__ import annotations

from dataclasses import dataclass

from pybroker.profiles.limit.load import FetchPath, ProducePath
from pybroker.profiles.measurement.plan import SPINS_US, size_name
from pybroker.profiles.measurement.result import Measurement

_DURABLE = ("write.durable.256KiB", "write.durable.64KiB")
_WRITTEN = ("write.direct.1MiB", "write.direct.256KiB", "write.fresh.1MiB", "write.paced.128KiB")


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit that no broker can pass. None: the measurement has nothing to say."""

    bytes_per_second: float | None
    #: The run that sets the limit.
    bound_by: str | None
    cpu_seconds_per_gb: float | None
    p50_us: float | None


def bound_of(path: ProducePath | FetchPath, measurement: Measurement, *, is_durable: bool) -> Bound:
    """The bound of a path; `is_durable`: acknowledgements wait for the disk."""
    if isinstance(path, FetchPath):
        run = f"send.{size_name(path.fetch_bytes)}"
        return Bound(measurement.rate(run), run, measurement.cpu(run), None)
    written = _DURABLE if is_durable else _WRITTEN
    if path.connection_count * path.in_flight == 1:
        return Bound(None, None, None, _round_trip_us(measurement, is_durable=is_durable))
    received = f"receive.{size_name(path.batch_bytes)}"
    disk = _best(measurement, written)
    rates = {
        name: rate for name in (received, disk) if name is not None and (rate := measurement.rate(name)) is not None
    }
    slowest = min(rates, key=rates.__getitem__, default=None)
    costs = [measurement.cpu(received), _least_cpu(measurement, written), _least_cpu(measurement, _crc32c(measurement))]
    known = [each for each in costs if each is not None]
    return Bound(
        None if slowest is None else rates[slowest],
        slowest,
        sum(known) if len(known) == len(costs) else None,
        None,
    )


def _round_trip_us(measurement: Measurement, *, is_durable: bool) -> float | None:
    trips = [measurement.p50_us(f"round_trip.spin_{spin}us") for spin in SPINS_US]
    least = min((each for each in trips if each is not None), default=None)
    if least is None or not is_durable:
        return least
    durable = measurement.p50_us("write.durable.4KiB")
    return None if durable is None else least + durable


def _best(measurement: Measurement, names: tuple[str, ...]) -> str | None:
    known = [name for name in names if name in measurement.results]
    return max(known, key=lambda name: measurement.results[name].bytes_per_second, default=None)


def _least_cpu(measurement: Measurement, names: tuple[str, ...]) -> float | None:
    return min((cost for name in names if (cost := measurement.cpu(name)) is not None), default=None)


def _crc32c(measurement: Measurement) -> tuple[str, ...]:
    return tuple(name for name in measurement.results if name.startswith("crc32c."))
