"""What handlers work with: a real controller over a log in memory, and replicas that answer as a test tells them."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import Collection, Generator, Sequence
from pathlib import Path
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.controller.controller import Controller
from pybroker.controller.producer_ids import ProducerIdManager
from pybroker.metadata.cache import MetadataCache
from pybroker.metadata.delta import MetadataDelta, empty_image
from pybroker.metadata.image import Endpoint, Provenance, TopicImage
from pybroker.metadata.records import VersionedRecord
from pybroker.metadata.registration import Registration
from pybroker.native.partition import PartitionPosition, PartitionState, ProducerState
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.server import apis
from pybroker.server.api import RequestContext
from pybroker.server.auto_topic_creation import AutoTopicCreation
from pybroker.server.served_controller import ServedController
from pybroker.storage.logs.log_mover import FutureLog

NODE_ID = 1
LISTENER = "PLAINTEXT"
#: Every API's module by its last name.
MODULES = {
    each.name.rpartition(".")[2]: each.name for each in pkgutil.walk_packages(apis.__path__, f"{apis.__name__}.")
}
Key = tuple[str, int]


class MemoryLog:
    """A `MetadataLog` whose records are durable one turn of the loop later."""

    def __init__(self, end_offset: int) -> None:
        self.end_offset = end_offset
        self.epoch = 3

    def is_snapshot_due(self, _now_ms: int) -> bool:
        return False

    def append(self, records: Sequence[VersionedRecord], _time_ms: int) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        loop.call_soon(done.set_result, self.end_offset)
        self.end_offset += len(records)
        return done

    def append_steps(
        self, records: Sequence[VersionedRecord], time_ms: int
    ) -> Generator[None, None, asyncio.Future[int]]:
        yield
        return self.append(records, time_ms)

    async def close(self) -> None:
        """Nothing to wait for."""


class Mover:
    """Stands for the log mover."""

    def __init__(self) -> None:
        self.moves: list[FutureLog] = []

    def futures(self) -> list[FutureLog]:
        return self.moves


class Replicas:
    """Stands for the replica manager. `settle_count` says how often somebody waited for it to follow the metadata."""

    def __init__(self) -> None:
        self.settle_count = 0
        self.dirs: dict[Path, dict[Key, PartitionState]] = {}
        self.offline_dirs: list[Path] = []
        self.known_producers: dict[Key, list[ProducerState]] = {}
        self.low_watermarks: dict[Key, int | KafkaError] = {}
        #: So long the handlers of DeleteRecords gave replicas for it.
        self.timeouts_ms: set[int] = set()
        self.epochs: dict[Key, tuple[int, int]] = {}
        self.current_epoch = 4
        self.states: dict[Key, PartitionState] = {}
        #: Partitions whose new leader does not know its predecessor's high watermark yet.
        self.unsettled: set[Key] = set()
        #: Topics in the metadata whose partitions are not served here yet.
        self.opening: set[str] = set()

    def is_opening(self, topic: TopicImage) -> bool:
        return topic.name in self.opening

    async def settled(self) -> None:
        await asyncio.sleep(0)
        self.settle_count += 1

    def log_dirs(self) -> list[Path]:
        return list(self.dirs)

    def offline_log_dirs(self) -> list[Path]:
        return self.offline_dirs

    async def placements(self, wanted: Collection[Key] | None) -> dict[Key, tuple[Path, PartitionState]]:
        return {
            key: (path, state)
            for path, states in self.dirs.items()
            for key, state in states.items()
            if wanted is None or key in wanted
        }

    def producers(self, topic: str, partition: int) -> list[ProducerState]:
        return _found(self.known_producers, (topic, partition))

    async def delete_records(self, topic: str, partition: int, before_offset: int, timeout_ms: int) -> int:
        await asyncio.sleep(0)
        self.timeouts_ms.add(timeout_ms)
        outcome = _found(self.low_watermarks, (topic, partition))
        if isinstance(outcome, KafkaError):
            raise outcome
        return min(outcome, before_offset)

    def check_epoch(self, topic: str, partition: int, leader_epoch: int) -> None:
        _found(self.epochs, (topic, partition))
        if leader_epoch > self.current_epoch:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def state(self, topic: str, partition: int) -> PartitionState:
        return _found(self.states, (topic, partition))

    def list_offset_now(self, topic: str, partition: int, timestamp_ms: int, _isolation: int) -> PartitionPosition:
        state = self.state(topic, partition)
        if timestamp_ms == -2:
            return PartitionPosition(state.log_start_offset, -1, state.leader_epoch)
        if (topic, partition) in self.unsettled:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return PartitionPosition(state.high_watermark, -1, state.leader_epoch)

    def epoch_end(self, topic: str, partition: int, _leader_epoch: int) -> tuple[int, int]:
        return self.epochs[topic, partition]


def _found(values: dict[Key, Any], key: Key) -> Any:
    if key not in values:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return values[key]


class Clock:
    """A clock that stands still."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return 5


