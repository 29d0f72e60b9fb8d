"""`ReplicationStatistics`: how replication goes, for metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pybroker.metadata.image import MetadataImage
from pybroker.native.fetcher import FetcherStats, partition_followings
from pybroker.replication.isr_manager import IsrStatistics
from pybroker.replication.replica import Replica


class ReplicationStatistics(NamedTuple):
    """`isr` and `fetchers` count since the start; `max_lag` is in records, of the follower here that lacks most;
    `under_min_isr_count` are partitions led here that take no records with acks=all."""

    isr: IsrStatistics
    fetchers: FetcherStats
    following_count: int
    max_lag: int
    under_min_isr_count: int


def max_lag(replicas: Iterable[Replica]) -> int:
    """0 when none follows."""
    following = [each.log.native for each in replicas if each.follows and not each.log.closing]
    return max((each.lag for each in partition_followings(following)), default=0)


def under_min_isr_count(replicas: Iterable[Replica], image: MetadataImage | None) -> int:
    """How many of those led here have fewer replicas in sync than min.insync.replicas asks for."""
    count = 0
    topics = {} if image is None else image.topics.by_id
    for replica in replicas:
        topic = topics.get(replica.log.topic_id) if replica.leads else None
        registration = None if topic is None else topic.partitions.get(replica.log.key[1])
        if registration is not None:
            least = min(replica.log.config.get_int("min.insync.replicas"), len(registration.replicas))
            count += len(registration.isr) < least
    return count
