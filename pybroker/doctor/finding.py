"""`Finding`: one thing that is wrong with a broker, why it matters, and what to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum


class Severity(Enum):
    """The meaning of a finding for the operator. The first two count as findings for the exit status."""

    #: The broker does not start, does not serve, or data is damaged.
    ERROR = "error"
    #: It goes on for now: data or service are at risk.
    WARNING = "warning"
    #: It costs time.
    ADVICE = "advice"
    #: Worth knowing: what was not looked at, what the next start does by itself.
    NOTE = "note"

    @property
    def is_fault(self) -> bool:
        """Whether it makes the exit status 1."""
        return self in (Severity.ERROR, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class Finding:
    """`kind` is for programs and stays the same over releases; `subject` is the file, setting, address or process.
    `remedy` is empty where nothing is to be done."""

    severity: Severity
    kind: str
    subject: str
    what: str
    why: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return {**asdict(self), "severity": self.severity.value}
