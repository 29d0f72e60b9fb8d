"""Changes of a topic with thousands of partitions, and of the offsets of all of them: no turn of the control loop takes
more than 20 ms of CPU time, and a member of a group beside them is served."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from typing import Any

from pybroker.protocol import messages as m
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.hostile.member import Member
from tests.harness.process import free_port

PARTITIONS = 2_000
SESSION_MS = 30_000
HEARTBEAT_LIMIT_S = 1.0


def _create() -> tuple[Any, int]:
    topic = m.CreateTopicsRequest.CreatableTopic(name="many", num_partitions=PARTITIONS, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=120_000), 5


def _describe() -> tuple[Any, int]:
    return m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="many")]), 9


def _commit() -> tuple[Any, int]:
    request = m.OffsetCommitRequest
    partitions = [
        request.OffsetCommitRequestPartition(partition_index=index, committed_offset=0) for index in range(PARTITIONS)
    ]
    topic = request.OffsetCommitRequestTopic(name="many", partitions=partitions)
    return request(group_id="alone", generation_id_or_member_epoch=-1, topics=[topic]), 8


def _alter() -> tuple[Any, int]:
    request = m.IncrementalAlterConfigsRequest
    value = request.AlterableConfig(name="retention.ms", config_operation=0, value="100000000")
    return request(resources=[request.AlterConfigsResource(resource_type=2, resource_name="many", configs=[value])]), 1


def _delete() -> tuple[Any, int]:
    return m.DeleteTopicsRequest(topic_names=["many"], timeout_ms=120_000), 4


STEPS: list[Callable[[], tuple[Any, int]]] = [_create, _describe, _commit, _alter, _delete]


def _long_turns(metrics_port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(each.split()[1] for each in lines if each.startswith("pybroker_control_loop_long_turns_total ")))


def test_a_member_beside_changes_of_thousands_of_partitions_is_served() -> None:
    metrics_port = free_port()
    overrides = {
        "pybroker.metrics.listener": f"127.0.0.1:{metrics_port}",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "3",
    }
    found: dict[str, float] = {}
    with (
        BrokerProcess(overrides=overrides) as broker,
        ProtocolClient(broker.port, timeout_seconds=300) as client,
        Member(broker.port, SESSION_MS) as member,
    ):
        time.sleep(2)
        for step in STEPS:
            before = _long_turns(metrics_port)
            client.call(*step())
            # What follows from it: offsets are forgotten, and checkpoints written.
            time.sleep(3)
            found[step.__name__] = _long_turns(metrics_port) - before
    print(found, f"slowest heartbeat {max(member.latencies_s):.3f} s")
    assert set(found.values()) == {0.0}, found
    assert set(member.errors) == {0}
    assert max(member.latencies_s) <= HEARTBEAT_LIMIT_S
