"""BrokerConfig: file, overrides, warnings, dynamic layers, and values that contradict each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.broker_keys import BROKER_KEYS, find_key
from pybroker.config.definition import ConfigError, ConfigKey, ConfigType, Importance, format_value
from pybroker.config.rules import connection_overrides


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return path


def test_nothing_needs_to_be_configured() -> None:
    config = BrokerConfig.load(None)
    assert config.node_id == 1
    assert config.log_dirs == (Path("/tmp/kafka-logs"),)
    assert config.metadata_log_dir == Path("/tmp/kafka-logs")
    assert config.rack is None
    assert config.warnings == ()
    assert config.get("pybroker.durability") == "auto"


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "num.partitions=3\nlog.dirs = /a, /b\nbroker.rack=r1\nmetadata.log.dir=/m\n")
    config = BrokerConfig.load(path, ["num.partitions=5", "log.retention.ms = -1"])
    assert config.get_int("num.partitions") == 5
    assert config.get_int("log.retention.ms") == -1
    assert config.log_dirs == (Path("/a"), Path("/b"))
    assert (config.rack, config.metadata_log_dir) == ("r1", Path("/m"))


def test_a_bad_value_names_file_line_key_value_and_what_is_accepted(tmp_path: Path) -> None:
    path = write(tmp_path, "# mine\nnum.partitions=many\n")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(path)
    expected = (
        f"{path}:2: Invalid value many for configuration num.partitions; accepted: a whole number from 1 to 2147483647"
    )
    assert str(caught.value) == expected
    with pytest.raises(
        ConfigError,
        match=r"^--override: Invalid value zip for configuration compression.type; accepted: unc",
    ):
        BrokerConfig.load(None, ["compression.type=zip"])
    with pytest.raises(ConfigError, match=r"--override 'log\.dirs' is not key=value"):
        BrokerConfig.load(None, ["log.dirs"])


def test_a_secret_is_not_repeated_in_an_error() -> None:
    key = ConfigKey("a.password", ConfigType.PASSWORD, None, Importance.LOW, "Secret.")
    assert "hush" not in str(key.error("hush"))


def test_warnings_for_unknown_idle_and_repeated_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "nope=1\nnum.io.threads=4\nlistener.name.a.ssl.key.password=x\nnode.id=1\nnode.id=2\n")
    config = BrokerConfig.load(path)
    assert config.warnings == (
        f"{path}:5: node.id is set again; the last value counts",
        f"{path}:1: nope is not a known setting; it has no effect",
        "accepted without effect (`pybroker config check` says why): listener.name.a.ssl.key.password, num.io.threads",
    )
    assert config.get_int("num.io.threads") == 4
    assert config.node_id == 2


def test_broker_id_is_node_id() -> None:
    assert BrokerConfig.load(None, ["broker.id=7"]).node_id == 7
    with pytest.raises(ConfigError, match=r"broker.id and node.id differ"):
        BrokerConfig.load(None, ["broker.id=7", "node.id=8"])


def test_dynamic_values_in_kafkas_order() -> None:
    static = BrokerConfig.load(None, ["message.max.bytes=1"])
    assert static.with_dynamic({"message.max.bytes": "2"}, {}).get("message.max.bytes") == 2
    both = static.with_dynamic({"message.max.bytes": "2"}, {"message.max.bytes": "3"})
    assert both.get("message.max.bytes") == 3
    assert both.with_dynamic({}, {}).get("message.max.bytes") == 1
    assert static.get("message.max.bytes") == 1


def test_dynamic_values_that_cannot_be_used_are_left_out_with_a_warning() -> None:
    static = BrokerConfig.load(None, ["nope=1"])
    config = static.with_dynamic({"message.max.bytes": "x"}, {"listeners": "PLAINTEXT://:1"})
    assert config.get("message.max.bytes") == 1048588
    assert config.listeners[0].port == 9092
    assert [warning.split(": ")[0] for warning in config.warnings] == ["dynamic default", "dynamic value"]
    assert config.with_dynamic({}, {}).warnings == ()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("process.roles=controller", "process.roles cannot be 'controller'; accepted: broker,controller"),
        ("process.roles=broker", "process.roles=broker needs controller.quorum.bootstrap.servers"),
        ("controller.quorum.voters=1@a:1,2@b:1", "this node alone, 1@host:port"),
        ("authorizer.class.name=x", "every client would be allowed everything"),
        ("log.retention.hours=0", "log.retention.hours cannot be 0"),
        ("log.roll.ms=0", "log.roll.ms cannot be 0"),
        ("log.roll.jitter.ms=-1", "log.roll.jitter.ms cannot be -1"),
        ("cordoned.log.dirs=/x", "cordoned.log.dirs names /x"),
        ("log.cleaner.threads=128", "more than 1 MiB"),
        ("log.cleaner.dedupe.buffer.size=1048576", "more than 1 MiB"),
        ("offsets.topic.compression.codec=5", "4 zstd"),
        ("group.min.session.timeout.ms=1800001", "must not be above group.max.session.timeout.ms (1800000)"),
        ("broker.heartbeat.interval.ms=5000", "at least twice broker.heartbeat.interval.ms"),
        ("queued.max.request.bytes=5", "at least socket.request.max.bytes"),
        ("max.connections.per.ip.overrides=h", "host:count"),
    ],
)
def test_values_that_contradict_each_other(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(None, [override])
    assert message in str(caught.value)


def test_brokers_of_a_cluster_have_a_listener_for_each_other() -> None:
    joins = ["process.roles=broker", "controller.quorum.bootstrap.servers=c:1"]
    assert BrokerConfig.load(None, joins).inter_broker_listener == "PLAINTEXT"
    own = [
        "listeners=OUT://:1,IN://:2",
        "listener.security.protocol.map=OUT:PLAINTEXT,IN:PLAINTEXT,CONTROLLER:PLAINTEXT",
    ]
    with pytest.raises(ConfigError, match=r"no listener is named PLAINTEXT.*set that to one of OUT, IN"):
        BrokerConfig.load(None, [*joins, *own])
    assert BrokerConfig.load(None, [*joins, *own, "inter.broker.listener.name=in"]).inter_broker_listener == "IN"
    assert BrokerConfig.load(None, own).inter_broker_listener == "PLAINTEXT", "alone it needs none"


def test_connection_overrides() -> None:
    assert connection_overrides("10.0.0.1:5, ::1:7") == {"10.0.0.1": 5, "::1": 7}
    assert connection_overrides("") == {}
    for text in ("h:", ":5", "h:-1", "h:\u00b2"):
        with pytest.raises(ConfigError):
            connection_overrides(text)


def test_typed_access_refuses_other_types() -> None:
    config = BrokerConfig.load(None)
    assert config.get_bool("auto.create.topics.enable") is True
    assert config.get_float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.get_list("log.dirs") == ()
    for name, access in (
        ("log.dirs", config.get_int),
        ("log.preallocate", config.get_int),
        ("num.partitions", config.get_bool),
        ("num.partitions", config.get_float),
        ("broker.rack", config.get_str),
        ("compression.type", config.get_list),
    ):
        with pytest.raises(TypeError, match=name):
            access(name)
    with pytest.raises(KeyError):
        config.get("nope")


def test_find_key_knows_listener_prefixes() -> None:
    found = find_key("listener.name.out.scram-sha-256.sasl.jaas.config")
    assert found is not None
    assert (found.type, found.sensitive, found.honoured) == (ConfigType.PASSWORD, True, False)
    assert find_key("listener.name.out.nope") is None
    assert find_key("nope") is None


def test_units_come_from_names() -> None:
    assert BROKER_KEYS["log.segment.bytes"].unit == "bytes"
    assert BROKER_KEYS["log.retention.hours"].unit == "hours"
    assert BROKER_KEYS["log.cleaner.io.max.bytes.per.second"].unit == "bytes per second"
    assert BROKER_KEYS["pybroker.spin.us"].unit == "microseconds"
    assert BROKER_KEYS["num.partitions"].unit is None
    assert BROKER_KEYS["remote.log.manager.task.retry.jitter"].unit is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.001, "0.001"), (0.0001, "1.0E-4"), (1e7, "1.0E7"), (12345678.0, "1.2345678E7"), (0.0, "0.0"),
        (-2.5e-10, "-2.5E-10"), (1e22, "1.0E22"), (9999999.0, "9999999.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)  # fmt: skip
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert format_value(value) == text
