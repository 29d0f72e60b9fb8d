"""What these tests share: a log dir of Apache Kafka to break, and what a check says of it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from pybroker.metadata.offline import check_metadata
from pybroker.native.walk import EVERY, SegmentWalk
from pybroker.storage.offline.checks.check import check
from pybroker.storage.offline.checks.findings import Finding, Report
from pybroker.storage.offline.layout import PartitionFiles, open_target

KAFKA_DIR = Path(__file__).parent / "data" / "kafka-4.3.0"


def copy_of_kafka_dir(parent: Path) -> Path:
    """A copy that may be broken."""
    return Path(shutil.copytree(KAFKA_DIR, parent / "data"))


def check_report(path: Path, *, deep: bool = False) -> Report:
    """What `pybroker log check` collects."""
    report = Report()
    check(open_target(path), report, deep=deep, check_metadata=check_metadata)
    return report


def faults(path: Path, *, deep: bool = False) -> list[Finding]:
    """Errors and warnings."""
    return check_report(path, deep=deep).faults


def noticed(path: Path) -> list[Finding]:
    """Errors, warnings, and entries of an index that Kafka of today writes otherwise."""
    return [each for each in check_report(path).findings if each.severity != "info" or each.kind == "index-older"]


def kinds(path: Path, *, deep: bool = False) -> set[str]:
    """Kinds of errors and warnings."""
    return {finding.kind for finding in faults(path, deep=deep)}


def flips(log_dir: Path, count: int, seed: int) -> Iterator[tuple[Path, int]]:
    """Flip one bit at a time somewhere in `log_dir`: the file and the bit's number. It is flipped back afterwards.

    Every second one is in a file chosen among all files, the others in a byte chosen among all bytes.
    """
    files = [path for path in sorted(log_dir.rglob("*")) if path.is_file() and path.stat().st_size > 0]
    sizes = [path.stat().st_size for path in files]
    chance = random.Random(seed)
    for number in range(count):
        path = chance.choice(files) if number % 2 else chance.choices(files, sizes)[0]
        before = path.read_bytes()
        bit = chance.randrange(8 * len(before))
        flip(path, bit)
        yield path, bit
        path.write_bytes(before)


def flip(path: Path, bit: int) -> None:
    """Flip one bit, counted from the lowest of the first byte."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def is_unprotected(path: Path, bit: int) -> bool:
    """Whether the byte is one of those that nothing else in a log dir tells about: see docs/log-files.md.

    `path` is as it is after the flip; the lines of its bytes are looked at as they were before.
    """
    before = bytearray(path.read_bytes())
    before[bit // 8] ^= 1 << bit % 8
    line = bytes(before[: bit // 8 + 1]).rpartition(b"\n")[2]
    if path.name == "meta.properties":
        return line.startswith((b"#", b"cluster.id="))
    if path.name in ("replication-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        return line.count(b" ") == 2
    if path.parent.name == "compacted-0":
        # What was compacted has gaps that a base offset or the begin of an epoch may lie in.
        is_start = path.name == "leader-epoch-checkpoint" and line.count(b" ") == 1
        return is_start or (path.suffix == ".log" and _is_base_offset(bytes(before), bit // 8))
    return False


def _is_base_offset(log: bytes, position: int) -> bool:
    begin = 0
    while (end := begin + 12 + int.from_bytes(log[begin + 8 : begin + 12], "big")) <= position:
        begin = end
    return position - begin < 8


def intact_batches(partition: Path) -> list[bytes]:
    """The bytes of every batch that has a right CRC."""
    found: list[bytes] = []
    files = PartitionFiles.of(partition)
    for base_offset, path in files.logs:
        data = path.read_bytes()
        rows = SegmentWalk().rows(path, base_offset, wanted=EVERY)
        found += [data[row.position : row.position + row.size_bytes] for row in rows if row.is_intact]
    return found


def tree(directory: Path) -> dict[str, bytes]:
    """All files of a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
