"""A broker that joins controllers which answer by a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from scripted_controller import TIMEOUT_S, Quorum, ScriptedController, controllers

from pybroker.config.broker import BrokerConfig
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.features import MAX_METADATA_VERSION
from pybroker.metadata.image import Endpoint, MetadataImage
from pybroker.metadata.registration import Registration
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.quorum.controller import QuorumController
from pybroker.quorum.fetcher import FetcherSettings
from pybroker.quorum.leader import LeaderFinder
from pybroker.quorum.lifecycle import LifecycleSettings

NODE_ID = 5


FIRST, SECOND = b"1" * 16, b"2" * 16


REGISTRATION = Registration(
    b"i" * 16, (Endpoint("PLAINTEXT", "h", 9092, 0),), "rack-1", (FIRST, SECOND), (), previous_broker_epoch=17
)


LEVELS = {"metadata.version": MAX_METADATA_VERSION, "eligible.leader.replicas.version": 1}


class Cluster:
    """One controller that keeps the brokers' registrations in its metadata log."""

    def __init__(self, member: ScriptedController) -> None:
        self.member = member
        self.quorum = Quorum(member)
        self.refusals: list[int] = []
        self.heartbeat_error = ErrorCode.NONE
        self.may_stop = True
        self.broker_epoch = -1
        self.fenced = True
        for name, level in LEVELS.items():
            self.quorum.append(m.FeatureLevelRecord(name=name, feature_level=level))
        member.on[m.BrokerRegistrationRequest] = self._register
        member.on[m.BrokerHeartbeatRequest] = self._heartbeat

    def _register(self, request: m.BrokerRegistrationRequest) -> m.BrokerRegistrationResponse:
        if self.refusals:
            return m.BrokerRegistrationResponse(error_code=self.refusals.pop(0))
        self.fenced = True
        self.heartbeat_error = ErrorCode.NONE
        self.broker_epoch = self.quorum.end_offset
        record = m.RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=self.broker_epoch,
            rack=request.rack,
            fenced=True,
            log_dirs=request.log_dirs,
        )
        self.quorum.append(record, version=3)
        return m.BrokerRegistrationResponse(broker_epoch=self.broker_epoch)

    def _heartbeat(self, request: m.BrokerHeartbeatRequest) -> m.BrokerHeartbeatResponse:
        if self.heartbeat_error is not ErrorCode.NONE:
            return m.BrokerHeartbeatResponse(error_code=self.heartbeat_error)
        assert request.broker_epoch == self.broker_epoch
        is_caught_up = request.current_metadata_offset >= self.broker_epoch
        if self.fenced and is_caught_up and not request.want_fence and not request.want_shut_down:
            self.fenced = False
            self.change(-1)
        return m.BrokerHeartbeatResponse(
            is_caught_up=is_caught_up,
            is_fenced=self.fenced,
            should_shut_down=request.want_shut_down and self.may_stop,
        )

    def change(self, fenced: int) -> None:
        change = m.BrokerRegistrationChangeRecord(broker_id=NODE_ID, broker_epoch=self.broker_epoch, fenced=fenced)
        self.quorum.append(change, version=2)

    @property
    def last_heartbeat(self) -> m.BrokerHeartbeatRequest:
        found: m.BrokerHeartbeatRequest = self.member.seen_of(m.BrokerHeartbeatRequest)[-1]
        return found


class DataPlaneHeartbeat:
    """What stands in for the control loop, with what it was opened with and is fed."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.arguments = arguments
        self.fed: list[bytes] = []
        self.closed = False

    def feed(self, frame: bytes) -> None:
        assert not self.closed
        self.fed.append(frame)

    def close(self) -> None:
        self.closed = True


class Broker:
    """A `QuorumController` and what it has told."""

    def __init__(self, cluster: Cluster, registration_timeout_s: float = TIMEOUT_S, **overrides: str) -> None:
        settings = [f"{key.replace('_', '.')}={value}" for key, value in overrides.items()]
        config = BrokerConfig.load(
            None,
            [
                f"node.id={NODE_ID}",
                "process.roles=broker",
                "controller.quorum.bootstrap.servers=127.0.0.1:1",
                *settings,
            ],
        )
        self.failures: list[str] = []
        self.heartbeats: list[DataPlaneHeartbeat] = []
        self.controller = QuorumController(
            config,
            LeaderFinder([cluster.member.address]),
            FetcherSettings(NODE_ID, "cluster", FIRST, 30.0, 0.01, 1 << 20, 1 << 20),
            LifecycleSettings(NODE_ID, "cluster", 0.02, 1.0, registration_timeout_s),
            self.failures.append,
            self._open_heartbeat,
        )

    def _open_heartbeat(self, *arguments: Any) -> DataPlaneHeartbeat:
        self.heartbeats.append(DataPlaneHeartbeat(arguments))
        return self.heartbeats[-1]

    async def join(self) -> int:
        await self.controller.start()
        return await self.controller.register_broker(REGISTRATION, {}, lambda: None)


@asynccontextmanager
async def broker_in_cluster(
    registration_timeout_s: float = TIMEOUT_S, **overrides: str
) -> AsyncIterator[tuple[Broker, Cluster]]:
    async with controllers() as (member,):
        cluster = Cluster(member)
        broker = Broker(cluster, registration_timeout_s, **overrides)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                yield broker, cluster
        finally:
            await broker.controller.close()


class Publisher:
    """What it gets is in effect at once, but for what comes while it is `held`."""

    def __init__(self) -> None:
        self.published: list[tuple[MetadataDelta, MetadataImage]] = []
        self.held: int | None = None

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.published.append((delta, image))

    def in_effect(self, end_offset: int) -> int:
        return end_offset if self.held is None else self.held
