"""`History`: what happens to one topic of one partition, as data: its configuration and rounds of operations.

Everything that a log's life depends on is in here and explicit: timestamps (relative to the start of a run), producer
ids, sequence numbers, codecs. So two brokers that play a history are sent the same bytes. Between rounds both brokers
come to rest (`playing.py`). Pure data, saved as JSON; ValueError when a file holds something else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True)
class RecordPlan:
    """One record. `value_bytes` None is a tombstone; `age_ms` is how long before the run it happened (negative: after
    it), None for no timestamp at all."""

    key: str | None
    value_bytes: int | None
    age_ms: int | None
    has_header: bool = False


@dataclass(frozen=True)
class Append:
    """One batch. `producer` is (producer id, epoch, first sequence)."""

    records: tuple[RecordPlan, ...]
    codec: str = "none"
    producer: tuple[int, int, int] | None = None
    transactional: bool = False


@dataclass(frozen=True)
class EndTransaction:
    """A marker as a transaction coordinator writes it."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int = 0


@dataclass(frozen=True)
class DeleteRecords:
    """Of what is there, so much of the oldest; more than 100 asks for what is not there yet."""

    percent: int


Operation = Append | EndTransaction | DeleteRecords
_OPERATIONS: Mapping[str, type[Operation]] = {each.__name__: each for each in (Append, EndTransaction, DeleteRecords)}


@dataclass(frozen=True)
class Round:
    """Operations, then `config` (over what was set before), then rest. `torn_bytes` are cut off the end of the active
    segment if the run kills its brokers after this round."""

    operations: tuple[Operation, ...]
    config: tuple[tuple[str, str], ...] = ()
    torn_bytes: int = 0


@dataclass(frozen=True)
class History:
    """`live` histories have retention and the cleaner at work while they are played; for the others these pause until
    the round's operations are done, so that what they do cannot depend on the moment. With `refusals` some batches are
    sent twice or out of order."""

    name: str
    config: tuple[tuple[str, str], ...]
    rounds: tuple[Round, ...]
    live: bool = False
    refusals: bool = False

    def setting(self, key: str, default: str, rounds: int | None = None) -> str:
        """The value of a topic's setting after so many rounds (None: all)."""
        changes = [pair for each in self.rounds[:rounds] for pair in each.config]
        return dict([*self.config, *changes]).get(key, default)

    @property
    def policies(self) -> set[str]:
        """Every value that cleanup.policy has at some time, taken apart."""
        values = [
            value
            for each in (self.config, *(one.config for one in self.rounds))
            for key, value in each
            if key == "cleanup.policy"
        ]
        return {policy for value in values for policy in value.split(",")}

    @property
    def operation_count(self) -> int:
        return sum(len(each.operations) for each in self.rounds)

    def as_json(self) -> str:
        """The text that `from_json` reads."""
        document = asdict(self)
        for each, of_round in zip(document["rounds"], self.rounds, strict=True):
            kinds = [type(operation).__name__ for operation in of_round.operations]
            each["operations"] = [
                {"kind": kind, **members} for kind, members in zip(kinds, each["operations"], strict=True)
            ]
        return json.dumps(document, indent=1) + "\n"


def _operation(members: Mapping[str, Any]) -> Operation:
    left = dict(members)
    kind = _OPERATIONS.get(str(left.pop("kind", None)))
    if kind is None:
        raise ValueError(f"an operation cannot be a {members.get('kind')}; it is one of {', '.join(_OPERATIONS)}")
    if kind is Append:
        left["records"] = tuple(RecordPlan(**each) for each in left["records"])
        left["producer"] = None if left["producer"] is None else tuple(left["producer"])
    return kind(**left)


def _pairs(values: Any) -> tuple[tuple[str, str], ...]:
    return tuple((str(key), str(value)) for key, value in values)


def from_json(text: str) -> History:
    """The inverse of `History.as_json`."""
    document = json.loads(text)
    rounds = tuple(
        Round(tuple(_operation(one) for one in each["operations"]), _pairs(each["config"]), int(each["torn_bytes"]))
        for each in document["rounds"]
    )
    return History(
        str(document["name"]), _pairs(document["config"]), rounds, bool(document["live"]), bool(document["refusals"])
    )


def load(path: Path) -> History:
    """A saved history."""
    return from_json(path.read_text())
