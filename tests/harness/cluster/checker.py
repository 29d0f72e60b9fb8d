"""Judges a `History`: what a cluster told its clients must hold together. Pure.

Of the log as read at the end, per partition: everything acknowledged is there, where it was said to be; nothing is
there twice (producers are idempotent), out of a producer's order, or invented. What members of groups read is in it
still. The offsets of a group never go back, and everything below them was read by somebody of the group. Transactions
are there as a whole when they were committed, and nothing of them when they were aborted; all readers are taken for
ones that read only what is committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tests.harness.cluster.history import CommitEvent, History, Place, Seen


class Kind(StrEnum):
    """What is wrong."""

    LOST = "acknowledged and lost"
    MOVED = "acknowledged at another offset"
    DOUBLED = "there twice"
    REORDERED = "out of order"
    INVENTED = "sent by nobody"
    UNREAD = "read once and gone later"
    COMMIT_LOST = "a committed offset went back"
    ABORTED_READ = "of an aborted transaction, and read"
    TORN = "a part of a transaction"
    SKIPPED = "below a committed offset and read by nobody"
    CLIENT_ERROR = "an error that no client should meet"
    REPLICAS_DIFFER = "replicas differ"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must not be."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def check(history: History) -> list[Violation]:
    """Everything that is wrong, the worst first; empty when nothing is."""
    return [
        *_check_acknowledged(history),
        *_check_logs(history),
        *_check_group_reads(history),
        *_check_commits(history.commits),
        *_check_coverage(history),
        *_check_transactions(history),
        *(Violation(Kind.CLIENT_ERROR, text) for text in history.client_errors),
    ]


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _check_acknowledged(history: History) -> Iterator[Violation]:
    offsets: dict[tuple[int, Place, int], set[int]] = defaultdict(set)
    for place, log in history.final_reads.items():
        for seen in log:
            if seen.identity is not None:
                offsets[seen.identity[0], place, seen.identity[1]].add(seen.offset)
    for (producer, place), numbers in history.acknowledged.items():
        for number, offset in sorted(numbers.items()):
            found = offsets.get((producer, place, number))
            what = f"{_name(place)}: record {number} of producer {producer}"
            if not found:
                where = "" if offset is None else f", at offset {offset}"
                yield Violation(Kind.LOST, f"{what} was acknowledged{where}, and is not in the log")
            elif offset is not None and offset not in found:
                yield Violation(Kind.MOVED, f"{what} was acknowledged at offset {offset}, and lies at {_list(found)}")


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _check_logs(history: History) -> Iterator[Violation]:
    for place, log in history.final_reads.items():
        first_offsets: dict[tuple[int, int], int] = {}
        last_numbers: dict[int, int] = {}
        last_offset = -1
        for seen in log:
            what = f"{_name(place)} offset {seen.offset}"
            if seen.offset <= last_offset:
                yield Violation(Kind.REORDERED, f"{what} was read after offset {last_offset}")
            last_offset = max(last_offset, seen.offset)
            if seen.identity is None or seen.identity[1] >= history.sent_counts.get((seen.identity[0], place), 0):
                yield Violation(Kind.INVENTED, f"{what}: {_identity(seen)}")
                continue
            producer, number = seen.identity
            if seen.identity in first_offsets:
                first = first_offsets[seen.identity]
                yield Violation(Kind.DOUBLED, f"{what}: {_identity(seen)}, which offset {first} has already")
                continue
            first_offsets[seen.identity] = seen.offset
            if number < last_numbers.get(producer, -1):
                yield Violation(
                    Kind.REORDERED, f"{what}: {_identity(seen)} follows its record {last_numbers[producer]}"
                )
            last_numbers[producer] = max(number, last_numbers.get(producer, -1))


def _identity(seen: Seen) -> str:
    if seen.identity is None:
        return "a record of no producer"
    return f"record {seen.identity[1]} of producer {seen.identity[0]}"


def _check_group_reads(history: History) -> Iterator[Violation]:
    logs = {place: {seen.offset: seen.identity for seen in log} for place, log in history.final_reads.items()}
    for (group, member), places in history.group_reads.items():
        for place, reads in places.items():
            for seen in reads:
                now = logs[place].get(seen.offset) if place in logs else None
                if now == seen.identity and now is not None:
                    continue
                there = "nothing" if now is None else _identity(Seen(seen.offset, now))
                yield Violation(
                    Kind.UNREAD,
                    f"{_name(place)} offset {seen.offset}: member {member} of group {group} read {_identity(seen)}, "
                    f"and at the end {there} is there",
                )


def _check_commits(commits: list[CommitEvent]) -> Iterator[Violation]:
    """Whoever began to ask or to commit after a commit had been acknowledged must not be behind it."""
    of_place: dict[tuple[str, Place], list[CommitEvent]] = defaultdict(list)
    for event in commits:
        of_place[event.group, event.place].append(event)
    for (group, place), events in of_place.items():
        settled = sorted((event for event in events if event.is_commit), key=lambda event: event.ended)
        position, highest = 0, -1
        for event in sorted(events, key=lambda event: event.began):
            while position < len(settled) and settled[position].ended <= event.began:
                highest = max(highest, settled[position].offset)
                position += 1
            if event.offset < highest:
                verb = "was committed" if event.is_commit else "was fetched"
                yield Violation(
                    Kind.COMMIT_LOST,
                    f"group {group}, {_name(place)}: offset {event.offset} {verb} after {highest} had been committed",
                )


def _check_coverage(history: History) -> Iterator[Violation]:
    highest: dict[tuple[str, Place], int] = defaultdict(int)
    for event in history.commits:
        if event.is_commit:
            highest[event.group, event.place] = max(highest[event.group, event.place], event.offset)
    read: dict[tuple[str, Place], set[int]] = defaultdict(set)
    for (group, _member), places in history.group_reads.items():
        for place, reads in places.items():
            read[group, place].update(seen.offset for seen in reads)
    for (group, place), offset in highest.items():
        for seen in history.final_reads.get(place, ()):
            if seen.offset < offset and seen.offset not in read[group, place]:
                yield Violation(
                    Kind.SKIPPED,
                    f"group {group}, {_name(place)}: offset {seen.offset} was read by no member, and {offset} is "
                    "committed",
                )


def _check_transactions(history: History) -> Iterator[Violation]:
    there = {
        ((seen.identity[0], place), seen.identity[1])
        for place, log in history.final_reads.items()
        for seen in log
        if seen.identity is not None
    }
    there_once = there | {
        ((seen.identity[0], place), seen.identity[1])
        for places in history.group_reads.values()
        for place, reads in places.items()
        for seen in reads
        if seen.identity is not None
    }
    for transaction in history.transactions:
        found = [record for record in transaction.records if record in there]
        if transaction.is_committed is False:
            for (producer, place), number in transaction.records:
                if ((producer, place), number) in there_once:
                    yield Violation(
                        Kind.ABORTED_READ,
                        f"{_name(place)}: record {number} of producer {producer}, of {transaction.name}, was read",
                    )
        elif found and len(found) < len(transaction.records):
            yield Violation(
                Kind.TORN, f"{transaction.name}: {len(found)} of {len(transaction.records)} records are in the log"
            )
