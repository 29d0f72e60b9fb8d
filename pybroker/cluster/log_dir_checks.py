"""Findings about the log dirs of a broker that becomes another's, or another kind of node. The subjects are their
owner, the processes that hold them, the state they were left in, and their contents. Reads only. Blocks. Fails with
OSError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pybroker.config.broker import BrokerConfig
from pybroker.doctor.finding import Finding, Severity
from pybroker.storage.errors import StorageError
from pybroker.storage.files import clean_shutdown, directory_lock
from pybroker.storage.files.meta_properties import FILE_NAME as META_PROPERTIES
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.offline.layout import PartitionFiles

#: Where a batch has its magic, whatever it is; and the one that is served.
_MAGIC_POSITION, _MAGIC = 16, 2


def of_broker(config: BrokerConfig) -> list[Path]:
    """All that a broker of these settings opens, each once."""
    return list(dict.fromkeys([*config.log_dirs, config.metadata_log_dir]))


def identified(paths: Iterable[Path], found: list[Finding]) -> Iterator[tuple[Path, MetaProperties]]:
    """Those that say whose they are, in turn. Which do not, and which are in use, goes to `found` as it is met."""
    for path in paths:
        properties = identity(path, found)
        if properties is not None:
            found += in_use(path)
            yield path, properties


def identity(path: Path, found: list[Finding]) -> MetaProperties | None:
    """The identity in that dir; None, with a finding, when nothing tells it."""
    why = "nothing says which broker it is"
    try:
        properties = MetaProperties.read(path) if path.is_dir() else None
    except StorageError as error:
        remedy = "set the file right as its text says, and look again"
        found.append(Finding(Severity.ERROR, "identity", str(path), str(error), why, remedy))
        return None
    if properties is None:
        what = f"it has no {META_PROPERTIES}" if path.is_dir() else "it is no directory"
        remedy = "give the directories of log.dirs"
        found.append(Finding(Severity.ERROR, "identity", str(path), what, why, remedy))
    return properties


def in_use(path: Path) -> Iterator[Finding]:
    """Whether a broker has it."""
    holder = directory_lock.holder(path)
    if holder is not None:
        yield Finding(
            Severity.ERROR,
            "in-use",
            str(path),
            f"process {holder} has it",
            "two brokers cannot share a log dir, and what is read while one writes is not what it will be",
            "stop that broker with SIGTERM, and wait for its end",
        )


def unclean(path: Path, severity: Severity = Severity.WARNING) -> Iterator[Finding]:
    """Whether its broker has ended without closing it; how bad that is depends on what is to come."""
    if directory_lock.holder(path) is None and clean_shutdown.read(path) is None:
        yield Finding(
            severity,
            "unclean",
            str(path),
            "the broker was not stopped in order",
            "its logs are read and checked at the next start, which takes time, and the controller does not count on "
            "it as a leader until then",
            "start it as it was, let it catch up, and stop it with SIGTERM",
        )


def one_broker(properties: dict[Path, MetaProperties]) -> Iterator[Finding]:
    """Whether all are of one broker."""
    first, *others = properties
    for path in others:
        try:
            properties[path].check(path, properties[first].node_id, properties[first].cluster_id)
        except StorageError as error:
            yield Finding(
                Severity.ERROR, "identity", str(path), str(error), "a broker has one id in one cluster", "leave it out"
            )


def twice(partitions: Sequence[PartitionFiles]) -> Iterator[Finding]:
    """Whether a partition lies in two of the directories."""
    seen: dict[tuple[str, int], Path] = {}
    for each in partitions:
        other = seen.setdefault((each.topic, each.index), each.path)
        if other != each.path:
            yield Finding(
                Severity.ERROR,
                "log-dirs",
                each.name,
                f"it lies in {other.parent} and in {each.path.parent}",
                "nothing says which of them is the one that clients have written to",
                "compare them with `pybroker log stats`, and take one away",
            )


def old_formats(partitions: Sequence[PartitionFiles]) -> Iterator[Finding]:
    """Whether a segment begins with messages of a format of before Kafka 0.11."""
    for each in partitions:
        old = [path for _, path in each.logs if _is_old(path)]
        if old:
            yield Finding(
                Severity.ERROR,
                "message-format",
                each.name,
                f"{len(old)} of its segments, such as {old[0].name}, have messages of magic 0 or 1",
                "pybroker reads magic 2 alone, which there is since Kafka 0.11: fetches of the rest fail",
                "copy the topic with a consumer and a producer while Apache Kafka still serves it",
            )


def _is_old(log: Path) -> bool:
    with open(log, "rb") as file:
        head = file.read(_MAGIC_POSITION + 1)
    return len(head) > _MAGIC_POSITION and head[_MAGIC_POSITION] < _MAGIC and any(head)
