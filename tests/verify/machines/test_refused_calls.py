"""Where containers, hardened machines and old kernels refuse system calls, the broker serves by others and says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.harness.broker import BrokerProcess
from tests.harness.process import ProcessFailed

REPOSITORY = Path(__file__).resolve().parents[3]
UNDER_A_FILTER = [sys.executable, "-m", "pybroker.testing.seccomp"]
WITHOUT_IO_URING = ["io_uring_setup=EPERM"]
#: As before Linux 6.5, without what told residency before it either, and as before 6.14.
AN_OLDER_KERNEL = [
    "cachestat=ENOSYS",
    "preadv2:RWF_NOWAIT=EOPNOTSUPP",
    "preadv2:RWF_DONTCACHE=EOPNOTSUPP",
    "pwritev2:RWF_DONTCACHE=EOPNOTSUPP",
]
VALUES = [os.urandom(100_000) for _ in range(200)]
TIMEOUT_S = 600


@pytest.mark.parametrize("rules", [WITHOUT_IO_URING, AN_OLDER_KERNEL], ids=["no-io_uring", "older-kernel"])
def test_all_client_tests_pass(rules: list[str]) -> None:
    """Clients and brokers live beneath one filter."""
    command = [*UNDER_A_FILTER, *rules, "--", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "tests/clients"], cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("io_uring_setup=EPERM", "forbidden, by kernel.io_uring_disabled or by a seccomp filter"),
        ("io_uring_setup=ENOSYS", "no io_uring, or a seccomp filter hides it"),
        ("io_uring_register=EPERM", "forbidden"),
        ("io_uring_enter=EPERM", "forbidden"),
    ],
)
def test_it_starts_on_epoll_and_says_why(rule: str, words: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", command_prefix=[*UNDER_A_FILTER, rule, "--"]) as broker:
        assert broker.ready.get("io") == "epoll"
        told = [line for line in broker.output_path.read_text().splitlines() if "I/O backend epoll" in line]
        assert len(told) == 1
        assert words in told[0]


def test_io_uring_that_was_asked_for_and_is_refused_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match="io_uring is forbidden"):
        BrokerProcess(
            tmp_path / "data",
            command_prefix=[*UNDER_A_FILTER, *WITHOUT_IO_URING, "--"],
            overrides={"pybroker.io.backend": "io_uring"},
        )


def test_profile_check_finds_the_filter() -> None:
    command = [*UNDER_A_FILTER, *WITHOUT_IO_URING, "--", sys.executable, "-m", "pybroker", "profile", "check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1, done.stderr
    assert "io_uring is forbidden" in done.stdout
    assert "let the seccomp filter of the container or unit pass io_uring_setup" in done.stdout


@pytest.mark.parametrize("rules", [["cachestat=ENOSYS"], AN_OLDER_KERNEL], ids=["no-cachestat", "older-kernel"])
def test_cold_records_are_read_where_nothing_tells_what_is_in_memory(
    rules: list[str], backend: str, tmp_path: Path
) -> None:
    prefix = [*UNDER_A_FILTER, *rules, "--"]
    with BrokerProcess(tmp_path / "data", command_prefix=prefix, overrides={"pybroker.io.backend": backend}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        for value in VALUES:
            producer.produce("cold", value, partition=0)
        assert producer.flush(30) == 0
        broker.stop()
        for segment in (tmp_path / "data").glob("cold-0/*.log"):
            forget(segment)
        broker.start()
        assert values_of(broker) == VALUES


def forget(path: Path) -> None:
    """Take the file out of the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def values_of(broker: BrokerProcess) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "cold", "enable.auto.commit": False})
    consumer.assign([TopicPartition("cold", 0, 0)])
    found: list[bytes] = []
    while len(found) < len(VALUES):
        messages = consumer.consume(len(VALUES), timeout=10)
        assert messages, f"only {len(found)} records came"
        found += [message.value() for message in messages]
    consumer.close()
    return found
