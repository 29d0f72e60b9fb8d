"""One look at the broker's state, for metrics: made on the asyncio loop in short steps, rendered elsewhere.

Nothing here makes text or touches a disk. A snapshot holds values only, so that another thread may take its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pybroker import __version__, native
from pybroker.coordinator.group.statistics import GroupStatistics
from pybroker.metadata.image import NO_LEADER, MetadataImage
from pybroker.native.metrics import (
    BrokerStats,
    Distribution,
    Distributions,
    read_distributions,
    read_request_times,
    read_stats,
)
from pybroker.native.partition import PartitionState
from pybroker.native.rings import RingStats, ring_stats
from pybroker.observability.log_limit import LIMIT
from pybroker.profiles.measurement.flush import SUSPICIOUS
from pybroker.replication.statistics import ReplicationStatistics
from pybroker.server.observe.observed import SERVING, Observed
from pybroker.server.observe.turn_meter import TurnStatistics, meter_of
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs.log_cleaner import CleanerStatistics
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.logs.log_scrub import ScrubProgress

MOST_OFFSETS = 20_000
"""Committed offsets whose lag is told."""


class DirectoryView(NamedTuple):
    """One log dir, with the open logs that lie in it. `flush_finding` is None where flushes were not looked at."""

    path: Path
    is_online: bool
    flush_finding: str | None
    is_flush_doubtful: bool
    partitions: list[TopicPartition]
    partition_paths: list[Path]
    reserve_bytes: int = 0
    is_below_reserve: bool = False


class ClusterView(NamedTuple):
    """Counts of the metadata image; those of `led` and `under_replicated` are of this broker."""

    topic_count: int
    partition_count: int
    offline_count: int
    led_count: int
    under_replicated_count: int
    assigned: frozenset[TopicPartition]
    is_fenced: bool


@dataclass(slots=True)
class Snapshot:
    """All of it, at about one moment."""

    info: dict[str, str | int]
    is_serving: bool
    stats: BrokerStats
    distributions: Distributions
    request_times: dict[int, list[Distribution]]
    rings: RingStats
    event_counts: dict[str, int]
    #: By level.
    left_out_lines: dict[str, int]
    delay_s: float = 0.0
    #: None where the loop has no meter.
    turns: TurnStatistics | None = None
    directories: list[DirectoryView] = field(default_factory=list)
    #: The state of every open log.
    partitions: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    #: Logs that lack records which they had.
    lost_count: int = 0
    cluster: ClusterView | None = None
    metadata_end_offset: int = 0
    has_controller: bool = True
    groups: GroupStatistics | None = None
    replication: ReplicationStatistics | None = None
    #: How long transactions took to be verified, and partitions that failed; None where nobody can be asked.
    verification: tuple[Distribution, int] | None = None
    cleaner: CleanerStatistics | None = None
    scrub: ScrubProgress | None = None


class Collector:
    """Makes snapshots; keeps what only changes with the metadata."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._counted: tuple[MetadataImage, ClusterView] | None = None

    async def collect(self) -> Snapshot:
        """A snapshot of now. The loop goes round between its parts."""
        observed = self._observed
        made = Snapshot(
            info=self._info(),
            is_serving=observed.phase == SERVING and observed.failure is None,
            stats=read_stats(observed.native),
            distributions=read_distributions(observed.native),
            request_times=read_request_times(observed.native),
            rings=ring_stats(observed.native),
            event_counts=observed.events.counts(),
            left_out_lines=dict(LIMIT.left_out_counts),
            has_controller=not observed.config.joins_quorum,
        )
        meter = meter_of(asyncio.get_running_loop())
        made.turns = None if meter is None else meter.statistics()
        await asyncio.sleep(0)
        if observed.logs is not None:
            states = await observed.logs.all_states()
            made.partitions = {log.key: state for log, state in states.items()}
            await asyncio.sleep(0)
            _add_logs(made, observed.logs)
            await asyncio.sleep(0)
        if observed.services is not None:
            image = observed.services.metadata.image
            made.cluster, made.metadata_end_offset = self._cluster(image), image.provenance.end_offset
            await asyncio.sleep(0)
            made.replication = observed.services.replicas.statistics()
            if observed.services.transactions is not None:
                verified = observed.services.transactions.statistics
                made.verification = (verified.times_us(), verified.failure_count)
            await asyncio.sleep(0)
            made.groups = await observed.services.groups.statistics(MOST_OFFSETS)
        if observed.cleaner is not None:
            made.cleaner = observed.cleaner.statistics()
        if observed.scrub is not None:
            made.scrub = observed.scrub.progress
        return made

    def _info(self) -> dict[str, str | int]:
        observed = self._observed
        services = observed.services
        return {
            "version": __version__,
            "node_id": observed.config.node_id,
            "cluster_id": "" if services is None else services.metadata.image.cluster_id,
            "io": observed.native.backend,
            "engine": observed.append_engine,
            "durability": observed.durability,
            "profile": observed.profile_name,
            "crc32c": native.crc32c_name(),
        }

    def _cluster(self, image: MetadataImage) -> ClusterView:
        counted = None if self._counted is None else self._counted[0]
        # Where controllers are elsewhere the end of the metadata moves twice a second, and nothing else with it.
        if counted is None or counted.topics is not image.topics or counted.cluster is not image.cluster:
            self._counted = (image, _count(image, self._observed.config.node_id))
        assert self._counted is not None
        return self._counted[1]


def _add_logs(made: Snapshot, logs: LogManager) -> None:
    made.lost_count = len(logs.ends.losses.found)
    # By identity: to hash thousands of paths takes milliseconds.
    inside: dict[int, tuple[list[TopicPartition], list[Path]]] = {id(each): ([], []) for each in logs.directories}
    for key, log in logs.logs.items():
        keys, paths = inside[id(log.directory)]
        keys.append(key)
        paths.append(log.path)
    made.directories = [
        DirectoryView(
            each.path,
            each.failure is None,
            None if each.flush is None else each.flush.name,
            each.flush is not None and each.flush.name in SUSPICIOUS,
            *inside[id(each)],
            each.space.reserve_bytes,
            each.space.is_low,
        )
        for each in logs.directories
    ]
    known = {each.path for each in logs.directories}
    made.directories += [
        DirectoryView(path, False, None, False, [], []) for path in logs.failures.offline if path not in known
    ]


def _count(image: MetadataImage, node_id: int) -> ClusterView:
    registrations = [
        ((topic.name, index), each) for topic in image.topics.by_id.values() for index, each in topic.partitions.items()
    ]
    led = [each for _, each in registrations if each.leader == node_id]
    broker = image.cluster.brokers.get(node_id)
    return ClusterView(
        len(image.topics.by_id),
        len(registrations),
        sum(each.leader == NO_LEADER for _, each in registrations),
        len(led),
        # Those that a reassignment adds are not missed yet.
        sum(len(each.isr) < len(each.replicas) - len(each.adding_replicas) for each in led),
        frozenset(key for key, each in registrations if node_id in each.replicas),
        broker is None or broker.fenced,
    )
