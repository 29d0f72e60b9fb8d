"""The contents of a stopped broker's log dirs: how it stopped, damage, files kept aside, records that wait in tail
rings, and whether its metadata can be read. In a running broker's dirs only names are looked at: the files change
meanwhile.

Everything is read, up to `_MOST_BYTES`; of larger log dirs the metadata log alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import Subject
from pybroker.metadata import features, log_files
from pybroker.metadata.errors import MetadataError
from pybroker.metadata.offline import check_metadata, replay
from pybroker.profiles.sizes import format_bytes
from pybroker.storage.errors import StorageError
from pybroker.storage.files import clean_shutdown, offset_checkpoint
from pybroker.storage.files.meta_properties import FILE_NAME as META_PROPERTIES
from pybroker.storage.offline.checks.check import check
from pybroker.storage.offline.checks.findings import Finding as FileFinding
from pybroker.storage.offline.checks.findings import Report
from pybroker.storage.offline.layout import LogDirFiles, PartitionFiles

_MOST_BYTES = 4 << 30
_DAMAGED = "damaged"
_REPAIR = "the next start serves what is intact; `pybroker log repair` saves it to another directory before that"


@dataclass(frozen=True, slots=True)
class _Cause:
    """The meaning of a kind of `pybroker log check` for the operator."""

    severity: Severity
    kind: str
    why: str
    remedy: str


_BATCH = _Cause(
    Severity.ERROR,
    "damaged-batch",
    "bytes have changed that were written: a disk, its cable or memory, or a program that is no broker. Those records "
    "cannot be read",
    f"look for errors of the disk (`dmesg`, `smartctl -a`); {_REPAIR}",
)
_TORN = _Cause(
    Severity.WARNING,
    "torn-tail",
    "the broker was killed, or the power failed, in the middle of a write: nothing that was flushed is in it",
    "nothing: the next start cuts it off, and keeps the bytes beside the log",
)
_INDEX = _Cause(
    Severity.WARNING,
    "damaged-index",
    "with a wrong index reads begin at the wrong place; it can be made again from the log",
    "nothing, if the log is intact: the next start makes it again. To be sure, stop the broker and move the file aside",
)
_CHECKPOINT = _Cause(
    Severity.WARNING,
    "damaged-checkpoint",
    "without it the broker reads logs from their beginning, and retention and cleaning start over",
    "start the broker: it makes the file anew, or says what it needs",
)
_METADATA = _Cause(
    Severity.ERROR,
    "metadata-damaged",
    "which topics and settings there are is written there: the broker does not start, or without some of them",
    "restore __cluster_metadata-0 from a backup, or save what there is with `pybroker log repair`, and see "
    "what is missing with `pybroker metadata accept`",
)
_RING = _Cause(
    Severity.WARNING,
    "tail-ring-left",
    "the broker was killed: its last acknowledged records are in memory alone, until a start brings them in",
    "start the broker before this machine is restarted, and let nothing clean that directory up",
)
_LOST_RING = _Cause(
    Severity.ERROR,
    "tail-rings-lost",
    "something else removed or damaged them while the broker was down: what was acknowledged last may be gone",
    "put them back if you can, before a start; then keep tmpfiles, cron jobs and containers away from that directory",
)
_STRAY = _Cause(
    Severity.WARNING,
    "stray-partition",
    "it takes room, and no broker reads or removes it",
    "`pybroker log stray list` says of which topic it is, and `pybroker log stray restore` takes it back",
)
_OTHER = _Cause(
    Severity.WARNING,
    "inconsistent-files",
    "files of a log dir contradict each other: somebody changed them, or they come from different times",
    f"`pybroker log check` has all of it; {_REPAIR}",
)
_UNREADABLE = _Cause(
    Severity.ERROR,
    "unreadable",
    "the disk, or the rights of this user, do not give it out",
    "look for errors of the disk (`dmesg`, `smartctl -a`), and run the doctor as the broker's user",
)
_CAUSES = {
    **dict.fromkeys(("crc", "garbage", "header", "records", "offset-order", "base-offset", "offset-range"), _BATCH),
    "torn-tail": _TORN,
    **dict.fromkeys(("index-entry", "index-size", "index-missing", "orphan-index"), _INDEX),
    **dict.fromkeys(("time-index-entry", "time-index-short", "transaction-index"), _INDEX),
    **dict.fromkeys(("checkpoint-offset", "checkpoint-partition", "malformed"), _CHECKPOINT),
    **dict.fromkeys(("metadata", "metadata-end", "metadata-topic", "quorum-state", "snapshot"), _METADATA),
    **dict.fromkeys(("tail-ring", "tail-ring-unknown"), _RING),
    **dict.fromkeys(("tail-rings-lost", "tail-ring-damaged", "tail-ring-stale"), _LOST_RING),
    "left-over-stray": _STRAY,
    "unreadable": _UNREADABLE,
}
#: Told by other checks, with more to say.
_ELSEWHERE = ("left-over-damaged",)
#: Findings that every killed broker leaves: it writes indexes behind the log.
_UNFINISHED = ("index-missing",)


def _stopped(subject: Subject) -> Iterator[Path]:
    """The log dirs that nobody writes to."""
    return (path for path in subject.log_dirs if path not in subject.holders and (path / META_PROPERTIES).is_file())


def _unclean(subject: Subject) -> Iterator[Finding]:
    """The mark of a stop in order."""
    for path in _stopped(subject):
        has_run = any(partition.logs for partition in LogDirFiles.of(path).partitions)
        if not has_run or clean_shutdown.read(path) is not None:
            continue
        unflushed_bytes = _unflushed_bytes(path)
        yield Finding(
            Severity.WARNING,
            "unclean-stop",
            str(path),
            "its broker was not stopped in order (killed, crashed, or the power failed): "
            f"{format_bytes(unflushed_bytes)} of its logs had not been flushed",
            "after a loss of power some of that may be gone; without one, everything acknowledged is there",
            "nothing: the next start checks these bytes and cuts what is torn. Find out who killed it: "
            "`journalctl -u pybroker`, `dmesg` for an end by lack of memory",
        )


def _unflushed_bytes(path: Path) -> int:
    """The bytes of segments beyond the recovery points."""
    try:
        flushed = offset_checkpoint.read(path / offset_checkpoint.RECOVERY_POINT)
    except StorageError:
        flushed = {}
    total_bytes = 0
    for partition in LogDirFiles.of(path).partitions:
        recovery_point = flushed.get((partition.topic, partition.index), 0)
        ends = [*(base_offset for base_offset, _ in partition.logs[1:]), None]
        # A partition that has no log yet has one end too many.
        for (_, log), end in zip(partition.logs, ends, strict=False):
            if not partition.is_metadata_log and (end is None or end > recovery_point):
                total_bytes += log.stat().st_size
    return total_bytes


def _contents(subject: Subject) -> Iterator[Finding]:
    """The findings of `pybroker log check`."""
    for path in _stopped(subject):
        files = LogDirFiles.of(path)
        size_bytes = sum(log.stat().st_size for partition in files.partitions for _, log in partition.logs)
        targets: list[LogDirFiles | PartitionFiles] = [files]
        if size_bytes > _MOST_BYTES:
            targets = [each for each in files.partitions if each.is_metadata_log]
            what = f"its logs have {format_bytes(size_bytes)}, and were not read"
            why = "reading them takes long; damage in them is not known"
            yield Finding(Severity.NOTE, "not-read", str(path), what, why, f"`pybroker log check {path}` reads them")
        report = Report()
        for target in targets:
            check(target, report, deep=False, check_metadata=check_metadata)
        is_clean = clean_shutdown.read(path) is not None
        yield from _told([each for each in report.faults if is_clean or each.kind not in _UNFINISHED])


def _told(faults: Iterable[FileFinding]) -> Iterator[Finding]:
    """One finding for all of a cause in a directory."""
    together: dict[tuple[str, Path], list[FileFinding]] = {}
    causes = {}
    for each in faults:
        if (
            each.kind in _ELSEWHERE
            or _is_unused(each)
            or each.path.name == META_PROPERTIES
            or each.text.startswith("there is no meta.prop")
        ):
            continue
        cause = _METADATA if _is_metadata(each) else _CAUSES.get(each.kind, _OTHER)
        causes[cause.kind] = cause
        together.setdefault((cause.kind, each.path.parent), []).append(each)
    for (kind, _), found in together.items():
        cause, first = causes[kind], found[0]
        place = str(first.path) if first.position is None else f"{first.path}@{first.position}"
        what = first.text + (f" (and {len(found) - 1} more in that directory)" if len(found) > 1 else "")
        yield Finding(cause.severity, kind, place, what, cause.why, cause.remedy)


def _is_unused(each: FileFinding) -> bool:
    """Whether a file is missing that the first start of a broker makes."""
    return (
        each.kind == "file-missing"
        and each.path.name == log_files.PARTITION_DIRECTORY
        and not any(log.stat().st_size for log in each.path.glob("*.log"))
    )


def _is_metadata(each: FileFinding) -> bool:
    inside = log_files.PARTITION_DIRECTORY in each.path.parts
    return inside and _CAUSES.get(each.kind) not in (_TORN, _INDEX, _UNREADABLE)


def _kept(subject: Subject) -> Iterator[Finding]:
    """Bytes that a broker took off a log because they were damaged."""
    for path in subject.log_dirs:
        if not path.is_dir():
            continue
        for partition in LogDirFiles.of(path).partitions:
            kept = [each for why, each in partition.aside if why == _DAMAGED]
            if kept:
                size_bytes = sum(each.stat().st_size for each in kept)
                yield Finding(
                    Severity.WARNING,
                    "damage-kept",
                    str(kept[0]),
                    f"{len(kept)} files with {format_bytes(size_bytes)} that a start cut off {partition.name} because "
                    "they were damaged",
                    "records may be in them that consumers do not get any more; no broker reads them",
                    "`pybroker log dump` shows what is in them; move them to a backup to free the room, and see to "
                    "the disk (`dmesg`, `smartctl -a`)",
                )


def _levels(subject: Subject) -> Iterator[Finding]:
    """Features of the cluster that this broker does not serve."""
    path = subject.config.metadata_log_dir
    directory = path / log_files.PARTITION_DIRECTORY
    if path in subject.holders or subject.config.joins_quorum or not directory.is_dir():
        return
    try:
        image = replay(PartitionFiles.of(directory)).image
    except MetadataError:
        return  # `_contents` says so
    yield from _older_levels(directory, image.feature_levels)
    unserved = features.unserved(image.feature_levels)
    if not unserved:
        return
    told = [
        f"{name} at level {level} (served up to {features.SUPPORTED.get(name, (0, 0))[1]})"
        for name, level in sorted(unserved.items())
    ]
    # Every dir that Apache Kafka has set up has some, and clients see by the APIs that are offered what there is.
    is_metadata = features.METADATA_VERSION in unserved
    yield Finding(
        Severity.WARNING if is_metadata else Severity.NOTE,
        "unserved-feature",
        str(directory),
        f"the cluster has {', '.join(told)}",
        "the log may have records that this broker does not understand"
        if is_metadata
        else "clients that need them (transactions, new kinds of groups) are not served; the others are",
        "a newer pybroker, or `kafka-features.sh downgrade` with the broker that wrote it"
        if is_metadata
        else "nothing, where no client needs them",
    )


def _older_levels(directory: Path, levels: Mapping[str, int]) -> Iterator[Finding]:
    """A cluster keeps the levels that it has until somebody raises them."""
    for name, newest in features.BOOTSTRAP_LEVELS.items():
        level = levels.get(name, 0)
        if level >= newest or features.METADATA_VERSION not in levels:
            continue
        is_metadata = name == features.METADATA_VERSION
        needs = [
            f"{other} at level {least} or more"
            for other, least in features.DEPENDENCIES.get((name, newest), {}).items()
            if levels.get(other, 0) < least
        ]
        yield Finding(
            Severity.NOTE,
            "older-metadata-version" if is_metadata else "older-feature-level",
            str(directory),
            f"the cluster has {name} at level {level}; new ones begin with {newest}",
            "what newer levels brought is not available, and an older broker can still open the directory",
            f"with the broker running, `{features.upgrade_command(name)}`, when no older broker is to open it any more"
            + (f"; it needs {', '.join(needs)}" if needs else ""),
        )


CHECKS = (_unclean, _contents, _kept, _levels)
