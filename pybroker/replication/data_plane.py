"""The interface to the data plane that replication needs: followers' progress from a leader, fetchers for followers.

`pybroker.native` has the real things; tests have doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pybroker.native.fetcher import FetcherStats
from pybroker.native.partition import PartitionState


class FollowerState(Protocol):
    """How far a follower is by its fetches. `caught_up_ms` ago it had all there was then. The broker epoch is -1 while
    it has told none."""

    @property
    def replica_id(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def caught_up_ms(self) -> int: ...

    @property
    def broker_epoch(self) -> int: ...


class LedPartition(Protocol):
    """A partition that has followers. NativeError."""

    def lead_replicated(
        self,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        joining: Sequence[int] = (),
    ) -> None:
        """`isr` is the controller's, and counts for min.insync.replicas; the high watermark waits for those who are
        `joining` as well. INELIGIBLE_REPLICA when one of these lacks something below it: nothing has changed then."""
        ...

    def followers(self) -> Sequence[FollowerState]: ...

    @property
    def state(self) -> PartitionState: ...


class Fetcher(Protocol):
    """A connection to another broker, by which partitions follow their leaders."""

    def close(self) -> None:
        """No partition follows by it any more."""
        ...

    @property
    def stats(self) -> FetcherStats:
        """Counters, until it is closed."""
        ...


class FollowingPartition(Protocol):
    """A partition that may follow. NativeError."""

    def follow(self, fetcher: Any, leader_epoch: int) -> None:
        """From whatever it was; not from the same epoch. Blocking."""
        ...

    def unfollow(self) -> None:
        """Blocking."""
        ...


class ReplicatedPartition(LedPartition, FollowingPartition, Protocol):
    """Either."""
