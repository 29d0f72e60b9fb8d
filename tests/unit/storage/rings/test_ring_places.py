"""When a log dir with tail rings counts as deleted: only where nothing else can explain that it is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.rings import ring_places
from pybroker.storage.rings.ring_places import Found, LogDirPlace, Standing
from pybroker.storage.rings.session_note import FILE_NAME as SESSION_FILE
from pybroker.storage.rings.session_note import RingSession

ID = b"d" * 16
SESSION = b"s" * 16


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Two levels below the directory of the test."""
    path = tmp_path / "disk" / "broker" / "data"
    path.mkdir(parents=True)
    return _formatted(path)


def _formatted(path: Path, directory_id: bytes = ID) -> Path:
    MetaProperties(1, "cluster", directory_id).write(path)
    return path


def place_of(path: Path) -> LogDirPlace:
    return LogDirPlace.of(path, ID, SESSION)


def standing(place: LogDirPlace) -> Standing:
    return ring_places.look(place).standing


def test_a_log_dir_that_is_there(log_dir: Path) -> None:
    place = place_of(log_dir)
    assert ring_places.look(place) == Found(Standing.PRESENT, log_dir)
    # Its next start finds the rings by this file, whatever has become of the other one.
    (log_dir / "meta.properties").unlink()
    RingSession(log_dir, SESSION, b"b" * 16).write(log_dir)
    assert standing(place) is Standing.PRESENT


def test_one_that_lost_its_id(log_dir: Path) -> None:
    """A backup that was restored, or an old version of Kafka, leaves a meta.properties without one."""
    place = place_of(log_dir)
    _formatted(log_dir, bytes(16))
    found = ring_places.look(place)
    assert found.standing is Standing.UNKNOWN
    assert "has no directory.id" in found.why
    RingSession(log_dir, SESSION, b"b" * 16).write(log_dir)
    assert ring_places.look(place) == Found(Standing.PRESENT, log_dir)
    moved = log_dir.rename(log_dir.with_name("elsewhere"))
    assert ring_places.look(place) == Found(Standing.PRESENT, moved)


def test_one_that_got_another_id_and_still_names_its_rings(log_dir: Path) -> None:
    """A meta.properties that was lost and made anew is no sign that the records were deleted."""
    place = place_of(log_dir)
    _formatted(log_dir, b"n" * 16)
    RingSession(log_dir, SESSION, b"b" * 16).write(log_dir)
    found = ring_places.look(place)
    assert found.standing is Standing.UNKNOWN
    assert "has another directory.id" in found.why
    RingSession(log_dir, b"t" * 16, b"b" * 16).write(log_dir)
    assert standing(place) is Standing.GONE, "it is a log dir of another session"


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_one_that_was_deleted_with_what_was_above_it(log_dir: Path, levels: int) -> None:
    place = place_of(log_dir)
    shutil.rmtree((log_dir, *log_dir.parents)[levels - 1])
    assert ring_places.look(place) == Found(Standing.GONE, log_dir)


@pytest.mark.parametrize("new_id", [None, b"n" * 16])
@pytest.mark.parametrize("keeps_inode", [True, False])
def test_one_that_was_emptied_or_made_anew(log_dir: Path, keeps_inode: bool, new_id: bytes | None) -> None:
    place = place_of(log_dir)
    (log_dir / "meta.properties").unlink()
    if not keeps_inode:
        log_dir.rename(log_dir.with_name("old"))  # so that its inode is not used again
        log_dir.mkdir()
    if new_id is not None:
        _formatted(log_dir, new_id)
    assert standing(place) is Standing.GONE


def test_one_that_was_moved(log_dir: Path, tmp_path: Path) -> None:
    place = place_of(log_dir)
    beside = log_dir.rename(log_dir.with_name("elsewhere"))
    assert ring_places.look(place) == Found(Standing.PRESENT, beside)
    far = beside.rename(tmp_path / "far")
    assert standing(place) is Standing.GONE
    assert ring_places.look(place, [far]) == Found(Standing.PRESENT, far)
    log_dir.mkdir()
    _formatted(log_dir, b"n" * 16)
    assert ring_places.look(place, [far]) == Found(Standing.PRESENT, far)


