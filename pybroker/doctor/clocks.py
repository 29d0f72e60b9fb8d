"""Time: records and files of the future, which retention keeps for too long, or forever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from pybroker.client.cluster import Cluster
from pybroker.client.topics import describe
from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import TIMEOUT_S, Subject
from pybroker.native.walk import EVERY, SegmentWalk
from pybroker.protocol import messages as m
from pybroker.storage.offline.layout import LogDirFiles, PartitionFiles

#: Clocks of machines that are synchronised differ by less.
_AHEAD_MS = 120_000
_MOST_WALKED_BYTES = 256 << 20
_MOST_PARTITIONS = 500
_MAX_TIMESTAMP = -3
_WHY_RECORDS = (
    "retention by time goes by the newest timestamp of a segment: it keeps this one until that time has passed, and "
    "consumers that look up a time are led astray"
)
_REMEDY_RECORDS = (
    "set the clock of the producer right, or message.timestamp.type=LogAppendTime; message.timestamp.after.max.ms "
    "refuses such records. Those that are there are kept until their time has passed, unless retention.bytes is reached"
)


def _files(subject: Subject) -> Iterator[Finding]:
    """Files that were changed later than now."""
    now_s = time.time()
    for path in subject.log_dirs:
        if not path.is_dir():
            continue
        logs = [log for each in LogDirFiles.of(path).partitions for _, log in each.logs]
        late = [(log.stat().st_mtime, log) for log in logs if log.stat().st_mtime > now_s + _AHEAD_MS / 1000]
        if late:
            newest_s, log = max(late)
            yield Finding(
                Severity.WARNING,
                "clock-behind-files",
                str(log),
                f"it was written at {_moment(newest_s)}, and the clock of this machine says {_moment(now_s)} "
                f"({len(late)} such files)",
                "this machine's clock is behind, or was ahead: times of records, retention and sessions are off",
                "set the clock (`chronyc tracking`, `timedatectl`), and have it synchronised before the broker starts",
            )


def _stopped_records(subject: Subject) -> Iterator[Finding]:
    """The newest segment of each log that nobody writes to."""
    left_bytes = _MOST_WALKED_BYTES
    for path in subject.log_dirs:
        if path in subject.holders or not path.is_dir():
            continue
        for partition in LogDirFiles.of(path).partitions:
            if not partition.logs or partition.is_metadata_log:
                continue
            left_bytes -= partition.logs[-1][1].stat().st_size
            if left_bytes < 0:
                return
            yield from _late(_newest_ms(partition), partition.name, partition.logs[-1][1])


def _newest_ms(partition: PartitionFiles) -> int:
    base_offset, log = partition.logs[-1]
    rows = SegmentWalk().rows(log, base_offset, wanted=EVERY)
    return max((row.max_timestamp_ms for row in rows if row.is_intact), default=-1)


def _served_records(subject: Subject) -> Iterator[Finding]:
    """The newest record of each partition of a running broker."""
    if subject.address is None:
        return
    with Cluster([subject.address], timeout_seconds=TIMEOUT_S) as cluster:
        found = _newest_served(cluster)
    for name, timestamp_ms in found.items():
        yield from _late(timestamp_ms, name, None)


def _newest_served(cluster: Cluster) -> dict[str, int]:
    """topic-partition to the newest timestamp, -1 without one."""
    led = [(topic.name, each.index) for topic in describe(cluster) for each in topic.partitions if each.leader >= 0]
    topics: dict[str, list[m.ListOffsetsRequest.ListOffsetsPartition]] = {}
    for name, index in led[:_MOST_PARTITIONS]:
        wanted = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=_MAX_TIMESTAMP)
        topics.setdefault(name, []).append(wanted)
    asked = [m.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()]
    request = m.ListOffsetsRequest(replica_id=-1, topics=asked, timeout_ms=cluster.timeout_ms)
    answer = cluster.call(request)
    return {
        f"{topic.name}-{each.partition_index}": each.timestamp
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code == 0
    }


def _late(timestamp_ms: int, name: str, log: Path | None) -> Iterator[Finding]:
    now_ms = time.time() * 1000
    if timestamp_ms > now_ms + _AHEAD_MS:
        yield Finding(
            Severity.WARNING,
            "records-of-the-future",
            str(log or name),
            f"the newest record of {name} is of {_moment(timestamp_ms / 1000)}; now is {_moment(now_ms / 1000)}",
            _WHY_RECORDS,
            _REMEDY_RECORDS,
        )


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{seconds / 31_556_952:,.0f} years after 1970"


CHECKS = (_files, _stopped_records, _served_records)
