"""The end of a log's service while a call on a thread is under way."""

from __future__ import annotations

import asyncio
from pathlib import Path

from log_setup import NOT_LEADER, setup


def test_all_who_end_the_service_are_told_when_the_last_call_is_over(tmp_path: Path) -> None:
    """A log dir that fails and a broker that stops end it at the same time; one of them may give up before."""

    async def run() -> None:
        async with setup(tmp_path) as logs:
            log = await logs.open()
            log.hold()
            ending = [asyncio.create_task(log.end_service(NOT_LEADER)) for _ in range(3)]
            async with asyncio.timeout(10):
                while not log._idle:  # noqa: ASYNC110 - there is no event to wait for
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.05)
                ending[0].cancel()
                await asyncio.gather(ending[0], return_exceptions=True)
                log.release()
                await asyncio.gather(*ending[1:])

    asyncio.run(run())
