"""Logs that have lost records since a broker recorded how far they reach. Looks at names and sizes, not at batches."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import Subject
from pybroker.storage.offline.checks.losses import quick_losses


def _lost_records(subject: Subject) -> Iterator[Finding]:
    """Looks at log dirs that no broker has open: a running one has told its losses in its log."""
    for path in subject.log_dirs:
        if path in subject.holders or not path.is_dir():
            continue
        for loss in quick_losses(path):
            name = f"{loss.key[0]}-{loss.key[1]}"
            yield Finding(
                Severity.ERROR,
                "lost-records",
                str(loss.path),
                f"it {loss.what}: offsets {loss.first_offset} to {loss.end_offset - 1} of {name}, or some of them, are "
                "lost",
                f"without another replica {name} is offline after the next start",
                "bring it back from a backup; else, with the broker stopped, "
                f"`pybroker log accept-loss {shlex.quote(str(path))} --partition {name}`",
            )


CHECKS = (_lost_records,)
