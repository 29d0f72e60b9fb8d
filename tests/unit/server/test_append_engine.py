"""Which append engine a broker runs with, and says it does."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from daemon_client import config_for, running

from pybroker.native.rings import ring_stats
from pybroker.profiles import load_profile
from pybroker.server.daemon import Daemon, ready_line
from pybroker.storage.errors import StorageError
from pybroker.storage.rings.tail_rings import FILE_NAME


def test_with_direct_a_broker_keeps_rings_while_it_runs(tmp_path: Path) -> None:
    async def run(parent: str) -> None:
        config = config_for(
            tmp_path,
            pybroker_append_engine="direct",
            pybroker_tail_ring_directory=parent,
            pybroker_tail_ring_budget_bytes=str(64 << 20),
        )
        async with running(config) as daemon:
            assert " engine=direct " in ready_line(daemon, 1)
            assert ring_stats(daemon.native).budget_bytes == 64 << 20
            assert (tmp_path / FILE_NAME).exists()

    with TemporaryDirectory(dir="/dev/shm") as parent:
        asyncio.run(run(parent))
        assert not list(Path(parent).iterdir())
    assert not (tmp_path / FILE_NAME).exists()


def test_rings_that_are_not_on_tmpfs_are_refused_where_direct_was_asked_for(tmp_path: Path) -> None:
    async def run() -> None:
        config = config_for(tmp_path, pybroker_append_engine="direct", pybroker_tail_ring_directory="/proc/sys/kernel")
        with pytest.raises(StorageError, match=r"append engine direct cannot be used: .*/proc/sys/kernel"):
            await Daemon(config, load_profile(config)).start()

    asyncio.run(run())


def test_where_the_profile_chose_direct_the_engine_falls_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        config = config_for(tmp_path, pybroker_tail_ring_directory="/proc/sys/kernel")
        daemon = Daemon(config, dataclasses.replace(load_profile(config), append_engine="direct"))
        await daemon.start()
        try:
            assert " engine=paced " in ready_line(daemon, 1)
            assert ring_stats(daemon.native).budget_bytes == 0
        finally:
            await daemon.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "the append engine is paced, because direct cannot be used" in caplog.text
