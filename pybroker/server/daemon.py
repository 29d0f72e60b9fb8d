"""`Daemon`: one broker from its configuration to its end. On the asyncio loop.

Start: bind the listeners, lock the log dirs, replay the metadata, open the partitions, register, serve. Stop: in the
reverse order, so that whatever was acknowledged is on disk and marked as such. A failure at start is raised
(`NativeError`, `StorageError`, `MetadataError`, `OSError`), with everything opened so far closed again.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

from pybroker import native
from pybroker.config.broker import BrokerConfig
from pybroker.config.listeners import format_address
from pybroker.controller.producer_ids import ProducerIdManager
from pybroker.controller.start import record_applied, start_controller
from pybroker.coordinator.group.coordinator import GroupCoordinator
from pybroker.coordinator.group.model.settings import GroupSettings
from pybroker.coordinator.group.publisher import GroupCoordinatorPublisher
from pybroker.metadata.bootstrap import LogDirs, open_log_dirs
from pybroker.metadata.cache import MetadataCache
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.errors import MetadataLogError
from pybroker.metadata.image import Endpoint, MetadataImage
from pybroker.metadata.registration import NO_BROKER_EPOCH, Registration
from pybroker.native.broker import BrokerOptions, NativeBroker
from pybroker.native.descriptors import share_descriptors
from pybroker.observability import process
from pybroker.observability.event_log import EventLog
from pybroker.observability.log_limit import LIMIT
from pybroker.profiles import Profile
from pybroker.profiles.measurement.flush import SUSPICIOUS
from pybroker.protocol.errors import ErrorCode
from pybroker.protocol.uuids import random_uuid
from pybroker.replication.partition_roles import Replication
from pybroker.replication.replica_manager import ReplicaManager
from pybroker.server.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from pybroker.server.api import BrokerServices
from pybroker.server.append_engine import find_rings, start_append_engine
from pybroker.server.auto_topic_creation import AutoTopicCreation
from pybroker.server.client_quotas import ClientQuotas
from pybroker.server.clock import SystemClock
from pybroker.server.directory_assignments import DirectoryAssignments
from pybroker.server.event_pump import EventPump
from pybroker.server.flushes import judge_flushes, promises_durability
from pybroker.server.log_dir_watch import LogDirWatch
from pybroker.server.metadata_controller import MetadataController
from pybroker.server.observe.observed import CLOSING, RECOVERING, SERVING, Observed
from pybroker.server.observe.observer import Observer
from pybroker.server.registry import forwarded_keys, load_apis, served_ranges, told_ranges
from pybroker.server.replica_selector import RackSelector
from pybroker.server.served_controller import ServedController
from pybroker.storage.dirs.log_directory import LogDirectory
from pybroker.storage.errors import StorageError
from pybroker.storage.files.offset_checkpoint import TopicPartition
from pybroker.storage.logs.free_space import FreeSpaceWatch
from pybroker.storage.logs.log_cleaner import LogCleaner
from pybroker.storage.logs.log_failures import LogFailures
from pybroker.storage.logs.log_maintenance import LogMaintenance
from pybroker.storage.logs.log_manager import LogManager
from pybroker.storage.logs.log_mover import LogMover
from pybroker.storage.logs.log_scrub import LogScrub
from pybroker.values import Value

logger = logging.getLogger(__name__)

_SLOW_OPENING_MS = 1_000
#: The value of a throttle that nobody has set.
_UNLIMITED = 2**63 - 1
_SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class BoundListener(Value):
    """A listener with the port it got, and what clients are told of it."""

    name: str
    host: str
    port: int
    advertised: Endpoint


class Daemon:
    """One broker. `start`, then `stop`; `failed` is set when it cannot go on (its text says why)."""

    def __init__(self, config: BrokerConfig, profile: Profile) -> None:
        self.config = config
        self.profile = profile
        self.clock = SystemClock()
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.listeners: list[BoundListener] = []
        #: The connections of clients that are open at the start.
        self.partition_count = 0
        #: How appended bytes reach the disk, once the log dirs are open.
        self.append_engine = profile.append_engine
        #: Once started.
        self.logs: LogManager
        self.cleaner: LogCleaner
        self.services: BrokerServices
        self.native = NativeBroker(_options(config, profile))
        self.observed = Observed(self.native, config, EventLog(), profile.name)
        self.observer = Observer(self.observed)
        self._stack = AsyncExitStack()
        self._stack.callback(self.native.close)

    @property
    def at_risk(self) -> list[TopicPartition]:
        """Once stopped: the partitions whose newest records may be lost, though they were acknowledged."""
        return [] if self.observed.logs is None else self.observed.logs.at_risk

    @property
    def durability(self) -> str:
        """The broker's mode by default; topics may have another."""
        from pybroker.config.topic import TopicConfig

        return TopicConfig.resolve({}, self.config).durability

    @property
    def backend_reason(self) -> str | None:
        """Why the I/O backend is not the one that is taken first; None when it is, or was asked for."""
        if self.native.backend == "io_uring" or self.config.get_str("pybroker.io.backend") != "auto":
            return None
        return native.backend_refusal("io_uring")

    async def start(self) -> None:
        """Serve. When it raises, nothing is left open."""
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def stop(self) -> None:
        """Close everything in order."""
        self.observed.phase = CLOSING
        await self._stack.aclose()

    async def _start(self) -> None:
        share_descriptors()
        self._observe()
        apis = load_apis(joins_quorum=self.config.joins_quorum)
        served = served_ranges(apis)
        self.native.serve_apis(served)
        self.listeners = self._listen()
        log_dirs, controller, replication = await self._start_controller()
        self._stack.push_async_callback(controller.close)
        self.logs = self.observed.logs = logs = await self._open_logs(log_dirs, controller)
        replicas = ReplicaManager(self.config.node_id, logs, lambda: controller.config, replication)
        metadata = None if self.config.joins_quorum else log_dirs.metadata.directory_id
        watch = LogDirWatch(controller, logs, metadata, self._fail)
        watch.check()
        logs.failures.subscribe(watch)
        self._stack.push_async_callback(replicas.stop)
        mover = LogMover(logs, partial(_assign_directory, controller))
        told = told_ranges(served, joins_quorum=self.config.joins_quorum)
        self.services = services = self._services(controller, replicas, mover, told)
        services.forwarded = forwarded_keys(apis)
        self.observed.services, self.observed.durability = services, self.durability
        pump = EventPump(self.native, apis, services, [each.name for each in self.listeners])
        services.replicas.add_follower(watch)
        if self.config.joins_quorum:
            assignments = DirectoryAssignments(self.config.node_id, logs, controller)
            services.replicas.add_follower(assignments)
            self._stack.push_async_callback(assignments.stop)
        self._subscribe(controller, services)
        await self._open_partitions(logs, replicas, _partition_count(controller.image, self.config.node_id))
        self.native.start()
        services.groups.judge_deadlines(pump.after_received)
        pump.start()
        self._stack.push_async_callback(self._stop_serving, pump, services, controller)
        services.groups.start()
        await self._register(controller, replicas, watch)
        pump.open()
        watch.start()
        self._stack.push_async_callback(watch.stop)
        await replicas.settled()
        self._space.start()
        maintenance = LogMaintenance(logs)
        maintenance.start()
        self._stack.push_async_callback(maintenance.stop)
        self.cleaner = self.observed.cleaner = LogCleaner(logs, self.native.limit_cleaning, maintenance.retain)
        self.cleaner.start()
        self._stack.push_async_callback(self.cleaner.stop)
        self._stack.push_async_callback(mover.stop)
        mover.resume()
        scrub = self.observed.scrub = LogScrub(logs)
        scrub.start()
        self._stack.push_async_callback(scrub.stop)
        self.observed.phase = SERVING
        LIMIT.serving = True
        if self.observer.refusal is not None:
            logger.info("%s", self.observer.refusal)

    def _observe(self) -> None:
        """From the first moment to the last: who waits for the broker is told how far it is."""
        root = logging.getLogger("pybroker")
        root.addHandler(self.observed.events)
        self._stack.callback(root.removeHandler, self.observed.events)
        self.observer.start()
        self._stack.push_async_callback(self.observer.stop)

    def _listen(self) -> list[BoundListener]:
        bound = []
        for listener, told in zip(self.config.listeners, self.config.advertised_listeners, strict=True):
            port = self.native.listen(listener.name, listener.host, listener.port)
            protocol = _SECURITY_PROTOCOL_IDS[told.security_protocol]
            endpoint = Endpoint(told.name, told.host or socket.getfqdn(), told.port or port, protocol)
            bound.append(BoundListener(listener.name, listener.host, port, endpoint))
        return bound

    async def _start_controller(self) -> tuple[LogDirs, MetadataController, Replication | None]:
        """Lock the log dirs and have the metadata: from the log in one of them, or from controllers elsewhere."""
        if self.config.joins_quorum:
            return await self._join_quorum()
        log_dirs = self._open_log_dirs(None)
        controller = await start_controller(self.config, log_dirs, self.clock.wall_ms, self._on_log_failure)
        self._stack.push_async_callback(_record_applied, log_dirs, controller)
        return log_dirs, controller, None

    async def _join_quorum(self) -> tuple[LogDirs, MetadataController, Replication]:
        # A broker that is its own controller starts without all of this.
        from pybroker.native.heartbeat import NativeHeartbeat
        from pybroker.quorum.start import find_cluster, join_quorum
        from pybroker.server.replicating import replication_of

        log_dirs = self._open_log_dirs(await find_cluster(self.config))
        controller = await join_quorum(self.config, log_dirs, self._fail, partial(NativeHeartbeat, self.native))
        return log_dirs, controller, replication_of(self.config, self.native, controller)

    def _open_log_dirs(self, joined_cluster_id: str | None) -> LogDirs:
        config = self.config
        controller = config.controller_listener
        log_dirs = open_log_dirs(
            config.log_dirs,
            config.node_id,
            self.clock.wall_ms(),
            config.metadata_log_dir,
            (controller.name, controller.host, controller.port),
            joined_cluster_id,
        )
        self._stack.callback(log_dirs.release)
        return log_dirs

    async def _open_logs(self, log_dirs: LogDirs, controller: MetadataController) -> LogManager:
        own = set(self.config.log_dirs)
        directories = [LogDirectory(each.path, each.directory_id) for each in log_dirs.dirs if each.path in own]
        if not directories:
            reasons = "; ".join(f"{path}: {why}" for path, why in log_dirs.offline.items())
            raise StorageError(f"none of log.dirs can be used: {reasons}")
        # With the dynamic values of before: how many threads recover is among them.
        logs = LogManager(self.native, directories, controller.config, self.clock, LogFailures(log_dirs.offline))
        self._stack.push_async_callback(self._close_logs, logs, controller)
        await asyncio.to_thread(find_rings, directories, self.config)
        await logs.load()
        if not logs.live:
            reasons = "; ".join(f"{path}: {why}" for path, why in logs.failures.offline.items())
            raise StorageError(f"none of log.dirs can be used: {reasons}")
        self._space = FreeSpaceWatch(logs)
        self._stack.push_async_callback(self._space.stop)
        await self._space.look()
        engine = await asyncio.to_thread(start_append_engine, self.native, self.profile, self.config, logs.live)
        self._stack.push_async_callback(engine.stop)
        self._note_engine(engine.name)
        engine.start(self._note_engine)
        if promises_durability(controller.config, controller.image):
            await asyncio.to_thread(judge_flushes, logs.live, self.native.backend)
        return logs

    def _note_engine(self, name: str) -> None:
        self.append_engine = self.observed.append_engine = name

    async def _open_partitions(self, logs: LogManager, replicas: ReplicaManager, assigned_count: int) -> None:
        self.observed.phase, self.observed.assigned_count = RECOVERING, assigned_count
        progress = asyncio.create_task(logs.report_progress(assigned_count))
        started_ms = self.clock.monotonic_ms()
        try:
            await replicas.settled()
        finally:
            progress.cancel()
        await replicas.set_strays_aside()
        took_ms = self.clock.monotonic_ms() - started_ms
        self.partition_count = len(logs.logs)
        if logs.scanned_bytes > 0 or took_ms >= _SLOW_OPENING_MS:
            counts = (len(logs.logs), assigned_count)
            logger.info("%d of %d logs opened in %d ms, %d bytes checked", *counts, took_ms, logs.scanned_bytes)

    async def _close_logs(self, logs: LogManager, controller: MetadataController) -> None:
        await logs.close(controller.broker_epoch, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _services(
        self,
        controller: MetadataController,
        replicas: ReplicaManager,
        mover: LogMover,
        told: tuple[tuple[int, int, int], ...],
    ) -> BrokerServices:
        groups = GroupCoordinator(GroupSettings.from_config(self.config), replicas, self.clock)
        served = ServedController(controller, replicas)
        return BrokerServices(
            config=controller.config,
            metadata=controller,
            metadata_cache=MetadataCache(self.config.node_id),
            controller=served,
            topic_creation=AutoTopicCreation(served, lambda: controller.config, lambda: controller.image),
            producer_ids=ProducerIdManager(controller.allocate_producer_ids, lambda: replicas.largest_producer_id),
            groups=groups,
            replicas=replicas,
            mover=mover,
            clock=self.clock,
            served=told,
            transactions=self._verification() if self.config.joins_quorum else None,
        )

    def _verification(self) -> AddPartitionsToTxnManager:
        from pybroker.server.replicating import verification_of

        return verification_of(self.config, self.native)

    def _subscribe(self, controller: MetadataController, services: BrokerServices) -> None:
        groups = GroupCoordinatorPublisher(services.groups, self.config.node_id)
        services.replicas.add_follower(groups)
        services.replicas.add_reopening_listener(groups.on_reopened)
        services.replicas.add_follower(RackSelector(self.native, lambda: controller.config))
        services.replicas.add_follower(_ConfigPublisher(services, self.native, lambda: controller.config))
        services.replicas.add_follower(ClientQuotas(self.native, lambda: controller.config))
        if services.transactions is not None:
            services.replicas.add_follower(services.transactions)
        controller.subscribe(services.replicas)

    async def _register(self, controller: MetadataController, replicas: ReplicaManager, watch: LogDirWatch) -> None:
        registration = Registration(
            random_uuid(),
            tuple(each.advertised for each in self.listeners),
            self.config.rack,
            watch.in_service,
            watch.cordoned,
            _previous_broker_epoch(self.logs),
        )
        placements = {(log.topic_id, log.key[1]): log.directory.directory_id for log in self.logs.logs.values()}
        await controller.register_broker(registration, placements, replicas.allow_leading)

    async def _stop_serving(self, pump: EventPump, services: BrokerServices, controller: MetadataController) -> None:
        await controller.begin_shutdown()
        self.native.end_requests()
        try:
            await services.topic_creation.close()
            await services.producer_ids.close()
            await services.groups.stop()
            if services.transactions is not None:
                await services.transactions.close()
            await pump.stop()
            await controller.fence_broker()
        except MetadataLogError as error:
            logger.error("the end of this broker's registration could not be written: %s", error)
        finally:
            # Whatever else goes wrong: nobody may be served by logs that are about to be closed.
            await asyncio.to_thread(self.native.stop)
            pump.drain()

    def _on_log_failure(self, error: MetadataLogError) -> None:
        self._fail(str(error))

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)
            self.observed.failure = reason


