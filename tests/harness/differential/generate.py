"""Random histories. The same seed gives the same history. Pure.

A topic's clock goes from 22 to 12 days before the run, so that producers are not forgotten yet; retention times lie
between two of its records, and no moment of a run decides anything. After the last round nothing may be older than
`SETTLE_AGES_MS`, whose records close the segments (`playing.py`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tests.harness.differential.history import (
    DAY_MS,
    HOUR_MS,
    Append,
    DeleteRecords,
    EndTransaction,
    History,
    Operation,
    RecordPlan,
    Round,
)

POLICIES = ("delete", "compact", "compact,delete")
# Each is more than the longest segment.ms after the one before it.
SETTLE_AGES_MS = (8 * DAY_MS + 12 * HOUR_MS, 5 * DAY_MS, DAY_MS + 12 * HOUR_MS)
_FIRST_AGE_MS = 22 * DAY_MS
_LAST_AGE_MS = 12 * DAY_MS
_CODECS = ("none", "none", "none", "gzip", "snappy", "lz4", "zstd")
_KEYS = tuple(f"key-{number}" for number in range(9))
_ROUNDS = 3
_PRODUCERS = (4001, 4002)
_TRANSACTIONAL = (7001, 7002)


@dataclass
class _Producer:
    """What a producer will send next, and whether it has a transaction open."""

    epoch: int = 0
    sequence: int = 0
    in_transaction: bool = False


def _acceptable(plan: RecordPlan) -> RecordPlan:
    """Nothing for which a batch is refused (its size too): the next one's numbers would not follow."""
    value_bytes = None if plan.value_bytes is None else min(plan.value_bytes, 40)
    age_ms = plan.age_ms if plan.age_ms is None or plan.age_ms > 0 else _LAST_AGE_MS
    return replace(plan, key=plan.key or _KEYS[0], value_bytes=value_bytes, age_ms=age_ms)


