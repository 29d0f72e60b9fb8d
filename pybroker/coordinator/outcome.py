"""The result of a coordinator's state machine for its driver: records to append, and the action once that is
decided."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pybroker.protocol.errors import ErrorCode

#: More than what a record's own fields (lengths, deltas, attributes) take, and than a batch's header.
_RECORD_OVERHEAD_BYTES = 24
BATCH_OVERHEAD_BYTES = 61
_RECORDS_PER_PART = 1_000


class CoordinatorRecord:
    """One record for the coordinator's partition.

    `change` is what replaying it does, as `decode` of these bytes would give. None for a record whose effect an earlier
    record of the same outcome includes. None also where the state machine brings the effect about when the append is
    decided, as it knows more than the record says.
    """

    __slots__ = ("change", "key", "value")

    def __init__(self, key: bytes, value: bytes | None, change: Any = None) -> None:
        self.key = key
        self.value = value
        self.change = change


def record_bytes(record: CoordinatorRecord) -> int:
    """The bytes of a batch that a record takes, at most."""
    value_bytes = len(record.value) if record.value is not None else 0
    return _RECORD_OVERHEAD_BYTES + len(record.key) + value_bytes


@dataclass(slots=True)
class Outcome:
    """Records that belong together (one batch, all or nothing) and a callback.

    `on_append` is called once: with NONE after the records are committed and replayed, else with the error for the
    client. It may have an outcome of its own. Without records nothing is appended and it must be None.
    """

    records: list[CoordinatorRecord] = field(default_factory=list)
    on_append: Callable[[ErrorCode], Outcome] | None = None
    #: Somebody is parked until `on_append`, which is called with COORDINATOR_NOT_AVAILABLE when clients are told that
    #: the append takes too long, and again when it is decided.
    is_parked: bool = False


#: Nothing to append. Shared, so never changed.
NOTHING = Outcome()


class Part(NamedTuple):
    """As many as a batch holds of records that need not be appended all or nothing.

    The next part is computed from the state after these were replayed, or later if there are none.
    """

    outcome: Outcome
    is_last: bool


def first_batch(records: Iterable[CoordinatorRecord], max_batch_bytes: int) -> tuple[list[CoordinatorRecord], bool]:
    """Records from the front that fit into a batch and are not too many for a step, one at least if there is any, and
    whether these are all. No more are taken from `records` than one beyond."""
    taken: list[CoordinatorRecord] = []
    size_bytes = BATCH_OVERHEAD_BYTES
    for record in records:
        size_bytes += record_bytes(record)
        if taken and (size_bytes > max_batch_bytes or len(taken) == _RECORDS_PER_PART):
            return taken, False
        taken.append(record)
    return taken, True


_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def client_error(append_error: ErrorCode) -> ErrorCode:
    """The code that a coordinator's client gets for a failed append: one it knows how to react to."""
    return _APPEND_ERRORS.get(append_error, append_error)
