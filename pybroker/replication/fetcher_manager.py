"""`ReplicaFetcherManager`: the fetchers of this broker, by which its partitions follow their leaders. On the asyncio
loop.

There are num.replica.fetchers for each broker that leads partitions followed here. A fetcher belongs to one address and
to one registration of this broker: when either changes, a new one takes its place, and partitions move to it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.image import ClusterImage, MetadataImage
from pybroker.native.fetcher import FetcherOptions, FetcherStats
from pybroker.replication.data_plane import Fetcher
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.values import Value

#: Brokers fetch with the version that goes with the cluster's metadata.version. From 4.1-IV1 on it is one in which
#: followers hear of a new high watermark at once (KIP-1166).
_FETCH_VERSION = 17
_WATERMARK_FETCH_VERSION = 18
_WATERMARK_METADATA_VERSION = 27

#: Unless replica.fetch.response.max.bytes is set: larger answers leave the CPU's caches before they are written, and no
#: memory is kept for them.
_RESPONSE_BYTES = 2 << 20

NOTHING_FETCHED = FetcherStats(*(0 for _ in FetcherStats._fields))

logger = logging.getLogger(__name__)


class Source(Value):
    """Where a partition is fetched from, and as whom; `number` is one of num.replica.fetchers."""

    leader_id: int
    number: int
    host: str
    port: int
    broker_epoch: int
    fetch_version: int


class ReplicaFetcherManager:
    """`acquire` opens what is needed, `release` gives it back, `close_idle` closes what nobody needs."""

    def __init__(
        self,
        node_id: int,
        listener: str,
        config: Callable[[], BrokerConfig],
        open_fetcher: Callable[[FetcherOptions], Fetcher],
    ) -> None:
        """`listener` is the name of the brokers' listener for each other. `open_fetcher` may raise NativeError."""
        self._node_id = node_id
        self._listener = listener
        self._config = config
        self._open = open_fetcher
        self._cluster = ClusterImage()
        self._fetch_version = _FETCH_VERSION
        self._fetchers: dict[Source, Fetcher] = {}
        self._use_counts: Counter[Source] = Counter()
        self._closed = NOTHING_FETCHED

    @property
    def sources(self) -> tuple[Source, ...]:
        """Those there are fetchers for."""
        return tuple(self._fetchers)

    def on_image(self, image: MetadataImage) -> None:
        """Where the brokers are, and how they talk to each other."""
        self._cluster = image.cluster
        has_watermark = image.metadata_version >= _WATERMARK_METADATA_VERSION
        self._fetch_version = _WATERMARK_FETCH_VERSION if has_watermark else _FETCH_VERSION

    def source(self, leader_id: int, key: TopicPartition) -> Source | None:
        """Where a partition is to be fetched from by now; None while its leader cannot be reached."""
        leader, own = self._cluster.brokers.get(leader_id), self._cluster.brokers.get(self._node_id)
        if leader is None or own is None or leader.fenced:
            return None
        endpoint = leader.endpoint(self._listener)
        if endpoint is None:
            logger.error(
                "broker %d has no listener %s (inter.broker.listener.name): what it leads cannot be followed",
                leader_id,
                self._listener,
            )
            return None
        number = _hash(key) % self._config().get_int("num.replica.fetchers")
        return Source(leader_id, number, endpoint.host, endpoint.port, own.epoch, self._fetch_version)

    def acquire(self, source: Source) -> Fetcher:
        """The fetcher of a source, opened when there is none; to be released. NativeError."""
        fetcher = self._fetchers.get(source)
        if fetcher is None:
            fetcher = self._fetchers[source] = self._open(self._options(source))
        self._use_counts[source] += 1
        return fetcher

    def release(self, source: Source) -> None:
        """One partition less follows by it."""
        assert self._use_counts[source] > 0, source
        self._use_counts[source] -= 1

    def close_idle(self) -> None:
        """Close those by which nothing follows."""
        for source in [source for source in self._fetchers if self._use_counts[source] == 0]:
            del self._use_counts[source]
            fetcher = self._fetchers.pop(source)
            self._closed = _sum(self._closed, fetcher.stats)
            fetcher.close()

    def stats(self) -> FetcherStats:
        """Counters of all there are and have been; `connected` and `partitions` of those there are."""
        total = self._closed._replace(partitions=0, connected=0)
        for fetcher in self._fetchers.values():
            total = _sum(total, fetcher.stats)
        return total

    def _options(self, source: Source) -> FetcherOptions:
        config = self._config()
        return FetcherOptions(
            leader_id=source.leader_id,
            host=source.host,
            port=source.port,
            replica_id=self._node_id,
            replica_epoch=source.broker_epoch,
            fetch_version=source.fetch_version,
            max_wait_ms=config.get_int("replica.fetch.wait.max.ms"),
            min_bytes=config.get_int("replica.fetch.min.bytes"),
            max_bytes=_response_max_bytes(config),
            partition_max_bytes=max(config.get_int("replica.fetch.max.bytes"), 1),
            backoff_ms=config.get_int("replica.fetch.backoff.ms"),
            connect_timeout_ms=config.get_int("replica.socket.timeout.ms"),
            client_id=f"broker-{self._node_id}-fetcher-{source.number}",
        )


def _response_max_bytes(config: BrokerConfig) -> int:
    max_bytes = config.get_int("replica.fetch.response.max.bytes")
    # A limit of zero brings at least one batch, as a very small limit does.
    return max(max_bytes, 1) if config.is_set("replica.fetch.response.max.bytes") else min(max_bytes, _RESPONSE_BYTES)


def _hash(key: TopicPartition) -> int:
    """Spreads the partitions of a topic over consecutive numbers, and topics among each other."""
    return sum(key[0].encode()) * 31 + key[1]


def _sum(one: FetcherStats, other: FetcherStats) -> FetcherStats:
    return FetcherStats._make(a + b for a, b in zip(one, other, strict=True))
