"""Events are log lines that were given a reason; the newest are kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pybroker.observability.event_log import KINDS, EventLog, event


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("test-events")
    found.setLevel(logging.INFO)
    yield found
    found.handlers.clear()


def test_lines_with_a_reason_are_kept_and_others_are_not(logger: logging.Logger) -> None:
    events = EventLog()
    logger.addHandler(events)
    logger.info("nothing special")
    logger.info("group %s begins", "g", extra=event("rebalance", group="g", generation=3))
    logger.warning("slow", extra=event("slow_request"))
    first, second = events.newest(10)
    assert (first.number, first.kind, first.text, first.fields) == (
        1,
        "rebalance",
        "group g begins",
        {"group": "g", "generation": 3},
    )
    assert first.as_dict()["fields"] == {"group": "g", "generation": 3}
    assert second.time_s >= first.time_s
    assert events.newest(10, kind="slow_request") == [second]
    assert events.newest(10, after=1) == [second]
    assert events.newest(1) == [second]
    assert events.newest(0) == []
    assert events.counts() == {**dict.fromkeys(KINDS, 0), "rebalance": 1, "slow_request": 1}


def test_old_events_make_room_for_new_ones(logger: logging.Logger) -> None:
    events = EventLog(capacity=3)
    logger.addHandler(events)
    for number in range(10):
        logger.info("%d", number, extra=event("roll"))
    assert [each.text for each in events.newest(100)] == ["7", "8", "9"]
    assert events.counts()["roll"] == 10


def test_a_flood_of_one_kind_pushes_out_no_other(logger: logging.Logger) -> None:
    """A client can begin a group a thousand times a second."""
    events = EventLog(capacity=10)
    logger.addHandler(events)
    logger.info("gone", extra=event("offline"))
    for number in range(1_000):
        logger.info("%d", number, extra=event("rebalance", group="g" * 32_767))
    logger.info("rolled", extra=event("roll"))
    found = events.newest(100)
    assert [each.kind for each in found] == ["offline", *["rebalance"] * 8, "roll"]
    assert [each.text for each in found[1:9]] == [str(number) for number in range(992, 1_000)]
    assert all(len(str(each.fields)) < 1_200 for each in found), "what is kept is bounded as the log is"
    assert [each.number for each in found] == sorted(each.number for each in found)