def test_one_behind_a_link_that_leads_elsewhere_by_now(log_dir: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(log_dir)
    place = place_of(link)
    new_place = tmp_path / "disk2" / "data"
    shutil.copytree(log_dir, new_place)
    shutil.rmtree(log_dir)
    link.unlink()
    link.symlink_to(new_place)
    assert ring_places.look(place) == Found(Standing.PRESENT, link)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_one_whose_file_system_may_only_be_away(log_dir: Path, tmp_path: Path, level: int) -> None:
    """An unmounted file system leaves another directory in the place of its root."""
    place = place_of(log_dir)
    root = (log_dir, *log_dir.parents)[level]
    if level == 0:
        place = place.replace(chain=place.chain[:1])  # the log dir is the mount point itself
    root.rename(tmp_path.parent / f"{tmp_path.name}-away")
    root.mkdir()
    found = ring_places.look(place)
    assert found.standing is Standing.UNKNOWN
    assert str(root) in found.why


def test_one_whose_mount_point_is_missing(log_dir: Path) -> None:
    """Desktop systems and automounters remove the directory that a file system was mounted at."""
    place = place_of(log_dir)
    shutil.rmtree(log_dir.parent)
    found = ring_places.look(place.replace(chain=place.chain[:2]))
    assert (found.standing, found.why) == (
        Standing.UNKNOWN,
        f"{log_dir.parent}, where its file system was mounted, is missing",
    )


def test_another_file_system_with_the_same_numbers(log_dir: Path) -> None:
    place = place_of(log_dir).replace(file_system_id=1)
    shutil.rmtree(log_dir)
    assert standing(place) is Standing.UNKNOWN


def test_one_with_files_that_nobody_knows(log_dir: Path) -> None:
    place = place_of(log_dir)
    (log_dir / "meta.properties").unlink()
    (log_dir / "t-0").mkdir()
    assert standing(place) is Standing.UNKNOWN
    (log_dir / "meta.properties").write_text("version=1\n")
    assert standing(place) is Standing.UNKNOWN


def test_one_that_may_not_be_looked_at(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(log_dir)
    (log_dir / "meta.properties").unlink()
    real = os.stat

    def refuse(path: Path, **options: bool) -> os.stat_result:
        if path == log_dir:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    found = ring_places.look(place)
    assert (found.standing, found.why) == (Standing.UNKNOWN, f"{log_dir}: Permission denied")


def test_the_chain_ends_at_the_mount_point() -> None:
    with open("/proc/self/mountinfo") as mounts:
        points = {line.split()[4] for line in mounts}
    place = place_of(Path("/dev/shm"))
    assert (len(place.chain) == 1) is ("/dev/shm" in points)


def test_the_note_is_read_as_it_was_written(log_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    ring_places.note(rings, SESSION, [(log_dir, ID)])
    assert ring_places.read(rings) == (place_of(log_dir),)
    assert (rings / ring_places.FILE_NAME).stat().st_mode & 0o777 == 0o600
    # Without rings there is nothing left to be said of an earlier log dir; with some there is.
    other = _formatted(tmp_path, b"o" * 16)
    (rings / "one.ring").touch()
    ring_places.note(rings, b"t" * 16, [(other, b"o" * 16)])
    assert {place.directory_id for place in ring_places.read(rings)} == {ID, b"o" * 16}
    ring_places.forget(rings)
    assert (rings / ring_places.FILE_NAME).exists(), "a ring needs it"
    (rings / "one.ring").unlink()
    (rings / ring_places.FILE_NAME).write_text('{"version": 1, "log_dirs": [{}]}')
    assert ring_places.read(rings) == ()
    assert "cannot be read" in caplog.text
    ring_places.forget(rings)
    assert not rings.exists()


@pytest.mark.parametrize("forget_first", [True, False])
@pytest.mark.parametrize(
    ("state", "is_kept"),
    [
        ("names it", True),
        ("names it in a damaged file", True),
        ("may only be unmounted", True),
        ("names another", False),
        ("names none", False),
        ("was deleted", False),
    ],
)
def test_the_directory_stays_for_a_log_dir_that_may_name_it(
    log_dir: Path, tmp_path: Path, state: str, is_kept: bool, forget_first: bool
) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    RingSession(tmp_path / "others" if state == "names another" else rings, SESSION, b"b" * 16).write(log_dir)
    ring_places.note(rings, SESSION, [(log_dir, ID)])
    if state == "names it in a damaged file":
        (log_dir / SESSION_FILE).write_bytes(bytes(80))
    elif state == "may only be unmounted":
        log_dir.parent.rename(tmp_path / "away")
        log_dir.parent.mkdir()
    elif state == "names none":
        (log_dir / SESSION_FILE).unlink()
    elif state == "was deleted":
        shutil.rmtree(log_dir)
    if forget_first:
        ring_places.forget(rings)
        assert rings.exists() is is_kept
    else:
        # The next run has another log dir alone.
        other = _formatted(tmp_path, b"o" * 16)
        ring_places.note(rings, b"t" * 16, [(other, b"o" * 16)])
        assert (ID in {place.directory_id for place in ring_places.read(rings)}) is is_kept
