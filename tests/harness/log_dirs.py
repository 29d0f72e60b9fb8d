"""Apache Kafka's DumpLogSegments over every file of a stopped log dir.

The caller owns the dir; nothing is written. What is wrong is returned as text, one entry per finding; so is a tool that
ends badly, as it does over a record whose length is not its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.harness.kafka import run_tool

_DUMP = "org.apache.kafka.tools.DumpLogSegments"
_ALARM = re.compile(
    r"isvalid: false|mismatch|corrupt|exception|could not|found \d+ invalid|not monotonic"
    r"|was indexed|is out of order|should be larger|missing|invalid bytes|ended with status",
    re.IGNORECASE,
)
# Linux takes 128 KiB in one argument.
_MOST_CHARACTERS = 100_000
_DECODERS = {"__cluster_metadata": "--cluster-metadata-decoder", "__consumer_offsets": "--offsets-decoder"}
_ENDED = "the dump tool ended with status "
_OFFSET = re.compile(r"\boffset: (\d+)\b")
# The first offset of a file is said to follow -1.
_GAP = re.compile(r"^\s*(\d+) is followed by (\d+)$")
_BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+)")


def _dump(files: list[Path], *options: str) -> list[str]:
    lines: list[str] = []
    for part in _parts([str(path) for path in files]):
        done = run_tool(_DUMP, *options, "--files", ",".join(part), check=False)
        lines += (done.stdout + done.stderr).decode(errors="replace").splitlines()
        if done.returncode != 0:
            lines.append(f"{_ENDED}{done.returncode}")
    return lines


def _parts(names: list[str]) -> Iterator[list[str]]:
    """Names in order, as many at a time as an argument can hold."""
    part: list[str] = []
    size = 0
    for name in names:
        if part and size + len(name) >= _MOST_CHARACTERS:
            yield part
            part, size = [], 0
        part.append(name)
        size += len(name) + 1
    if part:
        yield part


def _alarms(lines: list[str], what: str) -> list[str]:
    """Lines that tell of something wrong, with the file that the tool was at."""
    found = []
    for line in lines:
        if line.startswith("Dumping "):
            what = line.removeprefix("Dumping ")
        if _ALARM.search(line):
            found.append(f"{what}: {line[:300]}")
    return found


def _check_order(lines: list[str]) -> list[str]:
    """Batches of a deep dump follow one another, and none holds more records than it says."""
    findings: list[str] = []
    what, expected, records_left = "", -1, 0
    for line in lines:
        batch = _BATCH.match(line)
        if line.startswith("Dumping "):
            what, expected, records_left = line.removeprefix("Dumping "), -1, 0
        if batch:
            first, last, records_left = (int(group) for group in batch.groups())
            if first < expected:
                findings.append(f"{what}: batch at {first} after {expected - 1}")
            expected = last + 1
        elif line.startswith("| "):
            records_left -= 1
            offset = _OFFSET.search(line)
            if offset is None or records_left < 0:
                findings.append(f"{what}: a record too many or without an offset: {line[:200]}")
    return findings


def record_count(log_file: Path) -> int:
    """Records in one segment, by a deep dump."""
    return sum(line.startswith("| ") for line in _dump([log_file], "--deep-iteration"))


def _gaps(lines: list[str], what: str) -> list[str]:
    """Offsets that are missing within a segment."""
    return [f"{what}: offset {line.strip()}" for line in lines if _GAP.match(line)]


def segment_findings(log_files: list[Path], *options: str, with_gaps: bool = False) -> list[str]:
    """What Kafka's tool dislikes in segments, given in order; `options` name a decoder. Offsets may be missing
    `with_gaps`."""
    lines = _dump(log_files, "--deep-iteration", *options)
    what = log_files[0].parent.name + "/*.log"
    return _alarms(lines, what) + _check_order(lines) + ([] if with_gaps else _gaps(lines, what))


def findings(log_dir: Path, compacted: Collection[str] = ("__consumer_offsets",)) -> list[str]:
    """What Kafka's tool dislikes in a stopped log dir: logs, indexes, producer snapshots, offsets, metadata log. Of the
    `compacted` topics offsets may be missing."""
    directories = sorted(path for path in log_dir.iterdir() if path.is_dir() and re.search(r"-\d+$", path.name))

    def files(suffix: str) -> list[Path]:
        return sorted(path for directory in directories for path in directory.glob(f"*.{suffix}"))

    # Java takes longer to start than most files to read, so all that need the same options go in one.
    found: list[str] = []
    logs: dict[tuple[str | None, bool], list[Path]] = {}
    for path in files("log"):
        topic = path.parent.name.rpartition("-")[0]
        if path.stat().st_size > 0:
            logs.setdefault((_DECODERS.get(topic), topic in compacted), []).append(path)
    for (decoder, with_gaps), some in logs.items():
        found += segment_findings(some, *([decoder] if decoder else []), with_gaps=with_gaps)
    for suffixes, options in (
        (["index"], ["--index-sanity-check"]),
        (["timeindex", "txnindex", "snapshot"], []),
        (["checkpoint"], ["--cluster-metadata-decoder"]),
    ):
        more = [path for suffix in suffixes for path in files(suffix)]
        if more:
            found += _alarms(_dump(more, *options), ", ".join(f"*.{suffix}" for suffix in suffixes))
    return found
