"""Tail rings that ended brokers have left in memory, beyond those that this broker's next start takes in.

A ring belongs to a log dir. Where that exists, the next start of its broker takes the ring in. Where it was deleted,
nobody does, and `remove_orphaned` removes the ring; `ring_places` says when that is certain. A ring that may hold
records goes only when that is asked for. Examining looks at names and headers, and takes no lock: that could keep a
broker from starting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pybroker.doctor.finding import Finding, Severity
from pybroker.doctor.subject import Subject
from pybroker.profiles.sizes import format_bytes
from pybroker.protocol.uuids import uuid_to_text
from pybroker.storage.errors import StorageError
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.rings import ring_places
from pybroker.storage.rings.ring_lock import is_locked, locked_for_removal
from pybroker.storage.rings.ring_places import Found, LogDirPlace, Standing
from pybroker.storage.rings.session_note import RingSession
from pybroker.storage.rings.tail_rings import UnclaimedRing, UnclaimedRings, ring_directory, unclaimed_rings

_HOLDS_RECORDS = (
    "it may hold records that are nowhere else. Copy it if they matter; `pybroker doctor --fix --include-filled` "
    "removes it"
)
_FROM_THEN_ON = "a restart of this machine removes the rings, with what is in them"


@dataclass(frozen=True, slots=True)
class Group:
    """Rings of one log dir in one directory. `found`: what has become of it, None where nothing says which it was."""

    directory: Path
    rings: tuple[UnclaimedRing, ...]
    found: Found | None
    session_id: bytes | None

    @property
    def is_orphaned(self) -> bool:
        """Whether no start will ever take the rings in."""
        return self.found is not None and self.found.standing is Standing.GONE


@dataclass(frozen=True, slots=True)
class Removed:
    """A ring that was removed. `problem`: why it was not, empty when it was."""

    path: str
    size_bytes: int
    log_dir: str
    holds: str
    problem: str = ""

    def __str__(self) -> str:
        size = format_bytes(self.size_bytes)
        what = f"tail ring {self.path} ({size}, {self.holds}) of the deleted log dir {self.log_dir}"
        return f"did not remove the {what}: {self.problem}" if self.problem else f"removed the {what}"


def remove_orphaned(subject: Subject, *, include_filled: bool = False) -> list[Removed]:
    """Remove the rings of log dirs that were deleted, and what else lay beside them. Nothing that a broker uses, and
    nothing of a log dir that may only be away. Rings that may hold records only with `include_filled`; otherwise they
    are told with a `problem`."""
    removed: list[Removed] = []
    claims, _ = _claims_of(subject)
    if claims is None:
        return removed
    parent = _parent_of(subject)
    for directory in ring_places.noted_directories(parent):
        if not any(_is_gone(place, subject) for place in ring_places.read(directory)):
            continue
        with locked_for_removal(directory) as is_ours:
            # Looked at again: a broker may have started and ended before the lock.
            again = [each for each in unclaimed_rings(parent, claims) if is_ours and each.directory == directory]
            for group in (group for rings in again for group in _groups_of(rings, subject)):
                if group.is_orphaned:
                    removed += [_remove(ring, group, include_filled=include_filled) for ring in group.rings]
            # A log dir that is left would miss the directory at its next start.
            if is_ours and all(_is_gone(place, subject) for place in ring_places.read(directory)):
                ring_places.forget(directory)
    return removed


def _is_gone(place: LogDirPlace, subject: Subject) -> bool:
    return ring_places.look(place, subject.log_dirs).standing is Standing.GONE


def _remove(ring: UnclaimedRing, group: Group, *, include_filled: bool) -> Removed:
    assert group.found is not None
    problem = ""
    if _may_hold_records(ring) and not include_filled:
        problem = _HOLDS_RECORDS
    else:
        try:
            ring.path.unlink()
        except OSError as error:
            problem = error.strerror or str(error)
    return Removed(str(ring.path), ring.used_bytes, str(group.found.path), _holds(ring), problem)


def _may_hold_records(ring: UnclaimedRing) -> bool:
    """Nobody knows it of a damaged one."""
    return ring.ring is None or ring.filled is not None


# ---- whose they are --------------------------------------------------------------------------------------------------


def _parent_of(subject: Subject) -> Path:
    return Path(subject.config.get_str("pybroker.tail.ring.directory"))


def _claims_of(subject: Subject) -> tuple[list[tuple[RingSession, bytes]] | None, set[Path]]:
    """The claims of this broker's log dirs to rings, and the directories that are its own. None: it is not known."""
    parent = _parent_of(subject)
    claims: list[tuple[RingSession, bytes]] = []
    own: set[Path] = set()
    try:
        for path in subject.log_dirs:
            properties = MetaProperties.read(path) if path.is_dir() else None
            if properties is None:
                continue
            session = RingSession.read(path)
            if session is not None and not properties.has_directory_id:
                return None, own  # it has lost the id, and with it which rings are its own
            own.add(ring_directory(parent, properties.directory_id))
            claims += [] if session is None else [(session, properties.directory_id)]
    except StorageError:
        return None, own  # other checks say so
    return claims, own


