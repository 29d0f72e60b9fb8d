"""`IsrState`: the in-sync replicas of one partition, as its leader knows them (KIP-497). Pure.

Only the controller changes an ISR; the leader proposes, and names the partition epoch its proposal rests on. Until the
answer comes, the high watermark waits for every replica that may be in sync afterwards (`maximal`). These include a
replica proposed to join and those proposed to leave. One proposal is under way at most.

| state | what happens | what follows |
|---|---|---|
| committed | `expand`, `shrink` | pending |
| pending | `take_back`, before it was sent | committed, as before |
| pending | `on_answer`: NONE | committed, as answered |
| pending | `on_answer`: the controller has not done it, and its epoch was right | committed, as before |
| pending | `on_answer`: the controller knows something newer | pending, until the metadata says what |
| pending | `on_answer`: anything else, which passes | pending, to be sent again |
| any | `on_registration`: a later partition epoch | committed, as registered |
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pybroker.metadata.image import PartitionRegistration
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode

#: The controller says with these that nothing was done, and that it went by the same partition epoch.
_NOT_DONE = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})

#: With these, that the proposal rests on something that is over. Whether an earlier copy of it was done, nobody knows;
#: the metadata log does.
_OVERTAKEN = frozenset(
    {
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
    }
)

_NONE_TOLD: Mapping[int, int] = {}


class Verdict(enum.Enum):
    """The meaning of an answer for the sender of the proposal."""

    APPLIED = "applied"
    NOT_DONE = "not done"
    OVERTAKEN = "overtaken"
    RETRY = "retry"
    STALE = "stale"
    """The proposal is none any more."""


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """An ISR that the leader wants, on top of a partition epoch. `broker_epochs` has those under which its members were
    judged, as far as they had told one. They stay, however often it has to be sent: one that has restarted since may
    lack what it had, and by its epoch the controller knows and refuses (KIP-903). The leader could not take back by
    itself what was sent, as a copy of it may have been put into effect."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    broker_epochs: Mapping[int, int] = field(default_factory=dict)


class IsrState:
    """The ISR of one partition led by `leader_id`. `isr` is what is committed."""

    __slots__ = ("isr", "leader_epoch", "leader_id", "partition_epoch", "pending", "replicas")

    def __init__(self, leader_id: int, registration: PartitionRegistration) -> None:
        assert registration.leader == leader_id
        self.leader_id = leader_id
        self.replicas = registration.replicas
        self.isr = registration.isr
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.pending: Proposal | None = None

    @property
    def joining(self) -> tuple[int, ...]:
        """The replicas proposed to join."""
        return () if self.pending is None else tuple(each for each in self.pending.isr if each not in self.isr)

    @property
    def maximal(self) -> tuple[int, ...]:
        """Whom the high watermark waits for: the committed ISR, and who is proposed to join it."""
        return self.isr + self.joining

    def can_join(self, replica: int) -> bool:
        """Whether `expand` would propose it."""
        return self.pending is None and replica in self.replicas and replica not in self.isr

    def expand(self, replica: int, broker_epochs: Mapping[int, int] = _NONE_TOLD) -> Proposal | None:
        """A replica has caught up, and the metadata has nothing against it. None when there is nothing to propose, or
        not now."""
        return self._propose((*self.isr, replica), broker_epochs) if self.can_join(replica) else None

    def shrink(self, lagging: Collection[int], broker_epochs: Mapping[int, int] = _NONE_TOLD) -> Proposal | None:
        """These replicas lag. None when there is nothing to propose, or not now. The leader itself stays."""
        remaining = tuple(each for each in self.isr if each == self.leader_id or each not in lagging)
        if self.pending is not None or remaining == self.isr:
            return None
        return self._propose(remaining, broker_epochs)

    def _propose(self, isr: tuple[int, ...], broker_epochs: Mapping[int, int]) -> Proposal:
        # In their order because Apache Kafka's leaders propose them so, and tools show them as they were proposed.
        self.pending = Proposal(tuple(sorted(isr)), self.leader_epoch, self.partition_epoch, broker_epochs)
        return self.pending

    def take_back(self, proposal: Proposal) -> None:
        """It was not sent."""
        assert proposal is self.pending
        self.pending = None

    def on_answer(self, proposal: Proposal, answer: m.AlterPartitionResponse.PartitionData) -> Verdict:
        """Takes the controller's answer to a proposal. APPLIED and NOT_DONE end it."""
        if proposal is not self.pending:
            return Verdict.STALE
        code = answer.error_code
        if code == ErrorCode.NONE:
            if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
                return Verdict.OVERTAKEN
            self.isr = tuple(answer.isr)
            self.partition_epoch = answer.partition_epoch
            self.pending = None
            return Verdict.APPLIED
        if code in _NOT_DONE:
            self.pending = None
            return Verdict.NOT_DONE
        return Verdict.OVERTAKEN if code in _OVERTAKEN else Verdict.RETRY

    def on_registration(self, registration: PartitionRegistration) -> bool:
        """Takes the metadata's state of the partition, still led here. Whether anything is different now: an earlier
        registration, or that of an answer that has come already, is nothing new."""
        assert registration.leader == self.leader_id
        if registration.partition_epoch <= self.partition_epoch:
            return False
        self.replicas = registration.replicas
        self.isr = registration.isr
        self.leader_epoch = registration.leader_epoch
        self.partition_epoch = registration.partition_epoch
        self.pending = None
        return True
