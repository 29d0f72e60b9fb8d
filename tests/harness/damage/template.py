"""A log dir with every kind of file, and everything that was acknowledged in it. Made once, restored for every case."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from pybroker.protocol import messages as m
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.waiting import until

TOPIC, GROUP = "kept", "readers"
COMMITTED_OFFSET = 7
CLEAN, KILLED = "after a clean stop", "after SIGKILL"
_VALUE_BYTES = 10_000
#: Four segments, the last of which is begun.
_RECORD_COUNT = 350
_TIMEOUT_SECONDS = 60.0
_SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.flush.offset.checkpoint.interval.ms": "300",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
    "log.segment.bytes": str(1 << 20),
    "metadata.log.max.record.bytes.between.snapshots": "200",
    "offsets.topic.num.partitions": "1",
    "pybroker.append.engine": "direct",
    "pybroker.tail.ring.hot.bytes.per.second": "0",
}


@dataclass(frozen=True)
class Template:
    """`log_dir` with its rings, and what was acknowledged: values by offset of the one partition of `TOPIC`."""

    stop: str
    log_dir: Path
    rings: Path
    acknowledged: dict[int, bytes]

    def keep(self) -> None:
        """Remember the files as they are, for `restore`."""
        for path in (self.log_dir, self.rings):
            _copy(path, _kept(path))

    def restore(self) -> None:
        """Put all files back, in their old places: a log dir remembers where its rings lie."""
        for path in (self.log_dir, self.rings):
            shutil.rmtree(path)
            _copy(_kept(path), path)
        self.log_dir.with_suffix(".out").unlink(missing_ok=True)

    def overrides(self, initial_delay_ms: int = 50) -> dict[str, str]:
        """The settings of a broker on it. Retention and the scrub of sealed segments begin after `initial_delay_ms`."""
        return {
            **_SETTINGS,
            "log.initial.task.delay.ms": str(initial_delay_ms),
            "pybroker.tail.ring.directory": str(self.rings),
        }


def _kept(path: Path) -> Path:
    return path.with_name(f"{path.name}-kept")


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


def _create_topic(client: ProtocolClient, name: str) -> None:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    (answer,) = client.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5).topics
    assert answer.error_code == 0, answer


def _commit(client: ProtocolClient) -> None:
    def found() -> bool:
        return bool(client.call(m.FindCoordinatorRequest(key=GROUP), 3).error_code == 0)

    until(found, "the group has no coordinator")
    partition = m.OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=COMMITTED_OFFSET)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    request = m.OffsetCommitRequest(group_id=GROUP, topics=[topic])
    until(lambda: client.call(request, 7).topics[0].partitions[0].error_code == 0, "the offset is not committed")


def _produce(bootstrap: str, acknowledged: dict[int, bytes], count: int) -> None:
    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        acknowledged[message.offset()] = message.value()

    # Batches and timestamps are the same each time, and so are the numbers of index entries.
    settings = {"enable.idempotence": True, "batch.num.messages": 5, "linger.ms": 5000}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    began_ms = int(time.time() * 1000)
    for number in range(count):
        value = os.urandom(_VALUE_BYTES)
        producer.produce(TOPIC, value, timestamp=began_ms + number, on_delivery=delivered)
    assert producer.flush(_TIMEOUT_SECONDS) == 0


def make(place: Path, rings: Path, stop: str) -> Template:
    """Have a broker write all of it below `place` and `rings`, and end it as `stop` says."""
    place.mkdir()
    rings.mkdir()
    made = Template(stop, place / "data", rings, {})
    with BrokerProcess(made.log_dir, overrides=made.overrides()) as broker:
        with ProtocolClient(broker.port) as client:
            for name in (TOPIC, "other", "third"):
                _create_topic(client, name)
            _produce(broker.bootstrap, made.acknowledged, _RECORD_COUNT)
            _commit(client)
            # Checkpoints, and whatever else is written in the background.
            time.sleep(2)
            _produce(broker.bootstrap, made.acknowledged, 10)
        if stop == KILLED:
            broker.kill()
        else:
            assert broker.stop() == 0
    made.keep()
    return made
