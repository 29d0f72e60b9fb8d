"""The mark of the version that had a log dir, and what it keeps others from."""

import json
from pathlib import Path

import pytest

from pybroker import __version__
from pybroker.metadata.bootstrap import open_log_dirs
from pybroker.storage.dirs.format_version import FILE_NAME, FORMAT, OWN, FormatVersion, check_format, mark_format
from pybroker.storage.errors import StorageError
from pybroker.storage.offline.layout import LogDirFiles
from pybroker.storage.rings import tail_rings


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_new_dir_and_one_without_a_mark_get_one(tmp_path: Path) -> None:
    open_log_dirs([tmp_path], 1, 1000).release()
    assert FormatVersion.read(tmp_path) == FormatVersion(FORMAT, OWN.readable_since, __version__)
    (tmp_path / FILE_NAME).unlink()
    open_log_dirs([tmp_path], 1, 1000).release()
    assert FormatVersion.read(tmp_path) == OWN
    assert LogDirFiles.of(tmp_path).unknown == []


def test_a_mark_of_ones_own_is_left_alone(tmp_path: Path) -> None:
    mark_format(tmp_path)
    before = (tmp_path / FILE_NAME).stat()
    mark_format(tmp_path)
    assert (tmp_path / FILE_NAME).stat().st_ino == before.st_ino


@pytest.mark.parametrize("is_second", [False, True])
def test_a_newer_format_is_refused_and_nothing_touched(tmp_path: Path, is_second: bool) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    open_log_dirs([first, second], 1, 1000).release()
    newer = second if is_second else first
    FormatVersion(FORMAT + 2, FORMAT + 1, "9.8.7").write(newer)
    before = files_of(tmp_path)
    with pytest.raises(StorageError, match=rf"{newer} .*pybroker 9\.8\.7.*format {FORMAT + 2}.*Start pybroker 9\.8\.7"):
        open_log_dirs([first, second], 1, 1000)
    assert files_of(tmp_path) == before
    FormatVersion(FORMAT + 2, FORMAT, "9.8.7").write(newer)
    open_log_dirs([first, second], 1, 1000).release()
    assert FormatVersion.read(newer) == OWN


def test_a_dir_that_is_refused_for_another_reason_keeps_its_mark(tmp_path: Path) -> None:
    open_log_dirs([tmp_path], 1, 1000).release()
    other = FormatVersion(FORMAT + 1, FORMAT, "9.8.7")
    other.write(tmp_path)
    with pytest.raises(StorageError, match=r"node\.id"):
        open_log_dirs([tmp_path], 2, 1000)
    assert FormatVersion.read(tmp_path) == other


def test_rings_of_another_format_go_to_the_version_that_wrote_them(tmp_path: Path) -> None:
    FormatVersion(FORMAT + 1, FORMAT, "9.8.7").write(tmp_path)
    check_format(tmp_path)
    (tmp_path / tail_rings.FILE_NAME).write_text("{}")
    with pytest.raises(StorageError, match=r"tail rings.*start pybroker 9\.8\.7 once more and stop it"):
        check_format(tmp_path)
    OWN.write(tmp_path)
    check_format(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "\xff",
        json.dumps({"format": 0, "readable.since": 1, "written.by": "1"}),
        json.dumps({"format": 1, "readable.since": "1", "written.by": "1"}),
        json.dumps({"format": 1, "readable.since": True, "written.by": "1"}),
    ],
)
def test_a_damaged_mark_says_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_bytes(text.encode("latin-1"))
    with pytest.raises(StorageError, match=rf"{FILE_NAME} is damaged.*move the file away"):
        check_format(tmp_path)
