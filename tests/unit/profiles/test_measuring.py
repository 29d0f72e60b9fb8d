"""A whole measurement in a second, its JSON, and how it ends before its time."""

from __future__ import annotations

import json
import os
from collections import namedtuple
from pathlib import Path

import pytest
from recorded import recorded

from pybroker.native.measure import Stop, crc32c_names
from pybroker.profiles.facts import read_machine
from pybroker.profiles.measured import measured_medium
from pybroker.profiles.measurement import plan
from pybroker.profiles.measurement.result import SCHEMA, Measurement, MeasurementError, from_json
from pybroker.profiles.measurement.run import Measuring


def measuring(directory: Path, seconds: float, stop: Stop | None = None) -> Measuring:
    return Measuring(directory, read_machine([directory]), "auto", seconds, stop or Stop())


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Measurement, list[tuple[str, float]]]:
    reports: list[tuple[str, float]] = []
    directory = tmp_path_factory.mktemp("disk")
    measurement = measuring(directory, 0.5).run(lambda name, share: reports.append((name, share)))
    assert list(directory.iterdir()) == []
    return measurement, reports


def test_every_run_of_the_plan_is_made(measured: tuple[Measurement, list[tuple[str, float]]]) -> None:
    measurement, reports = measured
    steps = [*plan.disk_steps(4 * plan.MIB, True), *plan.cpu_steps(crc32c_names()), *plan.loopback_steps(4 * plan.MIB)]
    assert set(measurement.results) == {plan.FILL_NAME, "read.mixed.1MiB", *(step.name for step in steps)}
    shares = [share for _, share in reports]
    assert shares == sorted(shares)
    assert reports[-1] == ("done", 1.0)
    for name, figures in measurement.results.items():
        assert figures.operations > 0, name
        assert 0 < figures.min_us <= figures.p50_us <= figures.p99_us <= figures.max_us, name
        assert (figures.cpu_seconds_per_gb is None) == (name == "sync.4KiB"), name


def test_it_survives_its_file(measured: tuple[Measurement, list[tuple[str, float]]]) -> None:
    assert from_json(measured[0].to_json()) == measured[0]


def test_what_detect_wants_of_it(tmp_path: Path) -> None:
    saved = tmp_path / "var/lib/pybroker/measurement.json"
    saved.parent.mkdir(parents=True)
    machine = read_machine([tmp_path])
    measurement = recorded("virtual-machine").replace(
        machine=machine.as_dict(),
        medium=recorded("virtual-machine").medium.replace(name="flash"),
    )
    saved.write_text(measurement.to_json())
    medium = measured_medium(tmp_path, machine)
    if machine.storage and machine.storage[0].disks:
        assert medium is not None
        assert (medium.name, medium.path) == ("flash", saved)


def test_the_schema_is_this_one() -> None:
    """Raise SCHEMA and record anew when this fails: files of users would be read wrongly."""
    saved = json.loads(recorded("virtual-machine").to_json())
    assert saved["schema"] == SCHEMA == 1
    assert list(saved) == [
        *("schema", "made_at", "made_by", "seconds", "directory", "io_backend", "region_bytes", "facts", "machine"),
        *("medium", "flush", "notes", "results"),
    ]
    assert set(saved["results"]["write.direct.4KiB"]) == {
        *("what", "operations", "bytes", "seconds", "bytes_per_second", "operations_per_second"),
        *("cpu_us_per_operation", "cpu_seconds_per_gb", "min_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"),
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("[]", "no schema"),
        ('{"schema": 99}', "this version reads 1"),
        ('{"schema": 1}', "not a whole measurement"),
        ('{"schema": 1, "results": {"x": {"what": 3}}}', "x.what is 3"),
    ],
)
def test_what_is_no_measurement_is_told(text: str, why: str) -> None:
    with pytest.raises(MeasurementError, match=why):
        from_json(text)


def test_a_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    stop = Stop()

    def stop_at_reads(name: str, share: float) -> None:
        if name == "read.direct.1MiB":
            stop.set()

    with pytest.raises(MeasurementError, match="stopped"):
        measuring(tmp_path, 0.5, stop).run(stop_at_reads)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_not_filled_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = namedtuple("status", ("f_bavail", "f_frsize"))
    monkeypatch.setattr(os, "statvfs", lambda path: status(5 << 20, 1))
    with pytest.raises(MeasurementError, match="5 MiB free; measuring needs 48 MiB"):
        measuring(tmp_path, 0.5).run(lambda name, share: None)
    assert list(tmp_path.iterdir()) == []
