"""Tail rings that nobody takes in: what ended brokers have left in memory, and no log dir of this one will take.

The next start of a broker takes in what it has left itself. Until then the memory is taken, and of a log dir that was
deleted nobody comes for it. Looks at names and headers, and takes no lock: that could keep a broker from starting.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import Subject
from pybroker.profiles.sizes import format_bytes
from pybroker.protocol.uuids import uuid_to_text
from pybroker.storage.errors import StorageError
from pybroker.storage.meta_properties import MetaProperties
from pybroker.storage.ring_lock import is_locked
from pybroker.storage.tail_rings import RingSession, UnclaimedRings, ring_directory, unclaimed_rings


def _unclaimed(subject: Subject) -> Iterator[Finding]:
    """Once for each directory of rings."""
    parent = Path(subject.config.get_str("pybroker.tail.ring.directory"))
    claims, own = [], set()
    try:
        for path in subject.log_dirs:
            properties = MetaProperties.read(path) if path.is_dir() else None
            if properties is None:
                continue
            session = RingSession.read(path)
            if session is not None and not properties.has_directory_id:
                return  # it has lost the id, and with it which rings are its own
            own.add(ring_directory(parent, properties.directory_id))
            claims += [] if session is None else [(session, properties.directory_id)]
    except StorageError:
        return  # other checks say so; which rings are this broker's is not known then
    for rings in unclaimed_rings(parent, claims):
        if rings.directory in own:
            yield _left_behind(rings)
        elif not is_locked(rings.directory):
            yield _orphaned(rings)


def _left_behind(rings: UnclaimedRings) -> Finding:
    """In the broker's own directory, of earlier runs."""
    return _finding(
        rings,
        "no log here takes them: the log dir is not in service, or it has changed since",
        "bring that log dir back into log.dirs and start the broker. To have the memory before that, move them to a "
        f"disk: `mv {shlex.join(map(str, rings.paths))} BACKUP`",
    )


def _orphaned(rings: UnclaimedRings) -> Finding:
    place = shlex.quote(str(rings.directory))
    whose = sorted({uuid_to_text(ring.directory_id) for ring in rings.filled})
    theirs = f", the one with directory.id={' or '.join(whose)} in its meta.properties," if whose else ""
    return _finding(
        rings,
        "their broker was killed, and its log dir is none of this broker's. Where that still is, its next start takes "
        "them in; where it was deleted, nobody does",
        f"start the broker of that log dir{theirs} once. If it is gone for good: `flock -n {place} mv {place} BACKUP`, "
        "which leaves them alone while a broker uses them, and keeps what nobody else has",
    )


def _finding(rings: UnclaimedRings, why: str, remedy: str) -> Finding:
    count = len(rings.paths)
    what = f"{count} tail ring{'s' * (count > 1)} of an ended broker take{'s' * (count == 1)} "
    what += f"{format_bytes(rings.used_bytes)} of memory"
    if not rings.filled:
        return Finding(
            Severity.ADVICE,
            "tail-rings-unclaimed",
            str(rings.directory),
            f"{what}, and hold{'s' * (count == 1)} no records that can be read",
            why,
            remedy,
        )
    names = sorted({f"{ring.topic}-{ring.partition}" for ring in rings.filled})
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    held = format_bytes(sum(ring.gathered_bytes for ring in rings.filled))
    what += f"; {held} in them are acknowledged records of {', '.join(names[:3])}{more} that may lie nowhere else"
    return Finding(Severity.WARNING, "tail-rings-unclaimed", str(rings.directory), what, why, remedy)


CHECKS = (_unclaimed,)
