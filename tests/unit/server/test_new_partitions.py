"""The files of a new partition, as they are when CreateTopics is answered and when a record is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from daemon_client import config_for, connected, running

from pybroker.protocol import messages as m

SEGMENT = f"{0:020}"
FILES = {f"{SEGMENT}.log", f"{SEGMENT}.index", f"{SEGMENT}.timeindex", "leader-epoch-checkpoint", "partition.metadata"}


@pytest.mark.parametrize("by_use", [False, True], ids=["CreateTopics", "by use"])
def test_files_are_there_with_the_answer(by_use: bool, tmp_path: Path) -> None:
    async def run() -> None:
        async with running(config_for(tmp_path)) as daemon, connected(daemon) as client:
            if by_use:
                assert (await client.make_topic("t")).error_code == 0
            else:
                topic = m.CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
                answer = await client.call(m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
                assert [each.error_code for each in answer.topics] == [0]
            directory = tmp_path / "t-0"
            assert {each.name for each in directory.iterdir()} == FILES
            assert (directory / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
            assert (await client.produce("t", b"x")).error_code == 0
            assert {each.name for each in directory.iterdir()} == FILES
            await client.find_coordinator("g")
            offsets = tmp_path / "__consumer_offsets-0"
            assert {each.name for each in offsets.iterdir()} == FILES
            metadata = {each.name for each in (tmp_path / "__cluster_metadata-0").iterdir()}
            assert metadata >= FILES

    asyncio.run(run())
