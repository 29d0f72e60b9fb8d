"""Shrinks a failing history: many smaller ones are tried in one run, the smallest that still fails is the next. Pure
but for the callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.harness.differential.history import Append, History, Operation, Round

_CANDIDATES = 60
_MAX_STEPS = 12


def _size(history: History) -> tuple[int, int, int]:
    records = sum(
        len(operation.records)
        for each in history.rounds
        for operation in each.operations
        if isinstance(operation, Append)
    )
    settings = len(history.config) + sum(len(each.config) + (each.torn_bytes > 0) for each in history.rounds)
    return history.operation_count, records, settings


def _with(history: History, number: int, operations: Sequence[Operation]) -> History:
    rounds = list(history.rounds)
    rounds[number] = replace(rounds[number], operations=tuple(operations))
    return replace(history, rounds=tuple(rounds))


def _without_operations(history: History) -> Iterator[History]:
    """Halves of a round, quarters, and single operations left out."""
    for number, each in enumerate(history.rounds):
        operations = each.operations
        length = len(operations)
        while length > 0:
            for start in range(0, len(operations), length):
                yield _with(history, number, operations[:start] + operations[start + length :])
            length //= 2


def _simpler(history: History) -> Iterator[History]:
    """Settings left out, batches cut to their first record or not compressed."""
    for key, value in history.config:
        if key != "cleanup.policy":
            yield replace(history, config=tuple(pair for pair in history.config if pair != (key, value)))
    for number, each in enumerate(history.rounds):
        if each.config or each.torn_bytes:
            rounds = list(history.rounds)
            rounds[number] = Round(each.operations)
            yield replace(history, rounds=tuple(rounds))
        for position, operation in enumerate(each.operations):
            if not isinstance(operation, Append):
                continue
            for smaller in (replace(operation, records=operation.records[:1]), replace(operation, codec="none")):
                if smaller != operation:
                    yield _with(
                        history, number, (*each.operations[:position], smaller, *each.operations[position + 1 :])
                    )


def shrink(history: History, failing: Callable[[Sequence[History]], list[History]]) -> History:
    """`failing` plays histories of different names and gives those that fail."""
    stem = history.name
    best = history
    for step in range(_MAX_STEPS):
        ways = [*_without_operations(best), *_simpler(best)]
        ways.sort(key=_size)
        unique = list(dict.fromkeys(ways))[:_CANDIDATES]
        candidates = [replace(way, name=f"{stem}-s{step}-{number}") for number, way in enumerate(unique)]
        failed = failing(candidates) if candidates else []
        if not failed:
            break
        best = min(failed, key=_size)
    return best
