"""What a broker makes of damaged files: it is started, read from its first offset on, and written to.

The verdict says what became of every acknowledged record. `SILENT` verdicts are faults of the broker.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pybroker.protocol import messages as m
from pybroker.protocol import record_batch
from pybroker.protocol.errors import ErrorCode, ProtocolError
from pybroker.protocol.record_batch import Record
from pybroker.testing.protocol_client import ProtocolClient
from tests.harness.broker import BrokerProcess
from tests.harness.damage.template import COMMITTED_OFFSET, GROUP, TOPIC, Template
from tests.harness.process import ProcessFailed
from tests.harness.waiting import until

REFUSED = "does not start, says why"
REFUSED_SILENTLY = "DOES NOT START AND DOES NOT SAY WHICH FILE"
LOST = "loss is named"
LOST_SILENTLY = "SILENT LOSS"
REUSED = "OFFSET GIVEN OUT TWICE"
NAMED = "nothing lost, file is named"
UNNOTICED = "nothing lost"
CHECKED = "nothing lost, `log check` names the file"
REPORTED = "clients get an error, `log check` names the file"
FAULTS = (REFUSED_SILENTLY, LOST_SILENTLY, REUSED)
_READ_BYTES = 1 << 20
#: What the scrub finds in sealed segments some time later is another matter.
_LATER_MS = 600_000
#: The broker says it when it has read what its start has trusted.
_CHECKED_LINE = re.compile(r"the active segments of \d+ logs were checked")


@dataclass(frozen=True)
class Verdict:
    """One of the words above, and the log of the broker that was started."""

    word: str
    output: str


@dataclass
class _Seen:
    """What clients see: `read` by offset, errors of reading, the offset of a new record, the committed offset."""

    read: dict[int, bytes]
    errors: list[int]
    new_offset: int
    committed: int


def _read_all(client: ProtocolClient, end: int) -> tuple[dict[int, bytes], list[int]]:
    """All records below `end`, an offset that cannot be read is gone past, its error code kept."""
    found: dict[int, bytes] = {}
    errors: list[int] = []
    offset = 0
    while offset < end:
        row = client.fetch(TOPIC, offset, max_bytes=_READ_BYTES)
        after = offset
        try:
            for batch in record_batch.parse(row.records or b""):
                found.update({each.offset: each.value or b"" for each in batch.records})
                after = batch.base_offset + len(batch.records)
        except ProtocolError:
            errors.append(ErrorCode.CORRUPT_MESSAGE)
        if row.error_code != 0:
            errors.append(row.error_code)
        offset = after if after > offset else offset + 1
    return found, errors


def _append(client: ProtocolClient) -> int:
    """The offset of one more record, -1 when it is refused."""
    records = record_batch.build(0, -1, [Record(None, b"new")], timestamp_ms=0)
    partition = m.ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[partition])
    row = client.call(m.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic]), 9)
    answer = row.responses[0].partition_responses[0]
    return int(answer.base_offset) if answer.error_code == 0 else -1


def _committed(client: ProtocolClient) -> int:
    """The group's offset; -1 when there is none or its coordinator cannot say."""
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    request = m.OffsetFetchRequest(group_id=GROUP, topics=[topic])
    until(
        lambda: client.call(request, 7).error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        "the coordinator does not load its groups",
    )
    answer = client.call(request, 7)
    return int(answer.topics[0].partitions[0].committed_offset) if answer.error_code == 0 and answer.topics else -1


def _look(broker: BrokerProcess, acknowledged: dict[int, bytes]) -> _Seen:
    with ProtocolClient(broker.port) as client:
        new_offset = _append(client)
        read, errors = _read_all(client, max(acknowledged) + 1)
        return _Seen(read, errors, new_offset, _committed(client))


def _names(output: str, path: Path, template: Template) -> bool:
    """Whether a line of warning or error names the file, or the partition that it belongs to."""
    partition = path.name if path.parent == template.log_dir else path.parent.name
    lines = [line for line in output.splitlines() if " INFO " not in line and "pybroker ready" not in line]
    return any(path.name in line or (partition in line and partition != "data") for line in lines)


def _check_names(template: Template, path: Path) -> bool:
    """Whether `pybroker log check` finds fault with the file."""
    command = [sys.executable, "-m", "pybroker", "log", "check", str(template.log_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 1 and path.name in done.stdout + done.stderr


def judge(template: Template, path: Path) -> Verdict:
    """Start a broker on the damaged copy and see. `path` is the damaged file."""
    broker, seen = None, None
    try:
        overrides = template.overrides(_LATER_MS)
        with BrokerProcess(template.log_dir, overrides=overrides, ready_timeout_seconds=30) as broker:
            seen = _look(broker, template.acknowledged)
            until(
                lambda: _CHECKED_LINE.search(broker.output_path.read_text()) is not None,
                "the broker does not check the active segments",
            )
    except (
        ProcessFailed,
        ConnectionRefusedError,
    ):  # a broker that meets a failing disk ends, before or after it is ready
        if broker is not None and (seen is None or not _names(broker.output_path.read_text(), path, template)):
            raise
    if broker is None or seen is None:
        output = (template.log_dir.parent / f"{template.log_dir.name}.out").read_text()
        return Verdict(REFUSED if _names(output, path, template) else REFUSED_SILENTLY, output)
    output = broker.output_path.read_text()
    named = _names(output, path, template)
    if 0 <= seen.new_offset <= max(template.acknowledged) and not named:
        return Verdict(REUSED, output)
    whole = all(seen.read.get(offset) == value for offset, value in template.acknowledged.items())
    if whole and seen.committed == COMMITTED_OFFSET:
        if named:
            return Verdict(NAMED, output)
        return Verdict(CHECKED if _check_names(template, path) else UNNOTICED, output)
    if named:
        return Verdict(LOST, output)
    return Verdict(REPORTED if seen.errors and _check_names(template, path) else LOST_SILENTLY, output)
