"""FindCoordinator of transactions, which other brokers coordinate."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_services import LISTENER, NODE_ID, Services

from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

OTHER = 9
TOPIC_ID = b"t" * 16
NO_LEADER = -1


def cluster(*leaders: int) -> list[tuple[Any, int]]:
    """Another broker, and `__transaction_state` with a partition for each of `leaders`."""
    endpoint = m.RegisterBrokerRecord.BrokerEndpoint(name=LISTENER, host="other", port=19, security_protocol=0)
    records: list[tuple[Any, int]] = [
        (m.RegisterBrokerRecord(broker_id=OTHER, broker_epoch=1, end_points=[endpoint], fenced=False), 4),
        (m.TopicRecord(name="__transaction_state", topic_id=TOPIC_ID), 0),
    ]
    for index, leader in enumerate(leaders):
        partition = m.PartitionRecord(
            partition_id=index,
            topic_id=TOPIC_ID,
            replicas=[OTHER],
            isr=[OTHER],
            leader=leader,
            leader_epoch=0,
            partition_epoch=0,
            directories=[bytes(16)],
        )
        records.append((partition, 2))
    return records


def find(records: list[tuple[Any, int]], key: str, version: int = 4) -> Any:
    async def run() -> Any:
        services = await Services(*records).start()
        keys: dict[str, Any] = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
        request = m.FindCoordinatorRequest(key_type=1, **keys)
        answer = await services.call("find_coordinator", request, version)
        return answer.coordinators[0] if version >= 4 else answer

    return asyncio.run(run())


@pytest.mark.parametrize("version", [3, 4, 6])
def test_the_leader_of_the_key(version: int) -> None:
    found = find(cluster(OTHER, NO_LEADER), "b", version)  # Java's hash of it is 98
    assert (found.error_code, found.node_id, found.host, found.port) == (0, OTHER, "other", 19)


def test_no_leader_for_now() -> None:
    found = find(cluster(OTHER, NO_LEADER), "a")
    assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert found.error_message == "__transaction_state-1 has no leader."


def test_a_partition_that_is_here() -> None:
    found = find(cluster(NODE_ID), "a")
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert "move it to one that does" in found.error_message


def test_nobody_coordinates() -> None:
    found = find([], "a")
    assert found.error_code == ErrorCode.INVALID_REQUEST
    assert "nobody has made __transaction_state" in found.error_message
