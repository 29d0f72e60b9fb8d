"""The generator: committed files are what it writes, its text format says what it means, and mistakes are named."""

from __future__ import annotations

import pytest

from pybroker.protocol import definitions
from pybroker.protocol.definitions import SchemaError, Versions, parse_message, parse_versions, snake_case
from pybroker.protocol.error_codes import RETRIABLE, ErrorCode
from pybroker.protocol.errors import KafkaError, code_name, is_retriable
from pybroker.protocol.generate import error_codes, from_jars
from pybroker.protocol.generate.__main__ import main
from pybroker.protocol.kafka_version import KAFKA_VERSION

DEFINITION = {
    "apiKey": 7,
    "type": "request",
    "listeners": ["broker"],
    "name": "ThingRequest",
    "validVersions": "0-3",
    "flexibleVersions": "2+",
    "latestVersionUnstable": True,
    "fields": [
        {"name": "Id", "type": "int32", "versions": "0+", "default": "0x10", "ignorable": True, "about": "Prose."},
        {"name": "Note", "type": "string", "versions": "1+", "nullableVersions": "2+", "default": "null"},
        {"name": "Late", "type": "int64", "taggedVersions": "2+", "tag": 0, "default": -1},
        {
            "name": "Parts",
            "type": "[]Part",
            "versions": "0+",
            "fields": [{"name": "Key", "type": "string", "versions": "0-1", "mapKey": True}],
        },
        {"name": "Shared", "type": "Common", "versions": "0+", "nullableVersions": "0+", "default": None},
    ],
    "commonStructs": [
        {
            "name": "Common",
            "versions": "0+",
            "fields": [{"name": "On", "type": "bool", "versions": "0+", "default": "true"}],
        }
    ],
}
TEXT = """\
request ThingRequest key=7 versions=0-3 flexible=2+ listeners=broker latest-unstable
  Id int32 0+ default=16 ignorable
  Note string 1+ nullable=2+ default=null
  Late int64 2+ tag=0@2+ default=-1
  Parts []Part 0+
    Key string 0-1 key
  Shared Common 0+ nullable=0+
  struct Common 0+
    On bool 0+ default=true"""


def test_committed_python_files_are_up_to_date() -> None:
    assert main(["stub", "--check"]) == 0


def test_a_definition_as_schema_text_and_back() -> None:
    assert from_jars.block(DEFINITION) == TEXT
    message = parse_message(TEXT, "requests")
    assert (message.name, message.api_key, message.versions, message.latest_unstable) == (
        "ThingRequest",
        7,
        Versions(0, 3),
        True,
    )
    identifier, note, late, parts, shared = message.body.fields
    assert (identifier.int_default(), identifier.ignorable) == (16, True)
    assert (note.nullable, note.default_is_null) == (parse_versions("2+"), True)
    assert (late.tag, late.tagged, late.int_default()) == (0, parse_versions("2+"), -1)
    assert parts.is_array and parts.struct is message.structs["Part"] and parts.struct.fields[0].map_key
    assert shared.struct is message.structs["Common"] and not shared.default_is_null


def test_what_the_text_cannot_say_is_refused() -> None:
    with pytest.raises(SchemaError, match="newAttribute"):
        from_jars.block({**DEFINITION, "newAttribute": 1})
    with pytest.raises(SchemaError, match="wonder"):
        from_jars.block({**DEFINITION, "fields": [{"name": "A", "type": "int8", "versions": "0+", "wonder": 1}]})


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("  Name", "bad line"),
        ("      Name string 0+", "bad line"),
        ("  Name Missing 0+", "unknown type Missing"),
        ("  Name string 0+ odd=1", "odd=1"),
        ("  Name string x", "'x'"),
    ],
)
def test_malformed_schema_lines(line: str, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        parse_message(f"request A key=1 versions=0 flexible=none\n{line}", "requests")


def test_versions() -> None:
    assert [str(parse_versions(text)) for text in ("0", "1-3", "2+", "none")] == ["0", "1-3", "2+", "none"]
    assert 3 in parse_versions("1-3")
    assert 4 not in parse_versions("1-3")
    assert 32767 in parse_versions("2+")
    assert not parse_versions("none")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ThrottleTimeMs", "throttle_time_ms"),
        ("commitTimestamp", "commit_timestamp"),
        ("KRaftVersion", "kraft_version"),
        ("LastKnownElr", "last_known_elr"),
        ("Unknown2Digits", "unknown2_digits"),
    ],
)
def test_snake_case(name: str, expected: str) -> None:
    assert snake_case(name) == expected


def test_names_are_unique_over_all_namespaces() -> None:
    names = [head.name for head in definitions.heads()]
    assert len(names) == len(set(names)) == 286


def test_error_codes() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.UNKNOWN_SERVER_ERROR == -1
    assert (code_name(41), code_name(-5)) == ("NOT_CONTROLLER", "error code -5")
    assert is_retriable(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not is_retriable(ErrorCode.MESSAGE_TOO_LARGE)
    assert {fact.code for fact in error_codes.load() if fact.retriable} == RETRIABLE
    assert KafkaError(ErrorCode.INVALID_CONFIG, "why").code is ErrorCode.INVALID_CONFIG
    assert str(KafkaError(ErrorCode.INVALID_CONFIG)) == "INVALID_CONFIG"


def test_missing_jars_are_named(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--jars", str(tmp_path)]) == 1
    assert f"kafka-clients-{KAFKA_VERSION}.jar is missing" in capsys.readouterr().err
