"""What commands leave when they end, also when a signal ends them: no processes, no groups, no topics of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pybroker.client import groups, topics
from pybroker.client.cluster import Cluster
from tests.harness.broker import BrokerProcess

TIMEOUT_S = 60
MEASUREMENT = Path(__file__).parents[1] / "profiles/measurements/virtual-machine.json"
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    overrides = {"pybroker.profile": "generic", "group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(overrides=overrides) as started:
        yield started


def cluster_of(broker: BrokerProcess) -> Cluster:
    return Cluster([("127.0.0.1", broker.port)], timeout_seconds=TIMEOUT_S)


def topic_names(broker: BrokerProcess) -> set[str]:
    with cluster_of(broker) as cluster:
        return {each.name for each in topics.describe(cluster)}


def group_names(broker: BrokerProcess) -> set[str]:
    with cluster_of(broker) as cluster:
        return {each.name for each in groups.list_groups(cluster)}


def marked(mark: str) -> set[int]:
    """Processes with this word in their environment: a command, and all that it started."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark.encode() in (entry / "environ").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue  # it has ended
    return found


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def start(mark: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pybroker", *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "LEFT_BY": mark}
    )


def end(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """Signal it; what it said on standard error."""
    process.send_signal(number)
    try:
        return process.communicate(timeout=TIMEOUT_S)[1]
    finally:
        process.kill()


@pytest.fixture(autouse=True, scope="module")
def read_topic(broker: BrokerProcess) -> str:
    """What a run said that made what consumers read."""
    return produce(broker, "read")


def produce(broker: BrokerProcess, topic: str) -> str:
    """A short load; what it said on standard error."""
    words = ["perf", "produce", "--bootstrap", broker.bootstrap, "--topic", topic, "--seconds", "1", "--rate", "50"]
    return subprocess.run([sys.executable, "-m", "pybroker", *words], capture_output=True, text=True, check=True).stderr


def test_a_load_says_what_stays(broker: BrokerProcess, read_topic: str) -> None:
    assert "the topic read on" in read_topic and ", which was made by this run, stays and holds " in read_topic
    again = produce(broker, "read")
    assert "the topic read on" in again and ", which was there before, stays and holds " in again
    assert f"`pybroker topics delete --bootstrap-server {broker.bootstrap} --topic read` deletes it" in again


@pytest.mark.parametrize("number", SIGNALS)
def test_a_mixed_load_leaves_no_process_and_no_group(broker: BrokerProcess, number: signal.Signals) -> None:
    mark = f"mixed-{number.name}-{os.getpid()}"
    words = ["perf", "mixed", "--bootstrap", broker.bootstrap, "--topic", mark, "--seconds", "600", "--rate", "50"]
    process = start(mark, *words, "--history", "1m", "--members", "2", "--json")
    try:
        wait_for(lambda: process.poll() is not None or group_names(broker), "the group is not there")
        wait_for(lambda: len(marked(mark)) >= 5, "the members are not there")  # itself, two loads, two members
    finally:
        errors = end(process, number)
    wait_for(lambda: not marked(mark), f"processes are left: {marked(mark)}")
    wait_for(lambda: not group_names(broker), "the group is left")
    if number is signal.SIGKILL:
        return
    # Ctrl-C gives what was measured, if the members had joined by then.
    assert process.returncode in ((0, 1) if number is signal.SIGINT else (128 + number,))
    assert f"the topic {mark} on {broker.bootstrap}, which was made by this run, stays and holds " in errors
    assert f"`pybroker topics delete --bootstrap-server {broker.bootstrap} --topic {mark}` deletes it" in errors


@pytest.mark.parametrize("number", SIGNALS)
def test_every_kind_of_load_ends_with_its_command(broker: BrokerProcess, number: signal.Signals) -> None:
    """Those of one process each; with SIGKILL it is the kernel that ends them."""
    common = ["--bootstrap", broker.bootstrap, "--seconds", "600", "--quiet"]
    for kind in (["produce"], ["end-to-end", "--rate", "50"], ["consume"], ["consume", "--group", f"g-{number.name}"]):
        mark = f"{kind[0]}-{len(kind)}-{number.name}-{os.getpid()}"
        topic = "read" if kind[0] == "consume" else mark
        process = start(mark, "perf", *kind, "--topic", topic, *common)
        try:
            wait_for(lambda mark=mark: len(marked(mark)) >= 2, f"{kind}: no load is there")
        finally:
            end(process, number)
        wait_for(lambda mark=mark: not marked(mark), f"{kind}: processes are left")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_limit_deletes_its_topic(broker: BrokerProcess, number: signal.Signals) -> None:
    before = topic_names(broker)
    words = ["--bootstrap", broker.bootstrap, "--measurement", str(MEASUREMENT), "--seconds", "600"]
    process = start(f"limit-{number.name}", "profile", "limit", *words)
    try:
        wait_for(lambda: process.poll() is not None or topic_names(broker) - before, "no topic is made")
    finally:
        end(process, number)
    assert process.returncode == (-number if number is signal.SIGKILL else 128 + number)
    wait_for(lambda: topic_names(broker) == before, "the topic is left")
    wait_for(lambda: not marked(f"limit-{number.name}"), "processes are left")


def test_a_hangup_that_is_ignored_stays_so(broker: BrokerProcess) -> None:
    """As nohup has it: the load goes on."""
    mark = f"nohup-{os.getpid()}"
    words = ["perf", "produce", "--bootstrap", broker.bootstrap, "--topic", mark, "--seconds", "600", "--rate", "50"]
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = start(mark, *words, "--json")
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        wait_for(lambda: len(marked(mark)) >= 2, "no load is there")
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 128 + signal.SIGTERM
