"""What durable acks cost: a produce beside a plain synced write to the same disk, group commit, and large batches.

A disk's moods change by the second, so plain writes and loads take turns, and medians are compared. The figures are
printed; what is asserted is the ratio.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.harness.broker import BrokerProcess
from tests.harness.fixtures import backends

REPOSITORY = Path(__file__).resolve().parents[3]
PBLOAD = REPOSITORY / "build" / "load" / "pbload"
ROUNDS = 7
WRITE_BYTES = 1200
"""A batch with one record of 1 KiB."""
LOADS = {
    "one": ("--batch-bytes", str(WRITE_BYTES), "--record-bytes", "1024"),
    "sixteen": ("--batch-bytes", str(WRITE_BYTES), "--record-bytes", "1024", "--connections", "16"),
    "many": (
        *("--batch-bytes", str(WRITE_BYTES), "--record-bytes", "1024"),
        *("--connections", "64", "--partitions", "64"),
    ),
    "large": ("--batch-bytes", "262144", "--in-flight", "5"),
}


@pytest.fixture(scope="module")
def pbload() -> Path:
    subprocess.run(["make", "-C", str(REPOSITORY / "bench" / "load")], check=True, stdout=subprocess.DEVNULL)
    return PBLOAD


@pytest.fixture
def directory() -> Iterator[Path]:
    """On the disk of the checkout: /tmp may be memory."""
    with tempfile.TemporaryDirectory(dir=REPOSITORY / "build") as path:
        yield Path(path)


def synced_write_us(directory: Path, seconds: float = 1.0) -> float:
    """Median time of an append with RWF_DSYNC, one after the other."""
    path = directory / "plain"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    block = os.urandom(WRITE_BYTES)
    taken_ns: list[int] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        started_ns = time.perf_counter_ns()
        os.pwritev(descriptor, [block], len(taken_ns) * WRITE_BYTES, os.RWF_DSYNC)
        taken_ns.append(time.perf_counter_ns() - started_ns)
    os.close(descriptor)
    path.unlink()
    return median(taken_ns) / 1000


def load(pbload: Path, broker: BrokerProcess, name: str) -> dict[str, float]:
    command = [str(pbload), "produce", "--port", str(broker.port), "--topic", name, "--seconds", "1", *LOADS[name]]
    done = subprocess.run(
        [*command, "--topic-config", "pybroker.durability=acks"], check=True, capture_output=True, text=True
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["errors"] == {}
    return {"p50_us": result["latency_us"]["p50"], "per_s": result["requests_per_s"], "mb_per_s": result["mb_per_s"]}


@pytest.mark.parametrize("io_backend", backends())
def test_a_durable_produce_takes_at_most_two_synced_writes(pbload: Path, directory: Path, io_backend: str) -> None:
    plain: list[float] = []
    loads: dict[str, list[dict[str, float]]] = {name: [] for name in LOADS}
    with BrokerProcess(directory / "data", overrides={"pybroker.io.backend": io_backend}) as broker:
        for _ in range(ROUNDS):
            plain.append(synced_write_us(directory))
            for name, results in loads.items():
                results.append(load(pbload, broker, name))
    plain_us, one_us = median(plain), median(each["p50_us"] for each in loads["one"])
    print(
        f"\n{io_backend}: synced write p50 {plain_us:.0f} us; produce of 1 KiB p50 {one_us:.0f} us; 16 connections "
        f"{median(each['per_s'] for each in loads['sixteen']):.0f}/s; 64 over 64 partitions p50 "
        f"{median(each['p50_us'] for each in loads['many']):.0f} us; 256 KiB batches "
        f"{median(each['mb_per_s'] for each in loads['large']):.0f} MB/s"
    )
    assert one_us <= 2 * plain_us
