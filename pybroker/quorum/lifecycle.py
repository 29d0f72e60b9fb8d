"""`BrokerLifecycle`: registers this broker with the controllers and sends its heartbeats (KIP-631) until it stops.

A task on the asyncio loop sends the heartbeats. Each heartbeat says how far this broker has applied the metadata. It
also has a request: to be unfenced, to stop, or to have log dirs taken out of service (KIP-858, KIP-1066). The
controllers fence a broker that is silent for broker.session.timeout.ms. When the controllers no longer know this
broker's epoch, the broker registers again. That registration names the last epoch, so the controllers know that the log
is the one that they knew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from pybroker.metadata import features
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.registration import Registration
from pybroker.observability.event_log import event
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, code_name
from pybroker.quorum.channel import QuorumChannel
from pybroker.quorum.errors import QuorumError, QuorumUnavailable
from pybroker.quorum.fetcher import MetadataFetcher
from pybroker.quorum.signal import Signal
from pybroker.quorum.stand_in import StandIn
from pybroker.values import Value

logger = logging.getLogger(__name__)

UNREGISTERED = -1
#: Between heartbeats while this broker waits for something that an answer may grant.
_EAGER_INTERVAL_S = 0.1
_REGISTRATION_INTERVAL_S = 0.5
_CORDONED_SINCE_METADATA_VERSION = 30
_REFUSALS = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "its cluster.id is not theirs: check log.dirs and the addresses of the quorum",
    ErrorCode.INVALID_REGISTRATION: (
        "they have finalised a feature, or a level of one, that this broker does not serve "
        "(`kafka-features.sh describe` lists them)"
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "they have finalised a feature, or a level of one, that this broker does not serve "
        "(`kafka-features.sh describe` lists them)"
    ),
}


class LifecycleSettings(Value):
    """Kafka's broker.heartbeat.interval.ms, broker.session.timeout.ms and initial.broker.registration.timeout.ms, in
    seconds."""

    node_id: int
    cluster_id: str
    heartbeat_interval_s: float
    session_timeout_s: float
    registration_timeout_s: float


class _Wish(Value):
    """The requests in a heartbeat: to be (or stay) fenced, to stop, and the state of log dirs by directory id."""

    fence: bool = True
    shut_down: bool = False
    offline: frozenset[bytes] = frozenset()
    cordoned: frozenset[bytes] = frozenset()


class BrokerLifecycle:
    """Call `register`, `start`, `unfence`; at the end `shut_down` and `close`. `broker_epoch` is -1 before the first
    registration."""

    def __init__(
        self,
        settings: LifecycleSettings,
        channel: QuorumChannel,
        fetcher: MetadataFetcher,
        in_effect: Callable[[], int],
        on_failure: Callable[[str], None],
        stand_in: StandIn,
    ) -> None:
        """`in_effect` returns the end offset of the metadata that is in effect here. `on_failure` is called once, when
        this broker can no longer be part of the cluster. `stand_in` sends heartbeats while this loop cannot."""
        self.broker_epoch = UNREGISTERED
        self.is_fenced = True
        self._settings = settings
        self._channel = channel
        self._fetcher = fetcher
        self._in_effect = in_effect
        self._on_failure = on_failure
        self._stand_in = stand_in
        self._registration: Registration | None = None
        self._wish = _Wish()
        self._granted: _Wish | None = None
        self._may_stop = False
        self._progress = Signal()
        self._due = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._is_silenced = False
        self._was_unfenced = False

    # ---- registration ----------------------------------------------------------------------------------------------

    async def register(self, registration: Registration) -> None:
        """Register this broker, and return when the published metadata has the registration. Raises QuorumError when
        the controllers refuse it, or have not accepted it within initial.broker.registration.timeout.ms."""
        self._registration = registration
        self._wish = _Wish(cordoned=frozenset(registration.cordoned_directories))
        try:
            await self._register(registration.previous_broker_epoch)
        except QuorumUnavailable as error:
            raise QuorumError(
                f"broker {self._settings.node_id} could not register: {error}. Are the controllers running? "
                "initial.broker.registration.timeout.ms bounds how long they are waited for"
            ) from error
        await self._fetcher.until(lambda image: _epoch_of(image, self._settings.node_id) >= self.broker_epoch)

    async def _register(self, previous_epoch: int) -> None:
        node_id, epoch = self._settings.node_id, await self._accepted(self._request(previous_epoch))
        # A waiter for a grant must not take a grant of the previous epoch for its own.
        self.broker_epoch, self._granted, self._may_stop = epoch, None, False
        logger.info("registered with the quorum as broker %d under epoch %d", node_id, epoch, extra=event("fencing"))

    async def _accepted(self, request: m.BrokerRegistrationRequest) -> int:
        """Send `request` until the controllers accept it; returns the broker epoch. QuorumUnavailable when the
        controllers do not answer, QuorumError when they refuse the registration or do not accept it in time."""
        loop = asyncio.get_running_loop()
        deadline, was_told = loop.time() + self._settings.registration_timeout_s, False
        while True:
            answer = await self._channel.call(request, max(deadline - loop.time(), _REGISTRATION_INTERVAL_S))
            code = answer.error_code
            if code == ErrorCode.NONE:
                return int(answer.broker_epoch)
            if code in _REFUSALS:
                raise QuorumError(f"the controllers refuse broker {request.broker_id}: {_REFUSALS[ErrorCode(code)]}")
            if loop.time() > deadline:
                raise QuorumError(f"broker {request.broker_id} could not register: {_why_late(code)}")
            if not was_told:
                was_told = True
                logger.info("registration as broker %d has to wait: %s", request.broker_id, _why_late(code))
            await asyncio.sleep(_REGISTRATION_INTERVAL_S)

    def _request(self, previous_epoch: int) -> m.BrokerRegistrationRequest:
        registration = self._registration
        assert registration is not None
        kind = m.BrokerRegistrationRequest
        return kind(
            broker_id=self._settings.node_id,
            cluster_id=self._settings.cluster_id,
            incarnation_id=registration.incarnation_id,
            listeners=[
                kind.Listener(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
                for each in registration.endpoints
            ],
            features=[
                kind.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in features.SUPPORTED.items()
            ],
            rack=registration.rack,
            log_dirs=[each for each in registration.directories if each not in self._wish.offline],
            previous_broker_epoch=previous_epoch,
        )

    # ---- heartbeats ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Send heartbeats from now on."""
        self._beating = asyncio.get_running_loop().create_task(self._beat_for_ever(), name="broker heartbeats")

    async def _beat_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._due.clear()
            try:
                await self._beat()
            except QuorumError as error:
                self._on_failure(str(error))
                return
            except Exception:
                logger.exception("the heartbeats have a defect")
                self._on_failure("this broker cannot send heartbeats to its controllers")
                raise
            is_waited_for = self._wish.shut_down != self._may_stop or (self.is_fenced and not self._wish.fence)
            interval_s = _EAGER_INTERVAL_S if is_waited_for else self._settings.heartbeat_interval_s
            timer = loop.call_later(interval_s, self._due.set)
            await self._due.wait()
            timer.cancel()

    async def _beat(self) -> None:
        try:
            await self._exchange(self._wish, self.broker_epoch)
        except QuorumUnavailable as error:
            self._tell_silence(error)
        else:
            self._is_silenced = False
            self._progress.notify()

    async def _exchange(self, wish: _Wish, epoch: int) -> None:
        request = self._heartbeat(wish, epoch)
        answer = await self._channel.call(request, self._settings.session_timeout_s)
        if answer.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            logger.warning("the controllers do not know broker epoch %d any more; this broker registers again", epoch)
            self.is_fenced = True
            # Not `register`: the metadata may come late or never, and heartbeats must go on meanwhile. Without them the
            # controllers would not learn that this broker stops.
            await self._register(epoch)
        elif answer.error_code != ErrorCode.NONE:
            logger.warning("a heartbeat was answered with %s", code_name(answer.error_code))
        else:
            self._granted, self._may_stop = wish, answer.should_shut_down
            self.is_fenced = answer.is_fenced
            self._stand_in.take(request)

    def _heartbeat(self, wish: _Wish, epoch: int) -> m.BrokerHeartbeatRequest:
        knows_cordoned = self._fetcher.image.metadata_version >= _CORDONED_SINCE_METADATA_VERSION
        return m.BrokerHeartbeatRequest(
            broker_id=self._settings.node_id,
            broker_epoch=epoch,
            # The controllers let another broker stop once this offset shows that its partitions are led here.
            current_metadata_offset=self._in_effect() - 1,
            want_fence=wish.fence,
            want_shut_down=wish.shut_down,
            offline_log_dirs=sorted(wish.offline),
            cordoned_log_dirs=sorted(wish.cordoned) if knows_cordoned else None,
        )

    def on_image(self, image: MetadataImage) -> None:
        """Log when the metadata says that this broker was fenced or unfenced. The answers to heartbeats may not show
        that it was fenced for a short time."""
        is_unfenced = self.broker_epoch != UNREGISTERED and _is_unfenced(image, self._settings.node_id)
        if is_unfenced and not self._was_unfenced:
            logger.info("the controllers have unfenced this broker", extra=event("fencing"))
        elif self._was_unfenced and not is_unfenced and not self._wish.shut_down:
            logger.warning("the controllers have fenced this broker", extra=event("fencing"))
        self._was_unfenced = is_unfenced

    def _tell_silence(self, error: QuorumUnavailable) -> None:
        if not self._is_silenced:
            self._is_silenced = True
            logger.warning("no heartbeat gets through, and the controllers fence a silent broker: %s", error)
            self._progress.notify()

    async def _ask_for(self, wish: _Wish, granted: Callable[[], bool]) -> None:
        """Send `wish` in a heartbeat at once. Return when the controllers have taken it and `granted()` is true."""
        self._wish = wish
        self._due.set()
        await self._progress.until(lambda: self._granted == self._wish and granted())

    async def unfence(self) -> None:
        """Ask to be unfenced; return when the published metadata says that this broker is unfenced."""
        await self._ask_for(_Wish(False, False, self._wish.offline, self._wish.cordoned), lambda: not self.is_fenced)
        node_id = self._settings.node_id
        # The metadata must say so of this registration, not of an earlier one.
        await self._fetcher.until(
            lambda image: _epoch_of(image, node_id) >= self.broker_epoch and _is_unfenced(image, node_id)
        )

    async def change_directories(self, in_service: Sequence[bytes], cordoned: Sequence[bytes]) -> None:
        """Tell the controllers which log dirs are in service, and which of these get no new partitions. Return when
        they have taken it."""
        assert self._registration is not None
        offline = self._wish.offline | (frozenset(self._registration.directories) - frozenset(in_service))
        wish = _Wish(self._wish.fence, self._wish.shut_down, offline, frozenset(cordoned))
        if wish != self._granted:
            await self._ask_for(wish, lambda: True)

    # ---- the end ---------------------------------------------------------------------------------------------------

    async def shut_down(self) -> bool:
        """Hand over the partitions that this broker leads (controlled shutdown). Returns whether the controllers allow
        the stop. Gives up when no controller answers for the session timeout: the broker is fenced then anyway."""
        if self._beating is None:
            return True  # it never led anything
        if self._beating.done():
            return False
        asking = asyncio.ensure_future(
            self._ask_for(_Wish(False, True, self._wish.offline, self._wish.cordoned), lambda: self._may_stop)
        )
        silent = asyncio.ensure_future(self._silence())
        await asyncio.wait([asking, silent, self._beating], return_when=asyncio.FIRST_COMPLETED)
        for each in (asking, silent):
            each.cancel()
        await asyncio.gather(asking, silent, return_exceptions=True)
        return self._may_stop

    async def _silence(self) -> None:
        """Return when no heartbeat has got through for the session timeout."""
        await self._progress.until(lambda: self._is_silenced)

    async def close(self) -> None:
        """Send no more heartbeats."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        self._stand_in.close()


def _epoch_of(image: MetadataImage, node_id: int) -> int:
    broker = image.cluster.brokers.get(node_id)
    return UNREGISTERED if broker is None else broker.epoch


def _is_unfenced(image: MetadataImage, node_id: int) -> bool:
    broker = image.cluster.brokers.get(node_id)
    return broker is not None and not broker.fenced


def _why_late(code: int) -> str:
    if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
        return (
            "the controllers hold another broker of this node.id for running; if it is not, they forget it when its "
            "session ends (broker.session.timeout.ms)"
        )
    if code == ErrorCode.BROKER_ID_NOT_REGISTERED:
        return (
            "the controllers take no brokers of this kind yet (BROKER_ID_NOT_REGISTERED). They do so while a migration "
            "from ZooKeeper has not started or not ended (zookeeper.metadata.migration.enable): finish it, and start "
            "this broker then"
        )
    return f"the controllers have answered with {code_name(code)}"
