"""A full disk, then a restart: nothing acknowledged is lost, no loss is claimed, the topic can be read at once, shorter
retention and deletions free space, and writes resume by themselves. And below its reserve a disk is not filled up.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.harness.broker import BrokerProcess
from tests.harness.small_disk import Sender, fill_up, free_bytes, mounted_disk, mounted_ext4

DISK_MIB = 48
REFUSED = KafkaError.KAFKA_STORAGE_ERROR
#: Lines that say that records are, or may be, lost.
ALARM = re.compile(r"\blost\b|are gone|damaged|has changed since|no whole batches")
TORN = re.compile(r"the last \d+ bytes were no whole batches and are cut off")
OVERRIDES = {
    "offsets.topic.num.partitions": "2",
    "log.initial.task.delay.ms": "50",
    "log.retention.check.interval.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "log.segment.delete.delay.ms": "100",
}
CONFIG = {"segment.bytes": "1048576", "file.delete.delay.ms": "100"}


@pytest.fixture(params=["ext4", "tmpfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a small disk needs root, to mount")
    if request.param == "ext4" and shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4")
    with (
        mounted_ext4(tmp_path / "small", DISK_MIB)
        if request.param == "ext4"
        else mounted_disk(tmp_path / "small", f"{DISK_MIB}m")
    ) as path:
        yield path


@pytest.fixture
def broker(disk: Path, tmp_path: Path, engine: dict[str, str], durability: str) -> Iterator[BrokerProcess]:
    overrides = {**OVERRIDES, **engine, "log.dirs": str(disk / "data"), "pybroker.durability": durability}
    with BrokerProcess(tmp_path / "broker", overrides=overrides) as broker:
        yield broker


def admin_of(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})


def make_topic(broker: BrokerProcess, name: str) -> Sender:
    admin = admin_of(broker)
    admin.create_topics([NewTopic(name, 1, 1, config=CONFIG)])[name].result(10)
    sender = Sender(broker.bootstrap, name)
    assert set(sender.send(1)) == {0}
    # It also makes the offsets topic, for which there is no room later.
    sender.check()
    return sender


def send_until_refused(sender: Sender) -> None:
    for _ in range(20):
        if REFUSED in sender.send(1000):
            return
    pytest.fail("the disk does not become full")


def is_refused(sender: Sender) -> None:
    """A log with a tail ring takes what fits into the blocks that it has ahead, until the disk is looked at next."""
    until(lambda: set(sender.send(1)) == {REFUSED}, "producers go on")


def shorten_retention(broker: BrokerProcess) -> None:
    entry = ConfigEntry("retention.bytes", "4000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[entry])
    admin = admin_of(broker)
    admin.incremental_alter_configs([resource])[resource].result(10)


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def resumes(sender: Sender) -> None:
    until(lambda: set(sender.send(1)) == {0}, "no write is taken though there is room")
    sender.check()


def lines(broker: BrokerProcess) -> list[str]:
    return broker.output_path.read_text().splitlines()


def alarms(broker: BrokerProcess) -> list[str]:
    return [line for line in lines(broker) if ALARM.search(line)]


@pytest.mark.parametrize("durability", ["none", "acks"])
@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
def test_a_restart_on_a_full_disk_costs_nothing(disk: Path, broker: BrokerProcess, end: str) -> None:
    sender = make_topic(broker, "t")
    victim = make_topic(broker, "victim")
    send_until_refused(sender)
    # Others leave not a single block.
    fill_up(disk)
    assert free_bytes(disk) == 0
    is_refused(sender)

    if end == "SIGTERM":
        assert broker.stop() == 0
    else:
        broker.kill()
    fill_up(disk)
    broker.start()
    sender.check()
    victim.check()
    # A write that found no room may have been torn, and was not acknowledged.
    torn = [line for line in alarms(broker) if end == "SIGKILL" and TORN.search(line)]
    assert alarms(broker) == torn
    assert not any("cannot be opened" in line for line in lines(broker))
    fill_up(disk)
    is_refused(sender)

    shorten_retention(broker)
    until(lambda: free_bytes(disk) > 10 << 20, "retention freed nothing")
    resumes(sender)

    fill_up(disk)
    is_refused(sender)
    admin = admin_of(broker)
    admin.delete_topics(["victim"])["victim"].result(10)
    until(lambda: not list((disk / "data").glob("victim*")), "the deleted topic's files stay")
    (disk / "ballast").unlink()
    resumes(sender)
    assert broker.stop() == 0
    broker.start()
    sender.check()
    assert alarms(broker) == torn


@pytest.mark.parametrize("durability", ["none"])
def test_below_its_reserve_a_disk_is_kept_from_producers_alone(disk: Path, broker: BrokerProcess) -> None:
    assert broker.stop() == 0
    broker.set_override("pybroker.log.dir.reserve.bytes", str(8 << 20))
    broker.start()
    sender = make_topic(broker, "t")
    send_until_refused(sender)
    is_refused(sender)
    # Committed offsets, which check() does not need, go to an internal topic; so does what makes a topic.
    sender.check()
    assert free_bytes(disk) > 1 << 20, "the reserve was used up"
    told = [line for line in lines(broker) if "less than its reserve" in line]
    assert len(told) == 1 and "pybroker.log.dir.reserve.bytes" in told[0]

    # There is room for all that a stop in order writes.
    assert broker.stop() == 0
    broker.start()
    assert not any("not closed in order" in line or "No space left" in line for line in lines(broker))
    sender.check()
    assert set(sender.send(5)) == {REFUSED}
    shorten_retention(broker)
    resumes(sender)
    assert sum("producers are served" in line for line in lines(broker)) == 1
