"""A log goes back and forth between two log dirs while records come, and the broker is killed again and again: each
start finds the log in one of the dirs, whole, and the move that was wanted is made in the end.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.record_batch import Record
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.rounds import Rounds

KILLS = 20
VALUE_BYTES = 50_000
SEED = 11
TIMEOUT_S = 30.0
RATE = 40_000_000


class Story:
    """The topic, what was acknowledged, and the dir it shall lie in."""

    def __init__(self, broker: BrokerProcess, paths: list[Path]) -> None:
        self._broker = broker
        self._paths = paths
        self._acknowledged: dict[int, bytes] = {}

    def produce(self, client: ProtocolClient) -> None:
        """One record, which has to be taken."""
        value = os.urandom(VALUE_BYTES)
        records = record_batch.build(0, -1, [Record(None, value)], timestamp_ms=int(time.time() * 1000))
        partition = m.ProduceRequest.PartitionProduceData(index=0, records=records)
        data = m.ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
        answer = client.call(m.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
        row = answer.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NONE
        self._acknowledged[row.base_offset] = value

    def check(self, client: ProtocolClient) -> None:
        """Everything acknowledged is there."""
        found: dict[int, bytes] = {}
        offset = min(self._acknowledged)
        while offset <= max(self._acknowledged):
            row = client.fetch("t", offset, max_bytes=4 << 20)
            assert row.error_code == ErrorCode.NONE and row.records
            for batch in record_batch.parse(row.records):
                found[batch.base_offset] = batch.records[0].value or b""
                offset = batch.base_offset + 1
        assert {number: found[number] for number in self._acknowledged} == self._acknowledged

    def forget_before(self, client: ProtocolClient, count: int) -> None:
        """Delete all but the newest records: the log start offset has to move with the log."""
        before = max(self._acknowledged) + 1 - count
        partition = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=before)
        topics = [m.DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])]
        answer = client.call(m.DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2)
        assert answer.topics[0].partitions[0].low_watermark == before
        self._acknowledged = {offset: each for offset, each in self._acknowledged.items() if offset >= before}

    def place(self) -> Path:
        """The one dir that has the log."""
        (path,) = [path for path in self._paths if (path / "t-0").is_dir()]
        return path

    def alter(self, client: ProtocolClient) -> Path:
        """Ask for a move to the other dir."""
        (target,) = set(self._paths) - {self.place()}
        topics = [m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name="t", partitions=[0])]
        dirs = [m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(target), topics=topics)]
        answer = client.call(m.AlterReplicaLogDirsRequest(dirs=dirs), 2)
        assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
        return target

    def wait_for(self, target: Path) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not (target / "t-0").is_dir() or list(target.glob("t-0.*-future")):
            assert time.monotonic() < deadline, f"the move to {target} does not end"
            time.sleep(0.02)


def throttle(client: ProtocolClient) -> None:
    name = "replica.alter.log.dirs.io.max.bytes.per.second"
    setting = m.IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=0, value=str(RATE))
    request = m.IncrementalAlterConfigsRequest
    resource = request.AlterConfigsResource(resource_type=4, resource_name="1", configs=[setting])
    assert client.call(request(resources=[resource]), 1).responses[0].error_code == ErrorCode.NONE


def kill_in_a_move(broker: BrokerProcess, story: Story, choice: random.Random) -> None:
    """Ask for a move, kill while records come, and see the move made in the end."""
    with ProtocolClient(broker.port) as client:
        target = story.alter(client)
        until = time.monotonic() + choice.uniform(0.0, 0.6)
        while time.monotonic() < until:
            story.produce(client)
        broker.kill()
    broker.start()
    with ProtocolClient(broker.port) as client:
        story.check(client)
        if choice.random() < 0.5:
            story.forget_before(client, 60)
        story.wait_for(target)
        story.check(client)


def test_kills_lose_no_record_of_a_log_that_moves(tmp_path: Path, rounds: Rounds) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    overrides = {
        "log.dirs": ",".join(map(str, paths)),
        "log.segment.bytes": "1048576",
        "log.segment.delete.delay.ms": "1000",
        "log.initial.task.delay.ms": "100",
        "log.flush.offset.checkpoint.interval.ms": "200",
    }
    with BrokerProcess(tmp_path / "broker", overrides=overrides) as broker:
        story = Story(broker, paths)
        with ProtocolClient(broker.port) as client:
            asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")])
            while client.call(asked, 12).topics[0].error_code:
                time.sleep(0.01)
            throttle(client)
            for _ in range(100):
                story.produce(client)
        for each in rounds.left(KILLS, SEED):
            with each:
                before = broker.output_path.read_text()
                kill_in_a_move(broker, story, random.Random(each.seed))
                said = broker.output_path.read_text()[len(before) :]
                each.facts["begun again"] = said.count("begins again")
                assert "offline" not in said and "could not be moved" not in said
    rounds.require_all()
    # The kills must have met moves in the middle, and some after the decision.
    assert rounds.total("begun again") > KILLS // 5
