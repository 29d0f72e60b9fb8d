"""`Cluster`: the brokers behind a bootstrap address, and requests to the right one of them. Blocks; for one thread.

Owns a connection per broker, made when first needed. Versions are agreed on with each broker: the highest that both
sides have, within what the caller can deal with. Fails with `ClientError` and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Self, TypeVar

from pybroker.client.connection import Connection
from pybroker.client.errors import ClientError, NotServed, RequestError, Unreachable, check
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, ProtocolError

Address = tuple[str, int]
Versions = tuple[int, int]

ANY_NODE = -1
_GROUP = 0
_RETRY_SECONDS = 0.1
# The first version of ApiVersions that every broker answers in a way all can read.
_API_VERSIONS = 0
_METADATA_VERSIONS = (9, 13)
_FIND_COORDINATOR_VERSIONS = (4, 6)

T = TypeVar("T")


class _Broker:
    """A connection and what its broker serves: api key → (lowest, highest) version."""

    def __init__(self, address: Address, timeout_seconds: float) -> None:
        self.name = f"{address[0]}:{address[1]}"
        self._connection: Connection | None = None
        self.versions: dict[int, Versions] = {}
        try:
            self._connection = Connection(*address, timeout_seconds=timeout_seconds)
            answer = self._connection.call(m.ApiVersionsRequest(), _API_VERSIONS)
        except (OSError, UnicodeError, ProtocolError) as error:  # UnicodeError: no name of a host
            self.close()
            raise Unreachable(f"{self.name} cannot be reached: {_reason(error)}") from None
        check(self.name, answer.error_code)
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def call(self, request: m.Message, versions: Versions | None) -> Any:
        api = m.apis()[request.API_KEY or 0]
        lowest, highest = versions or (api.min_version, api.max_version)
        served = self.versions.get(api.api_key)
        if served is None:
            raise NotServed(f"{self.name} does not serve {api.name}")
        version = min(highest, served[1])
        if version < max(lowest, served[0]):
            raise NotServed(f"{self.name} serves {api.name} at versions {served[0]} to {served[1]}, not at {lowest}")
        assert self._connection is not None
        try:
            return self._connection.call(request, version)
        except (OSError, ProtocolError) as error:
            raise Unreachable(f"{self.name} did not answer {api.name}: {_reason(error)}") from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


class Cluster:
    """A context manager. Connects with the first request."""

    def __init__(self, bootstrap: Collection[Address], *, timeout_seconds: float = 30.0) -> None:
        """`bootstrap` are addresses to try in turn; `timeout_seconds` bounds each wait, and all tries of an operation
        that a broker puts off."""
        self._bootstrap = list(bootstrap)
        self._timeout_seconds = timeout_seconds
        self._brokers: dict[int, _Broker] = {}
        self._addresses: dict[int, Address] = {}

    @property
    def timeout_ms(self) -> int:
        """For requests that say how long the broker may take."""
        return int(self._timeout_seconds * 1000)

    def call(self, request: m.Message, *, node: int = ANY_NODE, versions: Versions | None = None) -> Any:
        """The response of that broker. `versions` are those that the caller can deal with, all without."""
        return self._broker(node).call(request, versions)

    def versions(self) -> dict[int, Versions]:
        """The versions of the broker that was reached first: api key → (lowest, highest) version."""
        return self._broker(ANY_NODE).versions

    def retry(self, operation: Callable[[], T]) -> T:
        """Its result; while it fails with what passes by itself (a coordinator that loads, a leader that is elected),
        again until the time is over."""
        deadline = time.monotonic() + self._timeout_seconds
        while True:
            try:
                return operation()
            except RequestError as error:
                if not error.is_retriable or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)

    def metadata(self, topics: Collection[str] | None = ()) -> m.MetadataResponse:
        """The metadata of these topics, each with an error code of its own; None: of all."""
        wanted = None if topics is None else [m.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer: m.MetadataResponse = self.call(request, versions=_METADATA_VERSIONS)
        check("Metadata", answer.error_code)
        self._addresses = {each.node_id: (each.host, each.port) for each in answer.brokers}
        return answer

    def nodes(self) -> list[int]:
        """The ids of all brokers that are there."""
        return sorted(each.node_id for each in self.metadata().brokers)

    def coordinator(self, group: str) -> int:
        """The id of the broker that keeps the group; waits for one."""
        request = m.FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=[group])

        def find() -> int:
            answer = self.call(request, versions=_FIND_COORDINATOR_VERSIONS)
            (found,) = answer.coordinators
            check(f"group {group}", found.error_code, found.error_message)
            self._addresses[found.node_id] = (found.host, found.port)
            node_id: int = found.node_id
            return node_id

        return self.retry(find)

    def _broker(self, node: int) -> _Broker:
        broker = self._brokers.get(node)
        if broker is None:
            broker = self._connect_to_any() if node == ANY_NODE else self._connect_to(node)
            self._brokers[node] = broker
        return broker

    def _connect_to_any(self) -> _Broker:
        failure: ClientError = Unreachable("no address of a broker was given")
        for address in self._bootstrap:
            try:
                return _Broker(address, self._timeout_seconds)
            except Unreachable as error:
                failure = error
        raise failure

    def _connect_to(self, node: int) -> _Broker:
        if node not in self._addresses:
            self.metadata()
        if node not in self._addresses:
            raise RequestError(f"broker {node}", ErrorCode.BROKER_NOT_AVAILABLE, "it is not there")
        return _Broker(self._addresses[node], self._timeout_seconds)

    def close(self) -> None:
        """Close all connections."""
        for broker in self._brokers.values():
            broker.close()
        self._brokers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
