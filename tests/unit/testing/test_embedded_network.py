"""The network of a test broker fails as it is told to, and clients that go past it notice nothing."""

import time
from collections.abc import Iterator

import pytest

from pybroker.protocol import messages as m
from pybroker.testing import Broker
from pybroker.testing.embedded.network import Network
from pybroker.testing.protocol_client import ProtocolClient

DELAY_S = 0.1


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def network(broker: Broker) -> Iterator[Network]:
    yield broker.network
    broker.network.heal()


def client_of(address: str) -> ProtocolClient:
    return ProtocolClient(int(address.rpartition(":")[2]))


def told_port(client: ProtocolClient) -> int:
    """Where the broker says that it is."""
    (row,) = client.call(m.MetadataRequest(topics=[]), 8).brokers
    assert isinstance(row.port, int)
    return row.port


def test_each_way_tells_of_itself(broker: Broker, network: Network) -> None:
    for address in (broker.bootstrap_servers, network.bootstrap_servers):
        with client_of(address) as client:
            assert address == f"127.0.0.1:{told_port(client)}"


def test_new_connections_are_refused_and_old_ones_go_on(broker: Broker, network: Network) -> None:
    with client_of(network.bootstrap_servers) as client:
        told_port(client)
        network.refuse()
        with pytest.raises(ConnectionRefusedError):
            client_of(network.bootstrap_servers)
        told_port(client)
        client_of(broker.bootstrap_servers).close()
    network.heal()
    with client_of(network.bootstrap_servers) as client:
        told_port(client)


def test_connections_are_reset(broker: Broker, network: Network) -> None:
    with client_of(network.bootstrap_servers) as client, client_of(broker.bootstrap_servers) as beside:
        told_port(client)
        assert network.connection_count >= 1
        network.drop()
        with pytest.raises(ConnectionError):
            told_port(client)
        told_port(beside)
    with client_of(network.bootstrap_servers) as client:
        told_port(client)


def test_bytes_are_late_each_way(network: Network) -> None:
    with client_of(network.bootstrap_servers) as client:
        told_port(client)
        network.delay(DELAY_S)
        started = time.monotonic()
        told_port(client)
        assert time.monotonic() - started >= 2 * DELAY_S


def test_connections_end_with_the_broker_and_come_back_with_it(broker: Broker, network: Network) -> None:
    with client_of(network.bootstrap_servers) as client:
        told_port(client)
        broker.kill()
        with pytest.raises(ConnectionError):
            told_port(client)
    with pytest.raises(ConnectionError), client_of(network.bootstrap_servers) as client:
        told_port(client)
    broker.start()
    with client_of(network.bootstrap_servers) as client:
        told_port(client)
