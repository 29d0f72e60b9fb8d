"""A write that the disk refuses: clients get an error, the log is repaired, and the broker goes on."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daemon_client import config_for, connected, running

from pybroker.protocol.errors import ErrorCode


@contextmanager
def file_size_bound(size_bytes: int) -> Iterator[None]:
    """No file of this process can grow beyond that size: writes there fail with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_a_failed_write_is_repaired(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            await client.make_topic("t")
            assert (await client.produce("t", b"before")).error_code == 0
            with file_size_bound(8192):
                refused = await client.produce("t", bytes(100_000))
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            for _ in range(6000):
                again = await client.produce("t", b"after")
                if again.error_code == 0:
                    break
                await asyncio.sleep(0.01)
            assert (again.error_code, again.base_offset) == (0, 1), "nothing of the failed batch stays"
            assert (await client.offset("t", -1)).offset == 2
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            assert (await client.offset("t", -1)).offset == 2

    asyncio.run(run())
