"""Records `kafka-…-alterations.tsv` and `kafka-…-described.jsonl` beside this file, from Apache Kafka itself.

    python tests/unit/config/data/record_kafka_behaviour.py

A single node with `server.properties` is asked what its configuration is, gets the alterations of the newest recording
one after the other, and is asked again. Ports and the log dir are free ones; the recording has those of the file. They
are in git so that tests need no Java; run this again when the reference version changes.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from pybroker.config.alter import AlterOperation
from pybroker.config.definition import ConfigType
from pybroker.config.describe import ConfigSource
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.kafka_version import KAFKA_VERSION
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.kafka import KafkaBroker, run_tool

HERE = Path(__file__).parent
TOPIC = {"segment.bytes": "3000000", "cleanup.policy": "compact,delete"}
#: Resource type and name of what the recording calls by these names.
RESOURCES = {"topic": (2, "t"), "broker": (4, "1"), "default": (4, "")}
#: What is asked for last of all is in effect when all of these have a new value, or after this time.
SETTLED_SECONDS = 3.0

Described = dict[str, list[Any]]


class _Node(KafkaBroker):
    """Apache Kafka with the settings of `server.properties`, at ports and in a dir of its own."""

    def _write_properties(self) -> None:
        self._properties_path.write_text(self.placed((HERE / "server.properties").read_text()))

    def _format(self) -> None:
        run_tool("kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", str(self._properties_path))

    def placed(self, text: str) -> str:
        """Text with this node's places in it instead of the recording's."""
        for recorded, own in self._places():
            text = text.replace(recorded, own)
        return text

    def recorded(self, text: str) -> str:
        """The other way round."""
        for recorded, own in self._places():
            text = text.replace(own, recorded)
        return text

    def _places(self) -> tuple[tuple[str, str], ...]:
        return (
            ("127.0.0.1:9092", self.bootstrap),
            ("127.0.0.1:9093", f"127.0.0.1:{self.controller_port}"),
            ("/tmp/data", str(self.log_dir)),
        )


def _described(node: _Node, client: ProtocolClient, resource: str) -> Described:
    kind, name = RESOURCES[resource]
    wanted = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)
    request = m.DescribeConfigsRequest(resources=[wanted], include_synonyms=True)
    (answer,) = client.call(request, 4).results
    assert answer.error_code == ErrorCode.NONE, answer
    return {each.name: json.loads(node.recorded(json.dumps(_entry(each)))) for each in answer.configs}


def _entry(each: m.DescribeConfigsResponse.DescribeConfigsResourceResult) -> list[Any]:
    kind = ConfigType(each.config_type).name if each.config_type else "UNKNOWN"
    synonyms = [[other.name, other.value, ConfigSource(other.source).name] for other in each.synonyms]
    return [each.value, ConfigSource(each.config_source).name, each.is_sensitive, each.read_only, kind, synonyms]


def _altered(client: ProtocolClient, resource: str, operation: str, name: str, value: str) -> str:
    kind, resource_name = RESOURCES[resource]
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(
        name=name, config_operation=AlterOperation[operation].value, value=None if value == "null" else value
    )
    row = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=resource_name, configs=[config]
    )
    (answer,) = client.call(m.IncrementalAlterConfigsRequest(resources=[row]), 1).responses
    return "OK" if answer.error_code == ErrorCode.NONE else ErrorCode(answer.error_code).name


def _create_topic(client: ProtocolClient) -> None:
    topic = m.CreateTopicsRequest.CreatableTopic
    configs = [m.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value) for name, value in TOPIC.items()]
    request = m.CreateTopicsRequest(topics=[topic(name="t", num_partitions=1, replication_factor=1, configs=configs)])
    assert client.call(request, 7).topics[0].error_code == ErrorCode.NONE


def _lines(resource: str, entries: Described, *, before: Described | None = None) -> list[str]:
    """Without entries of a broker that only repeat its built-in default, and those that are as `before`."""
    left = {
        name: entry
        for name, entry in sorted(entries.items())
        if (before is None or before.get(name) != entry)
        and (before is not None or resource.endswith("topic") or len(entry[-1]) != 1 or entry[1] != "DEFAULT")
    }
    return [json.dumps([resource, name, *entry], separators=(",", ":")) for name, entry in left.items()]


def main() -> None:
    newest = max(HERE.glob("kafka-*-alterations.tsv"), key=lambda path: re.findall(r"\d+", path.name))
    rows = [line.split("\t") for line in newest.read_text().splitlines()]
    with (
        tempfile.TemporaryDirectory() as directory,
        _Node(Path(directory) / "data") as node,
        ProtocolClient(node.port) as client,
    ):
        _create_topic(client)
        time.sleep(SETTLED_SECONDS)
        before = {name: _described(node, client, name) for name in ("topic", "broker")}
        answers = []
        for _, *row in rows:
            answers.append("\t".join((_altered(client, *row), *row)))
            time.sleep(0.1)
        time.sleep(SETTLED_SECONDS)
        after = {name: _described(node, client, name) for name in RESOURCES}
    described = [
        *(line for name, entries in before.items() for line in _lines(f"initial {name}", entries)),
        *(line for name, entries in after.items() for line in _lines(name, entries, before=before.get(name, {}))),
    ]
    for name, lines in (("alterations.tsv", answers), ("described.jsonl", described)):
        (HERE / f"kafka-{KAFKA_VERSION}-{name}").write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
