"""How long it takes from a controller's commit of a change until brokers have applied it: those of pybroker, with one
of Apache Kafka beside them.

A controller answers when it has committed. Threads ask each broker for the topic all the time meanwhile; who has it
before the answer is there has taken no time.
"""

from __future__ import annotations

import threading
import time

from pybroker.cluster.layout import Node, NodeKind
from pybroker.cluster.local_cluster import LocalCluster
from pybroker.protocol import messages as m
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.cluster.fixtures import cluster_fixture, needs_kafka

CHANGES = 100
BOUND_SECONDS = 0.1
PAUSE_SECONDS, WAIT_SECONDS = 0.002, 30.0
CREATE_VERSION, METADATA_VERSION = 7, 12

pytestmark = needs_kafka


cluster = cluster_fixture(brokers=2, jvm_brokers=1)


class Looker:
    """Asks one broker for topics, one after the other, and notes when each was there for the first time."""

    def __init__(self, node: Node, names: list[str]) -> None:
        self.seen: dict[str, float] = {}
        self.node = node
        self._names = names
        self._thread = threading.Thread(target=self._look, name=f"looker at {node.node_id}")
        self._thread.start()

    def _look(self) -> None:
        with ProtocolClient(self.node.port) as client:
            for name in self._names:
                topics = [m.MetadataRequest.MetadataRequestTopic(name=name)]
                request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
                until = time.monotonic() + WAIT_SECONDS
                while client.call(request, METADATA_VERSION).topics[0].error_code != 0:
                    assert time.monotonic() < until, f"{name} is not seen"
                    time.sleep(PAUSE_SECONDS)
                self.seen[name] = time.monotonic()

    def wait(self) -> None:
        """Until it has seen all."""
        self._thread.join()


def test_a_change_is_applied_in_a_tenth_of_a_second(cluster: LocalCluster) -> None:
    names = [f"t{number}" for number in range(CHANGES)]
    lookers = [Looker(node, names) for node in cluster.layout.brokers]
    committed: dict[str, float] = {}
    with ProtocolClient(cluster.layout.controllers[0].port) as controller:
        for name in names:
            topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=3)
            answer = controller.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), CREATE_VERSION)
            assert answer.topics[0].error_code == 0
            committed[name] = time.monotonic()
    for looker in lookers:
        looker.wait()
    slow = []
    for looker in lookers:
        took = sorted(max(0.0, looker.seen[name] - committed[name]) for name in names)
        text = (
            f"{looker.node.kind} {looker.node.node_id}: {CHANGES} changes applied after "
            f"{took[CHANGES // 2] * 1000:.1f} ms in the median, {took[-1] * 1000:.1f} ms at most"
        )
        print(text)
        if looker.node.kind is NodeKind.BROKER and took[-1] > BOUND_SECONDS:
            slow.append(text)
    assert not slow, "\n".join(slow)
