"""Joining a quorum: from the settings of a broker to a `QuorumController` with the cluster's metadata.

On the asyncio loop, at the start of the broker. Fails with `QuorumError`: the text says which setting is at fault, or
that nobody answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from pybroker.config.broker import BrokerConfig
from pybroker.config.listeners import parse_address
from pybroker.metadata.bootstrap import LogDirs
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode, ProtocolError, code_name
from pybroker.quorum.connection import Address, QuorumConnection
from pybroker.quorum.controller import QuorumController
from pybroker.quorum.errors import QuorumError
from pybroker.quorum.fetcher import FetcherSettings
from pybroker.quorum.leader import LeaderFinder
from pybroker.quorum.lifecycle import LifecycleSettings
from pybroker.quorum.stand_in import OpenHeartbeat
from pybroker.storage.files.meta_properties import MetaProperties

logger = logging.getLogger(__name__)

_CONTROLLERS = 2
_ASKING_INTERVAL_S = 0.5


def voters_of(config: BrokerConfig) -> dict[int, Address]:
    """The controllers that controller.quorum.voters names, by id."""
    found = {}
    for voter in config.get_list("controller.quorum.voters"):
        node, _, text = voter.partition("@")
        address = parse_address(text)
        if address is not None:
            found[int(node)] = address
    return found


def bootstrap_of(config: BrokerConfig) -> list[Address]:
    """Addresses at which controllers can be found."""
    servers = [parse_address(text) for text in config.get_list("controller.quorum.bootstrap.servers")]
    return [each for each in servers if each is not None] or list(voters_of(config).values())


async def find_cluster(config: BrokerConfig) -> str:
    """The id of the cluster whose controllers the settings name. QuorumError when none of them has answered in the time
    of initial.broker.registration.timeout.ms."""
    timeout_ms = config.get_int("initial.broker.registration.timeout.ms")
    request_timeout_s = config.get_int("controller.quorum.request.timeout.ms") / 1000
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
    troubles: dict[Address, str] = {}
    while True:
        for address in bootstrap_of(config):
            try:
                return await _cluster_of(address, config.node_id, request_timeout_s) or _recorded_cluster(config)
            except (OSError, ProtocolError) as error:
                trouble = _trouble(error)
                if address not in troubles:
                    logger.warning("controller %s:%d: %s; it is tried again", *address, trouble)
                troubles[address] = trouble
        if asyncio.get_running_loop().time() > deadline:
            names = "; ".join(f"{host}:{port}: {why}" for (host, port), why in troubles.items())
            raise QuorumError(
                f"no controller has answered in {timeout_ms} ms (initial.broker.registration.timeout.ms): {names}. "
                "Check controller.quorum.bootstrap.servers, whether the controllers run, and that the listener which "
                "controller.listener.names names first is one of PLAINTEXT there"
            )
        await asyncio.sleep(_ASKING_INTERVAL_S)


def _trouble(error: OSError | ProtocolError) -> str:
    text = str(error) or "it does not answer"
    if isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
        return f"{text}, as a listener of SSL or SASL does: those of PLAINTEXT are the ones that can be joined"
    return text


def _recorded_cluster(config: BrokerConfig) -> str:
    """The cluster that the log dirs belong to. The first answer to a Fetch says whether it is the controllers'."""
    for path in config.log_dirs:
        properties = MetaProperties.read(path)
        if properties is not None:
            return properties.cluster_id
    raise QuorumError(
        "the cluster's metadata.version is older than 3.7-IV0, so its controllers do not tell the cluster's id, and no "
        "directory of log.dirs names one: format them with `kafka-storage.sh format --cluster-id ID`, or raise "
        "metadata.version with `kafka-features.sh upgrade`"
    )


async def _cluster_of(address: Address, node_id: int, timeout_s: float) -> str | None:
    """The id of the cluster. None when the controllers do not tell it: at levels before 3.7-IV0 (KIP-919)."""
    connection = await QuorumConnection.open(address, f"broker-{node_id}-start", timeout_s)
    try:
        answer: Any = await connection.call(m.DescribeClusterRequest(endpoint_type=_CONTROLLERS), timeout_s)
    finally:
        connection.close()
    if answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE:
        raise ProtocolError("this is the listener of a broker, and one of a controller is needed")
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        return None
    if answer.error_code != ErrorCode.NONE:
        raise ProtocolError(f"DescribeCluster was answered with {code_name(answer.error_code)}")
    return str(answer.cluster_id)


async def join_quorum(
    config: BrokerConfig, log_dirs: LogDirs, on_failure: Callable[[str], None], open_heartbeat: OpenHeartbeat
) -> QuorumController:
    """A controller whose image has everything that is committed. This broker is not registered yet."""
    fetching = FetcherSettings(
        node_id=config.node_id,
        cluster_id=log_dirs.cluster_id,
        directory_id=log_dirs.metadata.directory_id,
        request_timeout_s=config.get_int("controller.quorum.request.timeout.ms") / 1000,
        retry_backoff_s=config.get_int("controller.quorum.retry.backoff.ms") / 1000,
        fetch_max_bytes=config.get_int("controller.quorum.fetch.max.bytes"),
        snapshot_max_bytes=config.get_int("controller.quorum.fetch.snapshot.max.bytes"),
    )
    living = LifecycleSettings(
        node_id=config.node_id,
        cluster_id=log_dirs.cluster_id,
        heartbeat_interval_s=config.get_int("broker.heartbeat.interval.ms") / 1000,
        session_timeout_s=config.get_int("broker.session.timeout.ms") / 1000,
        registration_timeout_s=config.get_int("initial.broker.registration.timeout.ms") / 1000,
    )
    finder = LeaderFinder(bootstrap_of(config), voters_of(config))
    controller = QuorumController(config, finder, fetching, living, on_failure, open_heartbeat)
    try:
        await controller.start()
    except BaseException:
        await controller.close()
        raise
    return controller
