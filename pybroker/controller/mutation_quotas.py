"""How many partitions clients may create and delete per second (KIP-599): buckets that fill at
`controller_mutation_rate` and hold what all windows of `controller.quota.window.num` bring. A client that finds one
empty has to wait; the last to take from it may take more than it holds. On the asyncio loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pybroker.config.broker import BrokerConfig
from pybroker.controller.state import Refusal
from pybroker.metadata.client_quotas import CONTROLLER_MUTATION_RATE, limit
from pybroker.metadata.image import MetadataImage
from pybroker.observability.event_log import event
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

#: From these versions on a change above the quota is refused; before, it is made and the client told to wait.
STRICT_SINCE = {m.CreateTopicsRequest: 6, m.DeleteTopicsRequest: 5, m.CreatePartitionsRequest: 3}

#: More are not remembered: those used longest ago are then as full as new ones.
_BUCKETS_MAX = 4096
_TOLD_EVERY_MS = 10_000
#: The largest throttle time that an answer has room for.
_THROTTLE_MAX_MS = 2**31 - 1


class Bucket:
    """New ones are full. Below 0: more was taken than there was."""

    __slots__ = ("_filled_ms", "_left")

    def __init__(self) -> None:
        self._left = float("inf")
        self._filled_ms = 0

    def fill(self, rate: float, capacity: float, now_ms: int) -> float:
        """Add what has come since the last time; what there is now."""
        passed_ms = max(0, now_ms - self._filled_ms)
        self._left = min(capacity, self._left + rate * passed_ms / 1000)
        self._filled_ms = now_ms
        return self._left

    def take(self, count: float) -> None:
        self._left -= count


class Mutations:
    """The changes that one request may make."""

    def __init__(self, bucket: Bucket, rate: float, capacity: float, is_strict: bool, now_ms: int) -> None:
        self._bucket, self._rate, self._capacity = bucket, rate, capacity
        self._is_strict, self._now_ms = is_strict, now_ms
        #: So long its client has to wait, by what the request was told so far.
        self.throttle_ms = 0

    def take(self, partition_count: int) -> None:
        """So many are to be created or deleted. Refusal when that has to wait."""
        left = self._bucket.fill(self._rate, self._capacity, self._now_ms)
        if left >= 0 or not self._is_strict:
            self._bucket.take(partition_count)
        if self._is_strict:
            self._throttle(left)
            if left < 0:
                raise Refusal(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"the quota {CONTROLLER_MUTATION_RATE} is exhausted; try again in {self.throttle_ms} ms",
                )
        else:
            self._throttle(left - partition_count)

    def _throttle(self, left: float) -> None:
        if left < 0:
            self.throttle_ms = max(self.throttle_ms, round(min(-left / self._rate * 1000, _THROTTLE_MAX_MS)))


class MutationQuotas:
    """The buckets of all clients. `clock_ms` need not be the time of day."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._buckets: dict[tuple[str, str | None], Bucket] = {}
        self._told_ms: int | None = None

    def of(self, image: MetadataImage, config: BrokerConfig, origin: Origin, is_strict: bool) -> Mutations | None:
        """The changes that a request of that client may make now; None: any number."""
        if not image.client_quotas:
            return None
        user = origin.principal.partition(":")[2]
        client_id = origin.client_id or ""
        found = limit(image, user, client_id, CONTROLLER_MUTATION_RATE)
        if found.value <= 0:
            return None
        windows = config.get_int("controller.quota.window.num") * config.get_int("controller.quota.window.size.seconds")
        bucket = self._bucket((user, None if found.is_shared else client_id))
        return Mutations(bucket, found.value, found.value * windows, is_strict, self._clock_ms())

    def _bucket(self, key: tuple[str, str | None]) -> Bucket:
        bucket = self._buckets.pop(key, None) or Bucket()
        self._buckets[key] = bucket
        if len(self._buckets) > _BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]
        return bucket

    def tell(self, origin: Origin, throttle_ms: int) -> None:
        """The log, now and then, that somebody has to wait."""
        now_ms = self._clock_ms()
        if self._told_ms is not None and now_ms - self._told_ms < _TOLD_EVERY_MS:
            return
        self._told_ms = now_ms
        client_id = (origin.client_id or "")[:64]
        logger.info(
            "client '%s' at %s has to wait %d ms: it is over its quota %s",
            client_id,
            origin.host,
            throttle_ms,
            CONTROLLER_MUTATION_RATE,
            extra=event("throttle", client_id=client_id, throttle_ms=throttle_ms),
        )
