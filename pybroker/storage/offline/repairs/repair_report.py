"""The result of a repair, for people and for programs. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pybroker.storage.offline.repairs.repair_plan import Dropped, Restored


@dataclass(slots=True)
class PartitionResult:
    """The result for one partition."""

    name: str
    kept_batches: int = 0
    kept_records: int = 0
    kept_bytes: int = 0
    first_offset: int = 0
    end_offset: int = 0
    gap_offset: int = -1
    """Where the last segment begins before which offsets are missing; -1: none does."""
    dropped: list[Dropped] = field(default_factory=list)
    restored: list[Restored] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RepairResult:
    """The result for everything."""

    source: Path
    output: Path
    partitions: list[PartitionResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def dropped(self) -> list[Dropped]:
        """The dropped batches of all partitions."""
        return [each for partition in self.partitions for each in partition.dropped]

    def as_json(self) -> str:
        """The report for programs."""
        return json.dumps(asdict(self), indent=2, default=str) + "\n"

    def as_text(self) -> str:
        """The report for people."""
        lines = [f"{self.source} was repaired into {self.output}", *self.notes]
        for each in self.partitions:
            kept = f"{each.kept_batches} batches, {each.kept_records} records, {each.kept_bytes} bytes"
            lines.append(f"\n{each.name}: kept {kept}, offsets {each.first_offset} to {each.end_offset - 1}")
            lines += [f"  {note}" for note in each.notes]
            for drop in each.dropped:
                lost = f"{drop.first_offset} to {drop.last_offset if drop.last_offset >= 0 else 'unknown'}"
                at = f"{drop.path}@{drop.position}"
                lines.append(f"  dropped {drop.size_bytes} bytes at {at}, offsets {lost}: {drop.reason}")
            for change in each.restored:
                at = f"{change.path}@{change.position}"
                lines.append(f"  restored the {change.field} at {at}: it said {change.was}, it is {change.now}")
        # Names of files may be no text at all.
        return ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace").decode("utf-8")
