"""A small, quick part of the client matrix: four clients produce, and each also consumes as a group of three."""

from __future__ import annotations

from pathlib import Path

from tests.harness.broker import BrokerProcess
from tests.harness.clients.driver import CLIENTS, Variant
from tests.harness.clients.scenario import Scenario
from tests.harness.kafka import KafkaBroker

SENDS = (
    ("kcat", Variant("zstd", "all", idempotent=True)),
    ("confluent-kafka", Variant("lz4", "all")),
    ("kafka-python", Variant("gzip", "1")),
    ("aiokafka", Variant("none", "all", idempotent=True)),
    ("kcat", Variant("snappy", "0")),
    ("aiokafka", Variant("snappy", "1")),
)
CONSUMERS = ("kcat", "confluent-kafka", "kafka-python", "aiokafka")


def test_clients_meet(running_broker: BrokerProcess | KafkaBroker, tmp_path: Path) -> None:
    """Every record reaches each group once, through codecs, acks, a join and a leave."""
    for name in CONSUMERS:
        CLIENTS[name].check()
    scenario = Scenario(
        running_broker.bootstrap, "sample", tmp_path, records_per_variant=100, broker_output=running_broker.output_path
    )
    scenario.run([(CLIENTS[name], variant) for name, variant in SENDS], [CLIENTS[name] for name in CONSUMERS])
