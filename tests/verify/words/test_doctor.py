"""`pybroker doctor` names what needs root, mounts or a loaded broker to go wrong: disks without room, read-only ones,
memory in the place of disks, tail rings that a kill has left, a port that never answers. The rest: tests/unit/doctor.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from pybroker.storage.rings.tail_rings import RING_BYTES, RingSession
from tests.harness.broker import BrokerProcess
from tests.harness.process import free_port
from tests.harness.small_disk import mounted_disk, mounted_ext4

TIMEOUT_S = 120
MEBIBYTE = 1 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def examined(*settings: str, bootstrap: str | None = None) -> dict[str, dict[str, str]]:
    """The command's findings by kind; its exit status goes with them."""
    values = (f"listeners=PLAINTEXT://127.0.0.1:{free_port()}", "pybroker.metrics.listener=127.0.0.1:0", *settings)
    command = [sys.executable, "-m", "pybroker", "doctor", "--json"]
    command += [part for each in values for part in ("--override", each)]
    command += [] if bootstrap is None else ["--bootstrap", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)["findings"]
    assert done.returncode == any(each["severity"] in ("error", "warning") for each in found)
    first: dict[str, dict[str, str]] = {}
    for each in found:
        first.setdefault(each["kind"], each)
    return first


def fixed(*settings: str) -> list[dict[str, str]]:
    """The rings that `--fix` says it has removed, those with records among them."""
    command = [sys.executable, "-m", "pybroker", "doctor", "--json", "--fix", "--include-filled"]
    for each in (f"listeners=PLAINTEXT://127.0.0.1:{free_port()}", "pybroker.metrics.listener=127.0.0.1:0", *settings):
        command += ["--override", each]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    removed: list[dict[str, str]] = json.loads(done.stdout)["removed"]
    return removed


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "small", "128m") as path:
        yield path


def leave_free(path: Path, size_bytes: int) -> None:
    status = os.statvfs(path)
    with open(path / "ballast", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, status.f_bavail * status.f_frsize - size_bytes)


@needs_root
@pytest.mark.parametrize(("free_bytes", "kind"), [(64 << 10, "disk-full"), (5 * MEBIBYTE, "disk-nearly-full")])
def test_a_disk_without_room(small_disk: Path, free_bytes: int, kind: str) -> None:
    assert not {"disk-full", "disk-nearly-full"} & examined(f"log.dirs={small_disk}").keys()
    leave_free(small_disk, free_bytes)
    found = examined(f"log.dirs={small_disk}")
    assert {"disk-full", "disk-nearly-full"} & found.keys() == {kind}
    assert str(small_disk) in found[kind]["what"]


@needs_root
def test_a_disk_without_inodes(small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,nr_inodes=50", str(small_disk)], check=True)
    assert "inodes" not in examined(f"log.dirs={small_disk}")
    for number in range(os.statvfs(small_disk).f_favail):
        (small_disk / str(number)).touch()
    assert examined(f"log.dirs={small_disk}")["inodes"]["severity"] == "error"


@needs_root
def test_a_read_only_file_system_and_one_in_memory(small_disk: Path) -> None:
    assert "log-dir-in-memory" in examined(f"log.dirs={small_disk}")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    found = examined(f"log.dirs={small_disk}")
    assert "read-only" in found
    assert "log-dir-not-writable" not in found
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)


@needs_root
def test_a_tmpfs_too_small_for_tail_rings(small_disk: Path, tmp_path: Path) -> None:
    settings = [f"log.dirs={tmp_path / 'data'}", "pybroker.append.engine=direct"]
    rings = f"pybroker.tail.ring.directory={small_disk}"
    enough = examined(*settings, rings, f"pybroker.tail.ring.budget.bytes={RING_BYTES}")
    assert "tail-ring-storage" not in enough
    leave_free(small_disk, 8 * MEBIBYTE)
    found = examined(*settings, rings, f"pybroker.tail.ring.budget.bytes={RING_BYTES}")
    assert "tail rings may take" in found["tail-ring-storage"]["what"]
    missing = examined(*settings, f"pybroker.tail.ring.directory={tmp_path / 'none'}")
    assert missing["tail-ring-storage"]["severity"] == "error"


