"""`QuorumController`: this broker's client of the KRaft controllers of Apache Kafka. On the asyncio loop.

It has the interface of the embedded `Controller`: an image and its publishers, the configuration with dynamic values,
and operations. Here an operation is a request to the active controller, and its effect comes back through the metadata
log. Heartbeats, replication and all other requests have a channel each, so that a long operation cannot hold up a
heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.dynamic_config import DynamicConfig
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.loader import MetadataApplier, full_delta
from pybroker.metadata.registration import Placements, Registration
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin, unwrap, wrap
from pybroker.protocol.errors import ErrorCode, KafkaError, ProtocolError, VersionNotTaken, code_name
from pybroker.quorum import broker_configs
from pybroker.quorum.assignments import assign_requests, misplaced
from pybroker.quorum.channel import QuorumChannel
from pybroker.quorum.connection import VersionRanges
from pybroker.quorum.errors import QuorumError, QuorumUnavailable
from pybroker.quorum.fetcher import FetcherSettings, MetadataFetcher
from pybroker.quorum.leader import LeaderFinder
from pybroker.quorum.lifecycle import BrokerLifecycle, LifecycleSettings
from pybroker.quorum.refusal import refused
from pybroker.quorum.served_features import check_served
from pybroker.quorum.stand_in import OpenHeartbeat, StandIn

logger = logging.getLogger(__name__)

#: The timeout of requests that have no timeout_ms.
_FORWARD_TIMEOUT_S = 60.0
_REPLICATION_TIMEOUT_S = 30.0
#: While the control loop is stuck, the data plane sends heartbeats for this part of broker.session.timeout.ms.
_STAND_IN_FRACTION = 2 / 3
#: The pause between looks whether this broker is registered again.
_REGISTRATION_INTERVAL_S = 0.2
#: An answer is held back for at most this long, until its effect has arrived in this broker's metadata.
_EFFECT_TIMEOUT_S = 1.0


class QuorumController:
    """Made by `pybroker.quorum.start.join_quorum`. `image` is the published image."""

    def __init__(
        self,
        config: BrokerConfig,
        finder: LeaderFinder,
        fetching: FetcherSettings,
        living: LifecycleSettings,
        on_failure: Callable[[str], None],
        open_heartbeat: OpenHeartbeat,
    ) -> None:
        """`on_failure` is called with the reason when this broker can no longer be part of the cluster.
        `open_heartbeat` makes the data plane send heartbeats while the control loop cannot."""
        self.node_id = config.node_id
        self._config = DynamicConfig(config)
        self._on_failure = on_failure
        self._publishers: list[MetadataApplier] = []
        self._end_offset_in_effect = 0
        self._fetcher = MetadataFetcher(fetching, finder, self._publish)
        self._fetching: asyncio.Task[None] | None = None
        timeout_s = config.get_int("controller.socket.timeout.ms") / 1000
        name = f"broker-{config.node_id}"
        self._heartbeats = QuorumChannel(finder, f"{name}-heartbeats", timeout_s)
        self._replication = QuorumChannel(finder, f"{name}-replication", timeout_s)
        self._requests = QuorumChannel(finder, f"{name}-forwarding", timeout_s)
        limit_s = living.session_timeout_s * _STAND_IN_FRACTION
        stand_in = StandIn(self._heartbeats, open_heartbeat, living.heartbeat_interval_s, limit_s)
        self._lifecycle = BrokerLifecycle(
            living, self._heartbeats, self._fetcher, self._in_effect, on_failure, stand_in
        )

    # ---- metadata --------------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The committed metadata, as far as it has arrived here."""
        return self._fetcher.image

    @property
    def config(self) -> BrokerConfig:
        """The configuration with the dynamic values of the image."""
        return self._config.of(self.image)

    @property
    def broker_epoch(self) -> int:
        """The epoch of the newest registration; -1 before the first."""
        return self._lifecycle.broker_epoch

    @property
    def forwarding_ranges(self) -> VersionRanges | None:
        """The APIs and versions that the active controller serves, as the heartbeat channel has learnt them: this
        channel is always connected."""
        return self._heartbeats.ranges

    async def start(self) -> None:
        """Fetch the metadata from now on; return when all committed metadata is here. MetadataError when that is not
        possible."""
        self._fetching = asyncio.get_running_loop().create_task(self._fetch(), name="metadata fetcher")
        caught_up = asyncio.ensure_future(self._fetcher.caught_up())
        try:
            await asyncio.wait([caught_up, self._fetching], return_when=asyncio.FIRST_COMPLETED)
        finally:
            caught_up.cancel()
        if self._fetching.done():
            self._fetching.result()
        check_served(self.image)

    async def _fetch(self) -> None:
        try:
            await self._fetcher.run()
        except MetadataError as error:
            self._on_failure(str(error))
            raise
        except Exception:
            logger.exception("the metadata fetcher has a defect")
            self._on_failure("the metadata of the cluster cannot be followed")
            raise

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.feature_levels_changed and self._publishers:
            try:
                check_served(image)
            except QuorumError as error:
                self._on_failure(str(error))
        if delta.is_empty:
            return  # an idle quorum writes a NoOpRecord twice a second
        self._lifecycle.on_image(image)
        for publisher in self._publishers:
            publisher.publish(delta, image)

    def subscribe(self, publisher: MetadataApplier) -> None:
        """Give `publisher` all metadata now and every change from now on. Heartbeats tell the controllers how far the
        publisher has put it into effect."""
        publisher.publish(full_delta(self.image), self.image)
        self._publishers.append(publisher)

    def _in_effect(self) -> int:
        """The end offset of the metadata that is in effect on this broker."""
        end_offset = self.image.provenance.end_offset
        applied = min((each.in_effect(end_offset) for each in self._publishers), default=end_offset)
        # A publisher may return less than before: it knows only the image that it works on, and not the changes that
        # needed no work.
        self._end_offset_in_effect = max(self._end_offset_in_effect, applied)
        return self._end_offset_in_effect

    def endpoint(self, node_id: int, listener: str) -> tuple[str, int] | None:
        """The advertised (host, port) of a live broker on this listener, from the published image."""
        return self.image.endpoint(node_id, listener)

    # ---- this broker's life ----------------------------------------------------------------------------------------

    async def register_broker(
        self, registration: Registration, placements: Placements, before_leading: Callable[[], None]
    ) -> int:
        """Register this broker, tell the controllers where its replicas lie, and return when it is unfenced. Returns
        its broker epoch. Raises QuorumError.

        Until the registration, the metadata says what this broker's previous incarnation led. After the registration
        `before_leading` is called, and all metadata is published once more.
        """
        await self._lifecycle.register(registration)
        before_leading()
        delta = full_delta(self.image)
        for publisher in self._publishers:
            publisher.publish(delta, self.image)
        self._lifecycle.start()
        await self.assign_directories(placements)
        await self._lifecycle.unfence()
        return self.broker_epoch

    async def change_directories(self, directories: Sequence[bytes], cordoned: Sequence[bytes]) -> None:
        """Tell the controllers which log dirs of this broker are in service, and which of them get no new
        partitions."""
        await self._lifecycle.change_directories(directories, cordoned)

    async def assign_directories(self, directories: Placements) -> None:
        """Tell the controllers in which log dirs the replicas of this broker lie, by topic id and partition. Returns
        when the controllers have taken it, however long that takes."""
        wrong = misplaced(self.image, self.node_id, directories)
        for request in assign_requests(wrong, self.node_id, self.broker_epoch):
            answer = await self._until_available(self._replication, request)
            while answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
                # This broker is being registered again: repeat the request under its new epoch.
                await asyncio.sleep(_REGISTRATION_INTERVAL_S)
                request.broker_epoch = self.broker_epoch
                answer = await self._until_available(self._replication, request)
            if answer.error_code != ErrorCode.NONE:
                name = code_name(answer.error_code)
                logger.error("the controllers did not note in which log dirs replicas lie: %s", name)

    async def begin_shutdown(self) -> None:
        """Hand over the partitions that this broker leads to other brokers, while it still serves."""
        if self.config.get_bool("controlled.shutdown.enable") and not await self._lifecycle.shut_down():
            logger.warning("the controllers did not let this broker go; it stops all the same")

    async def fence_broker(self) -> None:
        """Send no more heartbeats. The controllers have fenced this broker already in a controlled shutdown; otherwise
        they fence it when the heartbeats stop."""
        await self._lifecycle.close()

    async def close(self) -> None:
        """End everything."""
        await self._lifecycle.close()
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)
        for channel in (self._heartbeats, self._replication, self._requests):
            channel.close()

    # ---- requests of this broker -----------------------------------------------------------------------------------

    async def alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        """Send an AlterPartition request and return the active controller's answer, also when it is an error.
        QuorumUnavailable when no controller has answered for half a minute. Call it in a task."""
        answer: m.AlterPartitionResponse = await self._replication.call(request, _REPLICATION_TIMEOUT_S)
        return answer

    async def allocate_producer_ids(self, known_id: int = -1) -> m.AllocateProducerIdsResponse:
        """A block of producer ids for this broker. `known_id` is ignored: the request has no field for it, and it is
        not needed, because the controllers' metadata is never older than this broker's logs."""
        del known_id
        request = m.AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=self.broker_epoch)
        answer: m.AllocateProducerIdsResponse = await _in_task(self._allocate(request))
        return answer

    async def _allocate(self, request: m.AllocateProducerIdsRequest) -> m.AllocateProducerIdsResponse:
        try:
            answer: m.AllocateProducerIdsResponse = await self._requests.call(request, _FORWARD_TIMEOUT_S)
        except QuorumUnavailable as error:
            logger.warning("no producer ids: %s", error)
            return m.AllocateProducerIdsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
        return answer

    async def _until_available(self, channel: QuorumChannel, request: m.Message) -> Any:
        while True:
            try:
                return await channel.call(request, _REPLICATION_TIMEOUT_S)
            except QuorumUnavailable as error:
                logger.warning("%s; it is tried again", error)

    # ---- requests of clients ---------------------------------------------------------------------------------------

    async def perform(self, request: m.Message, version: int, origin: Origin) -> Any:
        """Forward `request` of `origin` to the active controller and return the response.

        Before it returns, it waits up to a second until the change has arrived in this broker's metadata. When no
        controller answers within the request's timeout, the response has REQUEST_TIMED_OUT. Raises VersionNotTaken when
        the active controller runs a version of Apache Kafka that does not serve `version` of the request.
        """
        refusals = broker_configs.refusals(request, self.image, self.config)
        if not refusals:
            return await _in_task(self._forward(request, version, origin))
        accepted = broker_configs.without(request, refusals)
        response: Any = m.response_class(request.API_KEY or 0)()
        if accepted.resources:
            response = await _in_task(self._forward(accepted, version, origin))
        return broker_configs.merged(request, refusals, response)

    async def _forward(self, request: m.Message, version: int, origin: Origin) -> Any:
        timeout_ms = getattr(request, "timeout_ms", 0)
        timeout_s = min(max(timeout_ms / 1000, 1.0), _FORWARD_TIMEOUT_S) if timeout_ms else _FORWARD_TIMEOUT_S
        try:
            answer = await self._requests.call(wrap(request, version, origin), timeout_s)
            response = unwrap(request, version, answer)
        except QuorumUnavailable as error:
            return refused(request, KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error)))
        except ProtocolError as error:
            return refused(request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                name = m.apis()[request.API_KEY or 0].name
                raise VersionNotTaken(f"the active controller does not take {name} version {version}") from error
            return refused(request, error)
        taking_effect = asyncio.ensure_future(self._reach_high_watermark())
        await asyncio.wait([taking_effect], timeout=_EFFECT_TIMEOUT_S)
        taking_effect.cancel()
        return response

    async def _reach_high_watermark(self) -> None:
        """Return when this broker has all metadata that the active controller has committed by now."""
        answer = await self._requests.call(self._fetcher.request(max_wait_ms=0), _EFFECT_TIMEOUT_S)
        offsets = [each.high_watermark for topic in answer.responses for each in topic.partitions]
        await self._fetcher.until(lambda image: image.provenance.end_offset >= max(offsets, default=0))


async def _in_task(work: Coroutine[Any, Any, Any]) -> Any:
    """Run `work` in a task, where asyncio's timeouts work. Request handlers are stepped outside of any task."""
    return await asyncio.get_running_loop().create_task(work)
