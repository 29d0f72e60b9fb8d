"""From a cluster back to one broker: the metadata of stopped controllers become those of the broker that has it all.

All nodes are stopped, and every partition has this broker for its only replica. The controllers' log dirs are read and
stay as they are. Blocks on the disk. Fails with `ClusterError`, `StorageError`, `MetadataError` or OSError.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from pybroker.cluster import log_dir_checks, metadata_checks
from pybroker.cluster.controller_dirs import voter_of, write_metadata_log
from pybroker.cluster.growing import own_identity, set_aside_name, with_cluster_id
from pybroker.cluster.handover import to_single
from pybroker.config.broker import BrokerConfig
from pybroker.doctor.finding import Finding, Severity
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.log_files import PARTITION_DIRECTORY
from pybroker.metadata.offline import Replayed, newest
from pybroker.storage.files import clean_shutdown
from pybroker.storage.files.atomic import fsync_directory
from pybroker.storage.files.directory_lock import DirectoryLock
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.offline.layout import LogDirFiles, PartitionFiles


def examine_shrinking(config: BrokerConfig, controller_dirs: Sequence[Path]) -> list[Finding]:
    """The obstacles to running the broker of these settings, those of a single broker, on its own. `controller_dirs`
    are log dirs of more than half of the voters."""
    found: list[Finding] = []
    directories = [*log_dir_checks.of_broker(config), *controller_dirs]
    properties = dict(log_dir_checks.identified(directories, found))
    found += _settings(config)
    if len(properties) < len(set(directories)):
        return found
    own = {path: properties[path] for path in config.log_dirs}
    found += log_dir_checks.one_broker(own)
    for path in config.log_dirs:
        found += log_dir_checks.unclean(path, Severity.ERROR)
    partitions = [partition for path in own for partition in LogDirFiles.of(path).partitions]
    before = _committed(controller_dirs)
    found += metadata_checks.coordinators(before.image, config.node_id, partitions)
    found += metadata_checks.finalised(before.image)
    found += metadata_checks.registration(before.image, config.node_id, own)
    found += _voters(before.image, [properties[path] for path in controller_dirs], properties[config.metadata_log_dir])
    found += _epochs(before.image, config)
    found += _elsewhere(before.image, config.node_id)
    return found


def _committed(controller_dirs: Sequence[Path]) -> Replayed:
    """The state of the controller that would be elected: among more than half of them, its log holds every committed
    record."""
    return newest(PartitionFiles.of(path / PARTITION_DIRECTORY) for path in controller_dirs)


def _settings(config: BrokerConfig) -> Iterator[Finding]:
    if config.joins_quorum:
        yield Finding(
            Severity.ERROR,
            "settings",
            "process.roles",
            "these settings are of a broker that joins controllers",
            "it shall keep its own metadata",
            "give the server.properties with which it is to run alone",
        )
    if (config.metadata_log_dir / PARTITION_DIRECTORY).exists():
        yield Finding(
            Severity.ERROR,
            "metadata",
            str(config.metadata_log_dir / PARTITION_DIRECTORY),
            "there is a metadata log already",
            "it is the broker's own, or of what Apache Kafka's broker followed",
            "move it away if it is old",
        )


def _voters(image: MetadataImage, given: Sequence[MetaProperties], own: MetaProperties) -> Iterator[Finding]:
    voters = {voter.id for voter in image.quorum.voters}
    have = {each.node_id for each in given}
    if voters and len(voters & have) * 2 <= len(voters):
        yield Finding(
            Severity.ERROR,
            "controller",
            f"nodes {', '.join(map(str, sorted(have)))}",
            f"the voters are {', '.join(map(str, sorted(voters)))}, and these are not more than half of them",
            "what one of them has may lack what others have committed",
            "give --controller-dir for more of them",
        )
    if any(each.cluster_id != own.cluster_id for each in given):
        yield Finding(
            Severity.ERROR,
            "identity",
            own.cluster_id,
            "the controllers are of another cluster",
            "their metadata say nothing of this broker's records",
            "give the log dirs of this cluster's controllers",
        )


def _epochs(image: MetadataImage, config: BrokerConfig) -> Iterator[Finding]:
    broker = image.cluster.brokers.get(config.node_id)
    epochs = {clean_shutdown.read(path) for path in config.log_dirs} - {None}
    if broker is not None and epochs and epochs != {broker.epoch}:
        yield Finding(
            Severity.ERROR,
            "broker-epoch",
            f"node {config.node_id}",
            f"it was stopped under epoch {', '.join(map(str, epochs))}, and the metadata know epoch {broker.epoch}",
            "the metadata are older than the broker's records, or newer",
            "give the log dirs that the controllers had last",
        )


def _elsewhere(image: MetadataImage, node_id: int) -> Iterator[Finding]:
    for topic in sorted(image.topics.by_name.values(), key=lambda each: each.name):
        if any(each.replicas != (node_id,) for each in topic.partitions.values()):
            yield Finding(
                Severity.ERROR,
                "replicas",
                topic.name,
                f"not all of its partitions have broker {node_id} for their only replica",
                "what is elsewhere is not here, and nobody else will be in sync",
                f"start the cluster, and `pybroker topics reassign --topic {topic.name} --replication-factor 1 "
                f"--broker-list {node_id} --execute`",
            )


def shrink(config: BrokerConfig, controller_dirs: Sequence[Path], now_ms: int) -> None:
    """Give the broker a metadata log of its own. `examine_shrinking` has found no errors."""
    directory = config.metadata_log_dir
    with ExitStack() as stack:
        for path in dict.fromkeys([*log_dir_checks.of_broker(config), *controller_dirs]):
            stack.enter_context(DirectoryLock(path))
        identity = own_identity(config).completed(directory)
        before = with_cluster_id(_committed(controller_dirs), identity)
        listener = config.controller_listener
        voter = voter_of(config.node_id, identity.directory_id, listener.name, listener.host, listener.port)
        target = directory / PARTITION_DIRECTORY
        # The next start of any broker removes the leftovers of a crash.
        scratch = set_aside_name(target)
        write_metadata_log(scratch, to_single(before, voter, now_ms), [config.node_id], now_ms)
        os.rename(scratch, target)
        fsync_directory(directory)
