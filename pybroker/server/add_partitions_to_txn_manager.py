"""`AddPartitionsToTxnManager`: asks transaction coordinators whether a partition is part of a transaction (KIP-890).

A partition has to be verified when a transaction first writes to it. The data plane holds the Produce meanwhile.
`verify` makes the Produce go on, whatever happens: with no error, with the coordinator's error, or with an error that
makes the producer try again. Each coordinator has one connection and one request under way; the next request asks for
everything that has gathered meanwhile. The rules and the errors are those of Apache Kafka's class of this name. On the
asyncio loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pybroker.coordinator.group.partition import group_partition
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.image import MetadataImage
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, ProtocolError
from pybroker.server.verification_statistics import VerificationStatistics
from pybroker.values import Value

logger = logging.getLogger(__name__)

TRANSACTION_STATE_TOPIC = "__transaction_state"

Address = tuple[str, int]
TopicPartition = tuple[str, int]

#: From this version on, AddPartitionsToTxn has a form for brokers, which asks about several transactions at once.
_VERIFYING_VERSION = 4
#: From this version of Produce on, a producer understands TRANSACTION_ABORTABLE.
_ABORTABLE_PRODUCE_VERSION = 11
#: From this version of Produce on, a producer sends no AddPartitionsToTxn: the broker adds the partitions for it. It
#: also understands CONCURRENT_TRANSACTIONS.
_ADDING_PRODUCE_VERSION = 12
_TRIED_AGAIN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class CoordinatorConnection(Protocol):
    """A connection to a transaction coordinator's broker. Its calls raise OSError or ProtocolError."""

    @property
    def is_open(self) -> bool:
        """False when the connection is known to be closed."""
        ...

    def served(self, api_key: int) -> tuple[int, int] | None:
        """The lowest and the highest version of this API that the broker serves; None when it does not serve the
        API."""
        ...

    async def call(self, request: m.Message, timeout_s: float) -> Any: ...

    def close(self) -> None: ...


class Verification(Value):
    """A Produce that waits for a coordinator: its handle in the data plane, its producer, and the partitions to
    verify."""

    handle: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    produce_version: int


class Retries(Value):
    """How a coordinator is asked again while it still ends the previous transaction: with a pause of
    add.partitions.to.txn.retry.backoff.ms, for at most `limit_s`."""

    pause_s: float
    limit_s: float


class AddPartitionsToTxnManager:
    """A metadata publisher. `close` ends it; a later `verify` fails at once."""

    def __init__(
        self,
        listener: str,
        open_connection: Callable[[Address], Awaitable[CoordinatorConnection]],
        request_timeout_s: float,
        answer: Callable[[int, Sequence[int]], None],
        retries: Retries,
    ) -> None:
        """`listener` is the name of the inter-broker listener. `answer` is called with the handle of a verification
        and, for each of its partitions, 0 or the error code for the producer."""
        self._listener = listener
        self._open = open_connection
        self._timeout_s = request_timeout_s
        self._answer = answer
        self._retries = retries
        self._image: MetadataImage | None = None
        self._coordinators: dict[tuple[int, Address], _Coordinator] = {}
        #: Verifications that are asked about again after a pause.
        self._resting: dict[_Waiting, asyncio.TimerHandle] = {}
        self._closed = False
        self.statistics = VerificationStatistics()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See `MetadataPublisher`. Closes the connection to a coordinator that is fenced or has another address now."""
        del delta
        before, self._image = self._image, image
        if before is not None and before.cluster is image.cluster:
            return
        for node_id, address in list(self._coordinators):
            if image.endpoint(node_id, self._listener) != address:
                self._coordinators.pop((node_id, address)).close()

    def verify(self, verification: Verification) -> None:
        """Ask the coordinator of the transactional id, and give the answer to the Produce that waits."""
        now_s = asyncio.get_running_loop().time()
        self._ask(_Waiting(verification, now_s + self._retries.limit_s, now_s))

    def _ask(self, waiting: _Waiting) -> None:
        verification = waiting.verification
        node = None if self._closed else self._coordinator_of(verification.transactional_id)
        if node is None:
            self._settle(verification, _for_all(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        coordinator = self._coordinators.get(node)
        if coordinator is None:
            coordinator = self._coordinators[node] = _Coordinator(node[1], self._open, self._timeout_s, self._asked)
        coordinator.put(waiting)

    async def close(self) -> None:
        """Answer all verifications that wait with an error after which their producers try again."""
        self._closed = True
        for waiting in list(self._resting):
            self._ask_again(waiting)
        coordinators = list(self._coordinators.values())
        self._coordinators.clear()
        for coordinator in coordinators:
            coordinator.close()
        await asyncio.gather(*(coordinator.ended() for coordinator in coordinators))

    def _coordinator_of(self, transactional_id: str) -> tuple[int, Address] | None:
        """The node id and address of the broker that leads the id's partition of `__transaction_state`."""
        topic = None if self._image is None else self._image.topics.by_name.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return None
        assert self._image is not None
        # Groups and transactional ids are hashed alike.
        partition = topic.partitions.get(group_partition(transactional_id, len(topic.partitions)))
        if partition is None:
            return None
        address = self._image.endpoint(partition.leader, self._listener)
        return None if address is None else (partition.leader, address)

    def _asked(self, waited: _Waiting, errors: Mapping[TopicPartition, int]) -> None:
        """Take the result of asking a coordinator."""
        verification = waited.verification
        codes = [errors[each] for each in dict.fromkeys(verification.partitions)]
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self.statistics.add(now_s - waited.since_s, sum(code != ErrorCode.NONE for code in codes))
        # CONCURRENT_TRANSACTIONS: the markers of the previous transaction are not in all of its partitions yet. Ask
        # again from here: a producer of such a version has not added the partitions itself, and would wait longer.
        is_early = verification.produce_version >= _ADDING_PRODUCE_VERSION and now_s < waited.until_s
        if is_early and ErrorCode.CONCURRENT_TRANSACTIONS in codes and not self._closed:
            self._resting[waited] = loop.call_later(self._retries.pause_s, self._ask_again, waited)
        else:
            self._settle(verification, errors)

    def _ask_again(self, waiting: _Waiting) -> None:
        self._resting.pop(waiting).cancel()
        self._ask(waiting._replace(since_s=asyncio.get_running_loop().time()))

    def _settle(self, verification: Verification, errors: Mapping[TopicPartition, int]) -> None:
        version = verification.produce_version
        self._answer(
            verification.handle, [error_for_producer(errors[each], version) for each in verification.partitions]
        )


