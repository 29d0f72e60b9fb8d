"""The same requests to this broker and to Apache Kafka: the answers are the same but for ids, times and texts."""

from __future__ import annotations

import difflib
import pprint
import shutil
import time
from typing import Any

import pytest
from admin_script import NODE_ID, Session, Step, comparable, script
from cluster_script import cluster_script

from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.kafka import KafkaBroker

_CATCH_UP_SECONDS = 30.0
#: Records have old timestamps, and retention must not find them while the steps are gone through.
_OVERRIDES = {"log.initial.task.delay.ms": "3600000"}


def _difference(ours: Any, kafkas: Any) -> str:
    lines = [pprint.pformat(each, width=110).splitlines() for each in (kafkas, ours)]
    return "\n".join(difflib.unified_diff(*lines, "Kafka", "pybroker", lineterm="", n=2))


def _compare(step: Step, ours: Session, kafka: Session) -> str | None:
    """What is different, in words; None when nothing is."""
    own = comparable(ours.client.call(step.request(ours), step.version))
    request = step.request(kafka)
    deadline = time.monotonic() + (_CATCH_UP_SECONDS if step.reads else 0)
    while True:
        kafkas = comparable(kafka.client.call(request, step.version))
        if own == kafkas:
            return None
        if time.monotonic() >= deadline:
            return f"--- {step.name}\n{_difference(own, kafkas)}"
        time.sleep(0.1)


@pytest.mark.skipif(
    shutil.which("java") is None or shutil.which("mvn") is None, reason="Apache Kafka needs java, and mvn to fetch it"
)
def test_answers_are_like_kafkas() -> None:
    steps = [*script(), *cluster_script()]
    assert len(steps) > 400
    with (
        KafkaBroker(node_id=NODE_ID, overrides=_OVERRIDES) as kafka_broker,
        BrokerProcess(overrides={"node.id": str(NODE_ID), **_OVERRIDES}) as broker,
        ProtocolClient(kafka_broker.port) as kafka,
        ProtocolClient(broker.port) as own,
    ):
        sessions = Session(own), Session(kafka)
        differences = [difference for step in steps if (difference := _compare(step, *sessions)) is not None]
    assert not differences, "\n".join(differences)
