"""`examine`: all checks, one after the other. Blocks, for as long as reading the log dirs takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pybroker.client.errors import ClientError
from pybroker.doctor import addresses, clocks, files, log_dirs, losses, machine, rings, running, settings
from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import Subject

_GROUPS = (settings, addresses, log_dirs, files, losses, rings, clocks, running, machine)

_TRIES = 5


def examine(subject: Subject) -> list[Finding]:
    """Everything that is found, the worst first. A subject that cannot be looked at is a finding as well."""
    found = [each for group in _GROUPS for check in group.CHECKS for each in _made(check, subject, _TRIES)]
    order = list(Severity)
    # Several checks may not be able to look at the same file.
    return sorted(dict.fromkeys(found), key=lambda each: order.index(each.severity))


def _made(check: Callable[[Subject], Iterator[Finding]], subject: Subject, tries: int) -> list[Finding]:
    try:
        return list(check(subject))
    except FileNotFoundError as error:
        # A running broker deletes segments between a look at the directory and one at the file.
        return _made(check, subject, tries - 1) if subject.holders and tries > 1 else [_not_examined(check, error)]
    except (OSError, ClientError) as error:
        return [_not_examined(check, error)]


def _not_examined(check: Callable[[Subject], Iterator[Finding]], error: OSError | ClientError) -> Finding:
    file = error.filename if isinstance(error, OSError) else None
    return Finding(
        Severity.WARNING,
        "not-examined",
        check.__name__.strip("_") if file is None else str(file),
        f"it could not be looked at: {error}",
        "what is wrong there, if anything, is not known",
        "look again when the broker has settled" if file is None else "run the doctor as the broker's user, or as root",
    )
