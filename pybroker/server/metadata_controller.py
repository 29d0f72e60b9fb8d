"""`MetadataController`: what the daemon and the handlers need of whoever decides about the cluster's metadata.

There are two: the embedded `Controller`, and `QuorumController` for a broker whose controllers are Apache Kafka's.
Everything is called on the asyncio loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.loader import MetadataApplier
from pybroker.metadata.registration import Placements, Registration
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin


class MetadataController(Protocol):
    """See the implementations for what each of these promises."""

    @property
    def image(self) -> MetadataImage:
        """The published image."""
        ...

    @property
    def config(self) -> BrokerConfig:
        """The configuration with dynamic values."""
        ...

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 before it."""
        ...

    @property
    def forwarding_ranges(self) -> tuple[tuple[int, int, int], ...] | None:
        """(api key, lowest, highest version) of what a controller elsewhere takes; None while nothing is known of it,
        and where the controller is this broker's own."""
        ...

    def subscribe(self, publisher: MetadataApplier) -> None:
        """Give `publisher` all there is now, and from now on every change; the controllers hear how far it is in
        effect."""
        ...

    def endpoint(self, node_id: int, listener: str) -> tuple[str, int] | None:
        """Advertised (host, port) of a live broker on that listener."""
        ...

    async def perform(self, request: m.Message, version: int, origin: Origin) -> Any:
        """The response to a request that changes the metadata, or asks for what only controllers know."""
        ...

    async def allocate_producer_ids(self, known_id: int = -1) -> m.AllocateProducerIdsResponse:
        """A block of producer ids for this broker, above `known_id`, which a log has, where the controller is ours."""
        ...

    async def register_broker(
        self, registration: Registration, placements: Placements, before_leading: Callable[[], None]
    ) -> int:
        """Make this broker part of the cluster; its broker epoch."""
        ...

    async def assign_directories(self, directories: Placements) -> None:
        """Which log dirs replicas of this broker lie in."""
        ...

    async def change_directories(self, directories: Sequence[bytes], cordoned: Sequence[bytes]) -> None:
        """Which log dirs are in service, and which of them get no new partitions."""
        ...

    async def begin_shutdown(self) -> None:
        """Hand over what this broker leads, before it serves no more."""
        ...

    async def fence_broker(self) -> None:
        """End the registration, when nothing is served any more."""
        ...

    async def close(self) -> None:
        """End everything."""
        ...
