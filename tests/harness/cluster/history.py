"""`History`: what clients asked of a cluster and what they were told, for the checker. Threads of a load write into it.

Each producer numbers its records per partition, from 0; a record is known by (producer, place, number), which stand in
its value.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

#: Topic and partition.
Place = tuple[str, int]
#: Producer and topic and partition.
Sender = tuple[int, Place]

_VALUE = struct.Struct(">4sIQ")
_MAGIC = b"pbch"


def encode_value(producer: int, number: int, filler: bytes = b"") -> bytes:
    """The value of a record."""
    return _VALUE.pack(_MAGIC, producer, number) + filler


def decode_value(value: bytes | None) -> tuple[int, int] | None:
    """(producer, number) of a record; None for one that no load has sent."""
    if value is None or len(value) < _VALUE.size:
        return None
    magic, producer, number = _VALUE.unpack_from(value)
    return (producer, number) if magic == _MAGIC else None


@dataclass(frozen=True, slots=True)
class Seen:
    """One record as a reader got it. `identity` is (producer, number), None for a record that nobody sent."""

    offset: int
    identity: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class CommitEvent:
    """A group's offset of a partition: committed and acknowledged, or fetched (`is_commit` False; -1: there is none).
    `began` and `ended` are seconds of a monotonic clock."""

    group: str
    place: Place
    offset: int
    is_commit: bool
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Transaction:
    """The records of one transaction, as (sender, number). `is_committed` is what its producer was told; None when it
    was told neither, so that the records are all there or none is."""

    name: str
    records: tuple[tuple[Sender, int], ...]
    is_committed: bool | None


@dataclass
class History:
    """Everything that happened; read it when all who write have ended, or under `lock`."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    #: How many records were given to each producer: their numbers are those below.
    sent_counts: dict[Sender, int] = field(default_factory=lambda: defaultdict(int))
    #: Number to offset; None where the client was not told which.
    acknowledged: dict[Sender, dict[int, int | None]] = field(default_factory=lambda: defaultdict(dict))
    #: Numbers that got an error: such a record may be there or not.
    unknown: dict[Sender, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    #: Of members of groups, in the order in which each got them: (group, member) to partition to records.
    group_reads: dict[tuple[str, int], dict[Place, list[Seen]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    #: The whole log as read at the end.
    final_reads: dict[Place, list[Seen]] = field(default_factory=dict)
    commits: list[CommitEvent] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    #: What clients were told that no retry would have mended.
    client_errors: list[str] = field(default_factory=list)
    #: Members of a group that wait for a commit that their client has lost, and so do not end.
    stuck_member_count: int = 0
    #: When records were acknowledged, in seconds of a monotonic clock, per partition.
    acknowledged_times: dict[Place, list[float]] = field(default_factory=lambda: defaultdict(list))

    def add_sent(self, sender: Sender) -> int:
        """The number of the next record of this sender, which counts as sent from now on."""
        with self.lock:
            number = self.sent_counts[sender]
            self.sent_counts[sender] = number + 1
            return number

    def add_acknowledged(self, sender: Sender, number: int, offset: int | None) -> None:
        """The record is in the log, so the cluster says, at this offset if it says where."""
        with self.lock:
            self.acknowledged[sender][number] = offset
            self.acknowledged_times[sender[1]].append(time.monotonic())

    def add_unknown(self, sender: Sender, number: int, error: str) -> None:
        """Nobody knows whether the record is in the log."""
        with self.lock:
            self.unknown[sender][number] = error

    def add_group_read(self, group: str, member: int, place: Place, seen: Seen) -> None:
        """A member of a group got a record."""
        with self.lock:
            self.group_reads[group, member][place].append(seen)

    def add_commit(self, event: CommitEvent) -> None:
        """A group's offset was committed or fetched."""
        with self.lock:
            self.commits.append(event)

    def add_transaction(self, transaction: Transaction) -> None:
        """A transaction has ended."""
        with self.lock:
            self.transactions.append(transaction)

    def add_client_error(self, text: str) -> None:
        """A client met what it should never meet."""
        with self.lock:
            self.client_errors.append(text)

    def add_stuck_member(self) -> None:
        """One more; that is the client's doing."""
        with self.lock:
            self.stuck_member_count += 1

    def acknowledged_count(self) -> int:
        """Of all records so far."""
        with self.lock:
            return sum(len(numbers) for numbers in self.acknowledged.values())

    def acknowledged_by_place(self) -> dict[Place, int]:
        """Of each partition so far."""
        with self.lock:
            return {place: len(times) for place, times in self.acknowledged_times.items()}

    def group_read_by_place(self) -> dict[Place, int]:
        """Records that members of groups got of each partition so far, those that they got again included."""
        with self.lock:
            counts: dict[Place, int] = defaultdict(int)
            for places in self.group_reads.values():
                for place, reads in places.items():
                    counts[place] += len(reads)
            return counts

    def acknowledged_end(self, place: Place) -> int:
        """The offset after the last one that was acknowledged in the partition; 0 when none was."""
        with self.lock:
            offsets = (
                offset
                for (_, each), numbers in self.acknowledged.items()
                if each == place
                for offset in numbers.values()
                if offset is not None
            )
            return max(offsets, default=-1) + 1

    def longest_silence(self, since: float, until: float) -> float:
        """The longest time in seconds between these two moments in which a partition had nothing acknowledged."""
        with self.lock:
            longest = 0.0
            for times in self.acknowledged_times.values():
                within = [since, *(moment for moment in times if since <= moment <= until), until]
                longest = max(longest, *(later - earlier for earlier, later in pairwise(within)))
            return longest
