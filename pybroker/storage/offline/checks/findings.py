"""The findings of `pybroker log check`: each has a place, a kind, and a text for people. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pybroker.storage.offline.text_files import Damage

ERROR = "error"
"""Bytes are damaged, or files contradict each other so that a broker would serve something wrong."""
WARNING = "warning"
"""Something that no broker leaves behind in a clean stop, but that does no harm."""
INFO = "info"
"""Worth knowing, but not a fault."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `kind` is for programs and stays the same over releases. `position` is a byte position in the file,
    and `offset` an offset of the log."""

    severity: str
    kind: str
    path: Path
    text: str
    position: int | None = None
    offset: int | None = None

    @property
    def is_fault(self) -> bool:
        """Whether it makes a check fail."""
        return self.severity != INFO

    def as_dict(self) -> dict[str, object]:
        """The finding as a dict for JSON."""
        return {
            "severity": self.severity,
            "kind": self.kind,
            "path": str(self.path),
            "position": self.position,
            "offset": self.offset,
            "text": self.text,
        }


@dataclass(slots=True)
class Report:
    """Collects findings. It keeps up to `limit` findings of one kind in one file, and only counts further ones."""

    limit: int = 100
    findings: list[Finding] = field(default_factory=list)
    checked_files: int = 0
    checked_bytes: int = 0
    _counts: Counter[tuple[Path, str]] = field(default_factory=Counter)

    def add(
        self,
        severity: str,
        kind: str,
        path: Path,
        text: str,
        *,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        """Add a finding."""
        self._counts[path, kind] += 1
        if self._counts[path, kind] <= self.limit:
            self.findings.append(Finding(severity, kind, path, text, position, offset))

    def error(self, kind: str, path: Path, text: str, position: int | None = None, offset: int | None = None) -> None:
        """Add an error."""
        self.add(ERROR, kind, path, text, position=position, offset=offset)

    def warning(self, kind: str, path: Path, text: str, position: int | None = None, offset: int | None = None) -> None:
        """Add a warning."""
        self.add(WARNING, kind, path, text, position=position, offset=offset)

    def info(self, kind: str, path: Path, text: str, position: int | None = None, offset: int | None = None) -> None:
        """Add a finding that is worth knowing but not a fault."""
        self.add(INFO, kind, path, text, position=position, offset=offset)

    def saw(self, path: Path) -> None:
        """Count a file that was read to its end."""
        self.checked_files += 1
        self.checked_bytes += path.stat().st_size

    @property
    def faults(self) -> list[Finding]:
        """Errors and warnings."""
        return [finding for finding in self.findings if finding.is_fault]

    def left_out(self) -> dict[tuple[Path, str], int]:
        """The number of findings beyond `limit`, by file and kind."""
        return {key: count - self.limit for key, count in self._counts.items() if count > self.limit}


@contextmanager
def unreadable_told(path: Path, report: Report) -> Iterator[None]:
    """Turn an OSError inside the block into a finding "unreadable". The finding names the error's file, else `path`."""
    try:
        yield
    except OSError as error:
        report.error("unreadable", Path(error.filename) if error.filename else path, error.strerror or str(error))


@contextmanager
def damage_told(path: Path, report: Report) -> Iterator[None]:
    """Like `unreadable_told`; also turns `Damage` of the text file at `path` into a finding "malformed"."""
    with unreadable_told(path, report):
        try:
            yield
        except Damage as error:
            report.error("malformed", path, str(error), position=error.position)
