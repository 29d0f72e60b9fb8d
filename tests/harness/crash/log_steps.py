"""`LogSteps`: one partition that is taken through everything a log lives through, in steps of a seed, beside a model.

Appends with and without transactions, their ends, DeleteRecords near the end of the log, reads, kills and stops of the
broker with another append engine for its next life. After each life the partition has to be what the model says: every
record at its offset, the last stable offset, and what a reader of committed records gets. The caller's thread drives
it. Can fail: AssertionError with what the partition shows instead.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.record_batch import Record, RecordBatch
from tests.harness.broker import BrokerProcess
from tests.harness.crash.engines import EngineTurns
from tests.harness.differential.history import EndTransaction
from tests.harness.differential.side import EARLIEST, LATEST, Side

OVERRIDES = {
    "transaction.partition.verification.enable": "false",
    "offsets.topic.num.partitions": "1",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
}
_TOPIC = "steps"
_PRODUCERS = (7001, 7002, 7003)
_VALUE_BYTES = 30_000
_READ_COMMITTED = 1


@dataclass
class _Entry:
    """What lies at one offset. `transaction` numbers the transaction of a record; None: it has none."""

    value: bytes | None
    transaction: int | None = None


@dataclass
class _Transaction:
    first_offset: int
    number: int


@dataclass
class _Model:
    entries: list[_Entry] = field(default_factory=list)
    start_offset: int = 0
    sequences: dict[int, int] = field(default_factory=lambda: dict.fromkeys(_PRODUCERS, 0))
    open: dict[int, _Transaction] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    transaction_count: int = 0

    @property
    def stable_offset(self) -> int:
        return min((each.first_offset for each in self.open.values()), default=len(self.entries))

    def committed_values(self) -> dict[int, bytes]:
        """What a reader of committed records gets, by offset."""
        readable = enumerate(self.entries[: self.stable_offset])
        return {
            offset: each.value
            for offset, each in readable
            if offset >= self.start_offset
            and each.value is not None
            and (each.transaction is None or each.transaction in self.committed)
        }


class LogSteps:
    """See the module. `turns` has the engines; the broker runs already."""

    def __init__(self, broker: BrokerProcess, turns: EngineTurns, seed: int) -> None:
        # A broker that serves leads its partitions: nothing is asked twice.
        self._side = Side("the broker", broker, patience_seconds=0.0)
        self._broker = broker
        self._turns = turns
        self._random = random.Random(seed)
        self._model = _Model()
        self._life = 0
        self._side.create({_TOPIC: {"segment.bytes": str(1 << 20)}})

    def close(self) -> None:
        """The end; the broker goes on."""
        self._side.close()

    def live(self, step_count: int, *, kill: bool) -> None:
        """So many steps, the broker's end, and its next life; then the partition is compared."""
        for _ in range(step_count):
            self._step()
        self._side.close()
        if kill:
            self._broker.kill()
        else:
            assert self._broker.stop() == 0
        self._life += 1
        self._turns.begin(self._broker, self._life)
        self._broker.start()
        found = self._end(EARLIEST)
        # What no checkpoint has told is forgotten by a kill, as in Apache Kafka.
        assert found == self._model.start_offset or (kill and found < self._model.start_offset)
        self._model.start_offset = found
        self.compare()

    # ---- steps -----------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        what = self._random.random()
        producer_id = self._random.choice(_PRODUCERS)
        if what < 0.45:
            self._append([self._value() for _ in range(self._random.randint(1, 3))])
        elif what < 0.75:
            self._append([self._value()], producer_id)
        elif what < 0.9:
            if producer_id in self._model.open:
                self._finish(producer_id, commit=self._random.random() < 0.5)
        elif what < 0.93:
            self._delete_records()
        else:
            self._read_near_the_end()

    def _value(self) -> bytes:
        return self._random.randbytes(self._random.randint(10, _VALUE_BYTES))

    def _append(self, values: list[bytes], producer_id: int | None = None) -> None:
        model = self._model
        transaction: int | None = None
        fields: dict[str, Any] = {}
        if producer_id is not None:
            if producer_id not in model.open:
                model.transaction_count += 1
                model.open[producer_id] = _Transaction(len(model.entries), model.transaction_count)
            transaction = model.open[producer_id].number
            fields = {"transactional": True, "producer_id": producer_id, "producer_epoch": 0}
            fields["base_sequence"] = model.sequences[producer_id]
            model.sequences[producer_id] += len(values)
        now_ms = time.time_ns() // 1_000_000
        batch = record_batch.build(0, -1, [Record(None, value) for value in values], timestamp_ms=now_ms, **fields)
        partition = m.ProduceRequest.PartitionProduceData(index=0, records=batch)
        data = m.ProduceRequest.TopicProduceData(name=_TOPIC, partition_data=[partition])
        transactional_id = None if producer_id is None else f"tx-{producer_id}"
        request = m.ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=5000, topic_data=[data])
        row = self._side.client.call(request, 9).responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (ErrorCode.NONE, len(model.entries))
        model.entries += [_Entry(value, transaction) for value in values]

    def _finish(self, producer_id: int, *, commit: bool) -> None:
        end = EndTransaction(producer_id, producer_epoch=0, commit=commit)
        assert self._side.end_transactions({_TOPIC: end}) == {_TOPIC: ErrorCode.NONE}
        transaction = self._model.open.pop(producer_id)
        if commit:
            self._model.committed.add(transaction.number)
        self._model.entries.append(_Entry(None))

    def _delete_records(self) -> None:
        """Up to some offset near the end, which no flush may have reached. Not into an open transaction: a restart,
        here as in Apache Kafka, then forgets where that began."""
        for producer_id in list(self._model.open):
            self._finish(producer_id, commit=self._random.random() < 0.5)
        offset = max(self._model.start_offset, len(self._model.entries) - self._random.randint(0, 200))
        assert self._side.delete_records({_TOPIC: offset}) == {_TOPIC: (ErrorCode.NONE, offset)}
        self._model.start_offset = offset

    def _read_near_the_end(self) -> None:
        end = len(self._model.entries)
        offset = self._random.randint(max(self._model.start_offset, end - 100), end)
        row = self._side.fetch(_TOPIC, offset)
        assert row.error_code == ErrorCode.NONE and row.high_watermark == end
        self._compare_values(record_batch.parse(row.records or b""), offset)

    # ---- comparing -------------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """The whole partition with the model."""
        model = self._model
        assert self._end(LATEST) == len(model.entries)
        assert self._end(LATEST, _READ_COMMITTED) == model.stable_offset
        offset = model.start_offset
        while offset < len(model.entries):
            row = self._side.fetch(_TOPIC, offset)
            assert row.error_code == ErrorCode.NONE
            after = self._compare_values(record_batch.parse(row.records or b""), offset)
            assert after > offset
            offset = after
        assert self._read_committed() == model.committed_values()

    def _compare_values(self, batches: Iterable[RecordBatch], offset: int) -> int:
        for batch in batches:
            for delta, record in enumerate(batch.records):
                entry = self._model.entries[batch.base_offset + delta]
                assert batch.is_control == (entry.value is None), batch.base_offset
                assert batch.is_control or record.value == entry.value, batch.base_offset + delta
            offset = batch.last_offset + 1
        return offset

    def _read_committed(self) -> dict[int, bytes]:
        """As a consumer does: aborted producers are left out until their marker."""
        values: dict[int, bytes] = {}
        offset = self._model.start_offset
        aborting: set[int] = set()
        while offset < self._model.stable_offset:
            row = self._side.fetch(_TOPIC, offset, isolation_level=_READ_COMMITTED)
            assert row.error_code == ErrorCode.NONE and row.last_stable_offset == self._model.stable_offset
            aborted = sorted(row.aborted_transactions or [], key=lambda each: each.first_offset)
            for batch in record_batch.parse(row.records or b""):
                while aborted and aborted[0].first_offset <= batch.last_offset:
                    aborting.add(aborted.pop(0).producer_id)
                if batch.is_control:
                    aborting.discard(batch.producer_id)
                elif not (batch.is_transactional and batch.producer_id in aborting):
                    for delta, record in enumerate(batch.records):
                        if batch.base_offset + delta >= offset:
                            assert record.value is not None
                            values[batch.base_offset + delta] = record.value
                offset = max(offset, batch.last_offset + 1)
            aborting.clear()  # the next answer names those again that go on
        return {key: value for key, value in values.items() if key >= self._model.start_offset}

    def _end(self, timestamp_ms: int, isolation_level: int = 0) -> int:
        place = self._side.list_offsets({_TOPIC: timestamp_ms}, isolation_level)[_TOPIC]
        assert place.error_code == ErrorCode.NONE
        return place.offset
