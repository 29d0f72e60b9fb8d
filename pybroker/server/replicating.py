"""The parts of a broker in a cluster, put together from its configuration, data plane and controllers."""

from __future__ import annotations

from functools import partial

from pybroker.config.broker import BrokerConfig
from pybroker.native.broker import NativeBroker
from pybroker.native.fetcher import NativeFetcher
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, KafkaError
from pybroker.quorum.connection import Address, QuorumConnection
from pybroker.quorum.controller import QuorumController
from pybroker.quorum.errors import QuorumUnavailable
from pybroker.replication.alter_partition_manager import AlterPartitionManager
from pybroker.replication.fetcher_manager import ReplicaFetcherManager
from pybroker.replication.isr_manager import IsrManager
from pybroker.replication.partition_roles import Replication
from pybroker.server.add_partitions_to_txn_manager import AddPartitionsToTxnManager, Retries

#: A coordinator that is there answers at once.
_CONNECT_TIMEOUT_S = 5.0


class ControllerChannel:
    """See `AlterPartitionChannel`."""

    def __init__(self, controller: QuorumController) -> None:
        self._controller = controller

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration."""
        return self._controller.broker_epoch

    async def alter_partition(self, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
        """KafkaError when no controller answers."""
        try:
            return await self._controller.alter_partition(request)
        except QuorumUnavailable as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error


def replication_of(config: BrokerConfig, native: NativeBroker, controller: QuorumController) -> Replication:
    """For the replica manager of a broker that joined `controller`."""
    alter = AlterPartitionManager(config.node_id, ControllerChannel(controller))
    return Replication(
        IsrManager(config.node_id, alter, lambda: controller.config),
        ReplicaFetcherManager(
            config.node_id, config.inter_broker_listener, lambda: controller.config, partial(NativeFetcher, native)
        ),
    )


def verification_of(config: BrokerConfig, native: NativeBroker) -> AddPartitionsToTxnManager:
    """For the produced transactions of a broker whose cluster may have coordinators."""
    name = f"broker-{config.node_id}-transactions"

    async def connect(address: Address) -> QuorumConnection:
        return await QuorumConnection.open(address, name, _CONNECT_TIMEOUT_S)

    timeout_s = config.get_int("request.timeout.ms") / 1000
    limit_s = config.get_int("add.partitions.to.txn.retry.backoff.max.ms") / 1000
    retries = Retries(
        pause_s=config.get_int("add.partitions.to.txn.retry.backoff.ms") / 1000, limit_s=min(limit_s, timeout_s)
    )
    return AddPartitionsToTxnManager(config.inter_broker_listener, connect, timeout_s, native.verified, retries)
