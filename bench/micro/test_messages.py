"""Codecs of the messages that Python serves most: requests decoded, responses encoded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pybroker.protocol import messages as m

_VERSION = {"OffsetCommitRequest": 9, "MetadataResponse": 12, "HeartbeatRequest": 4}


def _messages() -> dict[str, Any]:
    offsets = np.random.default_rng(1).integers(0, 1 << 40, 100)
    committed = [
        m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=int(offset))
        for index, offset in enumerate(offsets[:10])
    ]
    partitions = [
        m.MetadataResponse.MetadataResponsePartition(
            partition_index=index, leader_id=1, leader_epoch=3, replica_nodes=[1], isr_nodes=[1]
        )
        for index in range(10)
    ]
    topics = [
        m.MetadataResponse.MetadataResponseTopic(
            name=f"topic-{number}", topic_id=bytes([number]) * 16, partitions=partitions
        )
        for number in range(10)
    ]
    return {
        "OffsetCommitRequest": m.OffsetCommitRequest(
            group_id="group",
            member_id="member",
            topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=committed)],
        ),
        "MetadataResponse": m.MetadataResponse(
            brokers=[m.MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)],
            cluster_id="cluster",
            controller_id=1,
            topics=topics,
        ),
        "HeartbeatRequest": m.HeartbeatRequest(group_id="group", generation_id=3, member_id="member"),
    }


@pytest.mark.parametrize("name", _VERSION)
def test_encode(benchmark: Any, name: str) -> None:
    message, version = _messages()[name], _VERSION[name]
    benchmark.extra_info.update(calls=1, payload_bytes=len(message.encode(version)))
    benchmark.pedantic(message.encode, args=(version,), rounds=50, iterations=100, warmup_rounds=1)


@pytest.mark.parametrize("name", _VERSION)
def test_decode(benchmark: Any, name: str) -> None:
    message, version = _messages()[name], _VERSION[name]
    encoded = message.encode(version)
    benchmark.extra_info.update(calls=1, payload_bytes=len(encoded))
    decoded, _ = benchmark.pedantic(
        type(message).decode, args=(version, encoded), rounds=50, iterations=100, warmup_rounds=1
    )
    assert decoded == message
