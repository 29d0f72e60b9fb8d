"""Modes of what a broker makes: its log dirs and tail rings are for its user and group, and no umask widens them."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_client import config_for, connected, running

from pybroker.storage.dirs.directory_copy import DirectoryCopy
from pybroker.storage.files import clean_shutdown
from pybroker.storage.files.log_ends import LogEnds
from pybroker.storage.files.modes import make_directory

VALUE = bytes(400 << 10)


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A umask that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def rings() -> Iterator[Path]:
    """A directory for tail rings."""
    with tempfile.TemporaryDirectory(prefix="pybroker-modes-", dir="/dev/shm") as directory:
        yield Path(directory)


def modes_below(*roots: Path) -> dict[str, int]:
    """The mode of each file and directory, by its path."""
    return {str(path): stat.S_IMODE(path.lstat().st_mode) for root in roots for path in sorted(root.rglob("*"))}


def too_wide(modes: dict[str, int]) -> dict[str, str]:
    """What others may read, or what the group may write to."""
    return {path: oct(mode) for path, mode in modes.items() if mode & 0o027}


async def _live(log_dirs: Path, rings: Path) -> dict[str, int]:
    """A broker's life: two log dirs, rolls, a group's offsets, tail rings, a clean stop. The modes while it runs."""
    config = config_for(
        log_dirs / "a",
        log_dirs=f"{log_dirs}/new/a,{log_dirs}/new/b",
        log_segment_bytes=str(1 << 20),
        num_partitions="4",
        pybroker_append_engine="direct",
        pybroker_tail_ring_directory=str(rings),
        pybroker_tail_ring_budget_bytes=str(64 << 20),
        pybroker_tail_ring_hot_bytes_per_second="1",
    )
    async with running(config) as daemon, connected(daemon) as client:
        await client.make_topic("t")
        for index in range(4):
            for _ in range(6):
                assert (await client.produce("t", VALUE, index=index)).error_code == 0
        await asyncio.sleep(0.5)
        return modes_below(log_dirs, rings)


def test_nothing_that_a_broker_makes_is_for_others(tmp_path: Path, rings: Path, open_umask: None) -> None:
    del open_umask
    running_modes = asyncio.run(_live(tmp_path, rings))
    assert too_wide(running_modes) == {}
    assert too_wide(modes_below(tmp_path, rings)) == {}
    segments = {mode for path, mode in running_modes.items() if path.endswith(".log")}
    assert segments == {0o640}
    assert running_modes[str(tmp_path / "new/a")] == running_modes[str(tmp_path / "new/b")] == 0o750
    assert any(path.startswith(str(rings)) for path in running_modes)


def test_a_stricter_umask_is_respected(tmp_path: Path, rings: Path) -> None:
    before = os.umask(0o077)
    try:
        modes = asyncio.run(_live(tmp_path, rings))
    finally:
        os.umask(before)
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}


def test_what_is_there_keeps_its_mode(tmp_path: Path, rings: Path) -> None:
    """Files that are replaced, as checkpoints are, included: whoever may read them goes on to."""
    asyncio.run(_live(tmp_path, rings))
    for path in tmp_path.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o664)
    before = modes_below(tmp_path)
    asyncio.run(_live(tmp_path, rings))
    after = modes_below(tmp_path)
    # A start takes the mark of a clean stop away.
    kept = {path for path in before.keys() & after.keys() if not path.endswith(clean_shutdown.FILE_NAME)}
    assert {Path(path).name for path in kept} >= {"recovery-point-offset-checkpoint", "leader-epoch-checkpoint"}
    assert {path: oct(after[path]) for path in kept if after[path] != before[path]} == {}


def test_the_copy_of_a_log_and_what_a_kill_leaves_are_not_for_others(tmp_path: Path, open_umask: None) -> None:
    del open_umask
    source = tmp_path / "source"
    make_directory(source)
    (source / "leader-epoch-checkpoint").touch(0o640)
    DirectoryCopy(source, tmp_path / "copy").follow({}, 0, lambda _bytes: None)
    LogEnds(source).save_written({})
    assert (tmp_path / "copy/leader-epoch-checkpoint").exists()
    assert too_wide(modes_below(tmp_path)) == {}
