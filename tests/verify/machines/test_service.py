"""The service on a machine that systemd runs: it is installed, ready only when serving, restarted when it stands still,
killed and stopped; and its sandbox, as systemd's own tools see it.

The machine has this one's programs, and pybroker installed from a wheel as on anybody's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pybroker.service.deployment import PROPERTIES, UNIT
from pybroker.storage.files import clean_shutdown
from tests.harness.booted_machine import BootedMachine, overlay_of_this_machine
from tests.harness.fixtures import io_uring_allowed
from tests.harness.thread_stop import stopped_thread, thread_id
from tests.harness.waiting import until

REPOSITORY = Path(__file__).resolve().parents[3]
SHIPPED_UNIT = REPOSITORY / "deploy" / UNIT
PROGRAM = "/opt/pybroker/bin/pybroker"
MOST_EXPOSURE = 2.0
WATCHDOG_S = 3
TIMEOUT_S = 60
CAP_SYS_RESOURCE = 24

PRODUCE = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": "127.0.0.1:9092"})
for number in range(int(sys.argv[1])):
    producer.produce("service", str(number).encode(), partition=0)
assert producer.flush(60) == 0
"""
COUNT = """
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "count"})
print(consumer.get_watermark_offsets(TopicPartition("service", 0), timeout=60)[1])
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedMachine]:
    directory = tmp_path_factory.mktemp("machine")
    wheel = build_wheel(directory)
    with overlay_of_this_machine(directory) as root:
        (root / "var/tmp" / wheel.name).write_bytes(wheel.read_bytes())
        booted = BootedMachine(root, f"pybroker-{os.getpid()}")
        try:
            # An interpreter that no home hides from the service.
            booted.run("/usr/bin/python3", "-m", "venv", "/opt/pybroker")
            booted.run_with_our_network("/opt/pybroker/bin/pip", "install", "-q", f"/var/tmp/{wheel.name}")
            yield booted
        finally:
            booted.power_off()


def build_wheel(directory: Path) -> Path:
    tree = directory / "tree"
    names = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes((REPOSITORY / name).read_bytes())
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(directory),
        str(tree),
    ]
    subprocess.run(command, check=True)
    (wheel,) = directory.glob("pybroker-*.whl")
    return wheel


@pytest.fixture
def service(machine: BootedMachine) -> BootedMachine:
    """With the broker installed and running, its newest records in tail rings, and little patience with it."""
    machine.run(PROGRAM, "service", "install", "--yes")
    properties = machine.root / PROPERTIES.relative_to("/")
    if "direct" not in properties.read_text():
        properties.write_text(properties.read_text() + "pybroker.append.engine=direct\n")
    drop_in = machine.root / f"etc/systemd/system/{UNIT}.d/90-test.conf"
    drop_in.write_text(f"[Service]\nWatchdogSec={WATCHDOG_S}s\n[Unit]\nStartLimitIntervalSec=0\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", UNIT)
    return machine


def known(machine: BootedMachine, name: str) -> str:
    """A property of the unit."""
    return machine.run("systemctl", "show", UNIT, f"--property={name}", "--value").strip()


def may_raise_limits() -> bool:
    """Whether this machine lets that one have more than it has itself."""
    capabilities = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:")
    )
    return bool(int(capabilities.split()[1], 16) >> CAP_SYS_RESOURCE & 1)


def produce(machine: BootedMachine, count: int) -> None:
    machine.run_on_its_network(sys.executable, "-c", PRODUCE, str(count))


def record_count(machine: BootedMachine) -> int:
    return int(machine.run_on_its_network(sys.executable, "-c", COUNT))


def test_started_is_serving_within_its_sandbox(service: BootedMachine) -> None:
    # `systemctl start` has returned, so clients are served.
    before = record_count(service) if "service" in service.run("ls", "/var/lib/pybroker") else 0
    produce(service, 1000)
    assert record_count(service) == before + 1000
    assert known(service, "StatusText").startswith("serving ")
    process = known(service, "MainPID")
    assert service.run("stat", "-c", "%U", f"/proc/{process}").strip() == "pybroker"
    limits = service.run("cat", f"/proc/{process}/limits")
    if may_raise_limits():
        assert "Max realtime priority     1 " in limits
        assert "Max locked memory         unlimited" in limits
    (ready,) = [
        line
        for line in service.run("journalctl", "-b", "-u", UNIT, "-o", "cat", f"_PID={process}").splitlines()
        if line.startswith("pybroker ready ")
    ]
    assert f" io={'io_uring' if io_uring_allowed() else 'epoll'} " in ready
    assert " engine=direct " in ready
    status, told = service.status_of(PROGRAM, "service", "status", "--json")
    assert status == 0
    assert json.loads(told)["manager"]["StatusText"].startswith("serving ")


def test_a_reload_is_over_when_systemctl_returns(service: BootedMachine) -> None:
    process = known(service, "MainPID")
    service.run("systemctl", "reload", UNIT)
    assert (known(service, "ActiveState"), known(service, "MainPID")) == ("active", process)
    until(lambda: "SIGHUP: " in service.run("journalctl", "-b", f"_PID={process}", "-o", "cat"), "it has reloaded")


@pytest.mark.parametrize("thread", ["pb-reactor-0", "pybroker"], ids=["data-plane", "control-loop"])
def test_a_broker_that_stands_still_is_restarted_and_loses_nothing(service: BootedMachine, thread: str) -> None:
    produce(service, 1000)
    before = record_count(service)
    restarts, process = int(known(service, "NRestarts")), int(known(service, "MainPID"))
    with stopped_thread(thread_id(service.process_here(process), thread)) as has_ended:
        until(has_ended, "systemd ends it")
    until(lambda: int(known(service, "NRestarts")) > restarts, "systemd starts it again")
    until(lambda: known(service, "ActiveState") == "active", "it serves again")
    assert "Watchdog timeout" in service.run("journalctl", "-b", "-u", UNIT, "-o", "cat")
    assert record_count(service) == before


def test_a_killed_broker_is_restarted_and_loses_nothing(service: BootedMachine) -> None:
    produce(service, 1000)
    before = record_count(service)
    restarts = int(known(service, "NRestarts"))
    service.run("systemctl", "kill", "--signal=SIGKILL", UNIT)
    until(lambda: int(known(service, "NRestarts")) > restarts, "systemd restarts it")
    until(lambda: known(service, "ActiveState") == "active", "it serves again")
    assert record_count(service) == before


def test_a_configuration_that_is_not_accepted_is_not_tried_again(service: BootedMachine) -> None:
    properties = service.root / PROPERTIES.relative_to("/")
    good = properties.read_text()
    properties.write_text(good + "log.cleanup.policy=sometimes\n")
    try:
        assert service.status_of("systemctl", "restart", UNIT)[0] != 0
        until(lambda: known(service, "ActiveState") == "failed", "it stays down")
        assert known(service, "ExecMainStatus") == "2"
        assert service.status_of(PROGRAM, "service", "status")[0] == 3
    finally:
        properties.write_text(good)


def test_a_clean_stop_and_what_uninstalling_leaves(service: BootedMachine) -> None:
    produce(service, 10)
    service.run("systemctl", "stop", UNIT)
    assert known(service, "Result") == "success"
    data = service.root / "var/lib/pybroker"
    assert clean_shutdown.read(data) is not None
    service.run("systemctl", "start", UNIT)
    service.run(PROGRAM, "service", "uninstall", "--yes")
    status, _ = service.status_of(PROGRAM, "service", "status")
    assert status == 4
    assert clean_shutdown.read(data) is not None, "it was stopped first, in order"
    assert (data / "service-0").is_dir()
    assert (service.root / PROPERTIES.relative_to("/")).exists()


# ---- the unit alone --------------------------------------------------------------------------------------------------


def test_the_units_exposure() -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--json=short", str(SHIPPED_UNIT)]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    exposed = {row["json_field"] for row in rows if row["exposure"] not in (None, "")}
    assert "SystemCallFilter_resources" in exposed, "threads get their priorities and places by these calls"
    threshold = ["--threshold", str(int(MOST_EXPOSURE * 10))]
    done = subprocess.run([*command[:-2], *threshold, str(SHIPPED_UNIT)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_unit_is_well_formed(tmp_path: Path) -> None:
    program = tmp_path / "pybroker"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT
    unit.write_text(SHIPPED_UNIT.read_text().replace(PROGRAM, str(program)))
    for profile in sorted((REPOSITORY / "deploy" / "profiles").glob("*.conf")):
        drop_ins = tmp_path / f"{UNIT}.d"
        drop_ins.mkdir(exist_ok=True)
        (drop_ins / "50-profile.conf").write_text(profile.read_text())
        done = subprocess.run(["systemd-analyze", "verify", str(unit)], check=False, capture_output=True, text=True)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), profile.name
