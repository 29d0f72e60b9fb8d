"""`examine`: all checks, one after the other. Blocks, for as long as reading the log dirs takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pybroker.doctor import addresses, clocks, files, log_dirs, machine, running, settings
from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import Subject

_GROUPS = (settings, addresses, log_dirs, files, clocks, running, machine)


def examine(subject: Subject) -> list[Finding]:
    """Everything that is found, the worst first. What cannot be looked at is a finding as well."""
    found = [each for group in _GROUPS for check in group.CHECKS for each in _made(check, subject)]
    order = list(Severity)
    return sorted(found, key=lambda each: order.index(each.severity))


def _made(check: Callable[[Subject], Iterator[Finding]], subject: Subject) -> Iterator[Finding]:
    try:
        yield from check(subject)
    except OSError as error:
        yield Finding(
            Severity.WARNING,
            "not-examined",
            str(error.filename or check.__name__.strip("_")),
            f"it could not be looked at: {error.strerror or error}",
            "what is wrong there, if anything, is not known",
            "run the doctor as the broker's user, or as root",
        )
