"""New log dirs. Controllers are formatted by Apache Kafka's own storage tool, all in one quorum (KIP-853); a broker
needs no more than its `meta.properties`, and the same one whichever program runs it. Blocks. Fails with `ClusterError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pybroker.cluster.jars import run_tool
from pybroker.cluster.layout import Layout, Node
from pybroker.cluster.settings import RELEASES
from pybroker.protocol.uuids import uuid_from_text
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.files.modes import make_directory

_STORAGE_TOOL = "kafka.tools.StorageTool"


def format_broker(layout: Layout, node: Node, log_dir: Path) -> None:
    """Make `log_dir` that broker's."""
    make_directory(log_dir, exist_ok=True)
    MetaProperties(node.node_id, layout.cluster_id, uuid_from_text(node.directory_id)).write(log_dir)


def format_controllers(layout: Layout, properties_paths: Sequence[Path]) -> None:
    """Format the log dirs of all controllers, whose `server.properties` are given in their order."""
    voters = ",".join(f"{node.node_id}@{node.address}:{node.directory_id}" for node in layout.controllers)
    options = ["--cluster-id", layout.cluster_id, "--initial-controllers", voters]
    release = RELEASES[layout.controller_version]
    options += ["--release-version", release.metadata_version]
    for name, level in release.feature_levels.items():
        options += ["--feature", f"{name}={level}"]

    def format_one(path: Path) -> None:
        run_tool(_STORAGE_TOOL, "format", "--config", str(path), *options, version=layout.controller_version)

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(format_one, path) for path in properties_paths]:
            done.result()
