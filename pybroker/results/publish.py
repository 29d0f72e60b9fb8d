"""Rows and rejections to where the pool is: a topic, or a file in a directory.

Both take one JSON object per row (`Row.as_json`, `Rejection.as_json`). In a topic a row's key is its record's key, so a
row that is published again goes to the same partition, behind the first. A file is named after its content, so
publishing the same again replaces it by itself.
Can fail: `PublishError`, and whoever asked may publish everything again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from pybroker.results.row import Rejection, Row

#: The settings of a topic of results. The broker's clock stamps the records, to hold the machines' clocks against.
_TOPIC_CONFIG = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1", "compression.type": "zstd"}
_PARTITION_COUNT = 4
_TIMEOUT_SECONDS = 30.0


class PublishError(RuntimeError):
    """Not everything was published."""


def encode(each: Row | Rejection) -> tuple[bytes, bytes]:
    """The key and the value of a record."""
    value = json.dumps(each.as_json(), sort_keys=True, allow_nan=False).encode()
    key = each.key if isinstance(each, Row) else hashlib.sha256(value).hexdigest()[:32]
    return key.encode(), value


def to_directory(results: Sequence[Row | Rejection], directory: Path) -> Path:
    """Write one file of lines, whole or not at all; gives its path."""
    content = b"".join(encode(each)[1] + b"\n" for each in results)
    path = directory / f"results-{hashlib.sha256(content).hexdigest()[:16]}.jsonl"
    scratch = path.with_suffix(f".{os.getpid()}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(content)
        scratch.replace(path)
    except OSError as error:
        raise PublishError(f"{directory} takes no results: {error}") from error
    return path


def _make_topic(bootstrap: str, topic: str) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, KafkaError, NewTopic

    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = NewTopic(topic, _PARTITION_COUNT, config=_TOPIC_CONFIG)
    try:
        client.create_topics([wanted], request_timeout=_TIMEOUT_SECONDS)[topic].result(_TIMEOUT_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise PublishError(f"topic {topic} cannot be made at {bootstrap}: {error.args[0].str()}") from error


def to_topic(results: Sequence[Row | Rejection], bootstrap: str, topic: str) -> None:
    """Send everything and wait until the broker has it; the topic is made when it is missing."""
    try:
        from confluent_kafka import KafkaError, Message, Producer
    except ImportError as error:
        raise PublishError("publishing to a topic needs confluent-kafka: pip install confluent-kafka") from error
    _make_topic(bootstrap, topic)
    failures: list[str] = []

    def delivered(failure: KafkaError | None, _: Message) -> None:
        if failure is not None:
            failures.append(failure.str())

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for each in results:
        key, value = encode(each)
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(1.0)
        producer.poll(0)
    left = producer.flush(_TIMEOUT_SECONDS)
    if left or failures:
        why = failures[0] if failures else f"{bootstrap} did not answer within {_TIMEOUT_SECONDS:g} s"
        raise PublishError(f"{left + len(failures)} of {len(results)} results did not reach topic {topic}: {why}")
