"""The seccomp profile for containers: under it a broker has all it needs, io_uring too, and nothing that does harm."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.harness.broker import BrokerProcess
from tests.harness.seccomp_profile import allowed_calls, call_numbers

PROFILE = Path(__file__).resolve().parents[3] / "deploy" / "seccomp.json"
UNDER_IT = [sys.executable, "-m", "tests.harness.seccomp_profile", str(PROFILE), "--"]
RECORD_COUNT = 500
ENGINES = ["direct", "paced"]
#: What lets a process out of its container, watch others, or end the machine.
REFUSED = {
    "add_key", "bpf", "clock_settime", "delete_module", "finit_module", "init_module", "kexec_load", "keyctl", "mount",
    "move_mount", "open_by_handle_at", "perf_event_open", "pivot_root", "process_vm_writev", "ptrace", "reboot",
    "setns", "swapon", "umount2", "unshare", "userfaultfd",
}  # fmt: skip
#: Refused, and whoever calls it has another way: glibc makes a thread by clone then.
REPLACED = {"clone3"}


def use(broker: BrokerProcess) -> None:
    """Records there and back, by a group."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    topic = f"seccomp-{uuid.uuid4().hex}"
    for _ in range(RECORD_COUNT):
        producer.produce(topic, os.urandom(2000))
    assert producer.flush(120) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    count = 0
    while count < RECORD_COUNT:
        messages = consumer.consume(RECORD_COUNT, timeout=120)
        assert messages, f"only {count} records came"
        count += len(messages)
    consumer.close()


def settings(backend: str, engine: str) -> dict[str, str]:
    return {
        "pybroker.io.backend": backend,
        "pybroker.append.engine": engine,
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }


@pytest.mark.parametrize("engine", ENGINES)
def test_a_broker_lives_under_it(backend: str, engine: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", command_prefix=UNDER_IT, overrides=settings(backend, engine)) as broker:
        assert "Seccomp:\t2\n" in Path(f"/proc/{broker.pid}/status").read_text()
        assert broker.ready.get("io") == backend
        use(broker)
        broker.restart()
        use(broker)


@pytest.mark.parametrize("engine", ENGINES)
def test_it_has_every_call_that_a_broker_makes(backend: str, engine: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    strace = ["strace", "--daemonize=grandchild", "-f", "-qq", "-e", "signal=none", "-o", str(trace)]
    with BrokerProcess(
        tmp_path / "data", command_prefix=strace, overrides=settings(backend, engine), ready_timeout_seconds=120
    ) as broker:
        use(broker)
        broker.process.signal(signal.SIGHUP)
    names = {number: name for name, number in call_numbers().items()}
    made = {
        names[int(name.removeprefix("syscall_"), 16)] if name.startswith("syscall_0x") else name
        for name in re.findall(
            r"^\d+ +(?:<\.\.\. )?(\w+)(?:\(| resumed)", trace.read_text(errors="replace"), re.MULTILINE
        )
    }
    assert {"openat", "futex", "pwrite64", "exit_group"} <= made
    assert made - REPLACED <= allowed_calls(json.loads(PROFILE.read_text()))


def test_it_is_a_profile_that_runtimes_know() -> None:
    profile = json.loads(PROFILE.read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    allowed = allowed_calls(profile)
    assert {"io_uring_setup", "io_uring_enter", "io_uring_register"} <= allowed
    assert not allowed & REFUSED
    (names, *_) = [rule["names"] for rule in profile["syscalls"]]
    assert names == sorted(set(names))
    unknown = allowed - set(call_numbers())
    # A runtime leaves out what its libseccomp does not know: these are new.
    assert unknown <= {"futex_waitv", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self"}, unknown
