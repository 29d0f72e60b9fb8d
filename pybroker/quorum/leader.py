"""`LeaderFinder`: which controller is the active one, as far as this broker has heard. Pure; on the asyncio loop.

A node that is asked for metadata and does not lead the quorum names the leader it knows of. That may be one that has
just died, so a leader that did not answer is not believed in again until all bootstrap servers have been asked
(KIP-595, KIP-853).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pybroker.quorum.connection import Address
from pybroker.quorum.signal import Signal
from pybroker.values import Value

NOBODY = -1


class Leader(Value):
    """The active controller of one epoch."""

    id: int
    epoch: int
    address: Address


class LeaderFinder:
    """Told of by the metadata fetcher alone; any number of others wait for its `leader`."""

    def __init__(self, bootstrap: Sequence[Address], voters: Mapping[int, Address] | None = None) -> None:
        """`bootstrap` are the addresses of controllers, asked in turn while no leader is known; not empty. `voters` are
        those of them whose ids are known (controller.quorum.voters), for controllers that name a leader by id alone."""
        assert bootstrap
        self.bootstrap = tuple(bootstrap)
        self._voters = dict(voters or {})
        self.leader: Leader | None = None
        #: The newest epoch of the quorum that was heard of, 0 when none was, and who leads in it.
        self.epoch = 0
        self._leader_id = NOBODY
        self._next = 0
        self._distrusted: set[tuple[int, int]] = set()
        self._changed = Signal()

    @property
    def address(self) -> Address:
        """Whom to ask: the leader, or a bootstrap server."""
        return self.leader.address if self.leader is not None else self.bootstrap[self._next]

    @property
    def has_asked_all(self) -> bool:
        """Whether the next bootstrap server is the first of a new round: time for a pause."""
        return self.leader is None and self._next == 0

    def heard(self, leader_id: int, epoch: int, address: Address | None) -> None:
        """A controller says who leads (NOBODY: it knows of none) since `epoch`; `address` is None when it did not say
        where that one is."""
        if epoch < self.epoch:
            return
        if epoch > self.epoch:
            self.epoch, self._leader_id = epoch, NOBODY
            self._distrusted.clear()
            self._set(None)
        if leader_id == NOBODY:
            return
        self._leader_id = leader_id
        place = address or self._voters.get(leader_id)
        if place is not None and (leader_id, epoch) not in self._distrusted:
            self._set(Leader(leader_id, epoch, place))

    def answered(self, address: Address) -> None:
        """The controller at `address` leads in the newest epoch: it has answered as only a leader does."""
        if self.leader is None:
            self._set(Leader(self._leader_id, self.epoch, address))

    def failed(self, address: Address) -> None:
        """The controller at `address` did not answer, or does not lead."""
        leader = self.leader
        if leader is not None and leader.address == address:
            self._distrusted.add((leader.id, leader.epoch))
            self._set(None)
        elif leader is None:
            self._next = (self._next + 1) % len(self.bootstrap)
            if self._next == 0:
                self._distrusted.clear()

    def _set(self, leader: Leader | None) -> None:
        if leader != self.leader:
            self.leader = leader
            self._changed.notify()

    async def known(self) -> Leader:
        """The leader, once there is one."""
        await self._changed.until(lambda: self.leader is not None)
        assert self.leader is not None
        return self.leader

    async def replaced(self, leader: Leader) -> None:
        """Return when another one leads."""
        await self._changed.until(lambda: self.leader is not None and self.leader != leader)
