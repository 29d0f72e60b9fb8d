"""Reads the JSON message definitions inside Kafka's jars and writes them as schema text: facts only, no prose.

Raises `SchemaError` when a definition uses something the schema text cannot say, rather than dropping it.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

from pybroker.protocol.definitions import NAMESPACES, SchemaError

Json = dict[str, Any]

# Artifact whose jar holds a namespace's definitions; kafka-clients is split by the kind of message.
ARTIFACTS = {
    "kafka-clients": None,
    "kafka-metadata": "metadata",
    "kafka-group-coordinator": "group",
    "kafka-transaction-coordinator": "transaction",
    "kafka-share-coordinator": "share",
    "kafka-storage": "storage",
    "kafka-raft": "raft",
}
CLIENT_NAMESPACES = {"request": "requests", "response": "responses", "data": "data", "header": "data"}
MESSAGE_KEYS = {
    *("apiKey", "type", "name", "validVersions", "flexibleVersions", "fields", "commonStructs", "listeners"),
    "latestVersionUnstable",
}
FIELD_KEYS = {
    *("name", "type", "versions", "about", "default", "fields", "nullableVersions", "ignorable", "mapKey"),
    *("taggedVersions", "tag", "flexibleVersions", "entityType", "zeroCopy"),
}
TYPE_DEFAULTS = {"bool": "false", "string": "", "bytes": "", "records": "", "uuid": "", "float64": "0"}


def _load(text: str) -> Json:
    """JSON with whole-line `//` comments, as Kafka writes it."""
    loaded = json.loads("\n".join(line for line in text.split("\n") if not line.lstrip().startswith("//")))
    if not isinstance(loaded, dict):
        raise SchemaError("a definition is not a JSON object")
    return loaded


def _default(value: object, type_name: str) -> str:
    """A default in the schema's spelling; empty when it is the type's own.

    Kafka takes the text "null" for a null, and JSON's null for no default at all: such a field starts empty.
    """
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text != "null" and re.fullmatch(r"u?int\d+", type_name):
        text = str(int(text or "0", 0))
        return "" if text == "0" else text
    return "" if text == TYPE_DEFAULTS.get(type_name, "") else text


def _field_lines(item: Json, depth: int) -> list[str]:
    unknown = set(item) - FIELD_KEYS
    if unknown or " " in item["name"] or item["name"] == "struct":
        raise SchemaError(f"field {item['name']!r}: cannot express {sorted(unknown)}")
    tagged: str = item.get("taggedVersions", "none")
    type_name = item["type"].replace(" ", "")
    words = [item["name"], type_name, str(item.get("versions", tagged)).replace(" ", "")]
    if item.get("nullableVersions", "none") != "none":
        words.append(f"nullable={item['nullableVersions']}")
    if tagged != "none":
        words.append(f"tag={item['tag']}@{tagged}")
    default = _default(item["default"], type_name) if "default" in item else ""
    if default:
        words.append(f"default={default}")
    if item.get("ignorable") in (True, "true"):
        words.append("ignorable")
    if item.get("mapKey") in (True, "true"):
        words.append("key")
    if "flexibleVersions" in item:
        words.append(f"flexible={item['flexibleVersions']}")
    lines = ["  " * depth + " ".join(words)]
    for child in item.get("fields", []):
        lines += _field_lines(child, depth + 1)
    return lines


def block(definition: Json) -> str:
    """One definition as a block of schema text."""
    unknown = set(definition) - MESSAGE_KEYS
    if unknown:
        raise SchemaError(f"{definition['name']}: cannot express {sorted(unknown)}")
    words = [definition["type"], definition["name"]]
    if "apiKey" in definition:
        words.append(f"key={definition['apiKey']}")
    words.append(f"versions={definition['validVersions']}")
    words.append(f"flexible={definition.get('flexibleVersions', 'none')}")
    if definition.get("listeners"):
        words.append("listeners=" + ",".join(definition["listeners"]))
    if definition.get("latestVersionUnstable"):
        words.append("latest-unstable")
    lines = [" ".join(words)]
    for item in definition.get("fields", []):
        lines += _field_lines(item, 1)
    for struct in definition.get("commonStructs", []):
        lines.append(f"  struct {struct['name']} {struct['versions']}")
        for item in struct["fields"]:
            lines += _field_lines(item, 2)
    return "\n".join(lines)


def read_jars(jars: Path, version: str) -> dict[str, str]:
    """Schema file name -> its text, from the jars of Kafka `version` in the directory `jars`."""
    found: dict[str, list[Json]] = {namespace: [] for namespace in NAMESPACES}
    for artifact, namespace in ARTIFACTS.items():
        path = jars / f"{artifact}-{version}.jar"
        if not path.is_file():
            raise SchemaError(f"{path} is missing: fetch org.apache.kafka:{artifact}:{version} from Maven Central")
        with zipfile.ZipFile(path) as jar:
            for entry in jar.namelist():
                if entry.endswith(".json"):
                    definition = _load(jar.read(entry).decode())
                    found[namespace or CLIENT_NAMESPACES[definition["type"]]].append(definition)
    texts = {}
    for namespace, definitions in found.items():
        definitions.sort(key=lambda item: (item.get("apiKey", 0), item["type"], item["name"]))
        blocks = [f"# Facts of Apache Kafka {version}; written by `python -m pybroker.protocol.generate schema`."]
        texts[f"{namespace}.schema"] = "\n\n".join(blocks + [block(item) for item in definitions]) + "\n"
    return texts
