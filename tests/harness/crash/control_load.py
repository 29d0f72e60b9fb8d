"""`ControlLoad`: topics, configurations and group offsets that change over crashes, and what of it was acknowledged.

One thread makes the changes; `check` runs on the caller's. An operation that fails may or may not have happened: then
both outcomes are right. Can fail: AssertionError with what was acknowledged and what is there.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.harness.crash.client_settings import RECONNECTING

_TIMEOUT_SECONDS = 60.0
_GROUPS = ("group-a", "group-b", "group-c")
_TOPICS_KEPT = 10
_CLIENT = {**RECONNECTING, "retry.backoff.ms": 20}


@dataclass
class _Topic:
    """At least `partitions_acknowledged` partitions, at most `partitions_tried`."""

    created: bool = False
    deleted: bool = False
    deletion_tried: bool = False
    partitions_acknowledged: int = 1
    partitions_tried: int = 1


@dataclass
class _Value:
    """A number that only grows: between the last acknowledged one and the last tried one."""

    acknowledged: int = -1
    tried: int = -1


@dataclass
class _Promises:
    topics: dict[str, _Topic] = field(default_factory=dict)
    config: _Value = field(default_factory=_Value)
    offsets: dict[str, _Value] = field(default_factory=lambda: {group: _Value() for group in _GROUPS})


class ControlLoad:
    """Changes to a cluster; `subject` is an existing topic whose retention.ms is altered and, with `commits`, on which
    groups commit."""

    def __init__(self, bootstrap: str, subject: str, seed: int, *, commits: bool = True) -> None:
        self.operation_count = 0
        self.failures: list[str] = []
        self._subject = subject
        self._commits = commits
        self._random = random.Random(seed)
        self._bootstrap = bootstrap
        self._lock = threading.Lock()
        self._promises = _Promises()
        self._life = self._begun_life = 0
        self._serial = 0
        self._stopping = threading.Event()
        self._running = threading.Event()
        self._running.set()
        self._thread = threading.Thread(target=self._run, name="control load")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def pause(self, paused: bool = True) -> None:
        """Begin no operation until it is paused no more."""
        if paused:
            self._running.clear()
        else:
            self._running.set()

    def stop(self) -> None:
        """Return when the operation under way is over."""
        self._stopping.set()
        self._running.set()
        self._thread.join()

    # ---- changes ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap, **_CLIENT})
        committers = {group: self._consumer(group) for group in _GROUPS}
        try:
            while not self._stopping.is_set():
                self._running.wait()
                self._begin()
                operation = self._random.choices(
                    (self._create, self._delete, self._grow, self._alter), weights=(3, 2, 1, 4)
                )[0]
                try:
                    operation(admin)
                    self.operation_count += 1
                    if self._commits:
                        self._commit(committers)
                        self.operation_count += 1
                except KafkaException:
                    # The broker was down, or is gone half way: the promise stays open.
                    continue
                self._stopping.wait(0.005)
        except Exception as error:  # noqa: BLE001 (handed to the test's thread, which fails with it)
            self.failures.append(f"control load: {error!r}")
        finally:
            for consumer in committers.values():
                consumer.close()

    def _begin(self) -> None:
        with self._lock:
            self._begun_life = self._life

    def _keep(self, promise: Callable[[], None]) -> None:
        """An operation was acknowledged, which counts if there was no cut since it began: see `forget_since`."""
        with self._lock:
            if self._begun_life == self._life:
                promise()

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": group, "enable.auto.commit": False, **_CLIENT}
        )

    def _alive(self) -> list[str]:
        return [name for name, topic in self._promises.topics.items() if topic.created and not topic.deletion_tried]

    def _create(self, admin: AdminClient) -> None:
        if len(self._alive()) > _TOPICS_KEPT:
            self._delete(admin)
            return
        self._serial += 1
        name = f"made-{self._serial}"
        count = self._random.randint(1, 3)
        topic = _Topic(partitions_acknowledged=count, partitions_tried=count)
        with self._lock:
            self._promises.topics[name] = topic
        request = NewTopic(name, count, 1, config={"retention.ms": "86400000", "segment.ms": "200"})
        admin.create_topics([request], operation_timeout=_TIMEOUT_SECONDS)[name].result(_TIMEOUT_SECONDS)
        self._keep(lambda: setattr(topic, "created", True))

    def _delete(self, admin: AdminClient) -> None:
        names = self._alive()
        if not names:
            return
        name = self._random.choice(names)
        with self._lock:
            self._promises.topics[name].deletion_tried = True
        admin.delete_topics([name], operation_timeout=_TIMEOUT_SECONDS)[name].result(_TIMEOUT_SECONDS)
        self._keep(lambda: setattr(self._promises.topics[name], "deleted", True))

    def _grow(self, admin: AdminClient) -> None:
        names = self._alive()
        if not names:
            return
        name = self._random.choice(names)
        topic = self._promises.topics[name]
        wanted = topic.partitions_tried + 1
        with self._lock:
            topic.partitions_tried = wanted
        admin.create_partitions([NewPartitions(name, wanted)])[name].result(_TIMEOUT_SECONDS)
        self._keep(lambda: setattr(topic, "partitions_acknowledged", wanted))

    def _alter(self, admin: AdminClient) -> None:
        value = self._promises.config.tried + 1
        with self._lock:
            self._promises.config.tried = value
        entry = ConfigEntry("retention.ms", str(86_400_000 + value), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self._subject, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(_TIMEOUT_SECONDS)
        self._keep(lambda: setattr(self._promises.config, "acknowledged", value))

    def _commit(self, committers: dict[str, Consumer]) -> None:
        group = self._random.choice(_GROUPS)
        promise = self._promises.offsets[group]
        offset = promise.tried + 1
        with self._lock:
            promise.tried = offset
        committers[group].commit(offsets=[TopicPartition(self._subject, 0, offset)], asynchronous=False)
        self._keep(lambda: setattr(promise, "acknowledged", offset))

    # ---- check -----------------------------------------------------------------------------------------------------

    def promises(self) -> _Promises:
        """What is acknowledged now: to be taken before a crash and given to `check`."""
        with self._lock:
            return copy.deepcopy(self._promises)

    def forget_since(self, promised: _Promises) -> None:
        """The power was cut when this was promised, and no broker runs now. What was acknowledged since then was so by
        a drive that pretended; whether what was under way is acknowledged by that one or the next nobody can tell."""
        with self._lock:
            self._life += 1
            self._promises.config.acknowledged = promised.config.acknowledged
            for group, value in self._promises.offsets.items():
                value.acknowledged = promised.offsets[group].acknowledged
            for name, topic in self._promises.topics.items():
                before = promised.topics.get(name, _Topic())
                topic.created, topic.deleted = before.created, before.deleted
                topic.partitions_acknowledged = before.partitions_acknowledged

    def check(self, promised: _Promises) -> None:
        """Ask the broker for all of it. The load may go on meanwhile."""
        assert not self.failures, self.failures
        admin = AdminClient({"bootstrap.servers": self._bootstrap, **_CLIENT})
        found = admin.list_topics(timeout=60).topics
        now = self.promises().topics
        for name, topic in promised.topics.items():
            if topic.created and not now[name].deletion_tried:
                assert name in found, f"topic {name} was created and is gone"
                count = len(found[name].partitions)
                assert topic.partitions_acknowledged <= count <= now[name].partitions_tried, (
                    f"topic {name} has {count} partitions; {topic.partitions_acknowledged} were acknowledged"
                )
            assert not (topic.deleted and name in found), f"topic {name} was deleted and is back"
        self._check_config(admin, promised.config)
        for group, value in promised.offsets.items():
            self._check_offset(group, value)

    def _check_config(self, admin: AdminClient, promised: _Value) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self._subject)
        entries: Any = admin.describe_configs([resource])[resource].result(60)
        found = int(entries["retention.ms"].value) - 86_400_000
        tried = self.promises().config.tried
        if promised.acknowledged >= 0:
            assert promised.acknowledged <= found <= tried, (
                f"retention.ms is the {found}th value; the {promised.acknowledged}th was acknowledged, {tried} tried"
            )

    def _check_offset(self, group: str, promised: _Value) -> None:
        if promised.acknowledged < 0:
            return
        consumer = self._consumer(group)
        try:
            found = consumer.committed([TopicPartition(self._subject, 0)], timeout=60)[0].offset
        finally:
            consumer.close()
        tried = self.promises().offsets[group].tried
        assert promised.acknowledged <= found <= tried, (
            f"{group} has committed {found}; {promised.acknowledged} was acknowledged, {tried} tried"
        )