class _Waiting(NamedTuple):
    """A verification, until when it is asked about again, and since when it has waited this time, by the loop's
    clock."""

    verification: Verification
    until_s: float
    since_s: float


class _Coordinator:
    """One broker: what is to be asked of it next, by transactional id, and the connection."""

    def __init__(
        self,
        address: Address,
        open_connection: Callable[[Address], Awaitable[CoordinatorConnection]],
        timeout_s: float,
        settle: Callable[[_Waiting, Mapping[TopicPartition, int]], None],
    ) -> None:
        self._address = address
        self._open = open_connection
        self._timeout_s = timeout_s
        self._settle = settle
        self._waiting: dict[str, _Waiting] = {}
        #: Complaints already logged since the coordinator was last asked with success: a Produce comes every few
        #: milliseconds.
        self._complaints: set[str] = set()
        self._connection: CoordinatorConnection | None = None
        self._asking: asyncio.Task[None] | None = None

    def put(self, waiting: _Waiting) -> None:
        """Ask with the next request. If a verification of the same transactional id waits already, one of the two is
        obsolete: its producer is a zombie, or has given up and tried again."""
        transactional_id, epoch = waiting.verification.transactional_id, waiting.verification.producer_epoch
        other = self._waiting.get(transactional_id)
        if other is not None and other.verification.producer_epoch > epoch:
            self._refuse([waiting], ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        self._waiting[transactional_id] = waiting
        if other is not None:
            is_zombie = other.verification.producer_epoch < epoch
            self._refuse([other], ErrorCode.INVALID_PRODUCER_EPOCH if is_zombie else ErrorCode.NETWORK_EXCEPTION)
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask_all(), name="transaction verification")

    def close(self) -> None:
        """Fail all verifications that wait, and close the connection."""
        # A task that has not begun yet is cancelled before it could refuse them.
        left, self._waiting = list(self._waiting.values()), {}
        self._refuse(left, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._asking is not None:
            self._asking.cancel()
        else:
            self._disconnect()

    async def ended(self) -> None:
        """Return when everybody has been answered, after `close`."""
        if self._asking is not None:
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask_all(self) -> None:
        batch: list[_Waiting] = []
        is_whole = False
        try:
            while self._waiting:
                batch, self._waiting = list(self._waiting.values()), {}
                self._tell(batch, await self._ask(batch))
                batch = []
            is_whole = True
        except Exception:  # a defect; the next verification starts a new task
            logger.exception("transactions could not be verified")
        finally:
            # Also when the task is cancelled or has a defect: no Produce may wait for ever.
            self._asking = None
            if not is_whole:
                left, self._waiting = [*batch, *self._waiting.values()], {}
                self._refuse(left, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                self._disconnect()

    async def _ask(self, batch: Sequence[_Waiting]) -> m.AddPartitionsToTxnResponse | int:
        """The response, or one error code for the whole batch. The code is NONE when the broker is too old to be
        asked."""
        try:
            return await self._call(batch)
        except (OSError, ProtocolError) as error:
            self._disconnect()
            self._complain(logging.WARNING, f"cannot be asked: {error!r}")
            return ErrorCode.NETWORK_EXCEPTION

    def _complain(self, level: int, why: str) -> None:
        """Log the complaint, once for each reason until the coordinator has been asked with success again."""
        if why not in self._complaints:
            self._complaints.add(why)
            logger.log(level, "transaction coordinator %s:%d %s", *self._address, why)

    def _commend(self) -> None:
        """Note that the coordinator has been asked with success."""
        if self._complaints:
            self._complaints.clear()
            logger.info("transaction coordinator %s:%d can be asked again", *self._address)

    async def _call(self, batch: Sequence[_Waiting]) -> m.AddPartitionsToTxnResponse | int:
        request = _request_of([each.verification for each in batch])
        was_used = self._connection is not None and self._connection.is_open
        while True:
            if self._connection is None or not self._connection.is_open:
                self._disconnect()
                self._connection = await self._open(self._address)
            versions = self._connection.served(m.AddPartitionsToTxnRequest.API_KEY)
            if versions is None:
                self._complain(logging.WARNING, f"leads {TRANSACTION_STATE_TOPIC} and coordinates no transactions")
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            if versions[1] < _VERIFYING_VERSION:
                self._complain(logging.WARNING, "is too old to verify transactions, which are not verified")
                return ErrorCode.NONE
            try:
                response: m.AddPartitionsToTxnResponse = await self._connection.call(request, self._timeout_s)
            except TimeoutError:
                raise
            except OSError:
                # The broker may have closed an idle connection. Asking twice has no effect, so try a new connection.
                if not was_used:
                    raise
                was_used = False
                self._disconnect()
            else:
                return response

    def _tell(self, batch: Sequence[_Waiting], answer: m.AddPartitionsToTxnResponse | int) -> None:
        code = answer if isinstance(answer, int) else answer.error_code
        if isinstance(answer, int) or code != ErrorCode.NONE:
            # CLUSTER_AUTHORIZATION_FAILED is about this broker, so the producer gets INVALID_TXN_STATE instead.
            is_hidden = code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            if not isinstance(answer, int):
                self._complain(logging.ERROR, f"refuses to be asked: error {code}")
            self._refuse(batch, ErrorCode.INVALID_TXN_STATE if is_hidden else code)
            return
        self._commend()
        results = {each.transactional_id: _errors_of(each) for each in answer.results_by_transaction}
        not_answered = _for_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for each in batch:
            self._settle(each, results.get(each.verification.transactional_id, not_answered))

    def _refuse(self, batch: Sequence[_Waiting], code: int) -> None:
        for each in batch:
            self._settle(each, _for_all(code))

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _for_all(code: int) -> Mapping[TopicPartition, int]:
    """That error, whichever partition is asked for."""
    return defaultdict(lambda: code)


def error_for_producer(code: int, produce_version: int) -> int:
    """The error code that a producer gets for a partition. `code` is the coordinator's; the producer may not know it in
    its version of Produce."""
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and produce_version < _ABORTABLE_PRODUCE_VERSION:
        return ErrorCode.INVALID_TXN_STATE
    if code == ErrorCode.CONCURRENT_TRANSACTIONS and produce_version < _ADDING_PRODUCE_VERSION:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    # After NOT_ENOUGH_REPLICAS every producer tries again, without asking for metadata first.
    return ErrorCode.NOT_ENOUGH_REPLICAS if code in _TRIED_AGAIN else code


def _request_of(batch: Sequence[Verification]) -> m.AddPartitionsToTxnRequest:
    request = m.AddPartitionsToTxnRequest
    transactions = []
    for each in batch:
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, partition in dict.fromkeys(each.partitions):
            topics[topic].append(partition)
        transactions.append(
            request.AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                verify_only=each.produce_version < _ADDING_PRODUCE_VERSION,
                topics=[request.AddPartitionsToTxnTopic(name=name, partitions=rows) for name, rows in topics.items()],
            )
        )
    return request(transactions=transactions)


def _errors_of(result: m.AddPartitionsToTxnResponse.AddPartitionsToTxnResult) -> Mapping[TopicPartition, int]:
    errors: dict[TopicPartition, int] = defaultdict(lambda: ErrorCode.COORDINATOR_NOT_AVAILABLE)
    for topic in result.topic_results:
        for row in topic.results_by_partition:
            errors[topic.name, row.partition_index] = row.partition_error_code
    return errors