class _ConfigPublisher:
    """Keeps `BrokerServices.config`, and what the data plane was told of it, at the newest dynamic values."""

    def __init__(self, services: BrokerServices, native: NativeBroker, config: Callable[[], BrokerConfig]) -> None:
        self._services = services
        self._native = native
        self._config = config
        self._apply()

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        del delta, image
        if self._services.config is not self._config():
            self._apply()

    def _apply(self) -> None:
        config = self._services.config = self._config()
        self._native.limit_connections(config.get_int("max.connections"))
        self._native.limit_leader_replication(_bound(config, "leader.replication.throttled.rate"))
        self._native.limit_follower_replication(_bound(config, "follower.replication.throttled.rate"))
        for warning in config.warnings if config.dynamic_broker or config.dynamic_default else ():
            logger.warning("%s", warning)


def _bound(config: BrokerConfig, key: str) -> int:
    """Bytes per second for the data plane, where 0 is no bound; as a setting it is the least of all bounds."""
    rate = config.get_int(key)
    return max(1, rate) if rate < _UNLIMITED else 0


async def _record_applied(log_dirs: LogDirs, controller: MetadataController) -> None:
    """When nothing is appended to the metadata log any more."""
    await asyncio.to_thread(record_applied, log_dirs, controller.image)


async def _assign_directory(
    controller: MetadataController, key: TopicPartition, topic_id: bytes, directory_id: bytes
) -> None:
    try:
        await controller.assign_directories({(topic_id, key[1]): directory_id})
    except MetadataLogError as error:
        # The next start notes it: it goes by where the logs lie.
        logger.error("the metadata could not be told where %s-%d lies now: %s", *key, error)


