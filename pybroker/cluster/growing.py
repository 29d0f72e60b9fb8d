"""From one broker to a cluster: its metadata become those of Apache Kafka's controllers, and it one of their brokers.

The broker is stopped. Everything new is written beside it, read again, and put in place at once. The metadata log
leaves the broker's log dir last, after a copy of it is kept. With that copy back in its place, nothing has happened.
Blocks on the disk. Fails with `ClusterError`, `StorageError`, `MetadataError` or OSError.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from pybroker.cluster import log_dir_checks, metadata_checks
from pybroker.cluster.controller_dirs import ControllerNode, write_controller_dir
from pybroker.cluster.errors import ClusterError
from pybroker.cluster.grown_settings import another_properties, broker_properties, controller_properties
from pybroker.cluster.handover import to_quorum
from pybroker.config.broker import BrokerConfig
from pybroker.config.properties import format_properties
from pybroker.doctor.finding import Finding, Severity
from pybroker.metadata import features
from pybroker.metadata.image import MetadataImage
from pybroker.metadata.log_files import PARTITION_DIRECTORY
from pybroker.metadata.offline import Replayed, replay
from pybroker.storage.dirs.log_directory import DELETED_SUFFIX
from pybroker.storage.files.atomic import fsync_directory, write_durably
from pybroker.storage.files.directory_lock import DirectoryLock
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.files.modes import DIRECTORY_MODE, READABLE_MODE, make_directory
from pybroker.storage.offline.layout import LogDirFiles, PartitionFiles

#: Voters in records need 3.9, eligible leader replicas 4.0 (KIP-853, KIP-966).
_LOWEST_METADATA_VERSION = 23
_KEPT = "single"
_OWN_PREFIX = "pybroker."


@dataclass(frozen=True, slots=True)
class Grown:
    """The directories that were written. `controllers` has the server.properties of each by node id, its log dir is
    beside it; `kept` is the metadata log that the broker had."""

    cluster_id: str
    controllers: dict[int, Path]
    broker: Path
    another: Path
    kept: Path


def examine_growth(config: BrokerConfig, controllers: Sequence[ControllerNode]) -> list[Finding]:
    """The obstacles to making that broker part of a cluster, and what to know beforehand. Errors are in the way."""
    found: list[Finding] = []
    properties = dict(log_dir_checks.identified(log_dir_checks.of_broker(config), found))
    for path in config.log_dirs if properties else ():
        # Here it is no matter of time: what a killed broker left is mended by its next start, as a single one.
        found += log_dir_checks.unclean(path, Severity.ERROR)
    found += _nodes(config, controllers)
    found += _addresses(config)
    if not properties:
        return found
    found += log_dir_checks.one_broker(properties)
    partitions = [partition for path in properties for partition in LogDirFiles.of(path).partitions]
    before = metadata_checks.replayed(partitions, properties, found)
    found += metadata_checks.coordinators(None if before is None else before.image, config.node_id, partitions)
    if before is not None:
        found += metadata_checks.finalised(before.image)
        found += _metadata(before.image, config.node_id, controllers)
        found += _own_settings(before.image)
        found += metadata_checks.without_effect(before.image)
        found += metadata_checks.tiered(before.image, partitions)
    return found


def _nodes(config: BrokerConfig, controllers: Sequence[ControllerNode]) -> Iterator[Finding]:
    if config.joins_quorum:
        yield Finding(
            Severity.ERROR,
            "settings",
            "process.roles",
            "these settings are of a broker that has joined controllers already",
            "its metadata is theirs",
            "give the server.properties with which it ran alone",
        )
    ids = [each.node_id for each in controllers]
    for node_id in sorted({each for each in ids if ids.count(each) > 1 or each == config.node_id}):
        who = "this broker's" if node_id == config.node_id else "that of two controllers"
        yield Finding(
            Severity.ERROR,
            "node-id",
            f"node {node_id}",
            f"the id is {who}",
            "every node of a cluster has an id of its own, controllers and brokers alike",
            "choose another id for the controller",
        )
    if len(controllers) % 2 == 0:
        yield Finding(
            Severity.NOTE,
            "controllers",
            f"{len(controllers)} controllers",
            "an even number of them bears no more losses than one less",
            "more than half of them have to run",
            "three controllers bear the loss of one",
        )


def _addresses(config: BrokerConfig) -> Iterator[Finding]:
    for listener in config.advertised_listeners:
        if listener.name == config.inter_broker_listener and _is_loopback(listener.host):
            yield Finding(
                Severity.WARNING,
                "address",
                str(listener),
                "brokers on other machines cannot reach it",
                "they are told this address, to replicate from this broker and to send clients to it",
                "set advertised.listeners to a name or address of this machine that the others know"
                + ("" if config.is_set("listeners") else ", and listeners to PLAINTEXT://:9092"),
            )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _metadata(image: MetadataImage, node_id: int, controllers: Sequence[ControllerNode]) -> Iterator[Finding]:
    if features.MIN_METADATA_VERSION <= image.metadata_version < _LOWEST_METADATA_VERSION:
        yield Finding(
            Severity.ERROR,
            "feature",
            features.METADATA_VERSION,
            f"it has level {image.metadata_version}, and a quorum takes {_LOWEST_METADATA_VERSION} at least",
            "voters that change, and eligible leader replicas, have no place in metadata of that level",
            f"start the broker, and `{features.UPGRADE_COMMAND}`",
        )
    voters = [voter.id for voter in image.quorum.voters]
    if voters not in ([], [node_id]):
        yield Finding(
            Severity.ERROR,
            "controller",
            f"node {node_id}",
            f"its metadata are those of the controllers {', '.join(map(str, voters))}",
            "there is a quorum already",
            "see `pybroker cluster adopt`",
        )
    taken = sorted({each.node_id for each in controllers} & set(image.cluster.brokers) - {node_id})
    if taken:
        yield Finding(
            Severity.ERROR,
            "node-id",
            f"node {taken[0]}",
            "the metadata know a broker of this id",
            "every node of a cluster has an id of its own, controllers and brokers alike",
            "choose another id for the controller",
        )


def _own_settings(image: MetadataImage) -> Iterator[Finding]:
    for topic in sorted(image.topics.by_name):
        own = sorted(key for key in image.topic_config(topic) if key.startswith(_OWN_PREFIX))
        if own:
            yield Finding(
                Severity.WARNING,
                "settings",
                f"topic {topic}: {', '.join(own)}",
                "they are pybroker's own, and Apache Kafka's controllers do not know them",
                "these refuse every change of the topic's settings as long as it has them",
                f"`pybroker configs alter --topic {topic} --delete-config {','.join(own)}`, and set them for brokers",
            )


def grow(config: BrokerConfig, controllers: Sequence[ControllerNode], output: Path, now_ms: int) -> Grown:
    """Makes the log dirs of the controllers below `output`, which must not exist yet, with the settings of every node.
    Takes the metadata log out of the broker's log dir. `examine_growth` has found no errors."""
    assert controllers
    output = output.absolute()
    if output.exists():
        raise ClusterError(f"{output} is there already: name another directory")
    with ExitStack() as stack:
        for path in log_dir_checks.of_broker(config):
            stack.enter_context(DirectoryLock(path))
        metadata_log = config.metadata_log_dir / PARTITION_DIRECTORY
        before = replay(PartitionFiles.of(metadata_log))
        before = with_cluster_id(before, own_identity(config))
        image = to_quorum(before, [each.voter for each in controllers], config.get_int("min.insync.replicas"), now_ms)
        _make_durably(output.parent)
        scratch = output.with_name(output.name + ".part")
        if scratch.exists():
            shutil.rmtree(scratch)
        _write(scratch, output, config, controllers, image, now_ms)
        keep_copy(metadata_log, scratch / _KEPT / PARTITION_DIRECTORY)
        fsync_directory(scratch)
        os.rename(scratch, output)
        fsync_directory(output.parent)
        remove_metadata_log(metadata_log)
    return Grown(
        image.cluster_id,
        {each.node_id: _controller_file(output, each) for each in controllers},
        output / f"broker-{config.node_id}.properties",
        output / "another-broker.properties",
        output / _KEPT / PARTITION_DIRECTORY,
    )


