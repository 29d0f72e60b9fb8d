"""OffsetCommit while topics come and go."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from pybroker import turns
from pybroker.coordinator.group.requests.offsets import CommitTopic
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server.apis.groups import offset_commit

COUNT = 100
DELETED = 3


class Groups:
    """Takes all that is committed."""

    def __init__(self) -> None:
        self.committed: list[str] = []

    def commit_offsets(self, version: int, request: m.OffsetCommitRequest, topics: list[CommitTopic]) -> None:
        self.committed += [topic.name for topic in topics]


def _topics(numbers: list[int]) -> SimpleNamespace:
    known = [SimpleNamespace(name=f"t{each}", id=_id(each), partitions={0: None}) for each in numbers]
    return SimpleNamespace(
        topics=SimpleNamespace(by_name={each.name: each for each in known}, by_id={each.id: each for each in known})
    )


def _id(number: int) -> bytes:
    return number.to_bytes(16, "big")


@pytest.mark.parametrize(
    ("version", "refusal"), [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_no_offset_of_a_topic_that_was_deleted_meanwhile_is_committed(version: int, refusal: ErrorCode) -> None:
    request = m.OffsetCommitRequest(
        group_id="g",
        topics=[
            m.OffsetCommitRequest.OffsetCommitRequestTopic(
                name=f"t{each}",
                topic_id=_id(each),
                partitions=[m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
            )
            for each in range(COUNT)
        ],
    )

    async def run() -> tuple[Any, list[str]]:
        ticks = itertools.count(0, turns.SLICE_NS)
        turns.install(turns.Turns(asyncio.get_running_loop(), lambda: next(ticks)))
        metadata = SimpleNamespace(image=_topics(list(range(COUNT))))
        broker: Any = SimpleNamespace(metadata=metadata, groups=Groups())
        context: Any = SimpleNamespace(api_version=version)
        handling = asyncio.create_task(offset_commit.handle(broker, context, request))
        await asyncio.sleep(0)
        assert not handling.done() and not broker.groups.committed, "the test needs a request that waits for a slice"
        metadata.image = _topics([each for each in range(COUNT) if each != DELETED])
        return await handling, broker.groups.committed

    response, committed = asyncio.run(run())
    assert committed == [f"t{each}" for each in range(COUNT) if each != DELETED]
    codes = [topic.partitions[0].error_code for topic in response.topics]
    assert codes == [refusal if each == DELETED else ErrorCode.NONE for each in range(COUNT)]
