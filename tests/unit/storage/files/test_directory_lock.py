"""The lock of a log dir: one holder, in this process, in another of ours, and in a JVM (a POSIX lock)."""

import subprocess
import sys
from pathlib import Path

import pytest

from pybroker.storage.errors import StorageError
from pybroker.storage.files.directory_lock import DirectoryLock, holder

_TRY = """
import sys
from pathlib import Path
from pybroker.storage.files.directory_lock import DirectoryLock
from pybroker.storage.errors import StorageError
try:
    DirectoryLock(Path(sys.argv[1]))
except StorageError as error:
    print(error)
    sys.exit(7)
"""


def _try_elsewhere(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _TRY, str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_second_broker_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path) as lock:
        with pytest.raises(StorageError, match="in use by another broker"):
            DirectoryLock(tmp_path)
        refused = _try_elsewhere(tmp_path)
        assert refused.returncode == 7
        assert str(tmp_path) in refused.stdout
        lock.release()
        assert _try_elsewhere(tmp_path).returncode == 0
    again = DirectoryLock(tmp_path)
    lock.release()
    with pytest.raises(StorageError):
        DirectoryLock(tmp_path)
    again.release()


def test_who_holds_it_is_told(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    held = _TRY + "\nprint('held', flush=True)\nsys.stdin.read()\n"
    command = [sys.executable, "-c", held, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert holder(tmp_path) == other.pid
        other.communicate()
    assert holder(tmp_path) is None
