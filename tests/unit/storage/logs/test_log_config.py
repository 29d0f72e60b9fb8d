"""From a topic's configuration to the settings of a partition's log."""

from __future__ import annotations

import pytest

from pybroker.config.broker import BrokerConfig
from pybroker.config.topic import TopicConfig
from pybroker.storage.logs.log_config import partition_config

LIMIT = "max.decompressed.message.bytes"


@pytest.mark.parametrize(
    ("static", "dynamic", "topic", "expected"),
    [
        ({}, {}, {}, 2**31 - 9),
        ({LIMIT: "5000"}, {}, {}, 5000),
        ({LIMIT: "5000"}, {LIMIT: "6000"}, {}, 6000),
        ({LIMIT: "5000"}, {LIMIT: "6000"}, {LIMIT: "7000"}, 7000),
    ],
)
def test_a_record_is_limited_by_the_topic_or_the_broker(
    static: dict[str, str], dynamic: dict[str, str], topic: dict[str, str], expected: int
) -> None:
    broker = BrokerConfig.load(None, [f"{name}={value}" for name, value in static.items()]).with_dynamic(dynamic, {})
    config = partition_config(("t", 0), TopicConfig.resolve(topic, broker), broker)
    assert config.max_decompressed_message_bytes == expected
