"""Turns of a bystander on one broker: beside attackers, and beside processes that only burn CPU, one after the other.

The second kind is the baseline. It has as many processes at the same nice level, so that what differs between the
turns is what the broker lets an attacker do to others, and not how busy the machine is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pybroker.protocol import messages as m
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness import keeper
from tests.harness.broker import BrokerProcess
from tests.harness.hostile.bystander import TOPIC
from tests.harness.hostile.frames import BOMB_TOPIC

_MIB = 1 << 20
#: Attackers and burners leave the CPU to the broker and to the bystander.
_NICE = 5
_BURN = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"
_GRACE_SECONDS = 150.0
#: The bounds that a bystander is promised.
HEARTBEAT_MS = 1_000.0
PRODUCE_P99_RATIO, PRODUCE_P99_MS = 2.0, 5.0
#: Receive buffers, one unpacked request of the largest size, answers on their way, and the broker itself.
MEMORY_BYTES = 1_024 * _MIB


@dataclass
class Turns:
    """What all turns came to. Latencies in milliseconds, one entry a turn; memory in bytes."""

    baseline_p99: list[float] = field(default_factory=list)
    attacked_p99: list[float] = field(default_factory=list)
    heartbeat_max: list[float] = field(default_factory=list)
    memory_bytes: list[int] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    played: int = 0

    def limit_ms(self) -> float:
        """What the median of the attacked turns' p99 may be."""
        return max(PRODUCE_P99_RATIO * median(self.baseline_p99), PRODUCE_P99_MS)

    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.played} attacks {dict(self.outcomes)}; "
            f"produce p99 {median(self.attacked_p99):.2f} ms under attack, "
            f"{median(self.baseline_p99):.2f} ms beside burners (limit {self.limit_ms():.2f}); "
            f"slowest heartbeat {max(self.heartbeat_max):.0f} ms; memory up to {max(self.memory_bytes) // _MIB} MiB"
        )


@contextmanager
def hostile_broker(**overrides: str) -> Iterator[BrokerProcess]:
    """A broker with the topics of bystander and bombs. It creates no others: a Metadata request may name thousands."""
    settings = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0", **overrides}
    with BrokerProcess(overrides=settings) as broker:
        with ProtocolClient(broker.port) as client:
            topics = [
                m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in (TOPIC, BOMB_TOPIC)
            ]
            answer = client.call(m.CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
            assert all(each.error_code == 0 for each in answer.topics), answer
        yield broker


class HostileTurns:
    """Plays turns on `broker` with `attackers` processes; `result` has what they came to so far."""

    def __init__(
        self, broker: BrokerProcess, *, seed: int, first: int = 0, attackers: int = 2, turn_seconds: float = 15.0
    ) -> None:
        """Attacks begin at number `first` of the sweep of `seed`."""
        self._broker, self._seed, self._turn_seconds = broker, seed, turn_seconds
        self._first, self._next = first, [first + number for number in range(attackers)]
        self.planned = 0
        self.result = Turns()

    def check(self) -> None:
        """AssertionError with all figures unless every promise to bystanders was kept."""
        result = self.result
        print(result.text())
        assert not result.problems, (result.problems[:20], result.text())
        assert median(result.attacked_p99) <= result.limit_ms(), result.text()
        assert max(result.heartbeat_max) <= HEARTBEAT_MS, result.text()
        assert max(result.memory_bytes) <= MEMORY_BYTES, result.text()

    def swept(self) -> bool:
        """Every attack of the sweep was played at least once."""
        return 0 < self.planned <= min(self._next) - self._first

    def play(self) -> None:
        """A baseline turn, then an attacked one."""
        burners = [self._start(["-c", _BURN.format(self._turn_seconds)], _NICE) for _ in self._next]
        produce, _ = self._bystand()
        self.result.baseline_p99.append(produce["p99"])
        for each in burners:
            each.communicate()
        attackers = [self._start_attacker(first) for first in self._next]
        produce, heartbeats = self._bystand()
        self.result.attacked_p99.append(produce["p99"])
        self.result.heartbeat_max.append(heartbeats["max"])
        self._next = [self._end_attacker(each) for each in attackers]

    def _bystand(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the bystander's produces and heartbeats came to. The broker's memory is looked at meanwhile."""
        seconds = ["--seconds", str(self._turn_seconds - 3)]
        module = ["-m", "tests.harness.hostile.bystander", str(self._broker.port)]
        watched = [self._start([*module, what, *seconds], 0) for what in ("produce", "heartbeats")]
        while any(each.poll() is None for each in watched):
            self.result.memory_bytes.append(self._broker.rss_bytes())
            try:
                watched[0].wait(0.5)
                watched[1].wait(0.5)
            except subprocess.TimeoutExpired:
                continue
        found = [self._output(each) for each in watched]
        for what, each in zip(("produce", "heartbeat"), found, strict=True):
            self.result.problems += [f"{what} error {code}" for code in each["errors"]]
        return found[0], found[1]

    def _start_attacker(self, first: int) -> subprocess.Popen[str]:
        wanted = {"seed": self._seed, "first": first, "step": len(self._next), "seconds": self._turn_seconds}
        words = [word for key, value in wanted.items() for word in (f"--{key}", str(value))]
        return self._start(["-m", "tests.harness.hostile.attacker", str(self._broker.port), *words], _NICE)

    def _end_attacker(self, attacker: subprocess.Popen[str]) -> int:
        found = self._output(attacker)
        self.planned = found["planned"]
        self.result.outcomes.update(found["outcomes"])
        self.result.played += sum(found["outcomes"].values())
        self.result.problems += [f"neither answered nor closed: {name}" for name in found["silent"]]
        self.result.problems += [f"no connection: {text}" for text in found["unreachable"]]
        following: int = found["next"]
        return following

    def _start(self, arguments: Sequence[str], nice: int) -> subprocess.Popen[str]:
        command = ["nice", "-n", str(nice), sys.executable, *arguments]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        keeper.keep_process(child.pid)
        return child

    def _output(self, child: subprocess.Popen[str]) -> dict[str, Any]:
        try:
            output, errors = child.communicate(timeout=_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            output, errors = child.communicate()
        assert child.returncode == 0, f"{child.args!r} ended with {child.returncode}: {errors[-2000:]}"
        found: dict[str, Any] = json.loads(output)
        return found
