"""`TransactionLoad`: transactional producers that write to several partitions at once, and commit or abort, into a
`History`.

A thread for each producer, which keeps its transactional id when it has to begin anew. Whoever reads beside it has to
read only what is committed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaException, Message, Producer

from tests.harness.cluster.history import History, Place, Sender, Transaction, encode_value
from tests.harness.cluster.load import CLIENT

_RECORDS = 8
_ABORT_EVERY = 3
_CALL_SECONDS = 60.0
_PAUSE_SECONDS = 0.05
_PRODUCER = {"transaction.timeout.ms": 60_000, "linger.ms": 0}


class TransactionLoad:
    """Start once the partitions exist; stop to have the last transactions ended."""

    def __init__(
        self,
        bootstrap: str,
        places: Sequence[Place],
        history: History,
        *,
        producers: int = 2,
        first_producer: int = 100,
    ) -> None:
        self.history = history
        self._bootstrap = bootstrap
        self._places = list(places)
        self._working = threading.Event()
        self._last_error = "none"
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"transactions {number}")
            for number in range(first_producer, first_producer + producers)
        ]

    def start(self) -> None:
        """Begin."""
        self._working.set()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the transactions that are open, and begin no more."""
        self._working.clear()
        for thread in self._threads:
            thread.join()

    def wait_for_progress(self, timeout_seconds: float = 120.0, count: int = 2 * _ABORT_EVERY) -> None:
        """Return when so many more transactions have been committed. AssertionError when it takes longer."""
        wanted = self._committed_count() + count
        deadline = time.monotonic() + timeout_seconds
        while self._committed_count() < wanted:
            assert not self.history.client_errors, self.history.client_errors[:5]
            assert time.monotonic() < deadline, (
                f"no {count} transactions were committed in {timeout_seconds:g} s; last error: {self._last_error}"
            )
            time.sleep(0.02)

    def _committed_count(self) -> int:
        with self.history.lock:
            return sum(transaction.is_committed is True for transaction in self.history.transactions)

    def _run(self, number: int) -> None:
        try:
            count = 0
            while self._working.is_set():
                # After an error that leaves nothing else, a new producer with the same id fences the old one.
                count = self._work(number, count)
        except Exception as error:  # noqa: BLE001 (whatever ends a client is told by the checker)
            self.history.add_client_error(f"transactions {number}: {error!r}")

    def _work(self, number: int, count: int) -> int:
        """Transactions until the load stops or one ends in doubt; how many there were so far. An abort soon after the
        first record ends librdkafka's producer now and then, with INVALID_TXN_STATE, in clusters of Apache Kafka alone
        too: it ends a transaction that the coordinator has not answered for yet."""
        settings: dict[str, Any] = {**_PRODUCER, **CLIENT, "transactional.id": f"transactions-{number}"}
        producer = Producer({"bootstrap.servers": self._bootstrap, **settings})
        _call(producer.init_transactions)
        while self._working.is_set():
            count += 1
            transaction = self._transact(producer, number, count)
            self.history.add_transaction(transaction)
            if transaction.is_committed is None:
                return count
            time.sleep(_PAUSE_SECONDS)
        return count

    def _transact(self, producer: Producer, number: int, count: int) -> Transaction:
        offsets: dict[tuple[Sender, int], int | None] = {}
        records: list[tuple[Sender, int]] = []
        name = f"transaction {count} of producer {number}"

        def on_delivery(record: tuple[Sender, int]) -> Any:
            def delivered(error: Any, message: Message) -> None:
                if error is None:
                    offsets[record] = message.offset()

            return delivered

        outcome: bool | None = None
        try:
            producer.begin_transaction()
            for index in range(_RECORDS):
                place = self._places[(count + index) % len(self._places)]
                sender = (number, place)
                record = (sender, self.history.add_sent(sender))
                records.append(record)
                value = encode_value(number, record[1])
                producer.produce(place[0], value, partition=place[1], on_delivery=on_delivery(record))
            if count % _ABORT_EVERY:
                outcome = self._commit(producer)
            else:
                _call(producer.abort_transaction)
                outcome = False
        except KafkaException as error:
            self._last_error = str(error)
            for sender, record_number in records:
                self.history.add_unknown(sender, record_number, str(error))
        if outcome:
            for record in records:
                self.history.add_acknowledged(*record, offsets.get(record))
        return Transaction(name, tuple(records), outcome)

    def _commit(self, producer: Producer) -> bool:
        """Whether it was committed; else it was aborted. KafkaException when nobody knows."""
        try:
            _call(producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._last_error = str(error)
            _call(producer.abort_transaction)
            return False
        return True


def _call(operation: Any) -> None:
    """Call it until it is done, as librdkafka asks for where it says that an error is retriable."""
    deadline = time.monotonic() + 2 * _CALL_SECONDS
    while True:
        try:
            operation(_CALL_SECONDS)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
