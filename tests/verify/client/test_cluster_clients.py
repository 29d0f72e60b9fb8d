"""The whole client matrix over a cluster of three brokers, where everything is there three times, and two have to have
a record before it is acknowledged; and over one of both kinds of brokers, which both coordinate groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pybroker.client.cluster import Cluster
from pybroker.cluster.layout import NodeKind
from pybroker.cluster.local_cluster import LocalCluster
from tests.harness.clients.driver import CLIENTS, VARIANTS
from tests.harness.clients.scenario import Scenario
from tests.harness.cluster.fixtures import needs_kafka, running_cluster
from tests.harness.cluster.scenario import wait_until_healthy

RECORDS_PER_VARIANT = 300
OFFSETS_TOPIC, ADMIN_SECONDS = "__consumer_offsets", 60.0

pytestmark = needs_kafka


class Place:
    """A cluster, and who has coordinated groups of the matrix in it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.coordinators: set[NodeKind] = set()

    def create_offsets_topic(self) -> None:
        """Every broker leads one of its partitions."""
        node_ids = [node.node_id for node in self.cluster.layout.brokers]
        assignment = [(node_ids[index:] + node_ids[:index])[:3] for index in range(len(node_ids))]
        topic = NewTopic(
            OFFSETS_TOPIC, len(assignment), replica_assignment=assignment, config={"cleanup.policy": "compact"}
        )
        admin = AdminClient({"bootstrap.servers": self.cluster.layout.bootstrap})
        admin.create_topics([topic])[OFFSETS_TOPIC].result(ADMIN_SECONDS)
        wait_until_healthy(self.cluster, at_least=[OFFSETS_TOPIC])

    def note_coordinator(self, group: str) -> None:
        """Whose group it is now."""
        node = self.cluster.layout.brokers[0]
        with Cluster([(node.host, node.port)]) as client:
            self.coordinators.add(self.cluster.layout.node(client.coordinator(group)).kind)


@pytest.fixture(scope="module", params=[(3, 0), (2, 2)], ids=["pybroker", "mixed"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    brokers, jvm_brokers = request.param
    directory = tmp_path_factory.mktemp("cluster") / "cluster"
    with running_cluster(directory, brokers=brokers, jvm_brokers=jvm_brokers) as made:
        found = Place(made)
        found.create_offsets_topic()
        yield found


@pytest.mark.parametrize("producer", CLIENTS)
def test_everyone_reads(producer: str, place: Place, tmp_path: Path) -> None:
    for client in CLIENTS.values():
        client.check()
    topic = f"matrix-{producer}"
    scenario = Scenario(place.cluster.layout.bootstrap, topic, tmp_path, RECORDS_PER_VARIANT)
    others = [client for name, client in CLIENTS.items() if name != producer]
    scenario.run([(CLIENTS[producer], variant) for variant in VARIANTS], others)
    for client in others:
        place.note_coordinator(f"{topic}-{client.name}")
    wait_until_healthy(place.cluster, at_least=[OFFSETS_TOPIC])


def test_both_kinds_have_coordinated(place: Place) -> None:
    """The groups of the tests before this one."""
    assert place.coordinators == {node.kind for node in place.cluster.layout.brokers}
