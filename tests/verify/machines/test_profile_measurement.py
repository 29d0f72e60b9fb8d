"""The minute that `pybroker profile measure` takes by default, and what follows from it: a tuned broker, its limits."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pybroker.native.measure import crc32c_names
from pybroker.profiles.measurement.result import Measurement, from_json
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker

COMMAND = (sys.executable, "-m", "pybroker", "profile")
START_SECONDS = 5.0


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measured")


@pytest.fixture(scope="module")
def saved(directory: Path) -> Path:
    path = directory / "measurement.json"
    started = time.monotonic()
    subprocess.run([*COMMAND, "measure", "--directory", directory, "--output", path], check=True)
    assert time.monotonic() - started < 60 + START_SECONDS
    assert list(directory.iterdir()) == [path]
    return path


@pytest.fixture(scope="module")
def measurement(saved: Path) -> Measurement:
    return from_json(saved.read_text())


def test_a_minute_is_kept(measurement: Measurement) -> None:
    assert measurement.seconds <= 60


def test_figures_fit_together(measurement: Measurement) -> None:
    """By CPU and medians, which others on the machine hardly change."""
    figures = measurement.results
    per_operation = [figures[f"write.direct.{size}"].cpu_us_per_operation for size in ("4KiB", "1MiB")]
    assert 0.1 < per_operation[0] < per_operation[1] < 100 * per_operation[0]
    assert figures["read.warm.64KiB"].p50_us < figures["read.direct.1MiB"].p50_us
    assert figures["write.durable.4KiB"].p50_us > 0.8 * figures["write.direct.4KiB"].p50_us
    rates = [figures[f"crc32c.{name}.64KiB"].bytes_per_second for name in crc32c_names()]
    assert rates[0] == max(rates), "the one that is picked is the fastest"
    assert rates[-1] == min(rates)
    assert figures["copy.64KiB"].bytes_per_second > 1e9
    assert figures["receive.256KiB"].cpu_seconds_per_gb < figures["receive.1KiB"].cpu_seconds_per_gb
    assert measurement.flush.name in ("plausible", "not-sent", "too-fast", "dropped", "unknown")


def test_a_broker_starts_with_what_was_tuned_and_is_held_against_its_limits(saved: Path, directory: Path) -> None:
    tuned = directory / "profile.toml"
    subprocess.run([*COMMAND, "tune", "--measurement", saved, "--output", tuned], check=True)
    with BrokerProcess(overrides={"pybroker.profile": str(tuned)}) as broker:
        assert broker.ready.get("profile") == "tuned"
        arguments = ("--bootstrap", broker.bootstrap, "--measurement", str(saved), "--seconds", "18", "--json")
        done = subprocess.run([*COMMAND, "limit", *arguments], check=True, stdout=subprocess.PIPE, text=True)
        paths = {each["path"]: each for each in json.loads(done.stdout)["paths"]}
    assert len(paths) == 6
    for path in paths.values():
        if path["path"] == "round_trip.1KiB":
            assert path["limit_p50_us"] > 0
        else:
            # Nothing costs less than the least, but for the noise between two runs.
            assert 0 < path["cpu_share"] < 1.5


def test_apache_kafka_is_held_against_the_same_limits(saved: Path) -> None:
    with KafkaBroker() as kafka:
        arguments = ("--bootstrap", kafka.bootstrap, "--measurement", str(saved), "--seconds", "12", "--json")
        done = subprocess.run([*COMMAND, "limit", *arguments], check=True, stdout=subprocess.PIPE, text=True)
    paths = json.loads(done.stdout)["paths"]
    assert len(paths) == 6
    assert all(each["cpu_seconds_per_gb"] > 0 for each in paths)
