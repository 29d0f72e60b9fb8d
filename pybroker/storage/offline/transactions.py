"""The transactions of a partition, followed over its batches, and what a transaction index has to say of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pybroker.native.walk import CONTROL, TRANSACTIONAL, WalkRow
from pybroker.storage.offline.binary_files import TransactionEntry

_ABORT, _COMMIT = 0, 1


class Aborted(NamedTuple):
    """An aborted transaction. `first_offset` is -1 when it began before what was read."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionReplay:
    """Feed it the TRANSACTIONAL and CONTROL rows of a partition in order; `aborted` is what its indexes should hold.

    `open_at_start` are transactions that a producer snapshot knows to be open where the log begins.
    """

    def __init__(self, open_at_start: Iterable[tuple[int, int]] = ()) -> None:
        self.aborted: list[Aborted] = []
        self._open: dict[int, int] = dict(open_at_start)

    def see(self, row: WalkRow) -> None:
        """The next batch."""
        if row.flags & TRANSACTIONAL:
            self._open.setdefault(row.producer_id, row.base_offset)
        elif row.flags & CONTROL and row.control_type in (_ABORT, _COMMIT):
            first_offset = self._open.pop(row.producer_id, -1)
            if row.control_type == _ABORT:
                # Kafka looks for the first transaction, other than this one, that is still open.
                stable = min(self._open.values(), default=row.last_offset + 1)
                self.aborted.append(Aborted(row.producer_id, first_offset, row.last_offset, stable))


def index_entries(aborted: Iterable[Aborted]) -> list[TransactionEntry]:
    """Entries for the transactions whose begin is known."""
    return [TransactionEntry(0, *each) for each in aborted if each.first_offset >= 0]


def compare(
    entries: list[TransactionEntry], aborted: list[Aborted], log_start: int, complete: bool
) -> list[tuple[int, str]]:
    """The faults of the transaction index of a segment in which `aborted` ended: (number of the entry, words).

    `complete`: no cleaner took batches or markers of it away, so that every entry has its marker and the other way
    round. `log_start`: where the first segment begins; transactions may have begun below it.
    """
    found: list[tuple[int, str]] = []
    by_marker = {(each.producer_id, each.last_offset): each for each in aborted}
    before = -1
    for number, entry in enumerate(entries):
        text = _wrong(entry, by_marker.pop((entry.producer_id, entry.last_offset), None), log_start, complete)
        if not text and entry.last_offset <= before:
            text = f"its last offset {entry.last_offset} is not above that of the entry before, {before}"
        before = max(before, entry.last_offset)
        if text:
            found.append((number, text))
    if complete:
        for each in by_marker.values():
            if each.first_offset >= 0:
                text = f"the abort marker at offset {each.last_offset} of producer {each.producer_id} has no entry"
                found.append((len(entries), text))
    return found


def _wrong(entry: TransactionEntry, marker: Aborted | None, log_start: int, complete: bool) -> str:
    if entry.version != 0:
        return f"version {entry.version}, but only version 0 is known"
    if not 0 <= entry.first_offset <= entry.last_offset or entry.producer_id < 0:
        return f"producer {entry.producer_id}, offsets {entry.first_offset} to {entry.last_offset} make no sense"
    if marker is None:
        return f"no abort marker of producer {entry.producer_id} is at offset {entry.last_offset}" if complete else ""
    if marker.first_offset < 0:
        return f"the transaction began below {log_start}" if entry.first_offset >= log_start and complete else ""
    if entry.first_offset != marker.first_offset and complete:
        return f"the transaction began at offset {marker.first_offset}, not {entry.first_offset}"
    if entry.last_stable_offset > marker.last_stable_offset or entry.last_stable_offset < 0:
        return f"the last stable offset was {marker.last_stable_offset}, not {entry.last_stable_offset}"
    if entry.last_stable_offset != marker.last_stable_offset and complete and entry.last_stable_offset >= log_start:
        return f"the last stable offset was {marker.last_stable_offset}, not {entry.last_stable_offset}"
    return ""