def _make_durably(directory: Path) -> None:
    """Make it, and those above it that are not there."""
    if not directory.exists():
        _make_durably(directory.parent)
        directory.mkdir(DIRECTORY_MODE)
        fsync_directory(directory.parent)


def own_identity(config: BrokerConfig) -> MetaProperties:
    """The identity of the broker that owns the metadata directory."""
    properties = MetaProperties.read(config.metadata_log_dir)
    if properties is None:
        raise ClusterError(f"{config.metadata_log_dir} has no meta.properties")
    return properties


def with_cluster_id(before: Replayed, identity: MetaProperties) -> Replayed:
    """With the cluster's id, which is not in the log but beside it."""
    return before.replace(image=before.image.replace(cluster_id=identity.cluster_id))


def _controller_file(directory: Path, node: ControllerNode) -> Path:
    return directory / f"controller-{node.node_id}" / "server.properties"


def _write(
    scratch: Path,
    output: Path,
    config: BrokerConfig,
    controllers: Sequence[ControllerNode],
    image: MetadataImage,
    now_ms: int,
) -> None:
    bootstrap = ",".join(each.address for each in controllers)
    for node in controllers:
        path = _controller_file(scratch, node)
        write_controller_dir(path.parent / "data", node, image, now_ms)
        data = _controller_file(output, node).parent / "data"
        write_durably(path, _text(controller_properties(config, node, bootstrap, data)), READABLE_MODE)
    write_durably(
        scratch / f"broker-{config.node_id}.properties", _text(broker_properties(config, bootstrap)), READABLE_MODE
    )
    write_durably(scratch / "another-broker.properties", _text(another_properties(config, bootstrap)), READABLE_MODE)


def _text(properties: dict[str, str]) -> bytes:
    return format_properties(properties).encode()


def keep_copy(source: Path, target: Path) -> None:
    """Copy a metadata log durably; `target` is not there yet."""
    make_directory(target)
    for entry in source.iterdir():
        copy = target / entry.name
        shutil.copy2(entry, copy)
        descriptor = os.open(copy, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    fsync_directory(target)
    fsync_directory(target.parent)


def remove_metadata_log(directory: Path) -> None:
    """Take it away: at once by its name, which the next start of a broker finishes if this process does not."""
    aside = set_aside_name(directory)
    os.rename(directory, aside)
    fsync_directory(directory.parent)
    shutil.rmtree(aside)


def set_aside_name(directory: Path) -> Path:
    """A name beside it that says that nobody needs what is there."""
    return directory.with_name(f"{directory.name}.{uuid.uuid4().hex}{DELETED_SUFFIX}")
