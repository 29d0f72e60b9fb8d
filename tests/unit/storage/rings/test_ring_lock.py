"""A directory of tail rings that `pybroker doctor --fix` looks through while a broker starts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pybroker.storage.errors import StorageError
from pybroker.storage.rings import ring_lock


def _as_broker(directory: Path) -> Iterator[None]:
    descriptor = ring_lock.lock_for_broker(directory)
    assert descriptor is not None
    try:
        yield
    finally:
        os.close(descriptor)


def _as_replay(directory: Path) -> Iterator[None]:
    with ring_lock.locked_for_replay(directory):
        yield


Lock = Callable[[Path], Iterator[None]]


@pytest.mark.parametrize("lock", [_as_broker, _as_replay])
def test_a_start_waits_for_a_removal_that_is_soon_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: Lock
) -> None:
    with contextlib.ExitStack() as removal:
        assert removal.enter_context(ring_lock.locked_for_removal(tmp_path))
        waits: list[float] = []

        def end_removal(seconds: float) -> None:
            waits.append(seconds)
            removal.close()

        monkeypatch.setattr(time, "sleep", end_removal)
        with contextlib.contextmanager(lock)(tmp_path):
            assert len(waits) == 1
            with ring_lock.locked_for_removal(tmp_path) as is_ours:
                assert not is_ours


def test_a_directory_that_is_removed_meanwhile_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "rings"
    directory.mkdir()
    flock = fcntl.flock

    def remove_before(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        directory.rmdir()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_before)
    with contextlib.contextmanager(_as_broker)(directory), ring_lock.locked_for_removal(directory) as is_ours:
        assert directory.is_dir()
        assert not is_ours, "the lock is on the directory that has the name"


@pytest.mark.parametrize("lock", [_as_broker, _as_replay])
def test_another_broker_is_told_of_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: Lock) -> None:
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    with (
        contextlib.contextmanager(_as_broker)(tmp_path),
        pytest.raises(StorageError, match="in use by another broker"),
        contextlib.contextmanager(lock)(tmp_path),
    ):
        pass
    assert 1 <= now_s[0] < 2
