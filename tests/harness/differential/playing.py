"""Plays histories to one broker: operations round by round, rest after each, restarts in between, a look at the end of
each.

While a round is played retention and the cleaner pause (unless the history is `live`); then they are let go, and the
round ends when they have nothing left to do: a full pass of retention is over (three topics' worth of evidence, see
`_Fence`), and no file and no checkpoint of the cleaner changes any more. One thread per broker.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pybroker.storage.files import log_ends
from tests.harness.differential import batches
from tests.harness.differential.generate import SETTLE_AGES_MS
from tests.harness.differential.history import (
    DAY_MS,
    Append,
    DeleteRecords,
    EndTransaction,
    History,
    Operation,
    RecordPlan,
)
from tests.harness.differential.observation import Observation, observe
from tests.harness.differential.side import EARLIEST, LATEST, Side

#: So long nothing may change before a log counts as at rest: many times what both brokers wait between their rounds.
STILL_SECONDS = 1.5
_REST_TIMEOUT_SECONDS = 240.0
#: What stops retention and the cleaner for a topic.
_PAUSED = {"retention.ms": "-1", "retention.bytes": "-1", "min.cleanable.dirty.ratio": "1"}
_DEFAULTS = {"retention.ms": str(7 * DAY_MS), "retention.bytes": "-1", "min.cleanable.dirty.ratio": "0.5"}


_RETENTION = ("retention.ms", "retention.bytes")


@dataclass
class Outcome:
    """What one broker made of a history: an answer per operation, and what was seen after each rest. `name` is the
    topic's."""

    name: str
    answers: list[tuple[object, ...]] = field(default_factory=list)
    observations: list[tuple[str, Observation]] = field(default_factory=list)


class _Fence:
    """Tells when retention has looked at every log: it visits them in rounds, one round at a time, so when it has
    deleted something here three times in a row, each put here after the last, one whole round lies in between."""

    def __init__(self, side: Side, start_ms: int, topic: str) -> None:
        self._side = side
        self.topic = topic
        append = Append((RecordPlan(None, 10, 30 * DAY_MS),))
        self._batch = batches.build(append, self.topic, start_ms)
        side.create({self.topic: {"retention.ms": str(DAY_MS)}})

    def pass_through(self, deadline: float) -> None:
        for _ in range(3):
            self._side.produce({self.topic: self._batch})
            while self._side.list_offsets({self.topic: EARLIEST}) != self._side.list_offsets({self.topic: LATEST}):
                assert time.monotonic() < deadline, f"{self._side.name}: retention has stopped"
                time.sleep(0.02)


