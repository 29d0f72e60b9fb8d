"""`check`: everything that is wrong with, or worth saying about, a server.properties, each at its place.

A start stops at the first error. Here what an error names is taken out and the rest is looked at again, until nothing
is left to complain about. Reads the file; keeps nothing. Failures are among the findings.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pybroker.config.broker import BrokerConfig, link_node_id, named_as_given, read_static
from pybroker.config.broker_keys import find_key
from pybroker.config.definition import ConfigError
from pybroker.config.kept import parse_kept
from pybroker.config.notices import Notice, notices_of, notices_of_listener


class Severity(enum.Enum):
    """`ERROR`: the broker does not start. `WARNING`: the file should be changed. `NOTE`: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to say. `kind` is `invalid` for an error, else that of the notice; `keys` are the settings it is about.

    `source` is the file or the command line option, None where there is no place; `line` counts from 1.
    """

    severity: Severity
    kind: str
    keys: tuple[str, ...]
    source: str | None
    line: int | None
    text: str

    def __str__(self) -> str:
        place = [] if self.source is None else [self.source if self.line is None else f"{self.source}:{self.line}"]
        return ": ".join([*place, self.severity.value, self.text])

    def as_reason(self) -> str:
        """The text with its place, as `ConfigError` words it."""
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        return self.text if place is None else f"{place}: {self.text}"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "severity": self.severity.value,
            "kind": self.kind,
            "keys": list(self.keys),
            "source": self.source,
            "line": self.line,
            "text": self.text,
        }


def check(path: Path | str | None, overrides: Sequence[str] = ()) -> list[Finding]:
    """The findings about the file with `key=value` overrides: errors first, then in the order of the lines."""
    try:
        static, origins, repeated = read_static(path, overrides)
    except ConfigError as error:
        return [of_error(error)]
    notices = [*repeated, *notices_of(static, origins), *notices_of_listener(static, origins)]
    linked = link_node_id(static, origins)
    findings = _errors(static, origins, linked)
    faulty = {key for each in findings for key in each.keys}
    findings += [_of_notice(each) for each in notices if each.key not in faulty]
    order = list(Severity)
    return sorted(findings, key=lambda each: (order.index(each.severity), each.line or 0))


def _errors(static: dict[str, str], origins: dict[str, str], linked: Mapping[str, str]) -> list[Finding]:
    findings: list[Finding] = []
    left = dict(static)
    names = {given: other for other, given in linked.items()}
    while True:
        try:
            BrokerConfig(static=left, origins=origins)
        except ConfigError as wrong:
            error = named_as_given(wrong, linked)
            at_fault = next((key for key in error.keys if key in left), None)
            if at_fault is not None or not findings:
                findings.append(of_error(error.located(origins)))
            if at_fault is None:
                # A default that does not go with the rest: it stands for a setting that was taken out.
                return findings
            del left[at_fault]
            # One number with two names is wrong once.
            left.pop(names.get(at_fault, ""), None)
        else:
            break
    # A key with the prefix of a listener has no effect, but whoever wrote it meant a value of its base.
    for name, text in left.items():
        found = find_key(name)
        try:
            if found is not None:
                parse_kept(found, text, origins.get(name, ""))
        except ConfigError as error:
            findings.append(of_error(error))
    return findings


def of_error(error: ConfigError) -> Finding:
    """The finding that an error is."""
    return Finding(Severity.ERROR, "invalid", error.keys, *_split_place(error.where), error.message)


def _of_notice(notice: Notice) -> Finding:
    severity = Severity.WARNING if notice.kind.is_warning else Severity.NOTE
    return Finding(severity, notice.kind.value, (notice.key,), *_split_place(notice.where), notice.text)


def _split_place(where: str) -> tuple[str | None, int | None]:
    """Source and line of a place."""
    source, colon, line = where.rpartition(":")
    return (source, int(line)) if colon and line.isdecimal() else (where or None, None)
