"""Checks, by its log dirs, whether pybroker can take over from a stopped broker of Apache Kafka. Reads only.

Looks at the dirs' identity, at the processes that hold them and at the metadata the broker had followed. It also looks
at the partitions there, at the format they begin in, and at the broker's settings if given. It does not read the logs:
`pybroker log check` does. Blocks. Fails with OSError.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pybroker.cluster import log_dir_checks, metadata_checks
from pybroker.cluster.settings_checks import settings
from pybroker.doctor.finding import Finding
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.offline.layout import LogDirFiles


def examine_adoption(log_dirs: Sequence[Path], server_properties: Path | None = None) -> list[Finding]:
    """The faults of these log dirs, all of one broker, and of its server.properties."""
    found: list[Finding] = []
    properties: dict[Path, MetaProperties] = {}
    for path, identity in log_dir_checks.identified(log_dirs, found):
        properties[path] = identity
        found += log_dir_checks.unclean(path)
    if server_properties is not None:
        found += settings(server_properties, properties)
    if not properties:
        return found
    found += log_dir_checks.one_broker(properties)
    found += _content(properties, found)
    return found


def _content(properties: dict[Path, MetaProperties], found: list[Finding]) -> list[Finding]:
    """About partitions and metadata; that there are none of these goes to `found` itself."""
    node_id = next(iter(properties.values())).node_id
    partitions = [partition for path in properties for partition in LogDirFiles.of(path).partitions]
    of_topics = [partition for partition in partitions if not partition.is_metadata_log]
    replayed = metadata_checks.replayed(partitions, properties, found)
    image = None if replayed is None else replayed.image
    more = [
        *log_dir_checks.twice(of_topics),
        *log_dir_checks.old_formats(of_topics),
        *metadata_checks.coordinators(image, node_id, of_topics),
    ]
    if image is not None:
        more += metadata_checks.finalised(image)
        more += metadata_checks.roles(image, node_id)
        more += metadata_checks.controller_listeners(image, node_id)
        more += metadata_checks.registration(image, node_id, properties)
        more += metadata_checks.lost_replicas(image, node_id, properties)
        more += metadata_checks.dynamic_settings(image, node_id)
        more += metadata_checks.topic_settings(image, of_topics)
        more += metadata_checks.without_effect(image)
        more += metadata_checks.tiered(image, of_topics)
    return more
