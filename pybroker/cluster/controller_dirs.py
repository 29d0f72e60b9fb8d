"""Log dirs of Apache Kafka's controllers that begin with metadata that there is already: a snapshot, and no log yet.

They look as though each voter had just fetched the snapshot of a leader. Any elected controller goes on from its end.
Blocks on the disk. Fails with OSError; MetadataError when what was written is not what was to be written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pybroker.cluster.errors import ClusterError
from pybroker.config.listeners import format_address, parse_address
from pybroker.metadata import snapshot
from pybroker.metadata.bootstrap import BOOTSTRAP_FILE
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.image import NO_LEADER, MetadataImage, Voter
from pybroker.metadata.log_files import PARTITION_DIRECTORY, SnapshotId
from pybroker.metadata.offline import read_snapshot
from pybroker.metadata.quorum_state import QuorumState
from pybroker.metadata.records import VersionedRecord
from pybroker.protocol import messages as m
from pybroker.protocol.uuids import METADATA_TOPIC_ID, random_uuid
from pybroker.storage.files import partition_metadata
from pybroker.storage.files.atomic import fsync_directory
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.files.modes import DIRECTORY_MODE, FILE_MODE, make_directory
from pybroker.storage.offline.layout import PartitionFiles

LISTENER = "CONTROLLER"
_KRAFT_VERSIONS = (0, 1)
#: The parts of an image that must read back as they were written.
_PARTS = (
    "provenance",
    "feature_levels",
    "cluster",
    "topics",
    "configs",
    "next_producer_id",
    "client_quotas",
    "scram_credentials",
    "retained",
)


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """A controller to be: its id, the address by which others reach it, and the id of its log dir."""

    node_id: int
    host: str
    port: int
    directory_id: bytes

    @classmethod
    def parse(cls, text: str) -> ControllerNode:
        """`100@host:9093`, as in controller.quorum.voters. ClusterError for anything else."""
        node, _, rest = text.partition("@")
        address = parse_address(rest)
        if not (node.isascii() and node.isdecimal()) or address is None or int(node) >= 1 << 31:
            raise ClusterError(f"--controller {text}: accepted is ID@HOST:PORT")
        return cls(int(node), *address, random_uuid())

    @property
    def address(self) -> str:
        """`host:port`."""
        return format_address(self.host, self.port)

    @property
    def voter(self) -> Voter:
        """As the VotersRecord names it."""
        return voter_of(self.node_id, self.directory_id, LISTENER, self.host, self.port)


def voter_of(node_id: int, directory_id: bytes, listener: str, host: str, port: int) -> Voter:
    """A voter as the VotersRecord names it."""
    return Voter(node_id, directory_id, ((listener, host, port),), _KRAFT_VERSIONS)


def write_controller_dir(path: Path, node: ControllerNode, image: MetadataImage, now_ms: int) -> None:
    """Make `path`, which is not there yet, the log dir of that controller. meta.properties is written last."""
    make_directory(path)
    levels = [
        VersionedRecord(m.FeatureLevelRecord(name=name, feature_level=level), 0)
        for name, level in sorted(image.feature_levels.items())
    ]
    snapshot.write_snapshot(path / BOOTSTRAP_FILE, 0, now_ms, 0, None, levels, mode=FILE_MODE)
    write_metadata_log(path / PARTITION_DIRECTORY, image, [node.node_id], now_ms)
    MetaProperties(node.node_id, image.cluster_id, node.directory_id).write(path)
    fsync_directory(path.parent)


def write_metadata_log(directory: Path, image: MetadataImage, voter_ids: Sequence[int], now_ms: int) -> None:
    """Make `directory`, which is not there yet, a metadata log that is a snapshot of `image` alone; read it again."""
    directory.mkdir(DIRECTORY_MODE)
    snapshot_id, _ = snapshot.write_image(directory, image, now_ms)
    partition_metadata.write(directory, METADATA_TOPIC_ID)
    QuorumState(NO_LEADER, image.provenance.epoch, tuple(voter_ids)).write(directory, image.quorum.kraft_version)
    fsync_directory(directory.parent)
    _check(directory, snapshot_id, image)


def _check(directory: Path, snapshot_id: SnapshotId, image: MetadataImage) -> None:
    (written,) = PartitionFiles.of(directory).metadata_snapshots
    found = read_snapshot(written)
    for part in _PARTS:
        if getattr(found, part) != getattr(image, part):
            raise MetadataError(f"{directory}/{snapshot_id.file_name} was written, and its {part} read differently")
    if found.quorum.voters != image.quorum.voters:
        raise MetadataError(f"{directory}/{snapshot_id.file_name} was written, and its voters read differently")
