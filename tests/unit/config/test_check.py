"""`check` finds everything at once; differences and the reference are made from the same tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.check import Finding, Severity, check
from pybroker.config.definition import ConfigError
from pybroker.config.difference import differences, differences_of
from pybroker.config.reference import as_markdown, as_rows

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[3]


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return path


def places(findings: list[Finding]) -> list[tuple[str, int | None, tuple[str, ...]]]:
    return [(each.severity.value, each.line, each.keys) for each in findings]


@pytest.mark.parametrize("key", ["node.id", "broker.id"])
@pytest.mark.parametrize("value", ["abc", "-5"])
def test_an_id_that_is_wrong_is_told_once_by_the_name_that_was_given(tmp_path: Path, key: str, value: str) -> None:
    path = write(tmp_path, f"{key}={value}\nprocess.roles=broker,controller\nnum.partitions=x\n")
    errors = [each for each in check(path) if each.severity is Severity.ERROR]
    assert places(errors) == [("error", 1, (key,)), ("error", 3, ("num.partitions",))]
    assert f"Invalid value {value} for configuration {key};" in errors[0].text
    path.write_text(f"{key}={value}\nprocess.roles=broker,controller\n")
    with pytest.raises(ConfigError) as raised:
        BrokerConfig.load(path)
    assert str(raised.value) == errors[0].as_reason()


def test_every_error_is_found_in_one_go(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "num.partitions=many\nlog.retention.hours=0\nlisteners=SSL://:9\nauthorizer.class.name=x\nnope=1\n"
        "replica.fetch.wait.max.ms=1000000\nnum.io.threads=4\nlistener.name.a.max.connections=x\nlog.dirs=/a\n",
    )
    findings = check(path)
    assert places(findings) == [
        ("error", 1, ("num.partitions",)),
        ("error", 2, ("log.retention.hours",)),
        ("error", 3, ("listeners", "listener.security.protocol.map")),
        ("error", 4, ("authorizer.class.name",)),
        ("error", 6, ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms")),
        ("error", 8, ("listener.name.a.max.connections",)),
        ("warning", 5, ("nope",)),
        ("note", 7, ("num.io.threads",)),
    ]
    accepted = "Invalid value many for configuration num.partitions; accepted: a whole number from 1 to 2147483647"
    assert str(findings[0]) == f"{path}:1: error: {accepted}"
    assert findings[0].as_dict() == {
        "severity": "error",
        "kind": "invalid",
        "keys": ["num.partitions"],
        "source": str(path),
        "line": 1,
        "text": accepted,
    }


def test_a_rule_that_ties_settings_together_is_told_at_the_line_of_one_of_them(tmp_path: Path) -> None:
    path = write(tmp_path, "\nreplica.lag.time.max.ms=1\n")
    (finding,) = [each for each in check(path) if each.severity is Severity.ERROR]
    assert (finding.source, finding.line) == (str(path), 2)
    with pytest.raises(ValueError, match=f"^{path}:2: replica.fetch.wait.max.ms "):
        BrokerConfig.load(path)


def test_what_no_broker_would_find_is_an_error(tmp_path: Path) -> None:
    listeners = "listeners=A://:1,B://:2\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT\n"
    path = write(tmp_path, listeners + "advertised.listeners=A://h:1\n")
    (finding,) = check(path)
    assert finding.text == "advertised.listeners leaves out B, so who connects there would find no broker; add it"
    path = write(tmp_path, listeners + "advertised.listeners=B://h:4,A://h:3\n")
    assert [each.port for each in BrokerConfig.load(path).advertised_listeners] == [3, 4]


def test_what_follows_from_an_error_is_not_told_by_itself(tmp_path: Path) -> None:
    path = write(tmp_path, "listeners=A:/x\nlistener.security.protocol.map=A:PLAINTEXT\n")
    assert places(check(path)) == [("error", 1, ("listeners",))]


def test_a_file_that_cannot_be_read_and_one_with_a_broken_escape(tmp_path: Path) -> None:
    (missing,) = check(tmp_path / "absent")
    assert (missing.severity, missing.source, missing.line) == (Severity.ERROR, str(tmp_path / "absent"), None)
    (broken,) = check(write(tmp_path, "a=1\nb=\\u12\n"))
    assert (broken.severity, broken.line) == (Severity.ERROR, 2)
    (override,) = check(None, ["x"])
    assert override.text.startswith("--override 'x' is not key=value")


def test_nothing_to_say() -> None:
    listeners = "listeners=PLAINTEXT://127.0.0.1:9092"
    assert check(None, [listeners]) == []
    assert check(None, [listeners, "num.partitions=3", "authorizer.class.name="]) == []


def test_a_broker_on_loopback_by_default_is_a_note_and_one_that_others_are_sent_to_a_warning(tmp_path: Path) -> None:
    (note,) = check(None)
    assert (note.severity, note.kind, note.keys, note.source) == (Severity.NOTE, "loopback", ("listeners",), None)
    assert str(note).startswith("note: listeners is not set, so the broker listens on 127.0.0.1:9092 alone; write ")
    path = write(tmp_path, "node.id=1\nadvertised.listeners=PLAINTEXT://broker.example:9092\n")
    (warning,) = check(path)
    assert (warning.severity, warning.kind, warning.line) == (Severity.WARNING, "unreachable", 2)
    assert "clients are told PLAINTEXT://broker.example:9092, where nothing answers" in warning.text
    path = write(tmp_path, "process.roles=broker\ncontroller.quorum.bootstrap.servers=localhost:9093\n")
    (warning,) = check(path)
    assert (warning.severity, warning.keys, warning.line) == (Severity.WARNING, ("process.roles",), 1)


def test_an_old_file_has_warnings_and_notes_but_no_errors() -> None:
    findings = check(DATA / "zookeeper.properties")
    assert {each.severity for each in findings} == {Severity.WARNING, Severity.NOTE}
    assert {each.kind for each in findings} == {"retired", "old name", "overridden", "no effect", "loopback"}


def test_differences_from_the_defaults(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "num.partitions= 3\nlog.retention.hours=168\nnope=1\nssl.keystore.password=hush\n"
        "log.cleanup.policy=compact, delete\n",
    )
    found = differences(BrokerConfig.load(path))
    assert [each.as_dict() for each in found] == [
        {"name": "log.cleanup.policy", "value": "compact,delete", "default": "delete", "where": f"{path}:5"},
        {"name": "num.partitions", "value": "3", "default": "1", "where": f"{path}:1"},
        {"name": "ssl.keystore.password", "value": "[hidden]", "default": None, "where": f"{path}:4"},
    ]


def test_differences_of_values_that_are_not_told_or_make_no_sense() -> None:
    found = differences_of(
        {"ssl.key.password": None, "num.partitions": "x"}, dict.fromkeys(("ssl.key.password", "num.partitions"), "p")
    )
    assert [each.value for each in found] == ["x", "[hidden]"]


def test_the_reference_in_the_docs_is_up_to_date() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == as_markdown(), (
        "run `pybroker config docs --output docs/configuration.md`"
    )


def test_rows_of_the_reference() -> None:
    rows = as_rows()
    # Kafka's 379 of a broker, 3 throttles and 38 of a topic, and ours.
    assert len(rows) - sum(str(row["name"]).startswith("pybroker.") for row in rows) == 379 + 3 + 38
    (row,) = as_rows(["log.cleaner.io.max.bytes.per.second"])
    assert (row["of"], row["type"], row["changes"], row["here"]) == ("broker", "double", "live", "supported")
    assert [row["of"] for row in as_rows(["compression.type"])] == ["topic", "broker"]
    with pytest.raises(KeyError, match="nope"):
        as_rows(["nope"])
