"""Listeners: text to values, and what results for broker and controller."""

from __future__ import annotations

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import ConfigError
from pybroker.config.listeners import Listener, parse_listeners, parse_protocol_map


def load(*overrides: str) -> BrokerConfig:
    return BrokerConfig.load(None, overrides)


def test_without_a_setting_the_broker_is_on_loopback() -> None:
    config = load()
    assert config.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert config.advertised_listeners == config.listeners
    assert config.controller_listener == Listener("CONTROLLER", "127.0.0.1", 9093, "PLAINTEXT")
    assert config.warnings == ()


def test_an_empty_host_that_was_written_is_every_interface() -> None:
    config = load("listeners=PLAINTEXT://:9092")
    assert config.listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.advertised_listeners == config.listeners


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("advertised.listeners=PLAINTEXT://broker.example:9092", "clients are told PLAINTEXT://broker.example:9092"),
        ("advertised.listeners=PLAINTEXT://192.0.2.1:9092", "clients are told PLAINTEXT://192.0.2.1:9092"),
        ("process.roles=broker", "brokers, controllers and clients on other machines cannot reach it"),
        ("advertised.listeners=PLAINTEXT://localhost:9092", None),
        ("advertised.listeners=PLAINTEXT://[::1]:9092", None),
    ],
)
def test_settings_that_want_others_to_connect_contradict_the_default_listener(override: str, told: str | None) -> None:
    quorum = ["controller.quorum.bootstrap.servers=localhost:9093"]
    config = load(override, *quorum)
    assert config.listeners[0].host == "127.0.0.1"
    said = [each for each in config.warnings if "listeners=PLAINTEXT://:9092" in each]
    assert len(said) == (told is not None)
    assert told is None or told in said[0]
    assert not [each for each in load(override, "listeners=PLAINTEXT://:9092", *quorum).warnings if "not set" in each]


def test_a_file_for_a_combined_kafka_node_works() -> None:
    config = load(
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "inter.broker.listener.name=PLAINTEXT",
        "controller.quorum.bootstrap.servers=localhost:9093",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    )
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://:9092"]
    assert [str(listener) for listener in config.advertised_listeners] == ["PLAINTEXT://localhost:9092"]
    assert str(config.controller_listener) == "CONTROLLER://127.0.0.1:9093"


def test_the_controller_endpoint_comes_from_the_voters() -> None:
    assert str(load("controller.quorum.voters=1@host:19093").controller_listener) == "CONTROLLER://host:19093"


def test_names_hosts_and_ports() -> None:
    protocols = parse_protocol_map("inside:plaintext, OUT:SSL")
    assert protocols == {"INSIDE": "PLAINTEXT", "OUT": "SSL"}
    listeners = parse_listeners("listeners", ("inside://[::1]:0", "OUT://a-b.example:65535"), protocols)
    assert listeners == (Listener("INSIDE", "::1", 0, "PLAINTEXT"), Listener("OUT", "a-b.example", 65535, "SSL"))
    assert str(listeners[0]) == "INSIDE://[::1]:0"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["listeners=localhost:9092"], "listeners has the item 'localhost:9092'; accepted: NAME://host:port"),
        (["listeners=PLAINTEXT://:65536"], "port from 0 to 65535"),
        (["listeners=PLAINTEXT://:1,PLAINTEXT://:2"], "listener PLAINTEXT twice"),
        (["listeners=PLAINTEXT://:1,SSL://:1"], "share port 1"),
        (["listeners=SSL://:9092"], "listener SSL stands for SSL, which is not served; accepted: PLAINTEXT"),
        (["listeners=X://:9092"], "listener X has no security protocol; add X:PLAINTEXT"),
        (["listeners=CONTROLLER://:9093"], "listeners has only controller listeners"),
        (["listener.security.protocol.map=A:TLS"], "has the item 'A:TLS'"),
        (["listener.security.protocol.map=A:SSL,A:PLAINTEXT"], "gives listener A two protocols"),
        (["advertised.listeners=PLAINTEXT://0.0.0.0:9092"], "clients to connect to 0.0.0.0"),
        (["advertised.listeners=SSL://h:9092"], "advertised.listeners names SSL"),
        (["inter.broker.listener.name=X"], "inter.broker.listener.name is X"),
    ],
)
def test_errors_say_what_to_change(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(*overrides)
    assert message in str(caught.value)