def test_a_port_that_takes_connections_and_never_answers(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        found = examined(f"log.dirs={tmp_path / 'data'}", bootstrap=address)
    assert "took too long" in found["broker-unreachable"]["what"]


def test_a_control_loop_that_stands_still(tmp_path: Path) -> None:
    go_on, metrics = tmp_path / "go-on", f"127.0.0.1:{free_port()}"
    broker = BrokerProcess(
        tmp_path / "data",
        overrides={"pybroker.metrics.listener": metrics},
        env={"PYBROKER_BLOCK_UNTIL": str(go_on)},
        module="tests.harness.serve_holding_gil",
    )
    settings = (
        f"log.dirs={broker.log_dir}",
        f"listeners=PLAINTEXT://127.0.0.1:{broker.port}",
        f"pybroker.metrics.listener={metrics}",
    )
    with broker:
        assert not {"broker-not-ready", "broker-not-answering"} & examined(*settings).keys()
        broker.process.signal(signal.SIGUSR2)
        broker.process.wait_for_line(lambda line: True if "stands still" in line else None, TIMEOUT_S)
        found = examined(*settings)
        go_on.touch()
    assert "control loop" in found["broker-not-ready"]["what"]


def test_damage_beneath_a_running_broker(tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    overrides = {
        "pybroker.metrics.listener": metrics,
        "log.segment.bytes": str(MEBIBYTE),
        "pybroker.scrub.interval.ms": "1",
        "pybroker.scrub.bytes.per.second": str(1 << 30),
    }
    with BrokerProcess(tmp_path / "data", overrides=overrides) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for _ in range(30):
            producer.produce("t", os.urandom(100_000), partition=0)
            assert producer.flush(30) == 0
        with open(broker.log_dir / "t-0" / f"{0:020}.log", "r+b") as log:
            log.seek(200_000)
            log.write(bytes(100))
        deadline = time.monotonic() + TIMEOUT_S
        while not _is_counted(metrics, "pybroker_scrub_findings_total"):
            assert time.monotonic() < deadline, "the scrub has found nothing"
            time.sleep(0.2)
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{broker.port}"
        found = examined(f"log.dirs={broker.log_dir}", listeners, f"pybroker.metrics.listener={metrics}")
    assert "damage in " in found["scrub-findings"]["what"]


def test_a_log_that_the_cleaner_has_given_up_on(tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    overrides = {"pybroker.metrics.listener": metrics, "log.cleaner.backoff.ms": "100"}
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": str(MEBIBYTE)}
    with BrokerProcess(tmp_path / "data", overrides=overrides) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        later = {"min.compaction.lag.ms": "86400000"}
        admin.create_topics([NewTopic("t", 1, 1, config={**compacted, **later})])["t"].result(60)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(30):
            producer.produce("t", os.urandom(100_000), key=str(number), partition=0)
            assert producer.flush(30) == 0
        with open(broker.log_dir / "t-0" / f"{0:020}.log", "r+b") as log:
            log.seek(200_000)
            log.write(bytes(100))
        at_once = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[at_once])
        admin.incremental_alter_configs([resource])[resource].result(60)
        deadline = time.monotonic() + TIMEOUT_S
        while not _is_counted(metrics, "pybroker_cleaner_uncleanable_logs"):
            assert time.monotonic() < deadline, "the cleaner has not given up"
            time.sleep(0.2)
        listeners = f"listeners=PLAINTEXT://127.0.0.1:{broker.port}"
        found = examined(f"log.dirs={broker.log_dir}", listeners, f"pybroker.metrics.listener={metrics}")
    assert "given up on 1 logs" in found["uncleanable-logs"]["what"]


@needs_root
def test_rings_that_a_killed_broker_has_left(tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    overrides = {
        "pybroker.append.engine": "direct",
        "pybroker.tail.ring.budget.bytes": str(2 * RING_BYTES),
        "pybroker.tail.ring.hot.bytes.per.second": "1",
        "pybroker.metrics.listener": metrics,
    }
    with mounted_disk(tmp_path / "shm", str(4 * RING_BYTES)) as shm:
        overrides["pybroker.tail.ring.directory"] = str(shm)
        broker = BrokerProcess(tmp_path / "data", overrides=overrides)
        try:
            _make_hot(broker, metrics)
        finally:
            broker.kill()
        settings = [f"{key}={value}" for key, value in overrides.items()]
        found = examined(f"log.dirs={broker.log_dir}", *settings)
        assert {"unclean-stop", "tail-ring-left"} <= found.keys()
        assert "tail-rings-unclaimed" not in found
        session = RingSession.read(broker.log_dir)
        assert session is not None
        shutil.rmtree(session.directory)
        assert "tail-rings-lost" in examined(f"log.dirs={broker.log_dir}", *settings)


@needs_root
def test_rings_of_a_broker_whose_log_dir_is_gone(tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    with mounted_disk(tmp_path / "shm", str(4 * RING_BYTES)) as shm:
        rings = {"pybroker.append.engine": "direct", "pybroker.tail.ring.directory": str(shm)}
        rings["pybroker.tail.ring.budget.bytes"] = str(2 * RING_BYTES)
        hot = {"pybroker.tail.ring.hot.bytes.per.second": "1", "pybroker.metrics.listener": metrics}
        settings = [f"log.dirs={tmp_path / 'another'}", *(f"{key}={value}" for key, value in rings.items())]
        broker = BrokerProcess(tmp_path / "data", overrides={**rings, **hot})
        try:
            _make_hot(broker, metrics)
            assert "tail-rings-unclaimed" not in examined(*settings)
        finally:
            broker.kill()
        left = examined(*settings)["tail-rings-waiting"]
        (directory,) = shm.iterdir()
        assert left["subject"] == str(directory)
        assert f"replayed by the next start of the broker of {broker.log_dir}" in left["what"]
        again = BrokerProcess(broker.log_dir, overrides={**rings, **hot})
        try:
            _make_hot(again, metrics)
            assert fixed(*settings) == [], "its broker uses them"
        finally:
            again.kill()
        shutil.rmtree(broker.log_dir)
        assert "tail-rings-orphaned" in examined(*settings)
        removed = fixed(*settings)
        assert {each["log_dir"] for each in removed} == {str(broker.log_dir)}
        assert {each["problem"] for each in removed} == {""}
        assert not directory.exists()
        assert not {kind for kind in examined(*settings) if kind.startswith("tail-rings-")}


@needs_root
def test_rings_of_a_broker_whose_disk_is_not_mounted(tmp_path: Path) -> None:
    """Neither an empty mount point nor a missing one is a deleted log dir."""
    metrics = f"127.0.0.1:{free_port()}"
    with mounted_disk(tmp_path / "shm", str(4 * RING_BYTES)) as shm:
        rings = {"pybroker.append.engine": "direct", "pybroker.tail.ring.directory": str(shm)}
        rings["pybroker.tail.ring.budget.bytes"] = str(2 * RING_BYTES)
        hot = {"pybroker.tail.ring.hot.bytes.per.second": "1", "pybroker.metrics.listener": metrics}
        settings = [f"log.dirs={tmp_path / 'another'}", *(f"{key}={value}" for key, value in rings.items())]
        disk = tmp_path / "disk"
        with mounted_ext4(disk, 512):
            broker = BrokerProcess(disk / "data", overrides={**rings, **hot})
            try:
                _make_hot(broker, metrics)
            finally:
                broker.kill()
            assert "tail-rings-waiting" in examined(*settings)
        (directory,) = shm.iterdir()
        left = set(directory.iterdir())
        for _ in ("unmounted", "without a mount point"):
            assert "tail-rings-unclaimed" in examined(*settings)
            assert fixed(*settings) == []
            assert set(directory.iterdir()) == left
            if disk.exists():
                disk.rmdir()


def _make_hot(broker: BrokerProcess, metrics: str) -> None:
    """Produce until the log has a tail ring, and once more."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    deadline = time.monotonic() + 60
    while not _is_counted(metrics, "pybroker_hot_logs"):
        assert time.monotonic() < deadline, "no log has become hot"
        for _ in range(50):
            producer.produce("hot", bytes(1000))
            assert producer.flush(30) == 0
    producer.produce("hot", bytes(1000))
    assert producer.flush(30) == 0


def _is_counted(metrics: str, name: str) -> bool:
    """Whether that metric is more than 0."""
    with urlopen(f"http://{metrics}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return any(line.startswith(f"{name} ") and float(line.split()[1]) > 0 for line in lines)
