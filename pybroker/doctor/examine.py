"""`examine`: all checks, one after the other. Blocks, for as long as reading the log dirs takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pybroker.client.errors import ClientError
from pybroker.doctor import addresses, clocks, files, log_dirs, machine, running, settings
from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import Subject

_GROUPS = (settings, addresses, log_dirs, files, clocks, running, machine)


def examine(subject: Subject) -> list[Finding]:
    """Everything that is found, the worst first. What cannot be looked at is a finding as well."""
    found = [each for group in _GROUPS for check in group.CHECKS for each in _made(check, subject)]
    order = list(Severity)
    # Several checks may not be able to look at the same file.
    return sorted(dict.fromkeys(found), key=lambda each: order.index(each.severity))


def _made(check: Callable[[Subject], Iterator[Finding]], subject: Subject) -> Iterator[Finding]:
    try:
        yield from check(subject)
    except (OSError, ClientError) as error:
        is_file = isinstance(error, OSError) and error.filename is not None
        yield Finding(
            Severity.WARNING,
            "not-examined",
            str(error.filename) if isinstance(error, OSError) and is_file else check.__name__.strip("_"),
            f"it could not be looked at: {error}",
            "what is wrong there, if anything, is not known",
            "run the doctor as the broker's user, or as root" if is_file else "look again when the broker has settled",
        )
