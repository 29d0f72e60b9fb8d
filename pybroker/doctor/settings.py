"""The parts of the configuration that have no effect, or none any more. Errors in it end the command before any
check."""

from __future__ import annotations

from collections.abc import Iterator

from pybroker.config.check import Severity as ConfigSeverity
from pybroker.config.check import check
from pybroker.config.notices import NoticeKind
from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import Subject

#: By kind of notice: the kind of finding, and why it matters.
_WARNINGS = {
    NoticeKind.UNKNOWN.value: ("unknown-setting", "what was meant by it does not happen"),
    NoticeKind.RETIRED.value: ("retired-setting", "it is of an older Apache Kafka: what it did does not happen"),
    NoticeKind.PLUGIN.value: ("plugin-setting", "a Java class was to act on it, and none is loaded"),
    NoticeKind.ENCODING.value: ("setting-encoding", "the value is another one than the editor shows"),
    NoticeKind.UNREACHABLE.value: ("listener-unreachable", "other machines cannot connect to the broker"),
    NoticeKind.UNOPENED.value: ("unopened-listener", "nothing can connect there"),
    NoticeKind.PROVIDED.value: ("provided-setting", "the text itself is the value, and no provider is asked"),
    NoticeKind.RAISED.value: ("raised-setting", "the broker goes by today's bound, not by the value of the file"),
    NoticeKind.REPEATED.value: ("repeated-setting", "whoever reads the first line is misled"),
}


def _notices(subject: Subject) -> Iterator[Finding]:
    """Keys that are dead, unknown, of plug-ins, or given twice."""
    for each in check(subject.properties, subject.overrides):
        if each.severity is not ConfigSeverity.WARNING:
            continue
        kind, why = _WARNINGS[each.kind]
        place = each.source or ", ".join(each.keys)
        place = place if each.line is None else f"{place}:{each.line}"
        yield Finding(Severity.WARNING, kind, place, each.text, why, "change the line; `pybroker config check` has all")


CHECKS = (_notices,)