class Player:
    """Plays to one side. `start_ms` is the moment that ages are counted from, the same for both sides. `prefix` makes
    the names of topics."""

    def __init__(
        self, side: Side, histories: Sequence[History], start_ms: int, prefix: str, still_seconds: float
    ) -> None:
        self._side = side
        self._still_seconds = still_seconds
        self._start_ms = start_ms
        self._prefix = prefix
        self._histories = {f"{prefix}.{each.name}": each for each in histories}
        assert len(self._histories) == len(histories), "two histories have the same name"
        self._outcomes = {topic: Outcome(topic) for topic in self._histories}

    def run(self, restarts: Sequence[str], settles: int) -> list[Outcome]:
        """`restarts` says what follows each round: "clean", "kill", or "" for none; one more for the end. So often as
        `settles` says the logs are closed and cleaned once more after the last round."""
        side = self._side
        fence = self._fence = _Fence(side, self._start_ms, f"{self._prefix}.fence")
        side.create({topic: self._config(each, 0, paused=True) for topic, each in self._histories.items()})
        round_count = max(len(each.rounds) for each in self._histories.values())
        for number in range(round_count):
            self._play_round(number)
            self._come_to_rest(number + 1)
            self._observe(f"round {number}")
            self._pause()
            self._restart(restarts[number] if number < len(restarts) else "", number)
        self._settle(round_count, SETTLE_AGES_MS[:settles])
        if len(restarts) > round_count:
            self._restart(restarts[round_count], round_count)
            self._rest()
            self._observe("restarted")
        side.delete([*self._histories, fence.topic])
        return list(self._outcomes.values())

    def _config(self, history: History, rounds: int, *, paused: bool) -> dict[str, str]:
        """The settings with which a topic begins, or goes on."""
        config = {key: history.setting(key, "", rounds) for key, _ in history.config}
        return {**config, **_PAUSED} if paused and not history.live else config

    def _pause(self) -> None:
        self._side.configure({topic: _PAUSED for topic, history in self._histories.items() if not history.live})

    def _come_to_rest(self, rounds: int) -> None:
        """Put in force what the histories say by now, and wait until nothing is left to do. What is to be compacted is
        compacted before retention begins: what both do would depend on who comes first."""
        changes: dict[str, dict[str, str]] = {}
        for topic, history in self._histories.items():
            defaults = {} if history.live else _DEFAULTS
            set_by_rounds = [key for each in history.rounds[:rounds] for key, _ in each.config]
            changes[topic] = {
                key: history.setting(key, defaults.get(key, ""), rounds) for key in (*set_by_rounds, *defaults)
            }
        retention = {topic: {key: each[key] for key in each if key in _RETENTION} for topic, each in changes.items()}
        first = {topic: {key: each[key] for key in each if key not in _RETENTION} for topic, each in changes.items()}
        self._side.configure(first)
        if any("compact" in each.policies for each in self._histories.values()):
            self._rest()
        self._side.configure(retention)
        self._rest()

    # ---- operations ------------------------------------------------------------------------------------------------

    def _play_round(self, number: int) -> None:
        steps: dict[str, Sequence[Operation]] = {
            topic: each.rounds[number].operations
            for topic, each in self._histories.items()
            if number < len(each.rounds)
        }
        for step in range(max(map(len, steps.values()), default=0)):
            now = {topic: operations[step] for topic, operations in steps.items() if step < len(operations)}
            self._append({topic: each for topic, each in now.items() if isinstance(each, Append)}, f"{number}.{step}")
            self._delete_records({topic: each for topic, each in now.items() if isinstance(each, DeleteRecords)})
            ends = {topic: each for topic, each in now.items() if isinstance(each, EndTransaction)}
            for topic, code in self._side.end_transactions(ends).items():
                self._outcomes[topic].answers.append(("end", code))

    def _append(self, appends: Mapping[str, Append], name: str) -> None:
        # A repeated batch must have the bytes it had, so those of producers with numbers are named after these.
        data = {
            topic: batches.build(each, name if each.producer is None else str(each.producer), self._start_ms)
            for topic, each in appends.items()
        }
        # A request may hold the transactional batches of one producer.
        groups: dict[tuple[int, ...], dict[str, bytes]] = {}
        for topic, each in appends.items():
            producer = each.producer[:2] if each.producer and each.transactional else ()
            groups.setdefault(producer, {})[topic] = data[topic]
        for group in groups.values():
            for topic, (code, offset) in self._side.produce(group).items():
                self._outcomes[topic].answers.append(("append", code, offset))

    def _delete_records(self, operations: Mapping[str, DeleteRecords]) -> None:
        if not operations:
            return
        starts = self._side.list_offsets(dict.fromkeys(operations, EARLIEST))
        ends = self._side.list_offsets(dict.fromkeys(operations, LATEST))
        offsets = {}
        for topic, each in operations.items():
            start, end = starts[topic].offset, ends[topic].offset
            offsets[topic] = start + (end - start) * each.percent // 100 + (each.percent > 100)
        for topic, answer in self._side.delete_records(offsets).items():
            self._outcomes[topic].answers.append(("delete records", *answer))

    # ---- rest ------------------------------------------------------------------------------------------------------

    def _rest(self) -> None:
        """Until nothing changes for a while, and for another round of retention: a broker that gets no CPU is still as
        well, but then the round does not come."""
        deadline = time.monotonic() + _REST_TIMEOUT_SECONDS
        self._fence.pass_through(deadline)
        seen: object = None
        while (now := self._when_still(deadline)) != seen:
            seen = now
            self._fence.pass_through(deadline)

    def _when_still(self, deadline: float) -> object:
        """What the logs are once they have not changed for a while."""
        last: object = None
        still_since = time.monotonic()
        while time.monotonic() - still_since < self._still_seconds:
            looked = time.monotonic()
            now = ([self._side.segments(topic) for topic in self._histories], self._side.cleaned_offsets())
            if now != last:
                assert time.monotonic() < deadline, f"{self._side.name}: the logs do not come to rest"
                last, still_since = now, time.monotonic()
            # Looking at many logs takes its time too, which the brokers need.
            time.sleep(max(0.1, 2 * (time.monotonic() - looked)))
        return last

    def _observe(self, when: str) -> None:
        for topic, seen in observe(self._side, list(self._histories), self._start_ms).items():
            self._outcomes[topic].observations.append((when, seen))

    def _settle(self, round_count: int, ages_ms: Sequence[int]) -> None:
        """Close the segments again and again, so that all that can be deleted, compacted or forgotten is."""
        for number, age_ms in enumerate(ages_ms):
            append = Append((RecordPlan("settled", 10, age_ms),))
            self._append(dict.fromkeys(self._histories, append), f"settle {number}")
            self._come_to_rest(round_count)
            self._observe(f"settled {number}")
            if number < len(ages_ms) - 1:
                self._pause()

    # ---- restarts --------------------------------------------------------------------------------------------------

    def _restart(self, how: str, number: int) -> None:
        if not how:
            return
        self._side.stop(kill=how == "kill")
        if how == "kill":
            for topic, history in self._histories.items():
                if number < len(history.rounds) and history.rounds[number].torn_bytes:
                    self._tear(topic, history.rounds[number].torn_bytes)
        self._side.start()

    def _tear(self, topic: str, size_bytes: int) -> None:
        """Take bytes off the end of what was written last."""
        path = max((self._side.log_dir / f"{topic}-0").glob("*.log"))
        end = _batches_end(path.read_bytes())
        with open(path, "r+b") as file:
            file.truncate(max(0, end - size_bytes))
        # pybroker knows how far its logs reached, and would miss these records. The log that is left is compared.
        for name in (log_ends.FILE_NAME, log_ends.WRITTEN_NAME):
            (self._side.log_dir / name).unlink(missing_ok=True)


def _batches_end(log: bytes) -> int:
    """Where the last batch ends: a killed broker may have reserved zeros after it."""
    position = 0
    while position + 12 <= len(log):
        length = struct.unpack_from(">i", log, position + 8)[0]
        if length <= 0:
            break
        position += 12 + length
    return position
