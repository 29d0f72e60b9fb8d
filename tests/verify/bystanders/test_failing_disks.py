"""Disks that fail under a running broker: EIO on reads, writes and flushes of one log dir of two, on an ext4 whose
drive does as it is told. The dir goes offline, the other serves, nothing acknowledged is lost, and a new start finds
the dir in service again; with each append engine.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.record_batch import Record
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.crash.engines import DIRECT
from tests.harness.crash.power_disk import PowerDisk, missing

REPOSITORY = Path(__file__).resolve().parents[3]
VALUE_BYTES = 20_000
TIMEOUT_S = 20.0
SLOW_S = 0.5
OK, OFFLINE = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
OVERRIDES = {
    "offsets.topic.num.partitions": "2",
    "log.initial.task.delay.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
}


@pytest.fixture
def disk() -> Iterator[PowerDisk]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    subprocess.run(
        ["make", "-C", str(REPOSITORY / "tests" / "crash" / "powerfs")], check=True, stdout=subprocess.DEVNULL
    )
    with PowerDisk(REPOSITORY / "build" / "powerfs" / "powerfs", size_bytes=96 << 20) as disk:
        yield disk


class Client:
    """Produces and reads, and keeps what was acknowledged."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._client = ProtocolClient(broker.port)
        self.acknowledged: dict[str, dict[int, bytes]] = {}

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def follow(self, broker: BrokerProcess) -> None:
        """Go on with a broker that was started again."""
        self._client.close()
        self._client = ProtocolClient(broker.port)

    def make_topics(self, count: int) -> dict[str, str]:
        """A topic in each log dir, by the dir's name."""
        for number in range(count):
            asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=f"t{number}")])
            while self._client.call(asked, 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                time.sleep(0.01)
            assert self.produce(f"t{number}") == OK
        answer = self._client.call(m.DescribeLogDirsRequest(topics=None), 4)
        return {Path(each.log_dir).name: topic.name for each in answer.results for topic in each.topics}

    def produce(self, topic: str) -> ErrorCode:
        """One record."""
        value = os.urandom(VALUE_BYTES)
        records = record_batch.build(0, -1, [Record(None, value)], timestamp_ms=int(time.time() * 1000))
        partition = m.ProduceRequest.PartitionProduceData(index=0, records=records)
        data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])
        answer = self._client.call(m.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
        row = answer.responses[0].partition_responses[0]
        if row.error_code == OK:
            self.acknowledged.setdefault(topic, {})[row.base_offset] = value
        return ErrorCode(row.error_code)

    def fetch(self, topic: str, offset: int) -> m.FetchResponse.PartitionData:
        """The partition's row."""
        return self._client.fetch(topic, offset)

    def check(self, topic: str) -> None:
        """Everything acknowledged is there."""
        found: dict[int, bytes] = {}
        offset = 0
        while offset <= max(self.acknowledged[topic]):
            row = self.fetch(topic, offset)
            assert row.error_code == OK and row.records
            for batch in record_batch.parse(row.records):
                found[batch.base_offset] = batch.records[0].value or b""
                offset = batch.base_offset + 1
        assert {number: found[number] for number in self.acknowledged[topic]} == self.acknowledged[topic]

    def move(self, topic: str, log_dir: Path) -> ErrorCode:
        """Ask for a move to another log dir."""
        topics = [m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[0])]
        dirs = [m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(log_dir), topics=topics)]
        answer = self._client.call(m.AlterReplicaLogDirsRequest(dirs=dirs), 2)
        return ErrorCode(answer.results[0].partitions[0].error_code)

    def described(self) -> dict[str, int]:
        """The error code of each log dir, by its name."""
        answer = self._client.call(m.DescribeLogDirsRequest(topics=None), 4)
        return {Path(each.log_dir).name: each.error_code for each in answer.results}


