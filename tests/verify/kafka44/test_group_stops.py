"""A broker that is stopped for longer than its groups' timeouts, and then goes on: whoever was alive stays a member.

Deadlines of sessions and of joins pass together meanwhile. A session's end that completes a join must not be followed
by the join's own end, which would throw out the members that were just answered.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.rounds import Rounds

ROUNDS = 50
MEMBERS = [2, 3, 10]
REBALANCE_MS = 1000
#: A session ends before the join does, with it, and after it.
SESSIONS_MS = (900, 1000, 1100)
STOP_S = 1.5
TIMEOUT_S = 60.0
OVERRIDES = {
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "300",
    "offsets.topic.num.partitions": "1",
    "num.partitions": "10",
}
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, DESCRIBE_VERSION = 3, 2, 2, 3
_FAULT = re.compile(r"\bERROR\b|\bCRITICAL\b|Traceback|AssertionError|assertion", re.IGNORECASE)


class Member:
    """A member of a classic group, on a connection of its own."""

    def __init__(self, port: int, group: str, session_ms: int) -> None:
        self.id, self.generation, self.group = "", -1, group
        self._client = ProtocolClient(port, timeout_seconds=TIMEOUT_S)
        self._session_ms = session_ms

    def join(self) -> m.JoinGroupResponse:
        """Answered when the join ends."""
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        request = m.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        answer: m.JoinGroupResponse = self._client.call(request, JOIN_VERSION)
        self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, members: Sequence[str]) -> int:
        """The error code; the leader gives all `members` an assignment, the others none."""
        row = m.SyncGroupRequest.SyncGroupRequestAssignment
        assignments = [row(member_id=each, assignment=each.encode()) for each in members]
        request = m.SyncGroupRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.id, assignments=assignments
        )
        answer = self._client.call(request, SYNC_VERSION)
        assert answer.error_code != ErrorCode.NONE or answer.assignment == self.id.encode()
        return int(answer.error_code)

    def heartbeat(self) -> int:
        """The error code."""
        request = m.HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.id)
        return int(self._client.call(request, HEARTBEAT_VERSION).error_code)

    def state_of_group(self) -> str:
        """As DescribeGroups says."""
        (group,) = self._client.call(m.DescribeGroupsRequest(groups=[self.group]), DESCRIBE_VERSION).groups
        return str(group.group_state)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _joined(pool: ThreadPoolExecutor, members: Sequence[Member]) -> list[Member]:
    """All of them join together; leader first, with assignments given out. Each is a member and alive afterwards."""
    return _synced(pool, members, list(pool.map(Member.join, members)))


def _synced(
    pool: ThreadPoolExecutor, members: Sequence[Member], answers: Sequence[m.JoinGroupResponse]
) -> list[Member]:
    assert [each.error_code for each in answers] == [ErrorCode.NONE] * len(members)
    assert len({each.generation_id for each in answers}) == 1
    leader = next(each for each in members if each.id == answers[0].leader)
    told = next(each.members for each in answers if each.members)
    ids = [each.member_id for each in told]
    assert sorted(ids) == sorted(each.id for each in members)
    codes = list(pool.map(lambda each: each.sync(ids if each is leader else ()), members))
    assert codes == [ErrorCode.NONE] * len(members)
    assert {each.heartbeat() for each in members} == {ErrorCode.NONE}
    return [leader, *(each for each in members if each is not leader)]


@contextmanager
def _stopped(broker: BrokerProcess) -> Iterator[None]:
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def _wait_until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def _await_coordinator(broker: BrokerProcess) -> None:
    """The offsets topic comes into being when somebody asks who coordinates a group."""
    with ProtocolClient(broker.port) as client:

        def is_there() -> bool:
            client.call(m.FindCoordinatorRequest(key="group", key_type=0), 3)
            (group,) = client.call(m.DescribeGroupsRequest(groups=["group"]), DESCRIBE_VERSION).groups
            return bool(group.error_code == ErrorCode.NONE)

        _wait_until(is_there, "nobody coordinates the group")


def _one_stop(broker: BrokerProcess, pool: ThreadPoolExecutor, members: Sequence[Member]) -> None:
    """All but one member have joined again when the broker is stopped; that one is never heard of again."""
    leader, *others = _joined(pool, members)
    silent = others.pop()
    alive = [leader, *others]
    joins = [pool.submit(leader.join)]
    _wait_until(lambda: silent.state_of_group() == "PreparingRebalance", "the leader's join begins no rebalance")
    joins += [pool.submit(each.join) for each in others]
    time.sleep(0.1)
    assert not any(each.done() for each in joins)
    with _stopped(broker):
        time.sleep(STOP_S)
    _synced(pool, alive, [each.result(TIMEOUT_S) for each in joins])
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    # No deadline of that join is left over.
    end = time.monotonic() + 2 * REBALANCE_MS / 1000
    while time.monotonic() < end:
        assert {each.heartbeat() for each in alive} == {ErrorCode.NONE}
        time.sleep(0.1)
    assert leader.state_of_group() == "Stable"


def _faults(broker: BrokerProcess) -> list[str]:
    return [line for line in broker.output_path.read_text().splitlines() if _FAULT.search(line)]


@pytest.mark.parametrize("count", MEMBERS)
def test_members_that_were_answered_stay_members(count: int, rounds: Rounds, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", overrides=OVERRIDES) as broker, ThreadPoolExecutor(count) as pool:
        _await_coordinator(broker)
        for each in rounds.left(ROUNDS, count):
            with each, ExitStack() as stack:
                session_ms = SESSIONS_MS[each.number % len(SESSIONS_MS)]
                members = [Member(broker.port, f"group-{each.number}", session_ms) for _ in range(count)]
                for member in members:
                    stack.callback(member.close)
                _one_stop(broker, pool, members)
                assert _faults(broker) == []
        assert broker.process.running
    rounds.require_all()


class Consumers:
    """librdkafka's consumers of one group, each polled by a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, count: int) -> None:
        from confluent_kafka import Consumer

        self._topic = topic
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "stopped",
            "session.timeout.ms": REBALANCE_MS,
            "max.poll.interval.ms": REBALANCE_MS,
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
            "log_level": 0,
        }
        self.assigned: list[set[int]] = [set() for _ in range(count)]
        self._again = [threading.Event() for _ in range(count)]
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._poll, args=(number, Consumer(self._settings))) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _poll(self, number: int, consumer: Any) -> None:
        consumer.subscribe([self._topic])
        while not self._ended.is_set():
            if self._again[number].is_set():
                self._again[number].clear()
                consumer.unsubscribe()
                self.assigned[number] = set()
                consumer.subscribe([self._topic])
            consumer.poll(0.05)
            self.assigned[number] = {each.partition for each in consumer.assignment()}
        consumer.close()

    def leave_and_come_again(self, number: int) -> None:
        """Makes the group rebalance."""
        self._again[number].set()
        _wait_until(lambda: not self._again[number].is_set(), "the consumer is not polled")

    def share(self, partitions: int) -> bool:
        """Whether each consumer has some of the partitions, each partition one consumer."""
        had = [each.copy() for each in self.assigned]
        return all(had) and sum(map(len, had)) == partitions and set().union(*had) == set(range(partitions))

    def close(self) -> None:
        """Leave the group."""
        self._ended.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()


@pytest.mark.parametrize("count", MEMBERS)
def test_consumers_share_the_partitions_again(count: int, rounds: Rounds, tmp_path: Path) -> None:
    partitions = int(OVERRIDES["num.partitions"])
    topic = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=partitions, replication_factor=1)
    with BrokerProcess(tmp_path / "data", overrides=OVERRIDES) as broker:
        with ProtocolClient(broker.port) as client:
            assert client.call(m.CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == ErrorCode.NONE
        consumers = Consumers(broker.bootstrap, "t", count)
        try:
            for each in rounds.left(ROUNDS, count):
                with each:
                    _wait_until(lambda: consumers.share(partitions), f"before: {consumers.assigned}")
                    consumers.leave_and_come_again(each.number % count)
                    with _stopped(broker):
                        time.sleep(STOP_S)
                    _wait_until(lambda: consumers.share(partitions), f"after: {consumers.assigned}")
                    assert _faults(broker) == []
        finally:
            consumers.close()
        assert broker.process.running
    rounds.require_all()