@dataclass
class _Author:
    """Writes one history."""

    chance: random.Random
    policy: str
    transactions: bool
    refusals: bool
    numbered: bool
    age_ms: int = _FIRST_AGE_MS
    producers: dict[int, _Producer] = field(default_factory=dict)
    last_idempotent: Append | None = None

    def config(self) -> tuple[tuple[str, str], ...]:
        choose = self.chance.choice
        config = {
            "cleanup.policy": self.policy,
            "internal.segment.bytes": choose(("1200", "3000", "3000", "9000")),
            "index.interval.bytes": choose(("0", "200", "1000", "4096")),
            # A full index rolls its segment; when it is full after a crash is anybody's own affair.
            "segment.index.bytes": choose(("48", "120")) if self.refusals else "1048576",
            "segment.ms": str(choose((6 * HOUR_MS, 36 * HOUR_MS, 3 * DAY_MS))),
            "file.delete.delay.ms": "100",
        }
        if self.refusals:
            config |= {"retention.bytes": "-1", "retention.ms": "-1"}
        elif "delete" in self.policy:
            config["retention.bytes"] = choose(("-1", "-1", "0", "2500", "6000", "15000"))
            config["retention.ms"] = str(choose((-1, -1, 13 * DAY_MS, 16 * DAY_MS, 19 * DAY_MS)))
        else:
            # How well a codec compresses decides where segments end, but not what compaction keeps.
            config["compression.type"] = choose(("producer", "producer", "uncompressed", "zstd", "lz4", "gzip"))
        if "compact" in self.policy:
            config["delete.retention.ms"] = choose(("0", "0", str(DAY_MS)))
            config["min.cleanable.dirty.ratio"] = choose(("0", "0", "0", "0.4"))
            if self.chance.random() < 0.2:
                config["min.compaction.lag.ms"] = str(choose((14 * DAY_MS, 17 * DAY_MS)))
        elif self.chance.random() < 0.1:
            config["message.timestamp.type"] = "LogAppendTime"
        if self.chance.random() < 0.2:
            config["message.timestamp.after.max.ms"] = str(60 * DAY_MS)
        return tuple(sorted(config.items()))

    def rounds(self) -> tuple[Round, ...]:
        return tuple(self._round() for _ in range(_ROUNDS))

    def _round(self) -> Round:
        chance = self.chance
        operations = [each for _ in range(chance.randint(2, 9)) for each in self._operations()]
        config: dict[str, str] = {}
        deletes = "delete" in self.policy and not self.refusals
        if deletes and chance.random() < 0.3:
            config["retention.bytes"] = chance.choice(("-1", "1000", "4000"))
        if deletes and chance.random() < 0.2:
            config["retention.ms"] = str(chance.choice((-1, 14 * DAY_MS, 17 * DAY_MS)))
        if not self.refusals and not self.transactions and chance.random() < 0.05:
            config["cleanup.policy"] = chance.choice(("delete", "compact"))
        torn_bytes = 0 if self.numbered else chance.choice((0, 0, 1, 40, 61, 700))
        return Round(tuple(operations), tuple(sorted(config.items())), torn_bytes)

    def _operations(self) -> list[Operation]:
        draw = self.chance.random()
        if draw < 0.06 and not self.refusals:
            return [DeleteRecords(self.chance.choice((0, 10, 35, 60, 100, 130)))]
        if draw < 0.10 and self.refusals and self.last_idempotent is not None:
            return [self.last_idempotent]
        if draw < 0.30 and self.transactions:
            return self._transactional()
        # A few small batches or a large one, then perhaps a pause that rolls the segment by time.
        appends: list[Operation] = [self._append() for _ in range(self.chance.choice((1, 1, 2, 4)))]
        if self.chance.random() < 0.15:
            self._pass_time(self.chance.choice((7 * HOUR_MS, 3 * DAY_MS + HOUR_MS)))
        return appends

    def _pass_time(self, step_ms: int) -> None:
        self.age_ms = max(_LAST_AGE_MS, self.age_ms - step_ms)

    def _records(self) -> tuple[RecordPlan, ...]:
        chance = self.chance
        count = chance.choice((1, 1, 2, 3, 6, 12))
        return tuple(self._record() for _ in range(count))

    def _record(self) -> RecordPlan:
        chance = self.chance
        self._pass_time(chance.choice((0, 0, 1, 1000, 20 * 60_000)))
        age_ms: int | None = self.age_ms
        draw = chance.random()
        if draw < 0.04:
            age_ms = self.age_ms + 40 * HOUR_MS  # out of order
        elif draw < 0.05:
            age_ms = -2 * DAY_MS  # in the future: refused, or there for long
        elif draw < 0.06:
            age_ms = None
        key = chance.choice(_KEYS)
        has_key = chance.random() > (0.005 if "compact" in self.policy else 0.2)
        is_tombstone = chance.random() < 0.2
        value_bytes = None if is_tombstone else chance.choice((0, 5, 40, 200, 900))
        return RecordPlan(key if has_key else None, value_bytes, age_ms, chance.random() < 0.1)

    def _append(self) -> Append:
        codec = self.chance.choice(_CODECS)
        if not self.numbered or self.chance.random() < 0.6:
            return Append(self._records(), codec)
        producer_id = self.chance.choice(_PRODUCERS)
        self.last_idempotent = self._next(producer_id, codec, transactional=False)
        return self.last_idempotent

    def _next(self, producer_id: int, codec: str, *, transactional: bool) -> Append:
        """The producer's next batch; now and then with a gap in its numbers, which is refused."""
        producer = self.producers.setdefault(producer_id, _Producer())
        if self.chance.random() < 0.03:
            producer.epoch += 1
            producer.sequence = 0
        gap = 5 if self.refusals and self.chance.random() < 0.05 else 0
        records = tuple(_acceptable(each) for each in self._records())
        append = Append(records, codec, (producer_id, producer.epoch, producer.sequence + gap), transactional)
        if not gap:
            producer.sequence += len(records)
        return append

    def _transactional(self) -> list[Operation]:
        producer_id = self.chance.choice(_TRANSACTIONAL)
        producer = self.producers.setdefault(producer_id, _Producer())
        if producer.in_transaction and self.chance.random() < 0.6:
            producer.in_transaction = False
            return [EndTransaction(producer_id, producer.epoch, self.chance.random() < 0.5)]
        producer.in_transaction = True
        return [self._next(producer_id, self.chance.choice(_CODECS), transactional=True)]


def history(seed: int, policy: str, *, transactions: bool) -> History:
    """A random one for a topic of this cleanup policy."""
    chance = random.Random(f"{seed} {policy}")
    # Apache Kafka rolls before it looks at sequence numbers, and forgets producers with the last of their records; so
    # refused batches go only where a roll decides nothing and nothing is deleted.
    refusals = policy == "delete" and chance.random() < 0.2
    # Bytes torn off a log take numbers with them that its producers go on from.
    numbered = refusals or chance.random() < 0.7
    # Nor does it know at a restart of a transaction whose records are deleted.
    transactional = transactions and numbered and (refusals or policy == "compact")
    author = _Author(chance, policy, transactional, refusals, numbered)
    config = author.config()
    # While deletion and compaction go on at the same time, what they do to each other does depend on the moment.
    is_live = policy != "compact,delete" and author.chance.random() < 0.3
    if is_live:
        config = tuple(pair for pair in config if pair != ("retention.bytes", "0"))
    rounds = author.rounds()
    if is_live:
        # Where the log starts while retention is at work depends on the moment.
        rounds = tuple(
            Round(tuple(one for one in each.operations if not isinstance(one, DeleteRecords)), (), each.torn_bytes)
            for each in rounds
        )
    return History(f"{policy.replace(',', '-')}-{seed}", config, rounds, is_live, author.refusals)


def histories(seed: int, count: int, policies: Sequence[str] = POLICIES, *, transactions: bool) -> list[History]:
    """Taking turns at the policies."""
    return [
        history(seed + number, policies[number % len(policies)], transactions=transactions) for number in range(count)
    ]
