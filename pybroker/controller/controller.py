"""`Controller`: drives the pure operations against the metadata log. Runs on the asyncio loop, which owns all its
state.

An operation sees the newest accepted image. Its records are replayed into the next image first, so that a record which
cannot be replayed is never written. Then they are appended. When they are durable the image is published, and only then
its response leaves. So operations overlap, and one sync serves many. Many records are replayed and encoded in slices of
the loop: meanwhile nothing else is accepted, and everybody sees the image before. When the log fails, nothing accepted
but not durable is ever published, every operation raises `MetadataLogError`, and `on_failure` is called once: the
broker must stop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from pybroker.config.broker import BrokerConfig
from pybroker.controller import register_broker as registrations
from pybroker.controller import weight
from pybroker.controller.allocate_producer_ids import allocate_producer_ids
from pybroker.controller.alter_client_quotas import addresses, alter_client_quotas
from pybroker.controller.alter_configs import alter_configs, incremental_alter_configs
from pybroker.controller.alter_user_scram_credentials import alter_user_scram_credentials
from pybroker.controller.assign_directories import assign_directories
from pybroker.controller.create_partitions import create_partitions
from pybroker.controller.create_topics import create_topics
from pybroker.controller.delete_topics import delete_topics
from pybroker.controller.elect_leaders import elect_leaders
from pybroker.controller.mutation_quotas import STRICT_SINCE, MutationQuotas, Mutations
from pybroker.controller.raft_voters import add_raft_voter, remove_raft_voter
from pybroker.controller.state import MAX_RECORDS_PER_OPERATION, ControllerResult, ControllerState
from pybroker.controller.unregister_broker import unregister_broker
from pybroker.controller.unregister_controller import unregister_controller
from pybroker.controller.update_features import update_features
from pybroker.metadata.delta import MetadataDelta
from pybroker.metadata.dynamic_config import DynamicConfig
from pybroker.metadata.errors import MetadataError, MetadataLogError
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.loader import BatchReplayer, MetadataPublisher, full_delta
from pybroker.metadata.log import MetadataLog
from pybroker.metadata.records import MetadataBatch, VersionedRecord
from pybroker.metadata.registration import Placements, Registration
from pybroker.native.descriptors import log_descriptors
from pybroker.protocol import messages as m
from pybroker.protocol.envelope import Origin
from pybroker.protocol.runtime import element_count
from pybroker.turns import run_at_once, run_in_slices

logger = logging.getLogger(__name__)

R = TypeVar("R")

_UPKEEP_INTERVAL_S = 60.0


#: An operation on more elements takes longer than a slice of the loop.
_MANY = 1_000
#: After so many changes by others meanwhile, others wait for it.
_ATTEMPTS = 3
#: So many records are accepted at once.
_FEW = 100


class Controller:
    """The embedded controller. Made by `pybroker.controller.start.start_controller`.

    `clock_ms` gives wall clock milliseconds. `image` is the durable, published image.
    """

    def __init__(
        self,
        config: BrokerConfig,
        log: MetadataLog,
        image: MetadataImage,
        clock_ms: Callable[[], int],
        on_failure: Callable[[MetadataLogError], None] | None = None,
    ) -> None:
        self.node_id = config.node_id
        self.image = image
        self.broker_epoch = -1
        self.operation_count = 0
        self._config = DynamicConfig(config)
        self._log = log
        self._accepted = image
        self._clock_ms = clock_ms
        self._on_failure = on_failure
        self._failed = False
        self._mutations = MutationQuotas(lambda: time.monotonic_ns() // 1_000_000)
        self._publishers: list[MetadataPublisher] = []
        self._snapshot: asyncio.Task[None] | None = None
        self._upkeep: asyncio.Task[None] | None = None
        self._last_append: asyncio.Future[int] | None = None
        #: Held from the state that an operation saw until its records are part of the accepted image.
        self._accepting = asyncio.Lock()

    # --- operations -------------------------------------------------------------------------------------------------

    async def perform(self, request: m.Message, version: int, origin: Origin) -> Any:
        """The operation that `request`, in that version, asks for; its response. Nobody is refused by who he is."""
        strict_since = STRICT_SINCE.get(type(request))
        if strict_since is None:
            return await _OPERATIONS[type(request)](self, request, version)
        mutations = self._mutations.of(self._accepted, self.config, origin, version >= strict_since)
        response = await _BOUNDED_OPERATIONS[type(request)](self, request, version, mutations)
        if mutations is not None and mutations.throttle_ms > 0:
            response.throttle_time_ms = mutations.throttle_ms
            self._mutations.tell(origin, mutations.throttle_ms)
        return response

    async def create_topics(
        self, request: m.CreateTopicsRequest, version: int, mutations: Mutations | None = None
    ) -> m.CreateTopicsResponse:
        """CreateTopics; `version` is the request's."""
        elements = weight.created_partitions(request, _MANY)
        return await self._run(lambda state: create_topics(state, request, version), mutations, elements=elements)

    async def delete_topics(
        self, request: m.DeleteTopicsRequest, version: int, mutations: Mutations | None = None
    ) -> m.DeleteTopicsResponse:
        """DeleteTopics; `version` is the request's."""
        elements = element_count(request, _MANY)
        return await self._run(lambda state: delete_topics(state, request, version), mutations, elements=elements)

    async def create_partitions(
        self, request: m.CreatePartitionsRequest, _version: int = 3, mutations: Mutations | None = None
    ) -> m.CreatePartitionsResponse:
        """CreatePartitions, alike in all versions."""
        elements = weight.added_partitions(request, _MANY)
        return await self._run(lambda state: create_partitions(state, request), mutations, elements=elements)

    async def elect_leaders(self, request: m.ElectLeadersRequest) -> m.ElectLeadersResponse:
        """ElectLeaders."""
        elements = weight.elected_partitions(request, self._accepted, _MANY)
        return await self._run(lambda state: elect_leaders(state, request), elements=elements)

    async def update_features(self, request: m.UpdateFeaturesRequest, version: int) -> m.UpdateFeaturesResponse:
        """UpdateFeatures; `version` is the request's."""
        return await self._run(
            lambda state: update_features(state, request, version), elements=element_count(request, _MANY)
        )

    async def unregister_broker(self, request: m.UnregisterBrokerRequest) -> m.UnregisterBrokerResponse:
        """UnregisterBroker."""
        elements = weight.all_partitions(self._accepted)
        return await self._run(lambda state: unregister_broker(state, request), elements=elements)

    async def unregister_controller(self, request: m.UnregisterControllerRequest) -> m.UnregisterControllerResponse:
        """UnregisterController."""
        return await self._run(lambda state: unregister_controller(state, request))

    async def add_raft_voter(self, request: m.AddRaftVoterRequest) -> m.AddRaftVoterResponse:
        """AddRaftVoter."""
        return await self._run(
            lambda state: ControllerResult(add_raft_voter(state, request)), elements=element_count(request, _MANY)
        )

    async def remove_raft_voter(self, request: m.RemoveRaftVoterRequest) -> m.RemoveRaftVoterResponse:
        """RemoveRaftVoter."""
        return await self._run(
            lambda state: ControllerResult(remove_raft_voter(state, request)), elements=element_count(request, _MANY)
        )

    async def alter_configs(self, request: m.AlterConfigsRequest) -> m.AlterConfigsResponse:
        """AlterConfigs."""
        return await self._run(lambda state: alter_configs(state, request), elements=element_count(request, _MANY))

    async def incremental_alter_configs(
        self, request: m.IncrementalAlterConfigsRequest
    ) -> m.IncrementalAlterConfigsResponse:
        """IncrementalAlterConfigs."""
        return await self._run(
            lambda state: incremental_alter_configs(state, request), elements=element_count(request, _MANY)
        )

    async def alter_client_quotas(self, request: m.AlterClientQuotasRequest) -> m.AlterClientQuotasResponse:
        """AlterClientQuotas."""
        unknown_hosts = {each for each in addresses(request) if not await _is_host(each)}
        return await self._run(
            lambda state: alter_client_quotas(state, request, unknown_hosts), elements=element_count(request, _MANY)
        )

    async def alter_user_scram_credentials(
        self, request: m.AlterUserScramCredentialsRequest
    ) -> m.AlterUserScramCredentialsResponse:
        """AlterUserScramCredentials."""
        return await self._run(
            lambda state: alter_user_scram_credentials(state, request), elements=element_count(request, _MANY)
        )

    @property
    def forwarding_ranges(self) -> None:
        """Nothing is forwarded from here: every version is taken that the broker serves."""
        return None

    async def allocate_producer_ids(self, known_id: int = -1) -> m.AllocateProducerIdsResponse:
        """A block of producer ids above `known_id` for this broker, which must be registered."""
        request = m.AllocateProducerIdsRequest(broker_id=self.node_id, broker_epoch=self.broker_epoch)
        return await self._run(lambda state: allocate_producer_ids(state, request, known_id))

    async def register_broker(
        self, registration: Registration, placements: Placements, before_leading: Callable[[], None]
    ) -> int:
        """Register this broker, whose replicas lie in `placements`, and elect it where it can lead: its broker epoch.

        Until then the metadata still describes the leadership of this broker's previous incarnation: `before_leading`
        is called when that is over.
        """
        before_leading()
        # First, so that a log which was carried to another dir while nobody ran has a leader.
        await self.assign_directories(placements)
        self.broker_epoch = await self._run(lambda state: registrations.register_broker(state, registration))
        return self.broker_epoch

    async def change_directories(self, directories: Sequence[bytes], cordoned: Sequence[bytes]) -> None:
        """Which log dirs of this broker are in service, and which of them get no new partitions."""
        elements = weight.all_partitions(self._accepted)
        await self._run(lambda state: registrations.change_directories(state, directories, cordoned), elements=elements)

    async def assign_directories(self, directories: Placements) -> None:
        """Which log dirs replicas of this broker lie in, by topic id and partition."""
        await self._run(lambda state: assign_directories(state, directories), elements=len(directories))

    async def begin_shutdown(self) -> None:
        """There is no other broker that this one could hand its partitions over to."""

    async def fence_broker(self) -> None:
        """End this broker's registration, as the last thing before a clean stop."""
        await self._run(registrations.fence_broker)

    async def append_first_records(self, bootstrap: Sequence[VersionedRecord]) -> None:
        """Begin the metadata of a new cluster."""
        await self._run(lambda state: ControllerResult(None, registrations.first_records(state, bootstrap)))

    async def abort_transaction(self, aborted: BatchReplayer) -> None:
        """Abort the transaction that an earlier leader of the log left open; `aborted` has replayed the log so far."""
        assert aborted.is_in_transaction
        record = VersionedRecord(m.AbortTransactionRecord(reason="the controller was restarted"), 0)
        await self._log.append([record], self._clock_ms())

    def endpoint(self, node_id: int, listener: str) -> tuple[str, int] | None:
        """Advertised (host, port) of a live broker on that listener, by the published image."""
        return self.image.endpoint(node_id, listener)

    # --- the one way records take -------------------------------------------------------------------------------------

    @property
    def config(self) -> BrokerConfig:
        """The configuration with the dynamic values of the accepted image."""
        return self._config.of(self._accepted)

    async def _run(
        self,
        operation: Callable[[ControllerState], ControllerResult[R]],
        mutations: Mutations | None = None,
        elements: int = 0,
    ) -> R:
        """Run an operation on so many `elements`; its response once everything it saw or made is durable."""
        self.operation_count += 1
        ahead = None
        if elements > _MANY and mutations is None:
            ahead = await self._compute_ahead(operation)
        async with self._accepting:
            state = self._state(mutations)
            if ahead is not None and ahead[0] is state.image:
                result = ahead[1]
            elif elements > _MANY:
                result = await asyncio.to_thread(operation, state)
            else:
                result = operation(state)
            remaining = iter(result.records)
            # Only a registration, and a log dir that fails, can be longer than one operation may be; each part makes
            # sense alone.
            while part := list(islice(remaining, MAX_RECORDS_PER_OPERATION)):
                self._last_append = await self._accept(part)
            last_append = self._last_append
        if last_append is not None:
            # A caller that gives up must not take the append of others with it.
            await asyncio.shield(last_append)
        return result.response

    async def _compute_ahead(
        self, operation: Callable[[ControllerState], ControllerResult[R]]
    ) -> tuple[MetadataImage, ControllerResult[R]] | None:
        """The next image and the result of an operation on many elements. A thread computes them while other operations
        go on, and again when one of those has changed the state. None: others change it all the time."""
        for _ in range(_ATTEMPTS):
            state = self._state(None)
            result = await asyncio.to_thread(operation, state)
            if state.image is self._accepted and not self._accepting.locked():
                return state.image, result
        return None

    def _state(self, mutations: Mutations | None) -> ControllerState:
        if self._failed:
            raise MetadataLogError("the metadata log failed; the broker must be restarted")
        return ControllerState(
            self._accepted, self.config, self.node_id, self._log.end_offset, mutations, log_descriptors()
        )

    async def _accept(self, records: list[VersionedRecord]) -> asyncio.Future[int]:
        """Replay the records and append them, many of them in slices. Publishing follows when they are durable, in the
        order of the calls. `_accepting` is held."""
        steps = self._accept_steps(records)
        return run_at_once(steps) if len(records) <= _FEW else await run_in_slices(steps)

    def _accept_steps(self, records: list[VersionedRecord]) -> Generator[None, None, asyncio.Future[int]]:
        """Nothing has happened before the last step."""
        now_ms = self._clock_ms()
        base_offset, epoch = self._log.end_offset, self._log.epoch
        replayer = BatchReplayer(self._accepted)
        yield from replayer.replay_steps(MetadataBatch(base_offset, epoch, now_ms, 0, tuple(records)))
        image = yield from replayer.finish_steps(base_offset + len(records), epoch)
        done = yield from self._log.append_steps(records, now_ms)
        self._accepted = image
        done.add_done_callback(lambda future: self._on_durable(future, replayer.delta, image))
        return done

    def _on_durable(self, done: asyncio.Future[int], delta: MetadataDelta, image: MetadataImage) -> None:
        error = done.exception()
        if error is None:
            self.image = image
            self._publish(delta, image)
            self._maybe_snapshot()
        elif not self._failed:
            self._failed = True
            self._accepted = self.image
            failure = error if isinstance(error, MetadataLogError) else MetadataLogError(str(error))
            logger.error("the controller stops: %s", failure)
            if self._on_failure is not None:
                self._on_failure(failure)

    # --- what follows from records ------------------------------------------------------------------------------------

    def subscribe(self, publisher: MetadataPublisher) -> None:
        """Give `publisher` all there is now, and from now on every change."""
        publisher.publish(full_delta(self.image), self.image)
        self._publishers.append(publisher)

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for publisher in self._publishers:
            publisher.publish(delta, image)

    def start_upkeep(self) -> None:
        """Look from time to time whether a snapshot is due, or an old one may go, also while nothing is appended."""
        self._upkeep = asyncio.get_running_loop().create_task(self._look_regularly(), name="metadata log upkeep")

    async def _look_regularly(self) -> None:
        while True:
            await asyncio.sleep(_UPKEEP_INTERVAL_S)
            self._maybe_snapshot()
            if self._snapshot is not None and not self._snapshot.done():
                continue
            self._snapshot = asyncio.get_running_loop().create_task(self._apply_retention(), name="metadata retention")

    async def _apply_retention(self) -> None:
        try:
            await self._log.apply_retention(self._clock_ms())
        except (OSError, MetadataError) as error:
            logger.error("old files of the metadata log could not be deleted; it is tried again: %s", error)

    def _maybe_snapshot(self) -> None:
        if self._log.is_snapshot_due(self._clock_ms()) and (self._snapshot is None or self._snapshot.done()):
            self._snapshot = asyncio.get_running_loop().create_task(self._write_snapshot(), name="metadata snapshot")

    async def _write_snapshot(self) -> None:
        try:
            await self._log.write_snapshot(self.image, self._clock_ms())
        except (OSError, MetadataError) as error:
            # The log alone is enough to start from; the next one is tried when as much again has been written.
            logger.error("no metadata snapshot could be written: %s", error)

    async def close(self) -> None:
        """Wait for what is under way and close the log. After a clean stop `fence_broker` was called before."""
        if self._upkeep is not None:
            self._upkeep.cancel()
        if self._snapshot is not None:
            await asyncio.wait([self._snapshot])
        await self._log.close()


