"""An observer of a raft log whose leaders come and go: it takes what is committed, once, in order.

Histories are random. The model is the quorum's log as one list: a new leader may lack what was not committed, and
nothing else (KIP-595).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from pybroker.metadata.records import VersionedRecord, encode_batch
from pybroker.protocol import messages as m
from pybroker.quorum.errors import QuorumError
from pybroker.quorum.observer_log import ObserverLog

SEEDS = 300
STEPS = 120


@dataclass
class Batch:
    base_offset: int
    count: int
    epoch: int
    name: str

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count

    def encode(self) -> bytes:
        records = [VersionedRecord(m.ConfigRecord(resource_name=self.name), 0) for _ in range(self.count)]
        return encode_batch(self.base_offset, self.epoch, 1000, records)


@dataclass
class Raft:
    """The log of whoever leads. `high_watermark` is -1 while a new leader has committed nothing of its epoch."""

    random: random.Random
    epoch: int = 1
    log: list[Batch] = field(default_factory=list)
    committed: int = 0
    high_watermark: int = 0
    made: int = 0

    @property
    def end_offset(self) -> int:
        return self.log[-1].next_offset if self.log else 0

    def append(self) -> None:
        self.made += 1
        self.log.append(Batch(self.end_offset, self.random.randint(1, 3), self.epoch, f"batch-{self.made}"))

    def commit(self) -> None:
        """As much as a majority has of it; a leader commits by batches of its own epoch."""
        ends = [each.next_offset for each in self.log if each.epoch == self.epoch and each.next_offset > self.committed]
        if ends:
            self.committed = self.high_watermark = self.random.choice(ends)

    def elect(self) -> None:
        """Another leader, which has all that is committed and a part of the rest."""
        rest = [each for each in self.log if each.next_offset > self.committed]
        kept = self.random.randint(0, len(rest))
        self.log = self.log[: len(self.log) - len(rest) + kept]
        self.epoch += self.random.randint(1, 2)
        self.high_watermark = -1
        self.append()

    def diverging(self, epoch: int, offset: int) -> tuple[int, int] | None:
        """(epoch, end offset) that a fetch from there is answered with when the log goes another way."""
        earlier = [each for each in self.log if each.epoch <= epoch]
        known_epoch = earlier[-1].epoch if earlier else 0
        end = earlier[-1].next_offset if earlier else 0
        return None if (known_epoch == epoch or offset == 0) and end >= offset else (known_epoch, end)


def play(seed: int) -> None:
    choice = random.Random(seed)
    raft, observer = Raft(choice), ObserverLog()
    taken: list[tuple[int, str]] = []

    def fetch() -> None:
        diverging = raft.diverging(observer.last_epoch, observer.end_offset)
        if diverging is not None:
            observer.truncate(*diverging)
            return
        behind = [each for each in raft.log if each.base_offset >= observer.end_offset]
        data = b"".join(each.encode() for each in behind[: choice.randint(0, 4)])
        observer.append(data[: len(data) - choice.choice([0, 0, 5])], "the leader")
        observer.raise_high_watermark(raft.high_watermark)
        for batch in observer.take_committed():
            record = batch.records[0].record
            taken.append((batch.base_offset, record.resource_name))

    for _ in range(STEPS):
        choice.choice([raft.append, raft.commit, fetch, fetch, fetch, raft.elect])()
        expected = [(each.base_offset, each.name) for each in raft.log if each.next_offset <= raft.committed]
        assert taken == expected[: len(taken)]
    raft.append()
    raft.committed = raft.high_watermark = raft.end_offset
    for _ in range(STEPS):
        fetch()
    assert taken == [(each.base_offset, each.name) for each in raft.log]


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_what_is_committed_is_taken_once_and_in_order(first: int) -> None:
    for seed in range(first, first + 50):
        play(seed)


def test_the_model_finds_an_observer_that_does_not_wait_for_the_high_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(log: ObserverLog, offset: int) -> None:
        log.high_watermark = log.end_offset

    monkeypatch.setattr(ObserverLog, "raise_high_watermark", hasty)
    with pytest.raises((AssertionError, QuorumError)):
        for seed in range(SEEDS):
            play(seed)