def _groups_of(rings: UnclaimedRings, subject: Subject) -> Iterator[Group]:
    """The rings of a directory, by log dir."""
    places = {place.directory_id: place for place in ring_places.read(rings.directory)}
    found = {id: ring_places.look(place, subject.log_dirs) for id, place in places.items()}
    by_place: dict[bytes | None, list[UnclaimedRing]] = {}
    for ring in rings.rings:
        by_place.setdefault(_place_of(ring, places, found), []).append(ring)
    for directory_id, own in by_place.items():
        if directory_id is None:
            yield Group(rings.directory, tuple(own), None, None)
        else:
            yield Group(rings.directory, tuple(own), found[directory_id], places[directory_id].session_id)


def _place_of(ring: UnclaimedRing, places: Mapping[bytes, LogDirPlace], found: Mapping[bytes, Found]) -> bytes | None:
    """The directory id of its log dir. An empty or damaged ring may be of any: it is of one that is left, if any is."""
    if ring.ring is not None and ring.ring.is_sealed:
        return ring.ring.directory_id if ring.ring.directory_id in places else None
    left = [id for id, each in found.items() if each.standing is not Standing.GONE]
    return next(iter([*left, *found]), None)


# ---- what is said of them --------------------------------------------------------------------------------------------


def _unclaimed(subject: Subject) -> Iterator[Finding]:
    """Once for each log dir."""
    claims, own = _claims_of(subject)
    if claims is None:
        return
    for rings in unclaimed_rings(_parent_of(subject), claims):
        if rings.directory in own or not is_locked(rings.directory):
            for group in _groups_of(rings, subject):
                yield _orphaned(group) if group.is_orphaned else _left(group, is_own=rings.directory in own)


def _orphaned(group: Group) -> Finding:
    assert group.found is not None
    remedy = "`pybroker doctor --fix`, with the settings that this command has, removes them and says which"
    if any(_may_hold_records(ring) for ring in group.rings):
        remedy = (
            "`pybroker doctor --fix`, with the settings that this command has, removes those that are empty and says "
            "which. The others may hold records that are nowhere else: copy them if these matter; with "
            "`--include-filled` as well they are removed"
        )
    return Finding(
        Severity.ADVICE,
        "tail-rings-orphaned",
        str(group.directory),
        f"{_taken(group)}; their log dir {group.found.path} was deleted",
        "their broker was killed, and no start will take them in: the memory is gone until this machine is restarted",
        remedy,
    )


def _left(group: Group, *, is_own: bool) -> Finding:
    found = group.found
    filled = any(ring.filled for ring in group.rings)
    kind, severity = "tail-rings-unclaimed", Severity.WARNING if filled else Severity.ADVICE
    what = f"{_taken(group)} of an ended broker"
    if found is not None and found.standing is Standing.PRESENT and _is_named(group, found.path):
        kind, what = "tail-rings-waiting", f"{what}: replayed by the next start of the broker of {found.path}"
        why = "that broker was killed: what it acknowledged last may be in these rings alone"
        remedy = f"start the broker of {found.path}; {_FROM_THEN_ON}"
    elif is_own or (found is not None and found.standing is Standing.PRESENT):
        why = "no log here takes them: the log dir is not in service, or it has changed since"
        remedy = f"bring that log dir back into log.dirs and start the broker, or copy the rings; {_FROM_THEN_ON}"
    elif found is not None:
        why = f"it is not certain that their log dir {found.path} still exists: {found.why}"
        remedy = f"mount its file system and start its broker, which takes them in; {_FROM_THEN_ON}"
    else:
        ids = sorted({uuid_to_text(ring.filled.directory_id) for ring in group.rings if ring.filled})
        theirs = f" with directory.id={' or '.join(ids)} in its meta.properties" if ids else ""
        why = "nothing says where their log dir is; the next start of its broker takes them in"
        remedy = f"start the broker of the log dir{theirs}; {_FROM_THEN_ON}"
    return Finding(severity, kind, str(group.directory), what, why, remedy)


def _is_named(group: Group, log_dir: Path) -> bool:
    """Whether the log dir still names the session of the rings, so that its next start looks for them."""
    try:
        session = RingSession.read(log_dir)
    except (StorageError, OSError):
        return False
    return session is not None and session.session_id == group.session_id


def _taken(group: Group) -> str:
    count = len(group.rings)
    size = format_bytes(sum(ring.used_bytes for ring in group.rings))
    each = (f"{ring.path.name} ({format_bytes(ring.used_bytes)}, {_holds(ring)})" for ring in group.rings)
    return f"{count} tail ring{'s' * (count > 1)} take{'s' * (count == 1)} {size} of memory: {', '.join(each)}"


def _holds(ring: UnclaimedRing) -> str:
    if ring.ring is None:
        return "damaged"
    if ring.filled is None:
        return "empty"
    return f"{format_bytes(ring.filled.gathered_bytes)} of {ring.filled.topic}-{ring.filled.partition}"


CHECKS = (_unclaimed,)
