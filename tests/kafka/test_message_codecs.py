"""Every message and record at every version, with random values, against Apache Kafka's own classes.

Kafka reads our bytes to the end, writes the same bytes, and its JSON shows the values we put in. Without a JDK or
Maven the test skips. PYBROKER_CODEC_ROUNDS sets how many random messages each version gets (default 1).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pybroker.protocol import definitions
from pybroker.protocol.definitions import FieldDef, StructDef
from pybroker.protocol.uuids import uuid_to_text
from tests.harness.kafka import fetch
from tests.harness.random_messages import RandomMessages

ROUNDS = int(os.environ.get("PYBROKER_CODEC_ROUNDS", "1"))
PACKAGES = {
    "requests": "org.apache.kafka.common.message",
    "responses": "org.apache.kafka.common.message",
    "data": "org.apache.kafka.common.message",
    "metadata": "org.apache.kafka.common.metadata",
    "group": "org.apache.kafka.coordinator.group.generated",
    "transaction": "org.apache.kafka.coordinator.transaction.generated",
    "share": "org.apache.kafka.coordinator.share.generated",
    "storage": "org.apache.kafka.server.log.remote.metadata.storage.generated",
    "raft": "org.apache.kafka.raft.generated",
}
SHOWN_IN_NO_FIXED_WAY = object()  # records: their bytes are compared, their JSON depends on the message


def java_class(head: definitions.MessageDef) -> str:
    suffix = "Data" if head.kind in ("request", "response", "header") else ""
    return f"{PACKAGES[head.namespace]}.{head.name}{suffix}"


def expected_json(value: Any, field: FieldDef, version: int) -> Any:
    """What Kafka's JSON converter shows for one of our values."""
    if value is None:
        return None
    if isinstance(value, list):
        return [expected_json(item, field, version) for item in value]
    if field.struct is not None:
        return expected_struct(value, field.struct, version)
    if field.type == "uuid":
        return uuid_to_text(value)
    if field.type == "bytes":
        return base64.b64encode(value).decode()
    return value


def expected_struct(value: Any, struct: StructDef, version: int) -> dict[str, Any]:
    shown = {}
    for field in struct.fields:
        if version in field.versions:
            name = field.name[0].lower() + field.name[1:]
            if field.type == "records":
                shown[name] = shown[f"{name}SizeInBytes"] = SHOWN_IN_NO_FIXED_WAY
            else:
                shown[name] = expected_json(getattr(value, field.attribute), field, version)
    return shown


def assert_json(shown: Any, expected: Any, where: str) -> None:
    """Every value shown is the expected one. Kafka leaves out tagged fields at their default."""
    if isinstance(expected, dict):
        for name, value in shown.items():
            assert_json(value, expected[name[0].lower() + name[1:]], f"{where}.{name}")
    elif isinstance(expected, list):
        assert len(shown) == len(expected), where
        for index, (item, wanted) in enumerate(zip(shown, expected, strict=True)):
            assert_json(item, wanted, f"{where}[{index}]")
    elif expected is not SHOWN_IN_NO_FIXED_WAY:
        assert shown == expected, where


def run_oracle(lines: list[str]) -> list[str]:
    java = ["java", "-cp", f"{fetch()}/*", str(Path(__file__).with_name("MessageOracle.java"))]
    run = subprocess.run(java, input="\n".join(lines), capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_every_message_at_every_version_as_kafka_has_it() -> None:
    if shutil.which("javac") is None or shutil.which("mvn") is None:
        pytest.skip("needs a JDK and Maven")
    cases, lines = [], []
    for head in definitions.heads():
        for version in range(head.versions.lowest, head.versions.highest + 1):
            for seed in range(ROUNDS):
                message = RandomMessages(seed).message(head.name, version)
                cases.append((head.name, version, message))
                lines.append(f"{java_class(head)} {version} {message.encode(version).hex()}")
    assert len(cases) >= 700
    answers = run_oracle(lines)
    assert len(answers) == len(lines)
    for (name, version, message), line, answer in zip(cases, lines, answers, strict=True):
        where = f"{name} v{version}"
        written, shown = answer.split(" ", 1)
        assert written != "error", f"{where}: {shown}\n{message}\n{line}"
        assert written == line.split(" ")[2], f"{where}: Kafka writes other bytes for {message}"
        assert_json(json.loads(shown), expected_struct(message, definitions.message(name).body, version), where)
