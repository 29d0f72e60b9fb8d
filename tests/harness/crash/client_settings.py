"""librdkafka settings for clients whose broker goes down and comes back all the time: they are back with it at once."""

from __future__ import annotations

from typing import Any

#: Of every client.
RECONNECTING: dict[str, Any] = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "log_level": 0}
#: Of producers, each record of which has to arrive once, however often it is sent.
PRODUCING: dict[str, Any] = {
    **RECONNECTING,
    "enable.idempotence": True,
    "linger.ms": 2,
    "message.timeout.ms": 600_000,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
}
