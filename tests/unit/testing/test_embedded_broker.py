"""`pybroker.testing.Broker`: its life, and that nothing is left of it."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pybroker.testing import Broker, BrokerFailed

TIMEOUT_S = 60

# Starts a broker, says where it is, and waits to be killed.
ORPHAN_MAKER = """
import sys
from pybroker.testing import Broker
broker = Broker()
broker.start()
print(broker.pid, broker._dir.parent, flush=True)
sys.stdin.read()
"""


@contextmanager
def orphan_maker() -> Iterator[tuple[subprocess.Popen[bytes], int, int, Path]]:
    """A process of `ORPHAN_MAKER`, those of its broker and fork server, and the dir of their files."""
    with subprocess.Popen([sys.executable, "-c", ORPHAN_MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        pid, root = maker.stdout.readline().split()
        server = int(Path(f"/proc/{int(pid)}/stat").read_text().rpartition(")")[2].split()[1])
        yield maker, int(pid), server, Path(root.decode())


def produce(broker: Broker, topic: str, value: bytes) -> None:
    """One acknowledged record in partition 0."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def values(broker: Broker, topic: str, count: int) -> list[bytes]:
    """The first records of partition 0."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "none", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() or b"" for message in consumer.consume(count, TIMEOUT_S)]
    finally:
        consumer.close()


def wait_until_gone(broker: Broker, topic: str) -> None:
    """Until retention has taken all of partition 0."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "none"})
    deadline = time.monotonic() + TIMEOUT_S
    try:
        first, end = 0, 1
        while first != end:
            assert time.monotonic() < deadline, f"{topic} has records from {first} to {end}"
            time.sleep(0.05)
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    finally:
        consumer.close()


def ended(pid: int) -> bool:
    """Waits for the end of a process that is not a child of this one."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], TIMEOUT_S)[0])
    finally:
        os.close(process)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_records_outlive_a_kill_and_a_restart(broker: Broker) -> None:
    broker.create_topic("orders", partitions=2)
    address, pid = broker.bootstrap_servers, broker.pid
    produce(broker, "orders", b"one")
    broker.kill()
    with pytest.raises(BrokerFailed, match="stopped"):
        _ = broker.pid
    broker.start()
    produce(broker, "orders", b"two")
    broker.restart()
    assert broker.bootstrap_servers == address
    assert broker.pid != pid
    assert values(broker, "orders", 2) == [b"one", b"two"]


def test_a_clock_that_jumped_stays_so_over_a_restart(broker: Broker) -> None:
    broker.create_topic("hour", config={"retention.ms": "3600000"})
    produce(broker, "hour", b"old")
    broker.jump_clock(1800)
    broker.jump_clock(1801)
    wait_until_gone(broker, "hour")
    broker.restart()
    produce(broker, "hour", b"as old by this clock")
    wait_until_gone(broker, "hour")


def test_the_broker_says_why_not(broker: Broker) -> None:
    with pytest.raises(BrokerFailed, match="NOT_COORDINATOR"):
        broker.expire_sessions("before there were any groups")
    broker.create_topic("orders")
    with pytest.raises(BrokerFailed, match="Topic 'orders' already exists"):
        broker.create_topic("orders")
    with pytest.raises(BrokerFailed, match="already runs"):
        broker.start()
    with pytest.raises(BrokerFailed, match=r"num\.partitions"), Broker({"num.partitions": "none"}):
        pass
    with pytest.raises(BrokerFailed, match="never started"):
        _ = Broker().bootstrap_servers


def test_a_broker_that_ends_by_itself_fails_the_block() -> None:
    with pytest.raises(BrokerFailed, match="ended with status -9"), Broker() as broker:
        os.kill(broker.pid, signal.SIGKILL)


def test_brokers_end_with_the_process_that_wanted_them_and_leave_nothing() -> None:
    with orphan_maker() as (maker, pid, server, root):
        assert root.is_dir()
        maker.kill()
        assert ended(pid)
        assert ended(server)
    assert not root.exists()


def test_what_killed_servers_left_is_removed_by_the_next() -> None:
    with orphan_maker() as (maker, pid, server, root):
        os.kill(server, signal.SIGKILL)
        assert ended(pid)
        assert root.is_dir()
        maker.kill()
    with orphan_maker():
        assert not root.exists()