def _previous_broker_epoch(logs: LogManager) -> int:
    """The epoch of the last session, if it came to an end in order in all log dirs, and no log has lost records since
    (KIP-966)."""
    if logs.ends.losses.count > 0:
        return NO_BROKER_EPOCH
    epochs = {each.previous_broker_epoch if each.clean else NO_BROKER_EPOCH for each in logs.live}
    return epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH


def _partition_count(image: MetadataImage, node_id: int) -> int:
    """How many the metadata assigns to this broker."""
    return sum(
        node_id in partition.replicas
        for topic in image.topics.by_id.values()
        for partition in topic.partitions.values()
    )


def _options(config: BrokerConfig, profile: Profile) -> BrokerOptions:
    return BrokerOptions(
        backend=config.get_str("pybroker.io.backend"),
        node_id=config.node_id,
        reactor_count=profile.reactor_count,
        spin_us=profile.spin_us,
        buffer_budget_bytes=profile.buffer_budget_bytes,
        max_request_bytes=config.get_int("socket.request.max.bytes"),
        max_connections=config.get_int("max.connections"),
        connections_max_idle_ms=config.get_int("connections.max.idle.ms"),
        fetch_session_slots=config.get_int("max.incremental.fetch.session.cache.slots"),
        fetch_max_bytes=config.get_int("fetch.max.bytes"),
        history_cache_bytes=profile.history_cache_bytes,
        slow_request_ms=config.get_int("pybroker.slow.request.ms"),
    )