async def _is_host(name: str) -> bool:
    """Whether it is an IP address, or a name that can be resolved."""
    address = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    try:
        await asyncio.get_running_loop().getaddrinfo(address, None)
    except (OSError, ValueError):
        return False
    return True


# Those that a quota of their client bounds.
_BOUNDED_OPERATIONS: Mapping[type[m.Message], Callable[[Controller, Any, int, Mutations | None], Awaitable[Any]]] = {
    m.CreateTopicsRequest: Controller.create_topics,
    m.DeleteTopicsRequest: Controller.delete_topics,
    m.CreatePartitionsRequest: Controller.create_partitions,
}
_OPERATIONS: Mapping[type[m.Message], Callable[[Controller, Any, int], Awaitable[Any]]] = {
    m.ElectLeadersRequest: lambda controller, request, _: controller.elect_leaders(request),
    m.UpdateFeaturesRequest: Controller.update_features,
    m.UnregisterBrokerRequest: lambda controller, request, _: controller.unregister_broker(request),
    m.UnregisterControllerRequest: lambda controller, request, _: controller.unregister_controller(request),
    m.AddRaftVoterRequest: lambda controller, request, _: controller.add_raft_voter(request),
    m.RemoveRaftVoterRequest: lambda controller, request, _: controller.remove_raft_voter(request),
    m.AlterConfigsRequest: lambda controller, request, _: controller.alter_configs(request),
    m.AlterClientQuotasRequest: lambda controller, request, _: controller.alter_client_quotas(request),
    m.AlterUserScramCredentialsRequest: (
        lambda controller, request, _: controller.alter_user_scram_credentials(request)
    ),
    m.IncrementalAlterConfigsRequest: lambda controller, request, _: controller.incremental_alter_configs(request),
}
