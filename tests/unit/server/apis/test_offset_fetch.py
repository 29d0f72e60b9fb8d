"""OffsetFetch: the order of its answer."""

import asyncio
from types import SimpleNamespace
from typing import Any

from pybroker.coordinator.group.requests.offsets import FetchedOffset
from pybroker.protocol import messages as m
from pybroker.protocol.errors import ErrorCode
from pybroker.server.apis.groups import offset_fetch

_IDS = {name: bytes([number]) * 16 for number, name in enumerate("abcd", 1)}
_UNKNOWN = ("b", "d")
_Topic = m.OffsetFetchRequest.OffsetFetchRequestTopics


def _answer(*topics: Any, version: int) -> list[Any]:
    async def fetch(
        _group: str, _topic: str, _topic_id: bytes, indexes: list[int], _stable: bool
    ) -> list[FetchedOffset]:
        return [FetchedOffset(index, 5, -1, "", ErrorCode.NONE) for index in indexes]

    by_id = {id_: SimpleNamespace(name=name, id=id_) for name, id_ in _IDS.items() if name not in _UNKNOWN}
    image = SimpleNamespace(topics=SimpleNamespace(by_id=by_id, by_name={each.name: each for each in by_id.values()}))
    groups = SimpleNamespace(check_readable=lambda _group: None, fetch_offsets=fetch)
    broker: Any = SimpleNamespace(metadata=SimpleNamespace(image=image), groups=groups)
    context: Any = SimpleNamespace(api_version=version)
    group = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=list(topics))
    response = asyncio.run(offset_fetch.handle(broker, context, m.OffsetFetchRequest(groups=[group])))
    return list(response.groups[0].topics)


def test_unknown_ids_come_last_and_nothing_else_changes_its_place() -> None:
    asked = [_Topic(topic_id=_IDS[name], partition_indexes=[0, 1]) for name in "dcba"]
    answered = _answer(*asked, version=10)
    assert [each.topic_id for each in answered] == [_IDS[name] for name in "cadb"]
    codes = [[row.error_code for row in each.partitions] for each in answered]
    assert codes == [[0, 0], [0, 0], *[[ErrorCode.UNKNOWN_TOPIC_ID] * 2] * 2]


def test_names_keep_their_order() -> None:
    asked = [_Topic(name=name, partition_indexes=[0]) for name in "dcba"]
    assert [each.name for each in _answer(*asked, version=9)] == list("dcba")
