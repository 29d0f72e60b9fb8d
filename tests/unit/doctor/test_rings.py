"""`pybroker doctor` on tail rings that this broker's next start does not take in: which it lists, which it removes."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from patients import Examine

from pybroker.cli.main import main
from pybroker.doctor.finding import Severity
from pybroker.storage.files.meta_properties import MetaProperties
from pybroker.storage.rings import ring_lock, ring_places
from pybroker.storage.rings.session_note import FILE_NAME as SESSION_FILE
from pybroker.storage.rings.tail_rings import RingSession, ring_directory
from tests.harness.process import free_port

sys.path.append(str(Path(__file__).parents[1] / "storage"))

from ring_files import RING_BYTES, SESSION, write_ring, write_session  # the path to it has to be there first

THEIRS, OTHERS = b"d" * 16, b"e" * 16
TOPIC = b"t" * 16


@pytest.fixture
def shm() -> Iterator[Path]:
    """The directory for tail rings of all brokers."""
    with tempfile.TemporaryDirectory(prefix="pybroker-test-", dir="/dev/shm") as directory:
        yield Path(directory)


@pytest.fixture
def settings(new_dir: Path, shm: Path) -> list[str]:
    """Those of the broker that is examined; none of the rings is its own."""
    return [f"log.dirs={new_dir}", f"pybroker.tail.ring.directory={shm}"]


def killed(shm: Path, *log_dirs: tuple[Path, bytes]) -> Path:
    """The directory of rings of a broker that was killed: one ring with records for each log dir, and an empty one."""
    directory = ring_directory(shm, log_dirs[0][1])
    directory.mkdir(mode=0o700)
    for path, directory_id in log_dirs:
        path.mkdir(parents=True)
        MetaProperties(2, "cluster", directory_id).write(path)
        write_session(path, directory)
        _fill(directory / f"{path.name}.ring", directory_id)
    write_ring(directory / "empty.ring", b"", start=0, directory_id=bytes(16), topic_id=TOPIC, sealed=False)
    ring_places.note(directory, SESSION, log_dirs)
    return directory


def _fill(path: Path, directory_id: bytes) -> None:
    write_ring(path, b"r" * 1024, start=4096, directory_id=directory_id, topic_id=TOPIC, topic="orders", partition=3)


FILLED = "--include-filled"


def fix(settings: list[str], *options: str) -> dict[str, dict[str, str]]:
    """The rings that `doctor --fix` says it has removed, or has not been asked to, by the names of their files."""
    words = ["doctor", "--fix", *options, "--json", "--override", f"listeners=PLAINTEXT://127.0.0.1:{free_port()}"]
    for each in settings:
        words += ["--override", each]
    result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return {Path(each["path"]).name: each for each in json.loads(result.output)["removed"]}


def names(directory: Path) -> set[str]:
    return {each.name for each in directory.glob("*.ring")}


def test_rings_of_a_deleted_log_dir_are_listed_and_then_removed(
    examined: Examine, settings: list[str], shm: Path, tmp_path: Path
) -> None:
    log_dir = tmp_path / "theirs"
    directory = killed(shm, (log_dir, THEIRS))
    shutil.rmtree(log_dir)
    found = examined(*settings)["tail-rings-orphaned"]
    assert (found.severity, found.subject) == (Severity.ADVICE, str(directory))
    assert "empty.ring (68 KiB, empty), theirs.ring (68 KiB, 1 KiB of orders-3)" in found.what
    assert found.what.endswith(f"; their log dir {log_dir} was deleted")
    assert "pybroker doctor --fix" in found.remedy
    removed = fix(settings, FILLED)
    assert removed["theirs.ring"] == {
        "path": str(directory / "theirs.ring"),
        "size_bytes": RING_BYTES + 4096,
        "log_dir": str(log_dir),
        "holds": "1 KiB of orders-3",
        "problem": "",
    }
    assert removed.keys() == {"theirs.ring", "empty.ring"}
    assert not directory.exists()
    assert fix(settings) == {}


@pytest.mark.parametrize("damage", [False, True], ids=["filled", "damaged"])
def test_a_ring_that_may_hold_records_goes_only_when_it_is_asked_for(
    examined: Examine, settings: list[str], shm: Path, tmp_path: Path, damage: bool
) -> None:
    log_dir = tmp_path / "theirs"
    directory = killed(shm, (log_dir, THEIRS))
    shutil.rmtree(log_dir)
    if damage:
        with open(directory / "theirs.ring", "r+b") as ring:
            ring.seek(RING_BYTES + 16)  # what the checksum of its head is of
            ring.write(b"\xff" * 8)
    assert "copy them if these matter" in examined(*settings)["tail-rings-orphaned"].remedy
    for kept in (fix(settings), fix(settings)):
        assert FILLED in kept["theirs.ring"]["problem"]
        assert names(directory) == {"theirs.ring"}
        assert ring_places.read(directory), "a later --fix has to know whose it is"
    assert fix(settings, FILLED)["theirs.ring"]["problem"] == ""
    assert not directory.exists()


def test_without_fix_filled_rings_cannot_be_asked_for() -> None:
    result = CliRunner().invoke(main, ["doctor", FILLED])
    assert result.exit_code == 2 and "--include-filled needs --fix" in result.output


def test_rings_of_a_log_dir_that_exists_are_listed_and_kept(
    examined: Examine, settings: list[str], shm: Path, tmp_path: Path
) -> None:
    log_dir = tmp_path / "theirs"
    directory = killed(shm, (log_dir, THEIRS))
    found = examined(*settings)["tail-rings-waiting"]
    assert found.severity is Severity.WARNING
    assert f"replayed by the next start of the broker of {log_dir}" in found.what
    assert fix(settings) == {}
    assert names(directory) == {"theirs.ring", "empty.ring"}
    moved = log_dir.rename(tmp_path / "moved")
    assert f"replayed by the next start of the broker of {moved}" in examined(*settings)["tail-rings-waiting"].what
    assert fix(settings) == {}
    assert names(directory) == {"theirs.ring", "empty.ring"}


def test_rings_of_a_log_dir_that_may_only_be_away_are_listed_and_kept(
    examined: Examine, settings: list[str], shm: Path, tmp_path: Path
) -> None:
    log_dir = tmp_path / "disk" / "theirs"
    directory = killed(shm, (log_dir, THEIRS))
    log_dir.parent.rename(tmp_path.parent / f"{tmp_path.name}-away")
    log_dir.parent.mkdir()
    found = examined(*settings)["tail-rings-unclaimed"]
    assert found.severity is Severity.WARNING
    assert f"it is not certain that their log dir {log_dir} still exists" in found.why
    assert "rm " not in found.remedy
    assert fix(settings) == {}
    assert names(directory) == {"theirs.ring", "empty.ring"}


@pytest.mark.parametrize(("new_id", "names_rings"), [(bytes(16), True), (bytes(16), False), (b"n" * 16, True)])
def test_rings_of_a_log_dir_whose_id_changed_are_kept(
    settings: list[str], shm: Path, tmp_path: Path, new_id: bytes, names_rings: bool
) -> None:
    log_dir = tmp_path / "theirs"
    directory = killed(shm, (log_dir, THEIRS))
    MetaProperties(1, "cluster", new_id).write(log_dir)
    if not names_rings:
        (log_dir / SESSION_FILE).unlink()
    assert fix(settings) == {}
    assert names(directory) == {"theirs.ring", "empty.ring"}


def test_a_directory_that_a_killed_broker_has_left_without_rings_goes(
    settings: list[str], shm: Path, tmp_path: Path
) -> None:
    log_dir = tmp_path / "theirs"
    directory = killed(shm, (log_dir, THEIRS))
    for path in directory.glob("*.ring"):
        path.unlink()
    assert fix(settings) == {}
    assert directory.exists(), "its log dir would miss it"
    shutil.rmtree(log_dir)
    assert fix(settings) == {}
    assert not directory.exists()


def test_of_two_log_dirs_only_the_deleted_ones_rings_go(settings: list[str], shm: Path, tmp_path: Path) -> None:
    directory = killed(shm, (tmp_path / "a", THEIRS), (tmp_path / "b", OTHERS))
    shutil.rmtree(tmp_path / "a")
    assert fix(settings, FILLED).keys() == {"a.ring"}
    assert names(directory) == {"b.ring", "empty.ring"}, "an empty one may be of either"
    shutil.rmtree(tmp_path / "b")
    assert fix(settings, FILLED).keys() == {"b.ring", "empty.ring"}
    assert not directory.exists()


def test_rings_of_which_nothing_says_whose_they_are_stay(
    examined: Examine, settings: list[str], shm: Path, tmp_path: Path
) -> None:
    log_dir = tmp_path / "theirs"
    directory = killed(shm, (log_dir, THEIRS))
    (directory / ring_places.FILE_NAME).unlink()
    shutil.rmtree(log_dir)
    found = examined(*settings)["tail-rings-unclaimed"]
    assert "nothing says where their log dir is" in found.why
    assert "directory.id=ZGRkZGRkZGRkZGRkZGRkZA" in found.remedy
    assert fix(settings) == {}
    assert names(directory) == {"theirs.ring", "empty.ring"}


def test_rings_in_use_are_not_spoken_of_and_not_touched(
    examined: Examine, settings: list[str], shm: Path, tmp_path: Path
) -> None:
    log_dir = tmp_path / "theirs"
    directory = killed(shm, (log_dir, THEIRS))
    shutil.rmtree(log_dir)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert ring_lock.is_locked(directory)
        assert not {kind for kind in examined(*settings) if kind.startswith("tail-rings-")}
        assert fix(settings) == {}
        assert names(directory) == {"theirs.ring", "empty.ring"}
    finally:
        os.close(descriptor)
    assert not ring_lock.is_locked(directory)
    assert "tail-rings-orphaned" in examined(*settings)


def test_rings_of_an_earlier_run_of_this_broker_are_kept(
    examined: Examine, settings: list[str], new_dir: Path, shm: Path
) -> None:
    own = MetaProperties.read(new_dir)
    assert own is not None
    directory = ring_directory(shm, own.directory_id)
    directory.mkdir(mode=0o700)
    _fill(directory / "old.ring", own.directory_id)
    ring_places.note(directory, SESSION, [(new_dir, own.directory_id)])
    RingSession(directory, b"n" * 16, b"b" * 16).write(new_dir)
    found = examined(*settings)["tail-rings-unclaimed"]
    assert found.severity is Severity.WARNING
    assert "no log here takes them" in found.why
    assert fix(settings) == {}
    assert names(directory) == {"old.ring"}


def test_without_fix_nothing_is_removed_and_with_it_a_line_says_what(
    settings: list[str], shm: Path, tmp_path: Path
) -> None:
    log_dir = tmp_path / "theirs"
    directory = killed(shm, (log_dir, THEIRS))
    shutil.rmtree(log_dir)
    words = ["doctor", "--override", f"listeners=PLAINTEXT://127.0.0.1:{free_port()}"]
    words += [word for each in settings for word in ("--override", each)]
    CliRunner().invoke(main, words)
    assert names(directory) == {"theirs.ring", "empty.ring"}
    output = CliRunner().invoke(main, [*words, "--fix", FILLED]).output
    ring = f"{directory}/theirs.ring (68 KiB, 1 KiB of orders-3)"
    assert f"removed the tail ring {ring} of the deleted log dir {log_dir}\n" in output