def sync_logs(directory: Path) -> None:
    """Let the drive have what the files have now."""
    for path in directory.rglob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def drop_caches(directory: Path) -> None:
    """Let the next reads of the files below come from the drive."""
    for path in directory.rglob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def until_offline(client: Client, topic: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    # Producers are refused at once; what was written is read until it is known how bad the disk is, and then no more.
    for ask in (client.produce, lambda topic: ErrorCode(client.fetch(topic, 0).error_code)):
        while (told := ask(topic)) != OFFLINE:
            assert told == OK
            assert time.monotonic() < deadline, "the failing dir goes on"
            time.sleep(0.02)


def serves_the_rest(client: Client, topics: dict[str, str]) -> None:
    for _ in range(5):
        assert client.produce(topics["bad"]) == OFFLINE
        assert client.fetch(topics["bad"], 0).error_code == OFFLINE
        assert client.produce(topics["good"]) == OK
    client.check(topics["good"])
    assert client.described() == {"good": OK, "bad": OFFLINE}


def said_once(broker: BrokerProcess, bad: Path) -> None:
    text = broker.output_path.read_text()
    assert text.count(f"log dir {bad} failed, and what lies there is offline") == 1, text
    assert "Input/output error" in text or "Read-only file system" in text


def power_cycle(disk: PowerDisk) -> None:
    """The drive is mended, and the file system mounted anew."""
    for operation in ("read", "write", "flush"):
        disk.fail(operation, 0)
    disk.unmount()
    disk.mount()


@pytest.mark.parametrize("durability", ["none", "acks"])
@pytest.mark.parametrize("operation", ["write", "flush"])
def test_a_drive_that_does_not_write_ends_its_log_dir(
    disk: PowerDisk, tmp_path: Path, engine: dict[str, str], operation: str, durability: str
) -> None:
    bad = disk.path / "bad"
    overrides = {**OVERRIDES, **engine, "log.dirs": f"{tmp_path / 'good'},{bad}", "pybroker.durability": durability}
    with BrokerProcess(tmp_path / "broker", overrides=overrides) as broker, closing(Client(broker)) as client:
        topics = client.make_topics(2)
        for _ in range(5):
            assert client.produce(topics["bad"]) == OK
        # What follows is in the page cache only, or in a tail ring.
        sync_logs(bad)
        for _ in range(20):
            assert client.produce(topics["bad"]) == OK
        disk.fail(operation, errno.EIO)
        if durability == "acks":
            assert client.produce(topics["bad"]) == OFFLINE, "what could not be synced is not acknowledged"
        until_offline(client, topics["bad"])
        serves_the_rest(client, topics)
        said_once(broker, bad)
        assert broker.stop() == 0
        assert not (bad / ".kafka_cleanshutdown").exists()
        power_cycle(disk)
        broker.start()
        client.follow(broker)
        assert client.described() == {"good": OK, "bad": OK}
        if durability == "acks" or engine["pybroker.append.engine"] == DIRECT:
            client.check(topics["bad"])
        client.check(topics["good"])
        assert client.produce(topics["bad"]) == OK


def test_a_drive_that_cannot_be_read_ends_its_log_dir(disk: PowerDisk, tmp_path: Path, engine: dict[str, str]) -> None:
    bad = disk.path / "bad"
    overrides = {**OVERRIDES, **engine, "log.dirs": f"{tmp_path / 'good'},{bad}"}
    with BrokerProcess(tmp_path / "broker", overrides=overrides) as broker, closing(Client(broker)) as client:
        topics = client.make_topics(2)
        for _ in range(200):
            assert client.produce(topics["bad"]) == OK
        drop_caches(bad)
        disk.fail("read", errno.EIO)
        assert client.fetch(topics["bad"], 0).error_code == OFFLINE
        until_offline(client, topics["bad"])
        serves_the_rest(client, topics)
        said_once(broker, bad)
        disk.fail("read", 0)
        broker.kill()
        broker.start()
        client.follow(broker)
        for topic in topics.values():
            client.check(topic)


def test_a_move_to_a_failing_drive_leaves_the_log_where_it_was(
    disk: PowerDisk, tmp_path: Path, engine: dict[str, str]
) -> None:
    bad = disk.path / "bad"
    overrides = {**OVERRIDES, **engine, "log.dirs": f"{tmp_path / 'good'},{bad}"}
    with BrokerProcess(tmp_path / "broker", overrides=overrides) as broker, closing(Client(broker)) as client:
        topics = client.make_topics(2)
        for _ in range(200):
            assert client.produce(topics["good"]) == OK
        disk.fail("flush", errno.EIO)
        assert client.move(topics["good"], bad) in (OK, OFFLINE)
        until_offline(client, topics["bad"])
        serves_the_rest(client, topics)
        assert (tmp_path / "good" / f"{topics['good']}-0").is_dir()
        assert broker.stop() == 0
        power_cycle(disk)
        broker.start()
        client.follow(broker)
        client.check(topics["good"])
        assert client.described() == {"good": OK, "bad": OK}


def test_the_broker_ends_with_the_drive_of_its_metadata(
    disk: PowerDisk, tmp_path: Path, engine: dict[str, str]
) -> None:
    bad = disk.path / "bad"
    overrides = {**OVERRIDES, **engine, "log.dirs": f"{bad},{tmp_path / 'good'}"}
    with BrokerProcess(tmp_path / "broker", overrides=overrides) as broker, closing(Client(broker)) as client:
        topics = client.make_topics(2)
        disk.fail("flush", errno.EIO)
        disk.fail("write", errno.EIO)
        deadline = time.monotonic() + TIMEOUT_S
        while broker.process.running:
            assert time.monotonic() < deadline, "the broker goes on without its metadata"
            try:
                client.produce(topics["bad"])
            except (ConnectionError, OSError):
                break
            time.sleep(0.05)
        assert broker.process.wait(TIMEOUT_S) == 1
        assert "the broker cannot go on" in broker.output_path.read_text()
        power_cycle(disk)
        broker.kill()
        broker.start()
        client.follow(broker)
        assert client.described() == {"good": OK, "bad": OK}
        client.check(topics["good"])


def took_s(client: Client, topic: str, count: int) -> float:
    """The longest of some produces."""
    worst = 0.0
    for _ in range(count):
        begun = time.monotonic()
        assert client.produce(topic) == OK
        worst = max(worst, time.monotonic() - begun)
    return worst


@pytest.mark.parametrize("durability", ["none", "acks"])
def test_a_slow_drive_costs_only_those_who_wait_for_it(
    disk: PowerDisk, tmp_path: Path, engine: dict[str, str], durability: str
) -> None:
    slow = disk.path / "slow"
    overrides = {**OVERRIDES, **engine, "log.dirs": f"{tmp_path / 'quick'},{slow}", "pybroker.durability": durability}
    with BrokerProcess(tmp_path / "broker", overrides=overrides) as broker, closing(Client(broker)) as client:
        topics = client.make_topics(2)
        assert took_s(client, topics["slow"], 20) < SLOW_S
        for operation in ("write", "flush"):
            disk.slow(operation, int(1000 * SLOW_S))
        with ThreadPoolExecutor(1) as pool, closing(Client(broker)) as other:
            burdened = pool.submit(took_s, other, topics["slow"], 5 if durability == "acks" else 200)
            quick_s = took_s(client, topics["quick"], 50)
            slow_s = burdened.result(60)
        assert quick_s < SLOW_S, "the other log dir has nothing to do with it"
        assert (slow_s >= SLOW_S) == (durability == "acks")
        broker.kill()
        for operation in ("write", "flush"):
            disk.slow(operation, 0)
        broker.start()
        for each in (client, other):
            each.follow(broker)
            for topic in each.acknowledged:
                each.check(topic)
        other.close()
