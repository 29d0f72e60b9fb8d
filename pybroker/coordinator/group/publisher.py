"""Tells the group coordinator what a new metadata image means for it.

Runs on the asyncio loop thread, after the replica manager has applied the same image. A partition has to be there
before it can be loaded, and one that is gone can only be given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from pybroker.coordinator.group.coordinator import GroupCoordinator
from pybroker.coordinator.group.model.settings import OFFSETS_TOPIC
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage, TopicImage, TopicsImage

logger = logging.getLogger(__name__)


class GroupCoordinatorPublisher:
    """A `MetadataPublisher` that compares each image with the one before.

    Add it as a follower of the replica manager, which calls it once the partitions of that image are in effect.
    """

    def __init__(self, groups: GroupCoordinator, node_id: int) -> None:
        self._groups = groups
        self._node_id = node_id
        self._topics = TopicsImage()
        self._counted: TopicImage | None = None
        self._led: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Load partitions that are led here now, let go of others, and forget the offsets of deleted topics."""
        del delta  # The parts that count here are few, and comparing images shows them.
        topics = image.topics
        if topics is self._topics:
            return
        offsets_topic = topics.by_name.get(OFFSETS_TOPIC)
        led: dict[int, int] = {}
        if offsets_topic is not None:
            self._count(offsets_topic)
            led = {
                index: partition.leader_epoch
                for index, partition in offsets_topic.partitions.items()
                if partition.leader == self._node_id
            }
        before = self._topics.by_name.get(OFFSETS_TOPIC)
        # A topic that was deleted and made again keeps no leadership, whatever the partitions' numbers are.
        is_same = before is not None and offsets_topic is not None and before.id == offsets_topic.id
        for index in self._led.keys() - led.keys() if is_same else self._led.keys():
            self._in_background(self._groups.on_resignation(index))
        for index, leader_epoch in led.items():
            self._groups.on_election(index, leader_epoch)
        self._led = led
        if self._topics.by_id.keys() - topics.by_id.keys():
            deleted = [(old.name, old.id) for old in self._topics.by_id.values() if old.id not in topics.by_id]
            self._in_background(self._groups.on_topics_deleted(deleted))
        self._topics = topics

    def _count(self, topic: TopicImage) -> None:
        """Take over how many partitions the topic has, when it is seen first. As brokers of Apache Kafka do, go on with
        that when partitions are added: groups that have offsets would be looked for elsewhere, and by some brokers."""
        before = self._counted
        if before is None or before.id != topic.id:
            self._groups.set_partition_count(len(topic.partitions))
        elif len(topic.partitions) != len(before.partitions):
            logger.warning(
                "%s has %d partitions now; which one a group belongs to changes with the next start",
                OFFSETS_TOPIC,
                len(topic.partitions),
            )
        self._counted = topic

    def on_reopened(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Partitions of that name and index could not be read when they were to be loaded, and can be now."""
        for topic, index in partitions:
            if topic == OFFSETS_TOPIC and index in self._led:
                self._in_background(self._groups.on_resignation(index))
                self._groups.on_election(index, self._led[index])

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
