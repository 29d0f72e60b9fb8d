"""The contract between the request dispatcher and the handlers in `pybroker/server/apis/`.

Every module there exposes one `API = Api(...)`. Handlers run on the asyncio loop thread. The dispatcher decodes the
request, calls `API.handle(broker, context, request)` and encodes the result. A handler that already holds the encoded
body returns `bytes`, or a list of its parts when it is large. A handler whose answer is ready at once never suspends,
so the dispatcher finishes it with one `send(None)` and needs no Task. One that has to wait awaits plain asyncio
futures. A handler goes through what may be many by `pybroker.turns.in_slices`.

A handler answers every failure that the protocol has an error code for by itself. An exception that leaves it is a
defect: the dispatcher logs it and closes the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from pybroker.values import Value

if TYPE_CHECKING:
    from pybroker.config.broker import BrokerConfig
    from pybroker.controller.producer_ids import ProducerIdManager
    from pybroker.coordinator.group.coordinator import GroupCoordinator
    from pybroker.metadata.cache import MetadataCache
    from pybroker.metadata.image import MetadataImage
    from pybroker.replication.replica_manager import ReplicaManager
    from pybroker.server.add_partitions_to_txn_manager import AddPartitionsToTxnManager
    from pybroker.server.auto_topic_creation import AutoTopicCreation
    from pybroker.server.served_controller import ServedController
    from pybroker.storage.logs.log_mover import LogMover

Req = TypeVar("Req")
Resp = TypeVar("Resp")

Encoded = bytes | list[bytes]
"""The body of a response, or of a large one its parts."""


class RequestContext(NamedTuple):
    """A handler's knowledge of the request besides its body.

    `client_id` is None when the client sent none. `client_host` is the peer's address without a port, such as
    `127.0.0.1`. `listener` is the listener's name, for choosing which advertised endpoint to answer with.
    `connection_id` is unique among the connections of this process's life.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    client_host: str
    listener: str
    principal: str
    connection_id: int


class Clock(Protocol):
    """Where time comes from: the monotonic one for deadlines, the wall clock for what is written or shown."""

    def monotonic_ms(self) -> int: ...

    def wall_ms(self) -> int: ...


class MetadataHolder(Protocol):
    """Holds the newest metadata image."""

    @property
    def image(self) -> MetadataImage: ...


@dataclass(slots=True)
class BrokerServices:
    """The services that handlers work with; one per broker, built at start, never replaced.

    `config` is the configuration with the dynamic values of the newest image. `served` has (api key, lowest, highest
    version) of every API, Produce and Fetch included, as ApiVersions tells them; `forwarded` has the keys of those that
    the controller answers. `topic_creation` makes topics that clients use. `transactions` verifies transactions with
    their coordinators, where there may be any.
    """

    config: BrokerConfig
    metadata: MetadataHolder
    metadata_cache: MetadataCache
    controller: ServedController
    topic_creation: AutoTopicCreation
    producer_ids: ProducerIdManager
    groups: GroupCoordinator
    replicas: ReplicaManager
    mover: LogMover
    clock: Clock
    served: tuple[tuple[int, int, int], ...]
    transactions: AddPartitionsToTxnManager | None = None
    forwarded: frozenset[int] = frozenset()


class Api(Value, Generic[Req, Resp]):
    """One served API: the request class, the served versions (both inclusive) and the handler."""

    request: type[Req]
    min_version: int
    max_version: int
    handle: Callable[[BrokerServices, RequestContext, Req], Coroutine[Any, Any, Resp | Encoded]]
