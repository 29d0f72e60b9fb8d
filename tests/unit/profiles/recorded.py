"""Measurements to judge by: one that was recorded, and what other disks would make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pybroker.profiles.measurement.result import Figures, Measurement, from_json

_MEASUREMENTS = Path(__file__).parent / "measurements"


def recorded(name: str) -> Measurement:
    """A measurement as it was saved."""
    return from_json((_MEASUREMENTS / f"{name}.json").read_text())


def changed(measurement: Measurement, **runs: dict[str, float]) -> Measurement:
    """The same with other figures: of the run `write.direct.4KiB`, say, by `write_direct_4KiB={"p50_us": 9.0}`."""
    results: dict[str, Figures] = dict(measurement.results)
    for run, figures in runs.items():
        name = run.replace("_", ".", run.count("_"))
        values: dict[str, Any] = dict(figures)
        results[name] = results[name].replace(**values)
    return measurement.replace(results=results)


def without(measurement: Measurement, *prefixes: str) -> Measurement:
    """The same as if runs of those names had not been made."""
    results = {name: each for name, each in measurement.results.items() if not name.startswith(prefixes)}
    return measurement.replace(results=results)


def on_machine(measurement: Measurement, **parts: dict[str, Any]) -> Measurement:
    """The same on a machine of which these facts differ: `cpu={"allowed_count": 16}`."""
    machine = {
        name: {**part, **parts.get(name, {})} if isinstance(part, dict) else part
        for name, part in measurement.machine.items()
    }
    return measurement.replace(machine=machine)


def nvme_like() -> Measurement:
    """A fast drive in a machine with 16 CPUs and 64 GiB."""
    fast = changed(
        recorded("virtual-machine"),
        write_fresh_1MiB={"bytes_per_second": 4.5e9, "cpu_seconds_per_gb": 0.04},
        write_direct_256KiB={"bytes_per_second": 3.6e9, "cpu_seconds_per_gb": 0.06},
        write_direct_1MiB={"bytes_per_second": 4.8e9, "cpu_seconds_per_gb": 0.04},
        write_paced_128KiB={"bytes_per_second": 1.9e9, "cpu_seconds_per_gb": 0.55, "max_us": 90_000.0},
        receive_1KiB={"cpu_seconds_per_gb": 4.0},
    )
    spins = {0: 24.0, 20: 11.0, 50: 10.5, 100: 10.4}
    results = dict(fast.results)
    for spin, p50_us in spins.items():
        results[f"round_trip.spin_{spin}us"] = results[f"round_trip.spin_{spin}us"].replace(p50_us=p50_us)
    return on_machine(
        fast.replace(results=results), cpu={"allowed_count": 16, "online_count": 16}, memory={"total_bytes": 64 << 30}
    )


def hdd_like() -> Measurement:
    """A disk that turns, in a small machine with 4 CPUs and 8 GiB."""
    slow = changed(
        recorded("virtual-machine"),
        write_fresh_1MiB={"bytes_per_second": 95e6},
        write_direct_256KiB={"bytes_per_second": 60e6, "cpu_seconds_per_gb": 0.1},
        write_direct_1MiB={"bytes_per_second": 110e6},
        write_paced_128KiB={"bytes_per_second": 160e6, "cpu_seconds_per_gb": 0.6, "max_us": 900_000.0},
        read_random_4KiB={"p50_us": 9_000.0},
    )
    return on_machine(slow, cpu={"allowed_count": 4, "online_count": 4}, memory={"total_bytes": 8 << 30})