class Services:
    """A `BrokerServices`. Use inside a running loop, after `start`."""

    def __init__(self, *records: tuple[Any, int], overrides: Sequence[str] = ()) -> None:
        """`records` (with versions) are in the metadata log from the beginning."""
        delta = MetadataDelta(empty_image("cluster-id"))
        first = (m.FeatureLevelRecord(name="metadata.version", feature_level=30), 0)
        for record, version in (first, *records):
            delta.replay(record, version)
        image = delta.apply(Provenance(1 + len(records), 3, 0))
        self.static = BrokerConfig.load(None, [f"node.id={NODE_ID}", *overrides])
        self.metadata = Controller(self.static, MemoryLog(image.provenance.end_offset), image, Clock().wall_ms)
        self.metadata_cache = MetadataCache(NODE_ID)
        self.replicas = Replicas()
        self.mover = Mover()
        self.controller = ServedController(self.metadata, self.replicas)
        self.topic_creation = AutoTopicCreation(
            self.controller, lambda: self.metadata.config, lambda: self.metadata.image
        )
        self.producer_ids = ProducerIdManager(self.metadata.allocate_producer_ids, lambda: -1)
        self.clock = Clock()
        self.served: tuple[tuple[int, int, int], ...] = ()
        self.forwarded: frozenset[int] = frozenset()

    @property
    def config(self) -> BrokerConfig:
        return self.metadata.config

    async def start(self) -> Services:
        """Register the broker."""
        endpoint = Endpoint(LISTENER, "127.0.0.1", 9092, 0)
        registration = Registration(bytes(15) + b"\x07", (endpoint,), "rack-1", (b"\x01" * 16,))
        await self.metadata.register_broker(registration, {}, lambda: None)
        return self

    async def call(self, module: str, request: m.Message, version: int, *, listener: str = LISTENER) -> Any:
        """What a client gets: request and response go through their encodings of that version."""
        api = importlib.import_module(MODULES[module]).API
        assert api.min_version <= version <= api.max_version
        key = api.request.API_KEY
        decoded, _ = api.request.decode(version, request.encode(version))
        context = RequestContext(key, version, 7, "client", "127.0.0.1", listener, "User:ANONYMOUS", 1)
        response = await api.handle(self, context, decoded)
        parts = response if isinstance(response, list) else [response]
        body = b"".join(each if isinstance(each, bytes) else each.encode(version) for each in parts)
        return m.response_class(key).decode(version, body)[0]

    async def create(self, *names: str, partitions: int = 1, **configs: str) -> None:
        """Create topics; `_` in keyword names stands for `.`."""
        request = m.CreateTopicsRequest(
            topics=[
                m.CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[
                        m.CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
                for name in names
            ]
        )
        response = await self.call("create_topics", request, 7)
        assert [row.error_code for row in response.topics] == [0] * len(names)
