"""`TailReader`: a consumer at the end of some partitions that notes how far it has seen.

One thread; `seen` may be asked for at any time, also after the broker has gone. Can fail: AssertionError from `stop`
when the reader met an error other than the broker's end.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.harness.crash.record_load import Place

_WAIT_SECONDS = 20.0


class TailReader:
    """Reads from the present ends on. Start it while the broker serves."""

    def __init__(self, bootstrap: str, places: Sequence[Place]) -> None:
        self._lock = threading.Lock()
        self._seen: dict[Place, int] = {}
        self._failure: Exception | None = None
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "tail",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        ends = {
            place: self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=_WAIT_SECONDS)[1]
            for place in places
        }
        self._consumer.assign([TopicPartition(*place, end) for place, end in ends.items()])
        self._thread = threading.Thread(target=self._run, name="tail reader")
        self._thread.start()

    def seen(self) -> dict[Place, int]:
        """For each partition with a record seen, the offset behind the last one."""
        with self._lock:
            return dict(self._seen)

    def stop(self) -> None:
        """End the thread and the consumer."""
        self._stopping.set()
        self._thread.join()
        self._consumer.close()
        if self._failure is not None:
            raise AssertionError(f"the reader at the tail failed: {self._failure!r}")

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                for message in self._consumer.consume(500, timeout=0.05):
                    self._note(message)
        except Exception as error:  # noqa: BLE001 (handed to the caller's thread by `stop`)
            self._failure = error

    def _note(self, message: Any) -> None:
        if message.error() is None:
            with self._lock:
                self._seen[message.topic(), message.partition()] = message.offset() + 1
        elif not message.error().retriable():
            raise KafkaException(message.error())
