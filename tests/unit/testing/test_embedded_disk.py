"""The disk of a test broker fails and is slow as it is told to, for records and for nothing else."""

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from pybroker.protocol import messages as m
from pybroker.testing import Broker, BrokerFailed
from pybroker.testing.protocol_client import ProtocolClient

TIMEOUT_S = 20
SLOW_S = 0.1
FOR_EVER_S = 3600.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("durable", config={"flush.messages": "1"})
        yield broker


def produce(broker: Broker, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether a record was acknowledged."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": int(timeout_s * 1000)})
    producer.produce("durable", b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(2 * TIMEOUT_S)
    # By identity: confluent-kafka's errors leave an exception behind when they are compared with something else.
    return errors[0] is None


def test_what_is_not_synced_is_not_acknowledged(broker: Broker) -> None:
    assert produce(broker)
    broker.disk.fail_syncs()
    assert not produce(broker, timeout_s=0.5)
    assert "a sync failed for durable-0: Input/output error" in broker.output
    with pytest.raises(BrokerFailed, match="ended with status 1"):
        broker.stop()
    broker.start()
    assert produce(broker)


def test_writes_are_late_until_the_disk_is_healed(broker: Broker) -> None:
    broker.disk.slow(SLOW_S)
    started = time.monotonic()
    assert produce(broker)
    # It is written and synced.
    assert time.monotonic() - started >= 2 * SLOW_S

    broker.disk.slow(FOR_EVER_S)
    healing = threading.Timer(SLOW_S, broker.disk.heal)
    healing.start()
    started = time.monotonic()
    assert produce(broker)
    assert SLOW_S <= time.monotonic() - started < TIMEOUT_S
    healing.join()


def test_metadata_is_spared(broker: Broker) -> None:
    broker.disk.slow(FOR_EVER_S)
    broker.disk.fail_syncs()
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2,
        resource_name="durable",
        configs=[
            m.IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=0, value="5000")
        ],
    )
    with ProtocolClient(int(broker.bootstrap_servers.rpartition(":")[2])) as client:
        (row,) = client.call(m.IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert row.error_code == 0
    broker.disk.heal()


def test_a_stopped_broker_has_no_disk() -> None:
    with pytest.raises(BrokerFailed, match="stopped"):
        Broker().disk.fail_syncs()
