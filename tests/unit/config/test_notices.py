"""What is told of old names, dead keys, misspelt ones and those without effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.config.alter import ConfigAlteration, InvalidAlteration, alter_broker, alter_topic
from pybroker.config.broker import BrokerConfig
from pybroker.config.definition import ConfigError
from pybroker.config.notices import NoticeKind, notices_of, similar_key

DATA = Path(__file__).parent / "data"


def told(**static: str) -> dict[str, tuple[NoticeKind, str]]:
    """Kind and text for each key; an underscore stands for a dot."""
    settings = {name.replace("_", "."): text for name, text in static.items()}
    notices = notices_of(settings, dict.fromkeys(settings, "here"))
    return {each.key: (each.kind, each.text) for each in notices}


def text_of(name: str, value: str = "1") -> str:
    (notice,) = notices_of({name: value}, {name: "here"})
    return notice.text


def test_a_file_of_the_zookeeper_age_starts_and_says_what_its_keys_mean() -> None:
    path = DATA / "zookeeper.properties"
    config = BrokerConfig.load(path)
    assert (config.node_id, config.log_dirs, config.listeners[0].port) == (4, (Path("/var/lib/kafka"),), 9092)
    by_line = {line.split(": ")[0].rpartition(":")[2]: line for line in config.warnings}
    for line, words in {
        "2": "broker.id is the old name of node.id; write node.id=4",
        "3": "write listeners=PLAINTEXT://broker1:9095 for it",
        "5": "write advertised.listeners=PLAINTEXT://broker1.example.org:9095 for it",
        "10": "log.dir gives way to log.dirs, which is set as well",
        "17": "there is no ZooKeeper: the broker keeps its metadata itself, in __cluster_metadata-0; remove the line",
        "19": "a feature of the cluster says it (kafka-features describe, metadata.version)",
        "20": "records are always kept in format v2",
        "21": "write log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms for it",
        "22": "it has another name; write delegation.token.secret.key for it",
    }.items():
        assert words in by_line[line], line
    assert config.warnings[-1] == (
        "accepted without effect (`pybroker config check` says why): "
        "num.io.threads, num.network.threads, transaction.state.log.min.isr"
    )
    assert len(config.warnings) == 12
    assert not any("hush" in line for line in config.warnings)


def test_a_generated_broker_id_leaves_the_number_to_its_default() -> None:
    config = BrokerConfig.load(None, ["broker.id=-1"])
    assert config.node_id == 1
    assert BrokerConfig.load(None, ["broker.id=-1", "node.id=3"]).node_id == 3
    assert "asked for a number to be made up" in config.warnings[0]


def test_both_names_of_the_number() -> None:
    assert told(broker_id="3", node_id="3") == {
        "broker.id": (
            NoticeKind.OLD_NAME,
            "broker.id is the old name of node.id, which is set as well; remove the line",
        )
    }


def test_a_retired_key_whose_replacement_is_set() -> None:
    found = told(port="9095", listeners="PLAINTEXT://:9095")
    assert found["port"][1].endswith("listeners, which is set, stands for it: remove the line")
    assert set(found) == {"port"}


def test_the_weaker_of_two_keys_gives_way() -> None:
    found = told(log_retention_hours="1", log_retention_ms="5", log_roll_hours="2")
    assert found == {
        "log.retention.hours": (
            NoticeKind.OVERRIDDEN,
            "log.retention.hours gives way to log.retention.ms, which is set as well",
        )
    }


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("log.retension.hours", "log.retention.hours"),
        ("LOG_SEGMENT_BYTES", "log.segment.bytes"),
        ("advertised.listener", "advertised.listeners"),
        ("pybroker.durabilty", "pybroker.durability"),
    ],
)
def test_a_misspelt_key_gets_a_suggestion(name: str, meant: str) -> None:
    assert similar_key(name) == meant
    assert text_of(name) == f"{name} is not a known setting; it has no effect; is {meant} meant?"


def test_unknown_keys_without_anything_similar_and_those_of_topics() -> None:
    assert text_of("zzz") == "zzz is not a known setting; it has no effect"
    assert text_of("retention.ms").endswith("here: it belongs to a topic; log.retention.ms is what topics take it from")
    assert text_of("message.format.version").endswith("here: it belonged to a topic until Kafka 3.9")


def test_keys_for_classes_that_are_not_loaded() -> None:
    assert "everybody may do everything" in text_of("super.users")
    assert "no" in text_of("rsm.config.path")
    (notice,) = notices_of({"rsm.config.path": "x"}, {"rsm.config.path": "here"})
    assert (notice.kind, str(notice)) == (NoticeKind.PLUGIN, f"here: {notice.text}")


def test_nothing_is_told_of_what_is_served() -> None:
    assert told(num_partitions="1", log_dirs="/a", node_id="1") == {}
    assert notices_of({"authorizer.class.name": ""}, {"authorizer.class.name": "here"}) == []


def test_value_that_an_editor_saved_as_utf_8_is_told_of(tmp_path: Path) -> None:
    """Its log dirs would be other ones than the person sees, and empty."""
    path = tmp_path / "server.properties"
    path.write_bytes("broker.rack=Z\u00fcrich\nlog.dirs=/d\u00e4ta\n".encode())
    config = BrokerConfig.load(path)
    assert config.log_dirs == (Path("/d\u00c3\u00a4ta"),)
    warnings = [line for line in config.warnings if "ISO 8859-1" in line]
    assert [line.split(": ")[0] for line in warnings] == [f"{path}:1", f"{path}:2"]
    path.write_bytes("broker.rack=Z\u00fcrich\n".encode("iso-8859-1"))
    assert not any("ISO 8859-1" in line for line in BrokerConfig.load(path).warnings)


def test_values_that_a_provider_should_look_up(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=${file:/etc/kafka.properties:partitions}\n")
    with pytest.raises(ConfigError, match=r"^.*server.properties:1: Invalid value \$\{file:.*config\.providers"):
        BrokerConfig.load(path)
    path.write_text("broker.rack=${env:RACK}\nlog.dirs=/a/${b}\n")
    (told,) = BrokerConfig.load(path).warnings
    assert told.startswith(f"{path}:1: broker.rack is taken as it stands.")
    assert "config.providers" in told
    path.write_text("num.partitions=many\n")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(path)
    assert "config.providers" not in str(caught.value)


@pytest.mark.parametrize("value", ["${file:/a:b}", "${env:X}", "${dir:/a:b.c}", "x${vault:a}y"])
def test_other_settings_name_providers_too(value: str) -> None:
    broker = BrokerConfig.load(None)
    with pytest.raises(InvalidAlteration, match=r"config\.providers"):
        alter_topic({}, [ConfigAlteration("retention.ms", 0, value)], broker)
    with pytest.raises(InvalidAlteration, match=r"config\.providers"):
        alter_broker({}, [ConfigAlteration("log.retention.ms", 0, value)], broker, per_broker=False)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "CONTROLLER"),
        ({"listeners": "PLAINTEXT://:9092,ctl://:9093", "controller_listener_names": "CTL"}, "CTL"),
    ],
)
def test_a_controller_listener_that_is_not_opened_is_told_of(settings: dict[str, str], named: str) -> None:
    kind, text = told(**settings)["listeners"]
    assert kind is NoticeKind.UNOPENED and kind.is_warning
    assert text.startswith(f"{named} in listeners is not opened")


def test_listeners_of_clients_need_no_notice() -> None:
    assert "listeners" not in told(listeners="PLAINTEXT://:9092,INTERNAL://:9094")