def ready_line(daemon: Daemon, started_ms: int) -> str:
    """The one line on standard output that says the broker serves, and with what."""
    listeners = ",".join(f"{each.name}://{format_address(each.host, each.port)}" for each in daemon.listeners)
    profile = daemon.profile
    doubts = {each.flush.name for each in daemon.logs.directories if each.flush is not None} & {*SUSPICIOUS}
    flush = f" flush={','.join(sorted(doubts))}" if doubts else ""
    observed_at = daemon.observer.address
    metrics = "" if observed_at is None else f" metrics=http://{format_address(*observed_at)}/metrics"
    reach = "" if daemon.config.is_set("listeners") else " (this machine only: set listeners to serve others)"
    return (
        f"pybroker ready listeners={listeners} node.id={daemon.config.node_id} profile={profile.name} "
        f"io={daemon.native.backend} engine={daemon.append_engine} durability={daemon.durability}{flush} "
        f"reactors={profile.reactor_count} crc32c={native.crc32c_name()} "
        f"buffers={profile.buffer_budget_bytes >> 20}MiB partitions={daemon.partition_count} "
        f"open_files={process.open_file_count()}/{process.open_file_limit()} "
        f"resident={process.resident_bytes() >> 20}MiB started_ms={started_ms}{metrics}{reach}"
    )
